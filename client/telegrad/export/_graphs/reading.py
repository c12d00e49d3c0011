"""Programs of modules that read elements, or whose results have a length that elements decide: graphs without steps.

What the module calls is traced without elements, and the graph is the program: ``module()`` computes it. No server runs
it from a file, since a description has operations alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from telegrad._dispatch.fake_tensors import FakeTensorMode
from telegrad._session.current import current_session, has_session
from telegrad._session.grad_mode import no_grad
from telegrad._session.shapes.shape_session import meta_session
from telegrad._tensor.tensor import Tensor
from telegrad.compiler.exporting import exporting
from telegrad.fx.experimental.function_calls import FunctionTracing
from telegrad.fx.experimental.symbolic_graphs import Place as SizePlace
from telegrad.fx.experimental.symbolic_tracing import SymbolicTracing
from telegrad.fx.experimental.unknowns import Unknowns
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node
from telegrad.utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from telegrad_protocol.errors import ProgramError
from telegrad_protocol.exported import description as program
from telegrad_protocol.exported.sizes import Formula, is_symbol

from .._names import names_of, signature_of
from .._recording import State
from .._samples import Symbol
from .._trees import Place
from ..graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)


class Example(NamedTuple):
    """What is exported: a module, its tensors, the leaves of the arguments, and sizes of inputs by their places."""

    module: Any
    state: Sequence[State]
    leaves: Sequence[Any]
    structure: TreeSpec
    dims: Mapping[int, Sequence[Any]]
    symbols: Mapping[str, Symbol]
    held: tuple[program.Held, ...]
    inputs: tuple[program.Input, ...]
    names: Sequence[str]
    parameters: Sequence[str]


class GraphProgram(NamedTuple):
    """A program that is a graph: its description has no steps. ``tensors`` are its own by number.

    ``ranges`` are those of numbers that elements decide, by name.
    """

    description: program.ProgramDescription
    tensors: dict[int, Any]
    module: GraphModule
    signature: ExportGraphSignature
    returned: TreeSpec
    ranges: dict[str, tuple[int | None, int | None]]


def graph_program(example: Example) -> GraphProgram:
    """Trace a module, and return what it calls as a program.

    Raises GuardOnDataDependentSymNode where it decides by elements, and ProgramError where a size cannot differ.
    """
    own = [*{id(item.tensor): item.tensor for item in example.state}.values()]
    returned: list[TreeSpec] = []

    def trace(given: list[Any], unknowns: Unknowns) -> GraphModule:
        names = [f"leaf_{place}" for place in range(len(given))]
        with FakeTensorMode(allow_non_fake_inputs=True) as fake, no_grad(), exporting():
            leaves = [fake.from_tensor(leaf) if isinstance(leaf, Tensor) else leaf for leaf in given]
            sessions = {meta_session, fake._session, *([current_session()] if has_session() else [])}
            tracing = FunctionTracing({}, sessions)
            tracing.unknowns = unknowns
            return tracing.traced(lambda: _run(example, own, leaves, returned), leaves, names)

    wanted = _symbols(example, len(own))
    tracing = SymbolicTracing(trace, [*own, *example.leaves], [*wanted.values()])
    module = tracing.traced()
    for name, places in wanted.items():
        size = example.symbols[name]
        if places not in tracing.symbols and (size.is_named or size.kind == "DYNAMIC"):
            raise ProgramError(
                f"export: the module does something else where the dimension {name} is not {size.base}, or computes of "
                "it what no formula says; make the dimension static (Dim.STATIC)"
            )
    return _described(example, module, own, tracing, wanted, returned[0])


def _run(example: Example, own: Sequence[Any], leaves: Sequence[Any], returned: list[TreeSpec]) -> list[Any]:
    """Call the module with these tensors in the place of its own, and return the leaves of its result."""
    stand_ins = {id(tensor): leaf for tensor, leaf in zip(own, leaves)}
    for item in example.state:
        item.registry[item.name] = stand_ins[id(item.tensor)]
    try:
        args, kwargs = tree_unflatten([*leaves[len(own) :]], example.structure)
        results, structure = tree_flatten(example.module(*args, **kwargs))
        for item in example.state:
            now, before = item.registry[item.name], stand_ins[id(item.tensor)]
            if now is not before:
                before.copy_(now)
        returned.append(structure)
        return results
    finally:
        for item in example.state:
            item.registry[item.name] = item.tensor


def _symbols(example: Example, before: int) -> dict[str, list[SizePlace]]:
    """Return the places of each size that may differ, by its name; ``before`` is how many leaves stand before these."""
    found: dict[str, list[SizePlace]] = {}
    for place, sizes in example.dims.items():
        for dim, size in enumerate(sizes):
            if isinstance(size, Formula):
                if not is_symbol(size):
                    raise ProgramError(f"export: a module that reads elements cannot have an input of the size {size}")
                found.setdefault(next(size.names()), []).append(SizePlace(before + place, dim))
    return found


def _described(
    example: Example, module: GraphModule, own: Sequence[Any], tracing: SymbolicTracing,
    wanted: Mapping[str, list[SizePlace]], returned: TreeSpec,
) -> GraphProgram:  # fmt: skip
    """Return the program: constants become placeholders behind the module's own tensors, as all that it is given."""
    kept = [name for name, places in wanted.items() if places in tracing.symbols]
    constants = _constants(module)
    first = len(example.inputs) + len(example.held) + 1
    lifted = [_held(tensor, f"lifted_tensor_{place}", first + place) for place, tensor in enumerate(constants.values())]
    described = program.ProgramDescription(
        program.VERSION,
        tuple([_range_of(example.symbols[name]) for name in kept]),
        tuple([_fixed(item, kept, example) for item in example.inputs]),
        (*example.held, *lifted), (), (),
    )  # fmt: skip
    names = names_of(described)
    leaf_names = iter([names[item.value] for item in described.inputs])
    given = [
        next(leaf_names) if isinstance(leaf, Tensor) else name for name, leaf in zip(example.names, example.leaves)
    ]
    graph = _lifted(module, [names[held.value] for held in described.tensors], len(own), [*constants], given)
    places = iter(range(len(example.inputs)))
    leaves = [Place(next(places)) if isinstance(leaf, Tensor) else leaf for leaf in example.leaves]
    inputs = signature_of(described, names, leaves, ()).input_specs
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, _argument(result), None) for result in graph.output_node().args[0]]
    tensors = dict(zip([held.value for held in described.tensors], [*own, *constants.values()], strict=True))
    return GraphProgram(
        described, tensors, GraphModule(module, graph), ExportGraphSignature(inputs, outputs), returned,
        {f"u{number}": (range.least, range.most) for number, range in tracing.ranges.items()},
    )  # fmt: skip


