"""What the description of the interface says of errors: with which statuses each endpoint may answer."""

from __future__ import annotations

import http
from typing import Any, Final

from fastapi import FastAPI

from server.gateway.auth import OPEN_PATHS
from server.gateway.problems import MEDIA_TYPE, STATUSES, Problem

_USUAL: Final = {400, 401, 403, 408, 414, 431, 500, 503}
"""What any endpoint may answer: requests that are refused before it, and a server that is not ready or has a defect."""
_OF_BODIES: Final = {"post": {413, 415, 507}, "put": {413, 415, 507}, "delete": {413, 507}}
_OPENS_SESSIONS: Final = ("post", "/v1/sessions")
_PROGRAMS: Final = "/v1/programs"


def statuses_of(method: str, path: str, operation: dict[str, Any]) -> set[int]:
    """The statuses of errors that an endpoint may answer with, beside those that it declares itself."""
    statuses = _USUAL - {401} if path in OPEN_PATHS else _USUAL
    statuses = statuses | _OF_BODIES.get(method, set())
    if operation.get("parameters") or operation.get("requestBody"):
        statuses |= {422}
    if "{session_id}" in path or (method, path) == _OPENS_SESSIONS or path.startswith(_PROGRAMS):
        statuses |= STATUSES  # whatever a worker refuses
    return statuses


def describe_errors(app: FastAPI) -> None:
    """Have the description of ``app`` say of each endpoint that it may answer with problem documents, and when."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        described = describe()
        for path, methods in described["paths"].items():
            for method, operation in methods.items():
                answers = operation["responses"]
                for status in sorted(statuses_of(method, path, operation)):
                    answers.setdefault(str(status), {})
                for status, answer in answers.items():
                    if status >= "400":
                        answer["description"] = http.HTTPStatus(int(status)).phrase
                        answer["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        schemas = described["components"]["schemas"]
        schemas.pop("HTTPValidationError", None)
        schemas.pop("ValidationError", None)
        schemas["Problem"] = Problem.model_json_schema()
        return described

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation has it
