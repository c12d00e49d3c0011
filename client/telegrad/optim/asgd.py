"""Averaged stochastic gradient descent: B. Polyak, A. Juditsky, Acceleration of stochastic approximation (1992)."""

from __future__ import annotations

from typing import ClassVar

from telegrad._tensor.tensor import Tensor

from ._lists import function
from .foreach import (
    ForeachOptimizer,
    State,
    Tensors,
    add_multiples,
    advanced,
    entries,
    number,
    rate,
    with_decay,
    zeros_like,
)
from .optimizer import Group, Parameters, check_at_least


class ASGD(ForeachOptimizer):
    """param -= eta * (grad + lambd * param), with falling eta; ``ax`` in the state is the average of the parameter."""

    _numbers: ClassVar[tuple[str, ...]] = ("step", "eta", "mu")

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        check_at_least("weight_decay", weight_decay)
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def _new_state(self, group: Group, parameter: Tensor) -> State:
        return {"step": 0.0, "eta": number(group["lr"]), "mu": 1.0, "ax": zeros_like(parameter)}

    def _step_lists(self, group: Group, params: Tensors, grads: Tensors, states: list[State]) -> None:
        steps = advanced(states)
        lr, lambd = rate(group, states), group["lambd"]
        grads = with_decay(group, params, grads)
        function("_foreach_mul_")(params, [1 - lambd * state["eta"] for state in states])
        add_multiples(params, grads, [-state["eta"] for state in states])
        function("_foreach_lerp_")(entries(states, "ax"), params, [state["mu"] for state in states])
        for state, step in zip(states, steps, strict=True):
            state["eta"] = lr / (1 + lambd * lr * step) ** group["alpha"]
            since = step - group["t0"]
            state["mu"] = 1 / (since.clamp(min=1) if isinstance(since, Tensor) else max(1, since))
