"""The Unix socket that a server listens on beside its port, and who is at the other end of one.

A path that another server left behind is taken over; one that somebody listens on, or that is no socket, is refused.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import struct
import tempfile
from typing import Any, Final, NamedTuple

from server.ipc.channel import SOCKET_BUFFER_BYTES
from telegrad_protocol.errors import ConfigurationError

from .settings import Settings

PRIVATE: Final = "private"
"""As the path of a socket: one in a new directory, which only this user can enter."""
_CREDENTIALS: Final = struct.Struct("3i")


class Peer(NamedTuple):
    """The process that opened a connection, as the system knows it."""

    pid: int
    uid: int
    gid: int

    def __str__(self) -> str:
        return f"unix pid={self.pid} uid={self.uid} gid={self.gid}"


class UnixListener:
    """A listening socket; a context manager that removes it in the end."""

    def __init__(self, settings: Settings) -> None:
        self._directory = tempfile.mkdtemp(prefix="telegrad-") if settings.unix_socket == PRIVATE else None
        self.path = (
            os.path.join(self._directory, "socket") if self._directory else os.path.abspath(settings.unix_socket)
        )
        try:
            self.socket = _bound(self.path)
            self._inode = os.stat(self.path).st_ino
            _give_away(self.path, settings)
        except OSError as error:
            self.close()
            reason = error.strerror or str(error)
            raise ConfigurationError(f"TELEGRAD_UNIX_SOCKET: {self.path}: {reason}") from error
        except ConfigurationError:
            self.close()
            raise

    @property
    def address(self) -> str:
        """What clients connect to."""
        return f"unix:{self.path}"

    def __enter__(self) -> UnixListener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, and remove the socket, unless another server has taken its path."""
        if hasattr(self, "socket"):
            self.socket.close()
        if hasattr(self, "_inode") and os.path.exists(self.path) and os.stat(self.path).st_ino == self._inode:
            os.unlink(self.path)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


def peer_of(transport: Any) -> Peer | None:
    """Return who opened the connection of a transport; None where that is not over a Unix socket."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family != getattr(socket, "AF_UNIX", None):
        return None
    if not hasattr(socket, "SO_PEERCRED"):
        return Peer(-1, -1, -1)
    return Peer(*_CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)))


def _bound(path: str) -> socket.socket:
    _make_way(path)
    listener = socket.socket(socket.AF_UNIX)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        listener.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    mask = os.umask(0o177)  # nobody else may connect before the socket has its owner and permissions
    try:
        listener.bind(path)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def _make_way(path: str) -> None:
    """Remove a socket that nobody listens on any more."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigurationError(f"TELEGRAD_UNIX_SOCKET: {path} exists and is no socket")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise ConfigurationError(f"TELEGRAD_UNIX_SOCKET: another server listens on {path}")


def _give_away(path: str, settings: Settings) -> None:
    user, _, group = settings.unix_socket_owner.partition(":")
    if user or group:
        try:
            shutil.chown(path, _number_or_name(user), _number_or_name(group))
        except LookupError as error:
            raise ConfigurationError(f"TELEGRAD_UNIX_SOCKET_OWNER: {error}") from error
    os.chmod(path, int(settings.unix_socket_mode, 8))


def _number_or_name(text: str) -> Any:
    """Return what ``shutil.chown`` takes for a user or a group; None leaves it as it is."""
    return int(text) if text.isdecimal() else text or None
