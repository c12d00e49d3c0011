"""Copies of few elements: joined, turned around, moved along, surrounded, or in another layout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

from server.engine.in_c.small import CONSTANT, MOST_PLACES, Loop, Place
from server.engine.operators import Request
from telegrad_protocol.layout import wrap_dim, wrap_dims
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import creation, rearrange
from telegrad_protocol.ops.layers import nn

from .layouts import KINDS, argument, bits_of, is_small, result, row_major, strides_of, walk
from .registering import small

_MOST_PIECES = MOST_PLACES // 2 - 1


class _Piece(NamedTuple):
    """A part of an operand and where it goes: the sizes and strides of both, and bytes from their first elements."""

    place: Place
    shape: Sequence[int]
    strides: Sequence[int]
    start: int
    target_strides: Sequence[int]
    target_start: int


def _copies(out: Meta, pieces: Iterable[_Piece], fill: int | None = None) -> Loop | None:
    """The loop that copies pieces into a result, which is filled first with elements of some bits."""
    parts = [piece for piece in pieces if math.prod(piece.shape)]
    if len(parts) > _MOST_PIECES:
        return None
    places, target = [result(0, out)], result(0, out)
    numbers = [out.dtype.itemsize, int(fill is not None), fill or 0, out.numel, len(parts)]
    for piece in parts:
        places.append(piece.place._replace(offset=piece.place.offset + piece.start))
        places.append(target._replace(offset=target.offset + piece.target_start))
        numbers += walk(piece.shape, piece.strides, piece.target_strides)
    return Loop("copy_pieces", places, numbers)


def _is_taken(input: Meta, out: Meta) -> bool:
    return is_small(input, out) and input.dtype is out.dtype


@small(creation.clone, rearrange._in_layout)
def copied(request: Request) -> Loop | None:
    """All elements, in another layout."""
    input, out = request.args[0], request.outs[0]
    if not _is_taken(input, out) or input.shape != out.shape:
        return None
    strides = strides_of(input, input.shape), strides_of(out, out.shape)
    return _copies(out, [_Piece(argument(0, input), input.shape, strides[0], 0, strides[1], 0)])


def _filled(out: Meta, number: Any) -> Loop | None:
    """A result of one number, which is row-major."""
    is_plain = number.__class__ in (bool, int, float) and out.is_contiguous and is_small(out)
    fits = out.dtype.is_floating_point or (number.__class__ is not float and abs(number) < 1 << 7)
    return _copies(out, [], bits_of(number, out.dtype)) if is_plain and out.dtype in KINDS and fits else None


small(creation.zeros, creation.zeros_like)(lambda request: _filled(request.outs[0], 0))
small(creation.ones, creation.ones_like)(lambda request: _filled(request.outs[0], 1))
small(creation.full, creation.full_like)(lambda request: _filled(request.outs[0], request.args[1]))


@small(creation.eye)
def eye(request: Request) -> Loop | None:
    """A matrix of zeros with ones on its diagonal."""
    out = request.outs[0]
    if not is_small(out) or not out.is_contiguous or out.dtype not in KINDS:
        return None
    step = sum(strides_of(out, out.shape)) if min(out.shape) > 1 else 0
    places = result(0, out), Place(CONSTANT), result(0, out)
    piece = walk([min(out.shape)], [0], [step])
    numbers = [out.dtype.itemsize, 1, 0, out.numel, 1, *piece, bits_of(1, out.dtype)]
    return Loop("copy_pieces", (places[0], places[1]._replace(offset=len(numbers) - 1), places[2]), numbers)


def _joined(out: Meta, tensors: Sequence[Meta], dim: int, is_new: bool) -> Loop | None:
    """Tensors behind each other along a dimension, which each of them has unless it is new."""
    target = strides_of(out, out.shape)
    pieces, at = [], 0
    for item, meta in enumerate(tensors):
        if (
            meta.dtype is not out.dtype
            or (not is_new and meta.ndim != out.ndim)
            or not (meta.numel == 0 or is_small(meta))
        ):
            return None
        shape = [*meta.shape[:dim], 1, *meta.shape[dim:]] if is_new else list(meta.shape)
        own = strides_of(meta, meta.shape)
        strides = [*own[:dim], 0, *own[dim:]] if is_new else own
        pieces.append(_Piece(argument(0, meta, item), shape, strides, 0, target, at * target[dim]))
        at += shape[dim]
    return _copies(out, pieces)


@small(rearrange.cat)
def cat(request: Request) -> Loop | None:
    """Tensors of one type behind each other."""
    (tensors, dim), out = request.args, request.outs[0]
    return _joined(out, tensors, wrap_dim("cat", dim, out.ndim), False) if is_small(out) and out.ndim else None


@small(rearrange.stack)
def stack(request: Request) -> Loop | None:
    """Tensors of one type and shape along a new dimension."""
    (tensors, dim), out = request.args, request.outs[0]
    return _joined(out, tensors, wrap_dim("stack", dim, out.ndim), True) if is_small(out) else None


@small(rearrange.flip)
def flip(request: Request) -> Loop | None:
    """The elements in reverse order along dimensions."""
    input, out = request.args[0], request.outs[0]
    if not _is_taken(input, out) or not input.ndim:
        return None
    dims, own = wrap_dims("flip", request.args[1], input.ndim), strides_of(input, input.shape)
    start = sum([own[d] * (input.shape[d] - 1) for d in dims])
    strides = [-stride if d in dims else stride for d, stride in enumerate(own)]
    return _copies(out, [_Piece(argument(0, input), input.shape, strides, start, strides_of(out, out.shape), 0)])


@small(rearrange.roll)
def roll(request: Request) -> Loop | None:
    """The elements moved along dimensions: of each, what passes its end comes first."""
    input, shifts, dims = request.args
    out = request.outs[0]
    if not _is_taken(input, out) or dims is None or dims == () or not input.ndim:
        return None
    listed = (dims,) if isinstance(dims, int) else tuple(dims)
    moves = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    at = [wrap_dim("roll", d, input.ndim) for d in listed]
    if len(moves) != len(at) or len(set(at)) != len(at):
        return None
    cuts = {d: move % input.shape[d] for d, move in zip(at, moves)}
    return _copies(out, _rolled(input, out, cuts))


def _rolled(input: Meta, out: Meta, cuts: dict[int, int]) -> list[_Piece]:
    """The pieces, given how far each dimension is moved: from where, to where, and how long, in each dimension."""
    own, target = strides_of(input, input.shape), strides_of(out, out.shape)
    ways = [
        [(0, move, size - move), (size - move, 0, move)] if (move := cuts.get(d, 0)) else [(0, 0, size)]
        for d, size in enumerate(input.shape)
    ]
    pieces = []
    for way in product(*ways):
        start = sum([begin * stride for (begin, _, _), stride in zip(way, own)])
        target_start = sum([begin * stride for (_, begin, _), stride in zip(way, target)])
        shape = [length for _, _, length in way]
        pieces.append(_Piece(argument(0, input), shape, own, start, target, target_start))
    return pieces


@small(nn.constant_pad_nd)
def constant_pad(request: Request) -> Loop | None:
    """A number around the elements; negative paddings are NumPy's."""
    input, pad, value = request.args
    out = request.outs[0]
    if not _is_taken(input, out) or value.__class__ not in (bool, int, float) or min(pad, default=0) < 0:
        return None
    before = [0] * (input.ndim - len(pad) // 2) + [pad[2 * k] for k in reversed(range(len(pad) // 2))]
    if not out.is_contiguous:
        return None
    target = row_major(out.shape, out.dtype.itemsize)
    start = sum([begin * stride for begin, stride in zip(before, target)])
    own = strides_of(input, input.shape)
    return _copies(out, [_Piece(argument(0, input), input.shape, own, 0, target, start)], bits_of(value, out.dtype))