def _range_of(symbol: Symbol) -> program.Symbol:
    return program.Symbol(symbol.name, max(symbol.min, 0), symbol.max)


def _argument(result: Any) -> Any:
    if not isinstance(result, Node):
        return ConstantArgument("", result)
    return (TensorArgument if isinstance(result.meta.get("val"), Tensor) else SymIntArgument)(result.name)


def _held(tensor: Tensor, name: str, number: int) -> program.Held:
    return program.Held(
        dtype=tensor.dtype.name, shape=tuple(tensor.shape), name=name, value=number, kind="constant",
        device=tensor.device.name,
    )  # fmt: skip


def _fixed(item: program.Input, kept: Sequence[str], example: Example) -> program.Input:
    """Return an input whose sizes are numbers where the graph is for one size."""
    names = [next(size.names()) if isinstance(size, Formula) else "" for size in item.shape]
    shape = tuple([
        example.symbols[name].base if name and name not in kept else size
        for name, size in zip(names, item.shape, strict=True)
    ])  # fmt: skip
    return program.Input(
        dtype=item.dtype, shape=shape, name=item.name, value=item.value, place=item.place, device=item.device
    )


def _constants(module: GraphModule) -> dict[str, Tensor]:
    """Return the tensors that a traced graph has as attributes, by their names."""
    targets = [str(node.target) for node in module.graph.nodes if node.op == "get_attr"]
    found = {target: getattr(module, target) for target in targets}
    return {target: value for target, value in found.items() if isinstance(value, Tensor)}


def _lifted(
    module: GraphModule, held: Sequence[str], own: int, constants: Sequence[str], given: Sequence[str]
) -> Graph:  # fmt: skip
    """Return a graph that is given the module's tensors, constants and arguments, by these names."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    made = Graph()
    copies: dict[Node, Node] = {}

    def placeholder(name: str, like: Node | None) -> Node:
        node = made.placeholder(name)
        node.name = name
        node.meta = dict(like.meta) if like is not None else {}
        return node

    for name, node in zip(held, nodes[:own]):
        copies[node] = placeholder(name, node)
    lifted = {target: placeholder(name, None) for target, name in zip(constants, held[own:], strict=True)}
    for name, node in zip(given, nodes[own:], strict=True):
        copies[node] = placeholder(name, node)
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.target in lifted:
            copies[node] = lifted[str(node.target)]
            copies[node].meta = dict(node.meta)
        elif node not in copies:
            copies[node] = made.node_copy(node, copies.__getitem__)
    return made
