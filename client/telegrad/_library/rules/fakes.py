"""Kernels that tell the metas of results and compute nothing: how they run, and what they may ask for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from telegrad_protocol.errors import ArgumentError, NotSupportedError, OperatorError

from ..operator_entry import Operator


class FakeImplCtx:
    """What a fake kernel asks for sizes that only data can tell."""

    def __init__(self, name: str) -> None:
        self._name = name

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        """Return a size that data decide. Raises NotSupportedError: nothing is traced, so there is no such number."""
        if not isinstance(min, int) or not (max is None or isinstance(max, int)):
            raise ArgumentError(f"ctx.new_dynamic_size(min={min}, max={max}): expected min and max to be integers")
        if min < 0:
            raise ArgumentError(f"ctx.new_dynamic_size(min={min}, ...): expected min to be greater than or equal to 0")
        if _running.give is not None:
            return _running.give()
        if _running.takes_unknown:
            return UNKNOWN
        raise NotSupportedError(
            f"{self._name}: the size of a result depends on data, which meta and fake tensors do not have; call the "
            "operator with tensors that have elements"
        )

    create_unbacked_symint = new_dynamic_size


class _Running(threading.local):
    ctx: FakeImplCtx | None = None
    takes_unknown = False
    give: Callable[[], int] | None = None


UNKNOWN: Final = 1_000_003
"""The size that stands for those that data decide, where they may stand in shapes."""


@contextmanager
def giving_sizes(give: Callable[[], int]) -> Iterator[None]:
    """Have sizes that data decide be what a function returns, in this block."""
    before, _running.give = _running.give, give
    try:
        yield
    finally:
        _running.give = before


@contextmanager
def unknown_sizes() -> Iterator[None]:
    """Let fake kernels make tensors of sizes that data decide, in this block."""
    before, _running.takes_unknown = _running.takes_unknown, True
    try:
        yield
    finally:
        _running.takes_unknown = before


_running = _Running()


def get_ctx() -> FakeImplCtx:
    """Return what the fake kernel that is running may ask. Raises OperatorError where none is."""
    if _running.ctx is None:
        raise OperatorError("get_ctx() can only be called inside of a fake impl registered via register_fake")
    return _running.ctx


def run(operator: Operator, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a fake kernel."""
    before, _running.ctx = _running.ctx, FakeImplCtx(operator.name)
    try:
        return function(*args, **kwargs)
    finally:
        _running.ctx = before


def no_fake(operator: Operator) -> OperatorError:
    """Return the error of an operator of whose results nothing tells the metas."""
    return OperatorError(
        f"{operator.name}: attempted to run this operator with fake tensors, but there was no fake impl registered; "
        "register one with torch.library.register_fake"
    )


def has_trivial(operator: Operator) -> bool:
    """Whether an operator's results are known without a fake kernel: it returns nothing but what it writes into."""
    schema = operator.schema
    if not schema.is_mutable:
        return False
    written = {name for a in schema.arguments if a.is_write and a.alias_info for name in a.alias_info.before_set}
    return all(r.alias_info is not None and r.alias_info.before_set <= written for r in schema.returns)


def run_trivial(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what an operator with ``has_trivial`` returns: the arguments that it writes into, or None."""
    schema = operator.schema
    every, named = schema.filled(args, kwargs)
    by_letters = {}
    for place, argument in enumerate(schema.arguments):
        if argument.is_write and argument.alias_info:
            by_letters[argument.alias_info.before_set] = (
                named[argument.name] if argument.kwarg_only else every[place]
            )  # fmt: skip
    results = [by_letters[result.alias_info.before_set] for result in schema.returns if result.alias_info]
    return None if not results else results[0] if len(results) == 1 else tuple(results)
