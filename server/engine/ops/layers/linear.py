"""``linear`` and ``bilinear``, and the kernel that computes all gradients of ``linear`` at once."""

from __future__ import annotations

import math

from server.engine import functional as F
from server.engine.array_library.indexing import sum_over
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.ops.complex import conj
from server.engine.registry import composite, implements
from telegrad_protocol.ops.linear_algebra import linalg as ops

_BACKWARD = OPERATORS["_linear_backward"]


def _rows(value):
    """All but the last dimension flattened into one."""
    return value if value.ndim == 2 else F.reshape(value, (math.prod(value.shape[:-1]), value.shape[-1]))


def _linear_input(grad, weight):
    return F.matmul(grad, conj(weight)) if weight.ndim == 2 else F.mul(F.unsqueeze(grad, -1), conj(weight))


def _linear_weight(grad, input, weight_meta):
    rows = conj(_rows(input))
    if weight_meta.ndim == 1:
        return F.mv(F.t(rows), F.reshape(grad, (grad.numel,)))  # (m,k).T @ (m) -> (k)
    return F.mm(F.t(_rows(grad)), rows)  # (m,n).T @ (m,k) -> (n,k)


def _linear_gradients(grad, input, weight, weight_meta, bias_meta, wanted):
    if weight_meta.ndim == 1 or (wanted[2] and bias_meta.ndim > 1):
        return (
            _linear_input(grad, weight) if wanted[0] else None,
            _linear_weight(grad, input, weight_meta) if wanted[1] else None,
            grad if wanted[2] else None,
        )
    gradients = dispatch(_BACKWARD, (grad, input, weight, wanted[2]))
    if len(gradients) == len(wanted):
        return gradients
    given = iter(gradients)
    return tuple([next(given) if is_wanted else None for is_wanted in wanted])


@implements(
    ops.linear,
    input=lambda grad, weight: _linear_input(grad, weight),  # (m,n) @ (n,k) -> (m,k)
    weight=lambda grad, input, weight_meta: _linear_weight(grad, input, weight_meta),
    bias=lambda grad: grad,
    together=_linear_gradients,
    first=("weight", "bias"),
)
def linear(xp, input, weight, bias, *, out):
    if input.ndim > 2 and weight.ndim == 2:
        rows = math.prod(input.shape[:-1])
        xp.matmul(input.reshape(rows, input.shape[-1]), weight.T, out=out.reshape(rows, out.shape[-1]))
    else:
        xp.matmul(input, weight.T, out=out)
    if bias is not None:
        xp.add(out, bias, out=out)


def _gradients_by_name(grads, input, weight, bias):
    """The gradients of the results of ``_linear_backward``, of input, weight and bias; None for an absent one."""
    given = iter(grads)
    return tuple([next(given) if present else None for present in (weight is not None, input is not None, bias)])


def _linear_backward_grad(grads, input, weight, bias):
    by_input, by_weight, by_bias = _gradients_by_name(grads, input, weight, bias)
    total = None if by_input is None else F.linear(by_input, weight)
    if by_weight is not None:
        through = F.linear(input, by_weight)
        total = through if total is None else F.add(total, through)
    return total if by_bias is None else by_bias if total is None else F.add(total, by_bias)


def _linear_backward_input(grads, grad_out, input_meta, weight_meta, bias):
    return F.matmul(grad_out, conj(_gradients_by_name(grads, input_meta, weight_meta, bias)[1]))


def _linear_backward_weight(grads, grad_out, input_meta, weight_meta, bias):
    by_input = _gradients_by_name(grads, input_meta, weight_meta, bias)[0]
    return F.mm(F.t(_rows(grad_out)), conj(_rows(by_input)))


@implements(
    ops._linear_backward, grad_out=_linear_backward_grad, input=_linear_backward_input, weight=_linear_backward_weight
)
def _linear_backward(xp, grad_out, input, weight, bias, *, out):
    """(m,n) @ (n,k) -> (m,k); (m,n).T @ (m,k) -> (n,k); the sum of (m,n) -> (n)"""
    rows = grad_out.reshape(math.prod(grad_out.shape[:-1]), grad_out.shape[-1])
    position = 0
    if weight is not None:
        weight = xp.conj(weight) if weight.dtype.kind == "c" else weight
        xp.matmul(rows, weight, out=out[0].reshape(len(rows), weight.shape[1]))
        position = 1
    if input is not None:
        input = xp.conj(input) if input.dtype.kind == "c" else input
        xp.matmul(rows.T, input.reshape(len(rows), input.shape[-1]), out=out[position])
        position += 1
    if bias:
        out[position][...] = sum_over(xp, rows, 0)


@composite(ops.bilinear)
def bilinear(input1, input2, weight, bias):
    """Rows r: sum over i, j of input1[r,i] weight[o,i,j] input2[r,j]"""
    (outs, left, right), rows = weight.shape, math.prod(input1.shape[:-1])
    first, second = F.reshape(input1, (rows, left)), F.reshape(input2, (rows, right))
    half = F.mm(first, F.reshape(F.permute(weight, (1, 0, 2)), (left, outs * right)))
    full = F.bmm(F.view(half, (rows, outs, right)), F.unsqueeze(second, 2))
    result = F.view(full, (*input1.shape[:-1], outs))
    return result if bias is None else F.add(result, bias)
