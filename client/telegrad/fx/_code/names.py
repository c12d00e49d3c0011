"""Names of nodes and of what generated code mentions: unique, valid in Python, and no builtin's."""

from __future__ import annotations

import builtins
import keyword
import math
import re
import sys
from typing import Any, Final, NamedTuple

from telegrad.utils import _pytree as pytree
from telegrad_protocol.meta import Device
from telegrad_protocol.shown_name import shown_name

from .. import _pytree as fx_pytree

_CAPITAL_AFTER_SMALL: Final = re.compile(r"(?<=[a-z])([A-Z])")
_NOT_IN_NAMES: Final = re.compile("[^0-9a-zA-Z_]+")
_WITH_NUMBER: Final = re.compile(r"([a-zA-Z_][0-9a-zA-Z_]*?)(?:_(\d+))?")


class Imported(NamedTuple):
    """What generated code can name without an import of its own, and the statement that imports it."""

    import_str: str
    obj: Any


def package_name() -> str:
    """Return the name that generated code has for telegrad: ``torch`` in programs that import it so."""
    return shown_name("")[:-1]


def always_there() -> dict[str, Imported]:
    """Return what stands in the globals of all generated code, by name."""
    package = package_name()
    return {
        "inf": Imported("from math import inf", math.inf),
        "nan": Imported("from math import nan", math.nan),
        "NoneType": Imported("NoneType = type(None)", type(None)),
        package: Imported(f"import {package}", sys.modules[package]),
        "device": Imported(f"from {package} import device", Device),
        "fx_pytree": Imported(f"import {package}.fx._pytree as fx_pytree", fx_pytree),
        "pytree": Imported(f"import {package}.utils._pytree as pytree", pytree),
    }


def snake_case(name: str) -> str:
    """Return a name with an underscore before each capital letter that follows a small one, in small letters."""
    return _CAPITAL_AFTER_SMALL.sub(r"_\1", name).lower()


class Namespace:
    """Names that are given once each, to objects or without one."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}
        taken = {name: entry.obj for name, entry in always_there().items()}
        self._taken = {**dict.fromkeys(keyword.kwlist, self), **vars(builtins), **taken}

    def create_name(self, candidate: str, obj: Any) -> str:
        """Return the name of an object, or a new one like ``candidate``, with a number where it is in use."""
        if obj is not None and obj in self._names:
            return self._names[obj]
        base, number, candidate = self._parts(candidate)
        if number is None or candidate in self._used:
            number = self._numbers.get(base, 0)
            if self._taken.get(candidate, obj) is not obj:
                number += 1
                candidate = f"{base}_{number}"
        while candidate in self._used:
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._numbers[base] = number
        if obj is not None:
            self._names[obj] = candidate
        return candidate

    @staticmethod
    def _parts(candidate: str) -> tuple[str, int | None, str]:
        """Return a name without its number, the number, and both together as a name that Python accepts."""
        parts = _WITH_NUMBER.fullmatch(candidate)
        if parts is None:
            candidate = _NOT_IN_NAMES.sub("_", candidate) or "_unnamed"
            candidate = f"_{candidate}" if candidate[0].isdigit() else candidate
            parts = _WITH_NUMBER.fullmatch(candidate)
        assert parts is not None
        base, number = parts.groups()
        return base, None if number is None else int(number), candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Make a name that was created without an object that of this object."""
        self._names[obj] = name

    def _rename_object(self, obj: Any, name: str) -> None:
        self._names[obj] = name
        self._used.add(name)
