"""``Node``: one operation of a graph, with its arguments and the nodes that use its result."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from telegrad._library.overloads import OpOverload
from telegrad._programs.private import checks
from telegrad._programs.private.symbols import SymBool, SymFloat, SymInt
from telegrad._tensor.layouts import Layout
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.memory_format import MemoryFormat
from telegrad_protocol.meta import Device

from ._code.qualified_names import qualified_name, target_name, type_name
from ._mapping import leaves
from ._mapping import map_aggregate as map_aggregate
from .operator_schemas import ArgsKwargsPair, normalize_function, normalize_module

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

Target: TypeAlias = Callable[..., Any] | str
Argument: TypeAlias = Any
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
BaseArgumentTypes: TypeAlias = Any
base_types: Final = (
    str, int, float, bool, complex, DType, Tensor, Device, MemoryFormat, Layout, OpOverload, SymInt, SymBool, SymFloat,
)  # fmt: skip
"""Types of constants that arguments may be, beside None, enumerations and containers."""
_OPS: Final = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")
_side_effectful_functions: set[Any] = {checks._assert, operator.setitem}
_get_qualified_name = qualified_name
_type_repr = type_name


def has_side_effect(fn: Decorated) -> Decorated:
    """Keep calls of a function in graphs even where nothing uses their results."""
    _side_effectful_functions.add(fn)
    return fn


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Return an argument with every node in it replaced by what ``fn`` gives."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda leaf: fn(leaf) if isinstance(leaf, Node) else leaf)


class Node:
    """One operation of a graph. ``op`` says what kind it is, and what ``target`` means.

    ``placeholder``: an input of the name ``target``, whose default is in ``args``; ``get_attr``: the attribute
    ``target`` of the module; ``call_function``: ``target(*args, **kwargs)``; ``call_module``: the submodule ``target``
    called; ``call_method``: the method ``target`` of ``args[0]``; ``output``: returns ``args[0]``.
    """

    def __init__(
        self, graph: Any, name: str, op: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any],
        return_type: Any = None,
    ) -> None:  # fmt: skip
        if op not in _OPS:
            raise AssertionError(f"op '{op}' is not in _legal_ops")
        is_function = op == "call_function"
        if not (callable(target) if is_function else isinstance(target, str)):
            raise ArgumentError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target).__name__} but a "
                f"{'Callable' if is_function else 'str'} is expected"
            )
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev = self._next = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self._update_args_kwargs(args, kwargs)

    def _update_args_kwargs(self, args: Any, kwargs: Any) -> None:
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._args, self._kwargs = map_aggregate(args, _itself), map_aggregate(kwargs, _itself)
        self._input_nodes = {leaf: None for leaf in leaves((self._args, self._kwargs)) if isinstance(leaf, Node)}
        for node in self._input_nodes:
            node.users[self] = None

    @property
    def next(self) -> Node:
        """The node that follows; the last is followed by the graph's root."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before; before the first is the graph's root."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move a node of the same graph to the place before this one."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x
        self.graph._positions = None

    def append(self, x: Node) -> None:
        """Move a node of the same graph to the place after this one."""
        self._next.prepend(x)

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def _remove_from_list(self) -> None:
        """Leave the graph; iterators that are at this node go on from it."""
        self._unlink()
        self._erased = True
        self.graph._positions = None

    @property
    def _sort_key(self) -> int:
        return int(self.graph._position(self))

    def __lt__(self, other: Node) -> bool:
        return self._sort_key < other._sort_key

    def __gt__(self, other: Node) -> bool:
        return self._sort_key > other._sort_key

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or self > other

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments; assigning them updates who uses what."""
        return self._args

    @args.setter
    def args(self, a: tuple[Any, ...]) -> None:
        self._update_args_kwargs(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments; assigning them updates who uses what."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Any]) -> None:
        self._update_args_kwargs(self._args, k)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once, in order."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replace one positional argument."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Add a positional argument before another one."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError(f"insert_args index must be between 0 and len(self.args), got {idx}")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Set one keyword argument."""
        self.kwargs = {**self.kwargs, key: arg}

    @property
    def stack_trace(self) -> str | None:
        """Where the program made this node, if the tracer recorded it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name

    @staticmethod
    def _pretty_print_target(target: Any) -> str:
        return target_name(target)

    def format_node(
        self, placeholder_names: list[str] | None = None, maybe_return_typename: list[str] | None = None, *,
        include_tensor_metadata: bool = False,
    ) -> str | None:  # fmt: skip
        """Return the node as one line. A placeholder goes into ``placeholder_names`` instead, where there are some."""
        type_text = f"{type_name(self.type)} " if self.type is not None else ""
        shown = f"%{self.name} : {type_text}[num_users={len(self.users)}] = {self.op}[target="
        if self.op == "placeholder":
            if placeholder_names:
                placeholder_names.append(f"{self.target}: {type_name(self.type)}" if self.type else str(self.target))
                return None
            return f"{shown}{self.target}]" + (f"(default={self.args[0]})" if self.args else "")
        if self.op == "get_attr":
            return f"{shown}{target_name(self.target)}]"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_name(self.type)}"
            return f"return {self.args[0]}"
        arguments = f"args = {_format_arg(self.args)}, kwargs = {_format_arg(self.kwargs)}"
        return f"{shown}{target_name(self.target)}]({arguments})"

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] | None = None, *, propagate_meta: bool = False
    ) -> list[Node]:
        """Let the users of this node use another one, and return those that were changed.

        ``delete_user_cb`` says which users are meant; ``propagate_meta`` copies ``meta`` to the other node.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already "
                    "has .meta keys"
                )
            replace_with.meta.update(self.meta)
        chosen = [user for user in self.users if delete_user_cb is None or delete_user_cb(user)]
        for user in chosen:
            user.replace_input_with(self, replace_with)
        return chosen

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use another node wherever this one uses ``old_input``."""

        def replaced(node: Any) -> Any:
            return new_input if node is old_input else node

        self._update_args_kwargs(map_aggregate(self._args, replaced), map_aggregate(self._kwargs, replaced))

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node does something beside giving a result, so that it stays where nothing uses that."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_module":
            if self.graph.owning_module is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            return getattr(self.graph.owning_module.get_submodule(str(self.target)), "_is_impure", False)
        if self.op != "call_function":
            return False
        if self.target in _side_effectful_functions:
            return True
        return writes_to_arguments(self.target) or (impure_random and _is_random(self.target))

    def normalized_arguments(
        self, root: Any, arg_types: Any = None, kwarg_types: Any = None, normalize_to_only_use_kwargs: bool = False
    ) -> ArgsKwargsPair | None:
        """Return the arguments with defaults, as the signature of the function or module has them; None without one."""
        if self.op == "call_function":
            return normalize_function(
                self.target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs
            )
        if self.op == "call_module":
            return normalize_module(root, str(self.target), self.args, self.kwargs, normalize_to_only_use_kwargs)
        return None

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)
            self.graph._graph_namespace._rename_object(self, self.name)


def _itself(leaf: Any) -> Any:
    return leaf


def writes_to_arguments(target: Any) -> bool:
    """Whether a function is an operator whose schema, or name in telegrad, says that it writes to its arguments."""
    schema = getattr(target, "_schema", None)
    if schema is None and getattr(target, "namespace", "") == "telegrad":
        return str(target._opname).endswith("_")
    return bool(getattr(schema, "is_mutable", False))


def _is_random(target: Any) -> bool:
    """Whether a function draws random numbers; leaving it out would change those that follow."""
    return getattr(target, "__name__", "") in _RANDOM and target_name(target).count(".") == 1


_RANDOM: Final = ("bernoulli", "multinomial", "normal", "poisson", "rand", "randint", "randn", "randperm")


def _format_arg(arg: Any, max_list_len: float = float("inf")) -> str:
    """Return an argument as text, nodes with a percent sign."""
    if hasattr(arg, "_custom_fx_repr_fn"):
        return str(arg._custom_fx_repr_fn())
    if isinstance(arg, Node):
        return f"%{arg}"
    if isinstance(arg, dict):
        return "{" + ", ".join([f"{key}: {_format_arg(value)}" for key, value in arg.items()]) + "}"
    if not isinstance(arg, (list, tuple)):
        return str(arg)
    items = ", ".join([_format_arg(item) for place, item in enumerate(arg) if place < max_list_len])
    left_out = "" if len(arg) < max_list_len + 1 else f", ...[total_len={len(arg)}]"
    if isinstance(arg, list):
        return f"[{items}{left_out}]"
    return f"({items}{',' if len(arg) == 1 else ''}{left_out})"
