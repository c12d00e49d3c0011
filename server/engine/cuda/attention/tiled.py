"""Attention by our own tiled kernels: float32, and halves that cuDNN's kernels do not take."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterable
from typing import Any

from server.engine.cuda.runtime.launch import Launch as Fire
from server.engine.cuda.runtime.launch import load, pointer
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.operators import Request
from server.engine.ops.layers.attention import suits_tiles
from server.engine.value import Launch, Value
from telegrad_protocol.meta import Meta

from .forward_text import shared_bytes, text_of
from .products_text import THREADS, TILE

_VECTOR = 4
"""Elements that are read at once: 16 bytes of float32, 8 of a half."""
_DEPTHS = (32, 64, 96, 128)
"""Widths that heads are padded to in shared memory."""


def _steps(meta: Meta) -> bytes:
    return struct.pack("=4q", *meta.strides)


def _shape(query: Meta, key: Meta, value: Meta, is_causal: bool, scale: float) -> bytes:
    heads, shared = query.shape[1], key.shape[1]
    lengths = (query.shape[2], key.shape[2], query.shape[3], value.shape[3])
    sizes = (query.shape[0], heads, heads // shared, *lengths, is_causal)
    return struct.pack("=8i2f", *sizes, scale, scale * math.log2(math.e))


def are_read_in_vectors(operands: Iterable[Meta], width: int) -> bool:
    """Whether rows of all heads are made of whole vectors of so many elements that begin where vectors may."""
    return all([_is_read_in_vectors(meta, width) for meta in operands])


def _is_read_in_vectors(meta: Meta, width: int) -> bool:
    if meta.strides[-1] != 1:
        return False
    apart = [step for size, step in zip(meta.shape[:-1], meta.strides[:-1], strict=True) if size > 1]
    return math.gcd(width, meta.shape[-1], meta.offset, *apart) == width


@functools.lru_cache(maxsize=1 << 8)
def _text(name: str, ctype: str, depth: int, is_fast: bool) -> str:
    """The whole text of a kernel, the same object each time: most of a new shape's time would go into making it."""
    return PRELUDE + text_of(name, ctype, depth, is_fast)


def _prepared(
    name: str, query: Meta, value: Meta, rows: Meta, layouts: tuple[Meta, ...], pointers: int, shape: bytes
) -> Fire:
    """The launch of a kernel that has a block for each 64 of ``rows``; ``layouts`` are those of all tensors."""
    depth = next(depth for depth in _DEPTHS if max(query.shape[3], value.shape[3]) <= depth)
    text = _text(name, CTYPES[query.dtype], depth, are_read_in_vectors(layouts, _VECTOR))
    grid = -(-rows.shape[2] // TILE) * rows.shape[1] * rows.shape[0]
    kernel = load(text, f"attention_{name}")
    return kernel.prepare(grid, THREADS, "P" * pointers, [*map(_steps, layouts), shape], shared_bytes(name, depth))


def forward(request: Request) -> Launch | None:
    """softmax(query @ key.T * scale) @ value, and the logarithms of the rows' sums where backward will need them"""
    query, key, value, mask, is_causal, scale, trains = request.args
    if mask is not None or not suits_tiles(query, key, value):
        return None
    shape, backend = _shape(query, key, value, is_causal, scale), request.backend
    fire = _prepared("forward", query, value, query, (request.outs[0], query, key, value), 5, shape)

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        statistic = pointer(outs[1]) if trains else 0
        fire(backend.stream, pointer(outs[0]), statistic, *[pointer(value) for value in args[:3]])

    return launch


def backward(request: Request) -> Launch | None:
    """The gradients of query, key and value"""
    grad, query, key, value, mask, output, logsumexp, is_causal, scale = request.args
    if mask is not None or not suits_tiles(query, key, value) or not logsumexp.is_contiguous:
        return None
    by_query, by_key, by_value = request.outs
    shape, backend = _shape(query, key, value, is_causal, scale), request.backend
    fire_query = _prepared("by_query", query, value, query, (by_query, grad, output, query, key, value), 8, shape)
    fire_key = _prepared("by_key", query, value, key, (by_key, by_value, grad, query, key, value), 8, shape)

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        stream, deltas = backend.stream, backend.empty(logsumexp)
        grad, query, key, value = [pointer(v) for v in args[:4]]
        output, statistic, delta = pointer(args[5]), pointer(args[6]), pointer(deltas)
        fire_query(stream, pointer(outs[0]), delta, grad, output, query, key, value, statistic)
        fire_key(stream, pointer(outs[1]), pointer(outs[2]), grad, query, key, value, statistic, delta)

    return launch
