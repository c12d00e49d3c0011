"""Signatures, annotations and docstrings of the functions that are made from contracts, for ``inspect`` and ``help``.

Translates a contract's parameters and results, which are metas, into the client's own types. Changes nothing of what a
function does, and nothing that is read while it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from inspect import Parameter, Signature, signature
from operator import or_
from types import FunctionType, GenericAlias, ModuleType, UnionType
from typing import Any, get_type_hints

from telegrad import return_types
from telegrad._tensor.generator import Generator
from telegrad._tensor.layouts import Layout
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.memory_format import MemoryFormat
from telegrad_protocol.meta import Device
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.namespaces import place_of
from telegrad_protocol.ops.params import Param

Number = int | float | complex
Size = int | Sequence[int]
Place = str | Device | int

TYPES: dict[str, Any] = {
    "tensor": Tensor, "tensor|scalar": Tensor | Number, "tensors": Sequence[Tensor],
    "tensors?": Sequence[Tensor | None], "scalar": Number, "int": int, "float": float, "bool": bool, "str": str,
    "size": Size, "int|size": Size, "sizes?": int | Sequence[int | None], "scalars": Sequence[Number], "dtype": DType,
    "device": Place,
}  # fmt: skip
"""The client's type for each kind of parameter."""

RESULTS: dict[str, Any] = {
    "Meta": Tensor, "Meta | None": Tensor, "tuple[Meta, ...]": tuple[Tensor, ...],
    "tuple[Meta, Meta]": tuple[Tensor, Tensor], "tuple[Meta, Meta, Meta]": tuple[Tensor, Tensor, Tensor],
    "Meta | tuple[Meta, Meta]": Tensor | tuple[Tensor, Tensor],
}  # fmt: skip
"""The client's type for the result that a shape rule declares."""


class _NoDefault:
    """Stands for the default of a parameter that only some forms of an overloaded function have."""

    def __repr__(self) -> str:
        return "<no value>"


NO_DEFAULT = _NoDefault()


def describe(run: Any, public: str, forms: Sequence[Op]) -> None:
    """Give the function of the name ``public`` its name, module, signature, annotations and docstring."""
    namespace, name = place_of(public)
    run.__name__ = run.__qualname__ = name
    run.__module__ = f"telegrad.{namespace}" if namespace else module_of(forms)
    _annotate(run, merged([form_signature(op, forms) for op in plain(forms)]))
    run.__doc__ = docstring(public, plain(forms))


def plain(forms: Sequence[Op]) -> list[Op]:
    """Return the forms that have a signature of their own; forms with ``out=`` are described with their base."""
    return [op for op in forms if op.form != "out"]


def module_of(forms: Sequence[Op]) -> str:
    """Return the name of the module in which users find a function of these forms."""
    modules = {op.base.module for op in forms}
    return "telegrad" if "" in modules else f"telegrad.{min(modules)}"


def as_method(run: Any, function: Any, name: str) -> Any:
    """Give ``run``, which does as a method of ``Tensor`` what a function does, its name, signature and docstring."""
    run.__dict__.update(function.__dict__)
    run.__doc__ = function.__doc__
    run.__name__, run.__qualname__, run.__module__ = name, f"Tensor.{name}", Tensor.__module__
    _annotate(run, method_signature(function.__signature__))
    return run


def method_signature(signature: Signature) -> Signature:
    """Return the signature of a function as a method: its first tensor is ``self``, and it has no ``out``."""
    _, *rest = signature.parameters.values()
    kept = [p for p in rest if p.name != "out"]
    self = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD, annotation=Tensor)
    return signature.replace(parameters=[self, *kept])


def _annotate(run: Any, signature: Signature) -> None:
    run.__signature__ = signature
    run.__annotations__ = {
        p.name: p.annotation for p in signature.parameters.values() if p.annotation is not Parameter.empty
    }
    run.__annotations__["return"] = signature.return_annotation


def form_signature(op: Op, forms: Sequence[Op]) -> Signature:
    """Return the signature of one form of a function, with ``out`` and the options of creation functions."""
    positional = [parameter(p) for p in op.params if not p.keyword_only]
    keywords = {p.name: parameter(p) for p in op.params if p.keyword_only}
    outs = next((len(form.mutates) for form in forms if form.form == "out" and form.base is op), 0)
    if "copied" in op.out_rules and not outs:
        outs = max(len(op.returns), 1)
    if outs:
        keywords["out"] = _option("out", Tensor if outs == 1 else GenericAlias(tuple, (Tensor,) * outs))
    if makes_tensors(op):
        keywords = _creation_options(op, keywords)
    elif op.is_random and not op.module and not op.public.startswith("_"):
        keywords["generator"] = _option("generator", Generator)
    return Signature([*positional, *keywords.values()], return_annotation=result_of(op))


