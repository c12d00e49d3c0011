"""What type checkers and editors are told of the functions, methods and result types that are made while telegrad is
imported.

Everything is written from the signatures that ``inspect`` reads. Knows how the client attaches functions and methods,
and nothing of what they do.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from inspect import Parameter, Signature
from math import isfinite
from pathlib import Path
from types import EllipsisType, GenericAlias, ModuleType, NoneType, UnionType
from typing import Any, get_args, get_origin

import telegrad
from telegrad import return_types
from telegrad._functions import operators
from telegrad._ops import functions, signatures
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.ops import PUBLIC
from telegrad_protocol.ops.namespaces import NAMESPACES, place_of

CLIENT = Path(telegrad.__file__).parent

NAMES = """
from __future__ import annotations

from builtins import bool as _bool
from builtins import complex as _complex
from builtins import float as _float
from builtins import int as _int
from builtins import slice as _slice
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np

from telegrad import return_types
from telegrad._tensor.generator import Generator
from telegrad._tensor.layouts import Layout
from telegrad._tensor.tensor import Tensor
from telegrad.cuda.streams import Stream
from telegrad_protocol.dtypes import DType
from telegrad_protocol.memory_format import MemoryFormat
from telegrad_protocol.meta import Device

_Number: TypeAlias = _int | _float | _complex
_Size: TypeAlias = _int | Sequence[_int]
_Place: TypeAlias = str | Device | _int
_Operand: TypeAlias = Tensor | _Number | np.ndarray[Any, Any] | np.generic
_Index: TypeAlias = (
    _int | _slice | Tensor | np.ndarray[Any, Any] | EllipsisType | list[Any] | tuple[Any, ...] | None
)
"""
ALIASES = {
    "_int | _float | _complex": "_Number", "_int | Sequence[_int]": "_Size", "str | Device | _int": "_Place",
}  # fmt: skip
SHADOWED = {"int", "float", "bool", "complex", "slice"}
"""Types whose names telegrad has for something else."""

OPERATORS = frozenset(operators.METHODS) - {"__iter__", "__contains__", "__reversed__"}
WRITTEN = "written by docs/generate.py"


def stubs() -> dict[Path, str]:
    """The stub files of the client, and what is to stand in them."""
    nn = telegrad.nn.functional
    return {
        CLIENT / "_attached.pyi": page(
            "What is attached to ``Tensor`` and to the package at import", [*functions_of(telegrad), "", *methods()]
        ),
        **{CLIENT / f"{name.replace('.', '/')}.pyi": namespace_stub(name) for name in NAMESPACES},
        CLIENT / "nn/_attached.pyi": page("What is attached to ``nn.functional`` at import", functions_of(nn)),
        CLIENT / "return_types.pyi": page("The named tuples that operations return", result_types()),
        CLIENT / "nn/modules/__init__.pyi": layers_stub(CLIENT / "nn/modules"),
    }


def namespace_stub(name: str) -> str:
    """The stub of a namespace whose functions all come from contracts, with what its file imports for users."""
    module = importlib.import_module(f"telegrad.{name}")
    tree = ast.parse(Path(module.__file__ or "").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.names[0].asname]
    shown = [ast.unparse(node) for node in imports if not (node.names[0].asname or "").startswith("_")]
    return page(f"The functions of ``telegrad.{name}``", [*shown, *functions_of(module)])


def layers_stub(folder: Path) -> str:
    """The stub of ``nn.modules``, which finds its files at import.

    Every layer is named: mypy may not know what a file exports when it comes to a star import in a circle.
    """
    files = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    names = [f"from . import {name} as {name}" for name in files]
    exported = {name: importlib.import_module(f"telegrad.nn.modules.{name}").__all__ for name in files}
    layers = [f"from .{name} import {one} as {one}" for name in files for one in sorted(exported[name])]
    listed = [f'    "{one}",' for name in files for one in exported[name]]
    lines = [
        f'"""Layers, as type checkers see them; {WRITTEN}."""',
        "",
        *names,
        *layers,
        "",
        "__all__ = [",
        *listed,
        "]",
    ]
    return "\n".join(lines) + "\n"


def page(title: str, lines: Iterable[str]) -> str:
    """A stub with only those imports and aliases that it uses."""
    body = "\n".join(lines)
    head = NAMES.strip().splitlines()
    return f'"""{title}; {WRITTEN}."""\n\n' + "\n".join(used(head, body)) + f"\n\n{body}\n"


def used(head: list[str], body: str) -> list[str]:
    """The lines of the head without imports and aliases of names that nothing after them mentions."""
    mentioned = names_in(body)
    kept: list[str] = []
    for node in reversed(ast.parse("\n".join(head)).body):
        if isinstance(node, ast.AnnAssign):
            if ast.unparse(node.target) not in mentioned:
                continue
            mentioned |= names_in(ast.unparse(node))
        elif isinstance(node, ast.Import | ast.ImportFrom) and ast.unparse(node) != FUTURE:
            node.names = [name for name in node.names if (name.asname or name.name) in mentioned]
            if not node.names:
                continue
        kept.append(ast.unparse(node))
    return separated(kept[::-1])


FUTURE = "from __future__ import annotations"


def separated(lines: list[str]) -> list[str]:
    """The lines with an empty one after ``__future__`` and one before the aliases."""
    first = next((position for position, line in enumerate(lines) if "TypeAlias =" in line), len(lines))
    return [lines[0], "", *lines[1:first], *([""] if lines[first:] else []), *lines[first:]]


def names_in(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def result_types() -> Iterator[str]:
    yield "TYPES: dict[str, Any]"
    for name, result_type in vars(return_types).items():
        if isinstance(result_type, type) and issubclass(result_type, tuple):
            yield f"class {name}(NamedTuple):"
            yield from (f"    {field}: Tensor" for field in result_type._fields)  # type: ignore[attr-defined]


def functions_of(module: ModuleType) -> Iterator[str]:
    """Functions of a module that come from contracts."""
    for public in PUBLIC:
        namespace, name = place_of(public)
        is_here = not namespace or module.__name__ == f"telegrad.{namespace}"
        if is_here and getattr(module, name, None) is functions.function(public):
            yield from definitions(name, forms_of(public))


def methods() -> Iterator[str]:
    yield "class Attached:"
    yield from (f"    {line}" for line in method_lines())


def method_lines() -> Iterator[str]:
    """Whatever the class body of ``Tensor`` does not declare itself."""
    declared = set(class_body())
    for name in list(vars(Tensor)):
        getattr(Tensor, name)  # makes the method, if nothing has asked for it
        value = vars(Tensor)[name]
        if name in declared or name in Tensor.__slots__ or name in ("__slots__", "__new__"):
            continue
        if name in PUBLIC and value is functions.method(name):
            yield from definitions(name, map(signatures.method_signature, forms_of(name)))
        elif name in OPERATORS:
            yield from operator_lines(name)
        elif isinstance(value, property):
            yield from property_lines(name, value)
        elif name == "__repr__":  # classes that programs derive from it have one without arguments
            yield "def __repr__(self) -> str: ..."
        elif callable(value):
            yield f"def {name}{text_of(own_signature(value))}: ..."


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


def forms_of(name: str) -> Iterator[Signature]:
    """One signature for each contract of the name."""
    return (signatures.form_signature(op, PUBLIC[name]) for op in signatures.plain(PUBLIC[name]))


def definitions(name: str, forms: Iterable[Signature]) -> Iterator[str]:
    texts = list(dict.fromkeys(map(text_of, forms)))
    for text in texts:
        if len(texts) > 1:
            yield "@overload"
        yield f"def {name}{text}: ..."


def text_of(signature: Signature) -> str:
    """A signature as a stub has it."""
    parts: list[str] = []
    is_open = True
    for parameter in signature.parameters.values():
        if parameter.kind is Parameter.KEYWORD_ONLY and is_open:
            parts.append("*")
        is_open = is_open and parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
        parts.append(parameter_text(parameter))
    return f"({', '.join(parts)}) -> {type_text(signature.return_annotation)}"


STARS: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


def parameter_text(parameter: Parameter) -> str:
    if parameter.name == "self":
        return "self"
    default = "" if parameter.default is Parameter.empty else f" = {default_text(parameter.default)}"
    return f"{STARS.get(parameter.kind, '')}{parameter.name}: {type_text(parameter.annotation)}{default}"


def default_text(default: Any) -> str:
    """A parameter's default, where the stub can say it."""
    is_finite = isinstance(default, float) and isfinite(default)
    return repr(default) if is_finite or isinstance(default, NoneType | bool | int | str) else "..."


