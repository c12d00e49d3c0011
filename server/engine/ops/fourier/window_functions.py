"""Window functions, computed in double precision."""

from __future__ import annotations

import math

import numpy as np

from server.engine.array_library.special_functions import special
from server.engine.registry import implements
from telegrad_protocol.ops.fourier import window_functions as ops


def _cosines(xp, length, coefficients, periodic):
    """The sum of a[k] cos(2 pi k n / N) with alternating signs, where N is the length of a period."""
    angle = xp.arange(length, dtype=np.float64) * (2 * math.pi / max(length if periodic else length - 1, 1))
    return sum((-1) ** k * a * xp.cos(k * angle) for k, a in enumerate(coefficients))


def _triangle(xp, length, periodic):
    return 1 - xp.abs(xp.arange(length, dtype=np.float64) * (2 / max(length if periodic else length - 1, 1)) - 1)


def _kaiser(xp, length, beta, periodic):
    """i0(sqrt(beta ** 2 - x ** 2)) / i0(beta) for x from -beta to beta"""
    x = xp.arange(length, dtype=np.float64) * (2 * beta / max(length if periodic else length - 1, 1)) - beta
    return special(xp).i0(xp.sqrt(xp.maximum(beta * beta - x * x, 0))) / float(np.i0(beta))


def _write(xp, window, out):
    """Write a window; one of a single point is 1."""
    out[...] = window if out.size != 1 else 1


_COEFFICIENTS = {
    ops.blackman: (0.42, 0.5, 0.08), ops.hamming: (0.54, 0.46), ops.hann: (0.5, 0.5),
    ops.nuttall: (0.3635819, 0.4891775, 0.1365995, 0.0106411),
}  # fmt: skip


def _register(op, coefficients):
    @implements(op)
    def window(xp, M, *, sym, dtype, device, out):
        _write(xp, _cosines(xp, M, coefficients, not sym), out)


for _op, _coefficients in _COEFFICIENTS.items():
    _register(_op, _coefficients)


@implements(ops.general_cosine)
def general_cosine(xp, M, *, a, sym, dtype, device, out):
    _write(xp, _cosines(xp, M, a, not sym), out)


@implements(ops.general_hamming)
def general_hamming(xp, M, *, alpha, sym, dtype, device, out):
    _write(xp, _cosines(xp, M, (alpha, 1 - alpha), not sym), out)


@implements(ops.bartlett)
def bartlett(xp, M, *, sym, dtype, device, out):
    _write(xp, _triangle(xp, M, not sym), out)


@implements(ops.kaiser)
def kaiser(xp, M, *, beta, sym, dtype, device, out):
    _write(xp, _kaiser(xp, M, beta, not sym), out)


def _points(M, sym):
    """The points of a window, or of a periodic one with the first point of its next period."""
    return M if sym or M <= 1 else M + 1


@implements(ops.cosine)
def cosine(xp, M, *, sym, dtype, device, out):
    out[...] = xp.sin((xp.arange(M, dtype=np.float64) + 0.5) * (math.pi / max(_points(M, sym), 1)))


@implements(ops.exponential)
def exponential(xp, M, *, center, tau, sym, dtype, device, out):
    middle = (_points(M, sym) - 1) / 2 if center is None else center
    out[...] = xp.exp(-xp.abs(xp.arange(M, dtype=np.float64) - middle) / tau)


@implements(ops.gaussian)
def gaussian(xp, M, *, std, sym, dtype, device, out):
    distance = (xp.arange(M, dtype=np.float64) - (_points(M, sym) - 1) / 2) / std
    out[...] = xp.exp(distance * distance * -0.5)


@implements(ops.hann_window)
def hann_window(xp, window_length, periodic, *, dtype, device, out):
    _write(xp, _cosines(xp, window_length, (0.5, 0.5), periodic), out)


@implements(ops.hamming_window)
def hamming_window(xp, window_length, periodic, alpha, beta, *, dtype, device, out):
    _write(xp, _cosines(xp, window_length, (alpha, beta), periodic), out)


@implements(ops.blackman_window)
def blackman_window(xp, window_length, periodic, *, dtype, device, out):
    _write(xp, _cosines(xp, window_length, (0.42, 0.5, 0.08), periodic), out)


@implements(ops.bartlett_window)
def bartlett_window(xp, window_length, periodic, *, dtype, device, out):
    _write(xp, _triangle(xp, window_length, periodic), out)


@implements(ops.kaiser_window)
def kaiser_window(xp, window_length, periodic, beta, *, dtype, device, out):
    _write(xp, _kaiser(xp, window_length, beta, periodic), out)
