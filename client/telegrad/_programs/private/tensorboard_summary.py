"""``torch.utils.tensorboard.summary``: the records of TensorBoard's files, which the package tensorboardX makes."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(import_module("tensorboardX.summary"), name)
