"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from telegrad_protocol.errors import ArgumentError

from .._functions import function
from .._tensor import Tensor
from .optimizer import Group, Optimizer, check_range


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and Nesterov's variant, as ``torch.optim.SGD``."""

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float = 0, nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_range("learning rate", lr)
        check_range("momentum value", momentum)
        check_range("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError("optimizer: Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                "nesterov": nesterov, "maximize": maximize, "foreach": foreach, "differentiable": differentiable,
                "fused": fused,
            },
        )  # fmt: skip

    def _update(self, group: Group, params: list[Tensor]) -> None:
        if not group["momentum"]:
            self._apply(group, params, [], False)
            return
        fresh = [p for p in params if "momentum_buffer" not in self.state[p]]
        seasoned = [p for p in params if "momentum_buffer" in self.state[p]]
        for part, is_first in ((fresh, True), (seasoned, False)):
            if part:
                self._apply(group, part, self._buffers(part, "momentum_buffer"), is_first)

    def _apply(self, group: Group, params: list[Tensor], buffers: list[Tensor], is_first: bool) -> None:
        function("_fused_sgd_")(
            params, [p._grad for p in params], buffers, weight_decay=group["weight_decay"], momentum=group["momentum"],
            lr=group["lr"], dampening=group["dampening"], nesterov=group["nesterov"], maximize=group["maximize"],
            is_first_step=is_first,
        )  # fmt: skip
