"""The earlier ``PassManager``: runs functions over a module, one after the other, in the order of the list."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any

from .infra.pass_manager import (
    Constraint,
    OrderedPasses,
    Pass,
    this_before_that_pass_constraint,
)

__all__ = ["PassManager", "inplace_wrapper", "loop_pass", "these_before_those_pass_constraint",
           "this_before_that_pass_constraint"]  # fmt: skip


def inplace_wrapper(fn: Pass) -> Pass:
    """Return a pass that calls a function and returns what the function was given."""

    @wraps(fn)
    def wrapped(gm: Any) -> Any:
        fn(gm)
        return gm

    return wrapped


def loop_pass(base_pass: Pass, n_iter: int | None = None, predicate: Callable[[Any], bool] | None = None) -> Pass:
    """Return a pass that runs another one so often, or as long as ``predicate`` holds of what it has made."""
    if (n_iter is None) == (predicate is None):
        raise AssertionError("Exactly one of `n_iter`or `predicate` must be specified.")

    @wraps(base_pass)
    def looped(source: Any) -> Any:
        left = n_iter
        while (left is None or left > 0) and (predicate is None or predicate(source)):
            source = base_pass(source)
            left = None if left is None else left - 1
        return source

    return looped


def these_before_those_pass_constraint(these: Pass, those: Pass) -> Constraint:
    """Return the constraint that what wraps the first function runs before what wraps the second one."""
    return lambda first, second: unwrap(first) is not those or unwrap(second) is not these


class PassManager(OrderedPasses):
    """Passes and constraints of their order, which is checked before the first run."""

    def __init__(self, passes: list[Pass] | None = None, constraints: list[Constraint] | None = None) -> None:
        super().__init__(passes, constraints)

    @classmethod
    def build_from_passlist(cls, passes: list[Pass]) -> PassManager:
        """Return a manager of these passes."""
        return cls(passes)

    def remove_pass(self, _passes: list[str]) -> None:
        """Leave out the passes of these names."""
        self.passes = [one for one in self.passes if getattr(one, "__name__", "") not in _passes]
        self._validated = False

    def validate(self) -> None:
        """Raise RuntimeError where the passes are in an order that a constraint forbids."""
        self._require_order()

    def __call__(self, source: Any) -> Any:
        self.validate()
        for one in self.passes:
            source = one(source)
        return source
