"""Cumulative operations as prepared kernels: what each carries along, and how its lines are cut into tiles."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from server.engine import keys
from server.engine.cuda.runtime.geometry import INDEXING, VECTOR_BYTES, Layout, blocks, collapse, packed
from server.engine.cuda.runtime.launch import load, multiprocessors, nothing
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import scans as ops
from telegrad_protocol.ops.contract import Op

from .layout import ceiling, index_types, needs_wide
from .reduce import BYTES, comparing, computing
from .reduce_text import LOADS
from .scan_text import CARRIES, COLUMN_ROWS, COLUMN_WARPS, FINISH, KERNELS, LINE_ITEMS, TOTALS, WHOLE
from .states import STATES

_LINE_WARPS = 16
_THREADS = 128
"""Of a block that takes several short lines."""
_BUSY = 3
"""Blocks per multiprocessor that keep it busy."""
_MOST_TILES = 2048
"""Of a line: their totals are gone through by one block, or one thread."""
Fire = Callable[..., None]


class Carry(NamedTuple):
    """What is carried along a line: the C++ type and its size."""

    text: str
    nbytes: int


class Lines(NamedTuple):
    """The other dimensions and the scanned one, with strides of both inputs and both results; each may be one twice."""

    others: Layout
    length: int
    steps: Size
    is_wide: bool

    @property
    def number(self) -> int:
        return self.others.numel


class Plan(NamedTuple):
    """A chosen kernel: its body's text up to the phase, threads, blocks of a tile of all lines; tiles of a line and
    parts of a tile; and what turns the totals of tiles into what comes before them: its text, threads, blocks.
    """

    body: str
    threads: int
    strips: int
    tiles: int = 1
    parts: int = 1
    before: str = ""
    before_threads: int = 0
    before_blocks: int = 0
    totals: int = 0


def lines_of(operands: tuple[Meta, Meta, Meta, Meta], dim: int) -> Lines:
    """The lines along ``dim`` of operands of one shape."""
    input = operands[0]
    at = dim % input.ndim if input.ndim else 0
    others = [d for d in range(input.ndim) if d != at]
    layout = collapse(
        tuple([input.shape[d] for d in others]), [tuple([m.strides[d] for d in others]) for m in operands],
        [m.offset for m in operands],
    )  # fmt: skip
    steps = tuple([m.strides[at] if m.ndim else 1 for m in operands])
    length = input.shape[at] if input.ndim else 1
    return Lines(layout, length, steps, needs_wide(*operands))


def choose(lines: Lines, carry: Carry, itemsize: int, processors: int) -> Plan:
    """The kernel for some lines; ``itemsize`` is that of the input."""
    is_along = set(lines.steps) == {1} or lines.length == 1
    return (_along if is_along else _down)(lines, carry, itemsize, processors)


def _along(lines: Lines, carry: Carry, itemsize: int, processors: int) -> Plan:
    between = [step for strides in lines.others.strides for step in strides]
    vector = math.gcd(VECTOR_BYTES // itemsize, lines.length, *between, *lines.others.offsets)
    units = blocks(lines.length, vector)
    lanes = min(ceiling(units), 32)
    items = ceiling(blocks(units, 32))
    if items <= LINE_ITEMS:
        strips = blocks(lines.number, _THREADS // lanes)
        return Plan(f"scan_rows<Carried, {vector}, {items}, {lanes}, 1", _THREADS, strips)
    warps = min(ceiling(blocks(units, 32 * LINE_ITEMS)), _LINE_WARPS)
    body = f"scan_rows<Carried, {vector}, {LINE_ITEMS}, 32, {warps}"
    tiles, parts = _cut(blocks(units, 32 * warps * LINE_ITEMS), lines.number, processors)
    return Plan(
        body, 32 * warps, lines.number, tiles, parts, "exclusive_scan_tiles<Carried>(totals, scan.tiles)", 1024,
        lines.number, tiles * lines.number * carry.nbytes,
    )  # fmt: skip


def _down(lines: Lines, carry: Carry, itemsize: int, processors: int) -> Plan:
    vector = 1
    if all(lines.others.inner(k) == 1 for k in range(4)):
        between = [*[step for s in lines.others.strides for step in s[:-1]], *lines.steps]
        vector = math.gcd(max(1, 4 // itemsize), *lines.others.shape[-1:], *between, *lines.others.offsets)
    rows = min(ceiling(lines.length), COLUMN_ROWS)
    warps = min(ceiling(blocks(lines.length, rows)), COLUMN_WARPS)
    strips = blocks(lines.number, 32 * vector)
    width = strips * 32 * vector
    tiles, parts = _cut(blocks(lines.length, rows * warps), strips, processors)
    return Plan(
        f"scan_columns<Carried, {vector}, {rows}, {warps}", 32 * warps, strips, tiles, parts,
        f"exclusive_scan_rows<Carried>(totals, scan.tiles, (index_t){width})", _THREADS, blocks(width, _THREADS),
        tiles * width * carry.nbytes,
    )  # fmt: skip


def _cut(parts: int, strips: int, processors: int) -> tuple[int, int]:
    """Tiles of a line, and parts of a tile: one tile where other lines keep all processors busy."""
    if strips >= _BUSY * processors:
        return 1, parts
    parts_per_tile = blocks(parts, _MOST_TILES)
    return blocks(parts, parts_per_tile), parts_per_tile


def source(lines: Lines, carry: Carry, threads: int, body: str) -> str:
    """The text of a kernel named ``scan_lines``."""
    return assembled(
        PRELUDE, INDEXING, index_types(lines.is_wide, lines_t=lines.others), STATES, LOADS, CARRIES, KERNELS,
        f"typedef {carry.text} Carried;",
        f'extern "C" __global__ void __launch_bounds__({threads}, {1024 // threads}) scan_lines(',
        "    void* first, void* second, const void* in, const void* other, Carried::Acc* totals,",
        "    const __grid_constant__ Scan scan",
        ") {",
        "    Pointers to = {in, other, first, second};",
        f"    {body};",
        "}\n",
    )  # fmt: skip


def job(lines: Lines, plan: Plan) -> bytes:
    """The structure ``Scan`` of the text."""
    index = "q" if lines.is_wide else "I"
    numbers = struct.pack(f"={8 * index}", lines.number, lines.length, plan.tiles, plan.parts, *lines.steps)
    return packed(lines.others, wide=lines.is_wide) + numbers


def kernels(lines: Lines, carry: Carry, plan: Plan) -> list[Fire]:
    """What is launched, in order."""
    constants = [job(lines, plan)]

    def prepared(body: str, threads: int, grid: int) -> Fire:
        return load(source(lines, carry, threads, body), "scan_lines").prepare(grid, threads, "PPPPP", constants)

    def phase(number: int) -> Fire:
        return prepared(f"{plan.body}, {number}>(to, scan, totals)", plan.threads, plan.strips * plan.tiles)

    if plan.tiles == 1:
        return [phase(WHOLE)]
    return [phase(TOTALS), prepared(plan.before, plan.before_threads, plan.before_blocks), phase(FINISH)]


def running(
    backend: Any, operands: tuple[Meta, Meta, Meta, Meta], dim: int, carry: Carry, places: tuple[int, int]
) -> Launch:
    """A launch over lines along ``dim``; ``places`` are the positions of the inputs among the arguments."""
    lines = lines_of(operands, dim)
    plan = choose(lines, carry, operands[0].dtype.itemsize, multiprocessors(backend.index))
    fires = kernels(lines, carry, plan)
    ins, others, firsts, seconds = (m.offset * m.dtype.itemsize for m in operands)
    at, other = places
    totals = plan.totals if plan.tiles > 1 else 0

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        addresses = (
            outs[0].storage.block.pointer + firsts,
            outs[-1].storage.block.pointer + seconds,
            args[at].storage.block.pointer + ins,
            args[other].storage.block.pointer + others,
            backend.workspace(totals).pointer if totals else 0,
        )
        for fire in fires:
            fire(backend.stream, *addresses)

    return launch


def _file(contract: Op, choose_carry: Callable[[DType, DType], Carry | None]) -> None:
    @prepares(contract, keys.CUDA, deferrable=True)
    def prepare(request: Request) -> Launch | None:
        named = request.named
        input: Meta = named["input"]
        if not input.numel:
            return nothing
        names = list(named)
        at = names.index("input")
        places = (names.index("decay") if "decay" in named else at, at)
        first: Meta = named.get("decay", input)
        if first.dtype is not input.dtype:
            return None
        carry = choose_carry(input.dtype, request.outs[0].dtype)
        if carry is None:
            return None
        return running(request.backend, (first, input, request.outs[0], request.outs[-1]), named["dim"], carry, places)


_WIDER = {"float": "double", "c64": "c128"}
"""Sums and products of single precision are carried in double precision: every partial one is a result."""


def _plain(name: str) -> Callable[[DType, DType], Carry]:
    def choose_carry(element: DType, result: DType) -> Carry:
        kept = CTYPES[computing(result)]
        kept = _WIDER.get(kept, kept) if result.itemsize >= 4 else kept
        return Carry(f"{name}<{CTYPES[element]}, {CTYPES[result]}, {kept}>", BYTES[kept])

    return choose_carry


def _log_sum(element: DType, result: DType) -> Carry | None:
    if element.is_complex:
        return None
    kept = CTYPES[computing(result)]
    return Carry(f"RunningLogSum<{CTYPES[element]}, {kept}>", 2 * BYTES[kept])


def _extreme(largest: str) -> Callable[[DType, DType], Carry]:
    def choose_carry(element: DType, result: DType) -> Carry:
        return Carry(f"RunningExtreme<{CTYPES[element]}, {comparing(element)}, {largest}>", 16)

    return choose_carry


def _recurrence(element: DType, result: DType) -> Carry:
    kept = CTYPES[computing(result)]
    kept = _WIDER.get(kept, kept)
    return Carry(f"Recurrence<{CTYPES[element]}, {kept}>", 2 * BYTES[kept])


_file(ops.cumsum, _plain("RunningSum"))
_file(ops.cumprod, _plain("RunningProduct"))
_file(ops.logcumsumexp, _log_sum)
_file(ops.cummax, _extreme("true"))
_file(ops.cummin, _extreme("false"))
_file(ops._linear_recurrence, _recurrence)
