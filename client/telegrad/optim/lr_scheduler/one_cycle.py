"""One cycle of rates up and down.

L. Smith, N. Topin, Super-convergence: Very fast training of neural networks using large learning rates (2018).
"""

from __future__ import annotations

import math
from typing import Any

from telegrad.optim.optimizer import Optimizer
from telegrad_protocol.errors import ArgumentError

from .base import LRScheduler, one_each, set_rate


class OneCycleLR(LRScheduler):
    """Up to ``max_lr`` and down to almost nothing, with momentum the other way."""

    def __init__(
        self, optimizer: Optimizer, max_lr: Any, total_steps: int | None = None, epochs: int | None = None,
        steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
        cycle_momentum: bool = True, base_momentum: Any = 0.85, max_momentum: Any = 0.95, div_factor: float = 25.0,
        final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1 or not isinstance(pct_start, float):
            raise ArgumentError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = "betas" in optimizer.defaults
        if last_epoch == -1:
            for group, peak in zip(optimizer.param_groups, one_each(max_lr, optimizer, "max_lr"), strict=True):
                group["initial_lr"] = peak / div_factor
                set_rate(group, group["initial_lr"])
                group["max_lr"] = peak
                group["min_lr"] = group["initial_lr"] / final_div_factor
            if cycle_momentum:
                self._prepare_momentum(optimizer, base_momentum, max_momentum)
        super().__init__(optimizer, last_epoch)

    def _prepare_momentum(self, optimizer: Optimizer, base: Any, highest: Any) -> None:
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ArgumentError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        lows, highs = (
            one_each(base, optimizer, "base_momentum"),
            one_each(highest, optimizer, "max_momentum"),
        )
        for group, low, high in zip(optimizer.param_groups, lows, highs, strict=True):
            group["max_momentum"], group["base_momentum"] = high, low
            set_momentum(group, high)

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        if self.last_epoch > self.total_steps:
            raise ArgumentError(
                f"Tried to step {self.last_epoch} times. The specified number of total steps is {self.total_steps}"
            )
        rates = []
        for group in self.optimizer.param_groups:
            phase, pct = self._place()
            rates.append(self._anneal(group[phase["start_lr"]], group[phase["end_lr"]], pct))
            if self.cycle_momentum:
                low, high = group[phase["start_momentum"]], group[phase["end_momentum"]]
                set_momentum(group, self._anneal(low, high, pct))
        return rates

    def _place(self) -> tuple[dict[str, Any], float]:
        """The phase of the present step, and which part of it is over."""
        start = 0.0
        for number, phase in enumerate(self._schedule_phases):
            end = phase["end_step"]
            if self.last_epoch <= end or number == len(self._schedule_phases) - 1:
                return phase, (self.last_epoch - start) / (end - start)
            start = end
        raise ArgumentError("OneCycleLR: no phases")

    def _anneal(self, start: float, end: float, pct: float) -> float:
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (1 + math.cos(math.pi * pct))
        return (end - start) * pct + start


def _total_steps(total: int | None, epochs: int | None, per_epoch: int | None) -> int:
    if total is None:
        if epochs is None or per_epoch is None:
            raise ArgumentError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        total = epochs * per_epoch
    if not isinstance(total, int) or total <= 0:
        raise ArgumentError(f"Expected positive integer total_steps, but got {total}")
    return total


def _phases(total: int, pct: float, three_phase: bool) -> list[dict[str, Any]]:
    """Each phase's last step, and the settings that rate and momentum go from and to."""
    up = _phase(float(pct * total) - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
    if not three_phase:
        return [up, _phase(total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
    return [
        up,
        _phase(float(2 * pct * total) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
        _phase(total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
    ]


def _phase(*values: Any) -> dict[str, Any]:
    return dict(zip(("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum"), values, strict=True))


def set_momentum(group: dict[str, Any], value: float) -> None:
    """Give a group its momentum, which is the first of ``betas`` where there are any."""
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value
