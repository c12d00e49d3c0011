"""Functions of the client that are composed of operations, but which autocast treats as one, as PyTorch does."""

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
    """By device type: what operands there are cast to."""
    metas = [tensor._meta for tensor in tensors]
    found = {device: composed_target(name, metas, device, lower) for device, lower in autocast.dtypes}
    return {device: target for device, target in found.items() if target is not None}


def _without(modes: Modes, autocast: Autocast, targets: dict[str, DType]) -> Modes:
    left = [(device, dtype) for device, dtype in autocast.dtypes if device not in targets]
    return modes.but(autocast=Autocast.of(left, autocast.cache_enabled))


def _tensors(thing: Any) -> list[Tensor]:
    if isinstance(thing, Tensor):
        return [thing]
    return [t for item in thing for t in _tensors(item)] if isinstance(thing, (list, tuple)) else []


def _cast(thing: Any, targets: dict[str, DType]) -> Any:
    if isinstance(thing, (list, tuple)):
        return type(thing)([_cast(item, targets) for item in thing])
    if isinstance(thing, dict):
        return {name: _cast(item, targets) for name, item in thing.items()}
    if not isinstance(thing, Tensor):
        return thing
    target = targets.get(thing.device.type)
    if target is None or thing.dtype is target or not is_eligible(thing._meta, thing.device.type):
        return thing
    return operation("_to_copy")(thing, dtype=target)
