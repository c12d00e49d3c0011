"""Resilient backpropagation: M. Riedmiller, H. Braun, A direct adaptive method for faster learning (1993)."""

from __future__ import annotations

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from ._lists import function
from .foreach import ForeachOptimizer, State, Tensors, advanced, entries, number, zeros_like
from .optimizer import Group, Parameters, check_at_least


class Rprop(ForeachOptimizer):
    """param -= step size * sign of grad; a step size grows while the sign stays, and shrinks where it has changed."""

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ArgumentError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def _new_state(self, group: Group, parameter: Tensor) -> State:
        lr = number(group["lr"])
        size = complex(lr, lr) if parameter.is_complex() else lr
        sizes = function("full_like")(parameter.detach(), size)
        return {"step": 0.0, "prev": zeros_like(parameter), "step_size": sizes}

    def _step_lists(self, group: Group, params: Tensors, grads: Tensors, states: list[State]) -> None:
        advanced(states)
        (shrink, grow), (least, most) = group["etas"], group["step_sizes"]
        before, sizes = entries(states, "prev"), entries(states, "step_size")
        signs = list(function("_foreach_mul")(grads, before))
        function("_foreach_sign_")(signs)
        changed = list(function("_foreach_clamp_max")(signs, 0))  # -1 where the sign has changed
        factors = list(function("_foreach_clamp_min")(signs, 0))
        function("_foreach_mul_")(factors, grow - 1)
        function("_foreach_add_")(factors, changed, alpha=1 - shrink)
        function("_foreach_add_")(factors, 1)
        function("_foreach_mul_")(sizes, factors)
        function("_foreach_clamp_")(sizes, least, most)
        taken = list(function("_foreach_addcmul")(grads, grads, changed, 1))  # none where the sign has changed
        function("_foreach_copy_")(before, taken)
        directions = list(function("_foreach_sign")(taken))
        function("_foreach_addcmul_")(params, directions, sizes, -1)
