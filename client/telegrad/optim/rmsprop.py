"""RMSprop: G. Hinton's lecture, and A. Graves, Generating sequences with recurrent neural networks (2013)."""

from __future__ import annotations

from telegrad._tensor.tensor import Tensor

from ._lists import function
from .foreach import (
    ForeachOptimizer,
    State,
    Tensors,
    accumulate_squares,
    add_quotients,
    add_scaled,
    advanced,
    entries,
    rate,
    with_decay,
    zeros_like,
)
from .optimizer import Group, Parameters, check_at_least


class RMSprop(ForeachOptimizer):
    """param -= lr * grad / (root of the mean of squared gradients + eps), with momentum, or centered by the mean"""

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        check_at_least("epsilon", eps)
        check_at_least("momentum", momentum)
        check_at_least("weight_decay", weight_decay)
        check_at_least("alpha", alpha)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable,
        })  # fmt: skip

    def _new_state(self, group: Group, parameter: Tensor) -> State:
        state: State = {"step": 0.0, "square_avg": zeros_like(parameter)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(parameter)
        if group["centered"]:
            state["grad_avg"] = zeros_like(parameter)
        return state

    def _step_lists(self, group: Group, params: Tensors, grads: Tensors, states: list[State]) -> None:
        advanced(states)
        lr, alpha = rate(group, states), group["alpha"]
        grads = with_decay(group, params, grads)
        squares = entries(states, "square_avg")
        accumulate_squares(squares, grads, alpha)
        if group["centered"]:
            means = entries(states, "grad_avg")
            function("_foreach_lerp_")(means, grads, 1 - alpha)
            squares = list(function("_foreach_addcmul")(squares, means, means, -1))
        roots = list(function("_foreach_sqrt")(squares))
        function("_foreach_add_")(roots, group["eps"])
        if group["momentum"] > 0:
            buffers = entries(states, "momentum_buffer")
            function("_foreach_mul_")(buffers, group["momentum"])
            function("_foreach_addcdiv_")(buffers, grads, roots, 1)
            add_scaled(params, buffers, -lr)
        else:
            add_quotients(params, grads, roots, [-lr] * len(params))
