"""What a call does besides computing and changing gradients, where it can be done again without the call's Python.

A result is appended to a list that was there before, and a scheduler goes on to its next rates. Both are done after the
run of a call that is left out was queued. What they change is not read any more in a call that is watched: what was
read there would be no condition on what is there before the next call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from telegrad._tensor.tensor import Tensor
from telegrad.compiler.guarded import purity
from telegrad.optim import lr_scheduler
from telegrad.optim.lr_scheduler import LRScheduler

SCHEDULERS: Final[frozenset[type]] = frozenset((
    lr_scheduler.ConstantLR, lr_scheduler.CosineAnnealingLR, lr_scheduler.CosineAnnealingWarmRestarts,
    lr_scheduler.ExponentialLR, lr_scheduler.LinearLR, lr_scheduler.MultiStepLR, lr_scheduler.OneCycleLR,
    lr_scheduler.PolynomialLR, lr_scheduler.StepLR,
))  # fmt: skip
"""Classes whose step queues nothing where rates are numbers, and calls no function of the program's."""
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


Effect = Append | NextRates


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


def may_be_appended(value: Any) -> bool:
    """Whether a value can be made again, and is no object of which the program may have another name."""
    return type(value) is Tensor or type(value) in purity.CONSTANTS
