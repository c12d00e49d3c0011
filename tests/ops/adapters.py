"""The two ways in which the operator tests call telegrad: the engine directly, and the client over a transport.

An adapter turns torch tensors into telegrad's (same values, strides and offset) and back, and finds functions by the
names that torch gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

from server.engine.devices import open_device  # which has NumPy pass invalid values, before a test changes that
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import CPU, Device, Meta

TORCH_TO_OURS = {getattr(torch, d.name): d for d in dtypes.ALL}
OURS_TO_TORCH = {ours: theirs for theirs, ours in TORCH_TO_OURS.items()}

CLIENT_OPTIONS = frozenset(("requires_grad", "layout", "pin_memory"))
"""Options of creation that the client applies itself; the engine does not know them."""


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A torch CPU tensor's elements; bfloat16 as ml_dtypes has it."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16).reshape(tensor.shape)
    if tensor.dtype is torch.complex32:
        return tensor.contiguous().view(torch.int32).numpy().view(ml_dtypes.complex32).reshape(tensor.shape)
    return tensor.numpy()


def to_torch(array: np.ndarray) -> torch.Tensor:
    """Undo ``to_numpy``."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if array.dtype == ml_dtypes.complex32:
        return torch.from_numpy(array.view(np.int32)).view(torch.complex32)
    return torch.from_numpy(array.copy())


class EngineAdapter:
    """Calls ``server.engine.functional`` on values."""

    def __init__(self, device: str = "cpu") -> None:
        from server.engine import functional, ops
        from server.engine.context import Context

        self.functional, self.ops = functional, ops
        self.device = Device(device)
        devices = {CPU, self.device}
        self.backends = {d: open_device(d) for d in devices}
        self.context = Context(self.backends)
        self.activate()

    def activate(self) -> None:
        """Make this adapter's context the engine's."""
        from server.engine import context

        context.activate(self.context)
        for backend in self.backends.values():
            backend.enter(self.context)
            backend.allow_waiting()

    def tensor(self, source: torch.Tensor, requires_grad: bool = False) -> Any:
        from server.engine.autograd.graph import make_leaf

        backend = self.backends[self.device]
        flat = source.detach()
        dtype = TORCH_TO_OURS[flat.dtype]
        length = flat.untyped_storage().nbytes() // dtype.itemsize
        holder = backend.empty(Meta.of((length,), dtype, self.device))
        backend.fill_from_host(holder, to_numpy(torch.as_strided(flat, (length,), (1,), 0)))
        meta = Meta.of(tuple(flat.shape), dtype, self.device, tuple(flat.stride()), flat.storage_offset())
        value = type(holder)(holder.storage, meta, backend)
        if requires_grad:
            make_leaf(value, True)
        return value

    def is_tensor(self, thing: Any) -> bool:
        from server.engine.value import Value

        return isinstance(thing, Value)

    def numpy(self, value: Any) -> np.ndarray:
        return self.backends[value.device].host_array(value)

    def strides(self, value: Any) -> tuple[int, ...]:
        return value.meta.strides

    def dtype(self, value: Any) -> DType:
        return value.meta.dtype

    def requires_grad(self, value: Any) -> bool:
        from server.engine.autograd.inplace import requires_grad

        return requires_grad(value)

    def function(self, name: str) -> Callable[..., Any]:
        found = getattr(self.functional, name.split(".")[-1])
        return lambda *args, **kwargs: found(*args, **{k: v for k, v in kwargs.items() if k not in CLIENT_OPTIONS})

    def convert(self, thing: Any) -> Any:
        """Attributes as telegrad takes them: dtypes and devices translated."""
        if isinstance(thing, torch.dtype):
            return TORCH_TO_OURS[thing]
        if isinstance(thing, torch.device) or thing == "cuda":  # the database's samples name what PyTorch has
            return self.device
        return thing

    def grad(self, outs: list[Any], cotangents: list[Any], inputs: list[Any], create_graph: bool) -> list[Any]:
        from server.engine.backward import grad

        return grad(outs, cotangents, inputs, create_graph=create_graph, retain_graph=True, allow_unused=True)
