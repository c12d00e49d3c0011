"""NAdam: T. Dozat, Incorporating Nesterov momentum into Adam (2016)."""

from __future__ import annotations

from typing import ClassVar

from telegrad._tensor.tensor import Tensor

from ._lists import function
from .adam import check_betas
from .foreach import (
    ForeachOptimizer,
    State,
    Tensors,
    accumulate_squares,
    add_quotients,
    advanced,
    entries,
    rate,
    with_decay,
    zeros_like,
)
from .optimizer import Group, Parameters, check_at_least


class NAdam(ForeachOptimizer):
    """Adam with Nesterov's momentum, whose weight mu grows towards beta1."""

    _numbers: ClassVar[tuple[str, ...]] = ("step", "mu_product")

    def __init__(
        self, params: Parameters, lr: float | Tensor = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        check_at_least("epsilon", eps)
        check_betas(betas)
        check_at_least("weight_decay", weight_decay)
        check_at_least("momentum_decay", momentum_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable,
        })  # fmt: skip

    def _new_state(self, group: Group, parameter: Tensor) -> State:
        zeros = {"exp_avg": zeros_like(parameter), "exp_avg_sq": zeros_like(parameter)}
        return {"step": 0.0, "mu_product": 1.0, **zeros}

    def _step_lists(self, group: Group, params: Tensors, grads: Tensors, states: list[State]) -> None:
        steps, (beta1, beta2), lr = advanced(states), group["betas"], rate(group, states)
        if group["decoupled_weight_decay"]:
            function("_foreach_mul_")(params, 1 - lr * group["weight_decay"])
        else:
            grads = with_decay(group, params, grads)
        means, squares = entries(states, "exp_avg"), entries(states, "exp_avg_sq")
        function("_foreach_lerp_")(means, grads, 1 - beta1)
        accumulate_squares(squares, grads, beta2)
        roots = list(function("_foreach_div")(squares, [1 - beta2**step for step in steps]))
        function("_foreach_sqrt_")(roots)
        function("_foreach_add_")(roots, group["eps"])
        by_grad, by_mean = [], []
        for state, step in zip(states, steps, strict=True):
            mu, following = (beta1 * (1 - 0.5 * 0.96 ** (s * group["momentum_decay"])) for s in (step, step + 1))
            state["mu_product"] *= mu
            by_grad.append(-lr * (1 - mu) / (1 - state["mu_product"]))
            by_mean.append(-lr * following / (1 - state["mu_product"] * following))
        add_quotients(params, grads, roots, by_grad)
        add_quotients(params, means, roots, by_mean)
