"""What a session asks of a transport. Knows no socket, and nothing of what is in frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from telegrad_protocol.messages import Hello

INHERITED: Final = (
    "this session belongs to the process that was forked; call telegrad.connect() in this one, "
    "or start it with multiprocessing's 'spawn'"
)
"""What is wrong with using, in a forked process, a session or a tensor that it has inherited."""

PlaceOf: TypeAlias = Callable[[int, int, int], Any]
"""Returns the memory where bytes of the answer to a request belong, from an offset to an end; None if nobody knows."""

TOO_LATE: Final = (
    "the session's work was not done within {:g} s of its end, and was dropped; whether it fails is unknown\n"
    "  TELEGRAD_DISCONNECT_SECONDS says how long to wait"
)
"""What is wrong where ``give_up_after`` has set a limit; takes the seconds."""


@dataclass
class TransportStats:
    """What went over the wire, resent frames included; bytes without what TLS adds."""

    frames: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    reconnects: int = 0


def nowhere(request: int, begin: int, end: int) -> None:
    """Stand in for ``PlaceOf`` where all chunks are received with their bytes."""


class Transport(Protocol):
    """Carries the frames of one session, each exactly once and in order."""

    hello: Hello
    executes_at_once: bool
    """Whether what is sent is executed before the call returns."""
    handshake_seconds: float
    """How long the handshake of the present connection took, or of the last one: one round trip, and little more."""

    @property
    def stats(self) -> TransportStats: ...

    def go_direct(self, place_of: PlaceOf = ...) -> None:
        """Talk to the worker past the gateway from here on, where that is possible; nothing may be on its way.

        Chunks may then be written where ``place_of`` says they belong, by any thread, and are received as ``PLACED``.
        """

    def send_batch(self, body: bytes) -> None:
        """Send a ``BATCH``; waits only while the other end does not keep up."""

    def send_chunk(self, owner: int, offset: int, data: memoryview) -> None:
        """Send a ``CHUNK``; ``data`` may be changed afterwards."""

    def receive(self, timeout: float | None) -> tuple[int, memoryview] | None:
        """The next ``BATCH``, ``CHUNK`` or ``PLACED``: its kind and body.

        None when there was none for ``timeout`` seconds; None waits as long as it takes, and 0 only looks. One thread
        at a time may receive; any may send.
        """

    def peek(self, timeout: float | None) -> tuple[int, memoryview] | None:
        """What ``receive`` would return; it stays the next until ``drop``."""

    def drop(self) -> None:
        """Be done with the frame that ``peek`` gave."""

    @property
    def accepted(self) -> int:
        """How many frames were accepted for sending: tells after an interrupt whether a send had begun."""

    def interrupt(self, number: int) -> None:
        """Tell the server, before all that is on its way, of the interrupt of this number in the stream."""

    def arm(self) -> None:
        """Have the flush callback called soon, from another thread."""

    def leave(self) -> None:
        """Use the session no more, without ending it."""

    def give_up_after(self, seconds: float, unreachable: float) -> None:
        """Let nothing wait longer than ``seconds`` from now, nor ``unreachable`` seconds for a server that is gone."""

    def close(self) -> None:
        """End the session."""
