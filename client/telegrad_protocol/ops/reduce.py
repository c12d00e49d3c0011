"""Contracts of reductions over dimensions.

Names of this module shadow Python's own (``sum``, ``max``, ``any``): rules here use none of those.
"""

from __future__ import annotations

from telegrad_protocol.dtypes import DType, bool_, get_default_dtype, int64, uint8, uint64
from telegrad_protocol.errors import ArgumentError, DimensionError, DTypeError, ShapeError
from telegrad_protocol.layout import Size, broadcast_shapes, wrap_dims
from telegrad_protocol.meta import Meta

from .contract import op, pointwise_meta


def reduced(name: str, input: Meta, dim: int | Size | None, keepdim: bool) -> Size:
    """Return the shape after reducing ``dim``, or all dimensions where it is None or empty."""
    listed = (dim,) if isinstance(dim, int) else dim
    dims = set(wrap_dims(name, listed, input.ndim)) if listed else set(range(input.ndim))
    if keepdim:
        return tuple(1 if d in dims else s for d, s in enumerate(input.shape))
    return tuple(s for d, s in enumerate(input.shape) if d not in dims)


def check_real(name: str, *metas: Meta) -> None:
    """Refuse complex operands, which have no order."""
    for meta in metas:
        if meta.dtype.is_complex:
            raise DTypeError(f"{name}: complex numbers have no order, got {meta}")


def check_differentiable(name: str, dtype: DType, input: Meta) -> None:
    """Refuse types in which no mean, deviation or norm is taken."""
    if not dtype.is_differentiable:
        whose = "Input" if dtype is input.dtype else "Optional"
        raise DTypeError(
            f"{name}: {name}(): could not infer output dtype. {whose} dtype must be either a floating point or complex "
            f"dtype. Got: {dtype.name}, with {input}; convert it or pass dtype="
        )


def check_nonempty(name: str, input: Meta, dim: int | Size | None) -> None:
    """Refuse to choose among no elements."""
    if input.numel:
        return
    listed = (dim,) if isinstance(dim, int) else dim
    if not listed:
        raise DimensionError(f"{name}: expected a dim to be specified for the empty {input}")
    for d in wrap_dims(name, listed, input.ndim):
        if input.ndim and input.shape[d] == 0:
            raise DimensionError(f"{name}: Expected reduction dim {d} to have non-zero size, got {input}")


def _check_any_element(name: str, input: Meta) -> None:
    if not input.numel:
        raise ShapeError(f"{name}: Expected reduction dim to be specified for {input}, which has no elements")


def _tested(name: str, input: Meta, dim: int | Size | None, keepdim: bool) -> Meta:
    shape = input.shape if dim == () else reduced(name, input, dim, keepdim)
    return input.like(shape, dtype=uint8 if input.dtype is uint8 else bool_)


def _summed(dtype: DType) -> DType:
    return dtype if dtype.category >= 2 else int64


