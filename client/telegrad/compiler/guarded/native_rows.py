"""Conditions in the form in which C compares them: what they are about, side by side, in a tuple for each kind.

``_native/conditions.h`` has the kinds in the same order, with what each consists of.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from telegrad._tensor.tensor import Tensor
from telegrad.nn.parameter import Parameter

from . import lookups

KINDS: Final = ("kind", "parents", "members", "code", "dict", "list", "element", "cell", "tensor", "attribute")
_VERSION_BYTES: Final = 8
_DICTS: Final = (dict, defaultdict)
_PLAIN_KEYS: Final = (str, int, Tensor, Parameter)
"""Classes of keys that are found by value, or as the objects that they are."""


class NativeRows:
    """Collects what conditions are about, by kind, and of dicts by which one it is."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        self._entries: dict[int, tuple[dict[Any, Any], list[Any]]] = {}
        """Dicts, with keys and values of theirs in turn, by ``id``."""
        self._contents: dict[int, tuple[Any, ...]] = {}
        """All keys and all values of some of them."""

    def add(self, kind: str, *about: Any) -> None:
        """Add a condition of a kind that C knows."""
        self._rows[kind] += about

    def add_entry(self, entries: dict[Any, Any], key: Any, value: Any) -> None:
        """Add that a dict has this value for a key; ``ABSENT`` where it has none."""
        self._entries.setdefault(id(entries), (entries, []))[1].extend((key, value))

    def add_content(self, container: Any) -> bool:
        """Add that a list or dict holds what it holds now, in this order; return whether it is one of these."""
        if container.__class__ is list:
            self.add("list", container, tuple(container))
        elif container.__class__ is dict:
            self._entries.setdefault(id(container), (container, []))
            self._contents[id(container)] = tuple(container), tuple(container.values())
        return container.__class__ in (list, dict)

    def add_methods(self, methods: Any, names: Sequence[str]) -> bool:
        """Add what a class has under these names; return whether its dict is to be found, which ``vars`` hides."""
        hidden = gc.get_referents(methods)
        if len(hidden) != 1 or hidden[0].__class__ is not dict:
            return False
        for name in names:
            self.add_entry(hidden[0], name, methods[name])
        return True

    def check(self, hold: Callable[[tuple[Any, ...], bytearray], bool]) -> Callable[[], bool]:
        """Return a function that lets C compare what there is by now."""
        nothing = None, None
        dicts = [(one, tuple(pairs), *self._contents.get(id, nothing)) for id, (one, pairs) in self._entries.items()]
        rows = {**self._rows, "dict": [part for one in dicts for part in one]}
        groups, versions = tuple(map(tuple, rows.values())), bytearray(_VERSION_BYTES * len(dicts))
        return partial(hold, groups, versions)


def is_plain_key(entries: Any, key: Any) -> bool:
    """Whether looking a key up calls nothing of the program's."""
    return entries.__class__ in _DICTS and key.__class__ in _PLAIN_KEYS


def is_plain_object(owner: Any) -> bool:
    """Whether an object has its class, and its dict of attributes, in the way of Python's own objects."""
    kind = type(owner)
    has_own_dict = isinstance(lookups.stored(kind, "__dict__"), property)
    return lookups.stored(kind, "__class__") is vars(object)["__class__"] and not (
        has_own_dict or isinstance(owner, type)
    )
