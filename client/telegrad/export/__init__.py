"""Programs that are deployed: a module is recorded as a list of operations, saved with its weights, and served.

``export`` records it, ``save`` and ``load`` write and read one file, and a server runs that over HTTP without a client
library: see docs/serving.md. The names are those of ``torch.export``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.module import Module
from telegrad.utils._pytree import register_dataclass as register_fields
from telegrad_protocol.errors import ArgumentTypeError, NotSupportedError, ProgramError

from ._collections import AdditionalInputs, ShapesCollection, default_decompositions, unflatten
from ._dims import Dim, dims
from ._exported import ExportedProgram
from ._files import load, save
from ._graphs.reading import graph_program
from ._module import GraphModule
from ._module_calls import ModuleCallEntry, ModuleCallSignature
from ._session import ReadsElementsError
from ._tracing import Tracer
from ._trees import Place
from ._unflattened import UnflattenedModule
from .graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)

__all__ = [
    "AdditionalInputs", "ConstantArgument", "Dim", "ExportGraphSignature", "ExportedProgram", "GraphModule",
    "InputKind", "InputSpec", "ModuleCallEntry", "ModuleCallSignature", "OutputKind", "OutputSpec", "ShapesCollection",
    "SymIntArgument", "TensorArgument",
    "UnflattenedModule", "default_decompositions", "dims", "draft_export", "export", "load", "register_dataclass",
    "save", "unflatten",
]  # fmt: skip


def export(
    mod: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None,
    strict: bool = False, preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:  # fmt: skip
    """Record a module on example arguments, of which only shapes, types and devices matter, as a program.

    ``dynamic_shapes`` says of each argument, by name or in order, which of its dimensions may have other sizes: a dict
    from dimensions to ``Dim``, ``Dim.AUTO`` or ``Dim.DYNAMIC``, or one entry for each dimension. The module runs once
    for the example and some more times at other sizes, without elements; integers that change are found by comparing.
    ``strict`` and ``prefer_deferred_runtime_asserts_over_guards`` are PyTorch's, and change nothing.

    Raises NotSupportedError for ``preserve_module_call_signature``, and ProgramError where the module reads elements,
    computes gradients, or takes another path at another size; it names the line.
    """
    if not isinstance(mod, Module):
        raise ArgumentTypeError(
            f"export: expected mod to be an instance of torch.nn.Module, got {type(mod)}; put a function into the "
            "forward of a module"
        )
    if preserve_module_call_signature:
        raise NotSupportedError(
            "export: preserve_module_call_signature: modules of `unflatten` take the tensors that they use, in the "
            "order in which they do; leave it out, and put modules in their place that take the same"
        )
    if not isinstance(args, tuple):
        raise ArgumentTypeError(f"export: expecting args to be a tuple of example positional inputs, got {type(args)}")
    given = dict(kwargs or {})
    try:
        traced = Tracer(mod, args, given, dynamic_shapes).trace()
    except ReadsElementsError as error:
        return _graph_of(Tracer(mod, args, given, dynamic_shapes), (args, given), error)
    return ExportedProgram(
        traced.description,
        lambda held: traced.tensors[held.value],
        traced.arguments,
        traced.results,
        traced.aliases,
        (args, given),
        traced.parameters,
        traced.calls,
    )


def _graph_of(tracer: Tracer, inputs: tuple[tuple[Any, ...], dict[str, Any]], error: ProgramError) -> ExportedProgram:
    """Return a program that reads elements; where there is none, raise what the recording has."""
    example, aliases = tracer.example()
    try:
        made = graph_program(example)
    except Exception as other:
        raise error from other
    places = iter(range(len(example.inputs)))
    leaves = [Place(next(places)) if isinstance(leaf, Tensor) else leaf for leaf in example.leaves]
    return ExportedProgram(
        made.description, lambda held: made.tensors[held.value], (example.structure, leaves), (made.returned, []),
        aliases, inputs, example.parameters, graph=made,
    )  # fmt: skip


draft_export = export


def register_dataclass(cls: type[Any], *, serialized_type_name: str | None = None) -> None:
    """Let a dataclass hold tensors among arguments and results."""
    register_fields(cls, serialized_type_name=serialized_type_name)
