"""``connect``: to a server by address, to a private one that is started here, or to an engine in this process.

The module that opens a session of one kind is imported when that is wanted: sockets and HTTP would add a tenth to
the time of ``import telegrad``.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from telegrad import _native
from telegrad_protocol.errors import (
    ArgumentError,
    CommunicationError,
    NotSupportedError,
    SessionDetachedError,
    SessionLostError,
    TelegradError,
    revive,
)
from telegrad_protocol.messages import Hello

from . import cells, interrupts, last_errors
from . import settings as _settings
from .current import current_session, enter, has_session, leave, open_default_with, thread_sessions
from .ending import DISCONNECT_SECONDS, DetachedSession, finish
from .session import ClientSession
from .settings import seconds_from
from .tracebacks import install_in_notebook

if TYPE_CHECKING:
    from telegrad._transport.transport import Transport

    from .private_server import PrivateServer


class Connection:
    """An open session; current from ``connect`` on until ``disconnect`` or the end of its ``with`` block."""

    def __init__(self, session: ClientSession, server: PrivateServer | None, seconds: float) -> None:
        self._seconds = seconds
        self.session = session
        self._server = server
        self.reopen: Callable[[], Connection] | None = None
        """What opens another session as this one was opened; None for an engine in this process."""

    @property
    def id(self) -> str:
        """The session's public name, as operators see it."""
        return self.session.transport.hello.session

    @property
    def key(self) -> str:
        """The secret with which another process attaches to the session, also after this one has died."""
        return self.session.transport.hello.key

    @property
    def lease(self) -> float:
        """For how many seconds the session outlives a lost connection, as the server granted."""
        return self.session.transport.hello.lease_seconds

    @property
    def worker(self) -> int:
        """The number of the server's worker that it lives on, as operators see it."""
        return self.session.transport.hello.worker

    @property
    def isolation(self) -> str:
        """Whose sessions live on its worker: ``"shared"``, ``"tenant"``, or ``"session"`` for this one alone."""
        return self.session.transport.hello.isolation

    def __enter__(self) -> Connection:
        enter(self.session, is_block=True)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.disconnect()
            return
        for later in self.end(waits=not isinstance(error, KeyboardInterrupt)):
            if isinstance(error, SystemExit):
                last_errors.report(later)
            else:
                error.add_note(f"Queued work of the session had failed, too: {type(later).__name__}: {later}")

    def use(self) -> Connection:
        """Make this the session that new tensors of this thread belong to."""
        enter(self.session)
        return self

    def disconnect(self) -> None:
        """End the session, and the private server if this started one.

        First everything that was queued is executed, for up to ``TELEGRAD_DISCONNECT_SECONDS``. What has failed of it
        is raised here, as any synchronization raises it; the session has ended then, too.
        """
        errors = self.end()
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"Work of another thread had failed, too: {type(other).__name__}: {other}")
            raise errors[0]

    def end(self, waits: bool = True) -> list[TelegradError]:
        """End the session as ``disconnect`` does, and return what failed; ``waits``: of what is not done, too.

        A daemon thread leaves a session that the end of the program is ending to that, which tells what failed.
        """
        if self.session.ends_with_program and threading.current_thread().daemon:
            return []
        try:
            return finish(self.session, self._seconds if waits else None) if self in _connections else []
        finally:
            self._close()

    def _close(self) -> None:
        leave(self.session)
        if self in _connections:
            _explain_absence(SessionLostError(_ENDED))
        self.session.close()
        self._forget()
        if self._server is not None:
            self._server.stop()

    def _forget(self) -> None:
        if self in _connections:
            _connections.remove(self)
        if not _connections:
            interrupts.stop_watching()

    def detach(self, lease: float | None = None, kept: tuple[str, ...] = ()) -> DetachedSession:
        """Leave the session without ending it, and return what is needed to come back; see ``telegrad.detach``."""
        from .handshake import checked_lease, detach_session

        self.require_detachable()
        self.session.synchronize()
        address = self.session.transport.address  # type: ignore[attr-defined]  # only sockets have a key
        granted = detach_session(address, lease if lease is None else checked_lease(lease))
        leave(self.session)
        self._forget()
        why = f"this session was left by detach(); connect(..., session={self.id!r}, key=...) comes back to it"
        self.session.leave(SessionDetachedError(why))
        _explain_absence(SessionDetachedError(_DETACHED))
        return DetachedSession(address.url, self.id, self.key, granted, kept)

    def require_detachable(self) -> None:
        """Raise NotSupportedError if the session would end with this process."""
        if self._server is not None:
            raise NotSupportedError(
                "detach: the session is on a private server, which ends with this process; start a server that stays "
                "(telegrad-server), and connect() to its address"
            )
        if not self.key:
            raise NotSupportedError("detach: the session is in this process and ends with it; connect() to a server")

    def abandon(self) -> None:
        """Leave session and server to the process that was forked."""
        self.session.abandon()
        if self._server is not None:
            self._server.abandon()

    def __repr__(self) -> str:
        state = "open" if self.session.is_open else "closed"
        return f"<telegrad session {self.id}, {state}, devices {', '.join(map(str, self.session.devices))}>"


