"""Contracts of optimizer steps, and of what is done to all gradients at once: one instruction for a whole list.

Signatures are PyTorch's. ``grad_scale`` divides the gradients first, and stores them so; where ``found_inf`` is 1,
nothing is changed. ``advance``, which PyTorch does not have, counts ``state_steps`` up before they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from telegrad_protocol.dtypes import COMPLEX, FLOAT, float32, promote_types
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.meta import Meta

from .contract import Scalar, op


def _check_parallel(name: str, params: list[Meta], **lists: list[Meta]) -> None:
    """Refuse lists that do not go with the parameters one to one."""
    for meta in params:
        if meta.dtype.category != FLOAT:
            raise DTypeError(f"{name}: parameters must be floating-point, got {meta}")
    for label, metas in lists.items():
        if len(metas) != len(params):
            raise ArgumentError(f"{name}: {len(params)} parameters but {len(metas)} in {label}")
        for param, meta in zip(params, metas, strict=True):
            if meta.shape != param.shape:
                raise ShapeError(f"{name}: the parameter {param} and its entry {meta} in {label} differ in shape")
            if meta.dtype is not param.dtype:
                raise DTypeError(f"{name}: the parameter {param} and its entry {meta} in {label} differ in type")


def _check_scalars(name: str, **scalars: Meta | Scalar | None) -> None:
    for label, scalar in scalars.items():
        if isinstance(scalar, Meta) and scalar.numel != 1:
            raise ShapeError(f"{name}: {label} must have one element, got {scalar}")
        if scalar.dtype.category == COMPLEX if isinstance(scalar, Meta) else isinstance(scalar, complex):
            raise DTypeError(f"{name}: {label} must be a real number, got {scalar}")


def _check_steps(name: str, count: int, steps: list[Meta]) -> None:
    if len(steps) != count:
        raise ArgumentError(f"{name}: {count} parameters but {len(steps)} in state_steps")
    for meta in steps:
        if meta.numel != 1 or meta.dtype is not float32:
            raise ArgumentError(f"{name}: state_steps must be float32 tensors of one element, got {meta}")


@op(
    out=False, method=False, differentiable=False, updates=True, mutates=("params", "grads", "momentum_buffers"),
    no_grad=("params", "grads", "momentum_buffers", "lr", "grad_scale", "found_inf"),
)  # fmt: skip
def _fused_sgd_(
    params: list[Meta], grads: list[Meta], momentum_buffers: list[Meta], *, weight_decay: float, momentum: float,
    lr: Meta | Scalar, dampening: float, nesterov: bool, maximize: bool, is_first_step: bool,
    grad_scale: Meta | None = None, found_inf: Meta | None = None,
) -> None:  # fmt: skip
    """Make one step of stochastic gradient descent; in the first one the momentum buffers become the gradients."""
    _check_parallel("_fused_sgd_", params, grads=grads)
    if momentum or momentum_buffers:
        _check_parallel("_fused_sgd_", params, momentum_buffers=momentum_buffers)
    _check_scalars("_fused_sgd_", lr=lr, grad_scale=grad_scale, found_inf=found_inf)


_MOMENTS = ("params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps")
_ADAM_TENSORS = (*_MOMENTS, "lr", "grad_scale", "found_inf")


def _check_adam(
    name: str, params: list[Meta], grads: list[Meta], exp_avgs: list[Meta], exp_avg_sqs: list[Meta],
    max_exp_avg_sqs: list[Meta], state_steps: list[Meta], amsgrad: bool, **scalars: Meta | Scalar | None,
) -> None:  # fmt: skip
    _check_parallel(name, params, grads=grads, exp_avgs=exp_avgs, exp_avg_sqs=exp_avg_sqs)
    if amsgrad:
        _check_parallel(name, params, max_exp_avg_sqs=max_exp_avg_sqs)
    _check_steps(name, len(params), state_steps)
    _check_scalars(name, **scalars)


@op(out=False, method=False, differentiable=False, updates=True, mutates=_MOMENTS, no_grad=_ADAM_TENSORS)
def _fused_adam_(
    params: list[Meta], grads: list[Meta], exp_avgs: list[Meta], exp_avg_sqs: list[Meta], max_exp_avg_sqs: list[Meta],
    state_steps: list[Meta], *, lr: Meta | Scalar, beta1: float, beta2: float, weight_decay: float, eps: float,
    amsgrad: bool, maximize: bool, grad_scale: Meta | None = None, found_inf: Meta | None = None, advance: bool = False,
) -> None:  # fmt: skip
    """Make one step of Adam; the weight decay is added to the gradients."""
    _check_adam(
        "_fused_adam_", params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, amsgrad,
        lr=lr, grad_scale=grad_scale, found_inf=found_inf,
    )  # fmt: skip


@op(out=False, method=False, differentiable=False, updates=True, mutates=_MOMENTS, no_grad=_ADAM_TENSORS)
def _fused_adamw_(
    params: list[Meta], grads: list[Meta], exp_avgs: list[Meta], exp_avg_sqs: list[Meta], max_exp_avg_sqs: list[Meta],
    state_steps: list[Meta], *, lr: Meta | Scalar, beta1: float, beta2: float, weight_decay: float, eps: float,
    amsgrad: bool, maximize: bool, grad_scale: Meta | None = None, found_inf: Meta | None = None, advance: bool = False,
) -> None:  # fmt: skip
    """Make one step of AdamW; the weight decay shrinks the parameters directly."""
    _check_adam(
        "_fused_adamw_", params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, amsgrad,
        lr=lr, grad_scale=grad_scale, found_inf=found_inf,
    )  # fmt: skip


@op(out=False, method=False, differentiable=False, updates=True, mutates="tensors", no_grad="tensors")
def _foreach_zero_(tensors: list[Meta]) -> None:
    """Set all elements of all tensors to zero."""


@op(out=False, method=False, differentiable=False, updates=True, mutates="tensors", no_grad="tensors")
def _foreach_clamp_(tensors: list[Meta], min: float, max: float) -> None:
    """Limit all elements of all tensors to [min, max]."""
    _check_inexact("_foreach_clamp_", tensors)
    if any(meta.dtype.is_complex for meta in tensors):
        raise DTypeError("_foreach_clamp_: complex numbers have no order")


def _check_inexact(name: str, tensors: Sequence[Meta]) -> None:
    for meta in tensors:
        if meta.dtype.category < FLOAT:
            raise DTypeError(f"{name}: not defined for {meta}")


@op(out=False, method=False, differentiable=False, no_grad="tensors")
def _total_norm(tensors: list[Meta], norm_type: float = 2.0) -> Meta:
    """Compute the norm of the norms of all tensors, in their common type; for ``inf`` the largest magnitude."""
    if not tensors:
        raise ArgumentError("_total_norm: expected at least one tensor")
    _check_inexact("_total_norm", tensors)
    return tensors[0].like((), reduce(promote_types, [meta.dtype.to_real() for meta in tensors]))


@op(
    out=False, method=False, differentiable=False, updates=True, mutates="tensors", no_grad=("tensors", "total_norm")
)  # fmt: skip
def _clip_to_norm_(tensors: list[Meta], total_norm: Meta, max_norm: float) -> None:
    """Scale all tensors by max_norm / (total_norm + 1e-6), where that is less than 1."""
    _check_inexact("_clip_to_norm_", (*tensors, total_norm))
    _check_scalars("_clip_to_norm_", total_norm=total_norm)
