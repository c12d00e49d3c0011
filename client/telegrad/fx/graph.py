"""``Graph``: the operations of a function in order, as a list of nodes that programs read and rewrite."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from telegrad.nn.modules.module import Module

from ._code.codegen import CodeGen as CodeGen
from ._code.codegen import PythonCode as PythonCode
from ._code.codegen import inplace_methods as inplace_methods
from ._code.codegen import magic_methods as magic_methods
from ._code.codegen import reflectable_magic_methods as reflectable_magic_methods
from ._code.names import Namespace, snake_case
from ._code.pytree_codegen import _PyTreeCodeGen as _PyTreeCodeGen
from ._code.pytree_codegen import _PyTreeInfo as _PyTreeInfo
from ._code.qualified_names import function_name
from ._code.tables import table
from ._lint import lint
from ._mapping import map_aggregate
from ._node_list import InsertPoint, NodeList
from .immutable_collections import immutable_dict
from .node import Node, Target, map_arg

__all__ = ["CodeGen", "Graph", "PythonCode"]

_Namespace = Namespace
_snake_case = snake_case


class Graph:
    """The operations of a function in order. ``owning_module`` is the ``GraphModule`` that runs it, if there is one."""

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = Namespace()
        self._positions: dict[Node, int] | None = None
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}
        self.owning_module = owning_module

    @property
    def nodes(self) -> NodeList:
        """The nodes in order; the list may be changed while it is walked."""
        return NodeList(self)

    def _position(self, node: Node) -> int:
        """Return the place of a node; places are counted again after a change."""
        if self._positions is None:
            self._positions = {each: place for place, each in enumerate(self.nodes)}
        return self._positions.get(node, -1)

    def output_node(self) -> Node:
        """Return the last node, which says what is returned."""
        last = self._root._prev
        if last.op != "output":
            raise AssertionError(f"Expected output node, got op={last.op}")
        return last

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Any]:
        """Return the nodes of a kind, in order; those with this target, which functions must be asked for by."""
        if op == "call_function" and target is None:
            raise AssertionError("target must not be None for call_function op")
        return [node for node in self.nodes if node.op == op and target in (None, node.target)]

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copy the nodes of another graph to here, and return what it returns.

        ``val_map`` gets the copy of each node; nodes that it has already are not copied.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                returned = map_arg(node.args[0], lambda n: val_map[n])
                return (returned, node) if return_output_node else returned
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: Any = None) -> Graph:
        memo = memo if memo else {}
        copied = Graph(tracer_cls=self._tracer_cls)
        returned = copied.graph_copy(self, memo, return_output_node=True)
        copied._codegen = copy.deepcopy(self._codegen)
        if returned is not None:
            value, old = returned
            copied.output(value, old.type).meta = copy.copy(old.meta)
        return copied

    def create_node(
        self, op: str, target: Target, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None,
        name: str | None = None, type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a node at the insertion point; ``name`` gets a number where it is in use."""
        args, kwargs = args or (), kwargs or immutable_dict()
        if not isinstance(args, tuple):
            raise AssertionError(f"args must be a tuple, got {type(args)}")
        if not isinstance(kwargs, dict):
            raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
        name = self._graph_namespace.create_name(name if name is not None else self._target_to_str(target), None)
        node = Node(self, name, op, target, args, kwargs, type_expr)
        self._graph_namespace.associate_name_with_obj(name, node)
        self._insert(node)
        self._len += 1
        return node

    def process_inputs(self, *args: Any) -> Any:
        """Return the inputs as the graph's placeholders take them."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """Return what the graph gives as its function returns it."""
        return self._codegen.process_outputs(out)

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node that nothing uses."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        to_erase._remove_from_list()
        self._len -= 1
        nothing: Callable[[Any], Any] = lambda leaf: None if isinstance(leaf, Node) else leaf
        to_erase._update_args_kwargs(map_aggregate(to_erase._args, nothing), map_aggregate(to_erase._kwargs, nothing))

    def inserting_before(self, n: Node | None = None) -> InsertPoint:
        """Let new nodes go before a node, or to the beginning; in a ``with`` statement, until its end."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> InsertPoint:
        """Let new nodes go after a node, or to the end; in a ``with`` statement, until its end."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return InsertPoint(self, n.append)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = inspect.Signature.empty) -> Node:
        """Insert a node that stands for an input of the function."""
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Add the reading of an attribute of the module, or of a module below it."""
        if self.owning_module is not None and not _is_state(self.owning_module, qualified_name):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! Call "
                "GraphModule.add_submodule to add the necessary submodule, GraphModule.add_parameter to add the "
                "necessary Parameter, or nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a call of a module below the owning one."""
        if self.owning_module is not None:
            self.owning_module.get_submodule(module_name)
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a call of a method of ``args[0]``."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self, the_function: Callable[..., Any], args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None, type_expr: Any = None, name: str | None = None,
    ) -> Node:  # fmt: skip
        """Insert a node that calls a function of Python."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda node: node) -> Node:
        """Add a copy of a node of another graph; ``arg_transform`` gives this graph's node for one of the other's."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        copied = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copied.meta = copy.copy(node.meta)
        return copied

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """Add what is returned; it comes last."""
        return self.create_node("output", "output", args=(result,), type_expr=type_expr)

    def _target_to_str(self, target: Any) -> str:
        if callable(target):
            return snake_case(function_name(target))
        return snake_case(target[2:-2] if target.startswith("__") and target.endswith("__") else target)

    def python_code(self, root_module: str, **options: Any) -> PythonCode:
        """Return the graph as a Python function of its inputs and ``root_module``, such as ``self``."""
        namespace = Namespace()
        nodes = list(self.nodes)
        before = [node._repr_fn for node in nodes]
        for node in nodes:
            node._repr_fn = lambda n: namespace.create_name(n.name, n)
        try:
            return self._codegen._gen_python_code(self.nodes, root_module, namespace, **options)
        finally:
            for node, shown in zip(nodes, before, strict=True):
                node._repr_fn = shown

    def __str__(self) -> str:
        inputs: list[str] = []
        returned = [""]
        lines = [node.format_node(inputs, returned) for node in self.nodes]
        return "\n    ".join([f"graph({', '.join(inputs)}){returned[0]}:", *[line for line in lines if line]])

    def print_tabular(self) -> None:
        """Print a table of the nodes: operation, name, target, arguments."""
        rows = [[node.op, node.name, node.target, node.args, node.kwargs] for node in self.nodes]
        print(table(["opcode", "name", "target", "args", "kwargs"], rows))

    def lint(self) -> None:
        """Raise RuntimeError or ValueError if the graph is not well formed."""
        lint(self)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove nodes whose results nothing uses and that do nothing else; return whether there were any.

        ``is_impure_node`` says which nodes do something else.
        """
        self.lint()
        before = self._len
        for node in reversed(self.nodes):
            if not node.users and not (is_impure_node or Node.is_impure)(node):
                self.erase_node(node)
        has_changed = self._len < before
        if self.owning_module is not None:
            read = {node.target for node in self.find_nodes(op="get_attr")}
            for name, child in self.owning_module.named_children():
                if name in read and isinstance(getattr(child, "graph", None), Graph):
                    has_changed |= child.graph.eliminate_dead_code()
                    child.recompile()
        return has_changed

    def set_codegen(self, codegen: CodeGen) -> None:
        """Have another object write the code of the graph."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[Any], Any]) -> AbstractContextManager[None]:
        """Have the lines of generated code pass a function; in a ``with`` statement, until its end.

        ``make_transformer`` gets the function that they pass now, or None, and returns the new one.
        """
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)

        @contextmanager
        def until_the_end() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = before

        return until_the_end()


def _is_state(module: Any, qualified_name: str) -> bool:
    """Whether a name is that of a submodule, parameter or buffer."""
    path, _, name = qualified_name.rpartition(".")
    try:
        holder = module.get_submodule(path)
    except AttributeError:
        warnings.warn(f"Failed to fetch module {path}!", stacklevel=3)
        return False
    return isinstance(getattr(holder, name, None), Module) or name in holder._parameters or name in holder._buffers
