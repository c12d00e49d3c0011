"""Cumulative operations as prepared kernels: what each carries along, and how its lines are cut into tiles."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import scans as ops
from telegrad_protocol.ops.contract import Op

from .. import keys
from ..operators import Launch, Request, prepares
from ..value import Value
from .geometry import INDEXING, VECTOR_BYTES, Layout, blocks, collapse, packed
from .launch import load
from .prelude import CTYPES, PRELUDE
from .reduce import BYTES, comparing, computing
from .reduce_launch import counters, nothing
from .reduce_layout import flag, index_types, needs_wide
from .reduce_states import STATES
from .reduce_text import LOADS
from .scan_text import CARRIES, COLUMN_ROWS, COLUMN_WARPS, GROUP, KERNELS, LINE_ITEMS, SHARED_LINE_ITEMS

_LINE_WARPS = 16
_THREADS = 128
"""Of a block that takes several short lines."""


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
    """A chosen kernel: its body's text, threads, blocks; tiles of a line; counters and totals that tiles share."""

    body: str
    threads: int
    grid: int
    tiles: int
    counters: int = 0
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


def choose(lines: Lines, carry: Carry, itemsize: int) -> Plan:
    """The kernel for some lines; ``itemsize`` is that of the input."""
    is_along = set(lines.steps) == {1} or lines.length == 1
    return (_along if is_along else _down)(lines, carry, itemsize)


