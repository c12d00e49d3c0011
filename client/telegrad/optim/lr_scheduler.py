"""Learning rates over time.

A scheduler multiplies what it finds in ``param_groups``, so that several can act on one optimizer. Rates are numbers of
the client; changing one costs nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from .._tensor import Tensor
from .optimizer import Optimizer

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "ExponentialLR", "LRScheduler",
    "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau",
    "SequentialLR", "StepLR",
]  # fmt: skip


def _number(rate: Any) -> Any:
    """A rate that is a tensor stays one."""
    return rate.clone() if isinstance(rate, Tensor) else rate


class LRScheduler:
    """Base of schedulers: subclasses say the rates of step ``last_epoch`` in ``get_lr``."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentTypeError(f"{type(optimizer).__name__} is not an Optimizer")
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _number(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{number}] when resuming an optimizer")
        self.optimizer = optimizer
        self.base_lrs = [_number(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr: list[Any] = []
        self.step()

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
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._set(self.get_lr() if epoch is None else self._at(epoch))

    def _at(self, epoch: int) -> list[Any]:
        """The rates of any step; schedulers without a closed form go on from the present ones."""
        return self.get_lr()

    def _set(self, rates: Sequence[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = list(rates)

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` gave."""
        self.__dict__.update(state_dict)


class LambdaLR(LRScheduler):
    """The initial rate times a function of the step."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambdas = _one_each(lr_lambda, optimizer, "lr_lambdas")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        return [base * factor(self.last_epoch) for base, factor in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer and the functions, which the user has."""
        return {key: value for key, value in super().state_dict().items() if key != "lr_lambdas"}


class MultiplicativeLR(LambdaLR):
    """The rate of the step before times a function of the step."""

    def get_lr(self) -> list[Any]:
        if self.last_epoch <= 0:
            return self._rates
        return [rate * factor(self.last_epoch) for rate, factor in zip(self._rates, self.lr_lambdas, strict=True)]


def _one_each(given: Any, optimizer: Optimizer, name: str) -> list[Any]:
    count = len(optimizer.param_groups)
    listed = list(given) if isinstance(given, (list, tuple)) else [given] * count
    if len(listed) != count:
        raise ArgumentError(f"Expected {count} {name}, but got {len(listed)}")
    return listed


class StepLR(LRScheduler):
    """Times ``gamma`` every ``step_size`` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        turns = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return [rate * self.gamma for rate in self._rates] if turns else self._rates

    def _at(self, epoch: int) -> list[Any]:
        return [base * self.gamma ** (epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times ``gamma`` at each of the ``milestones``."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
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
        return self._rates if self.last_epoch == 0 else [rate * self.gamma for rate in self._rates]

    def _at(self, epoch: int) -> list[Any]:
        return [base * self.gamma**epoch for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Times ``factor`` for the first ``total_iters`` steps."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1.0:
            raise ArgumentError("Constant multiplicative factor expected to be between 0 and 1")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
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
        return self.start_factor + (self.end_factor - self.start_factor) * min(self.total_iters, epoch) / self.total_iters

    def get_lr(self) -> list[Any]:
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self._rates]
        if self.last_epoch > self.total_iters:
            return self._rates
        return [rate * (self._factor(self.last_epoch) / self._factor(self.last_epoch - 1)) for rate in self._rates]

    def _at(self, epoch: int) -> list[Any]:
        return [base * self._factor(epoch) for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Down to zero over ``total_iters`` steps, as a polynomial of ``power``."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return (1.0 - min(epoch, self.total_iters) / self.total_iters) ** self.power

    def get_lr(self) -> list[Any]:
        if self.last_epoch == 0 or self.last_epoch > self.total_iters:
            return self._rates
        return [rate * self._factor(self.last_epoch) / self._factor(self.last_epoch - 1) for rate in self._rates]

    def _at(self, epoch: int) -> list[Any]:
        return [base * self._factor(epoch) for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min`` over ``T_max`` steps, and back (I. Loshchilov, F. Hutter, 2017)."""

    def __init__(self, optimizer: Optimizer, T_max: float, eta_min: float = 0.0, last_epoch: int = -1) -> None:  # noqa: N803
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, epoch: float) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def get_lr(self) -> list[Any]:
        epoch = self.last_epoch
        if epoch == 0:
            return self._rates
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # from the bottom no factor leads up
            risen = (1 - math.cos(math.pi / self.T_max)) / 2
            return [
                rate + (base - self.eta_min) * risen for base, rate in zip(self.base_lrs, self._rates, strict=True)
            ]
        factor = self._height(epoch) / self._height(epoch - 1)
        return [(rate - self.eta_min) * factor + self.eta_min for rate in self._rates]

    def _at(self, epoch: int) -> list[Any]:
        return [self.eta_min + (base - self.eta_min) * self._height(epoch) / 2 for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min``, again and again; each period ``T_mult`` times as long."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1  # noqa: N803
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
        self._set(self.get_lr())

    def _move_to(self, epoch: float) -> None:
        if epoch < 0:
            raise ArgumentError(f"Expected non-negative epoch, but got {epoch}")
        self.T_i, self.T_cur = self.T_0, epoch
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult


class OneCycleLR(LRScheduler):
    """Up to ``max_lr`` and down to almost nothing, with momentum the other way (L. Smith, N. Topin, 2018)."""

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
        self.anneal_strategy = anneal_strategy
        self.phases = _phases(self.total_steps, pct_start, three_phase)
        self.cycle_momentum = cycle_momentum
        if last_epoch == -1:
            for group, peak in zip(optimizer.param_groups, _one_each(max_lr, optimizer, "values for max_lr"), strict=True):
                group["initial_lr"] = group["lr"] = peak / div_factor
                group["max_lr"] = peak
                group["min_lr"] = group["initial_lr"] / final_div_factor
            if cycle_momentum:
                self._prepare_momentum(optimizer, base_momentum, max_momentum)
        super().__init__(optimizer, last_epoch)

    def _prepare_momentum(self, optimizer: Optimizer, base: Any, highest: Any) -> None:
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ArgumentError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        lows, highs = _one_each(base, optimizer, "values for base_momentum"), _one_each(highest, optimizer, "values for max_momentum")
        for group, low, high in zip(optimizer.param_groups, lows, highs, strict=True):
            group["base_momentum"], group["max_momentum"] = low, high
            _set_momentum(group, high)

    def get_lr(self) -> list[Any]:
        if self.last_epoch > self.total_steps:
            raise ArgumentError(f"Tried to step {self.last_epoch} times. The specified number of total steps is {self.total_steps}")
        rates = []
        for group in self.optimizer.param_groups:
            phase, pct = self._place()
            rates.append(self._anneal(group[phase[1]], group[phase[2]], pct))
            if self.cycle_momentum:
                _set_momentum(group, self._anneal(group[phase[3]], group[phase[4]], pct))
        return rates

    def _place(self) -> tuple[tuple[Any, ...], float]:
        """The phase of the present step, and which part of it is over."""
        start = 0.0
        for number, phase in enumerate(self.phases):
            if self.last_epoch <= phase[0] or number == len(self.phases) - 1:
                return phase, (self.last_epoch - start) / (phase[0] - start)
            start = phase[0]
        raise ArgumentError("OneCycleLR: no phases")

    def _anneal(self, start: float, end: float, pct: float) -> float:
        if self.anneal_strategy == "cos":
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


def _phases(total: int, pct: float, three_phase: bool) -> list[tuple[Any, ...]]:
    """Each phase's last step, and the settings that rate and momentum go from and to."""
    up = (float(pct * total) - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
    if not three_phase:
        return [up, (total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
    return [
        up,
        (float(2 * pct * total) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
        (total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
    ]


def _set_momentum(group: dict[str, Any], value: float) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class SequentialLR(LRScheduler):
    """Schedulers one after the other, each from its milestone on."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        if len(schedulers) < 1 or len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"SequentialLR: {len(schedulers)} schedulers need {max(len(schedulers) - 1, 0)} milestones, got {len(milestones)}"
            )
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise ArgumentError("SequentialLR: all schedulers must belong to the given optimizer")
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.optimizer = optimizer
        self.last_epoch = last_epoch + 1
        # All of them have set their first rate already: start over with the first one.
        for group in optimizer.param_groups:
            group["lr"] = _number(group["initial_lr"])
        for scheduler in self._schedulers:
            scheduler.last_epoch -= 1
        self._schedulers[0].step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next step."""
        self.last_epoch += 1
        place = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[place]
        if place > 0 and self._milestones[place - 1] == self.last_epoch:
            scheduler.step(0)
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
        self.optimizer = optimizer
        self.min_lrs = _one_each(min_lr, optimizer, "min_lrs")
        self.mode, self.threshold_mode = mode, threshold_mode
        self.factor, self.patience, self.threshold, self.cooldown, self.eps = factor, patience, threshold, cooldown, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = 0
        self.cooldown_counter = 0
        self.last_epoch = 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take note of a metric; a tensor's value is read, at one round trip."""
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
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

    def _reduce(self) -> None:
        for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            reduced = max(group["lr"] * self.factor, lowest)
            if group["lr"] - reduced > self.eps:
                group["lr"] = reduced

