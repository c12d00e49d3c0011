"""Answers operations with batched operands."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from telegrad._ops.batching import batching, below
from telegrad._ops.functions import no_overload
from telegrad._ops.operand_classes import HANDLERS
from telegrad._ops.outputs import into
from telegrad._ops.randomness import is_drawing
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.ops import PUBLIC

from . import random
from .binding import bound_call
from .running import run
from .selection import fixed_selection
from .tensor import BatchedTensor, innermost_of

_FAMILIES: Final = (
    "views", "reductions", "joins", "products", "convolutions", "pooling", "normalization", "losses", "indexing",
    "matrices", "spectra", "attention", "layers",
)  # fmt: skip
for _family in _FAMILIES:
    import_module(f"{__package__}.rules.{_family}")


def handle(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function of an operation some of whose operands are batched, for the innermost level among them.

    Raises AutogradError for what has no meaning in a batch, such as results whose shape depends on elements.
    """
    if kwargs.get("out") is not None:
        named = dict(kwargs)
        return into(public, handle(public, args, named), named.pop("out"))
    named = {name: value for name, value in kwargs.items() if name not in ("out", "generator") or value is not None}
    level = innermost_of((*args, *named.values()))
    if level > len(batching.levels):
        raise AutogradError(f"{public}: a tensor of a vmap that has ended; return it from the function that is mapped")
    with below(level) as entered:
        found = bound_call(public, args, named)
        if found is None:
            raise no_overload(public, PUBLIC[public], args, named)
        op, bound = found
        if op.data_dependent:
            result = fixed_selection(op, bound, level)
            if result is None:
                raise _dynamic(public)
            return result
        if op.is_random and is_drawing(op, bound):
            result = random.run(op, bound, level, entered)
        else:
            result = run(op, bound, level, entered)
        return result


def _dynamic(public: str) -> AutogradError:
    return AutogradError(
        f"vmap: It looks like you're attempting to use an operation, {public}, that may return tensors of a shape that "
        "depends on elements. We don't support this yet; use torch.where to select instead."
    )


def enter() -> None:
    """Enter this as who answers operations with batched operands."""
    HANDLERS[BatchedTensor] = handle
