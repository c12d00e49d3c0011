"""A loop over arrays of one shape in LLVM's assembly language: each element is loaded, computed with, and stored.

Arrays may have any strides, which are given when the loop runs; along the innermost dimension it is known beforehand
whether elements are neighbours, or one element stands for all, so that the compiler can vectorise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from server.engine.array_library.dtypes import HALVES
from server.engine.programs.fused import Compute, Register, is_cast
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

from .native import ATTRIBUTES, Emit, arithmetic_of

NAME = "loop"
UNIT, SINGLE, GENERAL = range(3)
"""How an array lies along the innermost dimension: side by side, one element for all, or in steps."""


class Operand(NamedTuple):
    """An array: its elements' type, how it lies, the register that it is read into and the one that is written to it.

    None stands for an array that is not read, or not written.
    """

    dtype: DType
    lies: int
    read: int | None
    written: int | None


class Part(NamedTuple):
    """One computation: the register of its result, and what emits its instructions."""

    register: int
    compute: Compute
    emit: Emit


def text_of(
    operands: Sequence[Operand], parts: Sequence[Part], registers: Mapping[int, DType], ndim: int
) -> tuple[str, bytes]:
    """The text of a function of addresses, a shape, strides and numbers; and the numbers, eight bytes each.

    ``registers`` has the types of what registers hold.
    """
    from llvmlite import ir

    module = ir.Module("program")
    inner = _Inner(ir, module, operands)
    _outer(ir, module, inner.emit(parts, registers), operands, ndim)
    return str(module), inner.numbers


class _Inner:
    """The loop along the innermost dimension."""

    def __init__(self, ir: Any, module: Any, operands: Sequence[Operand]) -> None:
        self.ir, self.operands = ir, operands
        self.long = ir.IntType(64)
        self.kinds = [_memory_type(ir, operand.dtype) for operand in operands]
        pointers = [kind.as_pointer() for kind in self.kinds]
        bytes_of = ir.IntType(8).as_pointer()
        signature = ir.FunctionType(ir.VoidType(), [self.long, *pointers, *[self.long] * len(operands), bytes_of])
        self.function = ir.Function(module, signature, "row")
        self.function.linkage = "internal"
        self.function.attributes.add("noinline")
        for argument in self.function.args[1 : 1 + len(operands)]:
            argument.add_attribute("noalias")
        self.numbers = b""
        self._begin = ir.IRBuilder(self.function.append_basic_block("begin"))

    def take(self, held: bytes, kind: Any) -> Any:
        """Read a number of a type before the loop begins; it becomes one of those that the loop gets."""
        place = self._begin.gep(self.function.args[-1], [self.long(len(self.numbers))])
        self.numbers += held.ljust(8, b"\0")
        return self._begin.load(self._begin.bitcast(place, kind.as_pointer()))

    def emit(self, parts: Sequence[Part], registers: Mapping[int, DType]) -> Any:
        """Write the loop, and return the function that it is."""
        ir, function = self.ir, self.function
        begin = self._begin
        blocks = [begin.block, *[function.append_basic_block(name) for name in ("element", "end")]]
        element, end = [ir.IRBuilder(block) for block in blocks[1:]]
        values: dict[int, Any] = {}
        zero = self.long(0)
        for k, operand in enumerate(self.operands):
            if operand.lies == SINGLE and operand.read is not None:
                values[operand.read] = self._load(begin, k, zero)
        index = element.phi(self.long)
        for k, operand in enumerate(self.operands):
            if operand.lies != SINGLE and operand.read is not None:
                values[operand.read] = self._load(element, k, index)
        for part in parts:
            values[part.register] = _computed(self, element, part, values, registers)
        for k, operand in enumerate(self.operands):
            if operand.written is not None:
                stored = _to_memory(ir, element, values[operand.written], operand.dtype)
                element.store(stored, self._place(element, k, index))
        following = element.add(index, self.long(1))
        index.add_incoming(zero, blocks[0])
        index.add_incoming(following, blocks[1])
        element.cbranch(element.icmp_signed("<", following, function.args[0]), blocks[1], blocks[2])
        begin.branch(blocks[1])
        end.ret_void()
        return function

    def _place(self, builder: Any, k: int, index: Any) -> Any:
        pointer = self.function.args[1 + k]
        if self.operands[k].lies != GENERAL:
            return builder.gep(pointer, [index])
        step = builder.mul(index, self.function.args[1 + len(self.operands) + k])
        first = builder.bitcast(pointer, self.ir.IntType(8).as_pointer())
        return builder.bitcast(builder.gep(first, [step]), self.kinds[k].as_pointer())

    def _load(self, builder: Any, k: int, index: Any) -> Any:
        return _from_memory(self.ir, builder, builder.load(self._place(builder, k, index)), self.operands[k].dtype)


def _memory_type(ir: Any, dtype: DType) -> Any:
    if dtype is dtypes.float32:
        return ir.FloatType()
    return ir.DoubleType() if dtype is dtypes.float64 else ir.IntType(8 * dtype.itemsize)


def _from_memory(ir: Any, b: Any, value: Any, dtype: DType) -> Any:
    """An element as registers hold it: half precision in single precision, truth values as one bit."""
    if dtype is dtypes.float16:
        return b.fpext(b.bitcast(value, ir.HalfType()), ir.FloatType())
    if dtype is dtypes.bfloat16:
        return b.bitcast(b.shl(b.zext(value, ir.IntType(32)), ir.IntType(32)(16)), ir.FloatType())
    return b.icmp_unsigned("!=", value, value.type(0)) if dtype is dtypes.bool_ else value


def _to_memory(ir: Any, b: Any, value: Any, dtype: DType) -> Any:
    if dtype is dtypes.float16:
        return b.bitcast(b.fptrunc(value, ir.HalfType()), ir.IntType(16))
    if dtype is dtypes.bfloat16:
        return b.trunc(_rounded_bits(ir, b, value), ir.IntType(16))
    return b.zext(value, ir.IntType(8)) if dtype is dtypes.bool_ else value


def _rounded_bits(ir: Any, b: Any, value: Any) -> Any:
    """The upper half of a float's bits, rounded to the nearest, ties to even; NaN stays NaN."""
    word = ir.IntType(32)
    bits = b.bitcast(value, word)
    odd = b.and_(b.lshr(bits, word(16)), word(1))
    rounded = b.lshr(b.add(b.add(bits, word(0x7FFF)), odd), word(16))
    quiet = b.or_(b.lshr(bits, word(16)), word(0x40))
    return b.select(b.fcmp_unordered("uno", value, value), quiet, rounded)


