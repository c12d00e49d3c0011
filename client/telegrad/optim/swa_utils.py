"""Averages of models: stochastic weight averaging (P. Izmailov et al., 2018) and exponential moving averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any

from telegrad._functions.creation import tensor
from telegrad._ops.functions import function
from telegrad._session.devices import DeviceLike
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.batchnorm import _BatchNorm
from telegrad.nn.modules.module import Module
from telegrad_protocol.dtypes import int64
from telegrad_protocol.errors import ArgumentError

from .lr_scheduler.base import LRScheduler, one_each
from .optimizer import Optimizer

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
    "update_bn",
]  # fmt: skip

Tensors = Sequence[Tensor]
MultiAverage = Callable[[Any, Any, Any], None]


def _checked(decay: float) -> float:
    if decay < 0.0 or decay > 1.0:
        raise ArgumentError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")
    return decay


def _lerp(averages: Tensors, currents: Tensors, share: Any) -> None:
    """Move averages by ``share`` towards current values; those of integers are computed as floating-point numbers."""
    pairs = list(zip(averages, currents, strict=True))
    inexact = [pair for pair in pairs if pair[0].dtype.is_differentiable]
    if inexact:
        function("_foreach_lerp_")([a for a, _ in inexact], [c for _, c in inexact], float(share))
    for average, current in pairs:
        if not average.dtype.is_differentiable:
            average.copy_(average + (current - average) * float(share))


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """Return the function that moves a list of averages: average = decay * average + (1 - decay) * current"""
    _checked(decay)

    def ema_update(ema_param_list: Tensors, current_param_list: Tensors, _: Any) -> None:
        with no_grad():
            _lerp(ema_param_list, current_param_list, 1 - decay)

    return ema_update


def get_swa_multi_avg_fn() -> MultiAverage:
    """Return the function that moves a list of averages to the mean of one more model."""

    def swa_update(averaged_param_list: Tensors, current_param_list: Tensors, num_averaged: Any) -> None:
        with no_grad():
            _lerp(averaged_param_list, current_param_list, 1 / (float(num_averaged) + 1))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Tensor, Tensor, Any], Tensor]:
    """Return the function decay * average + (1 - decay) * current."""
    _checked(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, Any], Tensor]:
    """Return the function that gives the mean of one more model."""

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            moved: Tensor = averaged_param + (current_param - averaged_param) / (num_averaged + 1)
            return moved

    return swa_update


class AveragedModel(Module):
    """A copy of a model whose parameters are averages; equal weights unless ``avg_fn`` or ``multi_avg_fn`` is given.

    With ``use_buffers`` buffers are averaged, too; else they are copied from the model.
    """

    n_averaged: Tensor

    def __init__(
        self, model: Module, device: DeviceLike = None, avg_fn: Callable[[Tensor, Tensor, Any], Tensor] | None = None,
        multi_avg_fn: MultiAverage | None = None, use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self._count: int | None = 0
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any) -> None:
        self._count = None
        super()._load_from_state_dict(*args)

    def _number(self) -> int:
        """How many models are averaged; read once after it was loaded."""
        if self._count is None:
            self._count = int(self.n_averaged.item())
        return self._count

    def _averaged(self, model: Module) -> Tensors:
        buffers = list(model.buffers()) if self.use_buffers else []
        return [part.detach() for part in [*model.parameters(), *buffers]]

    def update_parameters(self, model: Module) -> None:
        """Take one more model into the averages."""
        own, others = self._averaged(self.module), self._averaged(model)
        others = [o if o.device == s.device else o.to(s.device) for s, o in zip(own, others, strict=True)]
        number = self._number()
        with no_grad():
            if number == 0:
                for average, current in zip(own, others, strict=True):
                    average.copy_(current)
            elif self.avg_fn is None:
                (self.multi_avg_fn or get_swa_multi_avg_fn())(own, others, number)
            else:
                for average, current in zip(own, others, strict=True):
                    average.copy_(self.avg_fn(average, current, self.n_averaged.to(average.device)))
            if not self.use_buffers:
                for kept, given in zip(self.module.buffers(), model.buffers(), strict=True):
                    kept.detach().copy_(given.detach().to(kept.device))
            self.n_averaged.add_(1)
        self._count = number + 1


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: DeviceLike = None) -> None:
    """Set the running statistics of all batch normalizations to those of the data, by one pass over it."""
    momenta: dict[_BatchNorm, Any] = {}
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.momentum = None
    for batch in loader:
        input = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(input if device is None else input.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Rates that go to ``swa_lr`` within ``anneal_epochs`` steps, along a cosine or a line, and stay there."""

    def __init__(
        self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ArgumentError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        for rate, group in zip(one_each(swa_lr, optimizer, "swa_lr"), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_of_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        length = max(1, self.anneal_epochs)
        part = _cosine if self._anneal_strategy == "cos" else float
        before = part(max(0, min(1, (step - 1) / length)))
        now = part(max(0, min(1, step / length)))
        rates = []
        for group in self.optimizer.param_groups:
            start = group["swa_lr"] if before == 1 else (group["lr"] - before * group["swa_lr"]) / (1 - before)
            rates.append(group["swa_lr"] * now + start * (1 - now))
        return rates


def _cosine(part: float) -> float:
    return (1 - math.cos(math.pi * part)) / 2
