"""Operations that draw random numbers, which ``vmap`` refuses, or draws once or for each element of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.ops import Op

from .batching import batching


def checked(run: Callable[..., Any], op: Op) -> Callable[..., Any]:
    """Return the function of an operation that draws random numbers, as it is in levels of ``vmap``."""

    @wraps(run)
    def draw(*args: Any, **kwargs: Any) -> Any:
        if batching.levels and batching.draw is not None:
            return batching.draw(run, op, args, kwargs)
        return run(*args, **kwargs)

    return draw


def draws(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call draws numbers: what drops elements does not where it drops none, or is not in training."""
    try:
        return is_drawing(op, op.bind(args, {name: value for name, value in kwargs.items() if name != "generator"}))
    except ArgumentTypeError:
        return True


def is_drawing(op: Op, bound: Sequence[Any]) -> bool:
    """Return whether a call with bound arguments draws numbers."""
    given = {param.name: value for param, value in zip(op.params, bound, strict=True)}
    is_on = given.get("training", given.get("train", True))
    return is_on is not False and given.get("dropout_p", given.get("dropout", 1)) != 0
