"""Products, look-ups, normalizations and softmax of jagged tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from .divisions import unbind
from .functions import implements, require_dense, require_nested, require_packed, run
from .padding import in_padded, packed, padded, padded_length, require_no_gaps, spread, total_of
from .ragged_size import RaggedSize
from .tensor import NestedTensor


@implements("linear")
def linear(input: NestedTensor, weight: Tensor, bias: Tensor | None = None) -> NestedTensor:
    """Apply a linear layer to every row."""
    require_nested("linear", input)
    require_dense("linear", weight, bias)
    require_packed("linear", input)
    return input.like(run("linear", input._values, weight, bias))


@implements("embedding")
def embedding(input: NestedTensor, weight: Tensor, *args: Any, **kwargs: Any) -> NestedTensor:
    """Look up the row of every index."""
    require_nested("embedding", input)
    require_dense("embedding", weight)
    require_packed("embedding", input)
    return input.like(run("embedding", input._values, weight, *args, **kwargs))


@implements("matmul")
def matmul(input: Any, other: Any) -> Any:
    """Multiply matrices, of which the ragged dimension is the rows or the columns of one, or what both sum over."""
    if isinstance(input, NestedTensor) and isinstance(other, NestedTensor):
        made = _of_two(input, other)
    elif isinstance(input, NestedTensor):
        made = _by_dense(input, other)
    else:
        made = _of_dense(input, other)
    if made is None:
        shapes = f"{tuple(input.shape)} and {tuple(other.shape)}"
        raise ArgumentError(f"matmul(): not supported between inputs of shapes {shapes}")
    return made


def _by_dense(input: NestedTensor, other: Tensor) -> NestedTensor | None:
    if input._dim >= input.ndim - 1:
        return None
    if input.ndim >= 3 and input.ndim == other.ndim:
        require_no_gaps("matmul", input)
        product = padded(input, 0, padded_length(input)).matmul(other)
        return packed(product, input._ragged, total_of(input), input._dim)
    if other.ndim == 2 and input.ndim > 2:
        return input.like(input._values.matmul(other))
    return None


def _of_dense(input: Tensor, other: NestedTensor) -> NestedTensor | None:
    if other._dim < 2:
        return None
    if other.ndim >= 3 and other.ndim == input.ndim:
        require_no_gaps("matmul", other)
        product = input.matmul(padded(other, 0, padded_length(other)))
        return packed(product, other._ragged, total_of(other), other._dim)
    if input.ndim == 2 and other.ndim > 2:
        return other.like(input.matmul(other._values))
    return None


def _of_two(input: NestedTensor, other: NestedTensor) -> Any:
    if input.ndim > 3 and other.ndim > 3 and input.shares(other):
        return input.like(input._values.matmul(other._values))
    if input.ndim != 3 or other.ndim != 3 or (input._dim, other._dim) != (2, 1):
        return None
    if input._ragged.size != other._ragged.size:
        return None
    if input._ragged.lengths is not None:
        pairs = zip(unbind(input), unbind(other), strict=True)
        return run("stack", [first.matmul(second) for first, second in pairs])
    length = padded_length(input)
    return padded(input, 0, length).matmul(padded(other, 0, length))


@implements("bmm")
def bmm(input: Any, mat2: Any) -> Any:
    """Multiply the matrix of each element of a jagged batch by the one in its place of another batch."""
    for name, operand in (("input", input), ("mat2", mat2)):
        if operand.ndim != 3:
            raise ArgumentError(f"bmm(): {name} must be 3D")
    return matmul(input, mat2)


@implements("layer_norm")
def layer_norm(
    input: NestedTensor, normalized_shape: Sequence[Any], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> NestedTensor:  # fmt: skip
    """Normalize the last dimensions, of which the ragged one may be the first."""
    require_nested("layer_norm", input)
    if input.ndim <= 2:
        raise ArgumentError("layer_norm(): not supported for NestedTensor objects with 2 or fewer dimensions")
    shape = tuple(normalized_shape)
    if len(shape) >= input.ndim:
        raise ArgumentError("layer_norm(): not supported when normalizing over the batch dimension for NestedTensor")
    if not any(isinstance(size, RaggedSize) for size in shape):
        return input.like(run("layer_norm", input._values, shape, weight, bias, eps))
    if input._ragged.lengths is not None:
        raise ArgumentError(
            "layer_norm(): not supported where lengths is not None if operating on the ragged dimension for "
            "NestedTensor"
        )
    if shape != tuple(input.shape[1:]) or input._dim != 1 or weight is not None or bias is not None:
        raise ArgumentError(
            f"layer_norm(): over the ragged dimension, normalized_shape must be {tuple(input.shape[1:])}, without "
            f"weight and bias, got {shape}"
        )
    return _over_elements(input, eps)


def _over_elements(input: NestedTensor, eps: float) -> NestedTensor:
    """Normalize all numbers of each element of the batch together."""
    width = math.prod(input._values.shape[1:])
    counts = (input._ragged.measures() * width).reshape(-1, 1, 1).to(input.dtype)

    def means(values: Tensor) -> Tensor:
        sums = padded(input.like(values.reshape(total_of(input), width)), 0, padded_length(input)).sum((1, 2), True)
        return spread(sums / counts, input.like(values.reshape(total_of(input), width)))

    flat = input._values.reshape(total_of(input), width)
    centred = flat - means(flat)
    scaled = centred / (means(centred * centred) + eps).sqrt()
    return input.like(scaled.reshape(input._values.shape))


@implements("rms_norm")
def rms_norm(
    input: NestedTensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> NestedTensor:
    """Divide rows by their root mean square over the last dimensions, behind the ragged one."""
    require_nested("rms_norm", input)
    if len(tuple(normalized_shape)) > input.ndim - input._dim - 1:
        raise ArgumentError("rms_norm(): Normalization over the ragged dim not supported for nested tensors")
    return input.like(run("rms_norm", input._values, normalized_shape, weight, eps))


def _softmax_dim(input: NestedTensor, name: str, dim: Any) -> int:
    if not isinstance(dim, int):
        raise ArgumentError(f"{name}(): a nested tensor needs one dimension, not {dim!r}")
    wrapped = input.wrapped(dim)
    if wrapped == 0:
        raise ArgumentError(f"{name}(): not supported when reducing across the batch dimension for NestedTensor")
    return wrapped


def _dtype_among(options: tuple[Any, ...], dtype: Any) -> Any:
    """Return the dtype that follows a dimension, before which a depth of the stack may stand."""
    return next((option for option in options if option is not None and not isinstance(option, int)), dtype)


@implements("softmax")
def softmax(
    input: NestedTensor, dim: Any = None, *options: Any, _stacklevel: int = 3, dtype: Any = None
) -> NestedTensor:
    """Return the softmax along a dimension; along the ragged one over the rows of each element of the batch."""
    wrapped, kind = _softmax_dim(input, "softmax", dim), _dtype_among(options, dtype)
    if wrapped != input._dim:
        return input.like(run("softmax", input._values, wrapped - 1, dtype=kind))
    if input._dim > 1:
        raise ArgumentError(
            "softmax(): not supported when reducing along the ragged dimension for ragged_idx > 1 for NestedTensor"
        )
    given = input if kind is None else input.to(kind)
    return in_padded(given, "softmax", -math.inf, lambda sequences: sequences.softmax(1))  # type: ignore[arg-type]


@implements("log_softmax")
def log_softmax(
    input: NestedTensor, dim: Any = None, *options: Any, _stacklevel: int = 3, dtype: Any = None
) -> NestedTensor:
    """Return the logarithm of the softmax along a dimension that is not ragged."""
    wrapped = _softmax_dim(input, "log_softmax", dim)
    if wrapped == input._dim:
        raise ArgumentError("log_softmax(): not supported when reducing along the ragged dimension for NestedTensor")
    return input.like(run("log_softmax", input._values, wrapped - 1, dtype=_dtype_among(options, dtype)))
