"""Marks of operators, which say how systems that transform programs may treat them."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

_NAMES = (
    "core cudagraph_unsafe data_dependent_output dynamic_output_shape flexible_layout generated inplace inplace_view "
    "maybe_aliasing_or_mutating needs_contiguous_strides needs_exact_strides needs_fixed_stride_order "
    "nondeterministic_bitwise nondeterministic_seeded out out_variant pointwise pt2_compliant_tag reduction view_copy"
)
_enumeration: Final[Any] = Enum
Tag: Final[Any] = _enumeration("Tag", _NAMES.split(), start=0, module="telegrad")


def normalized(tags: Any) -> tuple[Any, ...]:
    """Return marks, or a single one, as a tuple without repetitions."""
    if tags is None:
        return ()
    return (tags,) if isinstance(tags, Tag) else tuple(dict.fromkeys(tags))
