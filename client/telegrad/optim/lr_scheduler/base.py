"""The base of schedulers: a step number, the rates that it gives, and where they go.

A scheduler multiplies what it finds in ``param_groups``, so that several can act on one optimizer. Rates are numbers of
the client; changing one costs nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from telegrad._session.own_code import note
from telegrad._tensor.tensor import Tensor
from telegrad.optim.optimizer import Optimizer
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError


def check_optimizer(optimizer: Any) -> None:
    """Raise ArgumentTypeError if it is no optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(f"{type(optimizer).__name__} is not an Optimizer")


def own_rate(rate: Any) -> Any:
    """Return a rate that no other group shares: a copy, if it is a tensor."""
    return rate.clone() if isinstance(rate, Tensor) else rate


class LRScheduler:
    """Base of schedulers: subclasses say the rates of step ``last_epoch`` in ``get_lr``."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", own_rate(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{number}] when resuming an optimizer"
                )
        self.optimizer = optimizer
        self.base_lrs = [own_rate(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._is_initial = True
        self._get_lr_called_within_step = False
        """What other people's schedulers ask for before they warn of a direct call of ``get_lr``."""
        self._last_lr: list[Any] = []
        self.step()
        self._is_initial = False

    @property
    def _rates(self) -> list[Any]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_lr(self) -> list[Any]:
        """The rates of step ``last_epoch``, out of those of the step before."""
        raise NotImplementedError

    def get_last_lr(self) -> list[Any]:
        """The rates that were set last."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next step and set its rates."""
        if self._step_count == 1 and not self.optimizer._has_stepped:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite order, or "
                "the first value of the learning rate schedule is skipped",
                UserWarning,
                stacklevel=2,
            )
        if epoch is not None:
            note(
                "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. "
                "Please use `scheduler.step()` to step the scheduler."
            )
        self._go_on(epoch)

    def _go_on(self, epoch: int | None) -> None:
        self._step_count += 1
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._get_lr_called_within_step = True
        try:
            rates = self.get_lr() if epoch is None else self._at(epoch)
        finally:
            self._get_lr_called_within_step = False
        self._set(rates)

    def _at(self, epoch: int) -> list[Any]:
        """The rates of any step; schedulers without a closed form go on from the present ones."""
        closed_form = getattr(self, "_get_closed_form_lr", self.get_lr)
        return closed_form()

    def _set(self, rates: Sequence[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = list(rates)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the scheduler without the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` gave."""
        self.__dict__.update(state_dict)


def one_each(given: Any, optimizer: Optimizer, name: str) -> list[Any]:
    """Return one setting per parameter group: those listed, or the same for all."""
    count = len(optimizer.param_groups)
    listed = list(given) if isinstance(given, (list, tuple)) else [given] * count
    if len(listed) != count:
        raise ArgumentError(f"Expected {count} {name}, but got {len(listed)}")
    return listed
