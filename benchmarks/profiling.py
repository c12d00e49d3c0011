"""The profiler beside PyTorch's, and what it costs: ``python -m benchmarks.profiling [--device cuda:0] [--save NAME]``.

Times of kernels are held against those that PyTorch's profiler tells of the same work, in turns: products for which
both call cuBLAS, kernels of one CUDA C++ text that both compile and launch, and a copy from pinned memory. A row has no
goal where the names of what ran differ. A training step's kernels and gaps, the one before the first kernel too, are
held against its wall time. The cost of an operation is that of a loop of small ones, with and without a profile, and by
processor time what each end adds. On the CPU there is the cost alone. What fails is said, and the rest is measured.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from . import models
from .measure import Figure, figure, save
from .profiling_cost import cost_figures, part_figures

CALLS = 20
ROUNDS = 7
STEPS = 20
ELEMENTS = 1 << 26
ROWS, COLUMNS = 1 << 14, 1 << 12
AXPY = r"""
extern "C" __global__ void profiled_axpy(const float4* x, const float4* y, float4* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 a = x[i], b = y[i];
        out[i] = make_float4(2.5f * a.x + b.x, 2.5f * a.y + b.y, 2.5f * a.z + b.z, 2.5f * a.w + b.w);
    }
}
"""
"""Reads and writes as fast as the memory does it."""
SOFTMAX = r"""
#define COLUMNS 4096
#define THREADS 256
__device__ float combined(float value, bool is_sum, float* shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float other = shared[threadIdx.x + half];
            shared[threadIdx.x] = is_sum ? shared[threadIdx.x] + other : fmaxf(shared[threadIdx.x], other);
        }
        __syncthreads();
    }
    float whole = shared[0];
    __syncthreads();
    return whole;
}
extern "C" __global__ void profiled_softmax(const float* x, float* out) {
    __shared__ float shared[THREADS];
    const float* row = x + (size_t)blockIdx.x * COLUMNS;
    float kept[COLUMNS / THREADS], largest = row[threadIdx.x], sum = 0.0f;
    for (int k = 0; k < COLUMNS / THREADS; k++) {
        kept[k] = row[threadIdx.x + k * THREADS];
        largest = fmaxf(largest, kept[k]);
    }
    largest = combined(largest, false, shared);
    for (int k = 0; k < COLUMNS / THREADS; k++) sum += kept[k] = __expf(kept[k] - largest);
    sum = combined(sum, true, shared);
    for (int k = 0; k < COLUMNS / THREADS; k++) {
        out[(size_t)blockIdx.x * COLUMNS + threadIdx.x + k * THREADS] = kept[k] / sum;
    }
}
"""
"""Waits for other threads and computes, too."""


class Case:
    """The same work for both libraries: ``work(lib, device)`` returns what does it once."""

    def __init__(self, name: str, work: Callable[[Any, str], Callable[[], Any]]) -> None:
        self.name, self.work = name, work


def _product(dtype: str) -> Callable[[Any, str], Callable[[], Any]]:
    def work(lib: Any, device: str) -> Callable[[], Any]:
        a = lib.randn(4096, 4096, device=device, dtype=getattr(lib, dtype))
        return lambda: a @ a

    return work


def _axpy(lib: Any, device: str) -> Callable[[], Any]:
    kernel = lib.cuda._compile_kernel(AXPY, "profiled_axpy")
    x, y = lib.randn(ELEMENTS, device=device), lib.randn(ELEMENTS, device=device)
    out, count = lib.empty_like(x), ELEMENTS // 4
    return lambda: kernel(grid=(count // 256, 1, 1), block=(256, 1, 1), args=[x, y, out, count])


def _softmax(lib: Any, device: str) -> Callable[[], Any]:
    kernel = lib.cuda._compile_kernel(SOFTMAX, "profiled_softmax")
    x = lib.randn(ROWS, COLUMNS, device=device)
    out = lib.empty_like(x)
    return lambda: kernel(grid=(ROWS, 1, 1), block=(256, 1, 1), args=[x, out])


def _copy(lib: Any, device: str) -> Callable[[], Any]:
    """A copy from pinned memory; telegrad pins by itself."""
    host = lib.randn(1 << 24, device="cpu").pin_memory()
    return lambda: host.to(device)


CASES = (
    Case("matmul 4096 bf16", _product("bfloat16")),
    Case("matmul 4096 fp32", _product("float32")),
    Case("CUDA text, axpy of 64M fp32", _axpy),
    Case("CUDA text, softmax 16384x4096 fp32", _softmax),
    Case("copy 64 MiB to the GPU, pinned", _copy),
)


def _kernel_times(lib: Any, work: Callable[[], Any]) -> tuple[str, float]:
    """The name of what took most of the GPU's time, and the median of the microseconds of its runs."""
    profiler = lib.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(CALLS):
            work()
        lib.cuda.synchronize()
    kernels: dict[str, list[float]] = {}
    for event in profile.events():
        if event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False):
            kernels.setdefault(event.name, []).append(event.time_range.elapsed_us())
    if not kernels:
        raise RuntimeError(f"{lib.__name__}: the profile has no kernels")
    name = max(kernels, key=lambda each: sum(kernels[each]))
    return name, statistics.median(kernels[name])


