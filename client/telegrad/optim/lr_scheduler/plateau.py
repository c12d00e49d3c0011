"""Rates that fall when a metric stops improving."""

from __future__ import annotations

import math
from typing import Any

from telegrad._session.own_code import note
from telegrad.optim.optimizer import Optimizer
from telegrad_protocol.errors import ArgumentError

from .base import EPOCH_DEPRECATION_WARNING, LRScheduler, check_optimizer, one_each


class ReduceLROnPlateau(LRScheduler):
    """Times ``factor`` when a metric has not improved for more than ``patience`` steps."""

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: Any = 0, eps: float = 1e-8,
    ) -> None:  # fmt: skip
        if factor >= 1.0:
            raise ArgumentError("Factor should be < 1.0")
        if mode not in ("min", "max"):
            raise ArgumentError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ArgumentError(f"threshold mode {threshold_mode} is unknown!")
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.min_lrs = one_each(min_lr, optimizer, "min_lrs", "expected {wanted} {name}, got {given}")
        self.mode, self.threshold_mode = mode, threshold_mode
        self.factor, self.patience, self.threshold, self.cooldown, self.eps = factor, patience, threshold, cooldown, eps
        if isinstance(min_lr, (list, tuple)):
            self.default_min_lr = None
        else:
            self.default_min_lr = min_lr
        self.best = self.mode_worse = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = 0
        self.cooldown_counter = 0
        self.last_epoch = 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take note of a metric; a tensor's value is read, at one round trip."""
        current = float(metrics)
        if epoch is not None:
            note(EPOCH_DEPRECATION_WARNING)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(self.last_epoch)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    @property
    def in_cooldown(self) -> bool:
        """Whether bad steps do not count, so soon after a reduction."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether ``a`` improves on ``best`` by more than the threshold."""
        sign = -1.0 if self.mode == "min" else 1.0
        limit = best + sign * self.threshold if self.threshold_mode == "abs" else best * (1.0 + sign * self.threshold)
        return a < limit if self.mode == "min" else a > limit

    def _reduce_lr(self, epoch: int) -> None:
        """Make the rates smaller; programs put functions of their own in its place."""
        groups = len(self.optimizer.param_groups)
        if groups != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({groups}) differs from when `ReduceLROnPlateau` "
                    f"was initialized ({len(self.min_lrs)}), usually due to a new param group being added to the "
                    "optimizer. Please modify the `min_lrs` field to match the length of the `optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * groups
        for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            reduced = max(group["lr"] * self.factor, lowest)
            if group["lr"] - reduced > self.eps:
                group["lr"] = reduced
