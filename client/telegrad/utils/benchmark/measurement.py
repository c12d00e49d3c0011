"""What a timer has measured: times of repeated runs of one task, and what can be said of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean, median, pstdev
from typing import Any, Final

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_NAMES: Final = {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}
_MOST_FIGURES: Final = 4
_FINEST: Final = 25e-9
"""Seconds below which no difference is believed."""
_CONFIDENCE: Final = NormalDist().inv_cdf(0.95)
"""Standard errors on either side of a median that 90 % of such medians lie within."""
_WIDE: Final = 0.1
_VERY_WIDE: Final = 0.25
"""Shares of the median above which the range of the middle half is remarked on."""


@dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """What was timed: the code, and the words by which it is shown."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """What stands first where a measurement is shown."""
        if self.label is None and "\n" in self.stmt:
            return _listed("stmt", self.stmt, f" ({self.sub_label})" if self.sub_label else "")
        name = self.stmt if self.label is None else self.label
        return f"{name}: {self.sub_label}" if self.sub_label else name

    def setup_str(self) -> str:
        """The setup as it is shown; empty where there is none."""
        return "" if self.setup in ("", "pass") else _listed("setup", self.setup)

    def summarize(self) -> str:
        """Title, description and setup, each on a line of its own."""
        parts = [self.title, self.description or "", self.setup_str()]
        return "\n".join([part for part in parts if part])


def _listed(name: str, code: str, note: str = "") -> str:
    """Code behind a name; more than one line stands below it."""
    code = code.strip()
    return "\n  ".join([f"{name}:{note}", *code.split("\n")]) if "\n" in code else f"{name}: {code}"


@dataclass(init=True, repr=False)
class Measurement:
    """Times of runs, each of which executed the task ``number_per_run`` times. All times are seconds."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = field(default=None, compare=False)

    @property
    def times(self) -> list[float]:
        """The time of one execution, by run."""
        return [time / self.number_per_run for time in self.raw_times]

    @property
    def median(self) -> float:
        """The median over runs."""
        return median(self.times)

    @property
    def mean(self) -> float:
        """The mean over runs."""
        return fmean(self.times)

    @property
    def iqr(self) -> float:
        """The range of the middle half of the runs."""
        first, third = self._quartiles()
        return third - first

    def _quartiles(self) -> tuple[float, float]:
        return _quantile(self.times, 0.25), _quantile(self.times, 0.75)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median are more than noise: what 90 % confidence in the middle half leaves."""
        count = len(self.times)
        middle = sorted(self.times)[count // 4 : max(math.ceil(3 * count / 4), 1)]
        width = max(_CONFIDENCE * pstdev(middle) / math.sqrt(len(middle)), _FINEST)
        return min(max(math.floor(-math.log10(width / self.median)), 1), _MOST_FIGURES)

    @property
    def has_warnings(self) -> bool:
        """Whether the times vary so much that they say little."""
        return self.iqr > _WIDE * self.median

    def meets_confidence(self, threshold: float = _WIDE) -> bool:
        """Whether the range of the middle half is below a share of the median."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        """The title of the task that was timed."""
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        """What its row of a table is called."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "task_spec":
            raise AttributeError(name)
        return getattr(self.task_spec, name)

    def __repr__(self) -> str:
        unit = select_unit(self.median)[0]
        lines = [f"{object.__repr__(self)}", self.task_spec.summarize(), *self._figures(unit), self._counts()]
        return "\n".join([*lines, *self._remarks()])

    def _figures(self, unit: str) -> list[str]:
        scale = _UNITS[unit]
        if len(self.times) == 1:
            return [f"  {self.median / scale:.2f} {unit}"]
        low, high = self._quartiles()
        spread = f"  IQR:    {self.iqr / scale:.2f} {unit} ({low / scale:.2f} to {high / scale:.2f})"
        return [f"  Median: {self.median / scale:.2f} {unit}", *([spread] if len(self.times) > 3 else [])]

    def _counts(self) -> str:
        count, runs, threads = len(self.times), self.number_per_run, self.task_spec.num_threads
        each = f"{runs} runs per measurement," if count > 1 else f"{runs} runs ,"
        return f"  {count} measurement{'s' * (count > 1)}, {each} {threads} thread{'s' * (threads > 1)}"

    def _remarks(self) -> list[str]:
        share = self.iqr / self.median
        if share <= _WIDE:
            return []
        how = (
            "could indicate system fluctuation"
            if share <= _VERY_WIDE
            else "suggests significant environmental influence"
        )
        said = f"Interquartile range is {share * 100:.1f}% of the median measurement."
        return [f"  WARNING: {said}", f"           This {how}."]

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, of the times per execution of all of its measurements."""
        times: dict[TaskSpec, list[float]] = {}
        for each in measurements:
            times.setdefault(each.task_spec, []).extend(each.times)
        return [Measurement(1, found, task) for task, found in times.items()]


def _quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies, between two of them where it has to be."""
    ordered, place = sorted(values), share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a time has one to three digits before the point, and what it is in seconds."""
    power = int(min(max(math.log10(t) // 3 if t > 0 else 0, -3), 0))
    name = {-3: "ns", -2: "us", -1: "ms", 0: "s"}[power]
    return name, _UNITS[name]


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """Return each element once, in the order in which they came first."""
    return list(dict.fromkeys(elements))


def unit_to_english(u: str) -> str:
    """The word for a unit: ``us`` is microsecond."""
    return _NAMES[u]


def trim_sigfig(x: float, n: int) -> float:
    """The number rounded to so many significant digits."""
    if x == 0:
        return 0.0
    power = math.ceil(math.log10(abs(x)))
    scale = 10.0 ** (n - power)
    return float(round(x * scale) / scale)
