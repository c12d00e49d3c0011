"""The base of schedulers: a step number, the rates that it gives, and where they go.

A scheduler multiplies what it finds in ``param_groups``, so that several can act on one optimizer. Rates are numbers of
the client; changing one costs nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from telegrad._session.own_code import note
from telegrad._tensor.tensor import Tensor
from telegrad.optim.optimizer import Optimizer
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

_HOW_TO: Final = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
_UNEQUAL: Final = (
    "{name} must have the same length as optimizer.param_groups. {name} has {given} values, param_groups has {wanted}."
)
EPOCH_DEPRECATION_WARNING: Final = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler."
)


def _function_of(method: Any) -> Any:
    """Return what a bound method calls, and anything else as it is."""
    return getattr(method, "__func__", method)


def check_optimizer(optimizer: Any) -> None:
    """Raise ArgumentTypeError if it is no optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(f"{type(optimizer).__name__} is not an Optimizer")


def own_rate(rate: Any) -> Any:
    """Return a rate that no other group shares: a copy, if it is a tensor."""
    return rate.clone() if isinstance(rate, Tensor) else rate


def set_rate(group: dict[str, Any], rate: Any) -> None:
    """Give a group its rate; the elements of a tensor are replaced, which others may hold, too."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = own_rate(rate)


class LRScheduler:
    """Base of schedulers: subclasses say the rates of step ``last_epoch`` in ``get_lr``."""

    _is_initial = False

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
        optimizer._step_of_schedules = _function_of(optimizer.step)
        self.base_lrs = [own_rate(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._is_initial = False
        self._get_lr_called_within_step = False
        """What other people's schedulers ask for before they warn of a direct call of ``get_lr``."""
        self._last_lr: list[Any] = []
        self._initial_step()

    def _initial_step(self) -> None:
        """Count steps from here, and set the first rates."""
        self._step_count = 0
        self._is_initial = True
        self.step()
        self._is_initial = False

    @property
    def _rates(self) -> list[Any]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_lr(self) -> list[Any]:
        """The rates of step ``last_epoch``, out of those of the step before."""
        raise NotImplementedError

    def _warn_outside_of_step(self) -> None:
        """Warn a program that asks for the rates of a step that is not taken."""
        if not self._get_lr_called_within_step:
            note("To get the last learning rate computed by the scheduler, please use `get_last_lr()`.")

    def get_last_lr(self) -> list[Any]:
        """The rates that were set last."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next step and set its rates."""
        if self._step_count == 1:
            self._warn_of_order()
        if epoch is not None:
            note(EPOCH_DEPRECATION_WARNING)
        self._step_count += 1
        self._update_lr(epoch)

    def _warn_of_order(self) -> None:
        """Warn where the optimizer's step has become another method, or was not called before."""
        known = self.optimizer._step_of_schedules
        if known is not None and known is not _function_of(self.optimizer.step):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. "
                "Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`. See more details at "
                f"{_HOW_TO}",
                UserWarning,
                stacklevel=3,
            )
        elif not self.optimizer._has_stepped:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite order, or "
                f"the first value of the learning rate schedule is skipped. See more details at {_HOW_TO}",
                UserWarning,
                stacklevel=3,
            )

    def _update_lr(self, epoch: int | None = None) -> None:
        """Set the rates of the next step, or of the one that is given; schedulers made of others call this, too."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._set_within_step(self.get_lr if epoch is None else partial(self._at, epoch))

    def _set_within_step(self, rates: Callable[[], Sequence[Any]]) -> None:
        """Set the rates that a function gives, which may ask for those of the step."""
        self._get_lr_called_within_step = True
        try:
            found = rates()
        finally:
            self._get_lr_called_within_step = False
        self._set(found)

    def _at(self, epoch: int) -> list[Any]:
        """The rates of any step; schedulers without a closed form go on from the present ones."""
        closed_form = getattr(self, "_get_closed_form_lr", self.get_lr)
        return closed_form()

    def _set(self, rates: Sequence[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr = [own_rate(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the scheduler without the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` gave."""
        self.__dict__.update(state_dict)


def undo_first_step(scheduler: LRScheduler) -> None:
    """Count back the step that a scheduler, or those that it consists of, took when it was made."""
    parts = getattr(scheduler, "_schedulers", None)
    if parts is None:
        scheduler.last_epoch -= 1
    for part in parts or ():
        undo_first_step(part)


def one_each(given: Any, optimizer: Optimizer, name: str, words: str = _UNEQUAL) -> list[Any]:
    """Return one setting per parameter group: those listed, or the same for all. ArgumentError says ``words``."""
    count = len(optimizer.param_groups)
    listed = [own_rate(one) for one in (given if isinstance(given, (list, tuple)) else [given] * count)]
    if len(listed) != count:
        raise ArgumentError(words.format(name=name, given=len(listed), wanted=count))
    return listed
