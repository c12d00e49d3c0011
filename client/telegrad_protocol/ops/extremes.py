"""Contracts of element-wise operations that choose the larger or the smaller: extremes of two, and limits."""

from __future__ import annotations

from telegrad_protocol.errors import ArgumentTypeError, DTypeError
from telegrad_protocol.meta import Meta

from .contract import Scalar, alias, pointwise


@pointwise(takes="bif", inplace=False)
def maximum(input: Meta, other: Meta) -> Meta:
    """Compute the larger of both elements; NaN where either is NaN."""


@pointwise(takes="bif", inplace=False)
def minimum(input: Meta, other: Meta) -> Meta:
    """Compute the smaller of both elements; NaN where either is NaN."""


@pointwise(takes="bif", inplace=False)
def fmax(input: Meta, other: Meta) -> Meta:
    """Compute the larger of both elements; where one is NaN, the other one."""


@pointwise(takes="bif", inplace=False)
def fmin(input: Meta, other: Meta) -> Meta:
    """Compute the smaller of both elements; where one is NaN, the other one."""


@pointwise(takes="bif")
def clamp(input: Meta, min: Meta | Scalar | None = None, max: Meta | Scalar | None = None) -> Meta:
    """Limit every element to [min, max]; where min is greater than max the result is max."""
    if min is None and max is None:
        raise DTypeError("clamp: at least one of 'min' and 'max' must be given")
    limits = [limit for limit in (min, max) if isinstance(limit, Meta)]
    if len(limits) == 1 and min is not None and max is not None and limits[0].ndim:
        raise ArgumentTypeError(f"clamp: 'min' and 'max' must both be tensors or both be numbers, got {min} and {max}")


@pointwise(takes="bif")
def clamp_min(input: Meta, min: Meta | Scalar) -> Meta:
    """Replace elements below ``min`` by it."""


@pointwise(takes="bif")
def clamp_max(input: Meta, max: Meta | Scalar) -> Meta:
    """Replace elements above ``max`` by it."""


alias("clip", clamp)
