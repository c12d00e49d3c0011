"""``Tracer`` and ``symbolic_trace``: run a function on proxies once, and keep what it does as a graph."""

from __future__ import annotations

import collections
import copy
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import FunctionType, ModuleType
from typing import Any, Final

from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.container import Sequential
from telegrad.nn.modules.module import Module
from telegrad.nn.parameter import Parameter
from telegrad.utils._pytree import TreeSpec

from ._tracing.own_functions import ask_for, stop_asking_for
from ._tracing.patching import Patcher, new_patcher, recorded, recorded_method
from ._tracing.proxyable import ProxyableClassMeta as ProxyableClassMeta
from ._tracing.proxyable import proxyable_classes
from ._tracing.root_arguments import PH as PH
from ._tracing.root_arguments import PHBase as PHBase
from ._tracing.root_arguments import PHWithMeta as PHWithMeta
from ._tracing.root_arguments import _assert_is_none as _assert_is_none
from ._tracing.root_arguments import arguments_for, is_annotated_by_telegrad
from ._tracing.tracing_state import is_fx_symbolic_tracing as is_fx_symbolic_tracing
from ._tracing.tracing_state import is_fx_tracing as is_fx_tracing
from ._tracing.tracing_state import tracing
from ._tracing.wrapping import _wrapped_fns_to_patch as _wrapped_fns_to_patch
from ._tracing.wrapping import wrap as wrap
from .graph import Graph
from .graph_module import GraphModule
from .proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase

_wrapped_methods_to_patch: list[tuple[type, str]] = []
_CONSTANTS: Final = {Tensor: "_tensor_constant", TreeSpec: "_tree_spec_constant"}
"""Types of values that a module keeps for its graph, and the names of the attributes that it keeps them in."""


wrap("_assert_is_none")


