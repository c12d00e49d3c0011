"""Checks of a described program: every step is one that the shape rules accept, and uses what was made before it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from telegrad_protocol.dtypes import BY_NAME, DType
from telegrad_protocol.errors import ProgramError, TelegradError
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import TABLE, Op
from telegrad_protocol.ops.params import is_meta

from .arguments import Binder
from .container import Entry
from .description import Held, NamedTensor, ProgramDescription, Source, Step, TensorType
from .sizes import Formula


def operation_of(step: Step) -> Op:
    """Return the operation of a step; ProgramError where there is none of its name."""
    op = TABLE.get(step.op)
    if op is None:
        raise ProgramError(
            f"the program has an operation {step.op!r:.100}, which this telegrad does not have; export it again"
        )
    return op


def dtype_of(tensor: TensorType) -> DType:
    """Return the type of a tensor; ProgramError for an unknown one."""
    if tensor.dtype not in BY_NAME:
        raise ProgramError(f"the program has a tensor of the unknown type {tensor.dtype!r:.40}")
    return BY_NAME[tensor.dtype]


def check(program: ProgramDescription, entries: Mapping[str, Entry]) -> None:
    """Check a program against the tensors of its file, and run all shape rules. ProgramError says what is wrong."""
    check_tensors(program, entries)
    metas = inferred(program, least_sizes(program))
    for output in program.outputs:
        if output.value not in metas:
            raise ProgramError(f"the output {output.name!r} is never computed")


def check_tensors(program: ProgramDescription, entries: Mapping[str, Entry]) -> None:
    """Check all but the steps of a program, which takes little time whatever is in the file."""
    _check_symbols(program)
    names = [item.name for item in program.inputs]
    outputs = [item.name for item in program.outputs]
    if len(set(names)) != len(names) or len(set(outputs)) != len(outputs):
        raise ProgramError("the program has two inputs or two outputs of one name")
    for tensor in program.tensors:
        _check_held(tensor, entries)
    if entries.keys() != {tensor.name for tensor in program.tensors}:
        raise ProgramError("the tensors of the file are not those of the program")


def least_sizes(program: ProgramDescription) -> dict[str, int]:
    """Return sizes that the program takes: small ones, all different where that can be."""
    spread = count(2)
    sizes = {}
    for symbol in program.symbols:
        size = max(symbol.min, next(spread))
        sizes[symbol.name] = size if symbol.max is None else min(size, symbol.max)
    return sizes


def inferred(program: ProgramDescription, sizes: Mapping[str, int]) -> dict[int, Meta]:
    """Return the metas of all values for these sizes, as the shape rules tell them; nothing is computed."""
    metas: dict[int, Meta] = {}
    for tensor in program.sources:
        if tensor.value in metas:
            raise ProgramError(f"two tensors of the program have the number {tensor.value}")
        metas[tensor.value] = _meta_of(tensor, sizes)

    def meta(number: int) -> Meta:
        if number not in metas:
            raise ProgramError(f"the tensor number {number} is used before it is computed")
        return metas[number]

    binder = Binder(meta, is_meta)
    for place, step in enumerate(program.steps):
        for number, made in zip(step.outs, _results(place, step, binder, sizes), strict=True):
            if number in metas:
                raise ProgramError(f"step {place} computes the tensor number {number}, which there is already")
            metas[number] = made
    return metas


def _meta_of(tensor: Source, sizes: Mapping[str, int]) -> Meta:
    try:
        return Meta.of(tensor.at(dict(sizes)), dtype_of(tensor), Device(tensor.device))
    except TelegradError as error:
        raise ProgramError(f"the tensor {tensor.name!r} of the program: {error.message}") from None


def _results(place: int, step: Step, binder: Binder, sizes: Mapping[str, int]) -> tuple[Meta, ...]:
    op = operation_of(step)
    try:
        results = op.infer(binder.bind(op, step.args, sizes))
    except ProgramError as error:
        raise ProgramError(f"step {place}: {error.message}") from None
    except TelegradError as error:
        raise ProgramError(f"step {place} does not fit together: {error.message}") from None
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, ArithmeticError, RecursionError) as error:
        raise ProgramError(f"step {place}: {op.name} does not take these arguments: {error}") from None
    if op.data_dependent or (results is None and step.outs):
        raise ProgramError(f"step {place}: the shape of the result of {op.name} depends on elements")
    made = () if results is None or op.mutates else results if isinstance(results, tuple) else (results,)
    if len(made) != len(step.outs):
        raise ProgramError(f"step {place}: {op.name} has {len(made)} results, and the program names {len(step.outs)}")
    return made


def _check_symbols(program: ProgramDescription) -> None:
    known = {symbol.name for symbol in program.symbols}
    if len(known) != len(program.symbols):
        raise ProgramError("the program has two symbols of one name")
    for symbol in program.symbols:
        if symbol.max is not None and symbol.max < symbol.min:
            raise ProgramError(f"the symbol {symbol.name!r} has no size: from {symbol.min} to {symbol.max}")
    named_tensors: tuple[NamedTensor, ...] = (*program.sources, *program.outputs)
    for item in named_tensors:
        for size in item.shape:
            named = {*size.check().names()} if isinstance(size, Formula) else set()
            if not named <= known or (not isinstance(size, Formula) and size < 0):
                raise ProgramError(f"{item.name!r} has a size of the program that is not there: {size}")
    given = {
        name for item in program.inputs for size in item.shape if isinstance(size, Formula) for name in size.names()
    }
    if known - given:
        raise ProgramError(f"no input tells the size {min(known - given)!r}")


def _check_held(tensor: Held, entries: Mapping[str, Entry]) -> None:
    entry = entries.get(tensor.name)
    if entry is None or (entry.dtype, entry.shape) != (tensor.dtype, tensor.shape):
        raise ProgramError(f"the tensor {tensor.name!r} of the program is not in the file, or it is another one there")
