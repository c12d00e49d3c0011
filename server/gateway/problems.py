"""Errors as ``application/problem+json`` (RFC 9457): ``code`` is the name of a type in ``telegrad_protocol.errors``.

Every error leaves the HTTP interface through here, those of the framework too. Knows no endpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from server.disclosure import defect, traceback_for
from telegrad_protocol import errors
from telegrad_protocol.errors import ArgumentError, RequestError, TelegradError

from .methods import methods_of

_NO_ENDPOINT: Final = "there is no such endpoint; /docs lists all"
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
    errors.ToolkitError: 501,
    errors.InternalError: 500,
    errors.CaptureError: 409,
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
_ARGUMENTS: Final = 422
"""Of all other errors: what a caller got wrong in the arguments."""
STATUSES: Final = {*_STATUS.values(), _ARGUMENTS}
"""The statuses that errors have, unless one is refused with another."""

PROBLEM: Final = "telegrad.problem"
"""Under this name the scope of a request has the ``ProblemAnswered`` that it was answered with."""

REQUEST_ID: Final = "telegrad.request_id"
"""Under this name the scope of a request has its id."""
REQUEST_ID_HEADER: Final = "x-request-id"

log = logging.getLogger(__name__)


class ProblemAnswered(NamedTuple):
    """An error that a request was answered with; ``rejection`` says why it was refused, where the error does not."""

    error: TelegradError
    rejection: str


class ProblemResponse(JSONResponse):
    """A problem document, which notes in the request's scope what it tells of."""

    def __init__(self, content: Any, status: int, headers: Mapping[str, str] | None, answered: ProblemAnswered) -> None:
        super().__init__(content, status, headers, MEDIA_TYPE)
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[PROBLEM] = self._answered
        await super().__call__(scope, receive, send)


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
    """An error whose status is not the usual one of its code; ``rejection`` is what metrics call the reason."""

    def __init__(
        self, status: int, error: TelegradError, headers: Mapping[str, str] | None = None, rejection: str = ""
    ) -> None:  # fmt: skip
        super().__init__(status, error.message, headers)
        self.error, self.rejection = error, rejection


def status_of(error: TelegradError) -> int:
    """The HTTP status of an error."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), _ARGUMENTS)


def unavailable(reason: str, retry_after: int | None = 5, rejection: str = "") -> NoReturn:
    """Refuse for now: the client may come again after so many seconds; with None, coming again is of no use."""
    headers = None if retry_after is None else {"Retry-After": str(retry_after)}
    raise Refused(503, errors.CommunicationError(reason), headers, rejection)


def problem_response(
    path: str,
    error: TelegradError,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    details: list[dict[str, Any]] | None = None,
    rejection: str = "",
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
    return ProblemResponse(
        problem.model_dump(exclude_none=True), status, headers, ProblemAnswered(error, rejection)
    )  # fmt: skip


def install_problems(app: FastAPI) -> None:
    """Make every error of ``app`` a problem document."""

    def respond(request: Request, error: TelegradError, **rest: Any) -> JSONResponse:
        return problem_response(request.url.path, error, **rest)

    @app.exception_handler(TelegradError)
    async def telegrad_error(request: Request, error: TelegradError) -> JSONResponse:
        return respond(request, error)

    @app.exception_handler(Refused)
    async def refused(request: Request, refusal: Refused) -> JSONResponse:
        return respond(
            request, refusal.error, status=refusal.status_code, headers=refusal.headers, rejection=refusal.rejection
        )

    @app.exception_handler(HTTPException)
    async def framework_error(request: Request, error: HTTPException) -> JSONResponse:
        reason, headers = error.detail, error.headers
        if error.status_code == 404:
            reason = _NO_ENDPOINT
        elif error.status_code == 405:
            allowed = ", ".join(methods_of(request.scope))
            reason, headers = f"the endpoint does not have this method; it has {allowed}", {"Allow": allowed}
        known = RequestError(f"{request.method} {request.url.path}: {reason}")
        return respond(request, known, status=error.status_code, headers=headers)

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
        id = request.scope.get(REQUEST_ID)
        return respond(request, known, headers={REQUEST_ID_HEADER: id} if id else None)


def _located(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"where": ".".join(map(str, item["loc"])), "problem": item["msg"], "type": item["type"]}
