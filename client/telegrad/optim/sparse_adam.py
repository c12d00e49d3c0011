"""Adam for sparse gradients, which telegrad does not have."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, NotSupportedError

from .adam import check_betas
from .optimizer import Group, Optimizer, Parameters


class SparseAdam(Optimizer):
    """Takes PyTorch's arguments; every gradient of telegrad is dense, and a step of those is refused as by PyTorch."""

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, maximize: bool = False,
    ) -> None:  # fmt: skip
        for name, value in (("learning rate", lr), ("epsilon value", eps)):
            if not isinstance(value, Tensor) and not value > 0.0:
                raise ArgumentError(f"Invalid {name}: {value}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def _update(self, group: Group, params: list[Tensor], grads: list[Any]) -> None:
        raise NotSupportedError("SparseAdam does not support dense gradients, please consider Adam instead")