def type_text(annotation: Any) -> str:
    """A type by its name in the stubs."""
    text = " | ".join(map(member_text, members_of(annotation)))
    for long, short in ALIASES.items():
        text = text.replace(long, short)
    return text


def members_of(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)


def member_text(annotation: Any) -> str:
    if annotation in (None, NoneType):
        return "None"
    if annotation in (Any, Signature.empty):
        return "Any"
    if annotation in (..., EllipsisType):
        return "..." if annotation is ... else "EllipsisType"
    if isinstance(annotation, GenericAlias) or get_origin(annotation) is not None:
        return f"{member_text(get_origin(annotation))}[{', '.join(map(type_text, get_args(annotation)))}]"
    if annotation.__module__ == return_types.__name__:
        return f"return_types.{annotation.__name__}"
    if annotation.__module__ == "numpy":
        return f"np.{annotation.__name__}"
    return f"_{annotation.__name__}" if annotation.__name__ in SHADOWED else str(annotation.__name__)


def operator_lines(name: str) -> Iterator[str]:
    """Python's operators: on tensors, numbers and arrays."""
    if name == "__setitem__":
        yield f"def {name}(self, index: _Index, value: _Operand | list[Any] | tuple[Any, ...]) -> None: ..."
    elif name == "__getitem__":
        yield f"def {name}(self, index: _Index) -> Tensor: ..."
    elif name in ("__neg__", "__abs__", "__invert__", "__pos__"):
        yield f"def {name}(self) -> Tensor: ..."
    elif name in ("__eq__", "__ne__"):
        yield f"def {name}(self, other: Any) -> Tensor: ...  # type: ignore[override]"
    else:
        yield f"def {name}(self, other: _Operand) -> Tensor: ..."


def property_lines(name: str, value: property) -> Iterator[str]:
    yield "@property"
    yield f"def {name}(self) -> {'_bool' if name.startswith('is_') else 'Tensor'}: ..."
    if value.fset is not None:
        yield f"@{name}.setter"
        yield f"def {name}(self, value: Tensor | _Number) -> None: ..."


def own_signature(function: Callable[..., Any]) -> Signature:
    """A method's own signature; what is written first is the tensor, whatever it is called there."""
    signature = inspect.signature(function, eval_str=True)
    names: dict[str, Any] = getattr(function, "__globals__", {})

    def resolved(annotation: Any) -> Any:
        return eval(annotation, names) if isinstance(annotation, str) else annotation  # noqa: S307 - our own text

    first, *rest = [p.replace(annotation=resolved(p.annotation)) for p in signature.parameters.values()]
    result = resolved(signature.return_annotation)
    return signature.replace(parameters=[first.replace(name="self"), *rest], return_annotation=result)
