"""Adagrad: J. Duchi et al., Adaptive subgradient methods (2011)."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import NotSupportedError

from ._lists import function
from .foreach import (
    ForeachOptimizer,
    State,
    Tensors,
    add_quotients,
    advanced,
    entries,
    number,
    setting,
    with_decay,
)
from .optimizer import Group, Parameters, check_at_least


class Adagrad(ForeachOptimizer):
    """param -= lr * grad / (root of the sum of squared gradients + eps)"""

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        check_at_least("lr_decay", lr_decay)
        check_at_least("weight_decay", weight_decay)
        check_at_least("initial_accumulator_value", initial_accumulator_value)
        check_at_least("epsilon", eps)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        })  # fmt: skip
        for group in self.param_groups:
            for parameter in group["params"]:
                self._state_of(group, parameter)

    def _new_state(self, group: Group, parameter: Tensor) -> State:
        start = group["initial_accumulator_value"]
        start = complex(start, start) if parameter.is_complex() else start
        return {"step": 0.0, "sum": function("full_like")(parameter.detach(), start)}

    def share_memory(self) -> None:
        """Do nothing: the state is the server's."""

    def _update_sparse(self, group: Group, parameter: Tensor, grad: Any) -> None:
        """Change stored rows alone."""
        if group["weight_decay"]:
            raise NotSupportedError("weight_decay option is not compatible with sparse gradients")
        kept = self._state_of(group, parameter)
        state = kept.opened()
        (step,) = advanced([state])
        kept.close(state)
        rate = number(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        grad = (-grad if group["maximize"] else grad).coalesce()
        state["sum"].add_(grad.like(grad.values().square()))
        roots = state["sum"].sparse_mask(grad).values().sqrt() + group["eps"]
        parameter.add_(grad.like(grad.values() / roots), alpha=-rate)

    def _step_lists(self, group: Group, params: Tensors, grads: Tensors, states: list[State]) -> None:
        steps = advanced(states)
        grads = with_decay(group, params, grads)
        sums, lr, decay = entries(states, "sum"), setting(group["lr"]), group["lr_decay"]
        function("_foreach_addcmul_")(sums, grads, grads, 1)
        roots = list(function("_foreach_sqrt")(sums))
        function("_foreach_add_")(roots, group["eps"])
        rates = [-lr / (1 + (step - 1) * decay) for step in steps]
        add_quotients(params, grads, roots, rates)