_connections: list[Connection] = []
_why_none: TelegradError | None = None
"""The error of operations that need a session where none is open; None where they may open one."""
_ENDED: Final = "no session is open: the last one was ended by disconnect() or its with block; connect() opens another"
_DETACHED: Final = "no session is open: the last one was left by detach(); connect() comes back to it, or opens another"


_is_at_end = False
"""Whether the program has ended, and its sessions with it."""


def _explain_absence(error: TelegradError) -> None:
    global _why_none
    _why_none = error


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    in_process: Any = None,
    devices: str | None = None,
    tls: Any = None,
    lease: float | None = None,
    session: str | None = None,
    key: str | None = None,
    takeover: bool = False,
    gpus: int | None = None,
    own_worker: bool = False,
    kernels: bool | None = None,
) -> Connection:
    """Open a session and make it current.

    ``url``: such as ``"http://gpu-node:8000"`` or ``"gpu-node:8000"``, or ``"unix:/run/telegrad.sock"`` for the Unix
    socket of a server on this machine, which is faster; by default that of ``TELEGRAD_URL``, else a private server is
    started here, on a GPU if there is one (``devices`` chooses). ``token``: as the server wants it,
    by default ``TELEGRAD_TOKEN``. ``tls``: an ``ssl.SSLContext`` for https addresses. ``in_process``: a ``Host`` of
    ``server.worker.host`` to run in this process, without a socket. ``lease``: for how many seconds the session is to
    outlive a lost connection, such as that of a computer that sleeps; by default as the server is set. What was granted
    is ``Connection.lease``; more than the server allows is an ArgumentError. ``gpus``: how many GPUs the session is to
    have, which are ``cuda:0`` and on to it; by default one where the server has GPUs, and all of a private server.
    With 0 it may be placed where there is none. A server that can never give so many answers with a DeviceError.
    ``own_worker``: whether the session is to live on a worker process of its own, which no other session shares and
    which ends with it; ``Connection.isolation`` says what it got.
    ``kernels``: whether the session is to run CUDA kernels of the program's own (``cuda.RawKernel``, Triton, Numba); by
    default on a private server, and elsewhere where ``TELEGRAD_KERNELS`` is 1. A server whose operator has not
    allowed it answers with a NotAllowedError.

    A server whose worker is being restarted is waited for. After ``connect`` has failed, and after ``disconnect``, an
    operation that needs a session raises why there is none, until ``connect`` succeeds.

    ``session`` and ``key``, as ``detach`` returned them, come back to a session in place of opening one; the key may be
    left out where the same user opened it (``TELEGRAD_OWNER``). Its generators go on, ``kept`` has the tensors that it
    keeps, and modes are the defaults. If another client is connected to it, that is a SessionInUseError; with
    ``takeover`` the other one loses it.

    Raises ConnectError, AuthenticationError, HandshakeError, and SessionLostError where the session has ended.
    """
    global _why_none
    cells.watch()
    install_in_notebook()
    server = None
    seconds = seconds_from("TELEGRAD_DISCONNECT_SECONDS", DISCONNECT_SECONDS)
    _check_attaching(url, in_process, session, key, takeover)
    attach_to = None if session is None else (session, key)
    token = (token or os.environ.get("TELEGRAD_TOKEN") or "").strip() or None
    address = os.environ.get("TELEGRAD_URL") if url is None else url
    try:
        if in_process is not None:
            opened = ClientSession(lambda flush: _in_process(in_process, kernels is not False))
        else:
            from .handshake import checked_gpus, describe_client

            if not address and url is None:
                from .private_server import PrivateServer

                server = PrivateServer(devices, checked_gpus(gpus))
                address = server.url
            client = describe_client(lease, takeover, gpus, own_worker)
            if _settings.wants_kernels(kernels, server is not None):
                client["kernels"] = True
            pages = server.pages if server is not None else None
            opened = ClientSession(lambda flush: _remote(address, client, token, flush, tls, attach_to, pages))
    except BaseException as error:
        if server is not None:
            server.stop()
        if not isinstance(error, TelegradError):
            raise
        refusal = error if url is not None or server else _naming_origin(error)
        _explain_absence(revive(error.code, f"no session is open, since connect() failed: {refusal.message}"))
        raise refusal.with_traceback(None) from None
    _why_none = None
    connection = Connection(opened, server, seconds)
    last_errors.watch()
    _watch_process_end()
    if in_process is None:
        wishes = {"tls": tls, "gpus": gpus, "own_worker": own_worker, "kernels": "kernels" in client}
        connection.reopen = partial(connect, address, token=token, **wishes)
    _connections.append(connection)
    enter(opened)
    interrupts.watch(thread_sessions)
    _settings.announce(opened)
    _settings.warn_of_variables(is_private=server is not None)
    _native.compile_beside()
    return connection


