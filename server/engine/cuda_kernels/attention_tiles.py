"""Attention by our own tiled kernels: float32, and halves that cuDNN's kernels do not take."""

from __future__ import annotations

import struct
from typing import Any

from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import attention as ops

from .. import keys
from ..operators import Launch, Request, prepares
from ..ops.attention import suits_tiles
from ..value import Value
from .attention_text import LEADING, PAD, TEXT, THREADS, TILE, kernels
from .launch import Kernel, load, pointer
from .prelude import CTYPES, PRELUDE

_FLOAT = 4
_ROWS_OF_DELTAS = THREADS // 32


def _steps(meta: Meta) -> bytes:
    return struct.pack("=4q", *meta.strides)


def _shape(query: Meta, key: Meta, value: Meta, is_causal: bool, scale: float) -> bytes:
    heads, shared = query.shape[1], key.shape[1]
    sizes = (heads, heads // shared, query.shape[2], key.shape[2], query.shape[3], value.shape[3], is_causal)
    return struct.pack("=7if", *sizes, scale)


def _depth(query: Meta, value: Meta) -> int:
    """The width that heads are padded to in shared memory."""
    return next(depth for depth in (32, 64, 128) if max(query.shape[3], value.shape[3]) <= depth)


def _kernel(name: str, query: Meta, depth: int) -> Kernel:
    return load(PRELUDE + TEXT + kernels(CTYPES[query.dtype], depth), name)


def _shared(turned: int, upright: int, handed: int, depth: int) -> int:
    """Bytes of so many tiles: turned, upright, and of scores."""
    return _FLOAT * (turned * depth * LEADING + upright * TILE * (depth + PAD) + handed * TILE * LEADING)


def _tiles(length: int) -> int:
    return -(-length // TILE)


@prepares(ops._attention, keys.CUDA)
def forward(request: Request) -> Launch | None:
    """softmax(query @ key.T * scale) @ value, and the logarithms of the rows' sums where backward will need them"""
    query, key, value, mask, is_causal, scale, trains = request.args
    if mask is not None or not suits_tiles(query, key, value):
        return None
    output, _ = request.outs
    depth, backend = _depth(query, value), request.backend
    constants = [*map(_steps, (output, query, key, value)), _shape(query, key, value, is_causal, scale)]
    grid = (_tiles(query.shape[2]), query.shape[1], query.shape[0])
    fire = _kernel("attention_forward", query, depth).prepare(
        grid, THREADS, "P" * 5, constants, _shared(2, 1, 1, depth)
    )

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        statistic = pointer(outs[1]) if trains else 0
        fire(backend.stream, pointer(outs[0]), statistic, *[pointer(value) for value in args[:3]])

    return launch


@prepares(ops._attention_backward, keys.CUDA)
def backward(request: Request) -> Launch | None:
    """The gradients of query, key and value"""
    grad, query, key, value, mask, output, logsumexp, is_causal, scale = request.args
    if mask is not None or not suits_tiles(query, key, value) or not logsumexp.is_contiguous:
        return None
    by_query, by_key, by_value = request.outs
    depth, backend = _depth(query, value), request.backend
    shape, deltas = _shape(query, key, value, is_causal, scale), logsumexp.like(dtype=dtypes.float32)
    operands = [*map(_steps, (grad, query, key, value)), shape]
    batch, heads, rows, _ = query.shape
    fire_deltas = _kernel("attention_deltas", query, depth).prepare(
        -(-deltas.numel // _ROWS_OF_DELTAS),
        THREADS,
        "PPP",
        [_steps(grad), _steps(output), shape, ("i64", deltas.numel)],
    )
    fire_query = _kernel("attention_by_query", query, depth).prepare(
        (_tiles(rows), heads, batch), THREADS, "P" * 7, [_steps(by_query), *operands], _shared(4, 1, 1, depth)
    )
    fire_key = _kernel("attention_by_key", query, depth).prepare(
        (_tiles(key.shape[2]), key.shape[1], batch), THREADS, "P" * 8,
        [_steps(by_key), _steps(by_value), *operands], _shared(4, 2, 1, depth),
    )  # fmt: skip

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        stream, delta = backend.stream, backend.empty(deltas)
        from_grad, statistic, means = [pointer(v) for v in args[:4]], pointer(args[6]), pointer(delta)
        fire_deltas(stream, means, from_grad[0], pointer(args[5]))
        fire_query(stream, pointer(outs[0]), *from_grad, statistic, means)
        fire_key(stream, pointer(outs[1]), pointer(outs[2]), *from_grad, statistic, means)

    return launch
