"""What derivative formulas of several families share. Written over engine values; registers no operation."""

from __future__ import annotations

from server.engine import functional as F
from server.engine import keys
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from telegrad_protocol.errors import NotSupportedError

_ZEROS = OPERATORS["zeros"]


def zero_gradient(grad):
    """The gradient of an input that the result does not depend on: zeros like the result's gradient."""
    return F.zeros_like(grad)


def not_differentiable(name, parameter):
    """A formula for an input by which PyTorch does not differentiate either."""

    def formula(grad):
        raise NotSupportedError(f"{name}: the derivative with respect to {parameter} is not implemented")

    return formula


def with_zero_derivative(input):
    """The input itself; where gradients flow, its gradient depends on it by a derivative of zero."""
    return F._with_zero_derivative(input, ()) if input.keys & keys.AUTOGRAD else input


def zeros(like, shape):
    """Zeros of the given shape, of the dtype and on the device of ``like``."""
    return dispatch(_ZEROS, (shape, like.meta.dtype, like.meta.device))


def row_major_strides(meta):
    """The strides of a row-major tensor of the meta's shape, in elements."""
    return meta.like().strides
