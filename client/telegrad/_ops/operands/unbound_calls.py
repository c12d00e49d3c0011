"""Calls through an attribute of a class: PyTorch's functions of operations are builtins, which bind to no object.

telegrad's are functions of Python: where ``class Layer: act = torch.relu`` has one, ``layer.act(x)`` gives it ``layer``
first. Such a call is found where the object turns out to be no operand, so that other calls cost nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._tensor.tensor import Tensor


def without_owner(run: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the arguments without the object that ``run`` was called through; None where it was called by itself."""
    if args and not isinstance(args[0], Tensor) and _has_in_class(type(args[0]), run):
        return args[1:]
    return None


def _has_in_class(owner: type, run: Callable[..., Any]) -> bool:
    return any([value is run for kind in owner.__mro__ for value in vars(kind).values()])