@op
def sum(input: Meta, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Meta:
    """Sum over dimensions, or over all; integers and bools are summed as int64."""
    return input.like(reduced("sum", input, dim, keepdim), dtype=dtype or _summed(input.dtype))


@op
def nansum(input: Meta, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Meta:
    """Sum over dimensions, or over all, with NaN counted as zero."""
    check_real("nansum", input)
    return input.like(reduced("nansum", input, dim, keepdim), dtype=dtype or _summed(input.dtype))


@op
def mean(input: Meta, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Meta:
    """Compute the mean over dimensions, or over all, of a floating-point or complex tensor."""
    check_differentiable("mean", dtype or input.dtype, input)
    return input.like(reduced("mean", input, dim, keepdim), dtype=dtype)


@op
def nanmean(input: Meta, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Meta:
    """Compute the mean over dimensions, or over all, of the elements that are not NaN."""
    check_differentiable("nanmean", input.dtype, input)
    check_differentiable("nanmean", dtype or input.dtype, input)
    check_real("nanmean", input)
    return input.like(reduced("nanmean", input, dim, keepdim), dtype=dtype)


@op
def prod(input: Meta, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Meta:
    """Multiply all elements, or those along one dimension."""
    return input.like(reduced("prod", input, dim, keepdim), dtype=dtype or _summed(input.dtype))


@op(name="max.other")
def max_other(input: Meta, other: Meta) -> Meta:
    """Compute the larger of two tensors, element by element."""
    return _either("max", input, other)


@op(name="max.dim", returns=("values", "indices"))
def max_dim(input: Meta, dim: int, keepdim: bool = False) -> tuple[Meta, Meta]:
    """Return the largest element along a dimension, and its index."""
    return chosen("max", input, dim, keepdim)


@op
def max(input: Meta) -> Meta:
    """Return the largest of all elements; equal ones share its gradient."""
    check_real("max", input)
    _check_any_element("max", input)
    return input.like(())


@op(name="min.other")
def min_other(input: Meta, other: Meta) -> Meta:
    """Compute the smaller of two tensors, element by element."""
    return _either("min", input, other)


@op(name="min.dim", returns=("values", "indices"))
def min_dim(input: Meta, dim: int, keepdim: bool = False) -> tuple[Meta, Meta]:
    """Return the smallest element along a dimension, and its index."""
    return chosen("min", input, dim, keepdim)


@op
def min(input: Meta) -> Meta:
    """Return the smallest of all elements; equal ones share its gradient."""
    check_real("min", input)
    _check_any_element("min", input)
    return input.like(())


def _either(name: str, input: Meta, other: Meta) -> Meta:
    from .extremes import maximum

    check_real(name, input, other)
    broadcast_shapes(name, input.shape, other.shape)
    return pointwise_meta(maximum, (input, other))


def chosen(name: str, input: Meta, dim: int, keepdim: bool) -> tuple[Meta, Meta]:
    """Return the metas of the value and the index of one element chosen along a dimension."""
    check_real(name, input)
    shape = reduced(name, input, dim, keepdim)
    check_nonempty(name, input, dim)
    return input.like(shape), input.like(shape, dtype=int64)


@op
def amax(input: Meta, dim: int | Size | None = (), keepdim: bool = False) -> Meta:
    """Return the largest element over dimensions; equal ones share its gradient."""
    return _extremum("amax", input, () if dim is None else dim, keepdim)


@op
def amin(input: Meta, dim: int | Size | None = (), keepdim: bool = False) -> Meta:
    """Return the smallest element over dimensions; equal ones share its gradient."""
    return _extremum("amin", input, () if dim is None else dim, keepdim)


def _extremum(name: str, input: Meta, dim: int | Size | None, keepdim: bool) -> Meta:
    check_real(name, input)
    shape = reduced(name, input, dim, keepdim)
    if dim == ():
        _check_any_element(name, input)
    check_nonempty(name, input, dim)
    return input.like(shape)


@op(returns=("min", "max"))
def aminmax(input: Meta, *, dim: int | None = None, keepdim: bool = False) -> tuple[Meta, Meta]:
    """Return the smallest and the largest element, of all or along a dimension."""
    if dim is None:
        _check_any_element("aminmax", input)
    extremum = _extremum("aminmax", input, dim, keepdim)
    return extremum, extremum


def _check_not_bool(name: str, input: Meta) -> None:
    if input.dtype is bool_:
        raise DTypeError(f"{name}: {name}(): does not support bool input, got {input}; use input.int()")


@op(differentiable=False)
def argmax(input: Meta, dim: int | None = None, keepdim: bool = False) -> Meta:
    """Return the index of the largest element; in the flattened tensor where no dimension is given."""
    _check_not_bool("argmax", input)
    return _extremum("argmax", input, dim, keepdim).like(dtype=int64)


@op(differentiable=False)
def argmin(input: Meta, dim: int | None = None, keepdim: bool = False) -> Meta:
    """Return the index of the smallest element; in the flattened tensor where no dimension is given."""
    _check_not_bool("argmin", input)
    return _extremum("argmin", input, dim, keepdim).like(dtype=int64)


@op(differentiable=False)
def any(input: Meta, dim: int | Size | None = None, keepdim: bool = False) -> Meta:
    """Test whether any element is not zero; ``dim=()`` tests each. The result of a uint8 tensor is uint8."""
    return _tested("any", input, dim, keepdim)


@op(differentiable=False)
def all(input: Meta, dim: int | Size | None = None, keepdim: bool = False) -> Meta:
    """Test whether no element is zero; ``dim=()`` tests each. The result of a uint8 tensor is uint8."""
    return _tested("all", input, dim, keepdim)


@op(out=False, differentiable=False)
def count_nonzero(input: Meta, dim: int | Size | None = None) -> Meta:
    """Count the elements that are not zero."""
    return input.like(reduced("count_nonzero", input, dim, False), dtype=int64)


@op
def logsumexp(input: Meta, dim: int | Size, keepdim: bool = False) -> Meta:
    """Compute log(sum(exp(input))) over dimensions without overflow."""
    dtype = input.dtype if input.dtype.is_differentiable else get_default_dtype()
    return input.like(reduced("logsumexp", input, dim, keepdim), dtype=dtype)


@op(differentiable=False)
def hash_tensor(input: Meta, dim: int | Size = (), *, keepdim: bool = False, mode: int = 0) -> Meta:
    """Combine the bits of the elements, widened to 64 bits, over dimensions by exclusive or; ``mode`` must be 0."""
    if mode != 0:
        raise ArgumentError(f"hash_tensor: mode must be 0, got {mode}")
    check_real("hash_tensor", input)
    if dim == () or input.ndim:
        check_nonempty("hash_tensor", input, dim)
    return input.like(reduced("hash_tensor", input, dim, keepdim), dtype=uint64)
