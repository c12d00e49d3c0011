"""Contracts of reductions, scans, and searches along a dimension."""

from __future__ import annotations

from ..dtypes import DType, int64
from ..layout import Size, wrap_dims
from ..meta import Meta
from .contract import op


def reduced(name: str, input: Meta, dim: int | Size | None, keepdim: bool) -> Size:
    """The shape after reducing ``dim``; all dimensions where it is None or empty."""
    listed = (dim,) if isinstance(dim, int) else dim
    dims = set(wrap_dims(name, listed, input.ndim)) if listed else set(range(input.ndim))
    if keepdim:
        return tuple(1 if d in dims else s for d, s in enumerate(input.shape))
    return tuple(s for d, s in enumerate(input.shape) if d not in dims)


@op
def sum(input: Meta, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Meta:
    """The sum over dimensions; integers and bools are summed as int64."""
    natural = input.dtype if input.dtype.category >= 2 else int64
    return input.like(reduced("sum", input, dim, keepdim), dtype=dtype or natural)
