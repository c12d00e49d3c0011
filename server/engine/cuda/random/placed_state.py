"""Seed and offset of a generator in a GPU's memory, which the kernels of a captured graph read."""

from __future__ import annotations

from server.engine.cuda.runtime.launch import Launch, load
from server.engine.cuda.runtime.prelude import PRELUDE
from server.engine.value import Backend
from telegrad_protocol.dtypes import DType, int64
from telegrad_protocol.meta import Meta

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
    """The memory of one state, and the kernel that sets it: its numbers are arguments, so that launches may overlap."""

    __slots__ = ("_fire", "_value", "pointer")

    def __init__(self, backend: Backend) -> None:
        self._value = backend.empty(Meta.of((2,), int64, backend.device))
        self.pointer = self._value.storage.block.pointer
        with backend.as_current():
            self._fire = _placing()

    def write(self, stream: int, seed: int, offset: int) -> None:
        """Set seed and offset, in the order of a raw stream."""
        self._fire(stream, self.pointer, seed, offset)
