"""Padding with a value, or with elements mirrored, repeated or wrapped around: one dimension after the other."""

from __future__ import annotations

from server.engine import functional as F
from server.engine.ops.derivatives import with_zero_derivative
from server.engine.registry import composite, implements
from telegrad_protocol.ops.layers import nn as ops


@composite(ops.pad)
def pad(input, pad, mode, value):
    if mode == "constant":
        return F.constant_pad_nd(input, pad, 0 if value is None else value)
    strides = ops.pad.rule(input.meta, pad, mode, value).strides
    if mode != "circular":
        input = with_zero_derivative(input)
    for i in range(0, len(pad), 2):
        dim, before, after = input.ndim - 1 - i // 2, pad[i], pad[i + 1]
        if before >= 0 and after >= 0:
            input = F._pad_border(input, dim, before, after, mode)
        else:
            input = _joined(input, dim, before, after, mode)
    return input if input.meta.strides == strides else F._in_layout(input, strides)


def _joined(input, dim, before, after, mode):
    """Padding that cuts off on one side or both."""
    start = max(-before, 0)
    middle = F.narrow(input, dim, start, input.shape[dim] - start - max(-after, 0))
    source = middle if mode == "circular" else input
    left, right = ops.borders(source.shape[dim], max(before, 0), max(after, 0), mode)
    parts = [_border(source, dim, left), middle, _border(source, dim, right)]
    return F.cat([part for part in parts if part.shape[dim]], dim)


def _border(input, dim, border):
    """A border's elements: a stretch of the input, or one element again and again."""
    start, length, kind = border
    if kind == "repeated":
        size = (*input.shape[:dim], length, *input.shape[dim + 1 :])
        return F.expand(F.narrow(input, dim, start, 1), size)
    part = F.narrow(input, dim, start, length)
    return F.flip(part, (dim,)) if kind == "reversed" else part


def _pad_border_backward(grad, input_meta, dim, before, after, mode):
    """The gradient of what lies inside, and those of the borders added where their elements come from."""
    size = input_meta.shape[dim]
    total = F.narrow(grad, dim, before, size)
    places = (0, before + size)
    for (start, length, kind), place in zip(ops.borders(size, before, after, mode), places, strict=True):
        if not length:
            continue
        part = F.narrow(grad, dim, place, length)
        if kind == "repeated":
            part, length = F.sum(part, (dim,), True), 1
        elif kind == "reversed":
            part = F.flip(part, (dim,))
        around = (*(0, 0) * (input_meta.ndim - 1 - dim), start, size - start - length)
        total = total + F.constant_pad_nd(part, around)
    return total


@implements(ops._pad_border, movement=True, input=_pad_border_backward)
def _pad_border(xp, input, dim, before, after, mode, *, out):
    size, lead = input.shape[dim], (slice(None),) * dim
    out[(*lead, slice(before, before + size))] = input
    for (start, length, kind), place in zip(
        ops.borders(size, before, after, mode), (0, before + size), strict=True
    ):  # fmt: skip
        part = input[(*lead, slice(start, start + (1 if kind == "repeated" else length)))]
        part = xp.flip(part, dim) if kind == "reversed" else part
        out[(*lead, slice(place, place + length))] = part
