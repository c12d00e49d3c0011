"""Rates that fall along a cosine.

I. Loshchilov, F. Hutter, SGDR: Stochastic gradient descent with warm restarts (2017).
"""

from __future__ import annotations

import math
from typing import Any

from telegrad.optim.optimizer import Optimizer
from telegrad_protocol.errors import ArgumentError

from .base import LRScheduler


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min`` over ``T_max`` steps, and back."""

    def __init__(self, optimizer: Optimizer, T_max: float, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, epoch: float) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        epoch = self.last_epoch
        if self._is_initial:
            return self._rates
        if self._step_count == 1 and epoch > 0:
            return self._at(epoch)
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # from the bottom no factor leads up
            risen = (1 - math.cos(math.pi / self.T_max)) / 2
            return [rate + (base - self.eta_min) * risen for base, rate in zip(self.base_lrs, self._rates, strict=True)]
        factor = self._height(epoch) / self._height(epoch - 1)
        return [(rate - self.eta_min) * factor + self.eta_min for rate in self._rates]

    def _at(self, epoch: int) -> list[Any]:
        return [self.eta_min + (base - self.eta_min) * self._height(epoch) / 2 for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min``, again and again; each period ``T_mult`` times as long."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ArgumentError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ArgumentError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0 = T_0
        self.T_mult = T_mult
        self.T_i = T_0
        self.T_cur: float = last_epoch
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go on by one step, or to a moment given in (fractions of) epochs."""
        if epoch is None:
            epoch = 0 if self.last_epoch < 0 else self.last_epoch + 1
            self.T_cur = 0 if self.last_epoch < 0 else self.T_cur + 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            self._move_to(epoch)
        self.last_epoch = math.floor(epoch)
        self._set_within_step(self.get_lr)

    def _update_lr(self, epoch: float | None = None) -> None:
        self.step(epoch)

    def _move_to(self, epoch: float) -> None:
        if epoch < 0:
            raise ArgumentError(f"Expected non-negative epoch, but got {epoch}")
        self.T_i, self.T_cur = self.T_0, epoch
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
