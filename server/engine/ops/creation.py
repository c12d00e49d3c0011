"""Tensors out of nothing, random ones included."""

from __future__ import annotations

from telegrad_protocol.ops import creation as ops

from ..operators import implements


@implements(ops.zeros, movement=True)
def zeros(xp, size, *, dtype, device, out):
    out[...] = 0


@implements(ops.ones, movement=True)
def ones(xp, size, *, dtype, device, out):
    out[...] = 1


@implements(ops.zeros_like, movement=True)
def zeros_like(xp, input, *, dtype, device, out):
    out[...] = 0
