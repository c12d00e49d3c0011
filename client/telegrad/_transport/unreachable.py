"""Why no session can be opened at an address, in words that say what to do. Opens nothing itself."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from telegrad_protocol.errors import AuthenticationError, ConnectError, RequestError, TelegradError, WorkerCrashedError

from .address import DEFAULT_PORT, socket_of
from .websocket import refusal

if TYPE_CHECKING:
    import httpx

_PROBLEM: Final = "application/problem+json"
"""The media type of a telegrad server's errors: what answers with another one is something else, or in between."""


def unreachable(base: str, error: BaseException) -> ConnectError:
    """Return the error for an address where nobody answered, as the exception of the HTTP client tells."""
    what, remedy = _cause(base, list(_chain(error)))
    return ConnectError(f"cannot reach a telegrad server at {base}: {what}\n  {remedy}")


def refused(base: str, answer: httpx.Response, token: str | None) -> TelegradError:
    """Return the error for an answer that opens no session."""
    if not answer.headers.get("content-type", "").startswith(_PROBLEM):
        return _stranger(base, answer)
    error = refusal(answer.status_code, answer.content)
    if isinstance(error, RequestError) and urlsplit(base).path:
        return ConnectError(f"{base} is a page of a telegrad server; its address is {_origin(base)}")
    if isinstance(error, WorkerCrashedError):
        return ConnectError(
            f"{base} has no worker that is ready: {error.message}\n  its log says why, if that stays so"
        )
    if answer.status_code != 401 or not isinstance(error, AuthenticationError):
        error.args = (f"{base}: {error.message}",)
        return error
    if error.message.startswith("without"):
        return AuthenticationError(
            f"{base}: {error.message}\n  start it with TELEGRAD_TOKEN, and connect with that token"
        )
    what = "wants a token" if token is None else "was given the wrong token"
    return AuthenticationError(
        f"{base} {what}\n  give connect(token=...) the server's TELEGRAD_TOKEN, or set that variable here"
    )


def _cause(base: str, errors: list[BaseException]) -> tuple[str, str]:
    """Return what is wrong, and what to look at."""
    path = socket_of(base)
    if path is not None:
        return _cause_at_socket(path, errors)
    parts = urlsplit(base)
    place = f"port {parts.port or (443 if parts.scheme == 'https' else 80)} of {parts.hostname}"
    last = errors[0]
    if parts.scheme == "http" and type(last).__name__ in ("RemoteProtocolError", "ReadError"):
        remedy = f"if the server uses TLS, connect to https{base.removeprefix('http')}; else check the port"
        return f"{place} does not answer as HTTP", remedy
    for error in errors:
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted here ({error.verify_message})",
                "give connect(tls=ssl.create_default_context(cafile=...)) the file of the authority that signed it",
            )
        if isinstance(error, ssl.SSLError) and error.reason != "WRONG_VERSION_NUMBER":
            return (
                f"the TLS handshake failed ({error.reason or error})",
                "check the port, and the server's TLS settings",
            )
        if isinstance(error, ssl.SSLError):
            return f"{place} does not speak TLS", f"connect to http{base.removeprefix('https')} instead"
        if isinstance(error, socket.gaierror):
            return (
                f"the name {parts.hostname!r} is not known here",
                f"check its spelling, and this machine's DNS or VPN{_proxy_note()}",
            )
        if isinstance(error, ConnectionRefusedError):
            return f"nothing listens on {place}", _listening(parts.hostname, parts.port)
        if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
            return (
                f"{place} did not answer in time",
                f"check host and port, and whether a firewall or VPN stands in between{_proxy_note()}",
            )
        if isinstance(error, OSError) and error.errno is not None:
            return (error.strerror or str(error)).lower(), f"check host and network{_proxy_note()}"
    return f"{last}" or type(last).__name__, "check the host and the port"


def _cause_at_socket(path: str, errors: list[BaseException]) -> tuple[str, str]:
    for error in errors:
        if isinstance(error, FileNotFoundError):
            return (
                "there is no such socket",
                "check the path, and that a server with this TELEGRAD_UNIX_SOCKET runs here",
            )
        if isinstance(error, ConnectionRefusedError):
            return "no server listens on this socket any more", "start it again"
        if isinstance(error, PermissionError):
            who = "its owner, or the operator by TELEGRAD_UNIX_SOCKET_MODE and TELEGRAD_UNIX_SOCKET_OWNER"
            return "this user may not connect to it", f"ask {who}"
        if isinstance(error, OSError) and error.errno is not None:
            return (error.strerror or str(error)).lower(), "check the path"
    return f"{errors[0]}" or type(errors[0]).__name__, f"check that a telegrad server listens on {path}"


def _listening(host: str | None, port: int | None) -> str:
    usual = "" if port == DEFAULT_PORT else f" ({DEFAULT_PORT} by default)"
    if host in ("localhost", "127.0.0.1", "::1"):
        return f"check that telegrad-server runs on this machine, and on this port{usual}"
    return f"check that telegrad-server runs there, on this port{usual}, and with TELEGRAD_HOST=0.0.0.0"


def _stranger(base: str, answer: httpx.Response) -> ConnectError:
    status = f"{answer.status_code} {answer.reason_phrase}".strip()
    name = f" from {answer.headers['server']}" if answer.headers.get("server") else ""
    if answer.is_redirect:
        return ConnectError(f"{base} sends its visitors to {answer.headers.get('location')}; connect to where that is")
    if "https port" in answer.text[:1000].lower():
        return ConnectError(f"{base} wants TLS; connect to https{base.removeprefix('http')}")
    if answer.status_code in (407, 502, 503, 504):
        return ConnectError(
            f"a proxy answers at {base}, but no telegrad server behind it ({status}{name})\n"
            "  check that the server runs, and where the proxy passes requests on to"
        )
    return ConnectError(
        f"what answers at {base} is not a telegrad server ({status}{name})\n"
        f"  check host and port{f', and leave out the path: {_origin(base)}' if urlsplit(base).path else ''}"
    )


def _origin(base: str) -> str:
    parts = urlsplit(base)
    return f"{parts.scheme}://{parts.netloc}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _proxy_note() -> str:
    names = [
        name for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") if name in os.environ or name.lower() in os.environ
    ]
    return f"; telegrad connects directly and does not heed {names[0]}" if names else ""
