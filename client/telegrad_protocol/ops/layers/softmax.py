"""Contracts of the softmax family, and of the backward passes that have kernels of their own."""

from __future__ import annotations

from telegrad_protocol.dtypes import DType, bool_
from telegrad_protocol.errors import DTypeError, ShapeError
from telegrad_protocol.layout import wrap_dim
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import op


def implicit_dim(input: Meta) -> int:
    """Return the dimension that ``nn.functional`` takes where none is given."""
    return 0 if input.ndim in (0, 1, 3) else 1


def normalized(name: str, input: Meta, dim: int | None, dtype: DType | None) -> Meta:
    """Return the meta of an input that is normalized along a dimension, in ``dtype`` or its own floating-point type."""
    wrap_dim(name, implicit_dim(input) if dim is None else dim, input.ndim)
    result = dtype or input.dtype
    if not result.is_floating_point:
        raise DTypeError(f"{name}: expected a floating point type, got {input}; convert it or pass dtype=")
    return input.like(dtype=result)


@op
def softmax(input: Meta, dim: int, dtype: DType | None = None) -> Meta:
    """Compute exp(input) / sum(exp(input)) along a dimension; with ``dtype`` input is converted first."""
    return normalized("softmax", input, dim, dtype)


@op(name="softmax.functional", module="nn.functional", method=False, out=False)
def softmax_functional(
    input: Meta, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Meta:  # fmt: skip
    """Compute ``softmax`` with the signature of ``nn.functional``; ``_stacklevel`` is ignored."""
    return normalized("softmax", input, dim, dtype)


@op
def log_softmax(input: Meta, dim: int, dtype: DType | None = None) -> Meta:
    """Compute log(softmax(input)) without overflow; with ``dtype`` input is converted first."""
    return normalized("log_softmax", input, dim, dtype)


@op(name="log_softmax.functional", module="nn.functional", method=False, out=False)
def log_softmax_functional(
    input: Meta, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Meta:  # fmt: skip
    """Compute ``log_softmax`` with the signature of ``nn.functional``; ``_stacklevel`` is ignored."""
    return normalized("log_softmax", input, dim, dtype)


@op(module="nn.functional", method=False, out=False)
def softmin(input: Meta, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Meta:
    """Compute softmax(-input) along a dimension."""
    if input.dtype is bool_:
        raise DTypeError(
            "softmin: Negation, the `-` operator, on a bool tensor is not supported; use ~ to invert a mask"
        )
    return normalized("softmin", input, dim, dtype)


def _backward(name: str, grad_output: Meta, output: Meta, dim: int, input_dtype: DType) -> Meta:
    wrap_dim(name, dim, output.ndim)
    if not (grad_output.dtype.is_floating_point and output.dtype.is_floating_point and input_dtype.is_floating_point):
        raise DTypeError(f"{name}: expected floating point types, got {grad_output}, {output} and {input_dtype.name}")
    if grad_output.shape != output.shape:
        raise ShapeError(f"{name}: gradient {grad_output} does not have the shape of {output}")
    return output.like(dtype=input_dtype)


@op(out=False, method=False)
def _softmax_backward_data(grad_output: Meta, output: Meta, dim: int, input_dtype: DType) -> Meta:
    """Compute the gradient of softmax: output * (grad_output - sum(grad_output * output))."""
    return _backward("_softmax_backward_data", grad_output, output, dim, input_dtype)


@op(out=False, method=False)
def _log_softmax_backward_data(grad_output: Meta, output: Meta, dim: int, input_dtype: DType) -> Meta:
    """Compute the gradient of log_softmax: grad_output - exp(output) * sum(grad_output)."""
    return _backward("_log_softmax_backward_data", grad_output, output, dim, input_dtype)
