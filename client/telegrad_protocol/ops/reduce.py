"""Contracts of reductions over dimensions.

Names of this module shadow Python's own (``sum``, ``max``, ``any``): rules here use none of those.
"""

from __future__ import annotations

from ..dtypes import DType, bool_, get_default_dtype, int64, uint8
from ..errors import ArgumentError, DimensionError, DTypeError, ShapeError
from ..layout import Size, broadcast_shapes, result_strides, wrap_dim, wrap_dims
from ..meta import Meta
from .contract import Scalar, op, pointwise_meta


def reduced(name: str, input: Meta, dim: int | Size | None, keepdim: bool) -> Size:
    """The shape after reducing ``dim``; all dimensions where it is None or empty."""
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
        raise DTypeError(f"{name}: expected a floating point or complex type, got {input}; convert it or pass dtype=")


def _check_nonempty(name: str, input: Meta, dim: int | Size | None) -> None:
    """Refuse to choose among no elements."""
    if input.numel:
        return
    listed = (dim,) if isinstance(dim, int) else dim
    if not listed:
        raise DimensionError(f"{name}: expected a dim to be specified for the empty {input}")
    for d in wrap_dims(name, listed, input.ndim):
        if input.ndim and input.shape[d] == 0:
            raise DimensionError(f"{name}: dimension {d} of {input} has no elements to choose from")


def _check_any_element(name: str, input: Meta) -> None:
    if not input.numel:
        raise ShapeError(f"{name}: {input} has no elements to choose from; specify a dim")


def _summed(dtype: DType) -> DType:
    return dtype if dtype.category >= 2 else int64


