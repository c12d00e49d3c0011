"""Opening a session at a server: an HTTP request, a comparison of versions, then the stream. Knows no tensors."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, Final

import msgspec

from telegrad._transport.socket_transport import SocketTransport
from telegrad._transport.websocket import Address, refusal
from telegrad_protocol.errors import ConnectError, HandshakeError
from telegrad_protocol.messages import PROTOCOL_VERSION, Hello
from telegrad_protocol.ops import TABLE_HASH

OPEN_SECONDS: Final = 30.0


def open_session(
    url: str,
    client: dict[str, Any],
    token: str | None = None,
    flush: Callable[[], object] = lambda: None,
    tls: ssl.SSLContext | None = None,
) -> SocketTransport:
    """Open a session at ``url`` for a client that describes itself, and connect to its stream.

    ``tls`` says which certificates are trusted where ``url`` begins with https; by default, those that the system does.
    """
    base = url.rstrip("/")
    if not base.startswith(("http://", "https://")):
        raise ConnectError(f"the address of a server begins with http:// or https://, got {url!r}")
    if tls is None and base.startswith("https://"):
        tls = ssl.create_default_context()
    hello = _request(base, client, token, tls)
    check_versions(hello)
    return SocketTransport(Address(base, hello.session, hello.key, token, tls), hello, flush)


def check_versions(hello: Hello) -> None:
    """Refuse a server that does not have the same operations."""
    if hello.protocol != PROTOCOL_VERSION or hello.table_hash != TABLE_HASH:
        raise HandshakeError(
            f"the server ({hello.server_version}, protocol {hello.protocol}) does not have this client's operations "
            f"(protocol {PROTOCOL_VERSION}); install the same version of telegrad and telegrad-server"
        )


def _request(base: str, client: dict[str, Any], token: str | None, tls: ssl.SSLContext | None) -> Hello:
    import httpx  # imported here, since it adds a tenth of a second to the import of telegrad

    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with httpx.Client(verify=tls or False, timeout=OPEN_SECONDS, trust_env=False) as http:
            answer = http.post(f"{base}/v1/sessions", json=client, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConnectError(f"cannot reach a telegrad server at {base}: {error}") from error
    if answer.status_code != httpx.codes.CREATED:
        raise refusal(answer.status_code, answer.content)
    try:
        return msgspec.json.decode(answer.content, type=Hello)
    except msgspec.MsgspecError as error:
        raise HandshakeError(f"{base} does not answer as this version of telegrad expects: {error}") from error
