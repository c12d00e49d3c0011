"""Adafactor: N. Shazeer, M. Stern, Adaptive learning rates with sublinear memory cost (2018)."""

from __future__ import annotations

from typing import ClassVar

from telegrad._ops.functions import function
from telegrad._tensor.dtype_limits import float_limits
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from .foreach import ForeachOptimizer, State, Tensors, advanced, number, zeros_like
from .optimizer import Group, Parameters, check_at_least


class Adafactor(ForeachOptimizer):
    """Steps divided by the root of squared gradients' means, kept as a row and a column per matrix, and clipped."""

    _added_settings: ClassVar[Group] = {"foreach": None}

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0, *,
        foreach: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        if not beta2_decay <= 0.0:
            raise ArgumentError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ArgumentError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ArgumentError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ArgumentError(f"Clipping threshold d should be >= 1 but is: {d}")
        check_at_least("weight_decay", weight_decay)
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize,
        })  # fmt: skip

    def _new_state(self, group: Group, parameter: Tensor) -> State:
        if parameter.is_complex():
            raise ArgumentError("Adafactor does not support complex parameters")
        if parameter.ndim < 2:
            return {"step": 0.0, "variance": zeros_like(parameter)}
        lead, (rows, columns) = tuple(parameter.shape[:-2]), parameter.shape[-2:]
        row, column = (parameter.new_zeros((*lead, *size)) for size in ((rows, 1), (1, columns)))
        return {"step": 0.0, "row_var": row, "col_var": column}

    def _step_lists(self, group: Group, params: Tensors, grads: Tensors, states: list[State]) -> None:
        advanced(states)
        for parameter, grad, state in zip(params, grads, states, strict=True):
            self._step_one(group, parameter, grad, state)

    def _step_one(self, group: Group, parameter: Tensor, grad: Tensor, state: State) -> None:
        lr, step, (least, smallest) = number(group["lr"]), state["step"], group["eps"]
        least = float_limits(parameter.dtype).eps if least is None else least
        size = parameter.detach().norm(2) / parameter.numel() ** 0.5
        rate = size.clamp(min=smallest) * min(lr, 1 / step**0.5)
        if group["weight_decay"]:
            parameter.mul_(1 - lr * group["weight_decay"])
        variance = _variance(grad, state, min(1.0, step ** group["beta2_decay"]), least)
        update = variance.clamp_(min=least * least).rsqrt_().mul_(grad)
        excess = (update.norm(2) / (update.numel() ** 0.5 * group["d"])).clamp(min=1.0)
        parameter.sub_(update.mul_(rate / excess))


def _variance(grad: Tensor, state: State, share: float, least: float) -> Tensor:
    """Move the means of squared gradients by ``share``, and return the estimate for every element."""
    square = grad * grad
    if grad.ndim < 2:
        state["variance"].lerp_(square, share)
        return state["variance"].clone()  # type: ignore[no-any-return]
    row, column = state["row_var"], state["col_var"]
    row.lerp_(square.mean(-1, keepdim=True), share)
    column.lerp_(square.mean(-2, keepdim=True), share)
    product: Tensor = function("matmul")(row, column)
    return product.div_(row.mean(-2, keepdim=True).clamp_(min=least))
