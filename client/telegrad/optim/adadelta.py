"""Adadelta: M. Zeiler, ADADELTA: An adaptive learning rate method (2012)."""

from __future__ import annotations

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from ._lists import function
from .foreach import (
    ForeachOptimizer,
    State,
    Tensors,
    accumulate_squares,
    add_scaled,
    advanced,
    entries,
    rate,
    with_decay,
    zeros_like,
)
from .optimizer import Group, Parameters, check_at_least


class Adadelta(ForeachOptimizer):
    """delta = grad * root of the mean of squared deltas / root of the mean of squared gradients; param -= lr * delta"""

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0, foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        if not 0.0 <= rho <= 1.0:
            raise ArgumentError(f"Invalid rho value: {rho}")
        check_at_least("epsilon", eps)
        check_at_least("weight_decay", weight_decay)
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        })  # fmt: skip

    def _new_state(self, group: Group, parameter: Tensor) -> State:
        return {"step": 0.0, "square_avg": zeros_like(parameter), "acc_delta": zeros_like(parameter)}

    def _step_lists(self, group: Group, params: Tensors, grads: Tensors, states: list[State]) -> None:
        advanced(states)
        grads = with_decay(group, params, grads)
        squares, deltas, rho, eps = (
            entries(states, "square_avg"),
            entries(states, "acc_delta"),
            group["rho"],
            group["eps"],
        )
        accumulate_squares(squares, grads, rho)
        roots = function("_foreach_sqrt")(list(function("_foreach_add")(squares, eps)))
        steps = list(function("_foreach_sqrt")(list(function("_foreach_add")(deltas, eps))))
        function("_foreach_div_")(steps, list(roots))
        function("_foreach_mul_")(steps, grads)
        accumulate_squares(deltas, steps, rho)
        add_scaled(params, steps, -rate(group, states))
