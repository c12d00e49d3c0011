"""Opening a session at a server: an HTTP request, a comparison of versions, then the stream. Knows no tensors.

It is imported with the first connection: sockets, TLS and HTTP would add a third to the time of ``import telegrad``.
"""

from __future__ import annotations

import logging
import os
import platform
import ssl
import time
import warnings
from collections.abc import Callable
from typing import Any, Final

import httpx
import msgspec

from telegrad._transport.address import is_read_on_the_way, parse_address
from telegrad._transport.http import http_client
from telegrad._transport.socket_transport import SocketTransport
from telegrad._transport.trace_context import trace_headers
from telegrad._transport.unreachable import refused, unreachable
from telegrad._transport.websocket import SESSION_KEY_HEADER, Address, refusal
from telegrad_protocol.errors import ArgumentError, AuthenticationError, HandshakeError, SessionLostError
from telegrad_protocol.messages import PROTOCOL_VERSION, Hello
from telegrad_protocol.ops import table_hash

from .own_code import depth_of_program
from .owner import user_name

OWNER_HEADER: Final = "Telegrad-Owner"
WAIT_SECONDS: Final = 60.0
"""How long to wait for a server that says that it will be ready soon; a worker on a GPU takes seconds to start."""
MAX_PAUSE_SECONDS: Final = 5.0

_log: Final = logging.getLogger("telegrad")


def open_session(
    url: str | None,
    client: dict[str, Any],
    token: str | None = None,
    flush: Callable[[], object] = lambda: None,
    tls: ssl.SSLContext | None = None,
    attach_to: tuple[str, str | None] | None = None,
    owner: str | None = None,
    pages: str = "",
) -> SocketTransport:
    """Open a session at ``url`` for a client that describes itself, and connect to its stream.

    ``attach_to``: id and key of a session that is to be taken over; without it a new one is opened. ``owner`` is the
    secret of the sessions' owner, which does for a key that is None. ``pages`` is where browsers reach the server, if
    that is not ``url``.
    ``tls`` says which certificates are trusted where ``url`` begins with https; by default, those that the system does.
    """
    base = parse_address(url)
    if tls is None and base.startswith("https://"):
        tls = ssl.create_default_context()
    if token is not None and is_read_on_the_way(base):
        warnings.warn(
            f"connect: the token goes to {base} unencrypted, for all to read on the way; use https "
            "(TELEGRAD_TLS_CERT at the server, or a proxy), or a tunnel to a loopback port",
            stacklevel=depth_of_program(),
        )
    hello = _request(base, client, _checked_token(token), tls, attach_to, owner)
    check_versions(hello)
    address = Address(base, hello.session, hello.key, token, tls, hello.attachment, pages)
    return SocketTransport(address, hello, flush)


def detach_session(address: Address, lease: float | None) -> float:
    """Leave a session without ending it, and return its lease in seconds, which is ``lease`` where that is given."""
    path = f"/v1/sessions/{session_path(address.session)}/detach"
    wanted = {"attachment": address.attachment, "lease_seconds": lease}
    headers = credentials(address.token, address.key)
    try:
        with http_client(address.url, address.tls) as http:
            answer = http.post(path, json=wanted, headers=headers)
    except (httpx.HTTPError, OSError) as error:
        raise unreachable(address.url, error) from None
    if answer.status_code != httpx.codes.OK:
        raise refusal(answer.status_code, answer.content)
    return float(answer.json()["lease_seconds"])


def session_path(session: str) -> str:
    """Return the id of a session as it stands in a path; SessionLostError where it can be none."""
    if not (session.isascii() and session.isalnum()):
        raise SessionLostError(f"{session!r} is not the id of a session")
    return session


def credentials(token: str | None, key: str | None = None, owner: str | None = None) -> dict[str, str]:
    """Return the headers that a request shows its secrets in."""
    bearer = None if token is None else f"Bearer {token}"
    headers = {"Authorization": bearer, SESSION_KEY_HEADER: key, OWNER_HEADER: owner}
    return {name: value for name, value in headers.items() if value is not None}


def _checked_token(token: str | None) -> str | None:
    if token is not None and not (token.isascii() and token.isprintable()):
        raise AuthenticationError("the token holds a line break or a character that is not ASCII, and cannot be sent")
    return token


def check_versions(hello: Hello) -> None:
    """Refuse a server that does not have the same operations."""
    if hello.protocol != PROTOCOL_VERSION or hello.table_hash != table_hash():
        raise HandshakeError(
            f"the server ({hello.server_version}, protocol {hello.protocol}) does not have this client's operations "
            f"(protocol {PROTOCOL_VERSION}); install the same version of telegrad and telegrad-server"
        )


def _request(
    base: str, client: dict[str, Any], token: str | None, tls: ssl.SSLContext | None,
    attach_to: tuple[str, str | None] | None, owner: str | None,
) -> Hello:  # fmt: skip
    session, key = attach_to or (None, None)
    path = "/v1/sessions" if session is None else f"/v1/sessions/{session_path(session)}/attach"
    headers = credentials(token, key, owner) | trace_headers()
    try:
        with http_client(base, tls) as http:
            answer = _ask_until_ready(lambda: http.post(path, json=client, headers=headers), base)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise unreachable(base, error) from None
    if answer.status_code != (httpx.codes.CREATED if session is None else httpx.codes.OK):
        raise refused(base, answer, token)
    try:
        return msgspec.json.decode(answer.content, type=Hello)
    except msgspec.MsgspecError as error:
        raise HandshakeError(f"{base} does not answer as this version of telegrad expects: {error}") from None


def _ask_until_ready(ask: Callable[[], httpx.Response], base: str) -> httpx.Response:
    """Return the server's answer; ask again while it says that it is not ready, and when it will be."""
    deadline = time.monotonic() + WAIT_SECONDS
    told = ""
    while True:
        answer = ask()
        pause = _seconds_to_wait(answer)
        if pause is None or time.monotonic() + pause > deadline:
            return answer
        reason = refusal(answer.status_code, answer.content).message
        if reason != told:
            _log.warning("waiting for %s: %s", base, reason)
            told = reason
        time.sleep(pause)


def _seconds_to_wait(answer: httpx.Response) -> float | None:
    """Return after how many seconds a server that is not ready is to be asked again; None for any other answer."""
    wait = answer.headers.get("retry-after", "")
    return min(float(wait), MAX_PAUSE_SECONDS) if answer.status_code == 503 and wait.isdecimal() else None


def checked_lease(lease: float) -> float:
    """Return ``lease``; ArgumentError if it is no number of seconds from 1 on."""
    if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not 1 <= lease < float("inf"):
        raise ArgumentError(f"lease: expected a number of seconds from 1 on, got {lease!r}")
    return lease


def checked_gpus(gpus: int | None) -> int | None:
    """Return ``gpus``; ArgumentError if it is no number of GPUs."""
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0):
        raise ArgumentError(f"gpus: expected a number of GPUs from 0 on, got {gpus!r}")
    return gpus


def describe_client(lease: float | None, takeover: bool, gpus: int | None, own_worker: bool) -> dict[str, Any]:
    """Return what the server is told of this client, and of what it wants."""
    client: dict[str, Any] = {"client": "telegrad", "python": platform.python_version()}
    client |= {"pid": os.getpid(), "host": platform.node(), "user": user_name()}
    if lease is not None:
        client["lease_seconds"] = checked_lease(lease)
    if gpus is not None:
        client["gpus"] = checked_gpus(gpus)
    if own_worker:
        client["own_worker"] = True
    if takeover:
        client["takeover"] = True
    return client
