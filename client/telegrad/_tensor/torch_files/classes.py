"""Tensors of a program's own classes in files: what a file has of one beside its elements, and how it is made again."""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any, Final

from telegrad._tensor.tensor import Tensor

from .opcodes import Builder

_OWN_PACKAGES: Final = ("telegrad", "torch")
"""Where telegrad's own classes say that they are from; it is PyTorch's place in programs that import ``torch``."""
_TENSORS: Final = "torch._utils._rebuild_"
"""How the names begin of what makes a tensor that gets a class and attributes."""


def is_of_program(kind: type) -> bool:
    """Whether a class is none of telegrad's."""
    return kind.__module__.partition(".")[0] not in _OWN_PACKAGES


def writes_itself(tensor: Tensor) -> bool:
    """Whether the class of a tensor says how its objects are pickled."""
    kind = type(tensor)
    is_plain = _method(kind, "__reduce_ex__") is _method(Tensor, "__reduce_ex__")
    return not is_plain or _method(kind, "__reduce__") is not _method(object, "__reduce__")


def attributes_of(tensor: Tensor) -> Any:
    """Return what is written of a tensor's attributes, None if it has none: what its class's ``__getstate__`` tells.

    Where the class has ``__slots__`` it is a tuple of the other attributes and of these.
    """
    if _method(type(tensor), "__getstate__") is not _method(object, "__getstate__"):
        return tensor.__getstate__()
    slots = slots_of(tensor)
    return (dict(tensor.__dict__) or None, slots) if slots else dict(tensor.__dict__) or None


def slots_of(tensor: Tensor) -> dict[str, Any]:
    """Return what a tensor has in the ``__slots__`` of the program's classes."""
    return {name: getattr(tensor, name) for name in _slots(type(tensor)) if hasattr(tensor, name)}


def _slots(kind: type) -> list[str]:
    own = [base for base in kind.__mro__[: kind.__mro__.index(Tensor)] if is_of_program(base)]
    members = [(name, value) for base in own for name, value in vars(base).items()]
    return [name for name, value in members if isinstance(value, MemberDescriptorType)]


def _method(kind: type, name: str) -> Any:
    return getattr(kind, name)


def of_class(build: Any, kind: Any, arguments: Any, attributes: Any) -> Any:
    """Return the tensor that ``build`` makes as an object of a class, with attributes; its ``__init__`` is not called.

    TypeError for what is no class of tensors, or is not made by one of the functions that make tensors.
    """
    if isinstance(build, Builder) and build.name.endswith("._rebuild_njt"):
        return build.make(*arguments)  # the attributes of a nested tensor are what it is made of
    if not isinstance(build, Builder) or not build.name.startswith(_TENSORS):
        raise TypeError("a tensor that is made by something else")
    if not isinstance(kind, type) or not issubclass(kind, Tensor):
        raise TypeError("a tensor of another class")
    made = build.make(*arguments)
    return with_attributes(made if type(made) is kind else as_class(made, kind), attributes)


def as_class(tensor: Tensor, kind: Any) -> Any:
    """Return an object of a class in place of a tensor that was just made."""
    requires_grad = tensor.requires_grad
    made = kind._wrap(tensor.detach())
    return made.requires_grad_() if requires_grad else made


def with_attributes(tensor: Any, attributes: Any) -> Any:
    """Give a tensor that was just made its attributes, by ``__setstate__`` where its class has it."""
    if hasattr(type(tensor), "__setstate__"):
        tensor.__setstate__(attributes)
        return tensor
    named, slots = attributes if isinstance(attributes, tuple) else (attributes, None)
    for given in (named or {}, slots or {}):
        if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
            raise TypeError("attributes that are no dict of names")
    tensor.__dict__.update(named or {})
    for name in _slots(type(tensor)):
        if slots and name in slots:
            object.__setattr__(tensor, name, slots[name])
    return tensor