def _computed(inner: _Inner, b: Any, part: Part, values: Mapping[int, Any], registers: Mapping[int, DType]) -> Any:
    compute, ir = part.compute, inner.ir
    if is_cast(compute):
        register = compute.args[0].number
        value = _converted(inner, b, values[register], registers[register], compute.dtype)
        is_rounded = compute.dtype in HALVES
        return _from_memory(ir, b, _to_memory(ir, b, value, compute.dtype), compute.dtype) if is_rounded else value
    arithmetic = arithmetic_of(ir, b, compute.compute, inner)
    named: dict[str, Any] = {}
    for position, (param, arg) in enumerate(zip(compute.op.params, compute.args)):
        named[param.name] = arg
        if arg.__class__ is Register:
            wanted = compute.compute if position in compute.promoted else registers[arg.number]
            wanted = dtypes.bool_ if param.name in ("condition", "mask") else wanted
            named[param.name] = _converted(inner, b, values[arg.number], registers[arg.number], wanted)
        elif arg is not None and (param.name not in ATTRIBUTES or compute.op.name == "masked_fill"):
            named[param.name] = arithmetic.number(arg)
    return part.emit(b, named, arithmetic)


def _converted(inner: _Inner, b: Any, value: Any, source: DType, target: DType) -> Any:
    """A register's value in the type that a register of another dtype has."""
    ir = inner.ir
    given, wanted = arithmetic_of(ir, b, source, inner), arithmetic_of(ir, b, target, inner)
    if target is dtypes.bool_:
        return value if source is dtypes.bool_ else given.compare("!=", value, given.constant(0))
    if given.type == wanted.type:
        return value
    if isinstance(given.type, ir.IntType):
        if isinstance(wanted.type, ir.IntType):
            if given.type.width > wanted.type.width:
                return b.trunc(value, wanted.type)
            return (b.sext if given.is_signed else b.zext)(value, wanted.type)
        return (b.sitofp if given.is_signed else b.uitofp)(value, wanted.type)
    return b.fptrunc(value, wanted.type) if isinstance(wanted.type, ir.FloatType) else b.fpext(value, wanted.type)


def _outer(ir: Any, module: Any, inner: Any, operands: Sequence[Operand], ndim: int) -> None:
    """The loops over all other dimensions, which call the innermost one; strides are in bytes, operand by operand."""
    long, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer] * 4), NAME)
    builder = ir.IRBuilder(function.append_basic_block("begin"))
    addresses, shape, strides = [builder.bitcast(argument, long.as_pointer()) for argument in function.args[:3]]

    def item(array: Any, place: int) -> Any:
        return builder.load(builder.gep(array, [long(place)]))

    sizes = [item(shape, d) for d in range(ndim)]
    steps = [[item(strides, k * ndim + d) for d in range(ndim)] for k in range(len(operands))]
    starts = [item(addresses, k) for k in range(len(operands))]
    open_loops = []
    for d in range(ndim - 1):
        before, body = builder.block, function.append_basic_block(f"dimension{d}")
        builder.branch(body)
        builder.position_at_end(body)
        index = builder.phi(long)
        index.add_incoming(long(0), before)
        starts = [builder.add(start, builder.mul(index, step[d])) for start, step in zip(starts, steps)]
        open_loops.append((index, body, d))
    kinds = [_memory_type(ir, operand.dtype).as_pointer() for operand in operands]
    pointers = [builder.inttoptr(start, kind) for start, kind in zip(starts, kinds)]
    builder.call(inner, [sizes[-1], *pointers, *[step[-1] for step in steps], function.args[3]])
    for index, body, d in reversed(open_loops):
        following = builder.add(index, long(1))
        index.add_incoming(following, builder.block)
        after = function.append_basic_block(f"after{d}")
        builder.cbranch(builder.icmp_signed("<", following, sizes[d]), body, after)
        builder.position_at_end(after)
    builder.ret_void()
