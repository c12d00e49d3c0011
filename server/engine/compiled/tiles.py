"""Tiles of products of matrices: some rows by some vectors of sums that stay in the processor's registers.

A row's elements are read from anywhere, by tables of offsets, so that a convolution needs no copy of its windows.
Addresses and offsets count bytes, and are integers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_FLOAT, _LONG, _INT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_FLOAT_BYTES, _LONG_BYTES = 4, 8


def _vectors() -> tuple[int, tuple[tuple[int, int], ...]]:
    """The elements of a vector register, and rows and vectors of the tiles whose sums fit into the registers."""
    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 16, ((12, 2), (8, 1))
    if features.get("avx2") and features.get("fma"):
        return 8, ((6, 2), (8, 1))
    return 4, ((12, 2) if features.get("neon") else (4, 2), (8, 1))


LANES, SHAPES = _vectors()
_VECTOR, _VECTOR_BYTES, _FMA = ir.VectorType(_FLOAT, LANES), LANES * _FLOAT_BYTES, f"llvm.fma.v{LANES}f32"
_ZEROS = ir.Constant(_VECTOR, [0.0] * LANES)
_EVERYWHERE = ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES)


def _at(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _load(builder: Any, address: Any, kind: Any) -> Any:
    loaded = builder.load(_at(builder, address, kind))
    loaded.align = _FLOAT_BYTES
    return loaded


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, _at(builder, address, value.type)).align = _FLOAT_BYTES


def _constant(number: int) -> Any:
    return ir.Constant(_LONG, number)


@intrinsic  # type: ignore[untyped-decorator]
def read(typing: Any, address: Any) -> Any:
    """The float32 at an address."""
    return types.float32(types.int64), lambda context, builder, signature, args: _load(builder, args[0], _FLOAT)


@intrinsic  # type: ignore[untyped-decorator]
def element(typing: Any, one: Any, address: Any, place: Any) -> Any:
    """The number of one's type at a place behind an address, which the compiler sees to be an array's."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        size = signature.args[0].bitwidth // 8
        kind = _FLOAT if size == 4 else ir.DoubleType()
        loaded = builder.load(builder.gep(_at(builder, args[1], kind), [args[2]]))
        loaded.align = size
        return loaded

    return one(one, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def write(typing: Any, address: Any, number: Any) -> Any:
    """Write a number at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(builder, args[1], args[0])
        return context.get_dummy_value()

    return types.void(types.int64, number), generate


@intrinsic  # type: ignore[untyped-decorator]
def move(typing: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy so many float32 between addresses that do not overlap: for short rows a loop's checks take longer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = [builder.inttoptr(address, ir.IntType(8).as_pointer()) for address in args[:2]]
        cgutils.raw_memcpy(builder, *places, args[2], _FLOAT_BYTES)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def tile(
    typing: Any, rows: Any, vectors: Any, source: Any, starts: Any, steps: Any, panel: Any, length: Any, sums: Any
) -> Any:  # fmt: skip
    """Add the product of ``rows`` x ``length`` elements and a panel of ``length`` x ``vectors`` * LANES to sums.

    Panel and sums are row-major. The element in row r and column k is at ``source`` + ``starts[r]`` + ``steps[k]``;
    these two are addresses of int64 numbers. ``rows`` and ``vectors`` are known when this is compiled.
    """
    generate = _Tile(rows.literal_value, vectors.literal_value)
    return types.void(rows, vectors, *[types.int64] * 6), generate


class _Tile:
    """What writes the instructions of a tile of so many rows and vectors."""

    def __init__(self, rows: int, vectors: int) -> None:
        self._rows, self._vectors = range(rows), range(vectors)
        self._width = vectors * LANES * _FLOAT_BYTES

    def __call__(self, context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, starts, steps, panel, length, sums = args[2:]
        bases = [
            builder.add(source, _load(builder, _moved(builder, starts, r * _LONG_BYTES), _LONG)) for r in self._rows
        ]
        before, loop, after = builder.block, *[builder.append_basic_block(name) for name in ("columns", "sums")]
        builder.branch(loop)
        builder.position_at_end(loop)
        column = builder.phi(_LONG)
        totals = [builder.phi(_VECTOR) for _ in self._rows for _ in self._vectors]
        following = builder.add(column, _constant(1))
        products = self._add_products(builder, bases, steps, panel, column, totals)
        for phi, first, then in [
            (column, _constant(0), following),
            *[(t, _ZEROS, p) for t, p in zip(totals, products)],
        ]:
            phi.add_incoming(first, before)
            phi.add_incoming(then, loop)
        builder.cbranch(builder.icmp_signed("<", following, length), loop, after)
        builder.position_at_end(after)
        for number, product in enumerate(products):
            place = _moved(builder, sums, number * _VECTOR_BYTES)
            _store(builder, builder.fadd(_load(builder, place, _VECTOR), product), place)
        return context.get_dummy_value()

    def _add_products(self, builder: Any, bases: Any, steps: Any, panel: Any, column: Any, totals: Any) -> list[Any]:
        """The totals after one more column."""
        fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), _FMA)
        left, right = self._columns(builder, bases, steps, panel, column)
        pairs = [(l, r) for l in left for r in right]
        return [builder.call(fma, [*pair, total]) for pair, total in zip(pairs, totals, strict=True)]

    def _columns(self, builder: Any, bases: Any, steps: Any, panel: Any, column: Any) -> tuple[list[Any], list[Any]]:
        """The vectors of a column of the left side, each of one element, and of a row of the panel."""
        step = _load(builder, builder.add(steps, builder.mul(column, _constant(_LONG_BYTES))), _LONG)
        row = builder.add(panel, builder.mul(column, _constant(self._width)))
        right = [_load(builder, _moved(builder, row, v * _VECTOR_BYTES), _VECTOR) for v in self._vectors]
        return [_spread(builder, _load(builder, builder.add(base, step), _FLOAT)) for base in bases], right


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def tile_of_pairs(
    typing: Any, rows: Any, vectors: Any, source: Any, starts: Any, steps: Any, panel: Any, length: Any, sums: Any
) -> Any:  # fmt: skip
    """The same for bfloat16, of which an element of the left side and of the panel is a pair of neighbours.

    Products of a pair are added at once. Only processors of ``HAS_PAIRS`` have the instruction.
    """
    generate = _TileOfPairs(rows.literal_value, vectors.literal_value)
    return types.void(rows, vectors, *[types.int64] * 6), generate


class _Half(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Half)

    def __hash__(self) -> int:
        return hash(_Half)


HAS_PAIRS = bool(LANES == 16 and binding.get_host_cpu_features().get("avx512bf16"))
PAIRS_PAY = HAS_PAIRS and binding.get_host_cpu_name().startswith("znver")
"""AMD's processors do twice as many products as in single precision in the same time; Intel's Sapphire Rapids half as
many, with which its own library needs 1.8 times as long for bfloat16 as for float32."""


class _TileOfPairs(_Tile):
    def _add_products(self, builder: Any, bases: Any, steps: Any, panel: Any, column: Any, totals: Any) -> list[Any]:
        pairs = ir.VectorType(_Half(), 2 * LANES)
        kind = ir.FunctionType(_VECTOR, [_VECTOR, pairs, pairs])
        add = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")
        left, right = self._columns(builder, bases, steps, panel, column)
        left, right = ([builder.bitcast(vector, pairs) for vector in side] for side in (left, right))
        both = [(l, r) for l in left for r in right]
        return [builder.call(add, [total, *pair]) for pair, total in zip(both, totals, strict=True)]


def _moved(builder: Any, address: Any, count: int) -> Any:
    return builder.add(address, _constant(count))


def _spread(builder: Any, number: Any) -> Any:
    """A vector of which every element is the number."""
    unset = ir.Constant(_VECTOR, ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(unset, number, ir.Constant(_INT, 0)), unset, _EVERYWHERE)
