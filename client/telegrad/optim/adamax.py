"""Adamax: Adam with the infinity norm (D. Kingma, J. Ba, 2015)."""

from __future__ import annotations

from telegrad._tensor.tensor import Tensor

from ._lists import function
from .adam import check_betas
from .foreach import ForeachOptimizer, State, Tensors, add_quotients, advanced, entries, rate, with_decay, zeros_like
from .optimizer import Group, Parameters, check_at_least


class Adamax(ForeachOptimizer):
    """param -= lr * mean of gradients / largest magnitude of past gradients, each discounted"""

    def __init__(
        self, params: Parameters, lr: float | Tensor = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        check_at_least("epsilon", eps)
        check_betas(betas)
        check_at_least("weight_decay", weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def _new_state(self, group: Group, parameter: Tensor) -> State:
        return {"step": 0.0, "exp_avg": zeros_like(parameter), "exp_inf": zeros_like(parameter)}

    def _step_lists(self, group: Group, params: Tensors, grads: Tensors, states: list[State]) -> None:
        steps, (beta1, beta2), lr = advanced(states), group["betas"], rate(group, states)
        grads = with_decay(group, params, grads)
        means, largest = entries(states, "exp_avg"), entries(states, "exp_inf")
        function("_foreach_lerp_")(means, grads, 1 - beta1)
        function("_foreach_mul_")(largest, beta2)
        magnitudes = list(function("_foreach_abs")(grads))
        function("_foreach_add_")(magnitudes, group["eps"])
        function("_foreach_maximum_")(largest, magnitudes)
        rates = [-lr / (1 - beta1**step) for step in steps]
        add_quotients(params, means, largest, rates)
