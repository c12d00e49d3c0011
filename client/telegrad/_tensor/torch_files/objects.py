"""Objects of classes in the pickles of ``torch.save``: what describes one, and how one is made again.

A file names classes and the attributes of objects. Only what the program has imported is named, only what was made of
the file is given attributes, and no function that a file names is called, but for those of plain values listed here.
"""

from __future__ import annotations

import copyreg
import datetime
import enum
import functools
import pathlib
import re
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from telegrad._tensor.tensor import Tensor
from telegrad._tensor.torch_files.classes import is_of_program
from telegrad_protocol.errors import NotSupportedError

_BASES: Final = (tuple, list, dict, set, frozenset, int, float, str, bytes)
"""Builtin types whose subclasses are made of their values, without a method of the subclass."""
_MAKERS: Final = (
    OrderedDict, datetime.date, datetime.datetime, datetime.timedelta, datetime.timezone, defaultdict, deque,
    functools.partial, pathlib.Path, pathlib.PosixPath, pathlib.PurePosixPath, pathlib.WindowsPath, range, slice,
    types.SimpleNamespace,
)  # fmt: skip
_RECONSTRUCTOR: Final[Any] = copyreg._reconstructor  # type: ignore[attr-defined]
_PLAIN_DTYPE: Final = re.compile(r"[<>|=]?[biufcSUVmM]\d*(\[\w+\])?")


def address_of(thing: Any) -> tuple[str, str] | None:
    """Return module and name of a class or function, by which it is found again; None where it is not."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or imported(module, name) is not thing:
        return None
    own, _, rest = module.partition(".")
    return (f"torch.{rest}" if rest else "torch") if own == "telegrad" else module, name


def imported(module: str, name: str) -> Any:
    """Return what has this name in a module that is imported already; None where there is no such module or name.

    All of PyTorch's modules count as imported: where telegrad keeps in one module what PyTorch keeps in several, such
    as ``torch.optim.adamw``, the name is looked for in the one above.
    """
    first, _, rest = module.partition(".")
    own = _own_modules(rest) if first == "torch" else []
    for place in (*own, sys.modules.get(module)):
        value: Any = place
        for part in name.split("."):
            value = getattr(value, part, None)
        if value is not None:
            return value
    return None


def _own_modules(path: str) -> list[Any]:
    """Return telegrad's module that has this path below it, and those above, but for the uppermost of a longer path.

    They are reached as attributes, by which a package imports its own modules alone.
    """
    reached = [sys.modules["telegrad"]]
    for part in path.split(".") if path else ():
        below = sys.modules.get(f"{reached[-1].__name__}.{part}") or getattr(reached[-1], part, None)
        if not isinstance(below, types.ModuleType):
            break
        reached.append(below)
    return reached[:0:-1] if path else reached


def reduced(obj: Any) -> tuple[Any, ...] | str | None:
    """Return what pickle's second protocol knows of an object; None for one that cannot be described."""
    try:
        described: tuple[Any, ...] | str = obj.__reduce_ex__(2)
    except Exception:
        return None
    return described


