"""One routine of BLAS or LAPACK for all matrices of a batch, without a line of Python for each of them.

A routine is called by its address; each of its arguments is an address, too, that moves on by a step from a matrix to
the next. Addresses and steps count bytes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..arithmetic import compiled

MOST = 20
"""How many arguments a routine has at most."""
_word, _byte = ir.IntType(64), ir.IntType(8)


@intrinsic  # type: ignore[untyped-decorator]
def _call(typing: Any, function: Any, arguments: Any, words: Any, steps: Any, number: Any) -> Any:
    """Call a routine of so many arguments for the matrix of a number."""
    return types.void(*[types.int64] * 5), _generate


def _generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """A block of instructions for each number of arguments, of which the right one is jumped to."""
    function, arguments, *places = args
    end = builder.append_basic_block("end")
    switch = builder.switch(arguments, end)
    for count in range(1, MOST + 1):
        block = builder.append_basic_block(f"arguments_{count}")
        switch.add_case(ir.Constant(_word, count), block)
        builder.position_at_end(block)
        kind = ir.FunctionType(ir.VoidType(), [_byte.as_pointer()] * count)
        pointers = [_pointer(builder, place, *places) for place in range(count)]
        builder.call(builder.inttoptr(function, kind.as_pointer()), pointers)
        builder.branch(end)
    builder.position_at_end(end)
    return context.get_dummy_value()


def _pointer(builder: Any, place: int, words: Any, steps: Any, number: Any) -> Any:
    """The address that a routine gets as one of its arguments."""
    start, step = (_load(builder, table, place) for table in (words, steps))
    return builder.inttoptr(builder.add(start, builder.mul(step, number)), _byte.as_pointer())


def _load(builder: Any, table: Any, place: int) -> Any:
    address = builder.add(table, ir.Constant(_word, 8 * place))
    return builder.load(builder.inttoptr(address, _word.as_pointer()))


@compiled("int64", "int64", "int64", "int64", "int64")
def repeat(function: int, arguments: int, words: int, steps: int, count: int) -> None:
    """Call a routine once for each of ``count`` matrices; ``words`` has the arguments of the first, ``steps`` what
    is added from a matrix to the next."""
    for number in range(count):
        _call(function, arguments, words, steps, number)
