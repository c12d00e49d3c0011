"""The calls that compute one block of a fused kernel, one for each computation and for each conversion between them.

Arrays have numbers: those of operands and new values first, then scratch memory, which is used again when nothing reads
it any more, then what is constant. Half precision is widened when it is read, and rounded when it is written.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from server.engine import keys
from server.engine.array_library.addresses import data_address
from server.engine.array_library.dtypes import BY_NUMPY, COMPUTED_IN, HALVES, NUMPY_DTYPES
from server.engine.cpu.halves import narrow, widen
from server.engine.generic_kernels.kernel import wrapped_scalars
from server.engine.operators import OPERATORS, KernelInfo
from server.engine.ops.pointwise import cast_into
from server.engine.programs.fused import Compute, Kernel, Register, is_cast
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta

from .loop_text import GENERAL, NAME, SINGLE, UNIT, Operand, text_of
from .machine_code import Loop, compiled, features
from .schedule import scheduled

Array = Any


def kernel_of(compute: Compute) -> KernelInfo | None:
    """The function of arrays that computes an operation on the host."""
    return OPERATORS[compute.op.name].kernels.get(keys.CPU)


def working_type(dtype: DType) -> np.dtype[Any]:
    """The type in which blocks hold elements of ``dtype``."""
    return NUMPY_DTYPES[COMPUTED_IN.get(dtype, dtype)]


class CallOfArrays(NamedTuple):
    """A function of arrays, which stand as ("array", number) or ("scratch", number) among its operands.

    It takes the target as ``out``; without one it writes to some of its operands.
    """

    function: Callable[..., Any]
    operands: list[Any]
    target: Any


def _on_addresses(loop: Loop, ndim: int) -> Callable[..., None]:
    """A compiled loop as a function of the arrays of a block, which have one shape."""
    pack = struct.Struct(f"{ndim}q").pack

    def run(*arrays: Array) -> None:
        loop([data_address(array) for array in arrays], pack(*arrays[0].shape))

    return run


class Tape:
    """Calls for one block, on arrays by number: operands, new values, scratch memory, and then what is constant.

    ``strides`` has those of a block's arrays in bytes, for operands and new values; ``inner`` are the block's
    dimensions after the first one, which differs from block to block.
    """

    def __init__(self, kernel: Kernel, strides: Sequence[Size], inner: Size) -> None:
        self._kernel = kernel
        self._strides, self._inner = strides, inner
        self._calls: list[CallOfArrays] = []
        self._scratch: list[np.dtype[Any]] = []
        self._arrays: dict[tuple[int, np.dtype[Any]], Any] = {}
        self._targets = {register.number: place for place, register in kernel.stores}
        first = len(kernel.loads)
        self._targets.update({register.number: first + place for place, (register, _) in enumerate(kernel.news)})
        self._metas = [*kernel.loads, *[meta for _, meta in kernel.news]]
        for number, meta in enumerate(kernel.loads):
            self._arrays[number, NUMPY_DTYPES[meta.dtype]] = ("array", number)
        self.only_loop: tuple[Loop, list[int]] | None = None
        """The compiled loop that does everything, if there is one, and the arrays whose addresses it takes."""
        self.texts: list[str] = []
        """Those of the compiled loops."""
        self._schedule = scheduled(kernel, features())
        for at, run in enumerate(self._schedule.runs):
            if len(run) > 1:
                self._add_loop(run, self._schedule.runs[at + 1 :])
            else:
                self._add(run[0], kernel.computes[run[0] - first])

    def _add_loop(self, run: tuple[int, ...], later: Sequence[tuple[int, ...]]) -> None:
        """Add a compiled loop, which reads registers from arrays and writes those that are needed after it."""
        parts = self._schedule.parts(run, self._kernel)
        read = {arg.number for part in parts for arg in part.compute.args if arg.__class__ is Register} - set(run)
        computes = {
            number: self._kernel.computes[number - len(self._kernel.loads)] for group in later for number in group
        }
        needed = {arg.number for compute in computes.values() for arg in compute.args if arg.__class__ is Register}
        arrays: dict[Any, Operand] = {}
        for number in sorted(read):
            array, dtype = self._held(number)
            arrays[array] = Operand(dtype, self._lies(array), number, None)
        written = []
        for number in run:
            place = self._targets.get(number)
            meta = None if place is None else self._metas[place]
            if meta is not None:
                written.append((number, ("array", place), meta.dtype))
            if number in needed and (meta is None or meta.dtype in HALVES):
                dtype = self._kernel.dtypes[number]
                written.append((number, self._new(working_type(dtype)), COMPUTED_IN.get(dtype, dtype)))
        for number, array, dtype in written:
            held = arrays.get(array, Operand(dtype, self._lies(array), None, None))
            arrays[array] = held._replace(written=number)
            if dtype not in HALVES:
                self._arrays[number, NUMPY_DTYPES[dtype]] = array
        registers = dict(enumerate(self._kernel.dtypes))
        text, numbers = text_of(list(arrays.values()), parts, registers, 1 + len(self._inner))
        steps = [step for array in arrays for step in self._steps(array)]
        loop = compiled(text, NAME, len(arrays), steps, numbers)
        self.texts.append(text)
        if len(self._schedule.runs) == 1:
            self.only_loop = loop, [number for _, number in arrays]
        self._calls.append(CallOfArrays(_on_addresses(loop, 1 + len(self._inner)), list(arrays), None))

    def _held(self, number: int) -> tuple[Any, DType]:
        """An array that holds a register, and the type of its elements in memory."""
        kind, array = next((kind, array) for (n, kind), array in self._arrays.items() if n == number)
        return array, BY_NUMPY[kind]

    def _steps(self, array: Any) -> Size:
        """The strides of a block of an array in bytes."""
        if array[0] == "array":
            return self._strides[array[1]]
        itemsize = self._scratch[array[1]].itemsize
        return tuple([itemsize * math.prod(self._inner[d:]) for d in range(len(self._inner) + 1)])

    def _lies(self, array: Any) -> int:
        step = self._steps(array)[-1]
        kind = self._scratch[array[1]] if array[0] == "scratch" else NUMPY_DTYPES[self._metas[array[1]].dtype]
        return UNIT if step == kind.itemsize else GENERAL if step else SINGLE

    def _add(self, number: int, compute: Compute) -> None:
        kind = working_type(compute.dtype)
        place = self._targets.get(number)
        stored = self._metas[place] if place is not None else None
        target = self._new(kind) if stored is None or stored.dtype in HALVES else ("array", place)
        if is_cast(compute):
            self._add_cast(compute, target)
        else:
            self._add_call(compute, target)
        self._arrays[number, kind] = target
        if stored is not None and stored.dtype in HALVES:
            self._call(_store_half, [target], ("array", place))

    def _call(self, function: Callable[..., Any], operands: list[Any], target: Any) -> None:
        self._calls.append(CallOfArrays(function, operands, target))

    def _add_call(self, compute: Compute, target: Any) -> None:
        op, info = compute.op, kernel_of(compute)
        assert info is not None
        wrapped = wrapped_scalars(op, compute.bound) if op.promotion else {}
        operands = [
            self._operand(arg, position, compute) if arg.__class__ is Register else wrapped.get(position, arg)
            for position, arg in enumerate(compute.args)
        ]
        keywords = {p.name: operands[place] for place, p in enumerate(op.params) if place >= op.positional}
        if info.wants_meta:
            keywords["meta"] = Meta.of(self._kernel.shape, compute.dtype)
        self._call(partial(info.function, np, **keywords), operands[: op.positional], target)

    def _add_cast(self, compute: Compute, target: Any) -> None:
        source = self._read(compute.args[0], working_type(compute.compute))
        if compute.dtype in HALVES:
            half = self._new(NUMPY_DTYPES[compute.dtype])
            self._call(_store_half, [source], half)
            self._call(_load_half, [half], target)
        else:
            self._call(_cast, [source], target)

    def _operand(self, register: Register, position: int, compute: Compute) -> Any:
        bound = compute.bound[position]
        dtype = compute.compute if position in compute.promoted else bound.dtype
        return self._read(register, working_type(dtype))

    def _read(self, register: Register, wanted: np.dtype[Any]) -> Any:
        """The array that holds a register in a type, into which it is cast where that was not done yet."""
        number = register.number
        held = self._arrays.get((number, wanted))
        if held is None:
            source, array = next((kind, array) for (n, kind), array in self._arrays.items() if n == number)
            if source.char in "eE" and wanted.char != "f":
                array = self._read(register, np.dtype("f"))
            held = self._arrays[number, wanted] = self._new(wanted)
            self._call(_load_half if source.char in "eE" and wanted.char == "f" else _cast, [array], held)
        return held

    def _new(self, kind: np.dtype[Any]) -> Any:
        self._scratch.append(kind)
        return "scratch", len(self._scratch) - 1

    def finished(self) -> tuple[list[Any], list[np.dtype[Any]], list[Any]]:
        """The calls, with numbers for arrays; the types of the scratch memory; and the constants."""
        shared, kinds = _shared_buffers(self._calls, self._scratch)
        first = len(self._metas)
        constants: list[Any] = []

        def number(item: Any) -> int:
            if item.__class__ is tuple and item[:1] in (("array",), ("scratch",)):
                return int(item[1] if item[0] == "array" else first + shared[item[1]])
            constants.append(item)
            return first + len(kinds) + len(constants) - 1

        calls = [
            (
                call.function,
                _getter([number(item) for item in call.operands]),
                number(call.target) if call.target else -1,
            )
            for call in self._calls
        ]
        return calls, kinds, constants


def _getter(numbers: list[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    return itemgetter(*numbers) if len(numbers) > 1 else lambda arrays: (arrays[numbers[0]],)


def _shared_buffers(
    calls: Sequence[CallOfArrays], kinds: Sequence[np.dtype[Any]]
) -> tuple[dict[int, int], list[np.dtype[Any]]]:
    """Buffers for scratch arrays, which are used again after the last call that reads them."""
    used = [[item[1] for item in (*call.operands, call.target) if _is_scratch(item)] for call in calls]
    last = {number: at for at, numbers in enumerate(used) for number in numbers}
    free: dict[np.dtype[Any], list[int]] = {}
    shared: dict[int, int] = {}
    buffers: list[np.dtype[Any]] = []
    for at, numbers in enumerate(used):
        for number in numbers:
            kind = kinds[number]
            if number not in shared:
                if not free.setdefault(kind, []):
                    free[kind].append(len(buffers))
                    buffers.append(kind)
                shared[number] = free[kind].pop()
        for number in set(numbers):
            if last[number] == at:
                free.setdefault(kinds[number], []).append(shared[number])
    return shared, buffers


def _is_scratch(item: Any) -> bool:
    return item.__class__ is tuple and item[:1] == ("scratch",)


def _cast(source: Array, out: Array) -> None:
    cast_into(np, out, source)


def _load_half(source: Array, out: Array) -> None:
    widen(source, out)


def _store_half(source: Array, out: Array) -> None:
    if source.dtype.char == "f":
        narrow(source, out)
    else:
        cast_into(np, out, source)
