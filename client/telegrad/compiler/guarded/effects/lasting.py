"""What a call does besides computing and changing gradients, where it can be done again without the call's Python.

A result is appended to a list that was there before, and a scheduler goes on to its next rates. Both are done after the
run of a call that is left out was queued. What they change is not read any more in a call that is watched: what was
read there would be no condition on what is there before the next call.
"""

from __future__ import annotations

from collections.abc import Callable
from dis import get_instructions
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from telegrad._tensor.tensor import Tensor
from telegrad.compiler.guarded import purity
from telegrad.optim import lr_scheduler
from telegrad.optim.lr_scheduler import LRScheduler
from telegrad.optim.swa_utils import AveragedModel, get_swa_multi_avg_fn

SCHEDULERS: Final[frozenset[type]] = frozenset((
    lr_scheduler.ConstantLR, lr_scheduler.CosineAnnealingLR, lr_scheduler.CosineAnnealingWarmRestarts,
    lr_scheduler.ExponentialLR, lr_scheduler.LinearLR, lr_scheduler.MultiStepLR, lr_scheduler.OneCycleLR,
    lr_scheduler.PolynomialLR, lr_scheduler.StepLR,
))  # fmt: skip
"""Classes whose step queues nothing where rates are numbers, and calls no function of the program's."""
BY_FUNCTIONS: Final[frozenset[type]] = frozenset((lr_scheduler.LambdaLR, lr_scheduler.MultiplicativeLR))
"""Classes whose step calls functions of the program's, besides."""
PARTS: Final = ("_at", "_set", "_update_lr", "_warn_of_order", "get_lr", "step")
"""What a step of one of these may call of its class."""


class Append(NamedTuple):
    """A value is appended to a list."""

    owner: list[Any]
    value: Any

    def prepared(self, maker: Callable[[Any], Any]) -> Prepared:
        """Return what appends the value, given what makes what makes a value."""
        append, make = self.owner.append, maker(self.value)
        return Prepared(_always, lambda first, made: append(make(first, made)))


class NextRates(NamedTuple):
    """A scheduler takes a step."""

    scheduler: LRScheduler

    def prepared(self, maker: Callable[[Any], Any]) -> Prepared:
        """Return what has the scheduler go on to its next rates."""
        scheduler = self.scheduler
        step = type(scheduler).step
        return Prepared(lambda: queues_nothing(scheduler), lambda first, made: step(scheduler))


class Counted(NamedTuple):
    """One more model was taken into averages whose share does not depend on how many there are."""

    averaged: AveragedModel

    def prepared(self, maker: Callable[[Any], Any]) -> Prepared:
        """Return what counts it, where the averages are not the first ones, which are copies."""
        averaged = self.averaged

        def count(first: int, made: Any) -> None:
            assert averaged._count is not None
            averaged._count += 1

        return Prepared(lambda: bool(averaged._count), count)


Effect = Append | NextRates | Counted


class Prepared(NamedTuple):
    """Tells whether an effect can be had now, and has it, given the first number of a call and what it makes."""

    may: Callable[[], bool]
    act: Callable[[int, Any], object]


def _always() -> bool:
    return True


def queues_nothing(scheduler: Any) -> bool:
    """Whether the next step of a scheduler queues nothing and warns of nothing."""
    rates = [group["lr"] for group in scheduler.optimizer.param_groups]
    return scheduler._step_count > 1 and all([rate.__class__ is float for rate in rates])


def changes_nothing(function: Any) -> bool:
    """Whether a function of a schedule, bound arguments and objects aside, assigns to nothing that outlives a call."""
    while isinstance(function, (partial, MethodType)):
        function = function.func if isinstance(function, partial) else function.__func__
    return isinstance(function, FunctionType) and _assigns_nothing(function.__code__)


def _assigns_nothing(code: CodeType) -> bool:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return not any([one.opname in _LASTING for one in get_instructions(code)]) and all(map(_assigns_nothing, inner))


def has_fixed_share(averaged: AveragedModel) -> bool:
    """Whether a model is averaged by telegrad's own function, with a share that is the same for each model."""
    function = averaged.avg_fn if averaged.avg_fn is not None else averaged.multi_avg_fn
    if not isinstance(function, FunctionType) or not purity.is_own(function):
        return False
    return function.__code__ is not _GROWING.__code__


_GROWING: Final[Any] = get_swa_multi_avg_fn()
_LASTING: Final = frozenset((
    "DELETE_ATTR", "DELETE_DEREF", "DELETE_GLOBAL", "DELETE_SUBSCR",
    "STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL", "STORE_SUBSCR", "YIELD_VALUE",
))  # fmt: skip


def may_be_appended(value: Any) -> bool:
    """Whether a value can be made again, and is no object of which the program may have another name."""
    return type(value) is Tensor or type(value) in purity.CONSTANTS
