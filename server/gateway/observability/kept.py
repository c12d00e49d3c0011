"""Metrics whose values somebody else keeps, such as workers: every scrape sets them before it collects them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate
from typing import Any, Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from server.ipc.measures import BOUNDS, HistogramState

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
_LIMITS: Final = (*map(str, BOUNDS), "+Inf")


class KeptElsewhere(Collector):
    """A metric of which a scrape sets the values; ``family`` says of which kind it is."""

    def __init__(
        self, name: str, help: str, labels: Sequence[str] = (), family: Callable[..., Family] = CounterMetricFamily
    ) -> None:  # fmt: skip
        self._name, self._help, self._labels, self._family = name, help, labels, family
        self._values: dict[tuple[str, ...], Any] = {}

    def set(self, value: float | HistogramState, *labels: str) -> None:
        """Set the value of one combination of labels."""
        self._values[labels] = value

    def add(self, value: float, *labels: str) -> None:
        """Add to the value of one combination of labels, which is 0 where it was not set."""
        self._values[labels] = self._values.get(labels, 0) + value

    def clear(self) -> None:
        """Forget all values: a combination of labels that is not set again is not shown."""
        self._values.clear()

    def keep(self, first_labels: Collection[str]) -> None:
        """Forget the values whose first label is not among these."""
        self._values = {labels: value for labels, value in self._values.items() if labels[0] in first_labels}

    def forget(self, first_label: str) -> None:
        """Forget the values with this first label."""
        self._values = {labels: value for labels, value in self._values.items() if labels[0] != first_label}

    def collect(self) -> Iterable[Metric]:
        """Return the values as Prometheus wants them."""
        family = self._family(self._name, self._help, labels=self._labels)
        for labels, value in self._values.items():
            if isinstance(family, HistogramMetricFamily):
                family.add_metric(labels, list(zip(_LIMITS, accumulate(value.counts))), value.sum)
            else:
                family.add_metric(labels, value)
        return [family]
