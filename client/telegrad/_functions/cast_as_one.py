"""``cast_as_one``: makes autocast treat a function that is composed of operations as one operation, as PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from telegrad._ops.functions import function as operation
from telegrad._session.thread_modes import Modes, thread
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.autocast import Autocast, composed_target, is_eligible
from telegrad_protocol.dtypes import DType

F = TypeVar("F", bound=Callable[..., Any])


def cast_as_one(function: F) -> F:
    """Cast the operands of ``function`` where autocast lists its name, and switch autocast off within it."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        modes = thread.modes
        if modes.autocast is None:
            return function(*args, **kwargs)
        targets = _targets(function.__name__, _tensors((*args, *kwargs.values())), modes.autocast)
        if not targets:
            return function(*args, **kwargs)
        thread.modes = _without(modes, modes.autocast, targets)
        try:
            return function(*_cast(args, targets), **_cast(kwargs, targets))
        finally:
            thread.modes = modes

    return run  # type: ignore[return-value]


def _targets(name: str, tensors: list[Tensor], autocast: Autocast) -> dict[str, DType]:
    """Return the dtype that operands are cast to, for each type of device where they are cast."""
    metas = [tensor._meta for tensor in tensors]
    targets = {device: composed_target(name, metas, device, lower) for device, lower in autocast.dtypes}
    return {device: target for device, target in targets.items() if target is not None}


def _without(modes: Modes, autocast: Autocast, targets: dict[str, DType]) -> Modes:
    left = [(device, dtype) for device, dtype in autocast.dtypes if device not in targets]
    return modes.but(autocast=Autocast.of(left, autocast.cache_enabled))


def _tensors(argument: Any) -> list[Tensor]:
    if isinstance(argument, Tensor):
        return [argument]
    if not isinstance(argument, (list, tuple)):
        return []
    return [tensor for element in argument for tensor in _tensors(element)]


def _cast(argument: Any, targets: dict[str, DType]) -> Any:
    if isinstance(argument, (list, tuple)):
        return type(argument)([_cast(item, targets) for item in argument])
    if isinstance(argument, dict):
        return {name: _cast(item, targets) for name, item in argument.items()}
    if not isinstance(argument, Tensor):
        return argument
    target = targets.get(argument.device.type)
    if target is None or argument.dtype is target or not is_eligible(argument._meta, argument.device.type):
        return argument
    return operation("_to_copy")(argument, dtype=target)