def _check_attaching(url: str | None, in_process: Any, session: str | None, key: str | None, takeover: bool) -> None:
    if session is None:
        if key is not None or takeover:
            raise ArgumentError("connect: key= and takeover= are for coming back to a session; say which, by session=")
        return
    if in_process is not None or not (url or os.environ.get("TELEGRAD_URL")):
        raise ArgumentError(f"connect: session {session!r} is on a server; give its address, or set TELEGRAD_URL")


def _naming_origin(error: TelegradError) -> TelegradError:
    """Return ``error``, which then tells that the address was that of the environment, if there is one."""
    if os.environ.get("TELEGRAD_URL") and isinstance(error, CommunicationError):
        what, newline, remedy = error.message.partition("\n")
        error.args = (f"{what} (the address is that of TELEGRAD_URL){newline}{remedy}",)
    return error


def _remote(
    url: str | None, client: dict[str, Any], token: str | None, flush: Any, tls: Any, attach_to: Any, pages: str | None
) -> Transport:
    """Open a session at ``url``; ``pages`` is where browsers reach a private server, and None for another one."""
    from .handshake import open_session
    from .owner import owner_secret

    owner = owner_secret() if pages is None else None
    return open_session(url, client, token, flush, tls, attach_to, owner, pages or "")


def _in_process(host: Any, kernels: bool) -> Transport:
    from telegrad._transport.in_process import InProcessTransport

    number = host.new_number()
    hello = Hello(session=f"in-process-{number}", key="", server_version="", lease_seconds=0.0, **host.hello())
    return InProcessTransport(host.open(number, {"kernels": kernels}), hello)


def current_connection() -> Connection:
    """Return the connection of the current session; SessionLostError where this process has opened none."""
    session = current_session() if has_session() else None
    connection = next((c for c in _connections if c.session is session), None)
    if connection is None:
        raise SessionLostError("no session is open in this process; connect() opens one")
    return connection


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
    """Open a session for an operation that needs one; not where the program has connected by itself before."""
    global _why_none
    if _is_at_end and threading.current_thread().daemon:
        raise SystemExit  # ends the thread without a word, as the end of the program does
    if _why_none is not None:
        raise revive(_why_none.code, _why_none.message)
    try:
        return connect().session
    except TelegradError:
        _why_none = None  # the next operation tries again
        raise


open_default_with(_open_default)


@atexit.register
def _disconnect_all() -> bool:
    """End all sessions, print what has failed and nobody has seen, and tell whether there was something."""
    global _is_at_end
    _is_at_end = True
    waits, reported = not last_errors.was_interrupted(), False
    for connection in reversed(_connections[:]):
        errors: list[TelegradError] = []
        connection.session.ends_with_program = True
        try:
            errors = connection.end(waits)
        except KeyboardInterrupt:
            waits = False
        for error in errors:
            last_errors.report(error)
            reported = True
    return reported


_watched_process = 0


def _watch_process_end() -> None:
    """Have sessions ended where multiprocessing ends this process: it calls no functions of ``atexit`` then."""
    global _watched_process
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or _watched_process == os.getpid():
        return
    from multiprocessing.util import Finalize

    _watched_process = os.getpid()
    Finalize(None, _end_process, exitpriority=-1000)  # the last one: sessions may be used by those before it


def _end_process() -> None:
    if _disconnect_all() and sys.exc_info()[1] is None:
        raise SystemExit(1)


def _leave_inherited() -> None:
    """In a forked process: what the other one has connected to stays its own."""
    for connection in _connections:
        connection.abandon()
    _connections.clear()
    interrupts.forget_thread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_inherited)
