"""Attributes of modules by paths with dots."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.module import Module
from telegrad.nn.parameter import Parameter


def get_attribute(module: Any, path: str) -> Any:
    """Return the attribute at a path. Raises AttributeError if there is none."""
    for name in path.split("."):
        module = getattr(module, name)
    return module


def copy_attribute(source: Any, target_module: Any, path: str) -> None:
    """Give a module the attribute that another one has at a path; modules that are missing on the way are made."""
    *above, last = path.split(".")
    for name in above:
        inner, there = getattr(source, name), getattr(target_module, name, None)
        if inner is there:
            return
        if there is None:
            there = Module()
            setattr(target_module, name, there)
        source, target_module = inner, there
    _set(target_module, last, getattr(source, last))


def assign_attribute(value: Any, module: Any, path: str) -> None:
    """Set the attribute of a module at a path; modules that are missing on the way are made."""
    *above, last = path.split(".")
    for name in above:
        if getattr(module, name, None) is None:
            setattr(module, name, Module())
        module = getattr(module, name)
    _set(module, last, value)


def _set(module: Any, name: str, value: Any) -> None:
    """Set an attribute; tensors that are no parameters become buffers."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)
