"""``connect``: to a server by address, to a private one that is started here, or to an engine in this process.

The module that opens a session of one kind is imported when that is wanted: sockets and HTTP would add a tenth to
the time of ``import telegrad``.
"""

from __future__ import annotations

import atexit
import os
import platform
from typing import TYPE_CHECKING, Any

from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.messages import Hello

from . import cells
from . import settings as _settings
from .current import current_session, enter, has_session, leave, open_default_with
from .session import ClientSession
from .tracebacks import install_in_notebook

if TYPE_CHECKING:
    from telegrad._transport.transport import Transport

    from .private_server import PrivateServer


class Connection:
    """An open session; current from ``connect`` on until ``disconnect`` or the end of its ``with`` block."""

    def __init__(self, session: ClientSession, server: PrivateServer | None = None) -> None:
        self.session = session
        self._server = server

    @property
    def id(self) -> str:
        """The session's public name, as operators see it."""
        return self.session.transport.hello.session

    @property
    def lease(self) -> float:
        """For how many seconds the session outlives a lost connection, as the server granted."""
        return self.session.transport.hello.lease_seconds

    def __enter__(self) -> Connection:
        enter(self.session, is_block=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def use(self) -> Connection:
        """Make this the session that new tensors of this thread belong to."""
        enter(self.session)
        return self

    def disconnect(self) -> None:
        """End the session, and the private server if this started one."""
        leave(self.session)
        if self in _connections:
            _connections.remove(self)
        self.session.close()
        if self._server is not None:
            self._server.stop()

    def abandon(self) -> None:
        """Leave session and server to the process that was forked."""
        self.session.abandon()
        if self._server is not None:
            self._server.abandon()

    def __repr__(self) -> str:
        state = "open" if self.session.is_open else "closed"
        return f"<telegrad session {self.id}, {state}, devices {', '.join(map(str, self.session.devices))}>"


_connections: list[Connection] = []


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    in_process: Any = None,
    devices: str | None = None,
    tls: Any = None,
    lease: float | None = None,
) -> Connection:
    """Open a session and make it current.

    ``url``: such as ``"http://gpu-node:8000"``; by default that of ``TELEGRAD_URL``, else a private server is started
    here, on a GPU if there is one (``devices`` chooses). ``token``: as the server wants it, by default
    ``TELEGRAD_TOKEN``. ``tls``: an ``ssl.SSLContext`` for https addresses. ``in_process``: a ``Host`` of
    ``server.worker.host`` to run in this process, without a socket. ``lease``: for how many seconds the session is to
    outlive a lost connection, such as that of a computer that sleeps; by default as the server is set. What was granted
    is ``Connection.lease``; more than the server allows is an ArgumentError.

    Raises ConnectError, AuthenticationError or HandshakeError.
    """
    cells.watch()
    install_in_notebook()
    server = None
    token = token or os.environ.get("TELEGRAD_TOKEN")
    if in_process is not None:
        session = ClientSession(lambda flush: _in_process(in_process))
    else:
        url = url or os.environ.get("TELEGRAD_URL")
        if url is None:
            from .private_server import PrivateServer

            server = PrivateServer(devices)
            url = server.url
        session = ClientSession(lambda flush: _remote(url, token, flush, tls, lease))
    connection = Connection(session, server)
    _connections.append(connection)
    enter(session)
    _settings.announce(session)
    return connection


def _checked_lease(lease: float) -> float:
    if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not 1 <= lease < float("inf"):
        raise ArgumentError(f"lease: expected a number of seconds from 1 on, got {lease!r}")
    return lease


def _remote(url: str, token: str | None, flush: Any, tls: Any, lease: float | None) -> Transport:
    from .handshake import open_session

    client: dict[str, Any] = {"client": "telegrad", "python": platform.python_version()}
    client |= {"pid": os.getpid(), "host": platform.node()}
    if lease is not None:
        client["lease_seconds"] = _checked_lease(lease)
    return open_session(url, client, token, flush, tls)


def _in_process(host: Any) -> Transport:
    from telegrad._transport.in_process import InProcessTransport

    number = host.new_number()
    hello = Hello(session=f"in-process-{number}", key="", server_version="", lease_seconds=0.0, **host.hello())
    return InProcessTransport(host.open(number, {}), hello)


def disconnect() -> None:
    """End the current session."""
    if has_session():
        session = current_session()
        connection = next((c for c in _connections if c.session is session), None)
        if connection is not None:
            connection.disconnect()
        else:  # it was inherited from the process that was forked
            leave(session)


def _open_default() -> ClientSession:
    return connect().session


open_default_with(_open_default)


@atexit.register
def _disconnect_all() -> None:
    for connection in reversed(_connections[:]):
        connection.disconnect()


def _leave_inherited() -> None:
    """In a forked process: what the other one has connected to stays its own."""
    for connection in _connections:
        connection.abandon()
    _connections.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_inherited)
