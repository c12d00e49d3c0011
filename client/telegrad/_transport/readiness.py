"""Waiting for a session's two connections at once: that to the gateway, and the direct channel to the worker."""

from __future__ import annotations

import select
import socket
import time
from typing import Final, NamedTuple

from .direct_channel import DirectChannel
from .websocket import READ, WRITE, WebSocketConnection

DIRECT_SHIFT: Final = 8
"""What has happened on a direct channel stands so many bits above what has on the connection to the gateway."""
DIRECT_READ: Final = READ << DIRECT_SHIFT
READ_BOTH: Final = READ | DIRECT_READ
OF_GATEWAY: Final = (1 << DIRECT_SHIFT) - 1
"""The bits of what has happened on the connection to the gateway."""


class _Poll(NamedTuple):
    """What waits for answers on a pair of connections. It is kept from one wait to the next."""

    connection: WebSocketConnection
    direct: socket.socket
    fd: int
    poll: select.poll


def wait_for_either(connection: WebSocketConnection | None, direct: DirectChannel | None, seconds: float) -> int:
    """Sleep until one of them can be read, or written to where that is wanted, or ``seconds`` have passed.

    Returns what has happened.
    """
    sock = None if direct is None else direct.socket
    try:
        if sock is None or direct is None:
            if direct is not None:
                seconds = min(seconds, direct.pause)
            if connection is None:
                time.sleep(seconds)
                return 0
            return connection.wait(READ | WRITE if connection.unsent else READ, seconds)
        if connection is not None and not connection.unsent and not direct.wants_to_write:
            return _wait_to_read(connection, direct, sock, seconds)
        poll, fd, happened = select.poll(), sock.fileno(), 0
        poll.register(fd, direct.events)
        if connection is not None:
            poll.register(connection.fileno(), READ | WRITE if connection.unsent else READ)
        for ready, events in poll.poll(seconds * 1000):
            happened |= events << DIRECT_SHIFT if ready == fd else events
    except (OSError, ValueError):
        return READ_BOTH  # another thread dropped one meanwhile
    return happened


def _wait_to_read(
    connection: WebSocketConnection, direct: DirectChannel, sock: socket.socket, seconds: float
) -> int:  # fmt: skip
    """Do the same where nothing is to be written, with what the last such wait has left."""
    idle = direct.idle_polls
    try:
        kept = idle.pop()  # each is in one thread's hands
    except IndexError:
        kept = None
    if kept is None or kept.direct is not sock or kept.connection is not connection:
        poll, fd = select.poll(), sock.fileno()
        poll.register(fd, READ)
        poll.register(connection.fileno(), READ)
        kept = _Poll(connection, sock, fd, poll)
    happened, fd = 0, kept.fd
    for ready, events in kept.poll.poll(seconds * 1000):
        happened |= events << DIRECT_SHIFT if ready == fd else events
    idle.append(kept)
    return happened
