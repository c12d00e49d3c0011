"""Timing: warm-up, repeats, median and spread; and the table and JSON that results end up in."""

from __future__ import annotations

import datetime
import gc
import json
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

RESULTS = pathlib.Path(__file__).parent / "results"


@dataclass
class Figure:
    """One measured figure: ``value`` is the median of repeats, ``low`` and ``high`` their quartiles."""

    name: str
    unit: str
    value: float
    low: float
    high: float
    goal: str = ""
    met: bool | None = None
    baseline: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    def row(self) -> str:
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        spread = f"{self.low:.3g}..{self.high:.3g}"
        measured = f"{self.name:<52} {self.value:>10.4g} {self.unit:<7} {spread:>18}"
        return f"{measured}  {self.goal:<12} {verdict:<7} {self.baseline}"


def step_seconds(step: Callable[[], Any], count: int) -> float:
    """Return the seconds of a step on the clock, over a number of them; the last loss is read."""
    begin = time.perf_counter()
    for _ in range(count):
        loss = step()
    loss.item()
    return (time.perf_counter() - begin) / count


def figure(
    name: str, unit: str, samples: list[float], *, at_most: float | None = None, at_least: float | None = None,
    baseline: str = "", **extra: Any,
) -> Figure:  # fmt: skip
    """A figure of repeated samples, held against its goal."""
    ordered = sorted(samples)
    value = statistics.median(ordered)
    low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    if at_most is not None:
        return Figure(name, unit, value, low, high, f"<= {at_most:g}", value <= at_most, baseline, extra)
    if at_least is not None:
        return Figure(name, unit, value, low, high, f">= {at_least:g}", value >= at_least, baseline, extra)
    return Figure(name, unit, value, low, high, baseline=baseline, extra=extra)


def without_goal(measured: Figure) -> Figure:
    """The figure alone, where its goal does not apply."""
    return replace(measured, goal="", met=None)


def repeat(action: Callable[[], Any], repeats: int, warmup: int = 1) -> list[float]:
    """Seconds of each call, without the garbage collector's pauses."""
    for _ in range(warmup):
        action()
    samples = []
    gc.collect()
    for _ in range(repeats):
        begin = time.perf_counter()
        action()
        samples.append(time.perf_counter() - begin)
    return samples


def percentile(samples: list[float], share: float) -> float:
    """The value that ``share`` of the samples do not exceed."""
    ordered = sorted(samples)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def about(device: str) -> dict[str, str]:
    """What figures beside PyTorch's were measured on: telegrad's device, the GPU's name, PyTorch's version."""
    import torch

    gpu = {} if device == "cpu" else {"gpu": torch.cuda.get_device_name()}
    return {"device": device, **gpu, "torch": str(torch.__version__)}


def shown(figures: Iterable[Figure]) -> list[Figure]:
    """Return figures, each of which is printed as soon as it is measured."""
    measured = []
    for one in figures:
        print(one.row(), flush=True)
        measured.append(one)
    return measured


def save(name: str, figures: list[Figure], **about: Any) -> pathlib.Path:
    """Write figures as JSON beside the other results, with date, machine and versions."""
    RESULTS.mkdir(exist_ok=True)
    return save_at(RESULTS / f"{name}.json", figures, **about)


def save_at(path: str | pathlib.Path, figures: list[Figure], **about: Any) -> pathlib.Path:
    """Write figures as JSON into a file."""
    now = datetime.datetime.now(datetime.UTC)
    about = {"date": now.strftime("%Y-%m-%d"), "python": platform.python_version(), "cpus": _cpus(), **about}
    path = pathlib.Path(path)
    path.write_text(json.dumps({**about, "figures": [asdict(f) for f in figures]}, indent=1) + "\n")
    return path


def _cpus() -> int:
    import os

    return len(os.sched_getaffinity(0))
