"""Operations element by element: of one tensor, with numbers, with dense tensors, and of two sparse tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from telegrad._tensor.layouts import sparse_coo
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, NotSupportedError, ShapeError
from telegrad_protocol.layout import broadcast_shapes

from .coalescing import coalesce
from .conversions import picked, to_coordinates, to_dense, to_lines, to_sparse
from .functions import TABLE, implements, run
from .indices import flat
from .spreading import spread
from .tensor import BLOCKED, SparseTensor

_LINEAR = (
    "neg", "negative", "positive", "conj", "conj_physical", "resolve_conj", "real", "imag", "deg2rad", "rad2deg",
    "clone", "detach", "_to_copy",
)  # fmt: skip
"""Functions of sums that are the sums of the functions: tensors need not be coalesced."""
_ZERO_AT_ZERO = (
    "abs", "absolute", "sqrt", "square", "sin", "arcsin", "asin", "sinh", "arcsinh", "asinh", "tan", "tanh", "atan",
    "arctan", "atanh", "arctanh", "expm1", "log1p", "erf", "erfinv", "ceil", "floor", "round", "trunc", "fix", "frac",
    "sign", "sgn", "signbit", "isnan", "isinf", "isposinf", "isneginf", "nan_to_num", "relu", "angle",
)  # fmt: skip


def _on_values(name: str, coalesces: bool) -> Callable[..., Any]:
    def apply(input: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        source = coalesce(input) if coalesces and input._kind is sparse_coo else input
        if name == "_to_copy":
            return converted(source, **kwargs)
        return source.like(run(name, source.stored, *args, **kwargs))

    return apply


for _name in _LINEAR:
    TABLE[_name] = _on_values(_name, False)
for _name in _ZERO_AT_ZERO:
    TABLE[_name] = _on_values(_name, True)


def converted(input: SparseTensor, *, dtype: Any, device: Any) -> SparseTensor:
    """Return the tensor in another dtype or on another device, its indices with it."""
    values = run("_to_copy", input.stored, dtype=dtype, device=device) if dtype is not input.dtype else input.stored
    values = values.to(device)
    if device == input.device:
        return input.like(values)
    parts = [part.to(device) for part in input._parts[:-1]]
    return SparseTensor(input._kind, (*parts, values), input.shape, input._is_coalesced)


@implements("contiguous", "_in_layout")
def contiguous(input: SparseTensor, strides: Any = None) -> SparseTensor:
    """Return the tensor itself: sparse tensors have no strides."""
    return input


def _is_number(operand: Any) -> bool:
    return not isinstance(operand, Tensor) or (not operand.ndim and not isinstance(operand, SparseTensor))


def _no_dense(name: str) -> NotSupportedError:
    return NotSupportedError(f"{name}(sparse, dense) is not supported; use {name}(dense, sparse), or to_dense()")


@implements("add")
def add(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Return input + alpha * other; dense where one of them is."""
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        raise _no_dense("add")
    if not isinstance(input, SparseTensor):
        return _added_to_dense(input, other, alpha)  # type: ignore[arg-type]
    if not isinstance(other, SparseTensor):
        if input._kind is sparse_coo:
            raise _no_dense("add")
        return to_dense(input) + (other if alpha == 1 else other * alpha)
    if input.shape != other.shape:
        raise ShapeError(f"add: sparse tensors must have the same shape, got {input._meta} and {other._meta}")
    return _united(input, scaled(other, alpha))


def scaled(tensor: SparseTensor, factor: Any) -> SparseTensor:
    """Return the tensor times a number."""
    return tensor if isinstance(factor, (int, float)) and factor == 1 else tensor.like(tensor.stored * factor)


def _added_to_dense(dense: Tensor, sparse: SparseTensor, alpha: Any) -> Any:
    if sparse._kind is not sparse_coo or dense.shape != sparse.shape or dense.dtype is not sparse.dtype:
        return dense + to_dense(scaled(sparse, alpha))
    return run("index_add", *_as_rows(dense, sparse), alpha=alpha).reshape(dense.shape)


