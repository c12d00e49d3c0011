"""Contracts of gradient scaling: what ``amp.GradScaler`` does between a backward pass and an optimizer's step."""

from __future__ import annotations

from telegrad_protocol.dtypes import float32, int32
from telegrad_protocol.errors import DTypeError, ShapeError
from telegrad_protocol.meta import Meta

from .contract import op


def _check_number(name: str, label: str, meta: Meta, dtypes: tuple[object, ...] = (float32,)) -> None:
    if meta.numel != 1:
        raise ShapeError(f"{name}: {label} must have one element, got {meta}")
    if meta.dtype not in dtypes:
        raise DTypeError(f"{name}: {label} must be of type {' or '.join(d.name for d in dtypes)}, got {meta}")  # type: ignore[attr-defined]


@op(
    out=False, method=False, differentiable=False, updates=True, mutates=("self", "found_inf"),
    no_grad=("self", "found_inf", "inv_scale"),
)  # fmt: skip
def _amp_foreach_non_finite_check_and_unscale_(
    self: list[Meta], found_inf: Meta, inv_scale: Meta | None = None
) -> None:
    """Set ``found_inf`` to 1 if any element of any tensor is not finite, and multiply all by ``inv_scale``.

    Without ``inv_scale``, which PyTorch requires, the tensors are only looked at.
    """
    name = "_amp_foreach_non_finite_check_and_unscale_"
    for meta in self:
        if not meta.dtype.is_floating_point:
            raise DTypeError(f"{name}: expected floating-point tensors, got {meta}")
    _check_number(name, "found_inf", found_inf)
    if inv_scale is not None:
        _check_number(name, "inv_scale", inv_scale)


@op(
    out=False, method=False, differentiable=False, updates=True, mutates=("self", "growth_tracker"),
    no_grad=("self", "growth_tracker", "found_inf"),
)  # fmt: skip
def _amp_update_scale_(
    self: Meta, growth_tracker: Meta, found_inf: Meta, scale_growth_factor: float, scale_backoff_factor: float,
    growth_interval: int,
) -> Meta:  # fmt: skip
    """Shrink the scale if ``found_inf`` is set, and let it grow after ``growth_interval`` steps in a row without."""
    _check_number("_amp_update_scale_", "the scale", self)
    _check_number("_amp_update_scale_", "growth_tracker", growth_tracker, (int32,))
    _check_number("_amp_update_scale_", "found_inf", found_inf)
    return self
