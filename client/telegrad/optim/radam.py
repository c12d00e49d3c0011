"""RAdam: L. Liu et al., On the variance of the adaptive learning rate and beyond (2020)."""

from __future__ import annotations

import math

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor

from .adam import check_betas
from .foreach import (
    ForeachOptimizer,
    State,
    Tensors,
    accumulate_squares,
    advanced,
    entries,
    number,
    with_decay,
    zeros_like,
)
from .optimizer import Group, Parameters, check_at_least


class RAdam(ForeachOptimizer):
    """Adam whose adaptive rate is rectified, and left out while too few steps tell of the variance."""

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        check_at_least("epsilon", eps)
        check_betas(betas)
        check_at_least("weight_decay", weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        })  # fmt: skip

    def _new_state(self, group: Group, parameter: Tensor) -> State:
        return {"step": 0.0, "exp_avg": zeros_like(parameter), "exp_avg_sq": zeros_like(parameter)}

    def _step_lists(self, group: Group, params: Tensors, grads: Tensors, states: list[State]) -> None:
        steps, (beta1, beta2), lr = advanced(states), group["betas"], number(group["lr"])
        if group["decoupled_weight_decay"] and group["weight_decay"]:
            function("_foreach_mul_")(params, 1 - lr * group["weight_decay"])
        else:
            grads = with_decay(group, params, grads)
        means, squares = entries(states, "exp_avg"), entries(states, "exp_avg_sq")
        function("_foreach_lerp_")(means, grads, 1 - beta1)
        accumulate_squares(squares, grads, beta2)
        rates = [_rectified(step, beta2) for step in steps]
        for is_adaptive in (True, False):
            chosen = [i for i, rate in enumerate(rates) if (rate is not None) is is_adaptive]
            if not chosen:
                continue
            some, average = [params[i] for i in chosen], [means[i] for i in chosen]
            factors = [-lr * (rates[i] or 1.0) / (1 - beta1 ** steps[i]) for i in chosen]
            if is_adaptive:
                roots = list(function("_foreach_sqrt")([squares[i] for i in chosen]))
                function("_foreach_add_")(roots, group["eps"])
                function("_foreach_addcdiv_")(some, average, roots, factors)
            else:
                function("_foreach_add_")(some, list(function("_foreach_mul")(average, factors)))


def _rectified(step: float, beta2: float) -> float | None:
    """Return what the adaptive rate is multiplied by, None while its variance is not known."""
    correction = 1 - beta2**step
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / correction
    if length <= 5.0:
        return None
    rectification = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return math.sqrt(rectification) * math.sqrt(correction)