def _as_rows(dense: Tensor, sparse: SparseTensor) -> tuple[Any, ...]:
    """Return arguments of ``index_add`` that add stored elements to a dense tensor."""
    sizes, inner = sparse.shape[: sparse.sparse_dims], sparse.shape[sparse.sparse_dims :]
    return (
        dense.reshape(math.prod(sizes), *inner),
        0,
        flat(sparse._parts[0], sizes),
        sparse.stored,
    )


@implements("add_")
def add_(input: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    """Add to a tensor in place: to a dense one at the stored indices alone."""
    if isinstance(input, SparseTensor):
        return input.become(add(input, other, alpha=alpha), "add_")
    if input.shape != other.shape or other._kind is not sparse_coo or input.dtype is not other.dtype:
        return input.add_(to_dense(other), alpha=alpha)
    if not input._meta.is_contiguous or not input.ndim:
        return input.add_(to_dense(other), alpha=alpha)
    sizes, inner = other.shape[: other.sparse_dims], other.shape[other.sparse_dims :]
    target = input if other.sparse_dims == 1 else run("view", input, (math.prod(sizes), *inner))
    run("index_add_", target, 0, flat(other._parts[0], sizes), other.stored, alpha=alpha)
    return input


def _united(left: SparseTensor, right: SparseTensor) -> SparseTensor:
    """Return the sum of two tensors of one shape, in the layout of the first."""
    if left._kind is right._kind and all(
        a is b for a, b in zip(left._parts[:-1], right._parts[:-1], strict=True)
    ):  # the same indices
        return left.like(left.stored + right.stored)
    if left.batch_dims or right.batch_dims:
        return to_sparse(to_dense(left) + to_dense(right), layout=left._kind, blocksize=left.blocks)  # type: ignore[return-value]
    a, b = to_coordinates(left), to_coordinates(right)
    if a.sparse_dims != b.sparse_dims:
        raise NotSupportedError(f"add: tensors of {a.sparse_dims} and {b.sparse_dims} sparse dimensions")
    values = [a.stored, b.stored]
    if a.dtype is not b.dtype:
        dtype = (a.stored[:0] + b.stored[:0]).dtype
        values = [part.to(dtype) for part in values]
    indices = run("cat", [a._parts[0], b._parts[0]], 1)
    total = SparseTensor(sparse_coo, (indices, run("cat", values)), left.shape)
    if left._kind is sparse_coo:
        return coalesce(total) if a._is_coalesced and b._is_coalesced else total
    return to_lines(total, left._kind, left.blocks)


@implements("sub", "subtract")
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Return input - alpha * other, where one of the two or both are sparse."""
    return add(input, other, alpha=-alpha)


@implements("sub_", "subtract_")
def sub_(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Subtract from a tensor in place."""
    return add_(input, other, alpha=-alpha)


@implements("mul", "multiply")
def mul(input: Any, other: Any) -> Any:
    """Return the products of elements, sparse: those of a dense tensor at stored indices alone."""
    if not isinstance(input, SparseTensor):
        return mul(other, input)
    if _is_number(other):
        return input.like(input.stored * other)
    if not isinstance(other, SparseTensor):
        return _times_dense(input, other)
    if not other.ndim:
        return input.like(input.stored * to_dense(other))
    if input.shape != other.shape:
        raise ShapeError(f"mul: sparse tensors must have the same shape, got {input._meta} and {other._meta}")
    return _common(input, other)


def _times_dense(input: SparseTensor, dense: Tensor) -> SparseTensor:
    try:
        shape = broadcast_shapes("mul", input.shape, dense.shape)
    except ShapeError:
        raise ShapeError(f"mul: a dense {dense._meta} cannot be expanded to the sparse {input._meta}") from None
    source = input if shape == tuple(input.shape) else spread(to_coordinates(input), shape)
    return source.like(source.stored * picked(dense.expand(shape), source))


@implements("mul_", "multiply_")
def mul_(input: Tensor, other: Any) -> Tensor:
    """Multiply a tensor in place; a dense one becomes zero where a sparse factor stores nothing."""
    if not isinstance(input, SparseTensor):
        return input.mul_(to_dense(other))
    return input.become(mul(input, other), "mul_")


def _common(left: SparseTensor, right: SparseTensor) -> SparseTensor:
    """Return the products at indices that both tensors store; round trips tell which these are."""
    if left._kind is right._kind and left._parts[0] is right._parts[0] and left._is_coalesced:
        return left.like(left.stored * right.stored)
    if left.batch_dims or right.batch_dims:
        return to_sparse(to_dense(left) * to_dense(right), layout=left._kind, blocksize=left.blocks)  # type: ignore[return-value]
    a, b = coalesce(to_coordinates(left)), coalesce(to_coordinates(right))
    if a.sparse_dims != b.sparse_dims:
        raise NotSupportedError(f"mul: tensors of {a.sparse_dims} and {b.sparse_dims} sparse dimensions")
    sizes = a.shape[: a.sparse_dims]
    keys, others = flat(a._parts[0], sizes), flat(b._parts[0], sizes)
    if not a.count or not b.count:
        chosen = at = keys[:0]
    else:
        places = run("searchsorted", others, keys).clamp(max=b.count - 1)
        chosen = run("nonzero", others[places] == keys).reshape(-1)
        at = places[chosen]
    values = a.stored[chosen] * b.stored[at]
    product = SparseTensor(sparse_coo, (a._parts[0][:, chosen], values), left.shape, is_coalesced=True)
    return product if left._kind is sparse_coo else to_lines(product, left._kind, left.blocks)


@implements("div", "divide", "true_divide", "floor_divide")
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """Return a sparse tensor divided by a number."""
    if not isinstance(input, SparseTensor) or not _is_number(other):
        raise NotSupportedError(
            "div: sparse division requires a number, or a dense tensor without dimensions, as divisor"
        )
    if rounding_mode is None:
        return input.like(run("div", input.stored, other))
    source = coalesce(input) if input._kind is sparse_coo else input
    return source.like(run("div", source.stored, other, rounding_mode=rounding_mode))


def _floor_divide(input: Any, other: Any) -> Any:
    return div(input, other, rounding_mode="floor")


TABLE["floor_divide"] = _floor_divide


@implements("pow")
def pow(input: Any, exponent: Any) -> Any:
    """Return the stored elements to the power of a number other than 0."""
    if not isinstance(input, SparseTensor) or not _is_number(exponent) or isinstance(exponent, Tensor):
        raise NotSupportedError("pow: the power of a sparse tensor must be a number")
    if exponent == 0:
        raise ArgumentError("pow: the power 0 of a sparse tensor is dense; use to_dense()")
    source = coalesce(input) if input._kind is sparse_coo else input
    return source.like(run("pow", source.stored, exponent))


@implements("copy_")
def copy_(input: Any, src: Any, non_blocking: bool = False) -> Any:
    """Write a sparse tensor into another tensor."""
    if not isinstance(src, SparseTensor):
        raise NotSupportedError("copy_: a dense tensor cannot be copied into a sparse one; use to_sparse()")
    if not isinstance(input, SparseTensor):
        return input.copy_(to_dense(src))
    return input.become(src.to(input.device, input.dtype, copy=True), "copy_")


@implements("zero_")
def zero_(input: SparseTensor) -> SparseTensor:
    """Drop all stored elements; in blocked layouts, and of batches, set them to zero."""
    if input._kind in BLOCKED or input.batch_dims or input.dense_dims:
        return input.become(input.like(run("zeros_like", input.stored)), "zero_")
    if input._kind is not sparse_coo:
        compressed, plain, values = input._parts
        nothing = (run("zeros_like", compressed), plain[:0], values.detach()[:0])
        return input.become(SparseTensor(input._kind, nothing, input.shape), "zero_")
    indices, values = input._parts
    empty = (indices[:, :0], values.detach()[:0])
    return input.become(SparseTensor(sparse_coo, empty, input.shape, is_coalesced=True), "zero_")


@implements("fill_")
def fill_(input: SparseTensor, value: Any) -> SparseTensor:
    """Set the stored elements of a compressed tensor to a number."""
    if input._kind is sparse_coo:
        raise NotSupportedError("fill_: a sparse_coo tensor of other elements than zero is dense; use to_dense()")
    return input.become(input.like(run("full_like", input.stored, value)), "fill_")
