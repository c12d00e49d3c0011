"""Pooling beside PyTorch's on a GPU, forward and backward alone: ``python -m benchmarks.pooling [--save PATH]``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch

from server.engine import functional as F
from server.engine.backward import grad

from . import on_gpu
from .measure import Figure, about, save_at

SHAPE = (128, 64, 112, 112)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "max 3x3/2": ("max_pool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    "max 2x2": ("max_pool2d", {"kernel_size": 2}),
    "mean 3x3/2": ("avg_pool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    "adaptive mean to 7x7": ("adaptive_avg_pool2d", {"output_size": (7, 7)}),
}


def _compare(label: str, name: str, options: dict[str, Any], dtype: torch.dtype, innermost: bool) -> list[Figure]:
    format = torch.channels_last if innermost else torch.contiguous_format
    x = torch.randn(SHAPE, device="cuda", dtype=dtype).to(memory_format=format).requires_grad_()
    theirs = getattr(torch.nn.functional, name)
    y = theirs(x, **options)
    d = torch.randn_like(y)
    value, given = on_gpu.to_value(x), on_gpu.to_value(d)
    ours = getattr(F, name)
    made, frozen, constant = ours(value, **options), x.detach(), value.alias()
    where = f"{label}, {str(dtype).removeprefix('torch.')}, {'channels_last' if innermost else 'contiguous'}"
    return [
        on_gpu.compare(f"pooling forward, {where}", lambda: ours(constant, **options),
                       lambda: theirs(frozen, **options), at_least=0.97, repeats=5),
        on_gpu.compare(f"pooling backward, {where}", lambda: grad([made], [given], [value], retain_graph=True),
                       lambda: torch.autograd.grad(y, x, d, retain_graph=True), at_least=0.97, repeats=5),
    ]  # fmt: skip


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pooling", description=__doc__)
    parser.add_argument("--save", help="write the figures to this file")
    options = parser.parse_args()
    torch.manual_seed(0)
    on_gpu.open_gpu()
    figures = []
    for label, case in CASES.items():
        for dtype in (torch.float32, torch.bfloat16):
            for innermost in (False, True):
                figures += _compare(label, *case, dtype, innermost)
    for each in figures:
        print(each.row())
    if options.save:
        save_at(options.save, figures, **about("cuda"))
    return int(any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
