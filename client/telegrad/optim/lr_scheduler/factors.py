"""Rates that are multiplied: at certain steps, at every step, or by functions of the step."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from types import FunctionType
from typing import Any

from telegrad.optim.optimizer import Optimizer
from telegrad_protocol.errors import ArgumentError

from .base import LRScheduler, one_each


class LambdaLR(LRScheduler):
    """The initial rate times a function of the step."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambdas = one_each(lr_lambda, optimizer, "lr_lambdas", "Expected {wanted} {name}, but got {given}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        return [base * factor(self.last_epoch) for base, factor in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer and the functions, which the user has; of other callables, their attributes."""
        kept = [None if isinstance(f, FunctionType) else dict(f.__dict__) for f in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` gave; functions stay what they are."""
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "lr_lambdas"})
        for factor, attributes in zip(self.lr_lambdas, state_dict.get("lr_lambdas", ()), strict=False):
            if attributes is not None:
                factor.__dict__.update(attributes)


class MultiplicativeLR(LambdaLR):
    """The rate of the step before times a function of the step."""

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        if self._is_initial:
            return self._rates
        return [rate * factor(self.last_epoch) for rate, factor in zip(self._rates, self.lr_lambdas, strict=True)]


class StepLR(LRScheduler):
    """The rate is multiplied by ``gamma`` every ``step_size`` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        turns = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return [rate * self.gamma for rate in self._rates] if turns else self._rates

    def _at(self, epoch: int) -> list[Any]:
        return [base * self.gamma ** (epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """The rate is multiplied by ``gamma`` at every milestone."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        factor = self.gamma ** self.milestones[self.last_epoch]
        return [rate * factor for rate in self._rates]

    def _at(self, epoch: int) -> list[Any]:
        passed = bisect_right(sorted(self.milestones.elements()), epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Times ``gamma`` every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        return self._rates if self._is_initial else [rate * self.gamma for rate in self._rates]

    def _at(self, epoch: int) -> list[Any]:
        return [base * self.gamma**epoch for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Times ``factor`` for the first ``total_iters`` steps."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1.0:
            raise ArgumentError("Constant multiplicative factor expected to be between 0 and 1")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        if self.last_epoch == 0:
            return [rate * self.factor for rate in self._rates]
        return [rate / self.factor for rate in self._rates] if self.last_epoch == self.total_iters else self._rates

    def _at(self, epoch: int) -> list[Any]:
        return [base * (self.factor if epoch < self.total_iters else 1.0) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """From ``start_factor`` to ``end_factor`` of the initial rate over ``total_iters`` steps."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if not 0 < start_factor <= 1:
            raise ArgumentError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1")
        if not 0 <= end_factor <= 1:
            raise ArgumentError("Ending multiplicative factor expected to be between 0 and 1")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return (
            self.start_factor + (self.end_factor - self.start_factor) * min(self.total_iters, epoch) / self.total_iters
        )

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self._rates]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates
        rise = self.end_factor - self.start_factor  # PyTorch's order of operations, for rates without another rounding
        growth = 1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)
        return [rate * growth for rate in self._rates]

    def _at(self, epoch: int) -> list[Any]:
        return [base * self._factor(epoch) for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Down to zero over ``total_iters`` steps, as a polynomial of ``power``."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return float((1.0 - min(epoch, self.total_iters) / self.total_iters) ** self.power)

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates
        left, before = (1.0 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1))
        return [rate * (left / before) ** self.power for rate in self._rates]

    def _at(self, epoch: int) -> list[Any]:
        return [base * self._factor(epoch) for base in self.base_lrs]
