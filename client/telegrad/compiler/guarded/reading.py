"""What a rewritten function reads: names, attributes, elements and operands, each of which becomes a condition."""

from __future__ import annotations

import builtins
import enum
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, Final

from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.module import Module

from . import purity
from .notes import Notes

_MISSING: Final = object()
_REGISTRIES: Final = ("_parameters", "_buffers", "_modules")
_USUAL_LOOKUPS: Final = (object.__getattribute__, SimpleNamespace.__getattribute__)


class Reader:
    """Stands for one function while it runs: ``function`` tells what its names mean."""

    def __init__(self, function: Any, notes: Notes, first: int) -> None:
        self._function = function
        self._notes = notes
        self._first = first
        """Tensors with greater numbers were made in the call."""
        self.slice = slice
        self.new = notes.make

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

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function: a property's, for one."""
        raise NotImplementedError

    def _read(self, value: Any) -> Any:
        """Note what was read from outside of the call: a tensor there must be none of its arguments."""
        if isinstance(value, Tensor) and value._id in self._notes.arguments:
            self._notes.refuse("a tensor that is an argument and is read elsewhere, too")
        return self._seen(value)

    def _seen(self, value: Any) -> Any:
        """Note a tensor that was there before the call, with the condition that it lies as it does."""
        if not isinstance(value, Tensor):
            return value
        notes, id = self._notes, value._id
        if value.__class__ not in purity.TENSORS:
            notes.refuse(f"a tensor of class {type(value).__name__}")
        elif id <= self._first and id not in notes.arguments and id not in notes.tensors:
            notes.tensors[id] = value
            notes.conditions.tensor(value)
        return value

    def attribute(self, owner: Any, name: str) -> Any:
        """Return what ``getattr`` returns, once it is known where it comes from."""
        kind = owner.__class__
        if kind in purity.TENSORS:
            return self._of_tensor(owner, name)
        if isinstance(owner, type) or kind is super or purity.is_plain(kind):
            return self._of_class(owner, name)
        if kind is ModuleType or isinstance(owner, ModuleType):
            return self._of_module(owner, name)
        return self._of_object(owner, name)

    def _of_tensor(self, tensor: Any, name: str) -> Any:
        found = getattr(self._seen(tensor), name)
        if name in tensor.__dict__:
            self._notes.refuse(f"the attribute {name} that the program has given a tensor")
        if isinstance(found, MethodType) or purity.is_tensor_attribute(name) or isinstance(found, BuiltinFunctionType):
            return found
        self._notes.refuse(f"the attribute {name} of a tensor")
        return found

    def _of_class(self, owner: Any, name: str) -> Any:
        """Return an attribute of a class, of its parent by ``super()``, or of a value that cannot change."""
        if purity.is_named_tuple(owner.__class__) and isinstance(getattr(owner.__class__, name, None), property):
            return self.call(getattr(owner.__class__, name).fget, owner)
        value = getattr(owner, name)
        if isinstance(owner, type):
            self._notes.conditions.attribute(owner, name, value)
            return self._read(value)
        if isinstance(owner, enum.Enum) and name not in ("name", "value"):
            self._notes.refuse(f"the attribute {name} of {type(owner).__name__}")
        if owner.__class__ is super:
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
            self._notes.conditions.attribute(module, name, value)
        return self._read(value)

    def _of_object(self, owner: Any, name: str) -> Any:
        """Return an attribute of a layer, or of another object of a class that looks attributes up as usual."""
        kind: Any = type(owner)
        is_layer = isinstance(owner, Module) and kind.__getattr__ is Module.__getattr__
        if kind.__getattribute__ not in _USUAL_LOOKUPS or (hasattr(kind, "__getattr__") and not is_layer):
            self._notes.refuse(f"attributes of {kind.__name__}, which looks them up in its own way")
            return getattr(owner, name)
        self._notes.conditions.kind(owner)
        of_class = getattr(kind, name, _MISSING)
        if isinstance(of_class, property):
            self._notes.conditions.attribute(kind, name, of_class)
            return self.call(of_class.fget, owner)
        own = getattr(owner, "__dict__", {})
        if name in own:
            self._notes.conditions.entry(own, name, own[name])
            return self._read(own[name])
        if of_class is not _MISSING:
            return self._of_its_class(owner, name, of_class)
        for registry in _REGISTRIES if is_layer else ():
            entries = own[registry]
            if name in entries:
                self._notes.conditions.entry(entries, name, entries[name])
                return self._read(entries[name])
        return getattr(owner, name)  # an AttributeError, which ends the call

    def _of_its_class(self, owner: Any, name: str, of_class: Any) -> Any:
        value = getattr(owner, name)
        kind = type(owner)
        if isinstance(of_class, FunctionType) or value is of_class or _is_same_method(value, of_class):
            self._notes.conditions.attribute(kind, name, of_class)
            own = getattr(owner, "__dict__", None)
            if own is not None:
                self._notes.conditions.no_entry(own, name)
        else:  # a slot, or a descriptor of the program's own
            if type(of_class).__name__ != "member_descriptor":
                self._notes.refuse(f"the attribute {name} of {kind.__name__}")
            self._notes.conditions.attribute(owner, name, value)
        return self._read(value)

    def item(self, container: Any, index: Any) -> Any:
        """Return what a subscript returns, once it is known where it comes from."""
        kind = container.__class__
        self._operand(index)
        if kind in purity.TENSORS:
            return self._seen(container)[index]
        if kind in purity.CONTAINERS:
            return self._known_item(container, index)
        self._contents(container)
        return container[index]

    def _known_item(self, container: Any, index: Any) -> Any:
        value = container[index]
        if self._notes.knows(container):
            return self._seen(value)
        if container.__class__ is dict:
            self._notes.conditions.entry(container, index, value)
        elif index.__class__ is int:
            self._notes.conditions.element(container, index, value)
        else:
            self._contents(container)
        return self._read(value)

    def _contents(self, container: Any) -> None:
        """Make what a container holds a condition; of layers that hold others, which these are."""
        kind, notes = container.__class__, self._notes
        if kind in purity.CONTAINERS:
            if not notes.knows(container):
                notes.conditions.content(container)
                self._read_all(container.values() if kind is dict else container)
        elif kind in purity.SEQUENCES:
            if not notes.knows(container):
                self._read_all(container)
        elif kind in purity.ITERATORS:
            if not notes.knows(container):
                notes.refuse("an iterator that was there before")
        elif isinstance(container, Module) and _is_own_method(kind, "__iter__"):
            for registry in _REGISTRIES:
                notes.conditions.content(vars(container)[registry])
                self._read_all(vars(container)[registry].values())
        elif not purity.is_plain(kind):
            notes.refuse(f"the content of {kind.__name__}")

    def _read_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self._read(value)

    def iterated(self, container: Any) -> Any:
        """Return what is iterated over, once its content is a condition."""
        self._contents(container)
        return container

    def plain(self, value: Any) -> Any:
        """Return an operand, whose class has no operators of the program's own."""
        kind = value.__class__
        if kind in purity.CONTAINERS:
            self._contents(value)
        if kind in purity.CONTAINERS or kind in purity.SEQUENCES:
            self.require_plain_elements(value)
        elif not (purity.is_plain(kind) or purity.is_opaque(kind)):
            self._notes.refuse(f"an operator on {kind.__name__}")
        return self._seen(value)

    def require_plain_elements(self, container: Any) -> None:
        """Refuse a container of objects with operators of the program's own, which comparisons of it would call."""
        for value in container.values() if container.__class__ is dict else container:
            if not (purity.is_plain(value.__class__) or purity.is_opaque(value.__class__)):
                self._notes.refuse(f"an operator on a container of {type(value).__name__}")

    def formatted(self, value: Any) -> Any:
        """Return a value that becomes text, if it is a constant: objects tell of their state."""
        if value.__class__ not in purity.CONSTANTS:
            self._notes.refuse(f"the text of {type(value).__name__}")
        return value

    def changed(self, value: Any) -> Any:
        """Return what an operator such as ``+=`` changes, if it is a container."""
        if value.__class__ in purity.CONTAINERS and id(value) not in self._notes.made:
            self._notes.refuse(f"a {type(value).__name__} that was there before is changed")
        return self.plain(value)

    def set_item(self, value: Any, container: Any, index: Any) -> None:
        """Assign to an element, or to a part of a tensor."""
        self._operand(index)
        if container.__class__ in purity.TENSORS:
            self._operand(value)
            self._seen(container)
        elif container.__class__ in purity.CONTAINERS:
            self.changed(container)
        else:
            self._notes.refuse(f"an assignment to an element of {type(container).__name__}")
        container[index] = value

    def item_to_change(self, container: Any, index: Any) -> Any:
        """Return an element that an operator such as ``+=`` is about to change, which is assigned afterwards."""
        return self.changed(self.item(self.changed(container), index))

    def entered(self, block: Any) -> Any:
        """Return what a ``with`` statement enters."""
        if not purity.is_block(block.__class__):
            self._notes.refuse(f"a block of {type(block).__name__}")
        return block

    def _operand(self, value: Any) -> None:
        kind = value.__class__
        if kind in purity.SEQUENCES or kind in purity.CONTAINERS:
            if kind in purity.CONTAINERS:
                self._contents(value)
            for one in value.values() if kind is dict else value:
                self._operand(one)
        elif not purity.is_plain(kind):
            self._notes.refuse(f"an argument of class {kind.__name__}")
        else:
            self._seen(value)


def _is_same_method(value: Any, other: Any) -> bool:
    """Whether both are the same method of the same class."""
    both = isinstance(value, MethodType) and isinstance(other, MethodType)
    return both and value.__func__ is other.__func__ and value.__self__ is other.__self__


def _is_own_method(kind: type, name: str) -> bool:
    """Whether a class has telegrad's own method of this name."""
    function = getattr(kind, name, None)
    return isinstance(function, FunctionType) and purity.is_own(function)
