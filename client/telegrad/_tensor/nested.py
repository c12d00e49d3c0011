"""Nested dicts, lists and tuples of tensors, numbers, strings and None, as a JSON tree and a dict of tensors.

What is a tensor is known only to a callback.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Generic, NoReturn, TypeVar

import numpy as np

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

Leaf = TypeVar("Leaf")

_SCALARS: Final = (type(None), bool, int, float, complex, str)
_PARTICIPLES: Final = {"save": "saved", "keep": "kept"}


def flatten(obj: Any, as_leaf: Callable[[Any], Leaf | None], verb: str) -> tuple[Any, dict[str, Leaf]]:
    """Split a structure into a JSON tree that names tensors, and what ``as_leaf`` returns for them by name.

    ``as_leaf`` returns None for what is no tensor. Errors are raised in the name of the function ``verb``.
    """
    flattener = _Flattener(as_leaf, verb)
    return flattener.encode(obj, ()), flattener.tensors


def unflatten(tree: Any, tensor: Callable[[str], Any]) -> Any:
    """Put a structure together again; ``tensor`` gives the tensor of a name."""
    if not isinstance(tree, dict):
        return tree
    ((kind, value),) = tree.items()
    if kind == "tensor":
        return tensor(value)
    if kind == "dict":
        return {unflatten(key, tensor): unflatten(item, tensor) for key, item in value}
    return _DECODERS[kind]([unflatten(item, tensor) for item in value] if isinstance(value, list) else value)


_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "list": list,
    "tuple": tuple,
    "float": float,
    "complex": lambda parts: complex(*parts),
}


class _Flattener(Generic[Leaf]):
    """One walk through a structure: the tensors met so far, and the containers being walked through."""

    def __init__(self, as_leaf: Callable[[Any], Leaf | None], verb: str) -> None:
        self.as_leaf = as_leaf
        self.verb = verb
        self.tensors: dict[str, Leaf] = {}
        self.names: dict[int, str] = {}
        self.open: set[int] = set()

    def encode(self, obj: Any, path: tuple[str, ...]) -> Any:
        if isinstance(obj, np.generic):
            obj = obj.item()
        if isinstance(obj, _SCALARS):
            return _encode_scalar(obj)
        name = self.names.get(id(obj)) or self._add_tensor(obj, path)
        return {"tensor": name} if name else self._encode_container(obj, path)

    def _add_tensor(self, obj: Any, path: tuple[str, ...]) -> str | None:
        leaf = self.as_leaf(obj)
        if leaf is None:
            return None
        name = self._free_name(".".join(path) or "tensor")
        self.names[id(obj)] = name
        self.tensors[name] = leaf
        return name

    def _free_name(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.tensors or name == "__metadata__":
            name, count = f"{wanted}#{count}", count + 1
        return name

    def _encode_container(self, obj: Any, path: tuple[str, ...]) -> Any:
        if id(obj) in self.open:
            raise ArgumentError(f"{self.verb}: {_where(path)} contains itself")
        self.open.add(id(obj))
        encoded = self._encode_items(obj, path)
        self.open.remove(id(obj))
        return encoded

    def _encode_items(self, obj: Any, path: tuple[str, ...]) -> Any:
        if isinstance(obj, dict):
            return {
                "dict": [[_encode_key(k, path, self.verb), self.encode(v, (*path, str(k)))] for k, v in obj.items()]
            }
        if isinstance(obj, list) or (isinstance(obj, tuple) and not hasattr(obj, "_fields")):
            kind = "list" if isinstance(obj, list) else "tuple"
            return {kind: [self.encode(value, (*path, str(i))) for i, value in enumerate(obj)]}
        _refuse(obj, path, self.verb)


def _refuse(obj: Any, path: tuple[str, ...], verb: str) -> NoReturn:
    remedy = f"; {verb} its state_dict()" if hasattr(obj, "state_dict") else ""
    raise ArgumentTypeError(
        f"{verb}: {_where(path)} is a {type(obj).__name__}; only dicts, lists and tuples of tensors, numbers, strings"
        f" and None can be {_PARTICIPLES[verb]}{remedy}"
    )


def _where(path: tuple[str, ...]) -> str:
    return repr(".".join(path)) if path else "the object"


def _encode_key(key: Any, path: tuple[str, ...], verb: str) -> Any:
    if not isinstance(key, _SCALARS):
        raise ArgumentTypeError(
            f"{verb}: {_where(path)} has a key of type {type(key).__name__}, expected str or number"
        )
    return _encode_scalar(key)


def _encode_scalar(value: Any) -> Any:
    if isinstance(value, complex):
        return {"complex": [_encode_scalar(value.real), _encode_scalar(value.imag)]}
    if isinstance(value, float):
        # JSON has no words for the others.
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if value is None or isinstance(value, bool):
        return value
    # Subclasses, such as members of enumerations, would be written as their names.
    return int(value) if isinstance(value, int) else str.__str__(value)