def makes_tensors(op: Op) -> bool:
    """Tell whether an operation makes new tensors, and so takes the options of PyTorch's creation functions."""
    return any(p.kind.name == "device?" for p in op.params) and not op.public.startswith("_")


def _creation_options(op: Op, keywords: dict[str, Parameter]) -> dict[str, Parameter]:
    """Return keyword parameters in PyTorch's order, with those that creation functions share."""
    options = {"layout": _option("layout", Layout), **keywords}
    options["requires_grad"] = _option("requires_grad", bool, False)
    if op.is_random:
        options["generator"] = _option("generator", Generator)
    if not op.public.endswith("_like"):
        options["pin_memory"] = _option("pin_memory", bool, False)
    if op.public.endswith("_like") or op.public in ("empty", "new_empty"):
        options["memory_format"] = _option("memory_format", MemoryFormat)
    return {name: options.pop(name) for name in _CREATION_ORDER if name in options} | options


_CREATION_ORDER = ("generator", "out", "dtype", "layout", "device", "requires_grad", "pin_memory", "memory_format")


def _option(name: str, annotation: Any, default: Any = None) -> Parameter:
    return Parameter(
        name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=optional(annotation) if default is None else annotation,
    )


def optional(annotation: Any) -> Any:
    """Return the union of a type and None."""
    return type(None) if annotation is type(None) else annotation | None


def parameter(param: Param) -> Parameter:
    """Return a contract's parameter with the client's type."""
    kind = param.kind.name
    is_optional = kind.endswith("?") and kind not in TYPES
    annotation = TYPES[kind.removesuffix("?") if is_optional else kind]
    return Parameter(
        param.name,
        _passing(param),
        default=param.default,
        annotation=optional(annotation) if is_optional else annotation,
    )


def _passing(param: Param) -> Any:
    if param.varargs:
        return Parameter.VAR_POSITIONAL
    return Parameter.KEYWORD_ONLY if param.keyword_only else Parameter.POSITIONAL_OR_KEYWORD


def result_of(op: Op) -> Any:
    """Return the type of a form's result: a tensor, a tuple of tensors, or a named tuple of ``return_types``."""
    if op.returns and op.public in return_types.TYPES:
        return return_types.TYPES[op.public]
    declared = op.rule.__annotations__["return"]  # as text: the contracts postpone their annotations
    if op.data_dependent or declared == "Metas":
        return Tensor
    return None if declared == "None" else RESULTS[declared]


def merged(signatures: Sequence[Signature]) -> Signature:
    """Return one signature for all forms: the parameters of the longest form, then those of the others by keyword."""
    if len(signatures) == 1:
        return signatures[0]
    longest = max(signatures, key=lambda signature: sum(not name.startswith("_") for name in signature.parameters))
    parameters = [_merged_parameter(parameter, signatures) for parameter in longest.parameters.values()]
    others = {p.name: p for signature in signatures for p in signature.parameters.values()}
    parameters += [
        _merged_parameter(parameter.replace(kind=Parameter.KEYWORD_ONLY), signatures)
        for name, parameter in others.items() if name not in longest.parameters and not name.startswith("_")
    ]  # fmt: skip
    results = [signature.return_annotation for signature in signatures]
    return Signature(_in_order(parameters), return_annotation=union(results))


def _positional(signature: Signature) -> list[str]:
    return [p.name for p in signature.parameters.values() if p.kind is not Parameter.KEYWORD_ONLY]


def _merged_parameter(parameter: Parameter, signatures: Sequence[Signature]) -> Parameter:
    """Return the parameter with the types that any form takes by its name or in its place."""
    same = [signature.parameters[parameter.name] for signature in signatures if parameter.name in signature.parameters]
    annotation = union([p.annotation for p in (*same, *_in_same_place(parameter, signatures))])
    default = next((p.default for p in same if p.default is not Parameter.empty), Parameter.empty)
    is_missing = len(same) < len(signatures) and parameter.kind is not Parameter.VAR_POSITIONAL
    if default is Parameter.empty and is_missing:
        default = None if type(None) in getattr(annotation, "__args__", ()) else NO_DEFAULT
    return parameter.replace(default=default, annotation=annotation)


