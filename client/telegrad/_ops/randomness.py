"""Whether operations that draw random numbers are refused, as in a function that is mapped over a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from telegrad_protocol.errors import ArgumentTypeError, AutogradError
from telegrad_protocol.ops import Op


class _Randomness(threading.local):
    is_refused = False


_randomness = _Randomness()


@contextmanager
def drawing(is_refused: bool) -> Iterator[None]:
    """Refuse random numbers in this block of the thread, or allow them."""
    before, _randomness.is_refused = _randomness.is_refused, is_refused
    try:
        yield
    finally:
        _randomness.is_refused = before


def checked(run: Callable[..., Any], op: Op) -> Callable[..., Any]:
    """Return the function of an operation that draws random numbers, unless they are refused."""

    @wraps(run)
    def draw(*args: Any, **kwargs: Any) -> Any:
        if _randomness.is_refused and _draws(op, args, kwargs):
            raise AutogradError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )
        return run(*args, **kwargs)

    return draw


def _draws(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call draws numbers: what drops elements does not where it drops none, or is not in training."""
    try:
        bound = op.bind(args, {name: value for name, value in kwargs.items() if name != "generator"})
    except ArgumentTypeError:
        return True
    given = {param.name: value for param, value in zip(op.params, bound, strict=True)}
    is_on = given.get("training", given.get("train", True))
    return is_on is not False and given.get("dropout_p", given.get("dropout", 1)) != 0