class Tracer(TracerBase):
    """Traces functions and modules. Modules of ``nn`` are leaves, whose calls are recorded as such."""

    root: Any
    tensor_attrs: dict[Any, str]

    def __init__(
        self, autowrap_modules: Sequence[ModuleType] = (math,), autowrap_functions: Sequence[Callable[..., Any]] = (),
        param_shapes_constant: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        functions = chain.from_iterable(vars(module).items() for module in autowrap_modules)
        self._autowrap_function_ids = {id(f) for name, f in functions if name[0] != "_" and callable(f)}
        self._autowrap_function_ids |= {id(f) for f in autowrap_functions}
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Any, str] | None = None
        self.root_module_name = ""
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope = {}
        self.tensor_attrs = {}

    def get_fresh_qualname(self, prefix: str) -> str:
        """Return a name with this prefix and a number that no attribute of the root has."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    def create_arg(self, a: Any) -> Any:
        """Return an argument as nodes take it; tensors and modules become the attributes of the root that they are."""
        if isinstance(a, Parameter):
            return self._read(a, self.root.named_parameters(), "parameter is not a member of this module")
        if isinstance(a, (Tensor, Module)):
            known = self.root.named_buffers() if isinstance(a, Tensor) else self.root.named_modules()
            node = self._read(a, known)
            if node is not None:
                return node
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", a.__class__, tuple([self.create_arg(item) for item in a]), {})
        for kind, prefix in _CONSTANTS.items():
            if isinstance(a, kind):
                return self._constant(a, prefix)
        if type(a) in proxyable_classes:
            name = self.get_fresh_qualname(f"_{a.__class__.__name__}_constant_")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def _read(self, value: Any, known: Iterable[tuple[str, Any]], problem: str = "") -> Any:
        """Return a node that reads one of the values with names; None, or NameError, if it is none of them."""
        name = next((name for name, other in known if other is value), None)
        if name is not None:
            return self.create_node("get_attr", name, (), {})
        if problem:
            raise NameError(problem)
        return None

    def _constant(self, value: Any, prefix: str) -> Any:
        name = self.tensor_attrs.get(value)
        if not name:
            name = self.tensor_attrs[value] = self.get_fresh_qualname(prefix)
            setattr(self.root, name, value)
        return self.create_node("get_attr", name, (), {})

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether the call of a module is recorded as such; else its ``forward`` is traced."""
        is_of_library = type(m).__module__.startswith(("telegrad.nn", "torch.nn", "torch.ao.nn"))
        return is_of_library and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """Return the path of a module from the root. Raises NameError if it is not below."""
        paths = self.submodule_paths or {module: name for name, module in self.root.named_modules()}
        if mod not in paths:
            raise NameError("module is not installed as a submodule")
        return paths[mod]

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what a call of a module gives while it is traced: a proxy for a leaf."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))) as scope:
            calls = self.num_calls.get(path, 0)
            key = f"{scope.module_path}@{calls}" if calls else scope.module_path
            self.module_stack[key] = path, scope.module_type
            self.num_calls[path] = calls + 1
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack.popitem(last=True)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """Return what a module's attribute is while it is traced: a proxy for a parameter."""
        known: Iterable[tuple[str, Any]] = ()
        if isinstance(attr_val, Parameter):
            known = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            known = self.root.named_buffers()
        for name, value in known:
            if value is attr_val:
                if name not in parameter_proxy_cache:
                    parameter_proxy_cache[name] = self._proxy_of(name, attr_val)
                return parameter_proxy_cache[name]
        return attr_val

    def _proxy_of(self, name: str, value: Any) -> Proxy:
        options: dict[str, Any] = {}
        if self.param_shapes_constant:
            options["proxy_factory_fn"] = lambda node: ParameterProxy(self, node, name, value)
        return self.create_proxy("get_attr", name, (), {}, **options)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Return the function to call, and proxies for its arguments."""
        return arguments_for(self, root_fn, is_module, concrete_args)

    def trace(self, root: Any, concrete_args: Any = None) -> Graph:
        """Return what a module or a function does, as a graph; ``concrete_args`` are inputs that are constants."""
        with tracing():
            return self._traced(root, concrete_args)

    def _traced(self, root: Any, concrete_args: Any) -> Graph:
        is_module = isinstance(root, Module)
        if is_module and not hasattr(type(root), self.traced_func_name):
            raise AssertionError(f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}")
        func = getattr(type(root), self.traced_func_name) if is_module else root
        self.root = root if is_module else Module()
        if is_module:
            self.root_module_name = root._get_name()
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        self.graph = Graph(tracer_cls=type(self))
        code = getattr(func, "__code__", None)
        if code is not None:
            self.graph._co_fields = {
                "co_name": code.co_name, "co_filename": code.co_filename, "co_firstlineno": code.co_firstlineno,
            }  # fmt: skip
        self.tensor_attrs = {}
        self._collect_constants(self.root, "")
        if not isinstance(func, FunctionType):
            raise AssertionError(f"Expected FunctionType, got {type(func)}")
        run, args = self.create_args_for_root(func, is_module, concrete_args)
        described = inspect.unwrap(run)
        returned = None if is_annotated_by_telegrad(described) else inspect.get_annotations(described).get("return")
        with new_patcher() as patcher:
            self._patch(patcher, func.__globals__)
            self.create_node("output", "output", (self.create_arg(run(*args)),), {}, type_expr=returned)
        self.submodule_paths = None
        return self.graph

    def _collect_constants(self, module: Module, path: str) -> None:
        """Note the tensors that are plain attributes of modules, by path."""
        for name, value in vars(module).items():
            if isinstance(value, tuple(_CONSTANTS)):
                self.tensor_attrs[value] = f"{path}{name}"
        for name, child in module.named_children():
            self._collect_constants(child, f"{path}{name}.")

    def _patch(self, patcher: Patcher, names: dict[str, Any]) -> None:
        """Have modules, wrapped functions and telegrad's own ask this tracer until the patcher's end."""
        call, read = Module.__call__, Module.__getattr__
        proxies: dict[str, Proxy] = {}

        def traced_call(module: Module, *args: Any, **kwargs: Any) -> Any:
            self._wrap_in(patcher, getattr(getattr(module, "forward", module), "__globals__", {}))
            return self.call_module(module, lambda *a, **k: call(module, *a, **k), args, kwargs)

        def traced_read(module: Module, name: str) -> Any:
            return self.getattr(name, read(module, name), proxies)

        patcher.patch_method(Module, "__getattr__", traced_read)
        patcher.patch_method(Module, "__call__", traced_call)
        for (_, name), found in list(_wrapped_fns_to_patch.items()):
            patcher.patch(found, name, recorded)
        for kind, name in _wrapped_methods_to_patch:
            patcher.patch_method(kind, name, recorded_method(kind, name))
        ask_for(id(patcher))
        patcher.at_end(lambda: stop_asking_for(id(patcher)))
        for namespace in (names, *map(vars, self._autowrap_search)):
            self._wrap_in(patcher, namespace)

    def _wrap_in(self, patcher: Patcher, names: dict[str, Any]) -> None:
        """Have the functions among these names that are always wrapped record their calls."""
        if patcher.visit_once(names):
            for name, value in list(names.items()):
                if name[0] != "_" and callable(value) and id(value) in self._autowrap_function_ids:
                    patcher.patch(names, name, recorded)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        copied = object.__new__(Tracer)
        for name, value in vars(self).items():
            copied.__dict__[name] = copy.copy(value) if name == "_autowrap_search" else copy.deepcopy(value, memo)
        return copied


def symbolic_trace(root: Any, concrete_args: Any = None) -> GraphModule:
    """Return a module that does what a module or function does, with its graph.

    ``concrete_args`` has by name the inputs that are constants, with ``fx.PH`` in them for leaves that are not.
    Raises TraceError where the function loops over or branches on values.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = root.__class__.__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
