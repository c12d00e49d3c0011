"""Vectors of numbers in the processor's registers, written as LLVM's instructions: what Fourier transforms are made of.

A complex vector is a pair: the real parts and the imaginary parts of as many numbers as the register has lanes.
Addresses count bytes, and are integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .tiles import LANES

Pair = tuple[Any, Any]
LONG, _INT, _BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)
_NUMBERS = {4: ir.FloatType(), 8: ir.DoubleType()}
WIDTHS = {4: LANES, 8: LANES // 2}
"""The lanes of a vector, by the bytes of a number."""


class Vectors:
    """Writes instructions on vectors of floating-point numbers of so many bytes."""

    def __init__(self, builder: Any, size: int) -> None:
        self.builder, self.lanes, self.number = builder, WIDTHS[size], _NUMBERS[size]
        self.bytes = size
        self.vector = ir.VectorType(self.number, self.lanes)
        self._name = f"v{self.lanes}f{8 * self.bytes}"

    def moved(self, address: Any, count: int) -> Any:
        """The address so many bytes further on."""
        return self.builder.add(address, ir.Constant(LONG, count)) if count else address

    def scaled(self, count: int, step: Any) -> Any:
        """So many steps, in bytes."""
        return self.builder.mul(ir.Constant(LONG, count), step)

    def load(self, address: Any, kind: Any = None) -> Any:
        """The vector at an address, or a number of another type."""
        loaded = self.builder.load(self.builder.inttoptr(address, (kind or self.vector).as_pointer()))
        loaded.align = self.bytes
        return loaded

    def store(self, value: Any, address: Any) -> None:
        """Write a vector at an address."""
        self.builder.store(value, self.builder.inttoptr(address, value.type.as_pointer())).align = self.bytes

    def first_lanes(self, count: Any) -> Any:
        """A mask of so many lanes, counted from the first one; all of them where that is more than there are."""
        lanes = ir.Constant(ir.VectorType(_INT, self.lanes), list(range(self.lanes)))
        number = self.builder.insert_element(lanes, self.builder.trunc(count, _INT), ir.Constant(_INT, 0))
        everywhere = self.shuffle(number, number, [0] * self.lanes)
        return self.builder.icmp_signed("<", lanes, everywhere)

    def load_lanes(self, address: Any, mask: Any) -> Any:
        """The lanes of a mask from an address on; zeros are in the others, whose memory is not touched."""
        kind = ir.FunctionType(self.vector, [self.vector.as_pointer(), _INT, mask.type, self.vector])
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.masked.load.{self._name}.p0")
        pointer = self.builder.inttoptr(address, self.vector.as_pointer())
        return self.builder.call(function, [pointer, ir.Constant(_INT, self.bytes), mask, self.constant(0.0)])

    def store_lanes(self, value: Any, address: Any, mask: Any) -> None:
        """Write the lanes of a mask, and leave what is in the memory of the others."""
        kind = ir.FunctionType(ir.VoidType(), [self.vector, self.vector.as_pointer(), _INT, mask.type])
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.masked.store.{self._name}.p0")
        pointer = self.builder.inttoptr(address, self.vector.as_pointer())
        self.builder.call(function, [value, pointer, ir.Constant(_INT, self.bytes), mask])

    def prefetch(self, address: Any, is_written: bool) -> None:
        """Have the processor fetch what is at an address, as it will soon be read or written."""
        kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), *[_INT] * 3])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        hints = [ir.Constant(_INT, number) for number in (int(is_written), 3, 1)]
        self.builder.call(function, [self.builder.inttoptr(address, _BYTE.as_pointer()), *hints])

    def spread(self, number: Any) -> Any:
        """A vector of which every lane is the number."""
        unset = ir.Constant(self.vector, ir.Undefined)
        lane = self.builder.insert_element(unset, number, ir.Constant(_INT, 0))
        return self.shuffle(lane, unset, [0] * self.lanes)

    def constant(self, number: float) -> Any:
        """The same, of a number that is known when this is compiled."""
        return ir.Constant(self.vector, [number] * self.lanes)

    def broadcast(self, address: Any) -> Any:
        """A vector of which every lane is the number at an address."""
        return self.spread(self.load(address, self.number))

    def shuffle(self, a: Any, b: Any, order: Sequence[int]) -> Any:
        """The lanes of two vectors, which are counted on from the first to the second, in an order."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT, len(order)), list(order)))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once."""
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.fma.{self._name}")
        return self.builder.call(function, [a, b, c])

    def times(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b)

    def negative(self, a: Any) -> Any:
        return self.builder.fneg(a)

    def plus(self, a: Pair, b: Pair) -> Pair:
        """The sum of complex vectors."""
        return self.builder.fadd(a[0], b[0]), self.builder.fadd(a[1], b[1])

    def minus(self, a: Pair, b: Pair) -> Pair:
        """Their difference."""
        return self.builder.fsub(a[0], b[0]), self.builder.fsub(a[1], b[1])

    def product(self, a: Pair, b: Pair) -> Pair:
        """Their product."""
        real = self.fma(a[0], b[0], self.negative(self.times(a[1], b[1])))
        return real, self.fma(a[0], b[1], self.times(a[1], b[0]))

    def pair_at(self, address: Any) -> Pair:
        """The complex vector at an address: the real parts, and behind them the imaginary ones."""
        return self.load(address), self.load(self.moved(address, self.lanes * self.bytes))

    def write_pair(self, value: Pair, address: Any) -> None:
        """Write one."""
        self.store(value[0], address)
        self.store(value[1], self.moved(address, self.lanes * self.bytes))

    def number_at(self, address: Any) -> Pair:
        """A complex vector of which every lane is the number at an address."""
        return self.broadcast(address), self.broadcast(self.moved(address, self.bytes))

    def apart(self, address: Any) -> Pair:
        """The complex vector that is at an address as numbers whose two parts are neighbours."""
        first, second = self.pair_at(address)
        lanes = range(0, 2 * self.lanes, 2)
        return self.shuffle(first, second, lanes), self.shuffle(first, second, [lane + 1 for lane in lanes])

    def write_together(self, value: Pair, address: Any) -> None:
        """Write a complex vector that way."""
        order = [lane + part * self.lanes for lane in range(self.lanes) for part in (0, 1)]
        self.store(self.shuffle(*value, order[: self.lanes]), address)
        second = self.shuffle(*value, order[self.lanes :])
        self.store(second, self.moved(address, self.lanes * self.bytes))

    def reversed(self, value: Pair) -> Pair:
        """A complex vector whose lanes are in the opposite order."""
        order = range(self.lanes - 1, -1, -1)
        return self.shuffle(value[0], value[0], order), self.shuffle(value[1], value[1], order)

    def transposed(self, rows: Sequence[Any]) -> list[Any]:
        """As many vectors as there are lanes, as columns: blocks of 1, 2, 4, ... lanes change places."""
        rows, lanes = list(rows), range(self.lanes)
        step = 1
        while step < self.lanes:
            for i in [i for i in lanes if not i & step]:
                a, b = rows[i], rows[i + step]
                rows[i] = self.shuffle(a, b, [j - step + self.lanes if j & step else j for j in lanes])
                rows[i + step] = self.shuffle(a, b, [j + self.lanes if j & step else j + step for j in lanes])
            step *= 2
        return rows


class SparseVectors(Vectors):
    """The same where vectors of zeros are None: no instructions are written for sums and products with them."""

    def __init__(self, builder: Any, size: int) -> None:
        super().__init__(_SparseBuilder(builder), size)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        if a is None or b is None:
            return c
        return self.times(a, b) if c is None else super().fma(a, b, c)


class _SparseBuilder:
    """Writes the instructions of another builder, but sums and products of what is None."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def fadd(self, a: Any, b: Any) -> Any:
        return b if a is None else a if b is None else self._builder.fadd(a, b)

    def fsub(self, a: Any, b: Any) -> Any:
        return self.fneg(b) if a is None else a if b is None else self._builder.fsub(a, b)

    def fneg(self, a: Any) -> Any:
        return None if a is None else self._builder.fneg(a)

    def fmul(self, a: Any, b: Any) -> Any:
        return None if a is None or b is None else self._builder.fmul(a, b)
