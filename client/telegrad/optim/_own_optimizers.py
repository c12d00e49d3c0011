"""What ``torch.optim.optimizer`` has for optimizers that programs write as PyTorch writes its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType, float32, float64, get_default_dtype
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Device

F = TypeVar("F", bound=Callable[..., Any])
StateDict = dict[str, Any]
DeviceDict = dict[Device | None, Tensor]
DeviceDtypeDict = dict[tuple[Device, DType] | None, Tensor]
_FUSED_ON: Final = ("cpu", "cuda")
_params_doc = "params (iterable): parameters, pairs of a name and a parameter, or groups of either"
_foreach_doc = "foreach (bool, optional): whether operations on lists of tensors are used (default: None)"
_fused_doc = "fused (bool, optional): whether one kernel makes the whole step (default: None)"
_capturable_doc = "capturable (bool, optional): whether a step can be captured in a CUDA graph (default: False)"
_differentiable_doc = "differentiable (bool, optional): whether gradients pass through steps (default: False)"
_maximize_doc = "maximize (bool, optional): whether the objective grows rather than falls (default: False)"


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Return whether an optimizer in Python is to call fused kernels, and ``_foreach_`` functions: neither."""
    return False, False


def _device_dtype_check_for_fused(p: Tensor, cuda_unsupported: bool = False) -> None:
    """Raise AutogradError for a parameter that no fused kernel of PyTorch's takes."""
    places = [place for place in _FUSED_ON if not (cuda_unsupported and place == "cuda")]
    if p.device.type not in places or not p.dtype.is_floating_point:
        raise AutogradError(
            f"`fused=True` requires all the params to be floating point Tensors of supported devices: {places} but "
            f"{p.dtype} and {p.device.type}"
        )


def _disable_dynamo_if_unsupported(single_tensor_fn: Callable[..., Any] | None = None) -> Callable[[F], F]:
    """Return a decorator that leaves a step as it is, since no function is traced."""
    return lambda step: step


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    return ["cuda"]


def _get_scalar_dtype(is_fused: bool | None = None) -> DType:
    """Return the type that a step's number is kept in."""
    return float64 if get_default_dtype() is float64 and not is_fused else float32


def _get_value(x: Any) -> Any:
    """Return a number, read if it is a tensor."""
    return x.item() if isinstance(x, Tensor) else x


def _stack_if_compiling(x: Sequence[Tensor]) -> Any:
    """Return the tensors as they are: PyTorch stacks them where it traces a step, and no step is traced here."""
    return x


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Put views as pairs of real numbers into lists, in place of complex parameters and what belongs to them."""
    for place, parameter in enumerate(params):
        if parameter.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[place] = function("view_as_real")(tensors[place])
