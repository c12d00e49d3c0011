"""The profiler beside PyTorch's, and what it costs: ``python -m benchmarks.profiling [--device cuda:0] [--save NAME]``.

Kernel times are held against PyTorch's profiler where both libraries run a kernel of one name, and against the time
between two events around many launches. A training step's kernels and gaps, the one before the first kernel too, are
held against its wall time. The cost of an operation is that of a loop of small ones, with and without a profile. On the
CPU there is the cost alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from . import models
from .measure import Figure, figure, save

CALLS = 20
EVENT_CALLS = 100
"""Runs between two events, which add a few microseconds together."""
OCCUPATIONS = 8
"""Products before the first event: some 20 ms, in which the host gets ahead."""
ROUNDS = 7
STEPS = 20
SMALL_CALLS = 4000


def _cases(lib: Any, device: str) -> dict[str, Callable[[], Any]]:
    """Work of a few hundred microseconds, so that launches do not matter."""
    half = lib.randn(4096, 4096, device=device, dtype=lib.bfloat16)
    single = lib.randn(4096, 4096, device=device)
    large = lib.randn(1 << 26, device=device)
    host = lib.randn(1 << 24, device="cpu")
    return {
        "matmul 4096 bf16": lambda: half @ half,
        "matmul 4096 fp32": lambda: single @ single,
        "add 64M fp32": lambda: large + large,
        "softmax 4096x4096": lambda: lib.softmax(single, -1),
        "copy 64 MiB to the GPU": lambda: host.to(device),
    }


def _kernel_times(lib: Any, work: Callable[[], Any]) -> tuple[str, list[float]]:
    """The name of the kernel that took most of the time, and the microseconds of each of its runs."""
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
        return "no kernel", [0.0]
    name = max(kernels, key=lambda each: sum(kernels[each]))
    return name, kernels[name]


def _between_events(lib: Any, work: Callable[[], Any], occupy: Callable[[], Any]) -> float:
    """Microseconds of one run, of many in a row that the device finds waiting when it comes to the first event."""
    first, last = (lib.cuda.Event(enable_timing=True) for _ in range(2))
    lib.cuda.synchronize()
    for _ in range(OCCUPATIONS):
        occupy()
    first.record()
    for _ in range(EVENT_CALLS):
        work()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) * 1e3 / EVENT_CALLS


def kernel_figures(tg: Any, torch: Any, device: str) -> list[Figure]:
    """Times of kernels, as shares of what PyTorch's profiler and events say."""
    figures = []
    ours, theirs = _cases(tg, device), _cases(torch, device)
    for name, work in ours.items():
        work(), work()
        theirs[name](), theirs[name]()
        own_name, own = _kernel_times(tg, work)
        their_name, their = _kernel_times(torch, theirs[name])
        mine, reference = statistics.median(own), statistics.median(their)
        same = own_name == their_name or own_name.startswith("Memcpy")
        ratios = [1 + abs(time / reference - 1) for time in own]
        note = f"{mine:.1f} us, PyTorch's profiler {reference:.1f} us: {own_name[:60]} / {their_name[:60]}"
        goal = 1.03 if same else None
        figures.append(figure(f"{name}: kernel / PyTorch's profiler", "x", ratios, at_most=goal, baseline=note))
        if not own_name.startswith("Memcpy"):
            events = [_between_events(tg, work, ours["matmul 4096 fp32"]) for _ in range(ROUNDS)]
            apart = [1 + abs(mine * len(own) / CALLS / each - 1) for each in events]
            note = f"{mine:.1f} us, {statistics.median(events):.1f} us between events"
            figures.append(figure(f"{name}: kernel / events", "x", apart, at_most=1.03, baseline=note))
    return figures


def step_figures(tg: Any, device: str) -> list[Figure]:
    """How far kernels and gaps of training steps are from the steps' wall time."""
    figures = []
    for setting in (models.GPT_SMALL, models.GPT_MIDDLE):
        step = models.gpt(tg, setting, device)
        for _ in range(10):
            step()
        samples, texts = [], ""
        for _ in range(3):
            sums, wall, texts = _profiled_steps(tg, step)
            samples.append(1 + abs(sums / wall - 1))
        figures.append(figure(f"{setting.name}: kernels + gaps / wall", "x", samples, at_most=1.02, baseline=texts))
    return figures


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


def cost_figures(tg: Any, device: str, clock: Callable[[], float] = time.perf_counter) -> list[Figure]:
    """Microseconds that a small operation takes longer under a profile, client and worker together."""
    a, b = tg.randn(64, 64, device=device), tg.randn(64, 64, device=device)

    def loop() -> float:
        tg.cuda.synchronize()
        begin = clock()
        for _ in range(SMALL_CALLS):
            a + b
        tg.cuda.synchronize()
        return (clock() - begin) / SMALL_CALLS * 1e6

    loop()
    off, on, more = [], [], []
    for _ in range(ROUNDS):
        off.append(loop())
        with tg.profiler.profile():
            loop()
            on.append(loop())
        more.append(on[-1] - off[-1])
    return [
        figure("add 64x64: an operation without a profile", "us", off),
        figure("add 64x64: an operation under a profile", "us", on),
        figure("add 64x64: the difference", "us", more, at_most=2.0),
    ]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    import telegrad as tg

    described: dict[str, Any] = {"device": options.device}
    if options.device == "cpu":
        from server.worker.host import Host

        with tg.connect(in_process=Host(["cpu"])):  # one thread does the work of both, and nobody waits
            figures = cost_figures(tg, "cpu", time.process_time)
    else:
        import torch

        with tg.connect(devices=options.device):
            figures = cost_figures(tg, options.device)
            figures += [*step_figures(tg, options.device), *kernel_figures(tg, torch, options.device)]
            described |= {"gpu": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
            described["kernel_times"] = _way(tg, options.device)
    for each in figures:
        print(each.row())
    print(described)
    if options.save:
        save(options.save, figures, **described)


def _way(tg: Any, device: str) -> str:
    """Where the times of kernels come from, and why."""
    with tg.profiler.profile() as profile:
        tg.ones(2, device=device).add_(1)
    return "; ".join(f"{work.times}{': ' * bool(work.why)}{work.why}" for work in profile.device_work())


if __name__ == "__main__":
    main()
