"""``DistributedDataParallel`` in a group of one process, where it only calls its module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from telegrad._session.devices import DeviceLike
from telegrad.distributed.single import default_group
from telegrad.nn.modules.module import Module
from telegrad_protocol.errors import ArgumentError

from .scatter_gather import scatter_kwargs

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Calls ``module``, whose gradients are the mean over the group: over this process alone.

    Arguments go to the GPU of ``device_ids``, if one is given, as in PyTorch. Several GPUs of a session are used by
    ``DataParallel``.
    """

    def __init__(
        self, module: Module, device_ids: Sequence[DeviceLike] | None = None, output_device: DeviceLike = None,
        dim: int = 0, broadcast_buffers: bool = True, init_sync: bool = True, process_group: Any = None,
        bucket_cap_mb: float | None = None, find_unused_parameters: bool = False, check_reduction: bool = False,
        gradient_as_bucket_view: bool = False, static_graph: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.process_group = process_group or default_group("DistributedDataParallel")
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise ArgumentError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters that require a "
                "gradient."
            )
        if device_ids is not None and len(device_ids) > 1:
            raise ArgumentError(
                "DistributedDataParallel: device_ids can only be None or contain a single element; "
                "nn.DataParallel uses several GPUs"
            )
        self.module = module
        self.device_ids, self.output_device, self.dim = device_ids, output_device, dim
        self.device = next(module.parameters()).device
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.require_backward_grad_sync = True

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the module."""
        if self.device_ids and self.device.type == "cuda":
            scattered, named = scatter_kwargs(inputs, kwargs, self.device_ids, self.dim)
            inputs, kwargs = (scattered or ((),))[0], (named or ({},))[0]
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients without their mean, which is the same here."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextmanager
    def join(self, *args: Any, **options: Any) -> Iterator[None]:
        """Train on inputs of which other processes may have fewer: there are no others."""
        yield

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Take a function that would send gradients, which is not called, since none are sent."""

    def _set_static_graph(self) -> None:
        self.static_graph = True
