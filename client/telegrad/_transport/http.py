"""HTTP requests to a server, at whichever kind of address it is."""

from __future__ import annotations

import ssl
from typing import Final

import httpx

from .address import base_url, socket_of
from .websocket import connect_unix

OPEN_SECONDS: Final = 30.0
"""How long a server may take to answer."""


def http_client(address: str, tls: ssl.SSLContext | None = None, seconds: float = OPEN_SECONDS) -> httpx.Client:
    """Return a client whose requests name paths at ``address``, which is as ``parse_address`` returns it.

    ``tls``: which certificates are trusted, by default those that the system does. Proxies of the environment are not
    used. Raises OSError where nobody listens on a Unix socket.
    """
    path, verify = socket_of(address), tls or address.startswith("https://")
    if path is not None:
        connect_unix(path).close()  # httpx leaves a socket open where this fails
    # A transport of its own for an address without TLS keeps httpx from reading the system's certificates.
    transport = httpx.HTTPTransport(verify=verify, uds=path)
    return httpx.Client(transport=transport, base_url=base_url(address), timeout=seconds, trust_env=False)
