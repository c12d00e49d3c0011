"""From a walk and a state to a launch: which kernel of ``reduce_text``, how many threads and blocks.

Knows no operation: a state comes as its C++ type and size.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from server.allocator import Block
from server.engine.cuda.runtime.geometry import INDEXING, VECTOR_BYTES, blocks, packed
from server.engine.cuda.runtime.launch import load, multiprocessors
from server.engine.cuda.runtime.prelude import PRELUDE, assembled
from server.engine.device.cupy_module import cp
from server.engine.value import Launch, Value

from .layout import Walk, ceiling, flag, floor, index_types
from .reduce_text import KERNELS, LOADS
from .states import STATES

_FEW_THREADS = 256
_COLUMN_THREADS = 256
_MOST_UNITS = 8
"""Accesses of one thread that are in flight at once, where a result is made by a part of a warp."""
_MOST_ROW_THREADS = 512
_BLOCKS_AT_ONCE = 2
"""Blocks of the most threads that surely run at once on a multiprocessor."""
_WAVES = 4
_STATE_BYTES = 128
"""Of the states of one thread, in registers."""
_TICKETS = 8192


class State(NamedTuple):
    """What is kept while a reduction runs: the C++ type, its size, and the number that its functions get."""

    text: str
    nbytes: int
    value: float = 0.0


class Shape(NamedTuple):
    """A chosen kernel: its body's text, threads and blocks; what its job says; and bytes of states kept by blocks.

    ``vector`` is how many elements a unit along the reduced dimensions has, where these are not one line. ``lanes`` of
    the threads share a result, or have neighbouring columns. The body depends on classes of lengths only: vectors, and
    accesses of one thread that are in flight at once, in powers of two.
    """

    body: str
    threads: int
    grid: int
    units: int
    vector: int
    splits: int = 1
    chunk: int = 0
    partial: int = 0
    lanes: int = 32


def reduction(backend: Any, walk: Walk, state: State, itemsize: int, itemsizes: tuple[int, int]) -> Launch:
    """A launch that reduces its first argument into its results. ``itemsizes`` are those of the two results."""
    shape = choose(walk, state, itemsize, multiprocessors(backend.index))
    kernel = load(source(walk, state, shape), "reduce")
    fire = kernel.prepare(shape.grid, shape.threads, "PPPPP", [job(walk, state, shape)])
    begin = walk.kept.offsets[0] * itemsize
    first, second = (offset * size for offset, size in zip(walk.kept.offsets[1:], itemsizes, strict=True))
    if shape.splits == 1:

        def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
            target = outs[0].storage.block.pointer + first
            other = outs[-1].storage.block.pointer + second
            fire(backend.stream, target, other, args[0].storage.block.pointer + begin, 0, 0)

        return launch
    nbytes = shape.partial

    def launch_split(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        target = outs[0].storage.block.pointer + first
        other = outs[-1].storage.block.pointer + second
        source = args[0].storage.block.pointer + begin
        fire(backend.stream, target, other, source, backend.workspace(nbytes).pointer, counters(backend))

    return launch_split


def choose(walk: Walk, state: State, itemsize: int, processors: int) -> Shape:
    """The kernel for a walk."""
    if walk.goes_down_columns and walk.length > 1:
        return _columns(walk, state, itemsize, processors)
    vector = walk.row_vector(itemsize)
    units = walk.length // vector
    if units <= 32 * _MOST_UNITS and (vector * itemsize >= 4 or units <= 128 or not walk.is_line):
        return _sub_warp_rows(walk, vector, units)
    widest = VECTOR_BYTES // itemsize
    if walk.is_line and vector < widest and walk.length // widest <= 32 * _MOST_UNITS:
        return _misaligned_rows(walk, widest)
    return _blocks(walk, state, itemsize, vector, processors)


def _sub_warp_rows(walk: Walk, vector: int, units: int) -> Shape:
    lanes = min(ceiling(units), 32)
    units_per_lane = ceiling(blocks(units, lanes))
    at_once = max(1, _MOST_UNITS // 2 // units_per_lane)
    numbers = f"{vector}, {units_per_lane}, {at_once}, {flag(walk.is_line)}"
    body = f"sub_warp_rows<Op, {numbers}>(first, second, in, job)"
    return Shape(
        body, _FEW_THREADS, blocks(walk.results, _FEW_THREADS // lanes * at_once), units,
        1 if walk.is_line else vector, lanes=lanes,
    )  # fmt: skip


def _misaligned_rows(walk: Walk, vector: int) -> Shape:
    units_per_lane = ceiling(blocks(walk.length // vector, 32))
    at_once = max(1, _MOST_UNITS // 2 // units_per_lane)
    grid = blocks(walk.results, _FEW_THREADS // 32 * at_once)
    body = f"misaligned_rows<Op, {vector}, {units_per_lane}, {at_once}>(first, second, in, job)"
    return Shape(body, _FEW_THREADS, grid, walk.length, 1)


def _blocks(walk: Walk, state: State, itemsize: int, vector: int, processors: int) -> Shape:
    if walk.is_line:
        vector = VECTOR_BYTES // itemsize
    units = walk.length // vector
    threads = min(max(floor(units // 8), 64), _MOST_ROW_THREADS)
    splits = _splits(walk.results, processors * _BLOCKS_AT_ONCE, units // (threads * 8))
    body = f"block_rows<Op, {vector}, {flag(walk.is_line)}>(first, second, in, partial, tickets, job)"
    return Shape(
        body, threads, walk.results * splits, walk.length if walk.is_line else units, 1 if walk.is_line else vector,
        splits, partial=walk.results * splits * state.nbytes,
    )  # fmt: skip


def _columns(walk: Walk, state: State, itemsize: int, processors: int) -> Shape:
    vector = walk.column_vector(itemsize, floor(_STATE_BYTES // state.nbytes))
    units = walk.results // vector
    across = min(ceiling(units), _COLUMN_THREADS // min(floor(walk.length // 4), 8))
    down = _COLUMN_THREADS // across
    tiles = blocks(units, across)
    at_once = processors * _BLOCKS_AT_ONCE * _MOST_ROW_THREADS // _COLUMN_THREADS
    chunk = blocks(walk.length, _splits(tiles, at_once, walk.length // (down * 16)))
    splits = blocks(walk.length, chunk)
    body = f"columns<Op, {vector}>(first, second, in, partial, tickets, job)"
    return Shape(
        body, _COLUMN_THREADS, tiles * splits, walk.length, 1, splits, chunk,
        tiles * splits * across * vector * state.nbytes, across,
    )  # fmt: skip


def _splits(pieces: int, at_once: int, most: int) -> int:
    """Blocks per piece of work: all run at once where pieces are few; else enough that the last ones are no matter."""
    if pieces > _TICKETS:
        return 1
    wanted = at_once // pieces if pieces * 8 <= at_once else blocks(_WAVES * at_once, pieces)
    return max(1, min(wanted, most))


def source(walk: Walk, state: State, shape: Shape) -> str:
    """The text of a kernel named ``reduce``."""
    types = index_types(walk.is_wide, kept_t=walk.kept, reduced_t=walk.reduced)
    return assembled(
        PRELUDE, INDEXING, types, STATES, LOADS, KERNELS, f"typedef {state.text} Op;",
        f'extern "C" __global__ void __launch_bounds__({_MOST_ROW_THREADS}, {_BLOCKS_AT_ONCE}) reduce(',
        "    typename Op::First* first, typename Op::Second* second, const typename Op::In* __restrict__ in,",
        "    void* partial, u32* tickets, const __grid_constant__ Job job",
        f") {{ {shape.body}; }}\n",
    )  # fmt: skip


def job(walk: Walk, state: State, shape: Shape) -> bytes:
    """The structure ``Job`` of the text."""
    layouts = packed(walk.kept, wide=walk.is_wide) + packed(walk.reduced, shape.vector, wide=walk.is_wide)
    index = "q" if walk.is_wide else "I"
    numbers = struct.pack(f"={index * 3}2I", walk.results, shape.units, shape.chunk, shape.splits, shape.lanes)
    text = struct.pack("=d", state.value) + layouts + numbers
    return text + bytes(-len(text) % 8)


_COUNTERS: dict[tuple[int, int], Block] = {}


def counters(backend: Any) -> int:
    """32-bit numbers for kernels on the current stream: zero when one begins, and left at zero by it."""
    key = backend.index, backend.stream
    block = _COUNTERS.get(key)
    if block is None:
        with backend.exclusive_allocator() as allocator:
            block = _COUNTERS[key] = allocator.allocate(4 * _TICKETS, backend.stream)
        backend.flush()
        cp.cuda.runtime.memsetAsync(block.pointer, 0, 4 * _TICKETS, backend.stream)
    return block.pointer
