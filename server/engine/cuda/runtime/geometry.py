"""Where elements lie, for kernels over operands of one broadcast shape: dimensions, vectors, index widths, grids.

Plain arithmetic on shapes and strides (in elements), and the CUDA text that undoes it (``INDEXING``). Layouts that are
permuted in the same way collapse like row-major ones. Knows nothing of operations, pointers or launches.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from operator import itemgetter, mul
from typing import NamedTuple

from telegrad_protocol.layout import Size, broadcast_strides
from telegrad_protocol.meta import Meta

VECTOR_BYTES = 16
LARGEST_NARROW = (1 << 31) - 1
_RUN = (1,)
_RUN_OR_SINGLE = (0, 1)
"""The strides of one run of elements, and of one element for all."""


class Layout(NamedTuple):
    """A shape, outermost dimension first, none of size 1; and for each operand its strides and first element."""

    shape: Size
    strides: tuple[Size, ...]
    offsets: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def is_flat(self) -> bool:
        """Whether each operand is one run of elements, or one element for all."""
        return len(self.shape) <= 1 and all([not steps or steps[0] in _RUN_OR_SINGLE for steps in self.strides])

    @property
    def is_wide(self) -> bool:
        """Whether indices or offsets need 64 bits, or a sign: strides of what is read backwards are negative."""
        if math.prod(self.shape) > LARGEST_NARROW:
            return True
        for steps in self.strides:
            if min(steps, default=0) < 0 or sum(map(mul, self.shape, steps)) - sum(steps) > LARGEST_NARROW:
                return True
        return False

    def inner(self, operand: int) -> int:
        """The stride of an operand along the innermost dimension; 0 where all see one element."""
        return self.strides[operand][-1] if self.shape else 0


def layout_of(shape: Size, metas: Sequence[Meta], *, ordered: bool = False) -> Layout:
    """The layout of operands that broadcast to ``shape``, as few dimensions as possible.

    Dimensions are sorted by the strides of the first operand, then of the others, largest first; or stay where they
    are if ``ordered``, for kernels to which an element's row-major number means something.
    """
    if 0 not in shape and all([meta.is_contiguous and meta.shape == shape for meta in metas]):
        numel = math.prod(shape)
        sizes, steps = ((), ()) if numel == 1 else ((numel,), _RUN)
        return Layout(sizes, (steps,) * len(metas), tuple([meta.offset for meta in metas]))
    strides = [broadcast_strides(meta.shape, meta.strides, shape) for meta in metas]
    return collapse(shape, strides, [meta.offset for meta in metas], ordered=ordered)


_steps_of = itemgetter(0)


def collapse(shape: Size, strides: Sequence[Size], offsets: Sequence[int], *, ordered: bool = False) -> Layout:
    """Leave dimensions of size 1 out, sort the others, and merge neighbours that are one to every operand."""
    dims = [(steps, n) for steps, n in zip(zip(*strides), shape) if n != 1]
    if not ordered:
        dims.sort(key=_steps_of, reverse=True)
    sizes: list[int] = []
    merged: list[Size] = []
    for steps, size in dims:
        if merged and merged[-1] == tuple([step * size for step in steps]):
            sizes[-1], merged[-1] = sizes[-1] * size, steps
        else:
            sizes.append(size)
            merged.append(steps)
    return Layout(tuple(sizes), tuple(zip(*merged)) or ((),) * len(strides), tuple(offsets))


def vector_width(layout: Layout, itemsizes: Sequence[int]) -> tuple[int, int]:
    """How many elements a thread moves in one access, and how many single elements come before the first vector.

    Operands of which all see one element do not matter. All others must be reached at a multiple of the width; in a
    flat layout after as many single elements as they have in common.
    """
    runs, largest = [], 0
    for k, steps in enumerate(layout.strides):
        if not any(steps):
            continue
        if steps[-1] not in _RUN_OR_SINGLE:
            return 1, 0
        if steps[-1]:
            runs.append(k)
            largest = max(largest, itemsizes[k])
    width = max(1, VECTOR_BYTES // (largest or VECTOR_BYTES))
    if not layout.is_flat:
        return _aligned(layout, runs, width), 0
    first, *others = [layout.offsets[k] for k in runs] or [0]
    for offset in others:
        width = math.gcd(width, first - offset)
    return width, min(-first % width, layout.numel)


def _aligned(layout: Layout, runs: list[int], width: int) -> int:
    """The widest vector, of at most ``width`` elements, that begins each line of all runs at a multiple of itself."""
    steps = [step for k in runs for step in (layout.offsets[k], *layout.strides[k][:-1])]
    return math.gcd(width, layout.shape[-1], *steps)


def blocks(items: int, per_block: int) -> int:
    """Blocks that cover ``items``; at least one."""
    return max(1, -(-items // per_block))


def divider(divisor: int) -> tuple[int, int]:
    """Factor and shift that divide a number below 2**31: ``(umulhi(n, factor) + n) >> shift``."""
    shift = (divisor - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - divisor)) // divisor + 1, shift


def packed(layout: Layout, width: int = 1, *, wide: bool = False) -> bytes:
    """The structure ``narrow_layout<D, K>`` of ``INDEXING``, or ``wide_layout`` where the layout is, or has to be.

    An index then counts vectors of ``width`` elements along the innermost dimension.
    """
    sizes = [*layout.shape[:-1], layout.shape[-1] // width] if layout.shape else [1]
    steps = [[*s[:-1], s[-1] * width] if s else [0] for s in layout.strides]
    inner_first = [step for operand in steps for step in reversed(operand)]
    sizes.reverse()
    if wide or layout.is_wide:
        return struct.pack(f"<{len(sizes) + len(inner_first)}q", *sizes, *inner_first)
    dividers = [divider(size) for size in sizes]
    numbers = [*sizes, *[factor for factor, _ in dividers], *[shift for _, shift in dividers], *inner_first]
    return struct.pack(f"<{len(numbers)}I", *numbers)


def layout_type(layout: Layout) -> str:
    """The C++ type of what ``packed`` gives."""
    kind = "wide_layout" if layout.is_wide else "narrow_layout"
    return f"{kind}<{max(len(layout.shape), 1)}, {len(layout.strides)}>"


INDEXING = r"""
// where element i of a shape of D dimensions lies in each of K operands; dimensions innermost first
template <int D, int K> struct narrow_layout {
    typedef u32 index;
    u32 size[D], factor[D], shift[D], step[K][D];
    __device__ __forceinline__ void find(u32 i, u32 (&at)[K]) const {
#pragma unroll
        for (int k = 0; k < K; ++k) at[k] = 0;
#pragma unroll
        for (int d = 0; d < D; ++d) {
            u32 next = d + 1 < D ? (__umulhi(i, factor[d]) + i) >> shift[d] : 0;
            u32 rest = i - next * size[d];
#pragma unroll
            for (int k = 0; k < K; ++k) at[k] += rest * step[k][d];
            i = next;
        }
    }
};
template <int D, int K> struct wide_layout {
    typedef i64 index;
    i64 size[D], step[K][D];
    __device__ __forceinline__ void find(i64 i, i64 (&at)[K]) const {
#pragma unroll
        for (int k = 0; k < K; ++k) at[k] = 0;
#pragma unroll
        for (int d = 0; d < D; ++d) {
            i64 next = d + 1 < D ? i / size[d] : 0;
            i64 rest = i - next * size[d];
#pragma unroll
            for (int k = 0; k < K; ++k) at[k] += rest * step[k][d];
            i = next;
        }
    }
};
"""
