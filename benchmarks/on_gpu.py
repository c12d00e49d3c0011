"""Timing of engine operations on a GPU beside PyTorch's: samples of both take turns, in one process.

Each sample queues a number of calls and waits for the last, so host time counts where it is more than the kernels'.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

from server.engine import context, ops
from server.engine.autograd.graph import make_leaf
from server.engine.context import Context
from server.engine.devices import open_device
from server.engine.value import Value
from telegrad_protocol import dtypes
from telegrad_protocol.meta import CPU, Device, Meta

from .measure import Figure, figure

_ = ops  # files every operation's kernels
GPU = Device("cuda:0")
TYPES = {
    torch.float32: dtypes.float32, torch.float16: dtypes.float16, torch.bfloat16: dtypes.bfloat16,
    torch.float64: dtypes.float64, torch.complex64: dtypes.complex64, torch.complex128: dtypes.complex128,
    torch.int64: dtypes.int64, torch.bool: dtypes.bool_,
}  # fmt: skip
_SAMPLE_SECONDS = 20e-3


def open_gpu() -> Any:
    """The engine's backend of the GPU, made current."""
    found = open_device(GPU)
    made = Context({CPU: open_device(CPU), GPU: found})
    context.activate(made)
    found.enter(made)
    return found


def to_value(tensor: torch.Tensor) -> Value:
    """The elements of a PyTorch tensor, in the same layout, as a value on the GPU; a leaf where the tensor is one."""
    device = open_device(GPU)
    flat = torch.as_strided(tensor.detach(), (tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0).cpu()
    array = flat.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if flat.dtype is torch.bfloat16 else flat.numpy()
    dtype = TYPES[tensor.dtype]
    holder = device.empty(Meta.of((flat.numel(),), dtype, GPU))
    device.fill_from_host(holder, np.asarray(array))
    meta = Meta.of(tuple(tensor.shape), dtype, GPU, tuple(tensor.stride()), tensor.storage_offset())
    value = Value(holder.storage, meta, device)
    if tensor.requires_grad:
        make_leaf(value, True)
    return value


def to_tensor(value: Value) -> torch.Tensor:
    """A value's elements, on the host."""
    array = np.ascontiguousarray(value.backend.to_host(value.array))
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def compare(
    name: str, ours: Callable[[], Any], theirs: Callable[[], Any], *, at_least: float, repeats: int = 9, **extra: Any
) -> Figure:
    """PyTorch's time over ours: how many times as fast telegrad is, whose launches wait as they do in a session."""
    device = open_device(GPU)
    device.allow_waiting()
    pairs = ((ours, device.synchronize), (theirs, torch.cuda.synchronize))
    for run, wait in pairs:
        run()
        run()
        wait()
    counts = [loops(run, wait) for run, wait in pairs]
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for (run, wait), count, into in zip(pairs, counts, samples, strict=True):
            into.append(seconds(run, wait, count))
    device.end_waiting()
    mine, reference = (statistics.median(s) * 1e6 for s in samples)
    ratios = [b / a for a, b in zip(*samples, strict=True)]
    note = f"telegrad {mine:.1f} us, PyTorch {reference:.1f} us"
    return figure(
        name, "x torch", ratios, at_least=at_least, baseline=note, telegrad_us=mine, pytorch_us=reference, **extra
    )


def loops(run: Callable[[], Any], wait: Callable[[], None]) -> int:
    """How many calls fill a sample."""
    once = seconds(run, wait, 1)
    if once > _SAMPLE_SECONDS:
        return 1
    return max(3, int(_SAMPLE_SECONDS / max(seconds(run, wait, 3), 1e-6)))


def seconds(run: Callable[[], Any], wait: Callable[[], None], count: int) -> float:
    """The seconds that a call takes, over a number of them and the wait for the last."""
    begin = time.perf_counter()
    for _ in range(count):
        run()
    wait()
    return (time.perf_counter() - begin) / count
