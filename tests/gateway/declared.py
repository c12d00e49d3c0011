"""Whether the description of the HTTP interface knows of an answer that a test has got."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import httpx
from fastapi import FastAPI

JSON = "application/json"
PROBLEM = "application/problem+json"
_descriptions: dict[str, Any] = {}


def description_of(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, which is the same for all applications of a run."""
    if not _descriptions:
        _descriptions.update(json.loads(json.dumps(app.openapi())))
    return _descriptions


@functools.cache
def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{\w+\}", "[^/]+", template))


def operation_of(description: dict[str, Any], method: str, path: str) -> dict[str, Any] | None:
    """The described operation that a request goes to."""
    for template, operations in description["paths"].items():
        if _pattern(template).fullmatch(path):
            found: dict[str, Any] | None = operations.get(method.lower())
            return found
    return None


def check_declared(app: FastAPI, answer: httpx.Response) -> None:
    """Assert that an answer's status is in the description, and that an error is a problem document of it."""
    method, path, status = answer.request.method, answer.request.url.path, answer.status_code
    operation = operation_of(description_of(app), method, path)
    if operation is not None:
        assert str(status) in operation["responses"], f"{method} {path}: {status} is not declared"
    if status >= 400 and method != "HEAD":
        assert answer.headers["content-type"] == PROBLEM, f"{method} {path}: {status} {answer.text[:200]}"
        problem = answer.json()
        assert problem["status"] == status and problem["instance"] == path
        assert problem["detail"] and problem["title"] and problem["type"] == f"urn:telegrad:{problem['code']}"
