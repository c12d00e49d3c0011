"""Compiled loops as records that ``pool`` calls: a function's address and its arguments, as words of 64 bits.

What is called first takes the arguments out of the record and calls the loop as Numba would. There is one such function
for each signature.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from server.engine.array_library.addresses import data_address

Array = Any
_word = ir.IntType(64)


class Form(NamedTuple):
    """How a loop's arguments are written: packs two addresses and the arguments' words into memory at an offset."""

    pack_into: Callable[..., None]
    size: int
    caller: int
    address: int


_forms: dict[Any, Form] = {}


def form_of(loop: Any) -> Form:
    """The form of a loop's records, the loop being one that ``arithmetic.compiled`` has made."""
    form = _forms.get(loop)
    if form is None:
        (code,) = loop.overloads.values()
        layout = struct.Struct("QQ" + "".join(map(_letters, code.signature.args)))
        address = code.library.get_pointer_to_function(code.fndesc.llvm_func_name)
        form = _forms[loop] = Form(layout.pack_into, -(-layout.size // 64) * 64, _caller(code.signature.args), address)
    return form


def records(form: Form, calls: Sequence[Sequence[Any]]) -> Any:
    """Memory with a record for each tuple of arguments, whose arrays have to live as long as the records are used."""
    pack, size, caller, address = form
    memory = ctypes.create_string_buffer(size * len(calls))
    known: Known = {}
    offset = 0
    for arguments in calls:
        pack(memory, offset, caller, address, *_words(arguments, known))
        offset += size
    return memory


Known = dict[int, tuple[int, ...]]
"""The words of arrays, by their identities."""


def _words(arguments: Sequence[Any], known: Known) -> list[Any]:
    words: list[Any] = []
    for argument in arguments:
        if argument.__class__ is np.ndarray:
            its = known.get(id(argument))
            if its is None:
                its = known[id(argument)] = (data_address(argument), *argument.shape)
            words += its
        else:
            words.append(argument)
    return words


def unit_records(form: Form, shares: Sequence[slice], given: Sequence[Any], scratch: Any) -> Any:
    """The same for calls that differ in the units that they do, and in their scratch memory if there is some."""
    pack, size, caller, address = form
    memory = ctypes.create_string_buffer(size * len(shares))
    words, offset = _words(given, {}), 0
    for number, share in enumerate(shares):
        own = (data_address(scratch[number]), *scratch[number].shape) if len(scratch) else ()
        pack(memory, offset, caller, address, share.start, share.stop, *words, *own)
        offset += size
    return memory


_SCALARS = {types.int64: "q", types.float64: "d", types.float32: "f4x", types.boolean: "?7x"}


def _letters(kind: Any) -> str:
    """What ``struct`` calls an argument: an array is its address and its shape."""
    return f"Q{kind.ndim}q" if isinstance(kind, types.Array) else _SCALARS[kind]


@cache
@global_compiler_lock  # type: ignore[untyped-decorator]
def _caller(kinds: tuple[Any, ...]) -> int:
    """The address of a function that calls loops of these argument types with what a record holds."""
    context = cpu_target.target_context
    library = context.codegen().create_library("caller")
    module = library.create_ir_module("caller")
    name = f"caller_{abs(hash(kinds))}"
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_word]), name)
    builder = ir.IRBuilder(function.append_basic_block())
    reader = _Reader(builder, function.args[0])
    loop_type = context.call_conv.get_function_type(types.void, kinds)
    loop = builder.inttoptr(reader.next(), loop_type.as_pointer())
    values = [reader.value(context, kind) for kind in kinds]
    context.call_conv.call_function(builder, loop, types.void, kinds, values)
    builder.ret_void()
    library.add_ir_module(module)
    library.finalize()
    _libraries.append(library)
    return int(library.get_pointer_to_function(name))


_libraries: list[Any] = []
"""What the callers' machine code belongs to."""


class _Reader:
    """Reads a record's words one after the other; the first is the caller's own address."""

    def __init__(self, builder: Any, record: Any) -> None:
        self._builder, self._record, self._offset = builder, record, 8

    def next(self, kind: Any = _word) -> Any:
        """The next word, as a type of at most its size."""
        address = self._builder.add(self._record, ir.Constant(_word, self._offset))
        self._offset += 8
        return self._builder.load(self._builder.inttoptr(address, kind.as_pointer()))

    def value(self, context: Any, kind: Any) -> Any:
        """The next argument of a loop."""
        builder = self._builder
        if kind is types.boolean:
            return builder.trunc(self.next(ir.IntType(8)), ir.IntType(1))
        if not isinstance(kind, types.Array):
            return self.next(context.get_value_type(kind))
        array = context.make_array(kind)(context, builder)
        data = builder.inttoptr(self.next(), array.data.type)
        shape = [self.next() for _ in range(kind.ndim)]
        itemsize = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        strides, count = [], ir.Constant(_word, 1)
        for length in reversed(shape):
            strides.append(builder.mul(count, ir.Constant(_word, itemsize)))
            count = builder.mul(count, length)
        array.meminfo, array.parent = (ir.Constant(part.type, None) for part in (array.meminfo, array.parent))
        array.nitems, array.itemsize, array.data = count, ir.Constant(_word, itemsize), data
        array.shape = _packed(builder, shape)
        array.strides = _packed(builder, strides[::-1])
        return array._getvalue()


def _packed(builder: Any, words: Sequence[Any]) -> Any:
    whole = ir.Constant(ir.ArrayType(_word, len(words)), ir.Undefined)
    for place, word in enumerate(words):
        whole = builder.insert_value(whole, word, place)
    return whole
