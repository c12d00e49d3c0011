"""Opening a session at a server: an HTTP request, a comparison of versions, then the stream. Knows no tensors."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, Final

import msgspec

from telegrad._transport.socket_transport import SocketTransport
from telegrad._transport.websocket import SESSION_KEY_HEADER, Address, refusal
from telegrad_protocol.errors import ConnectError, HandshakeError, SessionLostError
from telegrad_protocol.messages import PROTOCOL_VERSION, Hello
from telegrad_protocol.ops import TABLE_HASH

OPEN_SECONDS: Final = 30.0


def open_session(
    url: str,
    client: dict[str, Any],
    token: str | None = None,
    flush: Callable[[], object] = lambda: None,
    tls: ssl.SSLContext | None = None,
    attach_to: tuple[str, str] | None = None,
) -> SocketTransport:
    """Open a session at ``url`` for a client that describes itself, and connect to its stream.

    ``attach_to``: id and key of a session that is to be taken over; without it a new one is opened.
    ``tls`` says which certificates are trusted where ``url`` begins with https; by default, those that the system does.
    """
    base = url.rstrip("/")
    if not base.startswith(("http://", "https://")):
        raise ConnectError(f"the address of a server begins with http:// or https://, got {url!r}")
    if tls is None and base.startswith("https://"):
        tls = ssl.create_default_context()
    hello = _request(base, client, token, tls, attach_to)
    check_versions(hello)
    return SocketTransport(Address(base, hello.session, hello.key, token, tls, hello.attachment), hello, flush)


def detach_session(address: Address, lease: float | None) -> float:
    """Leave a session without ending it, and return its lease in seconds, which is ``lease`` where that is given."""
    import httpx

    path = f"{address.url}/v1/sessions/{session_path(address.session)}/detach"
    wanted = {"attachment": address.attachment, "lease_seconds": lease}
    headers = _headers(address.token, address.key)
    try:
        with httpx.Client(verify=address.tls or False, timeout=OPEN_SECONDS, trust_env=False) as http:
            answer = http.post(path, json=wanted, headers=headers)
    except httpx.HTTPError as error:
        raise ConnectError(f"detach: cannot reach {address.url}: {error}") from None
    if answer.status_code != httpx.codes.OK:
        raise refusal(answer.status_code, answer.content)
    return float(answer.json()["lease_seconds"])


def session_path(session: str) -> str:
    """Return the id of a session as it stands in a path; SessionLostError where it can be none."""
    if not (session.isascii() and session.isalnum()):
        raise SessionLostError(f"{session!r} is not the id of a session")
    return session


def _headers(token: str | None, key: str | None) -> dict[str, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if key is not None:
        headers[SESSION_KEY_HEADER] = key
    return headers


def check_versions(hello: Hello) -> None:
    """Refuse a server that does not have the same operations."""
    if hello.protocol != PROTOCOL_VERSION or hello.table_hash != TABLE_HASH:
        raise HandshakeError(
            f"the server ({hello.server_version}, protocol {hello.protocol}) does not have this client's operations "
            f"(protocol {PROTOCOL_VERSION}); install the same version of telegrad and telegrad-server"
        )


def _request(
    base: str, client: dict[str, Any], token: str | None, tls: ssl.SSLContext | None, attach_to: tuple[str, str] | None
) -> Hello:
    import httpx  # imported here, since it adds a tenth of a second to the import of telegrad

    session, key = attach_to or (None, None)
    path = "/v1/sessions" if session is None else f"/v1/sessions/{session_path(session)}/attach"
    headers = _headers(token, key)
    try:
        with httpx.Client(verify=tls or False, timeout=OPEN_SECONDS, trust_env=False) as http:
            answer = http.post(f"{base}{path}", json=client, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConnectError(f"cannot reach a telegrad server at {base}: {error}") from error
    if answer.status_code not in (httpx.codes.CREATED, httpx.codes.OK):
        raise refusal(answer.status_code, answer.content)
    try:
        return msgspec.json.decode(answer.content, type=Hello)
    except msgspec.MsgspecError as error:
        raise HandshakeError(f"{base} does not answer as this version of telegrad expects: {error}") from error
