"""Copies that read backwards, or from somewhere else on: flip, rot90, roll."""

from __future__ import annotations

import itertools
from typing import Any

from server.engine import keys
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Backend, Launch, Value
from telegrad_protocol.layout import wrap_dim, wrap_dims
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import rearrange
from telegrad_protocol.ops.layers import nn

from .copying import copied, copying

_MOST_PARTS = 8


def _reversed(meta: Meta, dims: tuple[int, ...]) -> Meta:
    """The same elements with dimensions read backwards: their strides are negative."""
    strides = tuple([-step if d in dims else step for d, step in enumerate(meta.strides)])
    last = sum((meta.shape[d] - 1) * meta.strides[d] for d in dims)
    return meta.view(meta.shape, strides, meta.offset + last)


@prepares(rearrange.flip, keys.CUDA, deferrable=True)
def flip(request: Request) -> Launch:
    """A copy read backwards along some dimensions."""
    source, dims = request.args
    wrapped = tuple(wrap_dims("flip", dims, source.ndim)) if source.ndim else ()
    return copying(request.backend, request.outs[0], _reversed(source, wrapped) if source.numel else source)


@prepares(rearrange.rot90, keys.CUDA, deferrable=True)
def rot90(request: Request) -> Launch:
    """A copy whose dimensions change places, one of them or both read backwards."""
    source, k, dims = request.args
    out = request.outs[0]
    first, second = (wrap_dim("rot90", d, source.ndim) for d in dims)
    turns = k % 4
    if not source.numel:
        return copying(request.backend, out, out)
    backwards = {0: (), 1: (second,), 2: (first, second), 3: (first,)}[turns]
    seen = _reversed(source, backwards)
    if turns % 2:
        order = list(range(source.ndim))
        order[first], order[second] = second, first
        seen = seen.view(tuple([seen.shape[d] for d in order]), tuple([seen.strides[d] for d in order]), seen.offset)
    return copying(request.backend, out, seen)


@prepares(rearrange.roll, keys.CUDA, deferrable=True)
def roll(request: Request) -> Launch | None:
    """Two copies for each dimension that is rolled: what stays before the end, and what comes in at the beginning."""
    source, shifts, dims = request.args
    out = request.outs[0]
    if not source.numel or not source.ndim:
        return copying(request.backend, out, source)
    shifts = shifts if isinstance(shifts, tuple) else (shifts,)
    if dims is None or dims == ():
        if not (source.is_contiguous and out.is_contiguous):
            return None
        flat = (source.numel,)
        source, out = source.view(flat, (1,), source.offset), out.view(flat, (1,), out.offset)
        amounts = {0: sum(shifts)}
    else:
        amounts = {}
        for dim, shift in zip(dims if isinstance(dims, tuple) else (dims,), shifts, strict=True):
            at = wrap_dim("roll", dim, source.ndim)
            amounts[at] = amounts.get(at, 0) + shift
    amounts = {dim: shift % source.shape[dim] for dim, shift in amounts.items() if shift % source.shape[dim]}
    if 2 ** len(amounts) > _MOST_PARTS:
        return None
    return _moving(request.backend, out, source, amounts)


def _moving(backend: Backend, out: Meta, source: Meta, amounts: dict[int, int]) -> Launch:
    """Copy each part of the source to its place: dimension d is cut ``amounts[d]`` elements before its end."""
    choices = [((d, 0, source.shape[d] - n, n), (d, source.shape[d] - n, n, 0)) for d, n in amounts.items()]
    pairs = []
    for cuts in itertools.product(*choices):
        part, place = source, out
        for d, start, length, target in cuts:
            part, place = _narrowed(part, d, start, length), _narrowed(place, d, target, length)
        pairs.append((place, part))
    return _copying(backend, pairs)


def _copying(backend: Backend, pairs: list[tuple[Meta, Meta]]) -> Launch:
    """A launch per part of the first argument that goes to a part of the result, if it has elements."""
    copies = [copied(place, part) for place, part in pairs if place.numel]
    steps = [(fire, into, begin) for fire, (into, begin) in copies]

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        source, target = args[0].storage.block.pointer, outs[0].storage.block.pointer
        for fire, into, begin in steps:
            fire(backend.stream, target + into, source + begin)

    return launch


@prepares(nn._pad_border, keys.CUDA, deferrable=True)
def pad_border(request: Request) -> Launch:
    """The input in the middle, and a copy on each side."""
    source, dim, before, after, mode = request.args
    out, size = request.outs[0], source.shape[dim]
    pairs = [(_narrowed(out, dim, before, size), source)]
    for (start, length, kind), place in zip(
        nn.borders(size, before, after, mode), (0, before + size), strict=True
    ):  # fmt: skip
        part = _narrowed(source, dim, start, 1 if kind == "repeated" else length)
        part = _reversed(part, (dim,)) if kind == "reversed" else part
        pairs.append((_narrowed(out, dim, place, length), part))
    return _copying(request.backend, pairs)


def _narrowed(meta: Meta, dim: int, start: int, length: int) -> Meta:
    shape = (*meta.shape[:dim], length, *meta.shape[dim + 1 :])
    return meta.view(shape, meta.strides, meta.offset + start * meta.strides[dim])