def _is_same(ours: str, theirs: str) -> bool:
    """Return whether two names are of the same work; of a copy PyTorch also says from which memory it comes."""
    return ours == theirs or theirs.startswith(f"{ours} (Pinned")


def kernel_figure(tg: Any, torch: Any, device: str, case: Case) -> Figure:
    """How far the time of a kernel is from what PyTorch's profiler says of the same one, in either direction."""
    ours, theirs = case.work(tg, device), case.work(torch, device)
    for lib, work in ((tg, ours), (torch, theirs)):
        for _ in range(CALLS):
            work()
        lib.cuda.synchronize()
    pairs = [(_kernel_times(tg, ours), _kernel_times(torch, theirs)) for _ in range(ROUNDS)]
    (own_name, _), (their_name, _) = pairs[-1]
    is_same = all(_is_same(own[0], their[0]) for own, their in pairs)
    mine, reference = (statistics.median([pair[side][1] for pair in pairs]) for side in (0, 1))
    apart = [1 + abs(own[1] / their[1] - 1) for own, their in pairs]
    note = f"{mine:.1f} us, PyTorch's profiler {reference:.1f} us: {own_name[:60]} / {their_name[:60]}"
    goal = 1.03 if is_same else None
    return figure(f"{case.name}: kernel / PyTorch's profiler", "x", apart, at_most=goal, baseline=note)


def step_figure(tg: Any, device: str, setting: models.Setting) -> Figure:
    """How far kernels and gaps of training steps are from the steps' wall time."""
    step = models.gpt(tg, setting, device)
    for _ in range(10):
        step()
    samples, texts = [], ""
    for _ in range(3):
        sums, wall, texts = _profiled_steps(tg, step)
        samples.append(1 + abs(sums / wall - 1))
    return figure(f"{setting.name}: kernels + gaps / wall", "x", samples, at_most=1.02, baseline=texts)


def _profiled_steps(tg: Any, step: Callable[[], Any]) -> tuple[float, float, str]:
    profiler = tg.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as profile:
        step()
        tg.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(STEPS):
            step()
        tg.cuda.synchronize()
        wall = (time.perf_counter() - begin) * 1e6
    begin_us = begin * 1e6  # on Linux both clocks are the monotonic one
    kernels = sorted((e.time_range.start, e.time_range.end) for e in profile.events() if e.device_type.name == "CUDA")
    kernels = [k for k in kernels if k[0] >= begin_us]
    if not kernels:
        return 0.0, wall, "no kernels"
    busy, at = 0.0, kernels[0][0]
    for start, end in kernels:
        busy += max(0.0, end - max(start, at))
        at = max(at, end)
    first = kernels[0][0] - begin_us
    gaps = at - kernels[0][0] - busy
    whole = first + gaps + busy
    text = (
        f"{STEPS} steps: wall {wall:.0f} us, kernels {busy:.0f} us, gaps {gaps:.0f} us and {first:.0f} us before the "
        f"first of {len(kernels)} kernels, {wall - whole:.0f} us after the last"
    )
    return whole, wall, text


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    import telegrad as tg

    described: dict[str, Any] = {"device": options.device}
    results = Results()
    from server.worker.host import Host

    with tg.connect(in_process=Host(["cpu"])):  # one thread does the work of both, and nobody waits
        if options.device == "cpu":
            results.add(lambda: cost_figures(tg, "cpu", time.process_time))
        results.add(lambda: part_figures(tg))
    if options.device != "cpu":
        described |= _on_gpu(tg, options.device, results)
    print(described)
    if options.save:
        save(options.save, results.figures, **described)
    sys.exit(results.failed)


class Results:
    """Figures as they come, each printed at once; ``failed`` counts what could not be measured."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []
        self.failed = 0

    def add(self, measured: Callable[[], list[Figure]]) -> None:
        """Measure some figures; what fails is printed, and the next ones may be measured."""
        try:
            figures = measured()
        except Exception:
            self.failed += 1
            traceback.print_exc()
            return
        self.figures += figures
        for each in figures:
            print(each.row(), flush=True)


def _on_gpu(tg: Any, device: str, results: Results) -> dict[str, Any]:
    """Measure everything on a GPU, and return what it was measured on."""
    import torch

    with tg.connect(devices=device):
        results.add(lambda: cost_figures(tg, device))
        for setting in (models.GPT_SMALL, models.GPT_MIDDLE):
            results.add(lambda setting=setting: [step_figure(tg, device, setting)])  # type: ignore[misc]
        for case in CASES:
            results.add(lambda case=case: [kernel_figure(tg, torch, device, case)])  # type: ignore[misc]
        described = {"gpu": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
        return {**described, "kernel_times": _way(tg, device)}


def _way(tg: Any, device: str) -> str:
    """Where the times of kernels come from, and why."""
    with tg.profiler.profile() as profile:
        tg.ones(2, device=device).add_(1)
    return "; ".join(f"{work.times}{': ' * bool(work.why)}{work.why}" for work in profile.device_work())


if __name__ == "__main__":
    main()
