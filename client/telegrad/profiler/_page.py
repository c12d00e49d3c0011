"""The server's page that draws what a session executes."""

from __future__ import annotations

from urllib.parse import urlencode

from telegrad._session.current import current_session
from telegrad._transport.address import socket_of
from telegrad_protocol.errors import NotSupportedError


def page() -> str:
    """Return the address of the page that draws the last steps of this session, live.

    The session's key is in the part of the address that browsers do not send: whoever has the address can use the
    session.
    """
    transport = current_session().transport
    address = getattr(transport, "address", None)
    if address is None:
        raise NotSupportedError("page: this session has no server with pages; profile() and its tables serve here too")
    base = address.pages or address.url
    if socket_of(base) is not None:
        raise NotSupportedError(
            f"page: browsers do not reach {base}; connect() to the server's http address, or use profile()"
        )
    hello = transport.hello
    return f"{base}/profile#{urlencode({'session': hello.session, 'key': hello.key})}"
