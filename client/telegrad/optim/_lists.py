"""Lists of tensors for an optimizer: complex ones as real ones, each once, and as a loaded state has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from telegrad._ops.functions import function
from telegrad._ops.operand_classes import DISPATCHING, overrides
from telegrad._tensor.tensor import Tensor


def any_seen(parameters: Iterable[Tensor]) -> bool:
    """Whether the program sees each operator on a parameter: by its class, or by a mode that has no whole functions."""
    if overrides.ignores_dispatch:
        return False
    if overrides.dispatch_modes:
        return not hasattr(overrides.dispatch_modes[-1], "_run_function")
    return bool(DISPATCHING) and not DISPATCHING.isdisjoint(map(type, parameters))


def has_complex(tensors: Iterable[Tensor]) -> bool:
    """Whether any tensor is complex."""
    return any([tensor._meta.dtype.is_complex for tensor in tensors])


def real(value: Any) -> Any:
    """Return a complex tensor as pairs of real numbers, which share its memory; anything else as it is."""
    return function("view_as_real")(value.detach()) if isinstance(value, Tensor) and value.is_complex() else value


def all_real(tensors: Sequence[Any]) -> list[Any]:
    """Return a list with every complex tensor as pairs of real numbers."""
    return [real(tensor) for tensor in tensors]


def rounds(params: list[Tensor]) -> list[list[Tensor]]:
    """Return the parameters in lists without repetition: all once, then those that are named twice, and so on."""
    rounds: list[list[Tensor]] = []
    seen: dict[int, int] = {}
    for parameter in params:
        number = seen[id(parameter)] = seen.get(id(parameter), -1) + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(parameter)
    return rounds


def names_of(group: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a group that has its parameters' names, which a dictionary without names leaves as it is."""
    return {name: group[name] for name in ("param_names",) if name in group}


def copied(entry: dict[str, Any], parameter: Tensor) -> dict[str, Any]:
    """A parameter's state where the parameter is, in its type; step counts stay float32."""
    own: dict[str, Any] = {}
    for key, value in entry.items():
        if not isinstance(value, Tensor):
            own[key] = deepcopy(value)
        elif key == "step":
            own[key] = value.detach().to(parameter.device).clone()
        else:
            own[key] = value.detach().to(parameter.device, parameter.dtype).clone()
    return own
