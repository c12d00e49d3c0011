"""Complex numbers: real and imaginary parts are views of the same memory, conjugates are copies."""

from __future__ import annotations

from server.engine import functional as F
from server.engine.registry import composite, derive, implements
from server.engine.value import Value
from telegrad_protocol.ops import complex as ops

from .derivatives import row_major_strides


def conj(factor):
    """The conjugate of a value or a number; itself where it is real."""
    if factor.__class__ is Value:
        return F.conj_physical(factor) if factor.meta.dtype.is_complex else factor
    return factor.conjugate() if factor.__class__ is complex else factor


def _real_backward(grad, input_meta):
    return F.complex(grad, F.zeros_like(grad)) if input_meta.dtype.is_complex else grad


derive(ops.real, input=_real_backward)
derive(ops.imag, input=lambda grad: F.complex(F.zeros_like(grad), grad))
derive(ops.view_as_real, input=lambda grad: F.view_as_complex(F._in_layout(grad, row_major_strides(grad.meta))))
derive(ops.view_as_complex, input=lambda grad: F.view_as_real(grad))


@composite(ops.conj)
def _conj(input):
    return F.conj_physical(input) if input.meta.dtype.is_complex else F.view(input, input.meta.shape)


@implements(ops.conj_physical, input=lambda grad: conj(grad))
def conj_physical(xp, input, *, out):
    if input.dtype.kind == "c":
        xp.conjugate(input, out=out)
    else:
        xp.copyto(out, input)


def _angle_backward(grad, input):
    if not input.meta.dtype.is_complex:
        return F.zeros_like(grad)
    squared = F.square(F.abs(input))
    factor = F.where(squared == 0, 0.0, grad / squared)
    return F.complex(-F.imag(input) * factor, F.real(input) * factor)


@implements(ops.angle, input=_angle_backward)
def angle(xp, input, *, out):
    if input.dtype.kind == "c":
        xp.arctan2(input.imag, input.real, out=out)
    else:
        # NaN stays NaN, and -0.0 counts as positive.
        xp.copyto(out, xp.where(input < 0, xp.pi, xp.where(xp.isnan(input), xp.nan, 0.0)))


@implements(ops.complex, real=lambda grad: F.real(grad), imag=lambda grad: F.imag(grad))
def complex_(xp, real, imag, *, out):
    out.real[...] = real
    out.imag[...] = imag


def _polar_abs(grad, abs, angle):
    return F.real(conj(grad) * F.polar(F.ones_like(abs), angle))


@implements(
    ops.polar,
    abs=_polar_abs,
    angle=lambda grad, out: F.real(conj(grad) * out * 1j),
)
def polar(xp, abs, angle, *, out):
    out.real[...] = abs * xp.cos(angle)
    out.imag[...] = abs * xp.sin(angle)
