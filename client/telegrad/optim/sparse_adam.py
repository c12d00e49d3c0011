"""Adam for sparse gradients: moments move, and parameters change, where a gradient has elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, NotSupportedError

from .adam import check_betas
from .foreach import number
from .optimizer import Group, Optimizer, Parameters, check_at_least


class SparseAdam(Optimizer):
    """Adam whose step changes only those elements, and their moments, that the sparse gradient stores.

    A step waits once for each parameter, whose gradient has to be coalesced.
    """

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, maximize: bool = False,
    ) -> None:  # fmt: skip
        for name, value in (("learning rate", lr), ("epsilon value", eps)):
            if not isinstance(value, Tensor) and not value > 0.0:
                raise ArgumentError(f"Invalid {name}: {value}")
        check_at_least("learning rate", lr)
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        self._refuse("Sparse", lambda parameter: parameter.is_sparse, "requires dense parameter tensors")
        self._refuse("Complex", lambda parameter: parameter.is_complex(), "does not support complex parameters")

    def _refuse(self, kind: str, is_refused: Callable[[Tensor], bool], why: str) -> None:
        """Raise ArgumentError where parameters are of a kind, with their groups and their places in these."""
        found = [
            [number, place]
            for number, group in enumerate(self.param_groups)
            for place, parameter in enumerate(group["params"])
            if is_refused(parameter)
        ]
        if found:
            raise ArgumentError(f"{kind} params at indices {found}: SparseAdam {why}")

    def _update(self, group: Group, params: list[Tensor], grads: list[Any]) -> None:
        raise NotSupportedError("SparseAdam does not support dense gradients, please consider Adam instead")

    def _update_sparse(self, group: Group, parameter: Tensor, grad: Any) -> None:
        state = self.state[parameter]
        if not state:
            zeros = function("zeros_like")
            state.update(step=0, exp_avg=zeros(parameter.detach()), exp_avg_sq=zeros(parameter.detach()))
        state["step"] += 1
        grad = (-grad if group["maximize"] else grad).coalesce()
        if not grad.count:
            return
        first, second = (
            self._moved(state[name], grad, values, beta)
            for name, values, beta in zip(
                ("exp_avg", "exp_avg_sq"), (grad.values(), grad.values().square()), group["betas"], strict=True
            )
        )
        corrections = [1 - beta ** state["step"] for beta in group["betas"]]
        rate = number(group["lr"]) * corrections[1] ** 0.5 / corrections[0]
        parameter.add_(grad.like(first / (second.sqrt() + group["eps"])), alpha=-rate)

    def _moved(self, average: Tensor, grad: Any, values: Tensor, beta: float) -> Tensor:
        """Move an average towards values where the gradient has elements, and return it there."""
        before = average.sparse_mask(grad).values()
        step = (values - before) * (1 - beta)
        average.add_(grad.like(step))
        return before + step
