"""Seed and offset of a generator in a GPU's memory, which the kernels of a captured graph read."""

from __future__ import annotations

from typing import Final

from server.allocator import Block
from server.engine.cuda.runtime.launch import Launch, load
from server.engine.cuda.runtime.prelude import PRELUDE
from server.engine.value import Backend
from telegrad_protocol.dtypes import DType

_BYTES: Final = 16
_SERVER: Final = 0
"""What the allocator calls the server, among owners of memory."""
TEXT = f"""{PRELUDE}
extern "C" __global__ void place(u64* state, u64 seed, u64 offset) {{
    state[0] = seed;
    state[1] = offset;
}}
"""


def _placing() -> Launch:
    return load(TEXT, "place").prepare(1, 1, "PQQ")


def check_loads(dtype: DType) -> None:
    """Load the kernel, to which no operation leads."""
    _placing()


class PlacedState:
    """The memory of one state, and the kernel that sets it: its numbers are arguments, so that launches may overlap.

    The memory is accounted to the server, as scratch memory of libraries is: nothing of a session's program lies there.
    """

    __slots__ = ("_backend", "_block", "_fire", "pointer")

    def __init__(self, backend: Backend) -> None:
        with backend.exclusive_allocator() as allocator:
            self._block: Block | None = allocator.allocate(_BYTES, backend.stream, _SERVER)
        self._backend, self.pointer = backend, self._block.pointer
        with backend.as_current():
            self._fire = _placing()

    def __del__(self) -> None:
        block = getattr(self, "_block", None)
        if block is not None:
            self._backend.release(block)

    def write(self, stream: int, seed: int, offset: int) -> None:
        """Set seed and offset, in the order of a raw stream."""
        self._fire(stream, self.pointer, seed, offset)
