"""What a rewritten function calls: it does what the function would have done, and notes what that depends on.

Anything that may have an effect, or that reads what cannot be a condition, is done as well, and makes the call
*impure*: ``reason`` says what it was. A watcher serves one function; those of the functions called share its notes.
"""

from __future__ import annotations

import functools
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final

from telegrad._tensor.tensor import Tensor
from telegrad.nn._hooks import GLOBAL
from telegrad.nn.modules.module import Module

from . import purity
from .conditions import ABSENT
from .reading import Reader
from .rewriting import WATCHED, rewritten

_MOST_DEEP: Final = 64


class Watcher(Reader):
    """Stands for one function while it runs."""

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, a layer or a class."""
        if isinstance(function, Module):
            return self._call_layer(function, args, kwargs)
        if isinstance(function, MethodType):
            return self._call_method(function, args, kwargs)
        if isinstance(function, FunctionType):
            return self._call_function(function, args, kwargs)
        if isinstance(function, functools.partial):
            return self.call(function.func, *function.args, *args, **{**function.keywords, **kwargs})
        if function is getattr and 2 <= len(args) <= 3 and not kwargs:
            return self._call_getattr(*args)
        if function is hasattr and len(args) == 2:
            return self._has(*args) and (self.attribute(*args), True)[1]
        return self._call_other(function, args, kwargs)

    def _call_getattr(self, owner: Any, name: str, *default: Any) -> Any:
        if default and not self._has(owner, name):
            return default[0]
        return self.attribute(owner, name)

    def _has(self, owner: Any, name: str) -> bool:
        """Tell whether there is an attribute; that there is none is a condition."""
        if hasattr(owner, name):
            return True
        if owner.__class__ in purity.CONSTANTS:
            return False
        if owner.__class__ in purity.TENSORS:
            self._notes.refuse(f"whether a tensor has the attribute {name}")
            return False
        self._notes.conditions.attribute(owner, name, ABSENT)
        return False

    def _call_layer(self, layer: Module, args: Any, kwargs: Any) -> Any:
        if "_compile_options" in vars(layer):  # a compiled module, which calls the one that it was made of
            return self.call(layer._modules["_orig_mod"], *args, **kwargs)
        if type(layer).__call__ is not Module.__call__:
            return self.call(MethodType(type(layer).__call__, layer), *args, **kwargs)
        conditions = self._notes.conditions
        conditions.attribute(type(layer), "__call__", Module.__call__)
        conditions.entry(vars(layer), "_has_hooks", layer._has_hooks)
        conditions.entry(vars(GLOBAL), "any", GLOBAL.look())
        if layer._has_hooks or GLOBAL.any:
            self._notes.refuse(f"hooks of {type(layer).__name__}")
            return layer(*args, **kwargs)
        return self.call(self.attribute(layer, "forward"), *args, **kwargs)

    def _call_method(self, method: MethodType, args: Any, kwargs: Any) -> Any:
        owner, function = method.__self__, method.__func__
        if owner.__class__ in purity.TENSORS and purity.is_tensor_method(function, function.__name__):
            return self._operation(method, args, kwargs)
        if purity.is_of_named_tuple(owner, function):
            return method(*args, **kwargs)
        if isinstance(function, FunctionType) and not isinstance(owner, Tensor):
            return self._call_function(function, (owner, *args), kwargs)
        self._notes.refuse(f"a call of {getattr(function, '__qualname__', function)}")
        return method(*args, **kwargs)

    def _call_function(self, function: FunctionType, args: Any, kwargs: Any) -> Any:
        if WATCHED in function.__globals__:
            return function(*args, **kwargs)
        original = getattr(function, "_torchdynamo_orig_callable", None)
        if original is not None:
            self._notes.conditions.code(function)
            return self.call(original, *args, **kwargs)
        if purity.is_operation(function):
            return self._operation(function, args, kwargs)
        notes = self._notes
        watcher = Watcher(function, notes, self._first)
        made = rewritten(function, watcher) if notes.depth < _MOST_DEEP else None
        if made is None:
            notes.refuse(f"what {function.__qualname__} does")
            return function(*args, **kwargs)
        notes.conditions.code(function)
        notes.depth += 1
        try:
            return made(*args, **kwargs)
        finally:
            notes.depth -= 1

    def _operation(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Call what runs operations on tensors and constants."""
        for value in (*args, *kwargs.values()):
            self._operand(value)
        return self._notes.make(function(*args, **kwargs))

    def _call_other(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Call what is not written in Python, or a class."""
        owner = getattr(function, "__self__", None)
        if owner.__class__ in purity.CONTAINERS and isinstance(function, BuiltinFunctionType):
            if purity.reads_only(function.__name__):
                self._contents(owner)
            else:
                self.changed(owner)
        elif purity.is_computing(function) or purity.is_value_class(function):
            for value in () if function in _ABOUT_CLASSES else (*args, *kwargs.values()):
                self._given(function, value)
        elif not (purity.is_block(function) or _is_method_of_constant(function, owner)):
            self._notes.refuse(f"a call of {getattr(function, '__qualname__', function)}")
        return self._notes.make(function(*args, **kwargs))

    def _given(self, function: Any, value: Any) -> None:
        """Allow what a function of Python's own is given: values, what it iterates over, and rewritten functions."""
        kind = value.__class__
        if function in _OF_TEXT:
            self.formatted(value)
        elif kind in purity.CONTAINERS or kind in purity.SEQUENCES:
            self._contents(value)
            if function in _ON_ELEMENTS:
                self.require_plain_elements(value)
        elif kind in purity.ITERATORS or (isinstance(value, Module) and function in _ITERATING):
            self._contents(value)
        elif isinstance(value, type):  # which may be called, such as the first argument of ``map``
            if not (purity.is_computing(value) or purity.is_value_class(value)):
                self._notes.refuse(f"the class {value.__name__} as an argument")
        elif purity.is_plain(kind):
            self._seen(value)
        elif not (isinstance(value, FunctionType) and WATCHED in value.__globals__):
            self._notes.refuse(f"an argument of class {kind.__name__}")


_OF_TEXT: Final = frozenset((format, repr, str))
_ON_ELEMENTS: Final = frozenset((all, any, max, min, sorted, sum))
_ITERATING: Final = frozenset((enumerate, len, list, reversed, tuple, zip))
"""Functions that call none of what they are given but to iterate over it."""
_ABOUT_CLASSES: Final = frozenset((isinstance, issubclass, type, callable))


def _is_method_of_constant(function: Any, owner: Any) -> bool:
    """Whether a callable is a method, not written in Python, of a value that cannot change."""
    is_value = owner.__class__ in purity.CONSTANTS or owner.__class__ in purity.SEQUENCES
    return isinstance(function, BuiltinFunctionType) and is_value and owner is not None
