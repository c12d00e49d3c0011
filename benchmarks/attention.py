"""Attention beside PyTorch's on a GPU: ``python -m benchmarks.attention [--save PATH]``.

Causal, bfloat16, 16,384 tokens and 2,048 channels in all, heads side by side in memory as a projection leaves them;
forward, and backward alone, which is repeated on one graph, once its plan is there (docs/decisions/0063). PyTorch
chooses its kernel itself.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch

from server.engine.backward import grad
from server.engine.cuda.runtime.cudnn_graph import BUILT
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS

from . import on_gpu
from .measure import Figure, about, save_at

_ATTENTION = OPERATORS["scaled_dot_product_attention"]
_CAUSAL = (None, 0.0, True, None, False)
"""No mask, no dropout, causal, the default scale, no shared heads."""
LENGTHS = (512, 1024, 2048, 4096, 8192)
_UNTIL_PLANNED = 128
"""Launches after which cuDNN's plan has paid for itself for each of these shapes: from then on it serves."""
TOKENS, CHANNELS = 16384, 2048


def _case(batch: int, heads: int, length: int, width: int) -> list[torch.Tensor]:
    """Query, key, value and the gradient of the result, as (n, heads, length, width) over (n, length, heads, width)."""
    shape = (batch, length, heads, width)
    made = [torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(4)]
    return [t.requires_grad_() if i < 3 else t for i, t in enumerate(made)]


def _compare(label: str, tensors: list[torch.Tensor]) -> list[Figure]:
    *operands, cotangent = tensors
    *values, given = map(on_gpu.to_value, tensors)
    attend = torch.nn.functional.scaled_dot_product_attention
    frozen, constants = [t.detach() for t in operands], [v.alias() for v in values]
    theirs, ours = attend(*operands, is_causal=True), dispatch(_ATTENTION, (*values, *_CAUSAL))
    error = (on_gpu.to_tensor(ours).float() - theirs.detach().cpu().float()).abs().max().item()

    def backward() -> Any:
        return grad([ours], [given], values, retain_graph=True)

    for _ in range(_UNTIL_PLANNED):
        backward()
    return [
        on_gpu.compare(
            f"attention forward, {label}", lambda: dispatch(_ATTENTION, (*constants, *_CAUSAL)),
            lambda: attend(*frozen, is_causal=True), at_least=1.0, largest_difference=error,
        ),
        on_gpu.compare(
            f"attention backward, {label}", backward,
            lambda: torch.autograd.grad(theirs, operands, cotangent, retain_graph=True), at_least=1.0,
        ),
    ]  # fmt: skip


def run(lengths: tuple[int, ...] = LENGTHS) -> list[Figure]:
    """Two figures per length and width of a head, and two for GPT-2 small's shape."""
    torch.manual_seed(0)
    on_gpu.open_gpu()
    figures = _compare("GPT-2 small, T1024 d64", _case(8, 12, 1024, 64))
    for width in (64, 128):
        for length in lengths:
            figures += _compare(f"T{length} d{width}", _case(TOKENS // length, CHANNELS // width, length, width))
    return figures


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description=__doc__)
    parser.add_argument("--save", help="write the figures to this file")
    options = parser.parse_args()
    figures = run()
    for each in figures:
        print(each.row(), flush=True)
    print(f"cuDNN: {BUILT}")
    if options.save:
        counts = {"cudnn_graphs": BUILT.graphs, "cudnn_build_seconds": BUILT.seconds}
        save_at(options.save, figures, **about("cuda"), **counts)
    return int(any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
