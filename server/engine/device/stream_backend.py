"""Backends with streams: which stream a session launches on, and how its streams are opened, joined and given back.

The pool makes the streams. Knows no CUDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from server.engine.autograd.graph import next_sequence

from .memory import AllocatingBackend
from .streams import DEFAULT_STREAM, StreamUser, priority_of

if TYPE_CHECKING:
    from server.allocator import CachingAllocator
    from telegrad_protocol.meta import Device


class RawStreams(Protocol):
    """The raw streams of a device."""

    def take(self, priority: int = 0) -> int:
        """A raw stream that no other session has; a lower ``priority`` number goes first."""

    def use(self, pointer: int) -> None:
        """Make libraries launch on this stream from here on."""

    def give_back(self, pointer: int) -> None:
        """Wait for a stream's work, and keep the stream for the next session."""

    def join(self, producer: int, consumer: int) -> None:
        """Make later work of ``consumer`` wait for all work that ``producer`` has been given so far."""


class StreamedBackend(AllocatingBackend):
    """A device whose work is launched into streams; ``stream`` is the one that is current."""

    gains_by_stretches = True

    def __init__(self, device: Device, allocator: CachingAllocator, pool: RawStreams) -> None:
        super().__init__(device, allocator)
        self._streams = pool

    def enter(self, ctx: StreamUser) -> None:
        pointer = ctx.streams.get(self.device)
        if pointer is None:
            pointer = ctx.streams[self.device] = self.stream_of(ctx, DEFAULT_STREAM)
        if pointer != self.stream:
            self.flush()
            self.apart = None  # which is on the stream before
        self.stream = pointer
        self._streams.use(pointer)

    def leave(self, ctx: StreamUser) -> None:
        """Wait for the streams of a context, and keep them for the next one."""
        self.flush()
        ctx.streams.pop(self.device, None)
        for pointer in ctx.own_streams.opened.pop(self.device, {}).values():
            self._streams.give_back(pointer)
            self._forget_stream(ctx, pointer)

    def _forget_stream(self, ctx: StreamUser, pointer: int) -> None:
        """Drop what the backend keeps by a context's stream."""

    def stream_of(self, ctx: StreamUser, number: int) -> int:
        opened = ctx.own_streams.opened.setdefault(self.device, {})
        pointer = opened.get(number)
        if pointer is None:
            pointer = opened[number] = self._streams.take(priority_of(number))
        return pointer

    def use_stream(self, ctx: StreamUser, number: int) -> None:
        before = dict(ctx.streams)
        self.switch(ctx, self.stream_of(ctx, number))
        ctx.own_streams.note_change(next_sequence(), before, ctx.streams)

    def switch(self, ctx: StreamUser, stream: int) -> None:
        ctx.streams[self.device] = stream
        self.enter(ctx)

    def join(self, producer: int, consumer: int) -> None:
        self.flush()
        self._streams.join(producer, consumer)
