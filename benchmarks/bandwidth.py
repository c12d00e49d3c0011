"""Memory-bound kernels on a GPU beside PyTorch's: ``python -m benchmarks.bandwidth [--only NAME] [--save NAME]``.

Both sides run in this process, on the same numbers and in turns, timed by CUDA events around several calls; PyTorch's
calls and telegrad's are on a stream of their own each. A figure is telegrad's bandwidth over PyTorch's. The bandwidth
of a device copy, measured in the same run, is the ceiling that the others are held against.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import cupy as cp
import torch

from server.engine import context
from server.engine import functional as F
from server.engine.devices import open_device
from server.engine.value import Value
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

from . import bandwidth_cases, reduction_cases, row_cases
from .bandwidth_cases import Case
from .measure import Figure, about, figure, save
from .on_gpu import GPU, open_gpu

CASES = [*bandwidth_cases.CASES, *reduction_cases.CASES, *row_cases.CASES]
_TYPES = {getattr(torch, dtype.name): dtype for dtype in dtypes.ALL}
_CALLS = 10
_SAMPLES = 7
_NEAR_COPY = 0.97


def to_value(tensor: torch.Tensor) -> Value:
    """The tensor's storage as an engine value of the same layout."""
    gpu = open_device(GPU)
    dtype = _TYPES[tensor.dtype]
    length = tensor.untyped_storage().nbytes() // dtype.itemsize
    value = gpu.empty(Meta.of((length,), dtype, GPU))
    torch.cuda.synchronize()
    cp.cuda.runtime.memcpy(
        value.storage.block.pointer, tensor.untyped_storage().data_ptr(), value.meta.nbytes,
        cp.cuda.runtime.memcpyDeviceToDevice,
    )  # fmt: skip
    strides, offset = tuple(tensor.stride()), int(tensor.storage_offset())
    return Value(value.storage, Meta.of(tuple(tensor.shape), dtype, GPU, strides, offset), gpu)


def run(only: str = "") -> list[Figure]:
    """One figure per case and type, and the device copy first."""
    open_gpu()
    context.current.grad_enabled = False
    copied = _device_copy()
    found = [figure("device copy", "GB/s", copied)]
    ceiling = statistics.median(copied)
    chosen = [c for c in CASES if only in f"{c.family} {c.name}"]
    return found + [_guarded(case, dtype, ceiling) for case in chosen for dtype in case.types]


def _device_copy() -> list[float]:
    nbytes = 1 << 28
    source, target = (torch.empty(nbytes, dtype=torch.uint8, device="cuda") for _ in range(2))
    return [2 * nbytes / s / 1e9 for s in _timed(lambda: target.copy_(source), torch.cuda.current_stream().cuda_stream)]


def _guarded(case: Case, dtype: torch.dtype, ceiling: float) -> Figure:
    """A figure; a case that fails is one that misses its goal, and does not hide the others."""
    label = f"{case.family}: {case.name}, {str(dtype).removeprefix('torch.')}"
    try:
        return _compare(case, dtype, ceiling, label)
    except Exception as error:
        return Figure(
            label, "x torch", 0.0, 0.0, 0.0, f">= {case.at_least:g}", False, f"{type(error).__name__}: {error}"[:200]
        )


def _compare(case: Case, dtype: torch.dtype, ceiling: float, label: str) -> Figure:
    torch.manual_seed(1)
    tensors = case.inputs(dtype)
    values = [to_value(t) if isinstance(t, torch.Tensor) else t for t in tensors]
    with torch.no_grad():
        moved = (case.moved or _moved)(tensors, case.theirs(*tensors))
        stream = context.current.streams[GPU]
        ours, theirs = [], []
        for _ in range(_SAMPLES):
            ours += _timed(lambda: case.ours(F, *values), stream, samples=1)
            theirs += _timed(lambda: case.theirs(*tensors), torch.cuda.current_stream().cuda_stream, samples=1)
    mine, reference = (moved / statistics.median(s) / 1e9 for s in (ours, theirs))
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    share = mine / ceiling
    note = f"telegrad {mine:.0f} GB/s ({share:.2f} of a copy), PyTorch {reference:.0f}"
    measured = figure(label, "x torch", ratios, at_least=case.at_least, baseline=note, telegrad=mine, pytorch=reference)
    measured.extra["of_copy"] = share
    if case.near_copy:
        measured.extra["near_copy"] = share >= _NEAR_COPY
    return measured


def _moved(tensors: list[Any], result: Any) -> int:
    """Bytes of the memory behind all tensors, each element counted once."""
    results = result if isinstance(result, (tuple, list)) else [result]
    return sum(_bytes(t) for t in [*tensors, *results] if isinstance(t, torch.Tensor))


def _bytes(tensor: torch.Tensor) -> int:
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _timed(action: Callable[[], Any], stream: int, samples: int = _SAMPLES) -> list[float]:
    """Seconds per call on the GPU, by events around several of them."""
    with cp.cuda.ExternalStream(stream) as queue:
        action()
        found = []
        for _ in range(samples):
            begin, end = cp.cuda.Event(), cp.cuda.Event()
            begin.record(queue)
            for _ in range(_CALLS):
                action()
            end.record(queue)
            end.synchronize()
            found.append(cp.cuda.get_elapsed_time(begin, end) / 1e3 / _CALLS)
    return found


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bandwidth", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose family and name hold this text")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    figures = run(options.only)
    for each in figures:
        print(each.row())
    if options.save:
        save(options.save, figures, **about("cuda"))
    return int(any(each.met is False or each.extra.get("near_copy") is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
