"""Whether a series of samples grows, however much single samples vary."""

from __future__ import annotations

import statistics
from typing import NamedTuple

MOST_PAIRS = 400
"""Longer series are thinned out to so many samples: the slope is that of all pairs."""


class Trend(NamedTuple):
    """``start`` and ``end`` are medians of the first and last tenth; ``growth`` is the slope over the whole series."""

    start: float
    end: float
    growth: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        """Whether it grows by no more than is allowed."""
        return self.growth <= self.allowed


def trend_of(series: list[tuple[float, float]], allowed: float) -> Trend:
    """The trend of samples with their times, by the median of the slopes between all pairs (Theil and Sen)."""
    thin = series[:: len(series) // MOST_PAIRS + 1]
    slopes = [
        (later - earlier) / (then - first)
        for number, (first, earlier) in enumerate(thin) for then, later in thin[number + 1 :]
    ]  # fmt: skip
    tenth = max(len(series) // 10, 1)
    values = [value for _, value in series]
    seconds = series[-1][0] - series[0][0]
    growth = statistics.median(slopes) * seconds if slopes else 0.0
    return Trend(statistics.median(values[:tenth]), statistics.median(values[-tenth:]), growth, allowed)
