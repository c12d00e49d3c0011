"""C++ and CUDA extensions beside PyTorch's: ``python -m benchmarks.extensions --device cuda:0 [--save NAME]``.

The seeds' ``load_inline`` example and a fused kernel of two types are compiled by both, from the same text, and
called from telegrad's client on a private server and from PyTorch in this process. Samples of both take turns. A sample
queues a number of calls and waits for the last; a figure is PyTorch's time over telegrad's, and the goal 0.97 at least.
Times of first calls and of builds are given without a goal. PyTorch needs nvcc and ninja on this machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

import telegrad as tg

from .measure import Figure, about, figure, save
from .on_gpu import loops, seconds

_AT_LEAST = 0.97
_SAMPLES = 7
_LONGER = 10
"""Samples take so many times what others of ``on_gpu`` take, since a millisecond passes until the GPU of a process that
was idle is at work."""
SQUARE = """
__global__ void square_matrix_kernel(const float* matrix, float* result, int width, int height) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;

    if (row < height && col < width) {
        int idx = row * width + col;
        result[idx] = matrix[idx] * matrix[idx];
    }
}

torch::Tensor square_matrix(torch::Tensor matrix) {
    const auto height = matrix.size(0);
    const auto width = matrix.size(1);

    auto result = torch::empty_like(matrix);

    dim3 threads_per_block(16, 16);
    dim3 number_of_blocks((width + threads_per_block.x - 1) / threads_per_block.x,
                          (height + threads_per_block.y - 1) / threads_per_block.y);

    square_matrix_kernel<<<number_of_blocks, threads_per_block>>>(
        matrix.data_ptr<float>(), result.data_ptr<float>(), width, height);

    return result;
    }

template <typename scalar_t>
__global__ void gated_kernel(const scalar_t* x, const scalar_t* y, scalar_t* out, int64_t count) {
    const int64_t step = int64_t(blockDim.x) * gridDim.x;
    for (int64_t at = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; at < count; at += step) {
        const float gate = 1.0f / (1.0f + expf(-static_cast<float>(x[at])));
        out[at] = static_cast<scalar_t>(gate * static_cast<float>(y[at]));
    }
}

torch::Tensor gated(torch::Tensor x, torch::Tensor y) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && y.is_contiguous(), "expected contiguous tensors on a GPU");
    auto out = torch::empty_like(x);
    const int blocks = static_cast<int>(std::min<int64_t>((x.numel() + 255) / 256, 8192));
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "gated", [&] {
        gated_kernel<scalar_t><<<blocks, 256>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), x.numel());
    });
    return out;
}

int64_t answer(int64_t number) { return number; }
"""
DECLARED = """
torch::Tensor square_matrix(torch::Tensor matrix);
torch::Tensor gated(torch::Tensor x, torch::Tensor y);
int64_t answer(int64_t number);
"""
OPTIONS: dict[str, Any] = {
    "name": "square_matrix_extension", "cpp_sources": DECLARED, "cuda_sources": SQUARE,
    "functions": ["square_matrix", "gated", "answer"], "with_cuda": True, "extra_cuda_cflags": ["-O2"],
}  # fmt: skip


def run(device: str, longer: int = _LONGER) -> list[Figure]:
    """Figures of calls of several sizes, of a call that waits, and of builds.

    Samples of calls take ``longer`` times what those of ``on_gpu`` take.
    """
    from torch.utils.cpp_extension import load_inline as theirs_inline

    from telegrad.utils.cpp_extension import load_inline as ours_inline

    with tempfile.TemporaryDirectory() as cache:
        os.environ["TELEGRAD_KERNEL_CACHE"] = f"{cache}/telegrad"
        os.environ["TORCH_EXTENSIONS_DIR"] = f"{cache}/torch"
        tg.connect()
        ours, build = _timed(lambda: ours_inline(**OPTIONS))
        theirs, reference_build = _timed(lambda: theirs_inline(**OPTIONS))
        figures = [_plain("build", "s", build, reference_build)]
        figures.append(_first_call(ours, theirs, device))
        for size in (16, 1024, 4096, 8192):
            x, y = tg.randn(size, size, device=device), torch.randn(size, size, device=device)
            figures.append(
                _compare(f"square_matrix {size}x{size}", ours.square_matrix, theirs.square_matrix, [x], [y], longer)
            )
            for name in ("float32", "float16"):
                left = [t.to(getattr(tg, name)) for t in (x, x)]
                right = [t.to(getattr(torch, name)) for t in (y, y)]
                figures.append(_compare(f"gated {name} {size}x{size}", ours.gated, theirs.gated, left, right, longer))
        figures.append(_waiting(ours))
        tg.disconnect()
    return figures


def _timed(action: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = action()
    return result, time.perf_counter() - begin


def _first_call(ours: Any, theirs: Any, device: str) -> Figure:
    x, y = tg.ones(8, 8, device=device), torch.ones(8, 8, device=device)
    _synchronize()
    torch.cuda.synchronize()
    mine = _timed(lambda: (ours.square_matrix(x), _synchronize()))[1]
    reference = _timed(lambda: (theirs.square_matrix(y), torch.cuda.synchronize()))[1]
    return _plain("first call", "ms", mine * 1e3, reference * 1e3)


def _plain(name: str, unit: str, mine: float, reference: float) -> Figure:
    return figure(f"{name}, telegrad", unit, [mine], baseline=f"PyTorch {reference:.3g} {unit}", pytorch=reference)


def _compare(name: str, ours: Any, theirs: Any, left: list[Any], right: list[Any], longer: int) -> Figure:
    """PyTorch's time over ours for calls that nobody waits for but at the end."""
    expected, result = theirs(*right), ours(*left)
    if tuple(result.shape) != tuple(expected.shape):
        raise AssertionError(f"{name}: {result.shape} is not {expected.shape}")
    pairs: list[tuple[Callable[[], Any], Callable[[], None]]] = [
        (lambda: ours(*left), _synchronize), (lambda: theirs(*right), torch.cuda.synchronize),
    ]  # fmt: skip
    for call, wait in pairs:
        for _ in range(200):  # the first calls of a line are measured by the server before it lets more wait
            call()
        wait()
    counts = [max(200, longer * loops(call, wait)) for call, wait in pairs]
    samples: list[list[float]] = [[], []]
    for _ in range(_SAMPLES):
        for (call, wait), count, into in zip(pairs, counts, samples, strict=True):
            into.append(seconds(call, wait, count))
    mine, reference = (statistics.median(s) * 1e6 for s in samples)
    ratios = [b / a for a, b in zip(*samples, strict=True)]
    note = f"telegrad {mine:.1f} us, PyTorch {reference:.1f} us"
    return figure(name, "x torch", ratios, at_least=_AT_LEAST, baseline=note, telegrad_us=mine, pytorch_us=reference)


def _waiting(ours: Any) -> Figure:
    """A call whose result is a number, which waits."""
    for _ in range(100):
        ours.answer(1)
    samples = [_timed(lambda: ours.answer(1))[1] * 1e6 for _ in range(500)]
    return figure("a call that waits", "us", samples)


def _synchronize() -> None:
    tg.cuda.synchronize()


def main() -> int:
    """Print the figures; status 1 if one misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--save", metavar="NAME")
    parser.add_argument("--longer", type=int, default=_LONGER, help="how many times the usual length samples have")
    options = parser.parse_args()
    figures = run(options.device, options.longer)
    for measured in figures:
        print(measured.row())
    if options.save:
        print(save(options.save, figures, **about(options.device)))
    return 1 if any(measured.met is False for measured in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
