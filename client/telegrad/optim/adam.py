"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from telegrad_protocol.dtypes import float32

from .._functions import function
from .._tensor import Tensor
from .optimizer import Group, Optimizer, check_range


class Adam(Optimizer):
    """Adam, as ``torch.optim.Adam``; one instruction per step."""

    _operation = "_fused_adam_"

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        check_range("learning rate", lr)
        check_range("epsilon value", eps)
        check_range("beta parameter at index 0", betas[0], high=1.0)
        check_range("beta parameter at index 1", betas[1], high=1.0)
        check_range("weight_decay value", weight_decay)
        super().__init__(
            params,
            {
                "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
                "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
                "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
            },
        )  # fmt: skip

    def _update(self, group: Group, params: list[Tensor]) -> None:
        decoupled = group["decoupled_weight_decay"]
        beta1, beta2 = group["betas"]
        function("_fused_adamw_" if decoupled else self._operation)(
            params, [p._grad for p in params], self._buffers(params, "exp_avg"), self._buffers(params, "exp_avg_sq"),
            self._buffers(params, "max_exp_avg_sq") if group["amsgrad"] else [], [self._step_of(p) for p in params],
            lr=group["lr"], beta1=beta1, beta2=beta2, weight_decay=group["weight_decay"], eps=group["eps"],
            amsgrad=group["amsgrad"], maximize=group["maximize"], advance=True,
        )  # fmt: skip

    def _step_of(self, param: Tensor) -> Tensor:
        state = self.state[param]
        found = state.get("step")
        if found is None:
            found = state["step"] = function("zeros")((), dtype=float32, device=param.device)
        return found  # type: ignore[no-any-return]


class AdamW(Adam):
    """Adam with decoupled weight decay, as ``torch.optim.AdamW``."""

    _operation = "_fused_adamw_"

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip
