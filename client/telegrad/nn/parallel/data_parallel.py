"""``DataParallel``: a module that gives each GPU a part of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from telegrad._session.current import current_session
from telegrad._session.devices import DeviceLike, gpu_of
from telegrad.nn.modules.module import Module
from telegrad_protocol.errors import DeviceError
from telegrad_protocol.meta import Device

from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter_kwargs


def _indices(name: str, device_ids: Sequence[DeviceLike] | None) -> list[int]:
    """Return the indices of the GPUs, all of them where none are given."""
    gpus: Sequence[DeviceLike] = (
        [device for device in current_session().devices if device.type == "cuda"] if device_ids is None else device_ids
    )
    return [gpu_of(name, gpu).index or 0 for gpu in gpus]


def _check_place(module: Module, home: Device) -> None:
    for tensor in chain(module.parameters(), module.buffers()):
        if tensor.device is not home:
            raise DeviceError(
                f"module must have its parameters and buffers on device {home} (device_ids[0]) but found one of them "
                f"on device: {tensor.device}"
            )


class DataParallel(Module):
    """Splits the arguments of ``module`` over GPUs along ``dim``, and joins the results on ``output_device``.

    The module is on the first of ``device_ids``, by default of all GPUs. Every call copies its parameters to the
    others, and gradients flow back to them. On a server without a GPU it only calls the module.
    """

    def __init__(
        self, module: Module, device_ids: Sequence[DeviceLike] | None = None, output_device: DeviceLike = None,
        dim: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.module = module
        self.dim = dim
        self.device_ids = _indices("DataParallel", device_ids)
        if not self.device_ids:
            return
        self.output_device = _output_index("DataParallel", output_device, self.device_ids)
        self.src_device_obj = Device("cuda", self.device_ids[0])
        if len(self.device_ids) == 1:
            self.module.to(self.src_device_obj)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the module on all GPUs."""
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        _check_place(self.module, self.src_device_obj)
        scattered, named = self.scatter(inputs, kwargs, self.device_ids)
        if not scattered and not named:  # the module takes no arguments
            scattered, named = ((),), ({},)
        if len(self.device_ids) == 1:
            return self.module(*scattered[0], **named[0])
        replicas = self.replicate(self.module, self.device_ids[: len(scattered)])
        return self.gather(self.parallel_apply(replicas, scattered, named), self.output_device)

    def replicate(self, module: Module, device_ids: Sequence[DeviceLike]) -> list[Module]:
        """Copy the module to GPUs."""
        return replicate(module, device_ids)

    def scatter(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, device_ids: Sequence[DeviceLike]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Split arguments over GPUs."""
        return scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def parallel_apply(self, replicas: Sequence[Module], inputs: Sequence[Any], kwargs: Sequence[Any]) -> list[Any]:
        """Call the copies."""
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs: Sequence[Any], output_device: DeviceLike) -> Any:
        """Join results."""
        return gather(outputs, output_device, self.dim)


def _output_index(name: str, device: DeviceLike, device_ids: list[int]) -> int:
    """Return the index of the device that results go to, -1 for the CPU."""
    if device is None:
        return device_ids[0]
    if (isinstance(device, int) and device < 0) or (isinstance(device, (str, Device)) and Device(device).type == "cpu"):
        return -1
    return gpu_of(name, device).index or 0


def data_parallel(
    module: Module, inputs: Any, device_ids: Sequence[DeviceLike] | None = None, output_device: DeviceLike = None,
    dim: int = 0, module_kwargs: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Call ``module`` once as ``DataParallel`` does; ``inputs`` is one argument, or a tuple of them."""
    arguments = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    chosen = _indices("data_parallel", device_ids)
    if not chosen:
        raise DeviceError("data_parallel: no available GPUs were found")
    home = _output_index("data_parallel", output_device, chosen)
    _check_place(module, Device("cuda", chosen[0]))
    scattered, named = scatter_kwargs(arguments, module_kwargs, chosen, dim)
    if not scattered and not named:
        scattered, named = ((),), ({},)
    if len(chosen) == 1:
        return module(*scattered[0], **named[0])
    used = chosen[: len(scattered)]
    return gather(parallel_apply(replicate(module, used), scattered, named, used), home, dim)
