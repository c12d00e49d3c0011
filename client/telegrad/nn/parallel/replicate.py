"""Copies of a module on several GPUs, whose gradients flow back to the module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from telegrad._session.devices import DeviceLike, gpu_of
from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.module import Module
from telegrad.nn.parameter import is_lazy
from telegrad_protocol.meta import Device

M = TypeVar("M", bound=Module)


def replicate(network: M, devices: Sequence[DeviceLike], detach: bool = False) -> list[M]:
    """Return a copy of the module on each GPU; with ``detach``, no gradients flow back.

    The copies' parameters are computed from the module's, so they are no leaves. On the GPU where a parameter or
    buffer is already, the copy has the tensor itself: what is written into buffers there stays.
    """
    return [_copy_on(gpu_of("replicate", device), network, detach) for device in devices]


def _copy_on(gpu: Device, network: M, detach: bool) -> M:
    copies: dict[Module, Module] = {module: _copy_of(module) for module in network.modules()}
    moved: dict[int, Tensor] = {}

    def on_gpu(tensor: Tensor) -> Tensor:
        copy = moved.get(id(tensor))
        if copy is None:
            copy = moved[id(tensor)] = (tensor.detach() if detach else tensor).to(gpu)
        return copy

    for module, copy in copies.items():
        for registry in ("_parameters", "_buffers"):
            entries: dict[str, Any] = module.__dict__[registry]
            for name, tensor in entries.items():
                copy.__dict__[registry][name] = None if tensor is None else on_gpu(tensor)
        for name, child in module._modules.items():
            copy._modules[name] = None if child is None else copies[child]
    return copies[network]  # type: ignore[return-value]


def _copy_of(module: Module) -> Module:
    if any(is_lazy(tensor) for tensor in (*module._parameters.values(), *module._buffers.values())):
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. "
            "Run a dummy forward pass to correctly initialize the modules"
        )
    replica: Module = module._replicate_for_data_parallel()
    return replica