@op
def sum(input: Meta, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Meta:
    """The sum over dimensions; integers and bools are summed as int64."""
    return input.like(reduced("sum", input, dim, keepdim), dtype=dtype or _summed(input.dtype))


@op
def nansum(input: Meta, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Meta:
    """The sum over dimensions with NaN counted as zero."""
    check_real("nansum", input)
    return input.like(reduced("nansum", input, dim, keepdim), dtype=dtype or _summed(input.dtype))


@op
def mean(input: Meta, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Meta:
    """The mean over dimensions of a floating point or complex tensor."""
    check_differentiable("mean", dtype or input.dtype, input)
    return input.like(reduced("mean", input, dim, keepdim), dtype=dtype)


@op(out=False)
def nanmean(input: Meta, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Meta:
    """The mean over dimensions of the elements that are not NaN."""
    check_differentiable("nanmean", input.dtype, input)
    check_real("nanmean", input)
    return input.like(reduced("nanmean", input, dim, keepdim), dtype=dtype)


@op
def prod(input: Meta, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Meta:
    """The product of all elements, or along one dimension."""
    return input.like(reduced("prod", input, dim, keepdim), dtype=dtype or _summed(input.dtype))


@op(name="max.other")
def max_other(input: Meta, other: Meta) -> Meta:
    """The larger of two tensors, element by element."""
    return _either("max", input, other)


@op(name="max.dim", returns=("values", "indices"))
def max_dim(input: Meta, dim: int, keepdim: bool = False) -> tuple[Meta, Meta]:
    """The largest element along a dimension, and where it is."""
    return chosen("max", input, dim, keepdim)


@op
def max(input: Meta) -> Meta:
    """The largest element; its gradient is shared by all that are equal to it."""
    check_real("max", input)
    _check_any_element("max", input)
    return input.like(())


@op(name="min.other")
def min_other(input: Meta, other: Meta) -> Meta:
    """The smaller of two tensors, element by element."""
    return _either("min", input, other)


@op(name="min.dim", returns=("values", "indices"))
def min_dim(input: Meta, dim: int, keepdim: bool = False) -> tuple[Meta, Meta]:
    """The smallest element along a dimension, and where it is."""
    return chosen("min", input, dim, keepdim)


@op
def min(input: Meta) -> Meta:
    """The smallest element; its gradient is shared by all that are equal to it."""
    check_real("min", input)
    _check_any_element("min", input)
    return input.like(())


def _either(name: str, input: Meta, other: Meta) -> Meta:
    from .pointwise import maximum

    check_real(name, input, other)
    broadcast_shapes(name, input.shape, other.shape)
    return pointwise_meta(maximum, (input, other))


def chosen(name: str, input: Meta, dim: int, keepdim: bool) -> tuple[Meta, Meta]:
    """The results of choosing one element along a dimension: its value and its index."""
    check_real(name, input)
    shape = reduced(name, input, dim, keepdim)
    _check_nonempty(name, input, dim)
    return input.like(shape), input.like(shape, dtype=int64)


@op
def amax(input: Meta, dim: int | Size = (), keepdim: bool = False) -> Meta:
    """The largest element over dimensions; its gradient is shared by all that are equal to it."""
    return _extremum("amax", input, dim, keepdim)


@op
def amin(input: Meta, dim: int | Size = (), keepdim: bool = False) -> Meta:
    """The smallest element over dimensions; its gradient is shared by all that are equal to it."""
    return _extremum("amin", input, dim, keepdim)


def _extremum(name: str, input: Meta, dim: int | Size | None, keepdim: bool) -> Meta:
    check_real(name, input)
    shape = reduced(name, input, dim, keepdim)
    if dim == ():
        _check_any_element(name, input)
    _check_nonempty(name, input, dim)
    return input.like(shape)


@op(returns=("min", "max"))
def aminmax(input: Meta, *, dim: int | None = None, keepdim: bool = False) -> tuple[Meta, Meta]:
    """The smallest and the largest element, of all or along a dimension."""
    if dim is None:
        _check_any_element("aminmax", input)
    found = _extremum("aminmax", input, dim, keepdim)
    return found, found


@op(differentiable=False)
def argmax(input: Meta, dim: int | None = None, keepdim: bool = False) -> Meta:
    """Where the largest element is; in the flattened tensor where no dimension is given."""
    return _extremum("argmax", input, dim, keepdim).like(dtype=int64)


@op(differentiable=False)
def argmin(input: Meta, dim: int | None = None, keepdim: bool = False) -> Meta:
    """Where the smallest element is; in the flattened tensor where no dimension is given."""
    return _extremum("argmin", input, dim, keepdim).like(dtype=int64)


@op(differentiable=False)
def any(input: Meta, dim: int | Size | None = None, keepdim: bool = False) -> Meta:
    """Whether any element is not zero; uint8 stays uint8."""
    return input.like(reduced("any", input, dim, keepdim), dtype=uint8 if input.dtype is uint8 else bool_)


@op(differentiable=False)
def all(input: Meta, dim: int | Size | None = None, keepdim: bool = False) -> Meta:
    """Whether no element is zero; uint8 stays uint8."""
    return input.like(reduced("all", input, dim, keepdim), dtype=uint8 if input.dtype is uint8 else bool_)


@op(out=False, differentiable=False)
def count_nonzero(input: Meta, dim: int | Size | None = None) -> Meta:
    """How many elements are not zero."""
    return input.like(reduced("count_nonzero", input, dim, False), dtype=int64)


@op
def logsumexp(input: Meta, dim: int | Size, keepdim: bool = False) -> Meta:
    """log(sum(exp(input))) without overflow."""
    dtype = input.dtype if input.dtype.is_differentiable else get_default_dtype()
    return input.like(reduced("logsumexp", input, dim, keepdim), dtype=dtype)


# -- norms ----------------------------------------------------------------------------------------------------------


@op
def norm(
    input: Meta, p: Scalar | None = 2, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Meta:  # fmt: skip
    """(sum |input|**p) ** (1/p) over dimensions; the largest or smallest magnitude for p = inf or -inf."""
    check_differentiable("norm", dtype or input.dtype, input)
    if isinstance(p, (complex, bool)):
        raise ArgumentError(f"norm: the order must be a real number, not {p}")
    if p is not None and (p < 0 or p == float("inf")):
        _check_nonempty("norm", input, dim)
    return input.like(reduced("norm", input, dim, keepdim), dtype=(dtype or input.dtype).to_real())


@op(name="norm.named", out=False)
def norm_named(
    input: Meta, p: str, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Meta:  # fmt: skip
    """The Frobenius norm, by its name ``fro``."""
    if p != "fro":
        raise ArgumentError(f"norm: expected a number or 'fro' for p, got {p!r}; for 'nuc' see linalg.matrix_norm")
    check_differentiable("norm", dtype or input.dtype, input)
    return input.like(reduced("norm", input, dim, keepdim), dtype=(dtype or input.dtype).to_real())


@op(out=False)
def dist(input: Meta, other: Meta, p: Scalar = 2) -> Meta:
    """The p-norm of ``input - other``."""
    from .pointwise import sub

    difference = pointwise_meta(sub, (input, other, 1))
    check_differentiable("dist", difference.dtype, difference)
    return difference.like((), dtype=difference.dtype.to_real())


@op(out=False)
def diff(input: Meta, n: int = 1, dim: int = -1, prepend: Meta | None = None, append: Meta | None = None) -> Meta:
    """The ``n``-th differences of neighbours along a dimension."""
    if input.ndim == 0:
        raise ShapeError(f"diff: expects a tensor of at least one dimension, got {input}")
    if n < 0:
        raise ArgumentError(f"diff: order must be non-negative, got {n}")
    if n == 0:
        return input.like(strides=result_strides(input.shape, [(input.shape, input.strides)]))
    at = wrap_dim("diff", dim, input.ndim)
    length = input.shape[at]
    for extra in (prepend, append):
        if extra is not None:
            length += _extension(input, extra, at)
    left = length - n if n < length else 0
    return input.like((*input.shape[:at], left, *input.shape[at + 1 :]))


def _extension(input: Meta, extra: Meta, at: int) -> int:
    matches = extra.ndim == input.ndim and input.shape[:at] == extra.shape[:at] and input.shape[at + 1 :] == extra.shape[at + 1 :]
    if not matches:
        raise ShapeError(f"diff: {extra} cannot be put before or after {input} along dimension {at}")
    return extra.shape[at]


# -- spread -----------------------------------------------------------------------------------------------------------


def _spread(name: str, input: Meta, dim: int | Size | None, keepdim: bool) -> Meta:
    check_differentiable(name, input.dtype, input)
    return input.like(reduced(name, input, dim, keepdim), dtype=input.dtype.to_real())


def _spread_and_mean(name: str, input: Meta, dim: int | Size | None, keepdim: bool) -> tuple[Meta, Meta]:
    spread = _spread(name, input, dim, keepdim)
    return spread, spread.like(dtype=input.dtype)


@op
def var(input: Meta, dim: int | Size | None = None, *, correction: Scalar | None = None, keepdim: bool = False) -> Meta:
    """The variance; ``correction`` (1 by default) is subtracted from the number of elements."""
    return _spread("var", input, dim, keepdim)


@op(name="var.unbiased", out=False)
def var_unbiased(input: Meta, unbiased: bool) -> Meta:
    """The variance of all elements, with correction 1 or 0."""
    return _spread("var", input, None, False)


@op(name="var.dim", out=False)
def var_dim(input: Meta, dim: int | Size | None, unbiased: bool = True, keepdim: bool = False) -> Meta:
    """The variance over dimensions, with correction 1 or 0."""
    return _spread("var", input, dim, keepdim)


@op
def std(input: Meta, dim: int | Size | None = None, *, correction: Scalar | None = None, keepdim: bool = False) -> Meta:
    """The standard deviation; ``correction`` (1 by default) is subtracted from the number of elements."""
    return _spread("std", input, dim, keepdim)


@op(name="std.unbiased", out=False)
def std_unbiased(input: Meta, unbiased: bool) -> Meta:
    """The standard deviation of all elements, with correction 1 or 0."""
    return _spread("std", input, None, False)


@op(name="std.dim", out=False)
def std_dim(input: Meta, dim: int | Size | None, unbiased: bool = True, keepdim: bool = False) -> Meta:
    """The standard deviation over dimensions, with correction 1 or 0."""
    return _spread("std", input, dim, keepdim)


@op(out=False, method=False, returns=("var", "mean"))
def var_mean(
    input: Meta, dim: int | Size | None = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[Meta, Meta]:  # fmt: skip
    """The variance and the mean."""
    return _spread_and_mean("var_mean", input, dim, keepdim)


@op(name="var_mean.unbiased", out=False, method=False, returns=("var", "mean"))
def var_mean_unbiased(input: Meta, unbiased: bool) -> tuple[Meta, Meta]:
    """The variance and the mean of all elements, with correction 1 or 0."""
    return _spread_and_mean("var_mean", input, None, False)


@op(name="var_mean.dim", out=False, method=False, returns=("var", "mean"))
def var_mean_dim(
    input: Meta, dim: int | Size | None, unbiased: bool = True, keepdim: bool = False
) -> tuple[Meta, Meta]:  # fmt: skip
    """The variance and the mean over dimensions, with correction 1 or 0."""
    return _spread_and_mean("var_mean", input, dim, keepdim)


@op(out=False, method=False, returns=("std", "mean"))
def std_mean(
    input: Meta, dim: int | Size | None = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[Meta, Meta]:  # fmt: skip
    """The standard deviation and the mean."""
    return _spread_and_mean("std_mean", input, dim, keepdim)


@op(name="std_mean.unbiased", out=False, method=False, returns=("std", "mean"))
def std_mean_unbiased(input: Meta, unbiased: bool) -> tuple[Meta, Meta]:
    """The standard deviation and the mean of all elements, with correction 1 or 0."""
    return _spread_and_mean("std_mean", input, None, False)


@op(name="std_mean.dim", out=False, method=False, returns=("std", "mean"))
def std_mean_dim(
    input: Meta, dim: int | Size | None, unbiased: bool = True, keepdim: bool = False
) -> tuple[Meta, Meta]:  # fmt: skip
    """The standard deviation and the mean over dimensions, with correction 1 or 0."""
    return _spread_and_mean("std_mean", input, dim, keepdim)
