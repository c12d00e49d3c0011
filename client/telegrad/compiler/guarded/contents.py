"""What containers, sequences, iterators and operands of a rewritten function hold, which becomes conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any, Final

from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.module import Module

from . import purity
from .notes import Notes

REGISTRIES: Final = ("_parameters", "_buffers", "_modules")
_MOST_DEEP: Final = 64


class Contents:
    """What there is around one function while it runs, down to the elements of containers."""

    def __init__(self, function: Any, notes: Notes, first: int, depth: int = 0) -> None:
        self._function = function
        self._notes = notes
        self._first = first
        """Tensors with greater numbers were made in the call."""
        self._depth = depth
        """In how many calls the function is."""
        self.slice = slice
        self.new = notes.make

    def _read(self, value: Any) -> Any:
        """Note what was read from outside of the call: nothing there may be one of its arguments, too."""
        if isinstance(value, Tensor):
            if type(value) in purity.TENSORS and value._id in self._notes.arguments:
                self._notes.refuse("a tensor that is an argument and is read elsewhere, too")
            elif type(value) in purity.TENSORS and value._id in self._notes.gradients.by_number:
                self._notes.refuse("a gradient that the program has elsewhere, too")
        elif id(value) in self._notes.given and not _is_of_constants(value):
            self._notes.refuse(f"a {type(value).__name__} that is an argument and is read elsewhere, too")
        return self._seen(value)

    def _seen(self, value: Any) -> Any:
        """Note a tensor that was there before the call, with the condition that it lies as it does."""
        if not isinstance(value, Tensor):
            return value
        notes = self._notes
        if type(value) not in purity.TENSORS:  # one within ``vmap`` has no number
            notes.refuse(f"a tensor of class {type(value).__name__}")
        elif value._id <= self._first and not notes.knows_tensor(value._id):
            notes.take(value)
        return value

    def _operated(self, value: Any) -> Any:
        """Note a value that answers an operator; a program may replace what does so for tensors."""
        if type(value) in purity.TENSORS:
            names = purity.operators_of_tensors()
            if names:
                self._notes.conditions.operators(type(value), names)
            else:
                self._notes.refuse("an operator of Tensor that the program has replaced")
        return self._seen(value)

    def item(self, container: Any, index: Any) -> Any:
        """Return what a subscript returns, once it is known where it comes from."""
        kind = type(container)
        self._operand(index)
        if kind in purity.TENSORS:
            return self._operated(container)[index]
        if kind in purity.CONTAINERS:
            return self._known_item(container, index)
        self._contents(container)
        return container[index]

    def _known_item(self, container: Any, index: Any) -> Any:
        value = container[index]
        if self._notes.knows(container):
            return self._seen(value)
        if type(container) is dict and not _has_tensor(index):
            self._notes.conditions.entry(container, index, value)
        elif type(index) is int:
            self._notes.conditions.element(container, index, value)
        else:
            self._contents(container)
        return self._read(value)

    def _contents(self, container: Any) -> None:
        """Make what a container holds a condition; of layers that hold others, which these are."""
        kind, notes = type(container), self._notes
        if kind in purity.CONTAINERS:
            if not notes.knows(container):
                notes.conditions.content(container)
                self._require_keys(container)
                self._read_all(container.values() if kind is dict else container)
        elif purity.is_sequence(kind):
            if not notes.knows(container):
                self._read_all(container)
        elif kind in purity.ITERATORS:
            if not notes.knows(container):
                notes.refuse("an iterator that was there before")
        elif isinstance(container, Module) and _is_own_method(kind, "__iter__"):
            notes.conditions.kind(container)
            for registry in REGISTRIES:
                entries = vars(container)[registry]
                notes.conditions.entry(vars(container), registry, entries)
                notes.conditions.content(entries)
                self._read_all(entries.values())
        elif not purity.is_plain(kind):
            notes.refuse(f"the content of {kind.__name__}")
        else:
            self._operated(container)

    def _require_keys(self, container: Any) -> None:
        """Refuse a dict or set from outside that has tensors as keys, which are found by what they are."""
        if type(container) is not list and any([_has_tensor(key) for key in container]):
            self._notes.refuse(f"a {type(container).__name__} that has tensors as keys")

    def _read_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self._read(value)

    def _deep_contents(self, value: Any, depth: int = 0) -> Any:
        """Make a condition of what a container holds, and of what containers in it hold; return it."""
        kind = type(value)
        if depth > _MOST_DEEP:
            self._notes.refuse("a container in itself")
        elif kind in purity.CONTAINERS or purity.is_sequence(kind):
            self._contents(value)
            for one in value.values() if kind is dict else value:
                self._deep_contents(one, depth + 1)
            for key in value if kind is dict else ():
                self._deep_contents(key, depth + 1)
        return value

    def _noted(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yield what an iterator yields, once what it holds is a condition."""
        for value in values:
            yield self._plain_element(self._deep_contents(value))

    def unpacked(self, value: Any, pattern: tuple[Any, ...]) -> Any:
        """Return what is unpacked, once what it holds is a condition, and what those parts hold that are unpacked, too.

        The pattern has a pattern for each of these parts, and None for others.
        """
        self._contents(value)
        if any(pattern):
            if type(value) in purity.ITERATORS:
                value = list(value)
            for part, inner in zip(value, pattern):
                if inner is not None:
                    self._unpacked_again(part, inner)
        return value

    def _unpacked_again(self, part: Any, pattern: tuple[Any, ...]) -> None:
        if type(part) in purity.ITERATORS:
            self._notes.refuse("an iterator in what is unpacked")
        else:
            self.unpacked(part, pattern)

    def unpacked_in_turn(self, container: Any, pattern: tuple[Any, ...]) -> Iterator[Any]:
        """Yield what is iterated over and then unpacked."""
        self._contents(container)
        makes_pairs = type(container) in purity.MAKERS_OF_TUPLES
        for value in container:
            yield self.unpacked(self.new(value) if makes_pairs else value, pattern)

    def iterated(self, container: Any) -> Any:
        """Return what is iterated over, once its content is a condition."""
        self._contents(container)
        return container

    def plain(self, value: Any) -> Any:
        """Return an operand, whose class has no operators of the program's own."""
        kind = type(value)
        if kind in purity.CONTAINERS or purity.is_sequence(kind):
            self._require_plain_elements(value)
        elif purity.is_opaque(kind):
            self._notes.conditions.kind(value)
        elif not purity.is_plain(kind):
            self._notes.refuse(f"an operator on {kind.__name__}")
        return self._operated(value)

    def remainder(self, value: Any) -> Any:
        """Return an operand of ``%``, which may make text of it."""
        for one in value if purity.is_sequence(type(value)) else (value,):
            if not (purity.is_plain(type(one)) or isinstance(one, Tensor)):
                self._notes.refuse(f"the text of {type(one).__name__}")
        return self.plain(value)

    def identity(self, value: Any) -> Any:
        """Return what ``is`` compares, if conditions tell which object it is."""
        kind = type(value)
        is_given = id(value) in self._notes.given
        if is_given or purity.is_sequence(kind) or kind in purity.BY_VALUE:
            self._notes.refuse(f"which {kind.__name__} a value is")
        return self._seen(value)

    def _require_plain_elements(self, container: Any) -> None:
        """Refuse a container of objects with operators of the program's own, which comparisons of it would call."""
        self._deep_contents(container)
        for value in container.values() if type(container) is dict else container:
            self._plain_element(value)

    def _plain_element(self, value: Any, depth: int = 0) -> Any:
        kind = type(value)
        if kind in purity.CONTAINERS or purity.is_sequence(kind):
            for one in (*value, *value.values()) if kind is dict else value:
                if depth <= _MOST_DEEP:
                    self._plain_element(one, depth + 1)
        elif not (purity.is_plain(kind) or purity.is_opaque(kind)):
            self._notes.refuse(f"an operator on a container of {kind.__name__}")
        return self._operated(value)

    def formatted(self, value: Any) -> Any:
        """Return a value that becomes text, if it is a constant: objects tell of their state."""
        if type(value) not in purity.CONSTANTS:
            self._notes.refuse(f"the text of {type(value).__name__}")
        return value

    def changed(self, value: Any) -> Any:
        """Return what an operator such as ``+=`` changes, if it is a container."""
        if type(value) in purity.CONTAINERS and id(value) not in self._notes.made:
            self._notes.refuse(f"a {type(value).__name__} that was there before is changed")
        return self.plain(value)

    def set_item(self, value: Any, container: Any, index: Any) -> None:
        """Assign to an element, or to a part of a tensor."""
        self._operand(index)
        if type(container) in purity.TENSORS:
            self._operand(value)
            self._operated(container)
        elif type(container) in purity.CONTAINERS:
            self.changed(container)
            self._contents_if_container(value)
        else:
            self._notes.refuse(f"an assignment to an element of {type(container).__name__}")
        container[index] = value

    def _contents_if_container(self, value: Any) -> None:
        """Make a condition of what a value holds, which assigning it to a part of a list would read."""
        if type(value) in purity.CONTAINERS or type(value) in purity.ITERATORS:
            self._contents(value)

    def item_to_change(self, container: Any, index: Any) -> Any:
        """Return an element that an operator such as ``+=`` is about to change, which is assigned afterwards."""
        return self.changed(self.item(self.changed(container), index))

    def entered(self, block: Any) -> Any:
        """Return what a ``with`` statement enters."""
        if not purity.is_block(type(block)):
            self._notes.refuse(f"a block of {type(block).__name__}")
        return block

    def _operand(self, value: Any) -> None:
        kind = type(value)
        if purity.is_sequence(kind) or kind in purity.CONTAINERS:
            self._contents(value)
            for one in value.values() if kind is dict else value:
                self._operand(one)
        elif not purity.is_plain(kind):
            self._notes.refuse(f"an argument of class {kind.__name__}")
        else:
            self._seen(value)


def _is_of_constants(value: Any) -> bool:
    """Whether a value is a tuple of constants, which may be one and the same wherever it is written."""
    return type(value) is tuple and all([type(one) in purity.CONSTANTS for one in value])


def _has_tensor(key: Any) -> bool:
    """Whether a key of a dict is a tensor, or a tuple with one."""
    return isinstance(key, Tensor) or (isinstance(key, tuple) and any(map(_has_tensor, key)))


def _is_own_method(kind: type, name: str) -> bool:
    """Whether a class has telegrad's own method of this name."""
    function = getattr(kind, name, None)
    return isinstance(function, FunctionType) and purity.is_own(function)
