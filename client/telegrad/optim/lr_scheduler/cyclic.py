"""Rates that go up and down between two bounds.

L. Smith, Cyclical learning rates for training neural networks (2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from telegrad.optim.optimizer import Optimizer
from telegrad_protocol.errors import ArgumentError

from .base import LRScheduler, check_optimizer, one_each, set_rate
from .one_cycle import set_momentum


class CyclicLR(LRScheduler):
    """Up in ``step_size_up`` steps and down in ``step_size_down``, with momentum the other way.

    ``mode`` says how the height changes: not (triangular), halved by every cycle (triangular2), or times ``gamma`` at
    every step (exp_range). ``scale_fn`` of the cycle, or of the iteration if ``scale_mode`` says so, takes its place.
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: Any, max_lr: Any, step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: float = 0.8, max_momentum: float = 0.9, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        check_optimizer(optimizer)
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ArgumentError("mode is invalid and scale_fn is None")
        base_lrs = one_each(base_lr, optimizer, "base_lr")
        self.max_lrs = one_each(max_lr, optimizer, "max_lr")
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, base_lrs, strict=True):
                set_rate(group, rate)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up) + float(down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = "betas" in optimizer.defaults
            self._prepare_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _prepare_momentum(self, optimizer: Optimizer, base: Any, highest: Any, last_epoch: int) -> None:
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ArgumentError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.base_momentums = one_each(base, optimizer, "base_momentum")
        self.max_momentums = one_each(highest, optimizer, "max_momentum")
        if last_epoch != -1:
            return
        bounds = zip(optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True)
        for group, low, high in bounds:
            group["max_momentum"], group["base_momentum"] = high, low
            set_momentum(group, high)

    def scale_fn(self, x: float) -> float:
        """Return the height of a cycle: 1, or less in later ones."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return float(0.5 ** (x - 1) if self.mode == "triangular2" else self.gamma**x)

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        place = 1.0 + self.last_epoch / self.total_size - cycle
        ratio = self.step_ratio
        part = place / ratio if place <= ratio else (place - 1) / (ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            bounds = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True)
            for group, low, high in bounds:
                set_momentum(group, high - (high - low) * part * scale)
        # In the first step ``base_lrs`` are the groups' initial rates still, which another scheduler may have set.
        return [low + (high - low) * part * scale for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the scheduler without the optimizer and a function of the user."""
        state = super().state_dict()
        custom = state.pop("_scale_fn_custom")
        state["_scale_fn_custom"] = None
        if custom is not None and not callable(type(custom).__dict__.get("__get__")):
            state["_scale_fn_custom"] = dict(custom.__dict__)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` gave; a function of the user stays as it is."""
        attributes = state_dict.get("_scale_fn_custom")
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_scale_fn_custom"})
        if attributes is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(attributes)
