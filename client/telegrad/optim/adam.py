"""Adam (D. Kingma, J. Ba, 2015), AMSGrad (S. Reddi et al., 2018), and AdamW (I. Loshchilov, F. Hutter, 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._functions.creation import tensor
from telegrad._ops.functions import function
from telegrad._session.grad_mode import set_grad_enabled
from telegrad._tensor.number_checks import is_number
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import float32
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from ._lists import all_real, any_seen, has_complex, real
from .foreach import number, plus, setting
from .optimizer import ADDED, Group, Optimizer, Parameters, accepted_flags, check_at_least, lr_at


class Adam(Optimizer):
    """param -= lr * mean of gradients / (root of the mean of their squares + eps); decay is part of the gradient."""

    _step_supports_amp_scaling = True
    _added_settings = ADDED

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        check_at_least("epsilon", eps)
        check_at_least("weight_decay", weight_decay)
        check_betas(betas)
        flags = accepted_flags(foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, **flags, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for parameter, entry in self.state.items():
            if is_number(entry.get("step")):  # as PyTorch wrote it before 1.12
                entry["step"] = tensor(float(entry["step"]), dtype=float32, device=parameter.device)

    def _update(self, group: Group, params: list[Tensor], grads: list[Any]) -> None:
        states = [self.state[parameter] for parameter in params]
        if not all(states):
            states = [self._state_of(parameter, group["amsgrad"]) for parameter in params]
        is_unscaled = self.grad_scale is None and self.found_inf is None
        if group["differentiable"] or (is_unscaled and any_seen(params)):
            for parameter, grad, state in zip(params, grads, states, strict=True):
                _step_by_operations(group, parameter, grad, state)
            return
        beta1, beta2 = group["betas"]
        step = "_fused_adamw_" if group["decoupled_weight_decay"] else "_fused_adam_"
        lists = [
            params, grads, [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states],
            [s["max_exp_avg_sq"] for s in states] if group["amsgrad"] else [],
        ]  # fmt: skip
        if has_complex(params):
            lists = [all_real(tensors) for tensors in lists]
        function(step)(
            *lists, [s["step"] for s in states],
            lr=lr_at(group["lr"], params[0].device),
            beta1=float(beta1), beta2=float(beta2), weight_decay=group["weight_decay"], eps=group["eps"],
            amsgrad=group["amsgrad"], maximize=group["maximize"], advance=True, **self._scaling(params[0].device),
        )  # fmt: skip

    def _state_of(self, parameter: Tensor, amsgrad: bool) -> dict[str, Any]:
        state = self.state[parameter]
        if not state:
            state["step"] = function("zeros")((), dtype=float32, device=parameter.device)
            state["exp_avg"] = function("zeros_like")(parameter.detach())
            state["exp_avg_sq"] = function("zeros_like")(parameter.detach())
            if amsgrad:
                state["max_exp_avg_sq"] = function("zeros_like")(parameter.detach())
        return state


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameters directly."""

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


def _step_by_operations(group: Group, parameter: Tensor, grad: Any, state: dict[str, Any]) -> None:
    """Step one parameter by operations that its class, or a mode, sees each of, or that are differentiated."""
    with set_grad_enabled(bool(group["differentiable"])):
        if group["differentiable"]:
            state.update({name: value.clone() for name, value in state.items()})  # the step before has saved these
        _step_one(group, parameter, grad, state)


def _step_one(group: Group, parameter: Tensor, grad: Any, state: dict[str, Any]) -> None:
    """Step by PyTorch's formulas; the count of steps is read."""
    parameter, grad, mean, square = map(real, (parameter, grad, state["exp_avg"], state["exp_avg_sq"]))
    lr, decay, (beta1, beta2) = setting(group["lr"]), setting(group["weight_decay"]), map(setting, group["betas"])
    count = number(state["step"].add_(1))
    grad = grad.neg() if group["maximize"] else grad
    if decay and group["decoupled_weight_decay"]:
        parameter.mul_(1 - lr * decay)
    elif decay:
        grad = plus(grad, parameter, decay)
    mean.lerp_(grad, 1 - beta1)
    _add_product(square.mul_(beta2), grad, grad, 1 - beta2)
    if group["amsgrad"]:
        most = real(state["max_exp_avg_sq"])
        square = most.copy_(most.clone().maximum(square))
    divisor = (square.sqrt() / (1 - beta2**count) ** 0.5).add_(group["eps"])
    rate = lr / (1 - beta1**count)
    if isinstance(rate, Tensor):
        parameter.sub_(mean / divisor * rate)
    else:
        parameter.addcdiv_(mean, divisor, value=-rate)


def _add_product(target: Tensor, first: Tensor, second: Tensor, share: Any) -> None:
    """Add share * first * second; gradients flow to a share that is a tensor."""
    if isinstance(share, Tensor):
        target.add_(first * second * share)
    else:
        target.addcmul_(first, second, value=share)


def check_betas(betas: Any) -> None:
    """Refuse what is no pair of numbers in [0, 1)."""
    is_pair = isinstance(betas, Sequence) and len(betas) == 2
    if not is_pair or not all(is_number(beta) or isinstance(beta, Tensor) for beta in betas):
        raise ArgumentTypeError(f"betas must be two numbers, not {betas!r}")
    if isinstance(betas[0], Tensor) != isinstance(betas[1], Tensor):
        raise ArgumentError("betas must be either both floats or both Tensors")
    for place, beta in enumerate(betas):
        if not isinstance(beta, Tensor) and not 0.0 <= beta < 1.0:
            raise ArgumentError(f"Invalid beta parameter at index {place}: {beta}")
