"""Classes that an extension gives Python: instances are objects of C++ in the worker, and methods are called there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.extension_messages import GETTER, METHOD, SETTER

_Function: TypeAlias = Callable[..., Any]
"""A function of the extension, with its name and documentation."""


class ExtensionInstance:
    """An object of C++ in the worker of a session, which frees it when nothing refers to this any more."""

    _session: Any = None
    _id = 0
    _is_of_extension = True

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
        raise ArgumentTypeError(f"cannot pickle {type(self).__name__!r} object: it is in the extension's worker")

    def _number(self, session: Any) -> int:
        """Return the number by which a session knows the object."""
        if not self._id:
            raise ArgumentTypeError(f"{type(self).__name__}.__init__() must be called when overriding __init__")
        if self._session is not session:
            raise ArgumentTypeError(f"the {type(self).__name__} is of another session than the extension")
        return self._id


def classes_of(module: str, told: Iterable[list[Any]]) -> dict[int, type[ExtensionInstance]]:
    """Return the classes of an extension by number, as the server tells of them; bases come first there."""
    made: dict[int, type[ExtensionInstance]] = {}
    waiting = dict(enumerate(told))
    while waiting:
        number = next(n for n, (_, _, bases) in waiting.items() if all(base in made for base in bases))
        name, doc, bases = waiting.pop(number)
        parents = tuple(made[base] for base in bases) or (ExtensionInstance,)
        made[number] = type(name, parents, {"__module__": module, "__doc__": doc or None})
    return made


def add_member(owner: type[ExtensionInstance], function: _Function, role: int) -> None:
    """Give a class a function of its C++, as what its role there is."""
    name = function.__name__
    if name == "__init__":
        setattr(owner, name, _constructor(function))
    elif role == METHOD:
        setattr(owner, name, _method(function))
    elif role in (GETTER, SETTER):
        known = vars(owner).get(name)
        before = known if isinstance(known, property) else property()
        changed = before.getter(function) if role == GETTER else before.setter(_discarding(function))
        setattr(owner, name, changed)
    else:
        setattr(owner, name, staticmethod(function))


def _constructor(function: _Function) -> Callable[..., None]:
    def __init__(self: ExtensionInstance, *args: Any, **kwargs: Any) -> None:
        made = function(*args, **kwargs)
        self._session, self._id = made._session, made._id
        made._id = 0  # the object is this one's

    return _documented(__init__, function)


def _method(function: _Function) -> Callable[..., Any]:
    def method(self: ExtensionInstance, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    return _documented(method, function)


def _discarding(function: _Function) -> Callable[[Any, Any], None]:
    def setter(self: ExtensionInstance, value: Any) -> None:
        function(self, value)

    return setter


def _documented(made: Callable[..., Any], function: _Function) -> Callable[..., Any]:
    made.__name__, made.__qualname__ = function.__name__, function.__qualname__
    made.__module__, made.__doc__ = function.__module__, function.__doc__
    return made
