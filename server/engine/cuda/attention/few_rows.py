"""Attention of few rows of queries on any number of keys, with or without a mask: one kernel for all lengths.

Where there are too few heads to occupy a GPU and many keys, blocks share the keys of a head, and a second kernel merges
what they have found.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final, NamedTuple

from server.engine.cuda.runtime.geometry import VECTOR_BYTES
from server.engine.cuda.runtime.launch import load, pointer
from server.engine.cuda.runtime.overlapping import OVERLAPPING
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.operators import Request
from server.engine.ops.layers.attention import suits_few_rows
from server.engine.value import Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.layout import broadcast_strides
from telegrad_protocol.meta import Meta

from .few_rows_text import text_of
from .tiled import are_read_in_vectors

_WARP: Final = 32
_MOST_ROWS: Final = 8
"""Rows whose queries a thread holds at once."""
_BLOCKS: Final = 264
"""Blocks that occupy a GPU: two for each multiprocessor of an H100."""
_ALONE: Final = 512
"""So many keys take one block less time than it takes to merge those of several."""
_SHARED: Final = 4
"""With so many rows for a head of keys cuDNN's kernels read these faster."""
_LEAST_SPAN: Final = 128
"""Keys of a block at least, where blocks share those of a head."""


class _Shares(NamedTuple):
    """What threads hold: elements read at once, lanes of a key, vectors of a lane, rows; threads of a block."""

    vector: int
    lanes: int
    pieces: int
    rows: int
    threads: int


def _shares(operands: tuple[Meta, ...], width: int, rows: int) -> _Shares:
    vector = VECTOR_BYTES // operands[0].dtype.itemsize
    if not are_read_in_vectors(operands, vector):
        vector = 1
    lanes = min(_WARP, 1 << (-(-width // vector) - 1).bit_length())
    held = min(_MOST_ROWS, 1 << (rows - 1).bit_length())
    return _Shares(vector, lanes, -(-width // (vector * lanes)), held, 128 if held == _MOST_ROWS else 256)


def is_fastest(query: Meta, key: Meta, mask: Meta | None) -> bool:
    """Whether no plan of cuDNN's is faster: with few rows for each head of keys, or with a mask."""
    return mask is not None or query.shape[1] * query.shape[2] < _SHARED * key.shape[1]


def _splits(columns: int, blocks: int) -> int:
    """How many blocks share the keys of a head, of which there are so many without sharing."""
    if columns <= _ALONE:
        return 1
    return max(1, min(_BLOCKS // blocks, -(-columns // _LEAST_SPAN)))


def _steps(strides: tuple[int, ...]) -> bytes:
    return struct.pack("=4q", *strides)


def forward(request: Request) -> Launch | None:
    """softmax(query @ key.T * scale + mask) @ value where no backward pass will need the rows' sums"""
    query, key, value, mask, is_causal, scale, trains = request.args
    if trains or not suits_few_rows(query, key, value):
        return None
    (samples, heads, rows, width), shared = query.shape, key.shape[1]
    columns, depth, group = key.shape[2], value.shape[3], heads // shared
    count = rows * group
    shares = _shares((query, key, value), max(width, depth), count)
    tiles = -(-count // shares.rows)
    splits = _splits(columns, tiles * shared * samples)
    span = -(-columns // splits)
    sizes = (shared, group, rows, columns, width, depth, tiles, is_causal, splits, span)
    shape = struct.pack("=10if", *sizes, scale * math.log2(math.e))
    kinds = ("", (0,) * 4) if mask is None else _kind_of_mask(mask, (samples, heads, rows, columns))
    text = assembled(PRELUDE, OVERLAPPING, text_of(CTYPES[query.dtype], kinds[0], *shares))
    layouts = [_steps(meta.strides) for meta in (request.outs[0], query, key, value)]
    fire = load(text, "attention_few_rows").prepare(
        (splits, shared * tiles, samples), shares.threads, "PPPPPP", [*layouts, _steps(kinds[1]), shape], overlaps=True
    )
    backend = request.backend
    merge = None if splits == 1 else load(text, "attention_merge_parts").prepare(
        samples * shared * count, min(256, -(-depth // _WARP) * _WARP), "PP", [layouts[0], shape], overlaps=True
    )  # fmt: skip
    scratch = Meta.of((samples * shared * count * splits * (depth + 2),), dtypes.float32, query.device)

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        held = None if merge is None else backend.empty(scratch)
        parts = 0 if held is None else pointer(held)
        at_mask = 0 if mask is None else pointer(args[3])
        fire(backend.stream, pointer(outs[0]), parts, *[pointer(operand) for operand in args[:3]], at_mask)
        if merge is not None:
            merge(backend.stream, pointer(outs[0]), parts)

    return launch


def _kind_of_mask(mask: Meta, scores: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The C type of a mask, empty for that of the operands, and its steps for scores of a shape."""
    return ("bool" if mask.dtype is dtypes.bool_ else ""), broadcast_strides(mask.shape, mask.strides, scores)
