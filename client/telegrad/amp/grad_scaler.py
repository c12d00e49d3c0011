"""``GradScaler``: scale a loss so that float16 gradients do not vanish, and skip the steps in which they overflow.

The scale, its growth and whether gradients overflowed stay on the server. A step waits only with optimizers that cannot
skip a step on the server: then one round trip tells whether to step.
"""

from __future__ import annotations

import enum
import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from telegrad._ops.functions import function
from telegrad._ops.operands.asserted_errors import AssertedArgumentError, AssertedAutogradError
from telegrad._session.current import current_session
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import float16, float32, float64, int32
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, AutogradError, StateDictError
from telegrad_protocol.meta import Device

from .autocast_mode import device_type_of

_NO_GRADIENTS = "step: no parameter of this optimizer has a gradient"

_STATE = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")


class OptState(enum.Enum):
    """How far an optimizer is in this iteration."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class _Progress:
    """How far an optimizer is in this iteration, and for every device whether its gradients there overflowed."""

    def __init__(self) -> None:
        self.stage = OptState.READY
        self.found_inf: dict[Device, Tensor] = {}


class GradScaler:
    """Multiplies losses by a scale that shrinks when gradients overflow and grows while they do not."""

    def __init__(
        self, device: str | Device = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self._device = device_type_of("GradScaler", device.name if isinstance(device, Device) else device)
        self._enabled = bool(enabled) and _is_possible(self._device)
        if growth_factor <= 1.0:
            raise AssertedArgumentError(f"GradScaler: the growth factor must be > 1, got {growth_factor}")
        if backoff_factor >= 1.0:
            raise AssertedArgumentError(f"GradScaler: the backoff factor must be < 1, got {backoff_factor}")
        self._init_scale = float(init_scale)
        self._init_growth_tracker = 0
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._scale: Tensor | None = None
        self._growth_tracker: Tensor | None = None
        self._progress: defaultdict[int, _Progress] = defaultdict(_Progress)

    def scale(self, outputs: Any) -> Any:
        """Return the outputs times the scale, a tensor or an iterable of them."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale_at(outputs.device)
        if not isinstance(outputs, Iterable):
            raise ArgumentTypeError(f"scale: expected a tensor or an iterable, not {type(outputs).__name__}")
        scaled = map(self.scale, outputs)
        return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled

    def _scale_at(self, device: Device) -> Tensor:
        if self._scale is None:
            self._scale = function("full")((), self._init_scale, dtype=float32, device=device)
            self._growth_tracker = function("full")((), self._init_growth_tracker, dtype=int32, device=device)
        return self._scale.to(device)

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters by the scale now, instead of at its step."""
        if not self._enabled:
            return
        scale, _ = self._require_scale("unscale_")
        progress = self._progress[id(optimizer)]
        if progress.stage is OptState.UNSCALED:
            raise AutogradError("unscale_: has already been called on this optimizer since the last update()")
        if progress.stage is OptState.STEPPED:
            raise AutogradError("unscale_: is called after step()")
        with no_grad():
            inverse = scale.to(float64).reciprocal().to(float32)
        progress.found_inf = _check(optimizer, inverse)
        progress.stage = OptState.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Let the optimizer step, unless a gradient is infinite or NaN; unscales gradients that are not yet."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise AutogradError("step: a closure is not supported while GradScaler is enabled")
        scale, _ = self._require_scale("step")
        progress = self._progress[id(optimizer)]
        if progress.stage is OptState.STEPPED:
            raise AutogradError("step: has already been called since the last update()")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_on_the_server(optimizer, progress, scale, args, kwargs)
        else:
            result = self._step_if_finite(optimizer, progress, args, kwargs)
        progress.stage = OptState.STEPPED
        return result

    def _step_on_the_server(
        self, optimizer: Any, progress: _Progress, scale: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The optimizer's own instructions do nothing where an element is not finite; fused ones unscale, too.

        A step that is skipped leaves gradients that are unscaled, and with fused ones such that are not, as in PyTorch.
        """
        own = getattr(optimizer, "grad_scale", None)
        is_fused = any(group.get("fused") for group in optimizer.param_groups)
        if progress.stage is OptState.READY:
            if is_fused:
                progress.found_inf = _check(optimizer, None)
                optimizer.grad_scale = scale if own is None else scale * own
            else:
                self.unscale_(optimizer)
        optimizer.found_inf = found_inf = _any(progress, scale.device)
        if found_inf is None and not is_fused:
            raise AssertedAutogradError(_NO_GRADIENTS)
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            optimizer.grad_scale = own
            optimizer.found_inf = None

    def _step_if_finite(
        self, optimizer: Any, progress: _Progress, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """For optimizers that are programs: one round trip tells whether to step."""
        if progress.stage is OptState.READY:
            self.unscale_(optimizer)
        found_inf = _any(progress, None)
        if found_inf is None:
            raise AssertedAutogradError(_NO_GRADIENTS)
        return None if found_inf.item() else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the scale to whether gradients overflowed since the last update, or set it."""
        if not self._enabled:
            return
        scale, tracker = self._require_scale("update")
        if new_scale is not None:
            self._set_scale(scale, new_scale)
        else:
            flags = [_any(progress, scale.device) for progress in self._progress.values()]
            known = [flag for flag in flags if flag is not None]
            if not known:
                raise AssertedAutogradError("update: no gradients were checked before; call step() or unscale_() first")
            function("_amp_update_scale_")(
                scale, tracker, _largest(known), self._growth_factor, self._backoff_factor, self._growth_interval
            )
        self._progress.clear()

    def _set_scale(self, scale: Tensor, new_scale: float | Tensor) -> None:
        if not isinstance(new_scale, Tensor):
            scale.fill_(float(new_scale))
        elif new_scale.numel() != 1 or new_scale.requires_grad or new_scale.device.type != self._device:
            raise AssertedArgumentError(
                f"update: new_scale must be a number, or a tensor of one element on {self._device} that does not "
                f"require grad, not {new_scale._meta}"
            )
        else:
            scale.copy_(new_scale.reshape(()))

    def _require_scale(self, name: str) -> tuple[Tensor, Tensor]:
        if self._scale is None or self._growth_tracker is None:
            raise AssertedAutogradError(f"{name}: there is no scale yet; call scale() on the loss first")
        return self._scale, self._growth_tracker

    def get_scale(self) -> float:
        """The scale; 1 where disabled. One round trip."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """By how much the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set by how much the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """By how much the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set by how much the scale shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many steps without overflow the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many steps without overflow the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    def is_enabled(self) -> bool:
        """Whether this scaler does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """Scale, settings, and how many steps in a row were without overflow; empty where disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker(),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` gave."""
        if not self._enabled:
            return
        if not state_dict:
            raise StateDictError("load_state_dict: the state is empty; it was saved from a disabled GradScaler")
        missing = [name for name in _STATE if name not in state_dict]
        if missing:
            raise StateDictError(f"load_state_dict: the state lacks {', '.join(missing)}")
        self._init_scale = float(state_dict["scale"])
        if self._scale is not None:
            self._scale.fill_(self._init_scale)
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = int(state_dict["_growth_tracker"])
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(self._init_growth_tracker)


def _is_possible(device: str) -> bool:
    if device == "cuda" and not any(d.type == "cuda" for d in current_session().devices):
        warnings.warn("GradScaler: CUDA is not available; disabling it", stacklevel=3)
        return False
    return True


def _check(optimizer: Any, inverse: Tensor | None) -> dict[Device, Tensor]:
    """Check an optimizer's gradients for infinities and NaN, and multiply them by ``inverse``.

    Returns for every device a flag, a tensor that is 1.0 where there was one.
    """
    grads: defaultdict[Device, list[Tensor]] = defaultdict(list)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            if inverse is not None and grad.dtype is float16:
                raise ArgumentError(f"unscale_: attempting to unscale FP16 gradients: {grad._meta}")
            grads[grad.device].append(grad)
    found_inf = {device: function("zeros")((), dtype=float32, device=device) for device in grads}
    for device, listed in grads.items():
        factor = None if inverse is None else inverse.to(device)
        function("_amp_foreach_non_finite_check_and_unscale_")(listed, found_inf[device], factor)
    return found_inf


def _any(progress: _Progress, device: Device | None) -> Tensor | None:
    """Return whether gradients overflowed on any device, as a tensor on ``device``; None if there are no gradients."""
    flags = list(progress.found_inf.values())
    target = device or (flags[0].device if flags else None)
    return _largest([flag.to(target) for flag in flags]) if flags else None


def _largest(tensors: list[Tensor]) -> Tensor:
    largest = tensors[0]
    for tensor in tensors[1:]:
        largest = function("maximum")(largest, tensor)
    return largest
