"""The calls that compute one block of a fused kernel, one for each computation and for each conversion between them.

Arrays have numbers: those of operands and new values first, then scratch memory, which is used again when nothing reads
it any more, then what is constant. Half precision is widened when it is read, and rounded when it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library.dtypes import COMPUTED_IN, HALVES, NUMPY_DTYPES
from server.engine.cpu.halves import narrow, widen
from server.engine.generic_kernel import wrapped_scalars
from server.engine.operators import OPERATORS, KernelInfo
from server.engine.ops.pointwise import cast_into
from server.engine.programs.fused import Compute, Kernel, Register, is_cast
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta

Array = Any


def kernel_of(compute: Compute) -> KernelInfo | None:
    """The function of arrays that computes an operation on the host."""
    return OPERATORS[compute.op.name].kernels.get(keys.CPU)


def working_type(dtype: DType) -> np.dtype[Any]:
    """The type in which blocks hold elements of ``dtype``."""
    return NUMPY_DTYPES[COMPUTED_IN.get(dtype, dtype)]


class Tape:
    """Calls for one block, on arrays by number: operands, new values, scratch memory, and then what is constant."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._constants: list[Any] = []
        self._calls: list[tuple[Callable[..., Any], list[Any], Any]] = []
        self._scratch: list[np.dtype[Any]] = []
        self._arrays: dict[tuple[int, np.dtype[Any]], Any] = {}
        self._targets = {register.number: place for place, register in kernel.stores}
        first = len(kernel.loads)
        self._targets.update({register.number: first + place for place, (register, _) in enumerate(kernel.news)})
        self._metas = [*kernel.loads, *[meta for _, meta in kernel.news]]
        for number, meta in enumerate(kernel.loads):
            self._arrays[number, NUMPY_DTYPES[meta.dtype]] = ("array", number)
        for number, compute in enumerate(kernel.computes, first):
            self._add(number, compute)

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
            self._calls.append((_store_half, [target], ("array", place)))

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
        self._calls.append((partial(info.function, np, **keywords), operands[: op.positional], target))

    def _add_cast(self, compute: Compute, target: Any) -> None:
        source = self._read(compute.args[0], working_type(compute.compute))
        if compute.dtype in HALVES:
            half = self._new(NUMPY_DTYPES[compute.dtype])
            self._calls.append((_store_half, [source], half))
            self._calls.append((_load_half, [half], target))
        else:
            self._calls.append((_cast, [source], target))

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
            self._calls.append((_load_half if source.char in "eE" and wanted.char == "f" else _cast, [array], held))
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
            (function, _getter([number(item) for item in operands]), number(target))
            for function, operands, target in self._calls
        ]
        return calls, kinds, constants


def _getter(numbers: list[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    return itemgetter(*numbers) if len(numbers) > 1 else lambda arrays: (arrays[numbers[0]],)


def _shared_buffers(
    calls: Sequence[tuple[Any, list[Any], Any]], kinds: Sequence[np.dtype[Any]]
) -> tuple[dict[int, int], list[np.dtype[Any]]]:
    """Buffers for scratch arrays, which are used again after the last call that reads them."""
    last: dict[int, int] = {}
    for at, (_, operands, target) in enumerate(calls):
        last.update([(item[1], at) for item in (*operands, target) if _is_scratch(item)])
    free: dict[np.dtype[Any], list[int]] = {}
    shared: dict[int, int] = {}
    buffers: list[np.dtype[Any]] = []
    for at, (_, operands, target) in enumerate(calls):
        if _is_scratch(target) and target[1] not in shared:
            kind = kinds[target[1]]
            if not free.setdefault(kind, []):
                free[kind].append(len(buffers))
                buffers.append(kind)
            shared[target[1]] = free[kind].pop()
        for number in {item[1] for item in (*operands, target) if _is_scratch(item)}:
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
