"""A program as a module that can be called: its graph, with its tensors as attributes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from telegrad._session.grad_mode import is_grad_enabled, set_grad_enabled
from telegrad._tensor.tensor import Tensor
from telegrad.fx import graph_module as fx
from telegrad.fx._code.pytree_codegen import CallCodeGen, _PyTreeInfo
from telegrad.fx.graph import Graph
from telegrad.fx.node import Node, map_arg
from telegrad.fx.proxy import Proxy
from telegrad.nn.modules.module import Module
from telegrad.nn.parameter import Parameter
from telegrad.utils._pytree import TreeSpec, tree_flatten
from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.errors import ArgumentError, DTypeError, NotSupportedError, ProgramError
from telegrad_protocol.exported.description import Held, ProgramDescription
from telegrad_protocol.exported.solving import sizes_of

from ._trees import Place


class Guards(Module):
    """Refuses what the program was not exported for: other types, shapes and constants. Graphs call it first."""

    _is_impure = True

    def __init__(self, program: ProgramDescription, expected: Sequence[Any]) -> None:
        super().__init__()
        self._program, self._expected = program, expected

    def forward(self, *leaves: Any) -> None:
        """Raise ShapeError, DTypeError or ArgumentError for what the program does not take."""
        if any([isinstance(leaf, Proxy) for leaf in leaves]):
            return
        shapes: dict[str, tuple[int, ...]] = {}
        for leaf, expected in zip(leaves, self._expected, strict=True):
            if isinstance(expected, Place):
                shapes[self._program.inputs[expected].name] = self._shape(leaf, expected)
            elif not _is_same(leaf, expected):
                raise ArgumentError(f"the program was exported with {expected!r}, and is called with {leaf!r}")
        sizes_of(self._program, shapes)

    def _shape(self, leaf: Any, place: Place) -> tuple[int, ...]:
        described = self._program.inputs[place]
        if not isinstance(leaf, Tensor) or leaf.dtype is not BY_NAME[described.dtype]:
            shown = leaf._meta if isinstance(leaf, Tensor) else repr(leaf)
            raise DTypeError(f"input {described.name!r}: expected {described}, got {shown}")
        return tuple(leaf.shape)


def _is_same(value: Any, expected: Any) -> bool:
    """Whether an argument is the constant that a program was exported with: 2, 2.0 and True are three of them."""
    if type(value) is not type(expected):
        return False
    return bool(repr(value) == repr(expected) if isinstance(value, (float, complex)) else value == expected)


class ProgramModule(fx.GraphModule):
    """A module of a graph that takes arguments in the structure in which the program was exported."""

    def in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return arguments as the graph takes them; ArgumentError where their structure is another one."""
        return _in_order(args, kwargs, self._in_spec) if hasattr(self, "_in_spec") else (args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self.in_order(args, kwargs)
        with set_grad_enabled(is_grad_enabled()):  # also where the program fails in a part without gradients
            return super().__call__(*args, **kwargs)


class GraphModule(ProgramModule):
    """A module that computes an exported program. It has the parameters and buffers of the program."""

    def train(self, mode: bool = True) -> NoReturn:
        """Refuse: a program computes what its module did in the mode that it was exported in."""
        raise NotSupportedError(
            f"{'train' if mode else 'eval'}: a program computes what its module did in the mode in which it was "
            "exported; call train() or eval() of the module, and export it again"
        )


def _in_order(args: tuple[Any, ...], kwargs: dict[str, Any], structure: TreeSpec) -> tuple[Any, dict[str, Any]]:
    """Return arguments with keywords in the order of the export; ArgumentError where the structure is another one."""
    wanted = structure.child(1).context
    ordered = {name: kwargs[name] for name in wanted} if sorted(wanted) == sorted(kwargs) else kwargs
    given = tree_flatten((args, ordered))[1]
    if given != structure:
        raise ArgumentError(f"the program takes arguments of the structure {structure}; called with {given}")
    return args, ordered


class Parts(NamedTuple):
    """What a module of a program is made of beside its graph.

    ``tensors`` are placeholders of the graph, by the names of these, ``leaves`` those of the arguments: places of
    inputs, and constants.
    """

    program: ProgramDescription
    tensors: Mapping[str, tuple[Held, Tensor]]
    aliases: Mapping[str, str]
    info: _PyTreeInfo
    leaves: Sequence[Any]

    def guards(self) -> Guards:
        """Return what refuses arguments that the program does not take."""
        return Guards(self.program, self.leaves)

    def place_in(self, module: Module) -> None:
        """Give a module the tensors: parameters and buffers by their paths, constants as plain attributes."""
        for held, tensor in self.tensors.values():
            for path in [held.name, *[path for path, first in self.aliases.items() if first == held.name]]:
                try:
                    _place(module, path, held, tensor)
                except KeyError as error:
                    raise ProgramError(f"the program has a tensor {path!r}, which no module holds: {error}") from None


def module_of(graph: Graph, parts: Parts, source: Module) -> GraphModule:
    """Return a module whose attributes are the tensors that are placeholders of the graph.

    ``source`` has the graphs of functions that the graph calls.
    """
    root = Module()
    for name, child in source.named_children():
        root.add_module(name, child)
    root.add_module("_guards_fn", parts.guards())
    parts.place_in(root)
    module = GraphModule(root, _without_placeholders(graph, parts.tensors, parts.info))
    parts.place_in(module)
    return module


def _without_placeholders(graph: Graph, tensors: Mapping[str, tuple[Held, Tensor]], info: _PyTreeInfo) -> Graph:
    """Return a copy of a graph that reads attributes in the place of placeholders of these names."""
    made = Graph()
    copies: dict[Node, Node] = {}
    given: list[Node] = []
    for node in graph.nodes:
        if node.op == "output":
            made.output(map_arg(node.args[0], copies.__getitem__)).meta = copy.copy(node.meta)
        elif node.op == "placeholder" and node.name in tensors:
            copies[node] = made.get_attr(tensors[node.name][0].name)
            copies[node].meta = copy.copy(node.meta)
        else:
            copies[node] = made.node_copy(node, copies.__getitem__)
            given += [copies[node]] if node.op == "placeholder" else []
    _add_guards(made, given)
    made.set_codegen(CallCodeGen(info))
    return made


def _add_guards(graph: Graph, given: Sequence[Node]) -> None:
    first = next(node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))
    with graph.inserting_before(first):
        graph.call_module("_guards_fn", tuple(given))


def _place(module: Module, path: str, held: Held, tensor: Tensor) -> None:
    *above, name = path.split(".")
    for part in above:
        if part not in module._modules:
            module.add_module(part, Module())
        module = module._modules[part]
    if held.kind == "constant":
        module._buffers.pop(name, None)
        module.__dict__[name] = tensor
    elif isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor, persistent=held.is_persistent)
