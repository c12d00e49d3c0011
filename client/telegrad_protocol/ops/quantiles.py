"""Contracts of quantiles, of the median without NaN, and of the most frequent element."""

from __future__ import annotations

from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta

from .contract import op
from .reduce import check_nonempty, check_real, chosen, reduced

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@op(name="nanmedian.dim", returns=("values", "indices"))
def nanmedian_dim(input: Meta, dim: int, keepdim: bool = False) -> tuple[Meta, Meta]:
    """Return the median along a dimension of the elements that are not NaN, the lower of two, and its index."""
    return chosen("nanmedian", input, dim, keepdim)


@op(out=False)
def nanmedian(input: Meta) -> Meta:
    """Return the median of all elements that are not NaN, the lower of two."""
    check_real("nanmedian", input)
    return input.like(())


@op(returns=("values", "indices"))
def mode(input: Meta, dim: int = -1, keepdim: bool = False) -> tuple[Meta, Meta]:
    """Return the most frequent element along a dimension, the smallest of several, and the last index of it."""
    return chosen("mode", input, dim, keepdim)


def _quantiles(name: str, input: Meta, count: int | None, dim: int | None, keepdim: bool, interpolation: str) -> Meta:
    """Return the meta of ``count`` quantiles, in a first dimension of their own unless ``count`` is None."""
    if not input.dtype.is_floating_point or input.dtype.itemsize < 4:
        raise DTypeError(f"{name}: expected float32 or float64 elements, not {input}")
    if interpolation not in _INTERPOLATIONS:
        raise ArgumentError(f"{name}: interpolation must be one of {', '.join(_INTERPOLATIONS)}, not {interpolation!r}")
    if not input.numel:
        raise ShapeError(f"{name}: {input} has no elements")
    check_nonempty(name, input, dim)
    shape: Size = reduced(name, input, dim, keepdim)
    return input.like(shape if count is None else (count, *shape))


def _count(name: str, input: Meta, q: Meta) -> int | None:
    if q.ndim > 1:
        raise ShapeError(f"{name}: q must be a number or one line of them, not {q}")
    if q.dtype is not input.dtype:
        raise DTypeError(f"{name}: q must have the type of the elements, {input.dtype.name}, not {q}")
    return q.shape[0] if q.ndim else None


def _check_fraction(name: str, q: float) -> None:
    if not 0 <= q <= 1:
        raise ArgumentError(f"{name}: q must be in the range [0, 1], got {q}")


@op(no_grad=("q",))
def quantile(
    input: Meta, q: Meta, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Meta:
    """Return the elements below which fractions ``q`` of the elements along a dimension, or of all, lie.

    Between two elements the result is interpolated; NaN if any element is NaN.
    """
    return _quantiles("quantile", input, _count("quantile", input, q), dim, keepdim, interpolation)


@op(name="quantile.scalar")
def quantile_scalar(
    input: Meta, q: float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Meta:
    """Return the element below which a fraction ``q`` of the elements along a dimension, or of all, lies."""
    _check_fraction("quantile", q)
    return _quantiles("quantile", input, None, dim, keepdim, interpolation)


@op(no_grad=("q",))
def nanquantile(
    input: Meta, q: Meta, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Meta:
    """Return quantiles as ``quantile`` does, of the elements that are not NaN."""
    return _quantiles("nanquantile", input, _count("nanquantile", input, q), dim, keepdim, interpolation)


@op(name="nanquantile.scalar")
def nanquantile_scalar(
    input: Meta, q: float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Meta:
    """Return a quantile as ``quantile`` does, of the elements that are not NaN."""
    _check_fraction("nanquantile", q)
    return _quantiles("nanquantile", input, None, dim, keepdim, interpolation)
