"""Element-wise operations. Kernels get operands already cast to the type that the operation computes in."""

from __future__ import annotations

from telegrad_protocol.ops import pointwise as ops

from .. import functional as F  # noqa: N812 - the field's name
from ..operators import implements


def _scaled(grad, alpha):
    return grad if alpha == 1 else grad * alpha


@implements(ops.add, input=lambda grad: grad, other=lambda grad, alpha: _scaled(grad, alpha))
def add(xp, input, other, *, alpha, out):
    xp.add(input, other if alpha == 1 else other * alpha, out=out)


@implements(ops.mul, input=lambda grad, other: grad * other, other=lambda grad, input: grad * input)
def mul(xp, input, other, *, out):
    xp.multiply(input, other, out=out)


@implements(ops.neg, input=lambda grad: -grad)
def neg(xp, input, *, out):
    xp.negative(input, out=out)


@implements(ops.exp, input=lambda grad, out: grad * out)
def exp(xp, input, *, out):
    xp.exp(input, out=out)


@implements(ops._to_copy, movement=True, input=lambda grad: grad)  # the engine casts it back
def _to_copy(xp, input, *, dtype, device, out):
    xp.copyto(out, input, casting="unsafe")


__all__ = ["F"]
