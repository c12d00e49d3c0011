"""The names under which programs of PyTorch's kind show classes: ``<class 'torch.nn.modules.linear.Linear'>``."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Final

from telegrad._tensor.dtype_limits import FloatLimits, IntegerLimits
from telegrad._tensor.generator import Generator
from telegrad._tensor.layouts import Layout
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad.nn.parameter import Parameter
from telegrad.random import DefaultGenerator
from telegrad_protocol.dtypes import DType
from telegrad_protocol.memory_format import MemoryFormat
from telegrad_protocol.meta import Device

_SINGLE: Final[dict[type, str]] = {
    Tensor: "torch.Tensor", Size: "torch.Size", Parameter: "torch.nn.parameter.Parameter", DType: "torch.dtype",
    Device: "torch.device", Generator: "torch._C.Generator", DefaultGenerator: "torch._C.Generator",
    FloatLimits: "torch.finfo", IntegerLimits: "torch.iinfo",
    Layout: "torch.layout", MemoryFormat: "torch.memory_format",
}  # fmt: skip
_MODULES: Final = (
    "telegrad.nn.modules.",
    "telegrad.optim.",
    "telegrad.return_types",
    "telegrad.storage",
    "telegrad.utils.data.",
)
"""Beginnings of the names of modules whose classes are shown as those of PyTorch's modules of the same names."""
_FUNCTIONS: Final = "telegrad.nn.init"
"""A module whose functions are shown so: modes that leave initialization out tell them by their module."""
_WHOLE: Final = "telegrad.optim.lr_scheduler"
"""A package that is one module in PyTorch."""
_renamed: set[str] = set()


def show_classes() -> None:
    """Name the classes of modules that are loaded as PyTorch names them; others are named when they are loaded."""
    if not _renamed:
        for shown, name in _SINGLE.items():
            shown.__module__, _, shown.__name__ = name.rpartition(".")
            shown.__qualname__ = shown.__name__
    begins = (*_MODULES, _FUNCTIONS)
    for name in [name for name in sys.modules if name.startswith(begins) and name not in _renamed]:
        _renamed.add(name)
        place = f"torch.{(_WHOLE if name.startswith(_WHOLE) else name).removeprefix('telegrad.')}"
        for value in list(vars(sys.modules[name]).values()):
            is_shown = isinstance(value, FunctionType if name == _FUNCTIONS else type)
            if is_shown and value.__module__ == name and "._" not in name:
                value.__module__ = place
