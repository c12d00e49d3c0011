"""Classes that an extension gives Python: instances are objects of C++ in the worker, and methods are called there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copyreg import __newobj__  # type: ignore[attr-defined]
from typing import Any, TypeAlias

from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.extension_messages import GETTER, METHOD, OPERATOR, SETTER, STATIC_GETTER, STATIC_SETTER

from ._enumerations import enumeration_of

_Function: TypeAlias = Callable[..., Any]
"""A function of the extension, with its name and documentation."""


class StaticProperty(property):
    """An attribute of a class that C++ computes."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self.fget(None)  # type: ignore[misc]

    def __set__(self, instance: Any, value: Any) -> None:
        if self.fset is None:
            raise AttributeError("can't set attribute")
        self.fset(None, value)


class ExtensionType(type):
    """The type of an extension's classes: what is assigned to an attribute that C++ computes goes there."""

    def __setattr__(cls, name: str, value: Any) -> None:
        known = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
        if isinstance(known, StaticProperty) and not isinstance(value, StaticProperty):
            known.__set__(None, value)
        else:
            super().__setattr__(name, value)


class ExtensionInstance(metaclass=ExtensionType):
    """An object of C++ in the worker of a session, which frees it when nothing refers to this any more."""

    _session: Any = None
    _id = 0
    _is_of_extension = True
    _note_overrides: Any = None
    """Tells C++ which methods a class of the program overrides; None where C++ does not ask."""

    @classmethod
    def _holding(cls, session: Any, id: int) -> ExtensionInstance:
        """Return what stands for the object that the session knows by a number."""
        made = cls.__new__(cls)
        made._session, made._id = session, id
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise ArgumentTypeError(f"{type(self).__name__}: No constructor defined!")

    def __del__(self) -> None:
        if self._id:
            self._session.free(self._id)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if hasattr(type(self), "__setstate__"):
            return __newobj__, (type(self),), self.__getstate__()
        raise ArgumentTypeError(f"cannot pickle {type(self).__name__!r} object: it is in the extension's worker")

    def _number(self, session: Any) -> int:
        """Return the number by which a session knows the object."""
        if not self._id:
            raise ArgumentTypeError(f"{type(self).__name__}.__init__() must be called when overriding __init__")
        if self._session is not session:
            raise ArgumentTypeError(f"the {type(self).__name__} is of another session than the extension")
        return self._id


def classes_of(module: str, told: Iterable[list[Any]]) -> dict[int, type[Any]]:
    """Return the classes of an extension by number, as the server tells of them; bases come first there."""
    made: dict[int, type[Any]] = {}
    waiting = dict(enumerate(told))
    while waiting:
        number = next(n for n, (_, _, bases, *_) in waiting.items() if all(base in made for base in bases))
        path, doc, bases, _, is_enumeration, arithmetic, enumerators = waiting.pop(number)
        if is_enumeration:
            made[number] = enumeration_of(path, doc, number, arithmetic, enumerators)
        else:
            parents = tuple(made[base] for base in bases) or (ExtensionInstance,)
            body = {"__doc__": doc or None, "_path": path}
            made[number] = ExtensionType(path.rpartition(".")[2], parents, body)
        made[number].__module__ = module
    return made


def add_member(owner: type[ExtensionInstance], function: _Function, role: int) -> None:
    """Give a class a function of its C++, as what its role there is."""
    name = function.__name__
    if name in ("__init__", "__setstate__"):
        setattr(owner, name, _constructor(function))
    elif role == METHOD:
        setattr(owner, name, _method(function))
    elif role == OPERATOR:
        setattr(owner, name, _operator(function))
    elif role in (STATIC_GETTER, STATIC_SETTER):
        static = vars(owner).get(name, StaticProperty())
        setattr(owner, name, static.getter(function) if role == STATIC_GETTER else static.setter(function))
    elif role in (GETTER, SETTER):
        known = vars(owner).get(name)
        before = known if isinstance(known, property) else property()
        changed = before.getter(function) if role == GETTER else before.setter(_discarding(function))
        setattr(owner, name, changed)
    else:
        setattr(owner, name, staticmethod(function))
    if name == "__eq__" and "__hash__" not in vars(owner):
        owner.__hash__ = None  # type: ignore[assignment]


def _constructor(function: _Function) -> Callable[..., None]:
    def __init__(self: ExtensionInstance, *args: Any, **kwargs: Any) -> None:
        made = function(*args, **kwargs)
        self._session, self._id = made._session, made._id
        made._id = 0  # the object is this one's
        if self._note_overrides is not None:
            overridden = _overridden(type(self))
            if overridden:
                self._note_overrides(self, overridden)

    return _documented(__init__, function)


def _method(function: _Function) -> Callable[..., Any]:
    def method(self: ExtensionInstance, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    return _documented(method, function)


def _operator(function: _Function) -> Callable[..., Any]:
    """Return a method that leaves operands which C++ does not take to Python."""

    def method(self: ExtensionInstance, *args: Any) -> Any:
        return function(self, *args) if function.takes((self, *args)) else NotImplemented  # type: ignore[attr-defined]

    return _documented(method, function)


def _overridden(owner: type) -> list[str]:
    """Return the names of methods of C++ that a class of the program has as its own."""
    told: list[str] = []
    for place, base in enumerate(owner.__mro__):
        if "_path" in vars(base):
            own = {name for earlier in owner.__mro__[:place] for name in vars(earlier)}
            told += [name for name in own if getattr(vars(base).get(name), "_is_of_extension", False)]
    return sorted(set(told) - {"__init__"})


def _discarding(function: _Function) -> Callable[[Any, Any], None]:
    def setter(self: ExtensionInstance, value: Any) -> None:
        function(self, value)

    return setter


def _documented(made: Callable[..., Any], function: _Function) -> Callable[..., Any]:
    made.__name__, made.__qualname__ = function.__name__, function.__qualname__
    made.__module__, made.__doc__ = function.__module__, function.__doc__
    made._is_of_extension = True  # type: ignore[attr-defined]
    return made
