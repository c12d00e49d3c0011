"""What a session is asked in its stream to be profiled, and to emit ranges for another profiler."""

from __future__ import annotations

from telegrad_protocol.queries import SessionQuery


class StartProfile(SessionQuery, frozen=True):
    """Note what the session executes from here on; the answer is the worker's clock, in nanoseconds.

    ``memory``: changes of the session's memory are noted too. ``devices``: so is the work of GPUs. ``limit`` bounds the
    bytes of what is noted. An error where the session is profiled already.
    """

    memory: bool
    devices: bool
    limit: int


class StopProfile(SessionQuery, frozen=True):
    """End ``StartProfile`` once all devices have done what they were given.

    The answer is the id of a tensor of bytes, which the client frees: what was noted, as ``tracing.recording`` encodes
    it. None where the session's quota has no room for it.
    """


class StartRanges(SessionQuery, frozen=True):
    """Emit NVTX ranges in the worker around what the session executes, until the mode ``stop_ranges``.

    ``shapes``: their names tell shapes of operands. The answer is empty, or says why nothing is emitted. An error where
    the session is profiled already. The modes ``range`` and ``mark`` emit the program's own.
    """

    shapes: bool


class ProfileClock(SessionQuery, frozen=True):
    """The worker's monotonic clock, in nanoseconds."""
