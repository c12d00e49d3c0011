"""Tensors joined into one: each copied into its part of the result, a few small ones by one launch.

A launch costs the host more than the copy of a few rows costs the device, and a cache that grows by each token is
joined twice for each layer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from server.engine import keys
from server.engine.cuda.runtime.geometry import VECTOR_BYTES, blocks, divider, layout_of
from server.engine.cuda.runtime.launch import Kernel, load
from server.engine.cuda.runtime.prelude import PRELUDE, assembled
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Backend, Launch, Value
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import wrap_dim
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import rearrange

from .copying import copied

Pair = tuple[Meta, Meta]
"""A part of a result, and the tensor that is copied into it."""
MOST_AT_ONCE: Final = 4
"""So many tensors are joined by one launch at most: each number has a kernel of its own."""
_LARGEST: Final = 4 << 20
"""Larger results take the device so long that launches do not count; a copy for each tensor moves more at once."""
_THREADS: Final = 256
_UNITS: Final = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "uint4"}
"""What a thread moves, by its bytes."""


class Rows(NamedTuple):
    """A tensor as rows of elements. ``steps`` are how far apart groups of them, and rows in a group, begin.

    ``height`` is how many rows there are, ``group`` how many are in a group, and ``length`` how long each row is.
    """

    height: int
    group: int
    steps: tuple[int, int]
    length: int
    offset: int

    def grouped(self, group: int) -> Rows:
        """Return rows that lie at one distance as groups of so many."""
        return self._replace(group=group, steps=(self.steps[1] * group, self.steps[1])) if self.group == 1 else self

    def in_units(self, size: int, unit: int) -> Rows:
        """Return the same counted in units of so many bytes, for elements of ``size`` bytes."""
        outer, inner, length, offset = [n * size // unit for n in (*self.steps, self.length, self.offset)]
        return self._replace(steps=(outer, inner), length=length, offset=offset)


class Joint(NamedTuple):
    """Tensors whose rows lie side by side in the rows of a result. All is counted in units of so many bytes."""

    unit: int
    length: int
    offset: int
    parts: tuple[Rows, ...]


def joint_of(pairs: Sequence[Pair]) -> Joint | None:
    """Return how tensors are joined by one launch; None where their elements do not lie in such rows."""
    if not 2 <= len(pairs) <= MOST_AT_ONCE or any([part.dtype is not source.dtype for part, source in pairs]):
        return None
    offset, size = pairs[0][0].offset, pairs[0][0].dtype.itemsize
    if sum([part.nbytes for part, _ in pairs]) > _LARGEST:
        return None
    found = [_rows_of(part, source) for part, source in pairs]
    rows = [one for one in found if one is not None]
    length = sum([one.length for one in rows])
    group = max([one.group for one in rows], default=1)
    if len(rows) < len(pairs) or any([one.height != rows[0].height or one.group not in (1, group) for one in rows]):
        return None
    begins = accumulate([one.length for one in rows], initial=offset)
    for (part, _), one, begin in zip(pairs, rows, begins, strict=False):
        if part.offset != begin or (one.height > 1 and _step(part, one) != length):
            return None
    rows = [one.grouped(group) for one in rows]
    unit = _unit(rows, offset, size)
    return Joint(unit, length * size // unit, offset * size // unit, tuple([one.in_units(size, unit) for one in rows]))


def _rows_of(part: Meta, source: Meta) -> Rows | None:
    """Return a tensor as rows that its part of a result is contiguous along, too; None where there are none."""
    layout = layout_of(part.shape, [part, source])
    shape, (into, out_of) = layout.shape, layout.strides
    if not shape or into[-1] != 1:
        shape, into, out_of = (*shape, 1), (*into, 1), (*out_of, 1)
    if len(shape) > 3 or out_of[-1] != 1 or (len(shape) == 3 and into[0] != into[1] * shape[1]):
        return None
    group = shape[1] if len(shape) == 3 else 1
    outer, inner = (0, 0, *out_of[:-1])[-2:]
    return Rows(math.prod(shape[:-1]), group, (outer, inner), shape[-1], source.offset)


def _step(part: Meta, rows: Rows) -> int:
    """Return how far apart rows begin in a part of a result."""
    steps = [step for n, step in zip(part.shape, part.strides) if n > 1 and step >= rows.length]
    return min(steps, default=0)


def _unit(parts: Sequence[Rows], offset: int, size: int) -> int:
    """Return how many bytes a thread moves: as many as all rows begin and end at a multiple of."""
    reach = [offset, *[n for rows in parts for n in (*rows.steps, rows.length, rows.offset)]]
    return math.gcd(VECTOR_BYTES, *[n * size for n in reach])


def joining(backend: Backend, pairs: list[Pair]) -> Launch:
    """A launch that copies the tensors of the list that is the first argument into these parts of the first output."""
    filled = [k for k, (part, _) in enumerate(pairs) if part.numel]
    joint = joint_of([pairs[k] for k in filled])
    return _one_by_one(backend, pairs, filled) if joint is None else _at_once(backend, joint, filled)


def _one_by_one(backend: Backend, pairs: Sequence[Pair], filled: Sequence[int]) -> Launch:
    copies = [(k, *copied(*pairs[k])) for k in filled]
    steps = [(k, fire, offsets[0], offsets[1]) for k, fire, offsets in copies]

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        tensors, target = args[0], outs[0].storage.block.pointer
        for k, fire, into, begin in steps:
            fire(backend.stream, target + into, tensors[k].storage.block.pointer + begin)

    return launch


def _at_once(backend: Backend, joint: Joint, filled: Sequence[int]) -> Launch:
    rows = joint.parts[0]
    total = rows.height * joint.length
    numbers = (total, joint.length, *divider(joint.length), rows.group, *divider(rows.group))
    constants = [("unsigned", number) for number in numbers]
    for rows in joint.parts:
        constants += [("i64", rows.steps[0]), ("i64", rows.steps[1]), ("unsigned", rows.length)]
    kernel, pointers = _kernel(len(joint.parts), joint.unit), "P" * (1 + len(joint.parts))
    fire = kernel.prepare(blocks(total, _THREADS), _THREADS, pointers, constants)
    into = joint.offset * joint.unit
    begins = [(k, rows.offset * joint.unit) for k, rows in zip(filled, joint.parts, strict=True)]
    if len(begins) == 2:
        return _of_two(backend, fire, into, *begins)

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        tensors = args[0]
        sources = [tensors[k].storage.block.pointer + begin for k, begin in begins]
        fire(backend.stream, outs[0].storage.block.pointer + into, *sources)

    return launch


def _of_two(backend: Backend, fire: Any, into: int, first: tuple[int, int], second: tuple[int, int]) -> Launch:
    """The same for two tensors, written out: it is what caches are joined by."""
    (k, begin), (other, other_begin) = first, second

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        tensors = args[0]
        fire(
            backend.stream, outs[0].storage.block.pointer + into, tensors[k].storage.block.pointer + begin,
            tensors[other].storage.block.pointer + other_begin,
        )  # fmt: skip

    return launch


def check_loads(_: DType) -> None:
    """Load what any types need: there are few kernels, and which one it is depends on lengths and alignment."""
    for count in range(2, MOST_AT_ONCE + 1):
        for unit in _UNITS:
            _kernel(count, unit)


def _kernel(count: int, unit: int) -> Kernel:
    return load(assembled(PRELUDE, _text(count, unit)), "joined")


@functools.lru_cache(maxsize=64)
def _text(count: int, unit: int) -> str:
    """The kernel that joins so many tensors: each thread moves one unit of a row of the result."""
    pointers = "".join([f", const unit* in{k}" for k in range(count)])
    numbers = "".join([f", i64 outer{k}, i64 inner{k}, u32 length{k}" for k in range(count)])
    moves = "\n".join([_move(k) for k in range(count)])
    return f"""