def _in_same_place(parameter: Parameter, signatures: Sequence[Signature]) -> list[Parameter]:
    """Return the parameters that forms without a positional parameter have in its place."""
    if parameter.kind is Parameter.KEYWORD_ONLY:
        return []
    holder = next(signature for signature in signatures if parameter.name in _positional(signature))
    position = _positional(holder).index(parameter.name)
    without = [signature for signature in signatures if parameter.name not in signature.parameters]
    lists = [list(signature.parameters.values()) for signature in without if position < len(_positional(signature))]
    return [parameters[position] for parameters in lists]


def _in_order(parameters: list[Parameter]) -> list[Parameter]:
    """Give parameters that follow one with a default a default too, as Python requires."""
    has_default = False
    for position, parameter in enumerate(parameters):
        if parameter.kind is not Parameter.POSITIONAL_OR_KEYWORD:
            continue
        if has_default and parameter.default is Parameter.empty:
            parameters[position] = parameter.replace(default=NO_DEFAULT)
        has_default = has_default or parameter.default is not Parameter.empty
    return parameters


def union(annotations: Sequence[Any]) -> Any:
    """Return the union of types, in which every alternative stands once and None last."""
    alternatives: dict[Any, None] = {}
    for annotation in annotations:
        members = annotation.__args__ if isinstance(annotation, UnionType) else (annotation,)
        alternatives.update(dict.fromkeys(members))
    return reduce(or_, sorted(alternatives, key=lambda member: member in (None, type(None))))


def docstring(public: str, forms: Sequence[Op]) -> str:
    """Return the docstring of a function; that of an overloaded function describes every form."""
    if len(forms) == 1:
        return _described(forms[0])
    return "\n\n".join(f"{called(public, op)}\n{_indented(_described(op))}" for op in forms)


def _described(op: Op) -> str:
    if op.form != "inplace":
        return str(op.doc)
    return f"{op.base.doc}\n\nThe result is written into ``{op.params[0].name}``, which is returned."


def called(public: str, op: Op) -> str:
    """Return a form's call by the name ``public``, which may be an alias of the operation's own name."""
    return f"{place_of(public)[1]}{op.signature.removeprefix(op.public)}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else line for line in text.splitlines())


def publish(module: ModuleType) -> None:
    """Set ``__module__`` of functions and classes that ``module`` re-exports from private modules to ``module``."""
    for name, value in vars(module).items():
        if not name.startswith("_"):
            publish_in(module, value)


def publish_in(module: ModuleType, value: Any) -> None:
    """Do so for one value."""
    package = module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]
    if isinstance(value, (type, FunctionType)) and _is_written_in(package, value):
        _move(value, module.__name__)


def _is_written_in(package: str, value: Any) -> bool:
    module: str = value.__module__
    return module.startswith("telegrad_protocol.") or (module.startswith(f"{package}.") and "._" in module)


def _move(value: Any, module: str) -> None:
    """Set ``__module__`` of a function, or of a class and its methods."""
    if isinstance(value, type) and "__annotations__" in vars(value):
        value.__annotations__ = get_type_hints(value)  # they are names of the module in which they are written
    functions = [f for member in vars(value).values() for f in _functions_of(member)] if isinstance(value, type) else []
    for function in functions:
        if function.__module__ == value.__module__:
            function.__module__ = module
    value.__module__ = module


def _functions_of(member: Any) -> list[FunctionType]:
    parts = (member.fget, member.fset) if isinstance(member, property) else (getattr(member, "__func__", member),)
    return [part for part in parts if isinstance(part, FunctionType)]


def publish_methods(kind: type) -> None:
    """Name the functions that were attached to a class after their attribute."""
    for name, value in list(vars(kind).items()):
        if isinstance(value, FunctionType) and not value.__qualname__.startswith(f"{kind.__qualname__}."):
            renamed = _renamed(value, kind, name)
            setattr(kind, name, renamed)
            first = value.__code__.co_varnames[:1]
            if not hasattr(value, "__signature__") and first not in ((), ("self",), ("args",)):
                renamed.__signature__ = method_signature(signature(value))  # of a function that is also a method
        elif isinstance(value, property):
            for accessor in _functions_of(value):
                accessor.__module__, accessor.__name__ = kind.__module__, name
                accessor.__qualname__ = f"{kind.__qualname__}.{name}"


def _renamed(run: FunctionType, kind: type, name: str) -> Any:
    """Return a function of the same code, closure and description as ``run``, named as a method of ``kind``."""
    method: Any = FunctionType(run.__code__, run.__globals__, name, run.__defaults__, run.__closure__)
    method.__dict__.update(run.__dict__)
    method.__kwdefaults__, method.__annotations__ = run.__kwdefaults__, dict(run.__annotations__)
    method.__qualname__, method.__module__ = f"{kind.__qualname__}.{name}", kind.__module__
    method.__doc__ = run.__doc__
    return method
