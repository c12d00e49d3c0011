"""Lists of tensors for an optimizer: complex ones as real ones, each once, as a loaded state has them; and operations.

The operations of a step on lists are one instruction each, or one for each tensor where the step is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import cache, partial
from importlib import import_module
from typing import Any

from telegrad._ops.functions import function as _whole
from telegrad._ops.operand_classes import DISPATCHING, overrides
from telegrad._session.grad_mode import is_grad_enabled
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
    """Return a complex tensor as pairs of real numbers, which share its memory; anything else as it is.

    The pairs have the tensor's history where gradients are recorded.
    """
    if not isinstance(value, Tensor) or not value.is_complex():
        return value
    return function("view_as_real")(value if is_grad_enabled() else value.detach())


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


@cache
def _recorded() -> dict[str, Callable[..., Any]]:
    functions: dict[str, Callable[..., Any]] = import_module("telegrad._programs.private.foreach").functions()
    return {
        **functions,
        "_foreach_clamp": lambda tensors, low, high: [tensor.clamp(low, high) for tensor in tensors],
        "_foreach_copy": lambda tensors, sources: sources,
    }


def _apart(operand: Any) -> Any:
    """Return an operand whose tensors are not those that a step writes into, since derivatives may need them."""
    if isinstance(operand, (list, tuple)):
        return [_apart(item) for item in operand]
    return operand.clone() if isinstance(operand, Tensor) else operand


def _computed(name: str, *operands: Any, **options: Any) -> list[Tensor]:
    results = _recorded()[name](*[_apart(operand) for operand in operands], **options)
    return [_apart(result) for result in results]


def _written(name: str, targets: Sequence[Tensor], *operands: Any, **options: Any) -> None:
    for target, result in zip(targets, _computed(name, targets, *operands, **options), strict=True):
        target.copy_(result)


def function(name: str) -> Callable[..., Any]:
    """Return an operation; one on lists records gradients where they are recorded, also if it works in place."""
    if not (name.startswith("_foreach_") and is_grad_enabled()):
        return _whole(name)
    return partial(_written, name[:-1]) if name.endswith("_") else partial(_computed, name)
