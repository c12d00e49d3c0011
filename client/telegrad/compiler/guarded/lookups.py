"""Whether attributes and classes are looked up as Python does it, without running code of the program's own."""

from __future__ import annotations

import abc
import enum
from types import FunctionType, SimpleNamespace, UnionType
from typing import Any, Final, get_args

from telegrad.nn.modules.module import Module

_USUAL: Final = (object.__getattribute__, SimpleNamespace.__getattribute__)
_MISSING: Final = object()


def stored(kind: type, name: str) -> Any:
    """Return what a class or one of its parents has under a name, as it is stored; ``default`` where none has it."""
    for one in kind.__mro__:
        if name in vars(one):
            return vars(one)[name]
    return _MISSING


def is_there(value: Any) -> bool:
    """Whether ``stored`` has found something."""
    return value is not _MISSING


def runs_code(value: Any) -> bool:
    """Whether reading what is stored in a class runs code of the program's own."""
    return isinstance(value, property) or isinstance(getattr(type(value), "__get__", None), FunctionType)


def is_usual(owner: Any) -> bool:
    """Whether the class of an object, which is no class itself, looks attributes up as usual."""
    kind: Any = type(owner)
    looks_up = stored(kind, "__getattr__")
    is_known = not is_there(looks_up) or looks_up is vars(Module)["__getattr__"]
    return kind.__getattribute__ in _USUAL and is_known


def is_usual_in_class(owner: type, name: str) -> bool:
    """Whether an attribute of a class is what is stored there."""
    if issubclass(owner, enum.Enum):
        return True
    for kind in type(owner).__mro__:
        if kind is type:
            break
        if not {name, "__getattr__", "__getattribute__"}.isdisjoint(vars(kind)):
            return False
    value = stored(owner, name)
    return isinstance(value, property) or not runs_code(value)


def classes_in(kinds: Any) -> list[Any]:
    """Return the classes that ``isinstance`` is asked about: those of a tuple or of a union."""
    if isinstance(kinds, tuple):
        return [one for part in kinds for one in classes_in(part)]
    if isinstance(kinds, UnionType):
        return list(get_args(kinds))
    return [kinds]


def decides_itself(kind: Any) -> bool:
    """Whether code of the program's own decides which objects are of a class."""
    meta = type(kind)
    if meta.__module__.partition(".")[0] == "telegrad":
        return False
    checks: Any = meta.__instancecheck__, meta.__subclasscheck__
    if checks == (abc.ABCMeta.__instancecheck__, abc.ABCMeta.__subclasscheck__):
        return False
    return bool(checks != (type.__instancecheck__, type.__subclasscheck__))
