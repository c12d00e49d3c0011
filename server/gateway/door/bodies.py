"""Bodies that are held in memory: how large, how deep, and in which form they may be.

Those of PUT pass: they are tensors, and are streamed. All others are JSON, which is counted before it is parsed: what
is within the limits is parsed in some ten milliseconds, during which the server does nothing else. What a request holds
is charged to its tenant, until it is answered.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.gateway.auth import OWNER_HEADER, SESSION_KEY_HEADER, TENANT
from server.gateway.problems import Refused, problem_response
from server.gateway.tenancy.request_memory import MEMORY, RequestMemory, RequestQuotas
from telegrad_protocol.errors import OutOfMemoryError, RequestError

MAX_VALUES: Final = 300_000
"""Values in a body of JSON: more than a chunk of float32 has elements."""
MAX_DEPTH: Final = 100
VALUE_BYTES: Final = 300
"""What a value of JSON may take in memory, as measured: parsed, checked, and as an instruction for the worker."""
TEXT_FACTOR: Final = 2
"""What a text of JSON may take besides, as a multiple of its length."""
PROGRAMS: Final = "/v1/programs/"
TENSOR_FILES: Final = frozenset((
    "application/x-npy", "application/npy", "application/vnd.numpy", "application/vnd.safetensors",
    "application/safetensors", "application/x-safetensors",
))  # fmt: skip
"""What programs take beside JSON. Web pages of other origins cannot send it without asking, either."""
_OTHERS: Final = bytes(set(range(256)) - set(b"[]{}"))


class BodyLimit:
    """Refuses bodies of more than ``limit`` bytes, and such as are no JSON or take long to parse.

    Where nobody has shown who he is there is no endpoint that takes a body, and none is read.
    """

    def __init__(self, app: ASGIApp, limit: int, quotas: RequestQuotas) -> None:
        self.app = app
        self.limit = limit
        self._quotas = quotas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or TENANT not in scope:
            await self.app(scope, receive, send)
            return
        memory = scope[MEMORY] = self._quotas.of(scope[TENANT])
        try:
            await self._admit(scope, receive, send, memory)
        finally:
            memory.end()

    async def _admit(self, scope: Scope, receive: Receive, send: Send, memory: RequestMemory) -> None:
        if scope["method"] in ("PUT", "GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            is_binary = scope["path"].startswith(PROGRAMS) and media_type(headers) in TENSOR_FILES
            if scope["method"] == "POST" and not is_binary:
                check_media_type(headers)
            body = await self._read(headers, receive, memory)
            if not is_binary:
                memory.charge(check_json(body))
        except Refused as refusal:
            answer = problem_response(scope["path"], refusal.error, refusal.status_code, rejection="body")
            await answer(scope, receive, send)
        except OutOfMemoryError as error:
            await problem_response(scope["path"], error)(scope, receive, send)
        except ClientDisconnect:
            return
        else:
            await self.app(scope, _replay(body, receive), send)

    async def _read(self, headers: Headers, receive: Receive, memory: RequestMemory) -> bytes:
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self.limit:
            raise self._too_large()
        body = await read_body(receive, self.limit, memory)
        if body is None:
            raise self._too_large()
        return body

    def _too_large(self) -> Refused:
        text = f"the body is larger than {self.limit} bytes (TELEGRAD_MAX_FRAME_BYTES)"
        return Refused(413, RequestError(text))


async def read_body(receive: Receive, limit: int, memory: RequestMemory) -> bytes | None:
    """Return a request's body, which is charged as it comes, or None where it is longer than ``limit``."""
    pieces, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            return None
        memory.charge(len(pieces[-1]))
        more = message.get("more_body", False)
    return b"".join(pieces)


def media_type(headers: Headers) -> str:
    """The media type of a request's body, without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def check_media_type(headers: Headers) -> None:
    """Refuse what a web page could send without asking: anything but JSON, unless it shows a secret in a header."""
    kind = media_type(headers)
    if kind == "application/json" or kind.endswith("+json"):
        return
    if kind or not {SESSION_KEY_HEADER.lower(), OWNER_HEADER.lower()} & set(headers.keys()):
        shown = kind or "nothing"
        raise Refused(
            415, RequestError(f"Content-Type: expected application/json or what the endpoint names, got {shown[:100]}")
        )


def check_json(body: bytes) -> int:
    """Return what a text of JSON may take in memory once it is parsed.

    Refuses one that would take long to parse, or that is nested too deeply.
    """
    opened = body.count(b"[") + body.count(b"{")
    values = opened + body.count(b",")
    if values > MAX_VALUES:
        text = f"the body has more than {MAX_VALUES} values; PUT /v1/sessions/{{id}}/tensors/{{id}} takes large tensors"
        raise Refused(413, RequestError(text))
    if opened > MAX_DEPTH and _depth(body) > MAX_DEPTH:
        raise Refused(400, RequestError(f"the body is nested more than {MAX_DEPTH} deep"))
    return TEXT_FACTOR * len(body) + VALUE_BYTES * values


def _depth(body: bytes) -> int:
    """How deeply brackets are nested; those in strings count, too."""
    depth = deepest = 0
    for bracket in body.translate(None, _OTHERS):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
