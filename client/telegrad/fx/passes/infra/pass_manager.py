"""``PassManager``: runs passes over a module in an order that constraints allow, until they change nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

from telegrad.fx.graph_module import GraphModule
from telegrad.nn.modules.module import Module

from .pass_base import PassResult

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]

Pass: TypeAlias = Callable[..., Any]
Constraint: TypeAlias = Callable[[Pass, Pass], bool]
"""Whether the first pass may come before the second one."""


def _name(one: Pass) -> str:
    return one.__name__ if inspect.isfunction(one) else type(one).__name__


def pass_result_wrapper(fn: Pass) -> Pass:
    """Let a function that returns a module, or nothing for the module that it was given, be a pass."""

    @wraps(fn)
    def wrapped(gm: GraphModule) -> PassResult:
        result = fn(gm)
        return result if isinstance(result, PassResult) else PassResult(gm if result is None else result, True)

    wrapped.__name__ = _name(fn)
    return wrapped


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """Return the constraint that the first pass runs before the second one."""
    return lambda first, second: first is not that or second is not this


def _validate_pass_schedule_constraint(constraint: Constraint, passes: list[Pass]) -> None:
    """Raise RuntimeError where passes are in an order that a constraint forbids."""
    for place, first in enumerate(passes):
        for behind, second in enumerate(passes[place + 1 :]):
            if not constraint(first, second):
                raise RuntimeError(
                    f"pass schedule constraint violated. Expected {first} before {second} but found {first} at index "
                    f"{place} and {second} at index{behind} in pass list."
                )


def _in_order(passes: list[Pass], constraints: list[Constraint]) -> list[Pass]:
    """Return passes in an order that the constraints allow; RuntimeError where there is none."""
    if not constraints:
        return passes
    waiting, ordered = list(passes), list[Pass]()
    while waiting:
        free = (one for one in waiting if all(c(one, o) for c in constraints for o in waiting if o is not one))
        chosen = next(free, None)
        if chosen is None:
            raise RuntimeError(f"Circular dependency detected within the following passes: {[*map(_name, waiting)]}")
        waiting.remove(chosen)
        ordered.append(chosen)
    return ordered


class OrderedPasses:
    """Passes, and constraints of their order, which are looked at again once either has changed."""

    def __init__(self, passes: list[Pass] | None, constraints: list[Constraint] | None) -> None:
        self.passes: list[Pass] = passes or []
        self.constraints: list[Constraint] = constraints or []
        self._validated = False

    def add_pass(self, _pass: Pass) -> None:
        """Run one more pass behind the others, or where constraints want it."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """Have the order of the passes keep to one more constraint."""
        self.constraints.append(constraint)
        self._validated = False

    def _require_order(self) -> None:
        """Raise RuntimeError where the passes are in an order that a constraint forbids."""
        if not self._validated:
            for constraint in self.constraints:
                _validate_pass_schedule_constraint(constraint, self.passes)
            self._validated = True


class PassManager(OrderedPasses):
    """Passes that run one after the other, ``steps`` times at most, and checks of the module between them."""

    def __init__(
        self, passes: list[Pass] | None = None, constraints: list[Constraint] | None = None, steps: int | None = None,
        run_checks_after_each_pass: bool = False, suppress_check_failures: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(passes, constraints)
        self.steps = steps or 1
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures
        self.checks: list[Callable[[Module], Any]] = []

    def validate_constraints(self) -> None:
        """Raise RuntimeError where the passes are in an order that a constraint forbids."""
        self._require_order()

    def solve_constraints(self) -> None:
        """Put the passes in an order that the constraints allow."""
        self.passes = _in_order(self.passes, self.constraints)
        self._validated = True

    def add_checks(self, check: Callable[[Module], Any]) -> None:
        """Call ``check`` with the module before the first pass, and after each if that was asked for."""
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.checks.append(check)

    def check(self, module: Module) -> None:
        """Call each function that ``add_checks`` was given with a module."""
        for check in self.checks:
            check(module)

    def __call__(self, module: Module) -> PassResult:
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        overall = False
        for _ in range(self.steps):
            module, modified = self._run_all(module)
            overall = overall or modified
            if not modified:
                break
        return PassResult(module, overall)  # type: ignore[arg-type]

    def _run_all(self, module: Module) -> tuple[Module, bool]:
        changed = False
        for place, one in enumerate(self.passes):
            try:
                result = one(module)
                if not hasattr(result, "graph_module"):
                    raise TypeError(f"The result of the pass {_name(one)} should be type PassResult")
            except Exception as error:
                earlier = [_name(before) for before in self.passes[:place]]
                raise Exception(
                    f"An error occurred when running the '{_name(one)}' pass after the following passes: {earlier}"
                ) from error
            module, changed = result.graph_module, changed or result.modified
            if isinstance(module, GraphModule):
                module.recompile()
            if self.run_checks_after_each_pass:
                self.check(module)
        return module, changed
