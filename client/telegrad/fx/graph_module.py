"""``GraphModule``: a module whose ``forward`` is generated from a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from telegrad.nn.modules.module import Module
from telegrad.serialization import save

from . import _rebuilding
from ._attributes import assign_attribute as _assign_attr
from ._attributes import copy_attribute as _copy_attr
from ._attributes import get_attribute as _get_attr
from ._code.generated import function_of
from ._code.names import package_name
from ._code.pytree_codegen import _PyTreeCodeGen
from ._rebuilding import CodeOnlyModule as _CodeOnlyModule
from ._rebuilding import reduce_graph_module as reduce_graph_module
from .graph import Graph, PythonCode

__all__ = ["GraphModule", "reduce_graph_module"]

_get_attr = _get_attr
_USER_PRESERVED_ATTRIBUTES_KEY: Final = "_user_preserved_attributes"
_KEPT_IN_COPIES: Final = ("_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


class GraphModule(Module):
    """A module made of a graph; ``root`` has the submodules, parameters and attributes that the graph names.

    Each instance has a class of its own, with the ``forward`` of its graph.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        base = next(kind for kind in cls.__mro__ if kind.__qualname__.rpartition(".")[2] != "GraphModuleImpl")
        return super().__new__(type("GraphModuleImpl", (base,), {"__module__": __name__}))

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        targets = [str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = root.training
            for path in [*(_rebuilding.state_of(root) if isinstance(root, _CodeOnlyModule) else ()), *targets]:
                _copy_attr(root, self, path)
        elif isinstance(root, dict):
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module") and node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not provided in ``root``!"
                    )
            for path in sorted(targets, key=lambda target: target.count(".")):
                _assign_attr(root[path], self, path)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.graph = graph
        kind = graph._tracer_cls
        self._tracer_cls = None if kind is None or "<locals>" in kind.__qualname__ else kind
        self._tracer_extras = graph._tracer_extras or {}
        self.meta: dict[str, Any] = {}
        self._replace_hooks: list[Any] = []
        self._create_node_hooks: list[Any] = []
        self._erase_node_hooks: list[Any] = []
        self._deepcopy_hooks: list[Any] = []
        self.shape_env: Any = None

    @property
    def graph(self) -> Graph:
        """The graph that ``forward`` is made of; assigning another one generates the code again."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The text of ``forward``."""
        return self._code

    def recompile(self) -> PythonCode:
        """Generate the code of ``forward`` again, after the graph has been changed."""
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            self._in_spec, self._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
        made = self._graph.python_code(root_module="self")
        self._code, self._lineno_map, self._prologue_start = made.src, made._lineno_map, made._prologue_start
        kind: Any = type(self)
        kind.forward = function_of(made.src, made.globals, self._graph._co_fields)
        if "_own_call" not in vars(kind):
            kind._own_call = vars(kind).get("__call__")
        kind.__call__ = _call
        for child in self.children():
            if isinstance(child, GraphModule):
                child.recompile()
        return made

    def add_submodule(self, target: str, m: Module) -> bool:
        """Add a module at a path, with those above it; return False if something else is in the way."""
        *above, last = target.split(".")
        module: Any = self
        for name in above:
            if getattr(module, name, None) is None:
                setattr(module, name, Module())
            module = getattr(module, name)
            if not isinstance(module, Module):
                return False
        module.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the module at a path; return False if there is none."""
        path, _, last = target.rpartition(".")
        try:
            holder = self.get_submodule(path)
        except AttributeError:
            return False
        if not isinstance(getattr(holder, last, None), Module):
            return False
        delattr(holder, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove the modules that the graph does not name."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            used.update(itertools.accumulate(node.target.split("."), "{}.{}".format))
            if node.op == "call_module":
                with suppress(AttributeError):  # of a module that is to be added
                    inner = self.get_submodule(node.target).named_modules()
                    used.update([f"{node.target}.{name}" for name, _ in inner if name])
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    def __reduce__(self) -> Any:
        attributes = dict(self.__dict__)
        made = self.recompile()
        del attributes["_graph"]
        attributes["_graphmodule_cls_name"] = type(self).__name__
        return reduce_graph_module, (attributes, _rebuilding.imports_of(made.globals))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        copied: GraphModule = type(self).__new__(type(self))
        memo[id(self)] = copied
        root = _CodeOnlyModule(copy.deepcopy(self.__dict__, memo))
        GraphModule.__init__(copied, root, root.__dict__["_graph"], type(self).__name__)
        for name in _KEPT_IN_COPIES:
            setattr(copied, name, copy.deepcopy(self.__dict__[name], memo))
        copied.meta = copy.deepcopy(self.meta, memo)
        for name, value in copied.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}).items():
            setattr(copied, name, value)
        return copied

    def __copy__(self) -> GraphModule:
        copied = GraphModule(self, self.graph)
        copied.meta = self.meta
        return copied

    def print_readable(
        self, print_output: bool = True, include_stride: bool = False, include_device: bool = False,
        colored: bool = False, **options: Any,
    ) -> str:  # fmt: skip
        """Print the code with shapes, where metadata have them, and with where it comes from; return the text."""
        text = _readable(
            self, type(self).__name__, {"include_stride": include_stride, "include_device": include_device}
        )
        text = text.rstrip(" ")
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        reminder = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self._code, reminder])

    def to_folder(self, folder: Any, module_name: str = "FxModule") -> None:
        """Write the module as a Python package: its code, its state dictionary and its submodules."""
        folder = Path(folder)
        folder.mkdir(exist_ok=True)
        save(self.state_dict(), folder / "state_dict.pt")
        (folder / "module.py").write_text(_rebuilding.module_text(self, folder, module_name))
        (folder / "__init__.py").write_text("from .module import *")

    def _replicate_for_data_parallel(self) -> GraphModule:
        replica = self.__copy__()
        object.__setattr__(replica, "_is_replica", True)
        return replica


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the module; where its generated code fails, print the line of the code."""
    try:
        if self._own_call is not None:
            return self._own_call(*args, **kwargs)
        return super(type(self), self).__call__(*args, **kwargs)
    except Exception as error:
        innermost = traceback.extract_tb(error.__traceback__)[-1]
        if "eval_with_key" in innermost.filename:
            print(_failure(innermost), file=sys.stderr)
            raise error.with_traceback(None)  # noqa: B904 - the printed text has the traceback
        raise


def _failure(frame: traceback.FrameSummary) -> str:
    """Return a traceback, and the generated lines around the one that failed."""
    lines = linecache.getlines(frame.filename)
    number = frame.lineno or 1
    return "\n".join([
        traceback.format_exc(),
        f"Call using an FX-traced Module, line {number} of the traced Module's generated forward function:",
        "".join(lines[number - 2 : number]),
        f"{'~' * len(frame.line or '')}~~~ <--- HERE",
        "\n".join(lines[number : number + 2]),
    ])  # fmt: skip


def _readable(module: GraphModule, name: str, options: dict[str, Any]) -> str:
    code = module.graph.python_code("self", verbose=True, **options).src.lstrip("\n")
    inner = [
        _readable(child, path, options) for path, child in module.named_children() if isinstance(child, GraphModule)
    ]
    text = f"class {name}({package_name()}.nn.Module):\n{code}"
    return text.replace("\n", "\n    ") + "\n".join(["", *inner]).replace("\n", "\n    ")
