"""What a rewritten function reads by name: variables and attributes, each of which becomes a condition."""

from __future__ import annotations

import builtins
import enum
import functools
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from telegrad.nn.modules.module import Module

from . import lookups, purity
from .contents import REGISTRIES, Contents

_MISSING: Final = object()


class Reader(Contents):
    """Stands for one function while it runs: ``function`` tells what its names mean."""

    def name(self, name: str) -> Any:
        """Return a global variable, or what Python has built in."""
        own, conditions = self._function.__globals__, self._notes.conditions
        if name in own:
            value = own[name]
            conditions.entry(own, name, value)
            return self._read(value)
        given = vars(builtins)
        if name not in given:
            raise NameError(f"name {name!r} is not defined")
        conditions.no_entry(own, name)
        conditions.entry(given, name, given[name])
        return given[name]

    def cell(self, name: str, value: Any) -> Any:
        """Return a variable of an enclosing function."""
        names = self._function.__code__.co_freevars
        if name in names and self._function.__closure__ is not None:
            self._notes.conditions.cell(self._function.__closure__[names.index(name)], value)
        return self._read(value)

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Return what makes a call of a function: a property's, for one."""
        raise NotImplementedError

    def attribute(self, owner: Any, name: str) -> Any:
        """Return what ``getattr`` returns, once it is known where it comes from."""
        kind = type(owner)
        if kind in purity.TENSORS:
            return self._of_tensor(owner, name)
        if purity.is_named_tuple(kind):
            return self._of_named_tuple(owner, name)
        if isinstance(owner, type) or kind is super or purity.is_plain(kind):
            return self._of_class(owner, name)
        if kind is ModuleType or isinstance(owner, ModuleType):
            return self._of_module(owner, name)
        return self._of_object(owner, name)

    def _of_tensor(self, tensor: Any, name: str) -> Any:
        found = getattr(self._seen(tensor), name)
        if isinstance(found, MethodType):
            self._notes.conditions.attribute(type(tensor), name, found.__func__)
        if name in tensor.__dict__:
            self._notes.refuse(f"the attribute {name} that the program has given a tensor")
        if isinstance(found, MethodType) or purity.is_tensor_attribute(name) or isinstance(found, BuiltinFunctionType):
            return found
        self._notes.refuse(f"the attribute {name} of a tensor")
        return found

    def _of_named_tuple(self, owner: Any, name: str) -> Any:
        """Return a member of a named tuple, or what its class has."""
        self._contents(owner)
        kind = type(owner)
        of_class = getattr(kind, name, _MISSING)
        if of_class is _MISSING or (hasattr(owner, "__dict__") and not hasattr(type(of_class), "__set__")):
            self._notes.refuse(
                f"the attribute {name} of {kind.__name__}, which each of its objects may have for itself"
            )
            return getattr(owner, name)
        self._notes.conditions.attribute(kind, name, of_class)
        if isinstance(of_class, property):
            return self.new(self.call(of_class.fget, owner)())
        return getattr(owner, name)

    def _of_class(self, owner: Any, name: str) -> Any:
        """Return an attribute of a class, of its parent by ``super()``, or of a value that cannot change."""
        value = getattr(owner, name)
        if isinstance(owner, type):
            if not lookups.is_usual_in_class(owner, name):
                self._notes.refuse(f"the attribute {name} of {owner.__name__}, which looks it up in its own way")
            self._notes.conditions.attribute(owner, name, value)
            return self._read(value)
        if isinstance(owner, enum.Enum) and name not in ("name", "value"):
            self._notes.refuse(f"the attribute {name} of {type(owner).__name__}")
        if type(owner) is super:
            function = getattr(value, "__func__", None)
            kinds: Any = owner.__self_class__.__mro__  # type: ignore[attr-defined]
            holder = next((one for one in kinds if vars(one).get(name) is function), None)
            if holder is None or function is None:
                self._notes.refuse(f"the attribute {name} of super()")
            else:
                self._notes.conditions.attribute(holder, name, function)
        return value

    def _of_module(self, module: ModuleType, name: str) -> Any:
        """Return a name of a module of Python, which may be imported by being read."""
        value = getattr(module, name)
        if vars(module).get(name, _MISSING) is value:
            self._notes.conditions.entry(vars(module), name, value)
        else:
            self._notes.refuse(f"the name {name} that {module.__name__} makes when it is read")
        return self._read(value)

    def _of_object(self, owner: Any, name: str) -> Any:
        """Return an attribute of a layer, or of another object of a class that looks attributes up as usual."""
        kind: Any = type(owner)
        if not lookups.is_usual(owner):
            self._notes.refuse(f"attributes of {kind.__name__}, which looks them up in its own way")
            return getattr(owner, name)
        self._notes.conditions.kind(owner)
        of_class = lookups.stored(kind, name)
        if type(of_class) is property:
            self._notes.conditions.attribute(kind, name, of_class)
            return self.new(self.call(of_class.fget, owner)())
        if lookups.runs_code(of_class) and not (_is_cached(of_class) and name in vars(owner)):
            self._notes.refuse(f"the attribute {name} of {kind.__name__}")
            return getattr(owner, name)
        own = getattr(owner, "__dict__", {})
        if name in own:
            self._notes.conditions.entry(own, name, own[name])
            if lookups.is_there(of_class):
                self._notes.conditions.attribute(kind, name, getattr(kind, name))
            return self._read(own[name])
        if lookups.is_there(of_class):
            return self._of_its_class(owner, name, of_class)
        for registry in REGISTRIES if isinstance(owner, Module) else ():
            entries = own[registry]
            if name in entries:
                self._notes.conditions.entry(own, registry, entries)
                self._notes.conditions.entry(entries, name, entries[name])
                self._notes.conditions.no_entry(own, name)
                return self._read(entries[name])
        return getattr(owner, name)  # an AttributeError, which ends the call

    def _of_its_class(self, owner: Any, name: str, of_class: Any) -> Any:
        value = getattr(owner, name)
        kind = type(owner)
        if isinstance(of_class, (FunctionType, staticmethod, classmethod)) or value is of_class:
            self._notes.conditions.attribute(kind, name, getattr(kind, name))
            own = getattr(owner, "__dict__", None)
            if own is not None:
                self._notes.conditions.no_entry(own, name)
        else:  # a slot, or a descriptor of the program's own
            if type(of_class).__name__ != "member_descriptor":
                self._notes.refuse(f"the attribute {name} of {kind.__name__}")
            self._notes.conditions.attribute(owner, name, value)
        return self._read(value)


def _is_cached(value: Any) -> bool:
    """Whether what is stored in a class computes an attribute once, and leaves it to the object."""
    return type(value) is functools.cached_property
