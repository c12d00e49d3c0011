"""Errors as ``application/problem+json`` (RFC 9457): ``code`` is the name of a type in ``telegrad_protocol.errors``.

Every error leaves the HTTP interface through here, those of the framework too. Knows no endpoint.
"""

from __future__ import annotations

import http
import logging
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from server.disclosure import defect, traceback_for
from telegrad_protocol import errors
from telegrad_protocol.errors import ArgumentError, RequestError, TelegradError

_REASONS: Final = {
    404: "there is no such endpoint; /docs lists all",
    405: "the endpoint does not have this method; the header Allow names those that it has",
}
_USUAL: Final = {400, 401, 403, 408, 414, 431, 500, 503}
"""What any endpoint may answer: requests that are refused before it, and a server that is not ready or has a defect."""
_OF_BODIES: Final = {413, 415, 422}
_OF_SESSIONS: Final = {404, 409, 410, 501, 507}
MAX_DETAILS: Final = 20
"""So many mistakes of a body are told at most."""
MEDIA_TYPE: Final = "application/problem+json"

_STATUS: Final[dict[type[TelegradError], int]] = {
    errors.AutogradError: 409,
    errors.InplaceError: 409,
    errors.NotComputedError: 409,
    errors.HandshakeError: 409,
    errors.OutOfMemoryError: 507,
    errors.LimitExceededError: 413,
    errors.NotSupportedError: 501,
    errors.InternalError: 500,
    errors.AcceleratorError: 500,
    errors.SynchronizationError: 409,
    errors.NotAllowedError: 403,
    errors.ConfigurationError: 500,
    errors.AuthenticationError: 401,
    errors.ProtocolError: 400,
    errors.RequestError: 400,
    errors.UnknownIdError: 404,
    errors.SessionInUseError: 409,
    errors.SessionDetachedError: 410,
    errors.SessionLostError: 410,
    errors.CommunicationError: 503,
}

log = logging.getLogger(__name__)


class Problem(BaseModel):
    """What went wrong; the members of RFC 9457, and what the engine knows about the failed operation."""

    type: str = Field(description="`urn:telegrad:` and the code")
    title: str = Field(description="what kind of error this is")
    status: int
    detail: str = Field(description="what is wrong")
    code: str = Field(description="stable name of the error, a class of `telegrad_protocol.errors`")
    instance: str = Field(description="path of the request")
    operation: str | None = None
    operands: str | None = None
    site: str | None = Field(None, description="which of several operations failed, such as `ops[2]`")
    server_traceback: str | None = None
    errors: list[dict[str, Any]] | None = Field(None, description="for a malformed body: where, and what is wrong")


class Refused(HTTPException):
    """An error whose status is not the usual one of its code."""

    def __init__(self, status: int, error: TelegradError, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, error.message, headers)
        self.error = error


def status_of(error: TelegradError) -> int:
    """The HTTP status of an error; 422 for what a caller got wrong in the arguments."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 422)


def unavailable(reason: str, retry_after: int | None = 5) -> NoReturn:
    """Refuse for now: the client may come again after so many seconds; with None, coming again is of no use."""
    headers = None if retry_after is None else {"Retry-After": str(retry_after)}
    raise Refused(503, errors.CommunicationError(reason), headers)


def problem_response(
    path: str,
    error: TelegradError,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    details: list[dict[str, Any]] | None = None,
) -> JSONResponse:
    """The answer that tells a client of ``error``."""
    status = status_of(error) if status is None else status
    if status == 503 and isinstance(error, errors.WorkerCrashedError):
        headers = {"Retry-After": "1"} | dict(headers or {})  # another worker is being started
    problem = Problem(
        type=f"urn:telegrad:{error.code}", title=(type(error).__doc__ or "").split("\n")[0].rstrip("."), status=status,
        detail=error.message, code=error.code, instance=path, operation=error.operation or None,
        operands=error.operands or None, site=error.site or None, server_traceback=error.server_traceback or None,
        errors=details,
    )  # fmt: skip
    return JSONResponse(problem.model_dump(exclude_none=True), status, headers, MEDIA_TYPE)


def describe_problems(app: FastAPI) -> None:
    """Have the description of ``app`` say of each endpoint that it may answer with problem documents, and when."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        described = describe()
        for path, methods in described["paths"].items():
            of_path = _USUAL | (_OF_SESSIONS if "{session_id}" in path else set())
            for method, operation in methods.items():
                answers = operation["responses"]
                for status in of_path | (_OF_BODIES if method in ("post", "put") else set()):
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


def install_problems(app: FastAPI) -> None:
    """Make every error of ``app`` a problem document."""

    def respond(request: Request, error: TelegradError, **rest: Any) -> JSONResponse:
        request.app.state.gateway.metrics.errors.labels(error.code).inc()
        return problem_response(request.url.path, error, **rest)

    @app.exception_handler(TelegradError)
    async def telegrad_error(request: Request, error: TelegradError) -> JSONResponse:
        return respond(request, error)

    @app.exception_handler(Refused)
    async def refused(request: Request, refusal: Refused) -> JSONResponse:
        return respond(request, refusal.error, status=refusal.status_code, headers=refusal.headers)

    @app.exception_handler(HTTPException)
    async def framework_error(request: Request, error: HTTPException) -> JSONResponse:
        reason = _REASONS.get(error.status_code, error.detail)
        known = RequestError(f"{request.method} {request.url.path}: {reason}")
        return respond(request, known, status=error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        details = [_located(item) for item in error.errors()[:MAX_DETAILS]]
        text = "; ".join(f"{item['where']}: {item['problem']}" for item in details[:3])
        return respond(request, ArgumentError(text), details=details)

    @app.exception_handler(ClientDisconnect)
    async def left(request: Request, error: ClientDisconnect) -> Response:
        log.info("client left", extra={"path": request.url.path})
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, error: Exception) -> JSONResponse:
        known = defect(error)
        known.server_traceback = traceback_for(error)
        return respond(request, known)


def _located(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"where": ".".join(map(str, item["loc"])), "problem": item["msg"], "type": item["type"]}
