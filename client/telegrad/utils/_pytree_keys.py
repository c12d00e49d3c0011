"""Keys that lead from a container to one of its children, and how they are written."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class KeyEntry(Hashable, Protocol):
    """The place of a child: it is written by ``str``, and ``get`` finds the child."""

    def get(self, parent: Any) -> Any:
        """Return the child of a container at this place."""


@dataclass(frozen=True)
class MappingKey:
    """The place of a child in a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Mapping[Any, Any]) -> Any:
        """Return the child of a mapping at this place."""
        return mapping[self.key]


@dataclass(frozen=True)
class SequenceKey:
    """The place of a child in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"

    def get(self, sequence: Sequence[Any]) -> Any:
        """Return the child of a sequence at this place."""
        return sequence[self.idx]


@dataclass(frozen=True)
class GetAttrKey:
    """The place of a child that is an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """Return the child of an object at this place."""
        return getattr(obj, self.name)


def keystr(kp: Iterable[Any]) -> str:
    """Return keys as they are written in Python, such as ``['layers'][0]``."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: Iterable[Any]) -> Any:
    """Return what keys lead to, from a tree on."""
    for key in kp:
        obj = key.get(obj)
    return obj