typedef {_UNITS[unit]} unit;
extern "C" __global__ void __launch_bounds__({_THREADS}) joined(
    unit* out{pointers}, u32 total, u32 length, u32 length_factor, u32 length_shift, u32 group, u32 group_factor,
    u32 group_shift{numbers}) {{
    const u32 i = blockIdx.x * {_THREADS} + threadIdx.x;
    if (i >= total) return;
    const u32 row = (__umulhi(i, length_factor) + i) >> length_shift;
    const u32 at = (__umulhi(row, group_factor) + row) >> group_shift;
    const i64 outer = at, inner = row - at * group;
    u32 column = i - row * length;
{moves}
}}
"""


def _move(k: int) -> str:
    return (
        f"    if (column < length{k}) {{ out[i] = in{k}[outer * outer{k} + inner * inner{k} + column]; return; }}\n"
        f"    column -= length{k};"
    )


@prepares(rearrange.cat, keys.CUDA, deferrable=True)
def cat(request: Request) -> Launch:
    """Each tensor copied into its part of the result."""
    tensors, dim = request.args
    out = request.outs[0]
    at, lengths = rearrange.joined("cat", tensors, dim)
    starts = [sum(lengths[:k]) for k in range(len(lengths))]
    parts = [_part(out, at, start, length) for start, length in zip(starts, lengths, strict=True)]
    return joining(request.backend, list(zip(parts, tensors, strict=True)))


@prepares(rearrange.stack, keys.CUDA, deferrable=True)
def stack(request: Request) -> Launch:
    """Each tensor copied into its slice of the result."""
    tensors, dim = request.args
    out = request.outs[0]
    at = wrap_dim("stack", dim, out.ndim)
    slices = [_part(out, at, k, 1) for k in range(len(tensors))]
    shapes = [tuple([n for d, n in enumerate(part.strides) if d != at]) for part in slices]
    views = [part.view(t.shape, s) for part, t, s in zip(slices, tensors, shapes, strict=True)]
    return joining(request.backend, list(zip(views, tensors, strict=True)))


def _part(out: Meta, dim: int, start: int, length: int) -> Meta:
    """A stretch of a dimension of the result."""
    shape = (*out.shape[:dim], length, *out.shape[dim + 1 :])
    return out.view(shape, out.strides, out.offset + start * out.strides[dim])
