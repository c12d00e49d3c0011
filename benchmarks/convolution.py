"""Convolutions of ResNet-50 beside PyTorch's on a GPU: ``python -m benchmarks.convolution [--save PATH]``.

bfloat16 with channels innermost, batches of 128; forward and the gradients by input and by weight, each alone. Ours are
dispatched as a session dispatches them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

import torch

from server.engine.cuda.runtime.cudnn_graph import BUILT
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS

from . import on_gpu
from .measure import Figure, about, figure, save_at

_CONVOLUTION, _WEIGHT_BACKWARD = OPERATORS["convolution"], OPERATORS["_convolution_weight_backward"]
BATCH = 128
LAYERS = (
    (3, 64, 7, 2, 224), (64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56), (256, 64, 1, 1, 56),
    (256, 128, 1, 1, 56), (128, 128, 3, 2, 56), (128, 512, 1, 1, 28), (256, 512, 1, 2, 56), (512, 128, 1, 1, 28),
    (128, 128, 3, 1, 28), (512, 256, 1, 1, 28), (256, 256, 3, 2, 28), (256, 1024, 1, 1, 14), (512, 1024, 1, 2, 28),
    (1024, 256, 1, 1, 14), (256, 256, 3, 1, 14), (1024, 512, 1, 1, 14), (512, 512, 3, 2, 14), (512, 2048, 1, 1, 7),
    (1024, 2048, 1, 2, 14), (2048, 512, 1, 1, 7), (512, 512, 3, 1, 7),
)  # fmt: skip
"""Channels in and out, kernel, stride, and the size of the images that come in."""
_FORMAT = torch.channels_last


def _picture(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(memory_format=_FORMAT)


def _compare(channels: int, made: int, kernel: int, stride: int, size: int) -> list[Figure]:
    label = f"{channels}->{made} {kernel}x{kernel}/{stride} at {size}"
    x, w = _picture(BATCH, channels, size, size), _picture(made, channels, kernel, kernel)
    padding = kernel // 2
    y = torch.conv2d(x, w, None, stride, padding)
    d = torch.randn_like(y)
    xv, wv, dv = map(on_gpu.to_value, (x, w, d))
    numbers: tuple[Any, ...] = ((stride,) * 2, (padding,) * 2, (1, 1))
    rest = (size - ((y.shape[-1] - 1) * stride - 2 * padding + kernel),) * 2
    aten = torch.ops.aten.convolution_backward

    def theirs(*mask: bool) -> Any:
        return aten(d, x, w, None, *numbers, False, (0, 0), 1, mask)

    figures = [
        on_gpu.compare(f"conv forward, {label}",
                       lambda: dispatch(_CONVOLUTION, (xv, wv, None, *numbers, False, (0, 0), 1)),
                       lambda: torch.conv2d(x, w, None, stride, padding), at_least=0.97, repeats=5),
        on_gpu.compare(f"conv weight gradient, {label}",
                       lambda: dispatch(_WEIGHT_BACKWARD, (dv, xv, (kernel, kernel), *numbers, 1, True)),
                       lambda: theirs(False, True, False), at_least=0.97, repeats=5),
    ]  # fmt: skip
    if channels > 3:  # nobody asks for the gradient of a picture
        figures.append(
            on_gpu.compare(f"conv input gradient, {label}",
                           lambda: dispatch(_CONVOLUTION, (dv, wv, None, *numbers, True, rest, 1)),
                           lambda: theirs(True, False, False), at_least=0.97, repeats=5)
        )  # fmt: skip
    return figures


def _totals(figures: list[Figure]) -> list[Figure]:
    """How the sums of all layers compare, per direction."""
    found = []
    for direction in ("forward", "input gradient", "weight gradient"):
        chosen = [f for f in figures if f.name.startswith(f"conv {direction},")]
        ours, theirs = (sum(f.extra[key] for f in chosen) for key in ("telegrad_us", "pytorch_us"))
        ratios = [f.value for f in chosen]
        note = f"telegrad {ours:.0f} us, PyTorch {theirs:.0f} us; median of layers {statistics.median(ratios):.3f}"
        found.append(figure(f"conv {direction}, all layers", "x torch", [theirs / ours], at_least=0.97, baseline=note))
    return found


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convolution", description=__doc__)
    parser.add_argument("--save", help="write the figures to this file")
    options = parser.parse_args()
    torch.manual_seed(0)
    on_gpu.open_gpu()
    figures = []
    for layer in LAYERS:
        found = _compare(*layer)
        figures += found
        for each in found:
            print(each.row(), flush=True)
    figures += (totals := _totals(figures))
    for each in totals:
        print(each.row())
    print(f"cuDNN: {BUILT}")
    if options.save:
        counts = {"cudnn_graphs": BUILT.graphs, "cudnn_build_seconds": BUILT.seconds}
        save_at(options.save, figures, **about("cuda"), **counts)
    return int(any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
