"""``Proxy``: what stands for a value while a function is traced, and records what is done with it."""

from __future__ import annotations

import copy
import dis
import enum
import operator
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from opcode import opmap
from typing import Any, Final

from telegrad.nn.parameter import Parameter
from telegrad_protocol.errors import ArgumentError, NotSupportedError

from . import traceback as fx_traceback
from ._code.call_forms import as_recorded
from ._code.qualified_names import function_name, is_own
from ._mapping import leaves
from ._tracing.own_functions import answer_functions, ask_for, stop_asking_for
from ._tracing.scopes import Scope as Scope
from ._tracing.scopes import ScopeContextManager as ScopeContextManager
from ._tracing.scopes import program_stack
from .graph import Graph, magic_methods, reflectable_magic_methods
from .node import Node, Target, base_types

__all__ = [
    "Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "Scope", "ScopeContextManager", "TraceError",
    "TracerBase",
]  # fmt: skip


class TraceError(ArgumentError):
    """What a function does cannot be traced, since it depends on values that are not known."""


class TracerBase:
    """Makes nodes and proxies; classes that derive from it decide what is recorded, and how."""

    graph: Graph
    record_stack_traces: bool = False
    _record_forward_stack_traces_only: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    scope: Scope
    module_stack: OrderedDict[str, tuple[str, Any]]
    node_name_to_scope: dict[str, tuple[str, Any]]

    def create_node(
        self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a node to the graph."""
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = self.scope.module_path, self.scope.module_type
        if fx_traceback.has_preserved_node_meta():
            fx_traceback.take_over(node)
        elif self.module_stack:
            node.meta["nn_module_stack"] = copy.copy(self.module_stack)
        if self.record_stack_traces and not node.stack_trace:
            stack = program_stack()
            if stack:
                node.stack_trace = stack
        return node

    def proxy(self, node: Node) -> Proxy:
        """Return what stands for the result of a node."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None = None,
        type_expr: Any = None, proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:  # fmt: skip
        """Add a node with these arguments, proxies among them, and return what stands for its result."""
        args, kwargs = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, args, kwargs, name, type_expr)
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a: Any) -> Any:
        """Return an argument with nodes in place of proxies. Raises NotImplementedError for what no node can have."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, (tuple, list)):
            items = [self.create_arg(item) for item in a]
            return items if isinstance(a, list) else type(a)(*items) if hasattr(a, "_fields") else tuple(items)
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if is_dataclass(a) and not isinstance(a, type):
            values = {field.name: self.create_arg(getattr(a, field.name)) for field in fields(a)}
            return self.create_node("call_function", a.__class__, (), values)
        if isinstance(a, (*base_types, enum.Enum)) or a is None or a is ...:
            return a
        raise NotSupportedError(f"argument of type: {type(a)}")

    def _key(self, key: Any) -> Any:
        """Return the key of a dictionary that is an argument; it may contain no node."""
        lowered = key if isinstance(key, str) else self.create_arg(key)
        if any(isinstance(leaf, Node) for leaf in leaves(lowered)):
            raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {lowered}")
        return lowered

    def to_bool(self, obj: Proxy) -> bool:
        """Return the truth of a value, which is not known: raises TraceError."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Return an iterator over a value, whose length is not known: raises TraceError."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument. See the torch.fx docs on pytorch.org for a more detailed explanation of what "
            "types of control flow can be traced, and check out the Proxy docstring for help troubleshooting Proxy "
            "iteration errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """Record that the keys of a value are asked for, as ``**`` does."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds what is done with proxies to a graph that is there already."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph, self.scope = graph, Scope("", None)
        self.module_stack = OrderedDict()
        self.node_name_to_scope = {}
        ask_for(id(self))

    def __del__(self) -> None:
        stop_asking_for(id(self))


def assert_fn(x: Any) -> None:
    """Raise AssertionError where a value is false; it stands for an ``assert`` that was traced."""
    if not x:
        raise AssertionError("Assertion failed")


class Proxy:
    """Stands for the result of a node; what a program does with it becomes a node itself.

    Loops over it and branches on it cannot be traced: a function that needs them is kept whole by ``fx.wrap``.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = tracer if tracer is not None else GraphAppendingTracer(node.graph)
        self.node = node

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        answer_functions(cls)

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        copied: Proxy = object.__new__(Proxy)
        copied.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return copied

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        opcode, argument = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
        if opcode == opmap["UNPACK_SEQUENCE"]:
            return iter([self[place] for place in range(argument)])  # type: ignore[index]
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _is_asserted(sys._getframe(1)):
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """Return what stands for the keys of the value."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None) -> Any:
        args, kwargs = args or (), kwargs or {}
        tracers = {leaf.tracer: None for leaf in leaves((args, kwargs)) if isinstance(leaf, cls)}
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers)} while trying to trace operations {orig_method}"
            )
        (tracer,) = tracers
        if not is_own(orig_method) or getattr(orig_method, "__qualname__", "").startswith("Tensor."):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        args, kwargs = as_recorded(orig_method, args, kwargs)
        name = tracer.graph._target_to_str(function_name(orig_method))
        return tracer.create_proxy("call_function", orig_method, args, kwargs, name=name)


class Attribute(Proxy):
    """Stands for an attribute of a value; it becomes a node when it is used other than by calling it as a method."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Stands for a parameter, whose shape is known while a function is traced."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Parameter) -> None:
        super().__init__(node, tracer)
        if not isinstance(param, Parameter):
            raise AssertionError(f"Expected Parameter, got {type(param)}")
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The size of each dimension."""
        return self.param.shape

    def size(self) -> Any:
        """Return the size of each dimension."""
        return self.param.size()

    def dim(self) -> int:
        """Return the number of dimensions."""
        return self.param.dim()

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.param.ndim

    def numel(self) -> int:
        """Return the number of elements."""
        return self.param.numel()

    def nelement(self) -> int:
        """Return the number of elements."""
        return self.param.numel()


def _is_asserted(frame: Any) -> bool:
    """Whether a frame asks for the truth of a value because of an ``assert`` statement."""
    following = [line.opname for line in dis.get_instructions(frame.f_code) if line.offset > frame.f_lasti]
    return any("ASSERTION_ERROR" in name for name in following[:2])


def _define(name: str) -> None:
    """Let proxies record an operator, on either side of it."""
    target = getattr(operator, name)
    plain = name.strip("_")

    def apply(self: Proxy, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", target, (self, *args), kwargs)

    def apply_reflected(self: Proxy, other: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", target, (other, self), {})

    setattr(Proxy, f"__{plain}__", apply)
    if name in reflectable_magic_methods:
        setattr(Proxy, f"__r{plain}__", apply_reflected)


_OPERATORS: Final = [name for name in magic_methods if hasattr(operator, name)]
for _name in _OPERATORS:
    _define(_name)
answer_functions(Proxy)
