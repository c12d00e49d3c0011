"""Stochastic gradient descent.

I. Sutskever et al., On the importance of initialization and momentum in deep learning (2013).
"""

from __future__ import annotations

from typing import Any, ClassVar

from telegrad._ops.functions import function
from telegrad._session.grad_mode import set_grad_enabled
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, NotSupportedError

from ._lists import all_real, any_seen, has_complex
from .foreach import plus, setting
from .optimizer import ADDED, Group, Optimizer, Parameters, accepted_flags, check_at_least, lr_at


class SGD(Optimizer):
    """buffer = momentum * buffer + (1 - dampening) * grad; param -= lr * buffer"""

    _added_settings: ClassVar[Group] = {**ADDED, "fused": False}

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float = 0, nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        check_at_least("momentum", momentum)
        check_at_least("weight_decay", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, **accepted_flags(foreach=foreach, differentiable=differentiable, fused=fused),
        }  # fmt: skip
        super().__init__(params, defaults)

    @property
    def _step_supports_amp_scaling(self) -> bool:  # type: ignore[override]
        """Not where the first step, which is not dampened, may be skipped: who knows here which is the first?

        Nor where a momentum buffer is of another type than its parameter.
        """
        return not any(
            group["momentum"]
            and (
                self._has_other_type(parameter)
                or (group["dampening"] and "momentum_buffer" not in self.state.get(parameter, {}))
            )
            for group in self.param_groups
            for parameter in group["params"]
        )

    def _has_other_type(self, parameter: Tensor) -> bool:
        """Whether the momentum buffer of a parameter is of another type than the parameter."""
        buffer = self.state.get(parameter, {}).get("momentum_buffer")
        return buffer is not None and buffer.dtype is not parameter.dtype

    def _stepped_alone(self, group: Group, params: list[Tensor]) -> list[int]:
        """Return the places of parameters whose steps are made operation by operation."""
        if group["differentiable"]:
            return [*range(len(params))]
        are_seen = self.grad_scale is None and self.found_inf is None and any_seen(params)
        return [
            place for place, parameter in enumerate(params if are_seen or group["momentum"] else ())
            if (are_seen and any_seen([parameter])) or (group["momentum"] and self._has_other_type(parameter))
        ]  # fmt: skip

    def _update(self, group: Group, params: list[Tensor], grads: list[Any]) -> None:
        others = self._stepped_alone(group, params)
        with set_grad_enabled(bool(group["differentiable"])):
            for i in others:
                self._update_alone(group, params[i], grads[i])
        if others:
            params, grads = ([each for i, each in enumerate(some) if i not in others] for some in (params, grads))
        if not group["momentum"]:
            if params:
                self._run(group, params, grads, [], False)
            return
        fresh = [self.state[p].get("momentum_buffer") is None for p in params]
        for is_first in (True, False):
            chosen = [i for i, f in enumerate(fresh) if f is is_first]
            if chosen:
                some = [params[i] for i in chosen]
                self._run(group, some, [grads[i] for i in chosen], [self._buffer(p) for p in some], is_first)

    def _update_sparse(self, group: Group, parameter: Tensor, grad: Any) -> None:
        """Change stored rows alone, unless there is momentum, whose buffer is dense."""
        if group["weight_decay"]:
            raise NotSupportedError("SGD: weight_decay is not supported with sparse gradients")
        self._update_alone(group, parameter, grad)

    def _update_alone(self, group: Group, parameter: Tensor, grad: Any) -> None:
        """Step by PyTorch's formulas, operation by operation."""
        self._refuse_scaling()
        grad = -grad if group["maximize"] else grad
        if group["weight_decay"]:
            grad = plus(grad, parameter, setting(group["weight_decay"]))
        if group["momentum"]:
            grad = self._with_momentum(group, parameter, grad)
        rate = setting(group["lr"])
        if isinstance(rate, Tensor):
            parameter.sub_(grad * rate)
        else:
            parameter.add_(grad, alpha=-rate)

    def _with_momentum(self, group: Group, parameter: Tensor, grad: Any) -> Any:
        state = self.state[parameter]
        if state.get("momentum_buffer") is None:
            buffer = state["momentum_buffer"] = grad.to_dense() if grad.is_sparse else grad.detach().clone()
        else:
            former = state["momentum_buffer"].clone() if group["differentiable"] else state["momentum_buffer"]
            buffer = state["momentum_buffer"] = former.mul_(group["momentum"]).add_(grad, alpha=1 - group["dampening"])
        return group["momentum"] * buffer + grad if group["nesterov"] else buffer

    def _refuse_scaling(self) -> None:
        if self.grad_scale is not None or self.found_inf is not None:
            raise NotSupportedError(
                "SGD: sparse gradients, and momentum of another type than its parameter, cannot be unscaled in a step; "
                "call scaler.unscale_() before"
            )

    def _buffer(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if state.get("momentum_buffer") is None:
            is_certain = self.found_inf is None  # to be written
            state["momentum_buffer"] = function("empty_like" if is_certain else "zeros_like")(parameter.detach())
        return state["momentum_buffer"]  # type: ignore[no-any-return]

    def _run(
        self, group: Group, params: list[Tensor], grads: list[Any], buffers: list[Tensor], is_first_step: bool
    ) -> None:
        if has_complex(params):
            params, grads, buffers = all_real(params), all_real(grads), all_real(buffers)
        function("_fused_sgd_")(
            params, grads, buffers, weight_decay=group["weight_decay"], momentum=group["momentum"],
            lr=lr_at(group["lr"], params[0].device),
            dampening=group["dampening"], nesterov=group["nesterov"], maximize=group["maximize"],
            is_first_step=is_first_step, **self._scaling(params[0].device),
        )  # fmt: skip
