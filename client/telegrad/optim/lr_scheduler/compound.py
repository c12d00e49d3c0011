"""Schedulers made of schedulers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from telegrad.optim.optimizer import Optimizer
from telegrad_protocol.errors import ArgumentError

from .base import LRScheduler, own_rate


class SequentialLR(LRScheduler):
    """Schedulers one after the other, each from its milestone on."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        if len(schedulers) < 1 or len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"SequentialLR: {len(schedulers)} schedulers need {max(len(schedulers) - 1, 0)} milestones, "
                f"got {len(milestones)}"
            )
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise ArgumentError("SequentialLR: all schedulers must belong to the given optimizer")
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.optimizer = optimizer
        self.last_epoch = last_epoch + 1
        # All of them have set their first rate already: start over with the first one.
        for group in optimizer.param_groups:
            group["lr"] = own_rate(group["initial_lr"])
        for scheduler in self._schedulers:
            scheduler.last_epoch -= 1
        self._schedulers[0]._step_count = 0
        self._schedulers[0].step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next step."""
        self.last_epoch += 1
        place = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[place]
        if place > 0 and self._milestones[place - 1] == self.last_epoch:
            scheduler._go_on(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """The state of all schedulers."""
        own = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "_schedulers")}
        return {**own, "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` gave."""
        self.__dict__.update({key: value for key, value in state_dict.items() if key != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ChainedScheduler(SequentialLR):
    """Schedulers that act on the same rates at every step."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ArgumentError("ChainedScheduler: expected at least one scheduler")
        self.optimizer = optimizer or schedulers[0].optimizer
        if any(scheduler.optimizer is not self.optimizer for scheduler in schedulers):
            raise ArgumentError("ChainedScheduler: all schedulers must belong to one optimizer")
        self._schedulers = list(schedulers)
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next step of all."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]
