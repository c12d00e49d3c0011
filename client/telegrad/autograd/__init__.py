"""Differentiation: ``backward`` and ``grad``, functions with derivatives of the user's own, and what builds on them."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from telegrad._session.grad_mode import (
    enable_grad as enable_grad,
)
from telegrad._session.grad_mode import (
    inference_mode as inference_mode,
)
from telegrad._session.grad_mode import (
    no_grad as no_grad,
)
from telegrad._session.grad_mode import (
    set_grad_enabled as set_grad_enabled,
)

from . import function as function
from ._passes import METHODS as METHODS
from ._passes import backward as backward
from ._passes import grad as grad
from .function import Function as Function
from .function import NestedIOFunction as NestedIOFunction
from .variable import Variable as Variable

_is_checkpoint_valid = Variable._execution_engine.is_checkpoint_valid

if TYPE_CHECKING:
    from . import anomaly_mode as anomaly_mode
    from . import forward_ad as forward_ad
    from . import graph as graph
    from . import profiler as profiler
    from ._engine_settings import enforce_grad_layout_policy as enforce_grad_layout_policy
    from ._engine_settings import is_multithreading_enabled as is_multithreading_enabled
    from ._engine_settings import is_view_replay_enabled as is_view_replay_enabled
    from ._engine_settings import set_multithreading_enabled as set_multithreading_enabled
    from .anomaly_mode import detect_anomaly as detect_anomaly
    from .anomaly_mode import set_detect_anomaly as set_detect_anomaly

__all__ = [
    "Function", "NestedIOFunction", "Variable", "backward", "detect_anomaly", "enable_grad",
    "enforce_grad_layout_policy", "grad", "gradcheck", "gradgradcheck", "inference_mode", "is_multithreading_enabled",
    "is_view_replay_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
    "set_multithreading_enabled",
]  # fmt: skip

_MODULES = frozenset(("anomaly_mode", "forward_ad", "functional", "graph", "profiler"))
_NAMES = {
    "detect_anomaly": "anomaly_mode", "set_detect_anomaly": "anomaly_mode", "gradcheck": "gradcheck",
    "gradgradcheck": "gradcheck", "enforce_grad_layout_policy": "_engine_settings",
    "is_multithreading_enabled": "_engine_settings", "is_view_replay_enabled": "_engine_settings",
    "set_multithreading_enabled": "_engine_settings", "_profiler_enabled": "profiler",
    "kineto_available": "profiler",
}  # fmt: skip
"""Names that are imported when a program first uses them, and the modules that have them."""


if not TYPE_CHECKING:  # type checkers know the names, and tell of unknown ones

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"telegrad.autograd.{name}")
        if name in _NAMES:
            home = import_module(f"telegrad.autograd.{_NAMES[name]}")  # a name of its own, which a function may hide
            globals().update({other: getattr(home, other) for other, place in _NAMES.items() if place == _NAMES[name]})
            return globals()[name]
        raise AttributeError(f"module 'telegrad.autograd' has no attribute {name!r}")


class _Package(ModuleType):
    """This package, in which the name of a module that has a function of the same name is the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and name in _NAMES:  # importing sets a module in the one above it
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
