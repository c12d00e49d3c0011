"""Kernels of a program's own beside the same ones under PyTorch: ``python -m benchmarks.custom_kernels``.

A private server computes on the GPU, and this process has PyTorch on the same GPU. Both launch the same kernels, in
turns: Triton's softmax and product, a product in CUDA text, and one of Numba's. A figure is PyTorch's time over
telegrad's, with the goal 0.97 at least; times are those of a number of launches and the wait for the last. Beside it
stands of what they are made, for both: the kernel, as events around launches tell it that the device finds waiting, the
host, for which the calls keep the program, and the wait of one launch alone. The cost of the first call, compiler
included, is a row in seconds. What is not installed is left out, and said.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

import telegrad as tg

from .measure import Figure, about, figure, save

_AT_LEAST = 0.97
_SAMPLE_SECONDS = 40e-3
_SAMPLES = 25
_PART_SAMPLES = 7
_LAUNCHES_OF_PARTS = 50
_OCCUPYING, _OCCUPATIONS = 4096, 4
"""Products of such matrices take an H100 some 10 ms, in which launches are made that then do not wait for the host."""
MATMUL_TEXT = r"""
#define TILE 32
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float x[TILE][TILE], y[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float total = 0;
    for (int step = 0; step < n; step += TILE) {
        x[threadIdx.y][threadIdx.x] = a[row * n + step + threadIdx.x];
        y[threadIdx.y][threadIdx.x] = b[(step + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) total += x[threadIdx.y][k] * y[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = total;
}
"""


class Side(NamedTuple):
    """One of the two: how it runs the kernel on its operands, how it waits, and its result as PyTorch's tensor.

    ``event`` makes an event that is timed; ``occupy`` keeps the device busy for some milliseconds.
    """

    run: Callable[[], Any]
    wait: Callable[[], Any]
    result: Callable[[], torch.Tensor]
    event: Callable[[], Any]
    occupy: Callable[[], Any]


class Problem(NamedTuple):
    """A kernel under both."""

    name: str
    ours: Side
    theirs: Side


def _sides(
    run: Callable[..., Any], operands: list[torch.Tensor], shape: tuple[int, ...], dtype: str
) -> tuple[Side, Side]:
    mine = [tg.tensor(operand.cpu().numpy(), device="cuda") for operand in operands]
    out, target = tg.empty(shape, dtype=getattr(tg, dtype), device="cuda"), None
    target = torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")
    large, theirs = tg.ones(_OCCUPYING, _OCCUPYING, device="cuda"), torch.ones(_OCCUPYING, _OCCUPYING, device="cuda")
    ours = Side(
        lambda: run(*mine, out), tg.cuda.synchronize, lambda: torch.from_numpy(out.cpu().numpy()),
        lambda: tg.cuda.Event(enable_timing=True), lambda: large @ large,
    )  # fmt: skip
    return ours, Side(
        lambda: run(*operands, target), torch.cuda.synchronize, target.cpu,
        lambda: torch.cuda.Event(enable_timing=True), lambda: theirs @ theirs,
    )  # fmt: skip


def triton_problems() -> Iterator[Problem]:
    """Triton's kernels."""
    from . import triton_kernels

    for rows, columns in ((8192, 4096), (4096, 1000)):
        x = torch.randn(rows, columns, device="cuda")
        sides = _sides(triton_kernels.softmax, [x], (rows, columns), "float32")
        yield Problem(f"triton softmax {rows}x{columns}", *sides)
    for size in (4096, 1024):
        factors = [torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2)]
        sides = _sides(triton_kernels.matmul, factors, (size, size), "float16")
        yield Problem(f"triton matmul {size} float16", *sides)


def raw_problems() -> Iterator[Problem]:
    """A kernel in CUDA text."""
    size = 2048
    factors = [torch.randn(size, size, device="cuda") for _ in range(2)]
    kernels: dict[bool, Any] = {}

    def run(a: Any, b: Any, out: Any) -> None:
        is_theirs = isinstance(out, torch.Tensor)
        if is_theirs not in kernels:
            module = torch.cuda if is_theirs else tg.cuda
            kernels[is_theirs] = module._compile_kernel(MATMUL_TEXT, "matmul")  # type: ignore[attr-defined]
        kernels[is_theirs](grid=(size // 32, size // 32, 1), block=(32, 32, 1), args=[a, b, out, size])

    yield Problem(f"CUDA text, matmul {size} float32", *_sides(run, factors, (size, size), "float32"))


def numba_problems() -> Iterator[Problem]:
    """Numba's kernel, in shared memory."""
    from . import numba_kernels

    size = 2048
    factors = [torch.randn(size, size, device="cuda") for _ in range(2)]
    yield Problem(f"numba matmul {size} float32", *_sides(numba_kernels.matmul, factors, (size, size), "float32"))


def first_call(side: Side) -> float:
    """Seconds of the first call, with an empty cache of Triton's."""
    with tempfile.TemporaryDirectory() as folder:
        before, os.environ["TRITON_CACHE_DIR"] = os.environ.get("TRITON_CACHE_DIR"), folder
        begin = time.perf_counter()
        side.run()
        side.wait()
        seconds = time.perf_counter() - begin
        if before is None:
            del os.environ["TRITON_CACHE_DIR"]
        else:
            os.environ["TRITON_CACHE_DIR"] = before
        return seconds


def compare(problem: Problem) -> list[Figure]:
    """The ratio of speeds, and the cost of both first calls; a wrong result is an error."""
    ours, theirs = problem.ours, problem.theirs
    costs = [first_call(side) for side in (ours, theirs)]
    torch.testing.assert_close(ours.result().float(), theirs.result().float(), rtol=2e-2, atol=2e-2)
    launches = max(1, int(_SAMPLE_SECONDS / min(_seconds(theirs, 3), 1.0)))
    pairs = [(_seconds(ours, launches), _seconds(theirs, launches)) for _ in range(_SAMPLES + 2)][2:]
    ratios = [their / our for our, their in pairs]
    baseline = f"{1e6 * min(our for our, _ in pairs):.1f} us, torch {1e6 * min(their for _, their in pairs):.1f} us"
    parts = {f"{name}_{who}": value for who, side in (("own", ours), ("torch", theirs)) for name, value in _parts(side)}
    told = "; ".join(
        f"{name} {parts[f'{name}_own']:.1f}, torch {parts[f'{name}_torch']:.1f}" for name in ("kernel", "host", "alone")
    )
    return [
        figure(
            problem.name,
            "x torch",
            ratios,
            at_least=_AT_LEAST,
            baseline=f"{baseline} ({told})",
            launches=launches,
            **parts,
        ),
        figure(f"{problem.name}, first call", "s", costs[:1], baseline=f"torch {costs[1]:.2f} s"),
    ]


def _parts(side: Side) -> Iterator[tuple[str, float]]:
    """Yield microseconds of a launch: the kernel's on the device, the program's in the call, and of one waited for."""
    kernel, host = [], []
    for _ in range(_PART_SAMPLES):
        first, last = side.event(), side.event()
        side.wait()
        for _ in range(_OCCUPATIONS):
            side.occupy()
        first.record()
        begin = time.perf_counter()
        for _ in range(_LAUNCHES_OF_PARTS):
            side.run()
        host.append((time.perf_counter() - begin) / _LAUNCHES_OF_PARTS * 1e6)
        last.record()
        side.wait()
        kernel.append(first.elapsed_time(last) / _LAUNCHES_OF_PARTS * 1e3)
    yield "kernel", min(kernel)
    yield "host", min(host)
    yield "alone", min(_seconds(side, 1) for _ in range(_PART_SAMPLES)) * 1e6


def _seconds(side: Side, launches: int) -> float:
    side.wait()
    begin = time.perf_counter()
    for _ in range(launches):
        side.run()
    side.wait()
    return (time.perf_counter() - begin) / launches


SOURCES = {"triton": triton_problems, "numba": numba_problems, "": raw_problems}
"""What makes problems, by the package that it needs."""


def measured() -> Iterator[Figure]:
    """All figures; a problem that fails is a figure that was missed, and says why."""
    for package, problems in SOURCES.items():
        if package and importlib.util.find_spec(package) is None:
            print(f"{package} is not installed: left out")
            continue
        try:
            for problem in problems():
                yield from compare(problem)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            yield Figure(package or "CUDA text", "x torch", 0.0, 0.0, 0.0, f">= {_AT_LEAST:g}", False, reason)


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.custom_kernels", description=__doc__)
    parser.add_argument("--device", default="cuda:0", help="the GPU")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    torch.cuda.set_device(options.device)
    figures = []
    with tg.connect(devices=options.device):
        for one in measured():
            print(one.row(), flush=True)
            figures.append(one)
    if options.save:
        save(options.save, figures, **about("cuda"))
    return int(any(one.met is False for one in figures))


if __name__ == "__main__":
    sys.exit(main())
