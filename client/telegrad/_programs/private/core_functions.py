"""Functions of PyTorch's compiled core, by the names that they have there: ``_C._fft.fft_fft``, ``_VF.lstm``."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import telegrad

_PACKAGES: Final = ("fft", "linalg", "special")


def __getattr__(name: str) -> Any:
    package, _, function = name.partition("_")
    if package in _PACKAGES and function:
        return getattr(import_module(f"telegrad.{package}"), function)
    if name.startswith("_"):
        raise AttributeError(name)
    if hasattr(telegrad, name):
        return getattr(telegrad, name)
    return getattr(telegrad.ops.aten, name)
