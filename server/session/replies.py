"""A session's replies, in order: those that are complete, and behind them those that wait for a device.

Knows replies and copies from devices; knows neither instructions nor the session's values.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import numpy as np

from server.engine import context
from server.engine.context import Held
from server.engine.device.interface import Download, Mark
from server.engine.value import Value
from telegrad_protocol import messages, wire

Frame: TypeAlias = tuple[int, list[bytes | memoryview]]

PENDING_BYTES = 64 << 20
"""Once copies of this many bytes wait for the device, the next read waits for those before it."""
_POLL_SECONDS = 50e-6


class _NotedCopy:
    """A copy whose bytes are noted in the session's account of host memory as long as any piece of it is held."""

    __slots__ = ("_copy", "_held")

    def __init__(self, value: Value) -> None:
        self._held = Held(context.current.host_memory, value.meta.nbytes)
        self._copy = value.backend.open_download(value)

    def is_ready(self) -> bool:
        return self._copy.is_ready()

    def bytes(self) -> memoryview:
        array = np.frombuffer(self._copy.bytes(), np.uint8).view(_HeldArray)
        array.held = self._held
        return array.data


class _HeldArray(np.ndarray[Any, Any]):
    """Bytes of a copy, whose pieces keep what is noted of it."""

    held: Held


def open_copy(value: Value) -> Download:
    """Begin to copy a value's elements to the host, row-major; OutOfMemoryError where the session has no room."""
    if value.meta.nbytes <= messages.INLINE_BYTES:
        return value.backend.open_download(value)
    return _NotedCopy(value)


class PendingData:
    """The reply to a read: a host copy that the device may still be filling, then a message and its chunks.

    ``shows_memory`` says that the frames refer to the tensor's own memory, which nothing may write to until they are
    sent.
    """

    __slots__ = ("_copy", "_meta", "nbytes", "request", "shows_memory")

    def __init__(self, request: int, value: Value) -> None:
        self.request = request
        self._meta = value.meta
        self.nbytes = nbytes = value.meta.nbytes
        window = value.backend.host_view(value) if nbytes > messages.INLINE_BYTES else None
        self.shows_memory = window is not None
        self._copy = window or open_copy(value)

    def is_ready(self) -> bool:
        """Return whether the elements have arrived in host memory."""
        return self._copy.is_ready()

    def wait(self) -> None:
        """Block until the elements have arrived in host memory."""
        self._copy.bytes()

    def frames(self) -> tuple[messages.Reply, list[Frame]]:
        """Return the message, which holds the data itself where it is small, and the chunks that follow it."""
        data = self._copy.bytes()
        meta = self._meta
        inline = bytes(data) if len(data) <= messages.INLINE_BYTES else None
        message = messages.Data(self.request, meta.dtype.code, meta.shape, len(data), inline)
        if inline is not None:
            return message, []
        size = messages.CHUNK_BYTES
        starts = range(0, len(data), size)
        return message, [(wire.CHUNK, [wire.CHUNK_HEADER.pack(self.request, s), data[s : s + size]]) for s in starts]


class PendingAnswer:
    """An answer, such as that to ``synchronize``, that is due when devices have run all that they were given before."""

    __slots__ = ("_answer", "_marks", "request")

    nbytes = 0
    shows_memory = False

    def __init__(self, request: int, marks: list[Mark], answer: Callable[[], Any]) -> None:
        self.request = request
        self._marks = marks
        self._answer = answer

    def is_ready(self) -> bool:
        """Return whether all devices have reached their marks."""
        return all(mark.is_ready() for mark in self._marks)

    def wait(self) -> None:
        """Block until all devices have reached their marks."""
        while not self.is_ready():
            time.sleep(_POLL_SECONDS)

    def frames(self) -> tuple[messages.Reply, list[Frame]]:
        """Return the answer, without chunks; this waits for nothing."""
        return messages.Answer(self.request, self._answer()), []


Pending: TypeAlias = PendingData | PendingAnswer


class ReplyQueue:
    """What a client is told, in order.

    Where checks are ``outstanding``, ``check`` sees what devices have found wrong, which may withdraw replies.

    The loop reads ``messages``, ``frames``, ``pending``, ``shows_memory`` and ``holds`` directly, to call nothing where
    nothing is there.
    """

    __slots__ = ("check", "frames", "holds", "messages", "outstanding", "pending", "shows_memory")

    def __init__(self, outstanding: Collection[Any]) -> None:
        self.outstanding = outstanding
        self.check: Callable[[], None] = _nothing_to_check
        self.messages: list[messages.Reply] = []
        """Replies that are complete and not encoded yet."""
        self.frames: list[Frame] = []
        """Encoded replies, which come before ``messages``."""
        self.pending: deque[Pending] = deque()
        """Replies that wait for a device."""
        self.shows_memory = False
        """Whether frames that refer to memory of tensors were not sent yet; nothing may be executed until they are."""
        self.holds = False
        """Whether no further instruction is executed in this run: because of such frames, or since it is to pause."""

    def add(self, reply: messages.Reply) -> None:
        """Reply at once."""
        self.messages.append(reply)

    def add_pending(self, pending: Pending) -> None:
        """Reply when the device has come that far: at once, where it has and no other reply waits."""
        self.pending.append(pending)
        if len(self.pending) == 1 and pending.is_ready():
            self._deliver_first()

    def make_room(self, nbytes: int) -> None:
        """Wait until a copy of ``nbytes`` may be added to those that wait for the device."""
        while self.pending and nbytes + sum([pending.nbytes for pending in self.pending]) > PENDING_BYTES:
            self.pending[0].wait()
            self._deliver_first()

    def deliver(self) -> None:
        """Complete the replies that the device has come to, in order."""
        while self.pending and self.pending[0].is_ready():
            self._deliver_first()

    def withdraw(self, requests: Collection[int | None]) -> None:
        """Forget the pending replies to these requests."""
        kept = [pending for pending in self.pending if pending.request not in requests]
        self.pending.clear()
        self.pending.extend(kept)

    def take(self) -> list[Frame]:
        """Return the frames to send, in order, and forget them."""
        messages, frames = self.messages, self.frames
        if messages:
            frames.append((wire.BATCH, [wire.encode_batch(messages)]))
            self.messages = []
        self.frames = []
        return frames

    def clear(self) -> None:
        """Forget all replies."""
        self.pending.clear()
        self.messages.clear()
        self.frames.clear()

    def _deliver_first(self) -> None:
        """Complete the first pending reply, unless ``check`` withdraws it."""
        first = self.pending[0]
        if self.outstanding:
            self.check()
            if not self.pending or self.pending[0] is not first:
                return
        message, chunks = self.pending.popleft().frames()
        if first.shows_memory:
            self.shows_memory = self.holds = True
        self.messages.append(message)
        if chunks:
            self._close_batch()
            self.frames.extend(chunks)

    def _close_batch(self) -> None:
        self.frames.append((wire.BATCH, [wire.encode_batch(self.messages)]))
        self.messages = []


def _nothing_to_check() -> None:
    """Stand in for ``check`` until a session sets it."""
