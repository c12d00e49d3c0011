"""``ExportedProgram``: a program with its tensors, and what can be asked of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from keyword import iskeyword
from typing import Any, NamedTuple

from telegrad._session.current import current_session
from telegrad._session.devices import require_device
from telegrad._tensor.tensor import Tensor
from telegrad.fx._code.pytree_codegen import _PyTreeInfo
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule as FxGraphModule
from telegrad.nn.modules.module import Module
from telegrad.nn.parameter import Parameter
from telegrad.utils._pytree import TreeSpec
from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.errors import NotSupportedError, ProgramError
from telegrad_protocol.exported.description import Held, ProgramDescription
from telegrad_protocol.meta import Device, Meta

from ._graph import graph_of, sizes_of_values
from ._graphs.core_operators import core_table
from ._graphs.decomposing import decomposed, with_copies_back
from ._graphs.reading import GraphProgram
from ._module import GraphModule, Parts, module_of
from ._module_calls import Calls, ModuleCallEntry, ModuleCallSignature
from ._names import names_of, signature_of
from ._parameters import leaf_names
from ._session import Upload
from ._unflattened import UnflattenedModule, unflattened
from .graph_signature import ExportGraphSignature, InputKind, OutputKind

Leaves = tuple[TreeSpec, list[Any]]
"""A structure, and its leaves: places of tensors, and constants."""


class ValueRange(NamedTuple):
    """From where to where a size goes; None where nothing bounds it."""

    lower: int | None
    upper: int | None

    def __str__(self) -> str:
        least, most = "-int_oo" if self.lower is None else self.lower, "int_oo" if self.upper is None else self.upper
        return f"VR[{least}, {most}]"

    def __repr__(self) -> str:
        return str(self)


class CallSpec(NamedTuple):
    """The structures around the arguments of a program, and around what it returns."""

    in_spec: TreeSpec
    out_spec: TreeSpec


def _check_names(names: Sequence[Any]) -> None:
    """Refuse names of arguments that no function in Python can have: its text would be another program."""
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or iskeyword(name) or names.count(name) > 1:
            raise ProgramError(
                f"an exported program cannot have arguments called {name!r}; give each a name of Python's"
            )


class ExportedProgram:
    """A program: a list of operations, what they are applied to, and the parameters, buffers and constants of its own.

    ``export`` and ``load`` make them; ``module()`` can be called.
    """

    def __init__(
        self, description: ProgramDescription, source: Callable[[Held], Any], arguments: Leaves, results: Leaves,
        aliases: dict[str, str], example_inputs: Any = None, parameters: Sequence[str] | None = None,
        calls: Sequence[Calls] | None = None, graph: GraphProgram | None = None,
    ) -> None:  # fmt: skip
        self._calls = calls
        self.reads = graph is not None
        """Whether the program reads elements, so that it is its graph."""
        self._ranges = {} if graph is None else graph.ranges
        self._written: list[str] = []
        """Placeholders that the first results of the graph are to be written into."""
        count = arguments[0].child(0).num_children
        self._parameters = [f"args_{i}" for i in range(count)] if parameters is None else [*parameters]
        _check_names([*self._parameters, *arguments[0].child(1).context])
        self._description, self._source = description, source
        self._arguments, self._results, self._aliases = arguments, results, aliases
        self._tensors: dict[int, Tensor] = {}
        self.names = names_of(description)
        """Names of the program's values, by their numbers in the description."""
        self.example_inputs = example_inputs
        self.graph_signature: ExportGraphSignature
        if graph is None:
            self.graph_signature = signature_of(description, self.names, arguments[1], results[1])
        else:
            self.graph_signature, self.graph_module, self._made_code = graph.signature, graph.module, graph.module.code

    @property
    def description(self) -> ProgramDescription:
        """What a file says of the program."""
        return self._description

    def tensor(self, held: Held) -> Tensor:
        """Return a parameter, buffer or constant; those of a file are brought to the server when first asked for."""
        known = self._tensors.get(held.value)
        if known is None:
            given = self._source(held)
            known = self._tensors[held.value] = given if isinstance(given, Tensor) else uploaded(held, given)
        return known

    def _of_kind(self, kind: str) -> Iterator[tuple[str, Tensor]]:
        for held in self._description.tensors:
            if held.kind == kind:
                yield held.name, self.tensor(held)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Iterate over the parameters with their paths."""
        return self._of_kind("parameter")  # type: ignore[return-value]

    def parameters(self) -> Iterator[Parameter]:
        """Iterate over the parameters."""
        return (parameter for _, parameter in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Iterate over the buffers with their paths."""
        return self._of_kind("buffer")

    def buffers(self) -> Iterator[Tensor]:
        """Iterate over the buffers."""
        return (buffer for _, buffer in self.named_buffers())

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """The parameters and persistent buffers by their paths."""
        kept = [held for held in self._description.tensors if held.kind != "constant" and held.is_persistent]
        state = {held.name: self.tensor(held) for held in kept}
        return state | {path: state[first] for path, first in self._aliases.items() if first in state}

    @property
    def constants(self) -> dict[str, Tensor]:
        """The constants, and the buffers that a state dict does not have, by name."""
        kept = [held for held in self._description.tensors if held.kind == "constant" or not held.is_persistent]
        return {held.name: self.tensor(held) for held in kept}

    tensor_constants = constants

    @property
    def range_constraints(self) -> dict[str, ValueRange]:
        """The sizes that each dimension may have, by its name."""
        of_sizes = {symbol.name: ValueRange(symbol.min, symbol.max) for symbol in self._description.symbols}
        return of_sizes | {name: ValueRange(*range) for name, range in self._ranges.items()}

    @cached_property
    def graph_module(self) -> FxGraphModule:
        """The program as a module of its graph, which takes parameters, buffers and constants before the inputs.

        What is changed in its graph is in what ``module()`` returns from then on; ``save`` refuses such programs.
        """
        named = [*zip(leaf_names(self._parameters, self._arguments[0]), self._arguments[1], strict=True)]
        graph = graph_of(self._description, self.names, named, self._results[1], self._calls)
        module = FxGraphModule(Module(), graph)
        self._made_code = module.code
        return module

    @property
    def graph(self) -> Graph:
        """The graph of ``graph_module``: nodes that call PyTorch's operators, with sizes as nodes, too."""
        return self.graph_module.graph

    @property
    def is_edited(self) -> bool:
        """Whether the graph is another one than that of the program."""
        return "graph_module" in self.__dict__ and self.graph.python_code("self").src != self._made_code

    @property
    def call_spec(self) -> CallSpec:
        """The structures around arguments and results."""
        return CallSpec(self._arguments[0], self._results[0])

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """The modules that were called, each once in the order of their first calls; the whole is the first."""
        specs = self.graph_signature
        whole = ModuleCallSignature(
            [spec.arg for spec in specs.input_specs if spec.kind is InputKind.USER_INPUT],
            [spec.arg for spec in specs.output_specs if spec.kind is OutputKind.USER_OUTPUT],
            *self.call_spec, [*self._parameters],
        )  # fmt: skip
        paths = [call.path for stack in self._calls or () for call in stack]
        return [ModuleCallEntry("", whole), *[ModuleCallEntry(path) for path in dict.fromkeys(paths) if path]]

    @property
    def dialect(self) -> str:
        """Which operations the program consists of: telegrad's."""
        return "TELEGRAD"

    def validate(self) -> None:
        """Raise RuntimeError where the graph has been made an impossible one."""
        self.graph.lint()

    def module(self, check_guards: bool = True) -> GraphModule:
        """Return a module that computes the program, and shares its parameters and buffers."""
        return module_of(with_copies_back(self.graph, self._written), self._parts(), self.graph_module)

    def unflattened(self) -> UnflattenedModule:
        """Return the program as the modules that were called; NotSupportedError where it is not known which were."""
        if self.reads:
            raise NotSupportedError("unflatten: a program that reads elements is one graph, which `module()` computes")
        if self._calls is None:
            raise NotSupportedError("unflatten: the file does not say which modules were called; export it again")
        return unflattened(with_copies_back(self.graph, self._written), self._parts())

    def _parts(self) -> Parts:
        tensors = {self.names[held.value]: (held, self.tensor(held)) for held in self._description.tensors}
        structure, leaves = self._arguments
        info = _PyTreeInfo([*self._parameters, *structure.child(1).context], structure, self._results[0])
        return Parts(self._description, tensors, self._aliases, info, leaves)

    def run_decompositions(
        self, decomp_table: Mapping[Any, Callable[..., Any]] | None = None, decompose_custom_triton_ops: bool = False
    ) -> ExportedProgram:
        """Return the program with a graph that returns what it would write of buffers and inputs, before its results.

        ``decomp_table`` has functions for operators that are not to be in the graph; those that it does not name stay
        whole. It is ``default_decompositions()`` where it is None. What is written to is in the signature.
        """
        made = copy.copy(self)
        graph, made._written, made.graph_signature = decomposed(
            self.graph,
            self.graph_signature,
            core_table() if decomp_table is None else decomp_table,
            {} if self.reads else sizes_of_values(self._description),
        )
        made.graph_module = FxGraphModule(self.graph_module, graph)
        made._made_code = "" if self.is_edited else made.graph_module.code
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def __str__(self) -> str:
        code = self.graph_module.print_readable(print_output=False).replace("\n", "\n    ")
        signature = str(self.graph_signature).replace("\n", "\n    ")
        return (
            f"ExportedProgram:\n    {code}\n"
            f"Graph signature:\n    {signature}\n\nRange constraints: {self.range_constraints}\n"
        )

    __repr__ = __str__


def uploaded(held: Held, data: Any) -> Tensor:
    """Return a tensor of the current session with these elements: bytes, or what the module has made of data."""
    session = current_session()
    content = data.data if isinstance(data, Upload) else data
    device = require_device(Device(held.device), session, "export")
    meta = Meta.of([int(size) for size in held.shape], BY_NAME[held.dtype], device)  # type: ignore[arg-type]
    made = Tensor(session, session.upload(meta, memoryview(content), session.sites.current()), meta)
    return Parameter(made, held.requires_grad) if held.kind == "parameter" else made
