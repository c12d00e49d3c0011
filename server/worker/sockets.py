"""What a worker's loop waits for: its sockets, by epoll itself, which is a few calls less a wait than ``selectors``."""

from __future__ import annotations

import math
import select
import socket
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Final

from server import native
from telegrad_protocol.native import processors

_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT
_OF_INTEREST: Final = {EVENT_READ: _IN, EVENT_WRITE: _OUT, EVENT_READ | EVENT_WRITE: _IN | _OUT}

_native: Final = native.load()
wait_awake: Final = _native.wait_awake if _native is not None and processors.can_wait_awake() else None
"""Waits until a descriptor can be read, or for milliseconds; awake at first where the last wait was short: clients that
read one value after the other send the next request soon (decision 0129). None where Python waits: C is not compiled,
or there is no processor to wait awake on."""

Event = tuple[Any, int, int]
"""What a socket is watched for, its descriptor, and ``EVENT_READ``, ``EVENT_WRITE`` or both."""


class Sockets:
    """The sockets of one loop. Errors and ends of connections count as both events: whoever tries is told."""

    __slots__ = ("_epoll", "_interests", "_owners")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._interests: dict[int, int] = {}
        self._owners: dict[int, Any] = {}

    def watch(self, sock: socket.socket, interest: int, owner: Any) -> None:
        """Wait for these events of a socket on behalf of ``owner``; for none of them any more where they are 0."""
        fd = sock.fileno()
        before = self._interests.get(fd, 0)
        if interest == before:
            return
        if not interest:
            self._epoll.unregister(fd)
            del self._owners[fd]
        elif not before:
            self._epoll.register(fd, _OF_INTEREST[interest])
            self._owners[fd] = owner
        else:
            self._epoll.modify(fd, _OF_INTEREST[interest])
        self._interests[fd] = interest

    def wait(self, seconds: float | None) -> list[Event]:
        """Return what has happened, once something has or so many seconds have passed; None waits for something."""
        owners, happened = self._owners, []
        if seconds != 0 and wait_awake is not None:
            wait_awake(self._epoll, -1 if seconds is None else math.ceil(seconds * 1000))
            seconds = 0
        for fd, events in self._epoll.poll(seconds):
            if events == _IN:
                happened.append((owners[fd], fd, EVENT_READ))
            else:
                mask = (EVENT_READ if events & ~_OUT else 0) | (EVENT_WRITE if events & ~_IN else 0)
                happened.append((owners[fd], fd, mask))
        return happened

    def wait_shortly(self, seconds: float) -> None:
        """Wait for less than a millisecond, for which epoll has no measure, unless something has happened."""
        select.select([self._epoll], [], [], seconds)

    def close(self) -> None:
        """Watch nothing any more; the sockets stay open."""
        self._epoll.close()
