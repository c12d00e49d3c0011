"""Infers the schema of a function from its annotations."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from types import GenericAlias
from typing import Any, Final, NoReturn

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.meta import Device

from .tags import Tag, normalized

Number: Final = int | float | bool


def _supported() -> dict[Any, str]:
    """Return what schemas call the types that arguments may have, with lists and optional ones of them."""
    supported: dict[Any, str] = {}
    for kind, name, lists, optional_elements, optional_lists in (
        (Tensor, "Tensor", True, True, False), (int, "SymInt", True, False, True), (float, "float", True, False, True),
        (bool, "bool", True, False, True), (str, "str", False, False, False), (Number, "Scalar", True, False, False),
        (DType, "ScalarType", False, False, False), (Device, "Device", False, False, False),
    ):  # fmt: skip
        supported[kind] = name
        supported[typing.Optional[kind]] = f"{name}?"  # noqa: UP045 - such types are built of a variable
        if lists:
            supported.update(dict.fromkeys(_lists_of(kind), f"{name}[]"))
        if optional_elements:
            supported.update(dict.fromkeys(_lists_of(typing.Optional[kind]), f"{name}?[]"))  # noqa: UP045
        if optional_lists:
            supported.update({typing.Optional[one]: f"{name}[]?" for one in _lists_of(kind)})  # noqa: UP045
    return supported


def _lists_of(kind: Any) -> list[Any]:
    return [typing.Sequence[kind], typing.List[kind], GenericAlias(Sequence, (kind,)), GenericAlias(list, (kind,))]  # noqa: UP006


_PARAMETERS: Final = _supported()
_RETURNS: Final = {
    Tensor: "Tensor", typing.List[Tensor]: "Tensor[]", list[Tensor]: "Tensor[]", int: "SymInt",  # noqa: UP006
    float: "float", bool: "bool", Number: "Scalar",
}  # fmt: skip


def infer_schema(
    prototype_function: Callable[..., Any], /, *, mutates_args: Any, op_name: str | None = None, tags: Any = ()
) -> str:
    """Return the schema of a function as its annotations say.

    ``mutates_args`` names the arguments that it writes into; ``"unknown"`` stands for all tensors. Raises ArgumentError
    where a type has no place in schemas.
    """
    return _Inference(prototype_function, mutates_args, normalized(tags)).schema(op_name)


class _Inference:
    def __init__(self, function: Callable[..., Any], mutates_args: Any, tags: tuple[Any, ...]) -> None:
        self._function = function
        self._signature = inspect.signature(function)
        if isinstance(mutates_args, str) and mutates_args != "unknown":
            raise ArgumentError(
                "mutates_args must either be a sequence of the names of the arguments that are mutated or the string "
                "'unknown'. "
            )
        self._mutates = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)
        self._is_inplace, self._is_out = Tag.inplace in tags, Tag.out in tags
        self._outs: list[str] = []

    def _fail(self, what: str) -> NoReturn:
        raise ArgumentError(f"infer_schema(func): {what} Got func with signature {self._signature})")

    def schema(self, op_name: str | None) -> str:
        parts = []
        for place, (name, parameter) in enumerate(self._signature.parameters.items()):
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                self._fail("We do not support positional-only args, varargs, or varkwargs.")
            if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
                parts.append("*")
            parts.append(self._parameter(place, name, parameter))
        self._check_mutated()
        return f"{op_name or ''}({', '.join(parts)}) -> {self._returns()}"

    def _parameter(self, place: int, name: str, parameter: inspect.Parameter) -> str:
        if parameter.annotation is inspect.Parameter.empty:
            self._fail(f"Parameter {name} must have a type annotation.")
        annotation = self._evaluated(parameter.annotation)
        type = _PARAMETERS.get(annotation) if _is_hashable(annotation) else None
        if type is None:
            self._refuse(name, parameter, annotation)
        if (self._mutates == "unknown" and type.startswith("Tensor")) or name in self._names():
            type = self._written(place, name, type, parameter)
        if parameter.default is inspect.Parameter.empty:
            return f"{type} {name}"
        return f"{type} {name}={self._default(name, parameter.default)}"

    def _names(self) -> Iterable[str]:
        return () if isinstance(self._mutates, str) else self._mutates

    def _written(self, place: int, name: str, type: str, parameter: inspect.Parameter) -> str:
        if not type.startswith("Tensor"):
            self._fail(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated")
        if self._is_out:
            if parameter.kind is not parameter.KEYWORD_ONLY:
                self._fail("torch.Tag.out requires mutable arguments to be keyword-only.")
            if type != "Tensor":
                self._fail("torch.Tag.out only supports mutable keyword-only Tensor arguments.")
            self._outs.append(f"a{place}")
        return f"Tensor(a{place}!){type.removeprefix('Tensor')}"

    def _refuse(self, name: str, parameter: inspect.Parameter, annotation: Any) -> NoReturn:
        hint = ""
        if typing.get_origin(annotation) is tuple:
            inner = {kind for kind in typing.get_args(annotation) if kind is not Ellipsis}
            suggested = f"For example, {list[inner.pop()]}.\n\n" if len(inner) == 1 else ""  # type: ignore[misc]
            hint = (
                "We do not support Tuple inputs in schema. As a workaround, please try to use List instead. "
                + (suggested or "\n\n")
            )  # fmt: skip
        self._fail(
            f"Parameter {name} has unsupported type {parameter.annotation}. {hint}The valid types are: "
            f"{_PARAMETERS.keys()}."
        )

    def _default(self, name: str, value: Any) -> str:
        if value is None or isinstance(value, (bool, int, float)):
            return str(value)
        if isinstance(value, (str, Device)):
            return f'"{value}"'
        if isinstance(value, DType):
            return value.name
        self._fail(f"Parameter {name} has an unsupported default value type {type(value)}.")

    def _check_mutated(self) -> None:
        names = set(self._names())
        unknown = names - set(self._signature.parameters)
        if unknown:
            self._fail(
                f"{unknown} in mutates_args were not found in the custom op's signature. mutates_args should contain "
                "the names of all args that the custom op mutates, or just the string 'unknown' if you don't know."
            )
        if self._is_inplace:
            positional = [p for p in self._signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
            if not positional:
                self._fail("torch.Tag.inplace requires a positional Tensor argument.")
            if self._evaluated(positional[0].annotation) is not Tensor:
                self._fail("torch.Tag.inplace requires the first positional argument to be a Tensor.")
            if names != {positional[0].name}:
                self._fail(
                    "torch.Tag.inplace requires mutates_args to contain exactly the first positional argument, got "
                    f"{self._mutates}."
                )
        if self._is_out and not self._outs:
            self._fail("torch.Tag.out requires at least one mutable keyword-only Tensor argument.")

    def _returns(self) -> str:
        annotation = self._signature.return_annotation
        if annotation is inspect.Signature.empty:
            self._fail("No return type annotation was provided. Please add one.")
        annotation = self._evaluated(annotation)
        if self._is_out:
            outs = [f"Tensor({letters}!)" for letters in self._outs]
            return outs[0] if len(outs) == 1 else f"({', '.join(outs)})"
        if annotation is None or annotation is type(None):
            return "()"
        if typing.get_origin(annotation) is tuple:
            kinds = typing.get_args(annotation)
            return f"({', '.join([self._returned(kind, annotation) for kind in kinds])})"
        if self._is_inplace:
            if annotation is not Tensor:
                self._fail("torch.Tag.inplace requires the return annotation to be torch.Tensor.")
            return "Tensor(a0!)"
        return self._returned(annotation, annotation)

    def _returned(self, kind: Any, whole: Any) -> str:
        name = _RETURNS.get(kind) if _is_hashable(kind) else None
        if name is None:
            self._fail(f"Return has unsupported type {whole}. The valid types are: {_RETURNS}.")
        return name

    def _evaluated(self, annotation: Any) -> Any:
        """Return an annotation that is a text, or has one in it, as the type that it stands for."""
        if isinstance(annotation, str):
            try:
                return eval(annotation, self._function.__globals__)  # noqa: S307 - the annotation of the program itself
            except Exception as error:
                self._fail(f"Unsupported type annotation {annotation}. It is not a type. ({error})")
        origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is not None and any(isinstance(one, str) for one in inner):
            return GenericAlias(origin, tuple([self._evaluated(one) for one in inner]))
        return annotation


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
