"""RAdam: L. Liu et al., On the variance of the adaptive learning rate and beyond (2020)."""

from __future__ import annotations

import math
from typing import Any

from telegrad._tensor.tensor import Tensor

from ._lists import function
from .adam import check_betas
from .foreach import (
    ForeachOptimizer,
    State,
    Tensors,
    accumulate_squares,
    add_multiples,
    add_quotients,
    advanced,
    entries,
    is_placed,
    rate,
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
        steps, (beta1, beta2), lr = advanced(states), group["betas"], rate(group, states)
        if group["decoupled_weight_decay"] and group["weight_decay"]:
            function("_foreach_mul_")(params, 1 - lr * group["weight_decay"])
        else:
            grads = with_decay(group, params, grads)
        means, squares = entries(states, "exp_avg"), entries(states, "exp_avg_sq")
        function("_foreach_lerp_")(means, grads, 1 - beta1)
        accumulate_squares(squares, grads, beta2)
        corrections = [-lr / (1 - beta1**step) for step in steps]
        if is_placed(states):
            _add_either(params, means, squares, corrections, [_rectified_tensor(step, beta2) for step in steps], group)
        else:
            _add_chosen(params, means, squares, corrections, [_rectified(step, beta2) for step in steps], group)


def _add_either(
    params: Tensors, means: Tensors, squares: Tensors, corrections: list[Tensor], rates: list[Tensor], group: Group
) -> None:
    """Take both kinds of step, one of them times 0: no value is read that would tell which it is."""
    pairs = list(zip(rates, corrections, strict=True))
    _add_adaptive(params, means, squares, [rate * correction for rate, correction in pairs], group["eps"])
    add_multiples(params, means, [(rate == 0) * correction for rate, correction in pairs])


def _add_chosen(
    params: Tensors, means: Tensors, squares: Tensors, corrections: list[float], rates: list[float | None],
    group: Group,
) -> None:  # fmt: skip
    """Take the adaptive step of parameters with a rate, and the plain one of others."""
    for is_adaptive in (True, False):
        chosen = [i for i, rate in enumerate(rates) if (rate is not None) is is_adaptive]
        if not chosen:
            continue
        some, average = [params[i] for i in chosen], [means[i] for i in chosen]
        factors = [(rates[i] or 1.0) * corrections[i] for i in chosen]
        if is_adaptive:
            _add_adaptive(some, average, [squares[i] for i in chosen], factors, group["eps"])
        else:
            add_multiples(some, average, factors)


def _add_adaptive(params: Tensors, means: Tensors, squares: Tensors, factors: list[Any], eps: float) -> None:
    roots = list(function("_foreach_sqrt")(squares))
    function("_foreach_add_")(roots, eps)
    add_quotients(params, means, roots, factors)


def _rectified(step: float, beta2: float) -> float | None:
    """Return what the adaptive rate is multiplied by, None while its variance is not known."""
    correction, length, longest = _lengths(step, beta2)
    if length <= 5.0:
        return None
    return math.sqrt(_rectification(length, longest)) * math.sqrt(correction)


def _rectified_tensor(step: Tensor, beta2: float) -> Tensor:
    """Return what the adaptive rate is multiplied by for a step in a tensor, 0 while its variance is not known."""
    correction, length, longest = _lengths(step, beta2)
    squared = _rectification(length, longest) * correction
    return function("where")(length > 5.0, squared, 0.0).sqrt()  # type: ignore[no-any-return]


def _lengths(step: Any, beta2: float) -> tuple[Any, Any, float]:
    """Return 1 - beta2 ** step, the length of the simple average that is as certain, and the longest there is."""
    correction = 1 - beta2**step
    longest = 2 / (1 - beta2) - 1
    return correction, longest - 2 * step * beta2**step / correction, longest


def _rectification(length: Any, longest: float) -> Any:
    return (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
