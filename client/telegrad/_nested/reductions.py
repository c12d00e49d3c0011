"""Reductions of jagged tensors: over everything, over dimensions that are not ragged, and over each element's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.dtype_limits import float_limits, integer_limits
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import bool_
from telegrad_protocol.errors import ArgumentError

from .functions import implements, run
from .padding import padded, padded_length
from .tensor import NestedTensor

Dims = int | Sequence[int] | None


def _lowest(input: NestedTensor) -> Any:
    """Return the number that is no larger than any of the input's type and finite, which padding has in maxima."""
    if input.dtype is bool_:
        return False
    return float_limits(input.dtype).min if input.is_floating_point() else integer_limits(input.dtype).min


def _highest(input: NestedTensor) -> Any:
    if input.dtype is bool_:
        return True
    return float_limits(input.dtype).max if input.is_floating_point() else integer_limits(input.dtype).max


def _listed(input: NestedTensor, name: str, dim: Dims) -> list[int]:
    """Return dimensions counted from the front; none where everything is reduced."""
    given = () if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    dims = [input.wrapped(d) for d in given]
    if len(set(dims)) < len(dims):
        raise ArgumentError(f"{name}(): a dimension appears twice in {tuple(given)}")
    return dims


def _reduce(name: str, input: NestedTensor, dim: Dims, keepdim: bool, padding: Any, **options: Any) -> Any:
    """Reduce over dimensions: dense where the ragged one is among them, else nested."""
    dims = _listed(input, name, dim)
    takes_lists = not isinstance(dim, int)
    if not dims:
        result = run(name, input._values, **options)
        return _each(result, lambda part: part.reshape((1,) * input.ndim)) if keepdim else result
    if input._dim not in dims:
        return _of_inner(name, input, dims, takes_lists, keepdim, options)
    if input._ragged.lengths is not None:
        raise ArgumentError(
            f"{name}(): reducing across the ragged dimension is not supported for non-contiguous nested tensors with "
            "holes"
        )
    if 0 in dims:
        inner = sorted({max(d - 1, 0) if d else input._dim - 1 for d in dims})
        result = run(name, input._values, dim=inner if takes_lists else inner[0], keepdim=keepdim, **options)
        return _each(result, lambda part: part.unsqueeze(0)) if keepdim else result
    if len(dims) > 1:
        raise ArgumentError(
            f"{name}(): reducing along a ragged and non-batch dimension is not supported for nested tensors"
        )
    sequences = padded(input, padding, padded_length(input))
    return run(name, sequences, dim=dims if takes_lists else dims[0], keepdim=keepdim, **options)


def _of_inner(
    name: str, input: NestedTensor, dims: list[int], takes_lists: bool, keepdim: bool, options: dict[str, Any]
) -> Any:
    if 0 in dims:
        raise ArgumentError(
            f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for nested "
            "tensors"
        )
    inner = [dim - 1 for dim in dims]
    result = run(name, input._values, dim=inner if takes_lists else inner[0], keepdim=keepdim, **options)
    ragged = input._dim if keepdim else input._dim - sum(dim < input._dim for dim in dims)
    return _each(result, lambda part: input.like(part, ragged))


def _each(result: Any, apply: Any) -> Any:
    """Apply a function to a result, or to each of several."""
    return type(result)(*map(apply, result)) if isinstance(result, tuple) else apply(result)


@implements("sum")
def sum_(input: NestedTensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Return sums; those of each element of the batch are an ordinary tensor."""
    return _reduce("sum", input, dim, keepdim, 0, dtype=dtype)


@implements("mean")
def mean(input: NestedTensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Return means; of an element of the batch without rows it is NaN."""
    dims = _listed(input, "mean", dim)
    if input._dim not in dims or 0 in dims:
        return _reduce("mean", input, dim, keepdim, 0, dtype=dtype)
    total: Tensor = _reduce("mean" if len(dims) > 1 else "sum", input, dims, True, 0, dtype=dtype)
    result = total / input._ragged.measures().reshape(-1, *[1] * (total.ndim - 1))
    return result if keepdim else result.squeeze(input._dim)


@implements("prod")
def prod(input: NestedTensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Return the product of all elements of a jagged tensor, or the products along one dimension."""
    return _reduce("prod", input, dim, keepdim, 1, dtype=dtype)


def _extreme(name: str, padding: Any) -> Any:
    def reduce(input: NestedTensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        if other is not None or isinstance(dim, Tensor):
            return run("maximum" if name == "max" else "minimum", input, dim if other is None else other)
        return _reduce(name, input, dim, keepdim, padding(input))

    return reduce


def _of_dims(name: str, padding: Any) -> Any:
    def reduce(input: NestedTensor, dim: Dims = None, keepdim: bool = False) -> Any:
        if name in ("amax", "amin") and isinstance(dim, int):
            dim = (dim,)
        return _reduce(name, input, dim, keepdim, padding(input))

    return reduce


for _name, _padding in (("max", _lowest), ("min", _highest)):
    implements(_name)(_extreme(_name, _padding))
for _name, _padding in (
    ("amax", _lowest), ("amin", _highest), ("argmax", _lowest), ("argmin", _highest), ("any", lambda _: False),
    ("all", lambda _: True),
):  # fmt: skip
    implements(_name)(_of_dims(_name, _padding))
