"""Calls through an attribute of a class: PyTorch's functions of operations are builtins, which bind to no object.

telegrad's are functions of Python: where ``class Layer: act = torch.relu`` has one, ``layer.act(x)`` gives it ``layer``
first. Such a call is found where the object turns out to be no operand, so that other calls cost nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._ops.operand_classes import Handler
from telegrad._tensor.tensor import Tensor


def without_owner(known: Callable[..., Any], run: Callable[..., Any], args: tuple[Any, ...]) -> Handler | None:
    """Return what calls ``run`` without the object that ``known``, the function as programs have it, was called of.

    None where the first argument is no object whose class has the function as an attribute.
    """
    if args and not isinstance(args[0], Tensor) and _has_in_class(type(args[0]), known):
        return lambda _, args, kwargs: run(*args[1:], **kwargs)
    return None


def _has_in_class(owner: type, known: Callable[..., Any]) -> bool:
    return any([value is known for kind in owner.__mro__ for value in vars(kind).values()])
