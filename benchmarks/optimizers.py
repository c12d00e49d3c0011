"""Optimizer steps beside PyTorch's fused ones on a GPU: ``python -m benchmarks.optimizers [--save PATH]``.

AdamW and SGD on one tensor of 64 Mi elements and on the parameter list of GPT-2 small, and clipping that list's
gradients. Both sides run the operations that their optimizer's step runs, step counts included.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import torch

from server.engine import context
from server.engine import functional as F

from . import on_gpu
from .measure import Figure, about, save_at

AT_LEAST = 0.97
LARGE = [(1 << 26,)]
_ADAM = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
_SGD = {
    "weight_decay": 0.01, "momentum": 0.9, "lr": 1e-3, "dampening": 0.0, "nesterov": False, "maximize": False,
    "is_first_step": False,
}  # fmt: skip


def _gpt2() -> list[tuple[int, ...]]:
    """The shapes of GPT-2 small's parameters."""
    width = 768
    layer = [
        (width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,), (width,), (width,),
        (4 * width, width), (4 * width,), (width, 4 * width), (width,),
    ]  # fmt: skip
    return [(50257, width), (1024, width), *layer * 12, (width,), (width,)]


def _tensors(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.rand(shape, device="cuda").to(dtype) for shape in shapes]


def _bandwidth(measured: Figure, shapes: list[tuple[int, ...]], accesses: int, dtype: torch.dtype) -> Figure:
    elements = sum(torch.Size(shape).numel() for shape in shapes)
    gigabytes = elements * dtype.itemsize * accesses / 1e9
    measured.extra["gb_per_s"] = gigabytes / (measured.extra["telegrad_us"] * 1e-6)
    measured.baseline += f", {measured.extra['gb_per_s']:.0f} GB/s"
    return measured


def _adamw(label: str, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> Figure:
    theirs = [_tensors(shapes, dtype) for _ in range(4)]
    steps = [torch.ones((), device="cuda") for _ in shapes]
    ours = [[on_gpu.to_value(t) for t in one] for one in (*theirs, steps)]
    values = (*ours[:4], [], ours[4])

    def reference() -> Any:
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(*theirs, [], steps, amsgrad=False, maximize=False, **_ADAM)

    measured = on_gpu.compare(
        f"AdamW, {label}", lambda: F._fused_adamw_(*values, amsgrad=False, maximize=False, advance=True, **_ADAM),
        reference, at_least=AT_LEAST,
    )  # fmt: skip
    return _bandwidth(measured, shapes, 7, dtype)


def _sgd(label: str, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> Figure:
    theirs = [_tensors(shapes, dtype) for _ in range(3)]
    values = [[on_gpu.to_value(t) for t in one] for one in theirs]
    measured = on_gpu.compare(
        f"SGD with momentum, {label}", lambda: F._fused_sgd_(*values, **_SGD),
        lambda: torch._fused_sgd_(*theirs, **_SGD), at_least=AT_LEAST,
    )  # fmt: skip
    return _bandwidth(measured, shapes, 5, dtype)


def _clipping(label: str, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> Figure:
    grads = _tensors(shapes, dtype)
    values = [on_gpu.to_value(t) for t in grads]
    parameters = [torch.empty_like(t) for t in grads]
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad
    most = torch.nn.utils.get_total_norm(grads).item() * 1.001

    def ours() -> None:
        F._clip_to_norm_(values, F._total_norm(values, 2.0), most)

    return on_gpu.compare(
        f"clip_grad_norm_, {label}", ours, lambda: torch.nn.utils.clip_grad_norm_(parameters, most), at_least=AT_LEAST
    )


def run() -> Iterator[Figure]:
    """A figure per algorithm, list and type."""
    torch.manual_seed(0)
    on_gpu.open_gpu()
    context.current.grad_enabled = False
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        for label, shapes in ((f"64 Mi {name}", LARGE), (f"GPT-2 small {name}", _gpt2())):
            for measure in (_adamw, _sgd, _clipping):
                yield measure(label, shapes, dtype)
    yield _adamw("MLP of 6 small tensors", [(256, 784), (256,), (256, 256), (256,), (10, 256), (10,)], torch.float32)


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimizers", description=__doc__)
    parser.add_argument("--save", help="write the figures to this file")
    options = parser.parse_args()
    figures = []
    for each in run():
        figures.append(each)
        print(each.row(), flush=True)
    if options.save:
        save_at(options.save, figures, **about("cuda"))
    return int(any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