def _along(lines: Lines, carry: Carry, itemsize: int) -> Plan:
    between = [step for strides in lines.others.strides for step in strides]
    vector = math.gcd(VECTOR_BYTES // itemsize, lines.length, *between, *lines.others.offsets)
    units = blocks(lines.length, vector)
    lanes = min(1 << (units - 1).bit_length(), 32)
    each = 1 << max(blocks(units, 32) - 1, 0).bit_length()
    if each <= LINE_ITEMS:
        grid = blocks(lines.number, _THREADS // lanes)
        return Plan(f"along_lines<Carried, {vector}, {each}, {lanes}, 1, false>(to, scan, shared)", _THREADS, grid, 1)
    each = LINE_ITEMS if units <= 32 * _LINE_WARPS * LINE_ITEMS else SHARED_LINE_ITEMS
    warps = min(1 << (blocks(units, 32 * each) - 1).bit_length(), _LINE_WARPS)
    tiles = blocks(units, 32 * warps * each)
    body = f"along_lines<Carried, {vector}, {each}, 32, {warps}, {flag(tiles > 1)}>(to, scan, shared)"
    return _shared(body, 32 * warps, lines.number, tiles, carry.nbytes)


def _down(lines: Lines, carry: Carry, itemsize: int) -> Plan:
    vector = 1
    if all(lines.others.inner(k) == 1 for k in range(4)):
        between = [*[step for s in lines.others.strides for step in s[:-1]], *lines.steps]
        most = max(1, 4 // itemsize)
        vector = math.gcd(most, *lines.others.shape[-1:], *between, *lines.others.offsets)
    rows = min(1 << (lines.length - 1).bit_length(), COLUMN_ROWS)
    warps = min(1 << (blocks(lines.length, rows) - 1).bit_length(), COLUMN_WARPS)
    tiles = blocks(lines.length, rows * warps)
    body = f"down_columns<Carried, {vector}, {rows}, {warps}, {flag(tiles > 1)}>(to, scan, shared)"
    return _shared(body, 32 * warps, blocks(lines.number, 32 * vector), tiles, 32 * vector * carry.nbytes)


def _shared(body: str, threads: int, strips: int, tiles: int, nbytes: int) -> Plan:
    if tiles == 1:
        return Plan(body, threads, strips, 1)
    boards = strips * (tiles + blocks(tiles, GROUP))
    return Plan(body, threads, strips * tiles, tiles, 2 + boards, boards * nbytes)


def source(lines: Lines, carry: Carry, plan: Plan) -> str:
    """The text of a kernel named ``scan_lines``."""
    return "\n".join((
        PRELUDE, INDEXING, index_types(lines.is_wide, lines_t=lines.others), STATES, LOADS, CARRIES, KERNELS,
        f"typedef {carry.text} Carried;",
        f'extern "C" __global__ void __launch_bounds__({plan.threads}, {1024 // plan.threads}) scan_lines(',
        "    void* first, void* second, const void* in, const void* other, void* totals, u32* counters,",
        "    const __grid_constant__ Scan scan",
        ") {",
        "    Pointers to = {in, other, first, second};",
        "    Shared shared = {counters, totals};",
        f"    {plan.body};",
        "}\n",
    ))  # fmt: skip


def job(lines: Lines, plan: Plan) -> bytes:
    """The structure ``Scan`` of the text."""
    index = "q" if lines.is_wide else "I"
    numbers = struct.pack(f"={7 * index}", lines.number, lines.length, plan.tiles, *lines.steps)
    return packed(lines.others, wide=lines.is_wide) + numbers


def running(
    backend: Any, operands: tuple[Meta, Meta, Meta, Meta], dim: int, carry: Carry, places: tuple[int, int]
) -> Launch:
    """A launch over lines along ``dim``; ``places`` are the positions of the inputs among the arguments."""
    lines = lines_of(operands, dim)
    plan = choose(lines, carry, operands[0].dtype.itemsize)
    fire = load(source(lines, carry, plan), "scan_lines").prepare(plan.grid, plan.threads, "PPPPPP", [job(lines, plan)])
    ins, others, firsts, seconds = (m.offset * m.dtype.itemsize for m in operands)
    at, other = places
    used, totals = plan.counters, plan.totals

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        fire(
            backend.stream,
            outs[0].storage.block.pointer + firsts,
            outs[-1].storage.block.pointer + seconds,
            args[at].storage.block.pointer + ins,
            args[other].storage.block.pointer + others,
            backend.workspace(totals).pointer if totals else 0,
            counters(backend, used) if totals else 0,
        )

    return launch


def _file(contract: Op, choose_carry: Callable[[DType, DType], Carry]) -> None:
    @prepares(contract, keys.CUDA)
    def prepare(request: Request) -> Launch | None:
        named = {p.name: arg for p, arg in zip(request.op.params, request.args, strict=True)}
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
        return running(request.backend, (first, input, request.outs[0], request.outs[-1]), named["dim"], carry, places)


_WIDER = {"float": "double", "c64": "c128"}
"""Sums of single precision are carried in double precision: every partial sum is a result."""


def _sum(element: DType, result: DType) -> Carry:
    kept = CTYPES[computing(result)]
    kept = _WIDER.get(kept, kept) if result.itemsize >= 4 else kept
    return Carry(f"RunningSum<{CTYPES[element]}, {CTYPES[result]}, {kept}>", BYTES[kept])


def _product(element: DType, result: DType) -> Carry:
    kept = CTYPES[computing(result)]
    return Carry(f"RunningProduct<{CTYPES[element]}, {CTYPES[result]}, {kept}>", BYTES[kept])


def _extreme(largest: str) -> Callable[[DType, DType], Carry]:
    def choose_carry(element: DType, result: DType) -> Carry:
        return Carry(f"RunningExtreme<{CTYPES[element]}, {comparing(element)}, {largest}>", 16)

    return choose_carry


def _recurrence(element: DType, result: DType) -> Carry:
    kept = CTYPES[computing(result)]
    kept = _WIDER.get(kept, kept)
    return Carry(f"Recurrence<{CTYPES[element]}, {kept}>", 2 * BYTES[kept])


_file(ops.cumsum, _sum)
_file(ops.cumprod, _product)
_file(ops.cummax, _extreme("true"))
_file(ops.cummin, _extreme("false"))
_file(ops._linear_recurrence, _recurrence)
