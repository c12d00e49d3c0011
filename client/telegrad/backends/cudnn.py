"""Convolutions on GPUs: ``allow_tf32`` and ``deterministic`` are switches, attributes of this module."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from telegrad_protocol.errors import ArgumentError

from .. import _switches

_SWITCHES = {"allow_tf32": "cudnn_allow_tf32", "deterministic": "cudnn_deterministic"}


class _Module(ModuleType):
    """A module two of whose attributes are the program's switches."""

    def __getattr__(self, name: str) -> Any:
        if name in _SWITCHES:
            return _switches.get(_SWITCHES[name])
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _SWITCHES:
            super().__setattr__(name, value)
        elif isinstance(value, bool):
            _switches.put(_SWITCHES[name], value)
        else:
            raise ArgumentError(f"{name}: expected a bool, got {value!r}")


sys.modules[__name__].__class__ = _Module
