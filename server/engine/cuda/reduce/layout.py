"""How a reduction walks over memory: the dimensions it keeps and those it goes through, as few as strides allow.

Shapes and strides only; knows nothing of what is computed, nor of launches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from server.engine.cuda.runtime.geometry import LARGEST_NARROW, VECTOR_BYTES, Layout, collapse
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta


class Walk(NamedTuple):
    """The dimensions of the results, with strides of the input and of both results (kernels have two, or one twice);
    and those gone through, none where there are no elements.

    ``length``: how many elements make one result. ``is_wide``: 32 bits do not hold all offsets and numbers of elements.
    """

    kept: Layout
    reduced: Layout
    length: int
    is_wide: bool

    @property
    def results(self) -> int:
        return self.kept.numel

    @property
    def is_line(self) -> bool:
        """Whether the elements of one result follow each other."""
        return self.length <= 1 or (len(self.reduced.shape) == 1 and self.reduced.inner(0) == 1)

    @property
    def goes_down_columns(self) -> bool:
        """Whether neighbours in memory belong to different results."""
        kept, reduced = self.kept.inner(0), self.reduced.inner(0)
        return kept > 0 and (reduced == 0 or kept < reduced)

    def row_vector(self, itemsize: int) -> int:
        """The widest aligned access along the reduced dimensions."""
        inner = self.reduced.inner(0)
        others = [*self.reduced.strides[0][:-1], *self.kept.strides[0]]
        return _width(itemsize, [inner], [*self.reduced.shape[-1:], *others, *self.kept.offsets[:1]])

    def column_vector(self, itemsize: int, most: int) -> int:
        """The widest aligned access along the innermost kept dimension."""
        others = [*self.kept.strides[0][:-1], *self.reduced.strides[0]]
        lengths = [*self.kept.shape[-1:], *others, *self.kept.offsets[:1]]
        return min(_width(itemsize, [self.kept.inner(0)], lengths), most)


def _width(itemsize: int, steps: Sequence[int], lengths: Sequence[int]) -> int:
    """Elements of one access where neighbours are ``steps`` apart and ``lengths`` are between the accesses."""
    return math.gcd(VECTOR_BYTES // itemsize, *lengths) if set(steps) == {1} else 1


def walk(input: Meta, dims: Sequence[int], outs: Sequence[Meta], is_ordered: bool) -> Walk:
    """The walk over ``input`` that reduces ``dims`` into ``outs``; ``is_ordered`` keeps the logical order of places."""
    removed = frozenset(dims)
    kept = [d for d in range(input.ndim) if d not in removed]
    first, second = outs[0], outs[-1]
    strides = [tuple([input.strides[d] for d in kept]), kept_strides(first, kept), kept_strides(second, kept)]
    across = [d for d in range(input.ndim) if d in removed]
    count = math.prod(input.shape[d] for d in across)
    shape, steps = (tuple([source[d] for d in across if count]) for source in (input.shape, input.strides))
    return Walk(
        collapse(tuple([input.shape[d] for d in kept]), strides, [input.offset, first.offset, second.offset]),
        collapse(shape, [steps], [0], ordered=is_ordered),
        count,
        needs_wide(input, *outs),
    )


def kept_strides(out: Meta, kept: Sequence[int]) -> Size:
    """Strides along the dimensions that a result keeps; it may be without the others, or have size 1 there."""
    return out.strides if out.ndim == len(kept) else tuple([out.strides[d] for d in kept])


def needs_wide(*metas: Meta) -> bool:
    """Whether 32 bits do not hold all offsets and numbers of elements."""
    return max(max(meta.numel, meta.extent) for meta in metas) > LARGEST_NARROW


def index_types(is_wide: bool, **layouts: Layout) -> str:
    """The C++ definitions of ``index_t`` and of a type per layout, all of one width."""
    width = "wide" if is_wide else "narrow"
    types = [
        f"typedef {width}_layout<{max(len(layout.shape), 1)}, {len(layout.strides)}> {name};"
        for name, layout in layouts.items()
    ]
    return " ".join((f"typedef {'i64' if is_wide else 'u32'} index_t;", *types))


def ceiling(number: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(number - 1, 0).bit_length()


def floor(number: int) -> int:
    """The largest power of two that is not larger; at least one."""
    return 1 << max(number, 1).bit_length() - 1


def flag(condition: bool) -> str:
    """A condition as C++ writes it."""
    return "true" if condition else "false"
