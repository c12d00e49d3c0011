"""Which names of a pickle are refused, found without making any of its objects."""

from __future__ import annotations

import pickletools
from typing import Any

from telegrad_protocol.errors import ArgumentError

from .opcodes import Names
from .reading import ForeignObjectError


def refused_names(pickle: bytes, names: Names) -> list[str]:
    """Return the names of modules' classes and functions that ``names`` refuses, sorted, each once.

    Raises ArgumentError for a pickle that is damaged.
    """
    try:
        named = _named_in(pickle)
    except (ValueError, LookupError) as error:
        raise ArgumentError(f"load: the pickle is damaged: {error!r}") from error
    return sorted({f"{module}.{name}" for module, name in named if _is_refused(names, module, name)})


def _is_refused(names: Names, module: str, name: str) -> bool:
    try:
        names.named(module, name)
    except ForeignObjectError:
        return True
    return False


def _named_in(pickle: bytes) -> list[tuple[str, str]]:
    """Return modules and names; those on the stack are the last two texts that were pushed or fetched before."""
    named: list[tuple[str, str]] = []
    texts: list[Any] = [None, None]
    memo: dict[int, Any] = {}
    for code, operand, _ in pickletools.genops(pickle):
        argument: Any = operand
        if code.name == "GLOBAL":
            module, _, name = argument.partition(" ")
            named.append((module, name))
        elif code.name == "STACK_GLOBAL":
            named.append((str(texts[-2]), str(texts[-1])))
        elif code.name.endswith("PUT"):
            memo[argument] = texts[-1]
        elif code.name == "MEMOIZE":
            memo[len(memo)] = texts[-1]
        elif code.name.endswith("GET"):
            texts.append(memo.get(argument))
        elif isinstance(argument, str):
            texts.append(argument)
    return named
