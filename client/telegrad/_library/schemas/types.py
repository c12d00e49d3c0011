"""Schemas of operators: the arguments and results of one overload, as PyTorch's dispatcher describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_SHOWN: Final = {"SymInt": "int", "Scalar": "number", "ScalarType": "int", "Layout": "int", "MemoryFormat": "int"}
"""What PyTorch shows as the type of an argument whose schema names another one."""


@dataclass(frozen=True)
class SchemaType:
    """A type: ``kind`` names a plain one, or is ``list`` or ``optional`` of ``element``; ``size`` is a list's own."""

    kind: str
    element: SchemaType | None = None
    size: int | None = None

    @property
    def text(self) -> str:
        """The type as schemas write it."""
        return self.text_with("")

    def text_with(self, alias: str) -> str:
        """Return the type as schemas write it, with an alias annotation behind the plain type in it."""
        if self.element is None:
            return self.kind + alias
        inner = self.element.text_with(alias)
        return f"{inner}[{self.size or ''}]" if self.kind == "list" else f"{inner}?"

    def __str__(self) -> str:
        if self.element is None:
            return _SHOWN.get(self.kind, self.kind)
        return f"{'List' if self.kind == 'list' else 'Optional'}[{self.element}]"

    @property
    def plain(self) -> str:
        """The name of the plain type in it."""
        return self.kind if self.element is None else self.element.plain

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, or an optional one."""
        inner = self.element if self.kind == "optional" else self
        return inner is not None and inner.kind == "Tensor"

    @property
    def is_tensor_list(self) -> bool:
        """Whether it is a list with tensors in it, or an optional one."""
        return self.plain == "Tensor" and not self.is_tensor


@dataclass(frozen=True)
class AliasInfo:
    """Which memory an argument or a result shares, by the letters of its annotation, and whether it is written to."""

    before_set: frozenset[str]
    after_set: frozenset[str]
    is_write: bool
    is_of_list: bool = False
    """Whether it is written behind a list, and means that, not the elements."""

    def __str__(self) -> str:
        before, after = "|".join(sorted(self.before_set)), "|".join(sorted(self.after_set))
        arrow = "" if self.after_set == self.before_set else f" -> {after}"
        return f"({before}{'!' if self.is_write else ''}{arrow})"


@dataclass(frozen=True)
class Argument:
    """An argument, or a result: name, type, default, and what memory it shares."""

    name: str
    type: SchemaType
    default_value: Any = None
    kwarg_only: bool = False
    alias_info: AliasInfo | None = None
    has_default: bool = False
    default_text: str = ""

    @property
    def N(self) -> int | None:
        """The size of a list that has one."""
        return self.type.size

    @property
    def real_type(self) -> SchemaType:
        """The type under the name that PyTorch has for it beside ``type``."""
        return self.type

    @property
    def is_write(self) -> bool:
        """Whether the operator writes into it."""
        return self.alias_info is not None and self.alias_info.is_write

    @property
    def is_out(self) -> bool:
        """Whether it is a result that the caller has provided."""
        return self.kwarg_only and self.is_write

    def has_default_value(self) -> bool:
        """Whether calls may leave it out."""
        return self.has_default

    def __str__(self) -> str:
        alias = "" if self.alias_info is None else str(self.alias_info)
        name = f" {self.name}" if self.name else ""
        default = f"={self.default_text}" if self.has_default else ""
        is_behind = self.alias_info is not None and self.alias_info.is_of_list
        type = self.type.text + alias if is_behind else self.type.text_with(alias)
        return f"{type}{name}{default}"


@dataclass(frozen=True)
class FunctionSchema:
    """What an overload takes and returns; its text is PyTorch's."""

    name: str
    overload_name: str
    arguments: Sequence[Argument]
    returns: Sequence[Argument]
    is_vararg: bool = False
    is_varret: bool = False

    @property
    def is_mutable(self) -> bool:
        """Whether it writes into an argument."""
        return any(argument.is_write for argument in self.arguments)

    def _is_view_op(self) -> bool:
        """Return whether a result shares memory with an argument that is not written to."""
        read = {name for a in self.arguments if a.alias_info and not a.is_write for name in a.alias_info.before_set}
        return any(r.alias_info is not None and not read.isdisjoint(r.alias_info.before_set) for r in self.returns)

    def __str__(self) -> str:
        parts: list[str] = []
        for place, argument in enumerate(self.arguments):
            if argument.kwarg_only and (place == 0 or not self.arguments[place - 1].kwarg_only):
                parts.append("*")
            parts.append(str(argument))
        if self.is_vararg:
            parts.append("...")
        results = [str(result) for result in self.returns] + ["..."] * self.is_varret
        is_bare = len(results) == 1 and bool(self.returns) and results[0][0] != "("
        returned = results[0] if is_bare else f"({', '.join(results)})"
        dot = f".{self.overload_name}" if self.overload_name else ""
        return f"{self.name}{dot}({', '.join(parts)}) -> {returned}"

    @property
    def written(self) -> tuple[list[int], list[str]]:
        """The places of positional arguments, and the names of others, that are written into."""
        places = [place for place, argument in enumerate(self.arguments) if argument.is_write]
        positional = [place for place in places if not self.arguments[place].kwarg_only]
        return positional, [self.arguments[place].name for place in places if self.arguments[place].kwarg_only]

    def filled(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return all arguments of a call, those left out as their defaults."""
        every, named = list(args), {}
        for place, argument in enumerate(self.arguments):
            if argument.kwarg_only:
                named[argument.name] = kwargs.get(argument.name, argument.default_value)
            elif place >= len(args):
                every.append(argument.default_value)
        return tuple(every), named
