"""Muon: K. Jordan et al., Muon: An optimizer for hidden layers in neural networks (2024)."""

from __future__ import annotations

import math
from typing import ClassVar

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import bfloat16
from telegrad_protocol.errors import ArgumentError

from .foreach import ForeachOptimizer, State, Tensors, number, zeros_like
from .optimizer import Group, Parameters, check_at_least


class Muon(ForeachOptimizer):
    """param -= lr * the orthogonal matrix nearest to the momentum, for matrices alone."""

    _numbers: ClassVar[tuple[str, ...]] = ()
    _added_settings: ClassVar[Group] = {}

    def __init__(
        self, params: Parameters, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True, ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        check_at_least("momentum", momentum)
        check_at_least("weight_decay", weight_decay)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ArgumentError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        if ns_steps >= 100:
            raise ArgumentError("Number of steps must be less than 100 for computational efficiency")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        })  # fmt: skip
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ArgumentError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {parameter.shape}"
                    )

    def _new_state(self, group: Group, parameter: Tensor) -> State:
        if parameter.is_complex():
            raise ArgumentError("Muon does not support complex parameters")
        return {"momentum_buffer": zeros_like(parameter)}

    def _step_lists(self, group: Group, params: Tensors, grads: Tensors, states: list[State]) -> None:
        lr, momentum = number(group["lr"]), group["momentum"]
        for parameter, grad, state in zip(params, grads, states, strict=True):
            buffer = state["momentum_buffer"]
            buffer.lerp_(grad, 1 - momentum)
            update = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
            update = _orthogonalized(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
            parameter.mul_(1 - lr * group["weight_decay"])
            parameter.add_(update, alpha=-lr * _scale(parameter, group["adjust_lr_fn"]))


def _scale(parameter: Tensor, adjust: str | None) -> float:
    rows, columns = parameter.shape
    if adjust == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))


def _orthogonalized(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Return about the orthogonal factor of a matrix, by iterations X = a X + (b A + c A A) X with A = X X.T."""
    a, b, c = coefficients
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.to(bfloat16)
    x = x.t() if is_tall else x
    x = x.div(x.norm().clamp(min=eps))
    add = function("addmm")
    for _ in range(steps):
        gram = x.matmul(x.t())
        x = add(x, add(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if is_tall else x