class Objects:
    """Makes the objects of one file; ``allows`` says which classes and functions of the program it may name."""

    def __init__(self, allows: Callable[[str, Any], bool]) -> None:
        self._allows = allows
        self._made: dict[int, Any] = {}

    def named(self, module: str, name: str) -> Any:
        """Return the class or function of the program that a file names; None where it may not, or where none is."""
        value = imported(module, name)
        is_known = isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, np.ufunc))
        return value if is_known and self._allows(f"{module}.{name}", value) else None

    def new(self, kind: Any, values: Iterable[Any]) -> Any:
        """Return a new object of a class, without attributes and without a call of a ``__new__`` of the program's.

        TypeError for a class whose objects are none of Python's own kind.
        """
        if not isinstance(kind, type):
            raise TypeError("a new object of what is no class")
        _refuse_tensors(kind)
        base = next((base for base in _BASES if issubclass(kind, base)), None)
        if base is tuple and hasattr(kind, "_fields"):
            return self._keep(tuple.__new__(kind, values))
        if base is not None:
            return self._keep(base.__new__(kind, *values))
        make: Any = kind.__new__
        if tuple(values) and make is not object.__new__ and is_of_program(kind):
            raise NotSupportedError(
                f"load: objects of {kind.__module__}.{kind.__qualname__} are made of values by its own __new__, which "
                "is not called for a file; save its attributes in a dict"
            )
        return self._keep(object.__new__(kind))

    def call(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """Return what a class of plain values, or of an enumeration, makes of arguments; no other is called."""
        if function is _RECONSTRUCTOR:
            kind, base, value = arguments
            return self.new(kind, () if base is object else (value,))
        if function is getattr and isinstance(arguments[0], enum.EnumMeta):
            return arguments[0][arguments[1]]
        method = self._method(*arguments) if function is getattr and len(arguments) == 2 else None
        if method is not None:
            return method
        is_plain = function in _MAKERS or isinstance(function, enum.EnumMeta)
        if not is_plain:
            raise NotSupportedError(
                f"load: the file calls {getattr(function, '__qualname__', function)}, and no function that a file "
                "names is called; save plain values or a state_dict() instead"
            )
        return self._keep(function(*arguments))

    def _method(self, owner: Any, name: Any) -> Any:
        """Return a method that is bound to an object of the file; None if its class has no function of the name."""
        if id(owner) not in self._made or not isinstance(name, str):
            return None
        of_class = next((vars(kind)[name] for kind in type(owner).__mro__ if name in vars(kind)), None)
        return types.MethodType(of_class, owner) if isinstance(of_class, types.FunctionType) else None

    def restore(self, target: Any, state: Any) -> None:
        """Give an object that was made of the file its attributes."""
        if id(target) not in self._made:
            raise TypeError(f"attributes for a {type(target).__name__} that the file did not make")
        if isinstance(target, (np.ndarray, np.dtype)):
            _check_array_state(target, state)
            target.__setstate__(state)  # type: ignore[union-attr]
        elif hasattr(type(target), "__setstate__"):
            type(target).__setstate__(target, state)
        else:
            attributes, slots = state if isinstance(state, tuple) else (state, None)
            target.__dict__.update(attributes or {})
            for name, value in (slots or {}).items():
                object.__setattr__(target, name, value)

    def array(self, kind: Any, shape: Any, typecode: Any) -> Any:
        """Return an empty array, which the file gives its elements next."""
        return self._keep(np.empty(0, np.int8))

    def dtype(self, text: Any, align: Any = False, copy: Any = True) -> Any:
        """Return a type of NumPy's, of numbers or texts."""
        if not isinstance(text, str) or not _PLAIN_DTYPE.fullmatch(text):
            raise ValueError(f"an array of {text!r}")
        return self._keep(np.dtype(text, False, True))

    def scalar(self, dtype: Any, data: Any) -> Any:
        """Return the NumPy scalar of a type that a file gives as bytes."""
        if not isinstance(dtype, np.dtype) or dtype.hasobject:
            raise TypeError("a number of no type")
        return np.frombuffer(data, dtype, 1)[0]

    def _keep(self, made: Any) -> Any:
        self._made[id(made)] = made
        return made


def _refuse_tensors(kind: type) -> None:
    if issubclass(kind, Tensor):
        raise TypeError("a tensor that is made of nothing")


def _check_array_state(target: Any, state: Any) -> None:
    """Refuse elements that are Python objects, and types with fields."""
    if isinstance(target, np.dtype):
        ok = isinstance(state, tuple) and state[1] in "<>|=" and all(part is None for part in state[2:5])
    else:
        ok = isinstance(state, tuple) and isinstance(state[2], np.dtype) and not state[2].hasobject
    if not ok:
        raise ValueError("an array of what are no numbers or texts")
