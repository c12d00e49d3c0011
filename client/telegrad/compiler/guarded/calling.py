"""What functions that are not written in Python are given, and what they read of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

from telegrad.nn.modules.module import Module

from . import lookups, purity
from .reading import Reader
from .rewriting import WATCHED

_OF_TEXT: Final = frozenset((format, repr, str))
_SHALLOW: Final = frozenset((enumerate, len, list, reversed, tuple, zip))
"""Functions that read what a container holds, and nothing of what that holds; they call none of what they are given."""
_ABOUT_CLASSES: Final = frozenset((isinstance, issubclass, type, callable))
_COMPARING: Final = frozenset(("count", "index"))
"""Methods of containers that compare what these hold."""


class Calling(Reader):
    """Makes calls of what is not written in Python."""

    def _call_other(self, function: Any, args: Any, kwargs: Any) -> Callable[[], Any]:
        """Return what calls something that is not written in Python, or a class."""
        owner = getattr(function, "__self__", None)
        if type(owner) in purity.CONTAINERS and isinstance(function, BuiltinFunctionType):
            args = self._given_to_container(owner, function.__name__, args, kwargs)
        elif purity.is_computing(function) and function in _ABOUT_CLASSES:
            self._ask_for_class(args)
        elif purity.is_computing(function) or purity.is_value_class(function):
            args = [self._given(function, value) for value in args]
            kwargs = {name: self._given(function, value) for name, value in kwargs.items()}
        elif _is_method_of_constant(function, owner):
            args = [self._given_to_constant(value) for value in (owner, *args)][1:]
            kwargs = {name: self._given_to_constant(value) for name, value in kwargs.items()}
        elif not purity.is_block(function):
            self._notes.refuse(f"a call of {getattr(function, '__qualname__', function)}")
        return partial(function, *args, **kwargs)

    def _ask_for_class(self, args: Any) -> None:
        """Make the class of an object a condition, and what decides whether that is of another one."""
        first, *kinds = args
        if isinstance(first, type):
            if not purity.is_plain(first):
                self._notes.conditions.kind(first)
        elif not (purity.is_plain(type(first)) or type(first) in purity.ITERATORS):
            self._notes.conditions.kind(first)
        for kind in lookups.classes_in(tuple(kinds)):
            if lookups.decides_itself(kind):
                self._notes.refuse(f"{getattr(kind, '__name__', kind)}, which decides what is of its class")
        self._notes.conditions.registered_classes()

    def _given_to_container(self, owner: Any, name: str, args: Any, kwargs: Any) -> list[Any]:
        """Look at what the method of a container is given, and at what it reads of its own."""
        if not purity.reads_only(name):
            self.changed(owner)
        elif name in _COMPARING:
            self.plain(owner)
        else:
            self._contents(owner)
        for value in kwargs.values():
            self._given(sorted, value)
        return [self._given_to_method(value) for value in args]

    def _given_to_method(self, value: Any) -> Any:
        kind = type(value)
        if kind in purity.ITERATORS:
            self._contents(value)
            return self._noted(value)
        if not (purity.is_opaque(kind) or purity.is_named_tuple(kind) or isinstance(value, Module)):
            return self.plain(value)
        return value

    def _given_to_constant(self, value: Any) -> Any:
        """Allow what a method of text or a number is given: constants, and containers of those."""
        kind = type(value)
        if kind in purity.ITERATORS:
            self._contents(value)
            return self._noted(value)
        if kind in purity.CONTAINERS or kind in purity.SEQUENCES:
            return self.plain(value)
        if kind not in purity.CONSTANTS:
            self._notes.refuse(f"the text of {kind.__name__}")
        return value

    def _given(self, function: Any, value: Any) -> Any:
        """Allow what a function of Python's own is given: values, what it iterates over, and rewritten functions."""
        kind = type(value)
        if function in _OF_TEXT:
            self.formatted(value)
        elif kind in purity.CONTAINERS or purity.is_sequence(kind):
            (self._contents if function in _SHALLOW else self.plain)(value)
        elif kind in purity.ITERATORS:
            self._contents(value)
            return value if function in _SHALLOW else self._noted(value)
        elif isinstance(value, Module) and function in _SHALLOW:
            self._contents(value)
        elif isinstance(value, type):  # which may be called, such as the first argument of ``map``
            if not (purity.is_computing(value) or purity.is_value_class(value)):
                self._notes.refuse(f"the class {value.__name__} as an argument")
        elif purity.is_plain(kind):
            self._operated(value)
        elif not (isinstance(value, FunctionType) and WATCHED in value.__globals__):
            self._notes.refuse(f"an argument of class {kind.__name__}")
        return value


def _is_method_of_constant(function: Any, owner: Any) -> bool:
    """Whether a callable is a method, not written in Python, of a value that cannot change."""
    is_value = type(owner) in purity.CONSTANTS or type(owner) in purity.SEQUENCES
    return isinstance(function, BuiltinFunctionType) and is_value and owner is not None
