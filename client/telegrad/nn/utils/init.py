"""Modules whose parameters are not given initial values."""

from __future__ import annotations

import inspect
from typing import Any

from telegrad.nn.modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: type[Any], *args: Any, **kwargs: Any) -> Any:
    """Make a module and leave its parameters and buffers uninitialised."""
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.get("device")
    return module_cls(*args, **kwargs).to_empty(device=device)
