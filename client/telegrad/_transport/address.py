"""Addresses of servers as people write them. Opens nothing: it is known before a connection is made what is wrong."""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Any, Final, NoReturn
from urllib.parse import SplitResult, urlsplit

from telegrad_protocol.errors import ArgumentTypeError, ConnectError

DEFAULT_PORT: Final = 8000
"""The port that a server listens on unless it is told otherwise."""
UNIX: Final = "unix:"
"""What addresses of Unix sockets begin with."""
_MAX_UNIX_BYTES: Final = 107
"""The longest path that the system has room for in the address of a Unix socket."""


def parse_address(text: Any) -> str:
    """Return the address in the form ``http://host:port/prefix``, without a slash at its end.

    ``host:port`` means ``http://host:port``, and ``host`` alone the port that servers listen on by default.
    ``unix:/path`` is the Unix socket of a server on this machine, and is returned with an absolute path. Raises
    ConnectError where that is no address of a server, with what to write instead.
    """
    if not isinstance(text, str):
        raise ArgumentTypeError(f"connect: expected an address such as 'http://gpu-node:8000', got {text!r}")
    written = text.strip()
    if written.startswith(UNIX):
        return UNIX + _socket_path(text, written.removeprefix(UNIX))
    if not written or any(c.isspace() for c in written):
        _refuse(text, "write it such as http://gpu-node:8000")
    if "://" not in written:
        written = _with_scheme(text, written)
    parts = _split(text, written)
    if parts.scheme not in ("http", "https"):
        better = "https" if parts.scheme == "wss" else "http"
        _refuse(text, f"it begins with http:// or https://, so write {better}://{parts.netloc or 'gpu-node:8000'}")
    if parts.query or parts.fragment:
        _refuse(text, f"leave out what begins with '?' or '#': {parts.scheme}://{parts.netloc}{parts.path}")
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


def socket_of(address: str) -> str | None:
    """Return the path of the Unix socket that an address names, as ``parse_address`` returns it; None for others."""
    return address.removeprefix(UNIX) if address.startswith(UNIX) else None


def base_url(address: str) -> str:
    """Return what URLs of requests to an address begin with: those to a Unix socket are for localhost."""
    return "http://localhost" if address.startswith(UNIX) else address


def is_read_on_the_way(address: str) -> bool:
    """Whether what is sent to an address, as ``parse_address`` returns it, crosses a network unencrypted."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    try:
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    return parts.scheme == "http" and not is_here


def _socket_path(text: str, written: str) -> str:
    if not hasattr(socket, "AF_UNIX"):
        _refuse(text, "this system has no Unix sockets, so write http://localhost and the server's port")
    path = f"/{written.lstrip('/')}" if written.startswith("//") else written
    if not path:
        _refuse(text, "the path of the server's socket follows the colon: unix:/run/telegrad.sock")
    path = os.path.abspath(path)
    if len(os.fsencode(path)) > _MAX_UNIX_BYTES:
        _refuse(text, f"its path is longer than {_MAX_UNIX_BYTES} bytes, the most that a Unix socket may have")
    return path


def _with_scheme(text: str, written: str) -> str:
    host, slash, path = written.partition("/")
    if host.lower() in ("http", "https", "http:", "https:"):
        scheme = host.rstrip(":").lower()
        _refuse(text, f"two slashes follow the colon: {scheme}://{path.lstrip('/') or 'gpu-node:8000'}")
    if _is_ipv6(host):
        host = f"[{host}]"
    if host.isdigit():
        _refuse(text, f"a port needs a host: http://localhost:{host}")
    if host.endswith("]") or ":" not in host:
        host = f"{host}:{DEFAULT_PORT}"
    return f"http://{host}{slash}{path}"


def _split(text: str, written: str) -> SplitResult:
    scheme, _, rest = written.partition("://")
    host, slash, path = rest.partition("/")
    if "@" in host:
        _refuse(text, "it holds no user and password; give connect(token=...) the server's token")
    address, _, port = host.rpartition(":")
    if _is_ipv6(host) or _is_ipv6(address):
        bracketed = f"[{address}]:{port}" if _is_ipv6(address) else f"[{host}]:{DEFAULT_PORT}"
        _refuse(text, f"an IPv6 address stands in brackets: {scheme}://{bracketed}{slash}{path}")
    try:
        parts = urlsplit(written)
        has_host = bool(parts.hostname)
        parts.port  # noqa: B018 - it is looked at here, since that raises ValueError for what is no port
    except ValueError:
        _refuse(text, "one colon and a port up to 65535 follow the host, as in http://gpu-node:8000")
    if not has_host:
        _refuse(text, "it names no host; write it such as http://gpu-node:8000")
    return parts


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _refuse(text: str, remedy: str) -> NoReturn:
    raise ConnectError(f"{text!r} is not the address of a server: {remedy}")
