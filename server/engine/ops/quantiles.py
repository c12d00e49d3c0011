"""Quantiles, the median without NaN, and the most frequent element."""

from __future__ import annotations

import numpy as np

from server.engine import context
from server.engine import functional as F
from server.engine.registry import composite, implements
from telegrad_protocol.dtypes import int64
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.ops import quantiles as ops

from .sorting import select_gradient, write_ranked


@implements(ops.nanmedian_dim, input=select_gradient)
def nanmedian_dim(xp, input, dim, keepdim, *, out):
    length = input.shape[dim] if input.ndim else 1
    rank = (length - 1) // 2
    if input.ndim and input.dtype.kind == "f":
        rank = xp.maximum(xp.sum(~xp.isnan(input), axis=dim) - 1, 0) // 2
    write_ranked(xp, input, rank, dim, out)


@composite(ops.nanmedian)
def nanmedian(input):
    return F.nanmedian(F.reshape(input, -1), 0)[0] if input.numel else F.median(input)


@implements(ops.mode, input=select_gradient)
def mode(xp, input, dim, keepdim, *, out):
    values, indices = out
    if input.ndim == 0 or not values.size:
        values[...], indices[...] = input if values.size else 0, 0
        return
    rows = xp.moveaxis(input, dim, -1)
    order = xp.argsort(rows, axis=-1, kind="stable")
    ascending = xp.take_along_axis(rows, order, axis=-1)
    places = xp.broadcast_to(xp.arange(rows.shape[-1]), rows.shape)
    begins = xp.concatenate([xp.ones_like(places[..., :1], bool), ascending[..., 1:] != ascending[..., :-1]], axis=-1)
    # The first place at which a run of equal elements is as long as the longest is the last place of that run.
    ends = xp.argmax(places - _last_begin(xp, xp.where(begins, places, 0)), axis=-1)[..., None]
    chosen = xp.take_along_axis(order, ends, axis=-1)
    indices[...] = chosen[..., 0].reshape(indices.shape)
    values[...] = xp.take_along_axis(rows, chosen, axis=-1)[..., 0].reshape(values.shape)


def _last_begin(xp, begins):
    """The largest number so far in every row; doubling steps, because CuPy has no ``maximum.accumulate``."""
    if xp is np:
        return np.maximum.accumulate(begins, axis=-1)
    step = 1
    while step < begins.shape[-1]:
        begins[..., step:] = xp.maximum(begins[..., step:], begins[..., :-step].copy())
        step *= 2
    return begins


@composite(ops.quantile)
def quantile(input, q, dim, keepdim, *, interpolation):
    return _quantiles("quantile", input, q, dim, keepdim, interpolation, False)


@composite(ops.quantile_scalar)
def quantile_scalar(input, q, dim, keepdim, *, interpolation):
    return _quantiles("quantile", input, _number(q, input), dim, keepdim, interpolation, False)


@composite(ops.nanquantile)
def nanquantile(input, q, dim, keepdim, *, interpolation):
    return _quantiles("nanquantile", input, q, dim, keepdim, interpolation, True)


@composite(ops.nanquantile_scalar)
def nanquantile_scalar(input, q, dim, keepdim, *, interpolation):
    return _quantiles("nanquantile", input, _number(q, input), dim, keepdim, interpolation, True)


def _number(q, input):
    return F.full((), q, dtype=input.dtype, device=input.device)


def _quantiles(name, input, q, dim, keepdim, interpolation, skips_nan):
    if q.device.type == "cpu":
        context.note_elements_read(name)
        if not ((q.array >= 0) & (q.array <= 1)).all():
            raise ArgumentError(f"{name}: q must be in the range [0, 1]")
    rows = F.reshape(input, -1) if dim is None or not input.ndim else F.movedim(input, dim, -1)
    ascending = F.sort(rows, -1)[0]
    values = _interpolated(ascending, _ranks(ascending, F.reshape(q, -1), skips_nan), interpolation)
    if keepdim:
        sizes = list(input.shape) if dim is not None and input.ndim else [1] * input.ndim
        if dim is not None and input.ndim:
            sizes[dim] = 1
            values = F.unsqueeze(F.movedim(values, -1, 0), dim % input.ndim + 1)
        else:
            values = F.reshape(F.movedim(values, -1, 0), (-1, *sizes))
    else:
        values = F.movedim(values, -1, 0)
    return F.contiguous(values if q.ndim else F.select(values, 0, 0))


def _ranks(ascending, q, skips_nan):
    """Places, with fractions, of the quantiles among the elements of every row; NaN lies behind all others."""
    last = ascending.shape[-1] - 1
    is_nan = F.isnan(ascending)
    if skips_nan:
        count = F.sum(F.logical_not(is_nan), -1, True)
        return F.clamp(F.mul(q, F._to_copy(F.sub(count, 1), dtype=q.dtype)), min=0)
    return F.masked_fill(F.expand(F.mul(q, last), (*ascending.shape[:-1], q.shape[0])), F.any(is_nan, -1, True), last)


_ROUNDINGS = {"lower": F.floor, "higher": F.ceil, "nearest": F.round}


def _interpolated(ascending, ranks, interpolation):
    rounding = _ROUNDINGS.get(interpolation)
    if rounding is not None:
        return F.gather(ascending, -1, F._to_copy(rounding(ranks), dtype=int64))
    below = F._to_copy(F.floor(ranks), dtype=int64)
    low, high = F.gather(ascending, -1, below), F.gather(ascending, -1, F._to_copy(F.ceil(ranks), dtype=int64))
    weight = F.full_like(ranks, 0.5) if interpolation == "midpoint" else F.sub(ranks, below)
    return F.lerp(low, high, weight)
