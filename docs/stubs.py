"""What type checkers and editors are told of the functions and methods that ``telegrad`` makes while it is imported.

Those that come from contracts are written from the contracts, the others from their own signatures. Knows how the
client attaches them, and nothing of what they do.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import telegrad
from telegrad._functions import operators
from telegrad._ops import functions
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.memory_format import MemoryFormat
from telegrad_protocol.ops import PUBLIC, Op
from telegrad_protocol.ops.params import Param

CLIENT = Path(telegrad.__file__).parent
PAGE = CLIENT / "_attached.pyi"
LAYERS_PAGE = CLIENT / "nn/modules/__init__.pyi"

HEAD = '''"""What is attached to ``Tensor`` and to the package at import; written by docs/generate.py."""

from __future__ import annotations

from builtins import bool as _bool
from builtins import complex as _complex
from builtins import float as _float
from builtins import int as _int
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from telegrad_protocol.dtypes import DType
from telegrad_protocol.memory_format import MemoryFormat
from telegrad_protocol.meta import Device

from ._tensor.tensor import Tensor
from .cuda.streams import Stream

_Scalar = _bool | _int | _float | _complex
_Size = _int | Sequence[_int]
_Place = str | Device | _int
'''
TYPES = {
    "tensor": "Tensor", "tensor|scalar": "Tensor | _Scalar", "tensors": "Sequence[Tensor]",
    "tensors?": "Sequence[Tensor | None]", "scalar": "_Scalar", "int": "_int", "float": "_float", "bool": "_bool",
    "str": "str", "size": "_Size", "int|size": "_Size", "sizes?": "Any", "scalars": "Sequence[_Scalar]",
    "dtype": "DType", "device": "_Place",
}  # fmt: skip
RESULTS = {
    "Meta": "Tensor", "Meta | None": "Tensor", "None": "Tensor", "tuple[Meta, ...]": "tuple[Tensor, ...]",
    "tuple[Meta, Meta]": "tuple[Tensor, Tensor]", "tuple[Meta, Meta, Meta]": "tuple[Tensor, Tensor, Tensor]",
    "Meta | tuple[Meta, Meta]": "Any",
}  # fmt: skip
OPTIONS = [
    "requires_grad: _bool = ...",
    "pin_memory: _bool = ...",
    "generator: None = ...",
    "layout: None = ...",
    "memory_format: Any = ...",
]
"""What functions that make tensors take beside their contract."""
SHADOWED = ("int", "float", "bool", "complex")
OPERATORS = frozenset(operators.METHODS) - {"__iter__", "__contains__"}


def stub() -> str:
    """The text of the stub."""
    functions = "\n".join(line for name in top_level() for line in function_lines(name, ""))
    methods = "\n".join(f"    {line}" for line in method_lines())
    return f"{HEAD}\n{functions}\n\nclass Attached:\n{methods}\n"


def layers_stub() -> str:
    """The text of the stub of ``nn.modules``, which finds its files at import."""
    files = sorted(path.stem for path in LAYERS_PAGE.parent.glob("*.py") if path.stem != "__init__")
    names = "".join(f"from . import {name} as {name}\n" for name in files)
    layers = "".join(f"from .{name} import *\n" for name in files)
    return f'"""Layers, as type checkers see them; written by docs/generate.py."""\n\n{names}{layers}'


def top_level() -> Iterator[str]:
    """Functions of the package that come from contracts."""
    for name in PUBLIC:
        if vars(telegrad).get(name) is functions.function(name):
            yield name


def method_lines() -> Iterator[str]:
    """Whatever the class body of ``Tensor`` does not declare itself."""
    declared = set(class_body())
    for name, value in vars(Tensor).items():
        if name in declared or name in Tensor.__slots__ or name == "__slots__":
            continue
        if name in PUBLIC and value is functions.method(name):
            yield from function_lines(name, "self")
        elif name in OPERATORS:
            yield from operator_lines(name)
        elif isinstance(value, property):
            yield from property_lines(name, value)
        elif callable(value):
            yield f"def {name}{signature_of(value)}: ..."


def class_body() -> Iterator[str]:
    """The names that are written in the class."""
    tree = ast.parse((CLIENT / "_tensor/tensor.py").read_text())
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Tensor").body
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    yield from ("__module__", "__doc__", "__dict__", "__weakref__")


def function_lines(name: str, first: str) -> Iterator[str]:
    """One definition for each contract of the name; ``first`` replaces the first parameter of a method."""
    plain = [op for op in PUBLIC[name] if op.form != "out"]
    outs = {op.base.name: len(op.mutates) for op in PUBLIC[name] if op.form == "out"}
    makes = not first and any(p.kind.name == "device?" for op in plain for p in op.params)
    for op in plain:
        if len(plain) > 1:
            yield "@overload"
        taken = ", ".join(parameters(op, first, outs.get(op.base.name, 0), OPTIONS if makes else []))
        yield f"def {name}({taken}) -> {result_of(op)}: ..."


def parameters(op: Op, first: str, outs: int, options: list[str]) -> Iterator[str]:
    params = op.params
    if first:
        yield first
        params = params[1:]
    named = [p for p in params if p.keyword_only]
    yield from (parameter(p) for p in params if not p.keyword_only)
    out = ["out: Tensor | None = ..." if outs == 1 else "out: Sequence[Tensor] | None = ..."] if outs else []
    if (named or out or options) and not any(p.varargs for p in params):
        yield "*"
    yield from [*map(parameter, named), *out, *options]


def parameter(param: Param) -> str:
    kind = param.kind.name
    optional = kind.endswith("?") and kind not in TYPES
    text = TYPES[kind.removesuffix("?") if optional else kind] + (" | None" if optional else "")
    star, default = ("*", "") if param.varargs else ("", "" if param.required else " = ...")
    return f"{star}{param.name}: {text}{default}"


def result_of(op: Op) -> str:
    if op.form != "functional":
        return "Tensor"
    return RESULTS[str(inspect.signature(op.rule).return_annotation)]


def operator_lines(name: str) -> Iterator[str]:
    """Python's operators: on tensors, numbers and arrays."""
    if name == "__setitem__":
        yield f"def {name}(self, index: Any, value: Any) -> None: ..."
    elif name in ("__neg__", "__abs__", "__invert__", "__pos__"):
        yield f"def {name}(self) -> Tensor: ..."
    else:
        ignored = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
        yield f"def {name}(self, other: Any) -> Tensor: ...{ignored}"


def property_lines(name: str, value: property) -> Iterator[str]:
    yield "@property"
    yield f"def {name}(self) -> {'_bool' if name.startswith('is_') else 'Tensor'}: ..."
    if value.fset is not None:
        yield f"@{name}.setter"
        yield f"def {name}(self, value: Any) -> None: ..."


def signature_of(function: Callable[..., Any]) -> str:
    """A method's own signature."""
    signature = inspect.signature(function)
    taken = [
        p.replace(annotation=unshadowed(p.annotation), default=shown_default(p.default))
        for p in signature.parameters.values()
    ]
    taken[0] = inspect.Parameter("self", taken[0].kind)
    shown = signature.replace(parameters=taken, return_annotation=unshadowed(signature.return_annotation))
    return str(shown).replace("'", "").replace("Ellipsis", "...")


def shown_default(default: Any) -> Any:
    """A parameter's default, where the stub knows its name."""
    return ... if isinstance(default, MemoryFormat) else default


def unshadowed(annotation: Any) -> Any:
    """``int`` as the stub calls it, where a method has that name."""
    parts = str(annotation).split(" | ")
    return " | ".join(f"_{part}" if part in SHADOWED else part for part in parts)
