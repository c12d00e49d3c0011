"""Contracts of gathering and scattering by positions, element by element."""

from __future__ import annotations

from collections.abc import Sequence

from telegrad_protocol.errors import ArgumentError, DimensionError, DTypeError, IndexOutOfRangeError, ShapeError
from telegrad_protocol.layout import broadcast_shapes, wrap_dim
from telegrad_protocol.meta import Meta

from .contract import Scalar, op
from .creation import check_fits, like
from .indexing import check_integers, check_source, vector_shape


def _check_along(name: str, input: Meta, dim: int, index: Meta, src: Meta | None = None) -> int:
    """Return the dimension of gather and scatter; refuse an ``index`` that is larger than the other operands."""
    at = wrap_dim(name, dim, input.ndim)
    if not index.numel:
        return at  # of whatever type
    check_integers(name, index)
    shape, own = vector_shape(index), vector_shape(input)
    if len(shape) != len(own):
        raise ShapeError(
            f"{name}: Index tensor must have the same number of dimensions as self tensor, got {index} and {input}"
        )
    larger = [d for d, (i, s) in enumerate(zip(shape, own, strict=True)) if d != at and i > s]
    if larger:
        raise ShapeError(f"{name}: Size does not match at dimension {larger[0]}: index {index} is larger than {input}")
    if src is not None:
        given = vector_shape(src)
        if len(given) != len(shape):
            raise ShapeError(
                f"{name}: Index tensor must have the same number of dimensions as src tensor, got {index} and {src}"
            )
        if any(i > s for i, s in zip(shape, given, strict=True)):
            raise ShapeError(f"{name}: index {index} is larger than src {src}")
    return at


@op(no_grad=("index",), out_rules=("separate", "grown"))
def gather(input: Meta, dim: int, index: Meta, *, sparse_grad: bool = False) -> Meta:
    """Return out[i][j] = input[index[i][j]][j] for ``dim=0``, and accordingly for other dimensions."""
    _check_along("gather", input, dim, index)
    return input.like(index.shape)


REDUCTIONS = ("add", "multiply")


def _check_reduce(name: str, reduce: str | None, known: Sequence[str]) -> None:
    if reduce is not None and reduce not in known:
        raise ArgumentError(f"{name}: reduce must be one of {', '.join(known)}, not {reduce!r}")


@op(no_grad=("index",), inplace=True)
def scatter(input: Meta, dim: int, index: Meta, src: Meta, *, reduce: str | None = None) -> Meta:
    """Copy ``input`` with out[index[i][j]][j] = src[i][j] for ``dim=0``, and accordingly for other dimensions."""
    _check_along("scatter", input, dim, index, src)
    check_source("scatter", input, src)
    _check_reduce("scatter", reduce, REDUCTIONS)
    return input.like()


@op(name="scatter.value", no_grad=("index",), inplace=True)
def scatter_value(input: Meta, dim: int, index: Meta, value: Scalar, *, reduce: str | None = None) -> Meta:
    """Copy ``input`` with one number at the indexed places."""
    _check_along("scatter", input, dim, index)
    check_fits("scatter", value, input.dtype)
    _check_reduce("scatter", reduce, REDUCTIONS)
    return input.like()


@op(no_grad=("index",), inplace=True)
def scatter_add(input: Meta, dim: int, index: Meta, src: Meta) -> Meta:
    """Copy ``input`` with ``src`` added at the indexed places; repeated indices add up."""
    _check_along("scatter_add", input, dim, index, src)
    check_source("scatter_add", input, src)
    return input.like()


@op(no_grad=("index",), inplace=True)
def scatter_reduce(input: Meta, dim: int, index: Meta, src: Meta, reduce: str, *, include_self: bool = True) -> Meta:
    """Copy ``input`` with ``src`` reduced into the indexed places by sum, prod, mean, amax or amin."""
    _check_along("scatter_reduce", input, dim, index, src)
    check_source("scatter_reduce", input, src)
    _check_reduce("scatter_reduce", reduce, ("sum", "prod", "mean", "amax", "amin"))
    if input.dtype.is_complex and reduce in ("amax", "amin"):
        raise DTypeError(f"scatter_reduce: {reduce} is not defined for {input}")
    return input.like()


@op(no_grad=("index",), out_rules=("separate",))
def take(input: Meta, index: Meta) -> Meta:
    """Return the elements of ``input``, seen as a vector, at ``index``."""
    check_integers("take", index)
    if index.numel and not input.numel:
        raise IndexOutOfRangeError(f"take: {index} picks elements of the empty {input}")
    return input.like(index.shape)


@op(no_grad=("index",), inplace=True, out=False)
def put(input: Meta, index: Meta, source: Meta, accumulate: bool = False) -> Meta:
    """Copy ``input`` with ``source`` at ``index``, both seen as vectors."""
    check_integers("put", index)
    check_source("put", input, source)
    if index.numel != source.numel:
        raise DimensionError(f"put: {index} and source {source} differ in their number of elements")
    if index.numel and not input.numel:
        raise IndexOutOfRangeError(f"put: {index} addresses elements of the empty {input}")
    return like(input, None, None)


@op(no_grad=("indices",))
def take_along_dim(input: Meta, indices: Meta, dim: int | None = None) -> Meta:
    """Gather with the other dimensions broadcast; without ``dim`` both are seen as vectors."""
    check_integers("take_along_dim", indices)
    if dim is None:
        _check_not_empty(input, input.numel, indices)
        return input.like((indices.numel,))
    if not input.ndim:
        raise DimensionError(f"take_along_dim: {input} has no dimension {dim}")
    if input.ndim != indices.ndim:
        raise ShapeError(f"take_along_dim: indices {indices} must have as many dimensions as {input}")
    at = wrap_dim("take_along_dim", dim, input.ndim)
    shapes = [[1 if d == at else s for d, s in enumerate(m.shape)] for m in (input, indices)]
    common = list(broadcast_shapes("take_along_dim", *map(tuple, shapes)))
    common[at] = indices.shape[at]
    _check_not_empty(input, input.shape[at], indices)
    return input.like(common)


def _check_not_empty(input: Meta, size: int, indices: Meta) -> None:
    if indices.numel and not size:
        raise IndexOutOfRangeError(f"take_along_dim: {indices} picks elements of the empty {input}")
