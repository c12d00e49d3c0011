"""Layouts of few elements as loops in C take them: sizes and strides in bytes of as few dimensions as suffice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.in_c.small import ARGUMENT, CONSTANT, RESULT, Place
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta

MOST_ELEMENTS: Final = 4096
"""Operands and results of more elements are NumPy's, which uses longer vectors."""
KINDS: Final = {
    dtypes.float32: "f32", dtypes.float64: "f64", dtypes.int64: "i64", dtypes.int32: "i32", dtypes.bool_: "u8",
}  # fmt: skip
"""Types by the names that end the names of loops in C."""
Strides = Sequence[int]


def is_small(*metas: Meta) -> bool:
    """Whether there are elements, and few of them, in each."""
    return all([0 < meta.numel <= MOST_ELEMENTS for meta in metas])


def strides_of(meta: Meta, shape: Sequence[int]) -> list[int]:
    """The strides in bytes of a tensor that is broadcast to a shape."""
    size = meta.dtype.itemsize
    own = [0 if n == 1 else stride * size for n, stride in zip(meta.shape, meta.strides)]
    return [0] * (len(shape) - len(own)) + own


def row_major(shape: Sequence[int], size: int) -> list[int]:
    """The strides in bytes of rows that lie one behind the other."""
    return [size * math.prod(shape[d + 1 :]) for d in range(len(shape))]


def walk(shape: Sequence[int], *strides: Strides) -> list[int]:
    """A walk over all indices in order: how many dimensions, their sizes, and the strides of each operand.

    Dimensions that follow each other in all operands become one.
    """
    sizes: list[int] = []
    rows: list[list[int]] = [[] for _ in strides]
    for d, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all([row[-1] == own[d] * size for row, own in zip(rows, strides)]):
            sizes[-1] *= size
            for row, own in zip(rows, strides):
                row[-1] = own[d]
        else:
            sizes.append(size)
            for row, own in zip(rows, strides):
                row.append(own[d])
    if not sizes:
        return [1, 1, *[0 for _ in strides]]
    return [len(sizes), *sizes, *[stride for row in rows for stride in row]]


def argument(number: int, meta: Meta, item: int = -1) -> Place:
    """The place of an argument's first element."""
    return Place(ARGUMENT, number, item, meta.offset * meta.dtype.itemsize)


def result(number: int, meta: Meta) -> Place:
    """The place of a result's first element."""
    return Place(RESULT, number, -1, meta.offset * meta.dtype.itemsize)


def bits_of(number: Any, dtype: DType) -> int:
    """The bits of a number of a type, as an integer of eight bytes."""
    raw = np.asarray(number).astype(NUMPY_DTYPES[dtype]).tobytes()
    return int.from_bytes(raw.ljust(8, b"\0")[:8], "little", signed=True)


class Operands:
    """The places, strides and constants of operands and a result that are walked over together."""

    def __init__(self, shape: Sequence[int], dtype: DType) -> None:
        self._shape, self._dtype = shape, dtype
        self.places: list[Place] = []
        self._strides: list[Strides] = []
        self._constants: list[int] = []

    def add(self, number: int, operand: Any, dtype: DType | None = None, item: int = -1) -> bool:
        """Add an argument, or an item of it: a tensor, or a number of the type; False for what no loop takes."""
        wanted = dtype or self._dtype
        if operand.__class__ is Meta:
            self.places.append(argument(number, operand, item))
            self._strides.append(strides_of(operand, self._shape))
            return operand.dtype is wanted and is_small(operand)
        if operand.__class__ not in (bool, int, float):
            return False
        self.places.append(Place(CONSTANT, 0, -1, len(self._constants)))
        self._strides.append([0] * len(self._shape))
        self._constants.append(bits_of(operand, wanted))
        return True

    def add_all(self, operands: Iterable[tuple[int, Any]]) -> bool:
        """Add arguments by their numbers; False for what no loop takes."""
        return all([self.add(number, operand) for number, operand in operands])

    def add_result(self, meta: Meta) -> None:
        """Add the result, which is walked over with the operands."""
        self.places.append(result(0, meta))
        self._strides.append(strides_of(meta, self._shape))

    def numbers(self) -> list[int]:
        """The walk, and then the constants, whose places are told by where they are now."""
        walked = walk(self._shape, *self._strides)
        self.places = [
            place._replace(offset=place.offset + len(walked)) if place.source == CONSTANT else place
            for place in self.places
        ]
        return [*walked, *self._constants]
