"""``softmax``, ``log_softmax`` and ``softmin``, and their backward kernels."""

from __future__ import annotations

from server.engine import functional as F
from server.engine.array_library.indexing import sum_over
from server.engine.ops.reduce import axes, converted
from server.engine.registry import composite, implements
from telegrad_protocol.ops.layers import softmax as ops


def _largest(xp, input, dim):
    return xp.amax(input, axis=axes(input, dim), keepdims=True)


@implements(
    ops.softmax,
    input=lambda grad, out, dim: F._softmax_backward_data(grad, out, dim, grad.dtype),  # the engine casts it back
)
def softmax(xp, input, dim, dtype, *, out):
    if out.size:
        input = converted(input, out.dtype)
        xp.subtract(input, _largest(xp, input, dim), out=out)
        xp.exp(out, out=out)
        out /= sum_over(xp, out, axes(out, dim), True)


@composite(ops.softmax_functional)
def softmax_functional(input, dim, _stacklevel, dtype):
    return F.softmax(input, ops.implicit_dim(input.meta) if dim is None else dim, dtype)


@implements(
    ops.log_softmax,
    input=lambda grad, out, dim: F._log_softmax_backward_data(grad, out, dim, grad.dtype),
)
def log_softmax(xp, input, dim, dtype, *, out):
    if out.size:
        input = converted(input, out.dtype)
        xp.subtract(input, _largest(xp, input, dim), out=out)
        out -= xp.log(sum_over(xp, xp.exp(out), axes(out, dim), True))


@composite(ops.log_softmax_functional)
def log_softmax_functional(input, dim, _stacklevel, dtype):
    return F.log_softmax(input, ops.implicit_dim(input.meta) if dim is None else dim, dtype)


@composite(ops.softmin)
def softmin(input, dim, _stacklevel, dtype):
    return F.softmax(F.neg(input), ops.implicit_dim(input.meta) if dim is None else dim, dtype)


def _softmax_double_backward(grad, grad_output, output, dim):
    """The derivative of ``_softmax_backward_data`` by the softmax."""
    inner = F.sum(F.mul(grad_output, output), dim, True)
    return F.sub(F.mul(grad, F.sub(grad_output, inner)), F.mul(grad_output, F.sum(F.mul(grad, output), dim, True)))


@implements(
    ops._softmax_backward_data,
    grad_output=lambda grad, output, dim: F._softmax_backward_data(grad, output, dim, grad.dtype),
    output=_softmax_double_backward,
)
def _softmax_backward_data(xp, grad_output, output, dim, input_dtype, *, out):
    xp.multiply(grad_output, output, out=out)
    out -= output * sum_over(xp, out, axes(out, dim), True)


def _log_softmax_double_backward(grad, grad_output, output, dim):
    return F.neg(F.mul(F.mul(grad, F.exp(output)), F.sum(grad_output, dim, True)))


@implements(
    ops._log_softmax_backward_data,
    grad_output=lambda grad, output, dim: F.sub(grad, F.sum(F.mul(grad, F.exp(output)), dim, True)),
    output=_log_softmax_double_backward,
)
def _log_softmax_backward_data(xp, grad_output, output, dim, input_dtype, *, out):
    summed = sum_over(xp, grad_output, axes(out, dim), True)
    xp.exp(output, out=out)
    out *= summed
    xp.subtract(grad_output, out, out=out)
