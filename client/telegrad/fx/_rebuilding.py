"""Graph modules from pickles and as packages: the code is run on proxies again, which makes the same graph."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from telegrad.nn import modules as layers
from telegrad.nn.modules.module import Module
from telegrad.serialization import save

from ._code.generated import function_of
from ._code.names import always_there, package_name


class CodeOnlyModule(Module):
    """A module with the attributes of a graph module, and its code as ``forward``."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def state_of(root: Module) -> list[str]:
    """Return the names of what such a module has, though its graph may not name it."""
    return [
        *[name for name, _ in root.named_children()],
        *[name for name, _ in root.named_buffers()],
        *[name for name, _ in root.named_parameters()],
    ]


def imports_of(names: dict[str, Any]) -> str:
    """Return the statements that import the globals of generated code, one a line."""
    known = always_there()
    return "\n".join(sorted({
        known[name].import_str if name in known else _import_of(name, obj) for name, obj in names.items()
    }))  # fmt: skip


def _import_of(name: str, obj: Any) -> str:
    if hasattr(obj, "__module__") and hasattr(obj, "__qualname__"):
        return f"from {obj.__module__} import {obj.__qualname__} as {name}"
    return f"{name} = {obj!r}"


def reduce_graph_module(body: dict[str, Any], import_block: str) -> Any:
    """Return a graph module with these attributes, whose code is among them; pickles of graph modules call it."""
    classes: Any = import_module(f"{__package__}.graph_module")
    tracers: Any = import_module(f"{__package__}._symbolic_trace")
    forward = function_of(import_block + body["_code"], {}, {})
    kind: Any = body.get("_tracer_cls") or tracers.Tracer

    class KeepModules(kind):  # type: ignore[misc]  # the class of the tracer that made the graph
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    root = type("CodeOnlyModule", (CodeOnlyModule,), {"forward": forward})(body)
    graph = KeepModules().trace(root, **body.get("_tracer_extras", {}))
    graph._tracer_cls = kind
    made = classes.GraphModule(root, graph, body.get("_graphmodule_cls_name", "GraphModule"))
    for name, value in body.items():
        if not hasattr(made, name):
            setattr(made, name, value)
    return made


_SHOWN_WHOLE = (
    layers.Linear, layers.Conv1d, layers.Conv2d, layers.Conv3d, layers.BatchNorm1d, layers.BatchNorm2d,
    layers.BatchNorm3d,
)  # fmt: skip
"""Layers whose ``repr`` is an expression that makes them."""


def module_text(module: Any, folder: Path, name: str) -> str:
    """Return the text of a Python module with a class that is like this one; other layers go into files."""
    package = package_name()
    lines = [entry.import_str for entry in always_there().values()]
    lines += [f"from {package}.nn import *", f"class {name}({package}.nn.Module):", "    def __init__(self):"]
    body, in_files = ["super().__init__()"], []
    for path, child in module.named_children():
        shown = repr(child)
        if type(child) not in _SHOWN_WHOLE:
            file = folder / f"{path}.pt"
            save(child, file)
            in_files.append(path)
            shown = f"{package}.load({str(file)!r}, weights_only=False)"
        body.append(f"setattr(self, {path!r}, {shown})")
    for path, tensor in (*module._buffers.items(), *module._parameters.items()):
        if tensor is not None:
            empty = f"{package}.empty({list(tensor.shape)}, dtype={tensor.dtype})"
            is_parameter = path in module._parameters
            call = f"{path!r}, {package}.nn.Parameter({empty})" if is_parameter else f"{path!r}, {empty}"
            body.append(f"{'setattr(self, ' if is_parameter else 'self.register_buffer('}{call})")
    body.append(f"self.load_state_dict({package}.load({str(folder / 'state_dict.pt')!r}))")
    if in_files:
        warnings.warn(
            f"Was not able to save the following children modules as reprs -saved as pickled files instead: {in_files}",
            stacklevel=3,
        )
    lines += [f"        {line}" for line in body]
    code: str = module.code
    return "\n".join(lines) + code.replace("\n", "\n    ") + "\n"
