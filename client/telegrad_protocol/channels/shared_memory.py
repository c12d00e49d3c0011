"""Shared memory of a direct channel: large payloads pass through its slots, and only their place over the socket.

The server makes the memory and seals its size, so that neither end can have the other fault. One half is for what the
client sends, one for what the server does. A sender lends a slot to a frame until that is acknowledged. What is in a
slot may be changed by the other end at any time: it is data, and nothing that is checked is read from it twice.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections import deque
from typing import Final, NamedTuple

from ..errors import ProtocolError
from ..link import ACK_BYTES, Buffer
from ..messages import CHUNK_BYTES

SLOTS: Final = 8
"""Slots in each direction: enough that both ends copy at the same time, and few enough to stay in a core's cache."""
SLOT_BYTES: Final = CHUNK_BYTES + mmap.PAGESIZE
"""Bytes of a slot: a chunk and the header before it."""
HALF_BYTES: Final = SLOTS * SLOT_BYTES
MEMORY_BYTES: Final = 2 * HALF_BYTES
LEAST_COUNTED: Final = 2 * ACK_BYTES // SLOTS
"""A chunk in a slot counts as at least so many bytes of what is to be acknowledged: half of the slots bring that about,
however small the chunks in them are. Else a sender could wait for a slot, and the receiver for more to acknowledge."""
_PLACE: Final = struct.Struct("<II")


class Halves(NamedTuple):
    """The memory of a channel: what the client writes, and what the server does."""

    up: memoryview
    down: memoryview


def new_memory() -> int:
    """Return a descriptor of new memory, whose size nobody can change."""
    fd = os.memfd_create("telegrad-payloads", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, MEMORY_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd


def map_memory(fd: int) -> Halves:
    """Map the memory of a descriptor; ProtocolError where it is not as ``new_memory`` makes it."""
    try:
        is_sealed = bool(fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    except OSError:
        is_sealed = False
    if not is_sealed or os.fstat(fd).st_size != MEMORY_BYTES:
        raise ProtocolError(f"the shared memory is not {MEMORY_BYTES} bytes that cannot shrink")
    memory = memoryview(mmap.mmap(fd, MEMORY_BYTES))
    return Halves(memory[:HALF_BYTES], memory[HALF_BYTES:])


class SlotWriter:
    """The sender's side of one half."""

    __slots__ = ("_half", "_lent")

    def __init__(self, half: memoryview) -> None:
        self._half = half
        self._lent: deque[tuple[int, int]] = deque()
        """Frames that are not known to be acknowledged, and their slots."""

    def free_slot(self, acknowledged: int) -> int | None:
        """Return a slot that no frame after number ``acknowledged`` has; None where all are lent."""
        lent = self._lent
        while lent and lent[0][0] <= acknowledged:
            lent.popleft()
        taken = {slot for _, slot in lent}
        return next((slot for slot in range(SLOTS) if slot not in taken), None)

    def fill(self, slot: int, sequence: int, header: Buffer, data: Buffer) -> bytes:
        """Copy a chunk into a slot that is free, for the frame of this number, and return that frame's body."""
        self._lent.append((sequence, slot))
        begin = slot * SLOT_BYTES
        middle = begin + len(header)
        self._half[begin:middle] = header
        self._half[middle : middle + len(data)] = data
        return _PLACE.pack(slot, len(header) + len(data))


def chunk_at(half: memoryview, body: Buffer) -> memoryview:
    """Return the chunk whose place is the body of a frame; ProtocolError where it is not within a slot."""
    if len(body) != _PLACE.size:
        raise ProtocolError(f"the place of a chunk has {_PLACE.size} bytes, not {len(body)}")
    slot, length = _PLACE.unpack(body)
    if slot >= SLOTS or length > SLOT_BYTES:
        raise ProtocolError(f"{length} bytes in slot {slot} of the shared memory, which has {SLOTS} of {SLOT_BYTES}")
    begin = slot * SLOT_BYTES
    return half[begin : begin + length].toreadonly()
