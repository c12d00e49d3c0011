"""Names of a program's values, as they are printed: of placeholders and of the results of steps."""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from typing import Any

from telegrad_protocol.exported.checking import operation_of
from telegrad_protocol.exported.description import Held, ProgramDescription
from telegrad_protocol.exported.sizes import Formula

from ._trees import Place
from .graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)

_PREFIX = {"parameter": "p_", "buffer": "b_", "constant": "c_"}
_INPUT_KINDS = {
    "parameter": InputKind.PARAMETER, "buffer": InputKind.BUFFER, "constant": InputKind.CONSTANT_TENSOR,
}  # fmt: skip


def names_of(program: ProgramDescription) -> dict[int, str]:
    """Return a name for each value: those of results are the operations', numbered where they occur again.

    Names of Python's own, such as ``sum``, are numbered at once. One of several results is taken of all.
    """
    names: dict[int, str] = {}
    taken: set[str] = set()

    def give(value: int, wanted: str, is_result: bool = False) -> None:
        name, count = wanted, 0
        if is_result and hasattr(builtins, wanted):
            taken.add(wanted)
        while name in taken:
            count += 1
            name = f"{wanted}_{count}"
        taken.add(name)
        names[value] = name

    for item in program.inputs:
        give(item.value, identifier(item.name))
    for held in program.tensors:
        give(held.value, _PREFIX[held.kind] + identifier(held.name))
    for step in program.steps:
        for out in step.outs:
            give(out, operation_of(step).public if len(step.outs) == 1 else "getitem", is_result=True)
    return names


def identifier(text: str) -> str:
    """Return a text with underscores for what no name in Python has."""
    return re.sub(r"\W", "_", text)


def signature_of(
    program: ProgramDescription, names: dict[int, str], arguments: Sequence[Any], results: Sequence[Any]
) -> ExportGraphSignature:
    """Return the signature; ``arguments`` and ``results`` are the leaves of both, with places of tensors."""
    held = [_held_spec(tensor, names[tensor.value]) for tensor in program.tensors]
    values = [item.value for item in program.inputs]
    given = [InputSpec(InputKind.USER_INPUT, _argument(leaf, values, names), None) for leaf in arguments]
    values = [output.value for output in program.outputs]
    returned = [OutputSpec(OutputKind.USER_OUTPUT, _argument(leaf, values, names), None) for leaf in results]
    return ExportGraphSignature([*held, *given], returned)


def _held_spec(tensor: Held, name: str) -> InputSpec:
    persistent = tensor.is_persistent if tensor.kind == "buffer" else None
    return InputSpec(_INPUT_KINDS[tensor.kind], TensorArgument(name), tensor.name, persistent)


def _argument(leaf: Any, values: Sequence[int], names: dict[int, str]) -> ArgumentSpec:
    if isinstance(leaf, Place):
        return TensorArgument(names[values[leaf]])
    if isinstance(leaf, Formula):
        return SymIntArgument(str(leaf))
    return ConstantArgument("", leaf)
