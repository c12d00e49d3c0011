"""Prometheus metrics of one server. Counts what it is told; asks nobody.

Each server has its own registry of metrics, so that several may live in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MEMORY: Final = {"allocated": "allocated_bytes.all.current", "reserved": "reserved_bytes.all.current"}
"""By the label ``kind`` of our gauge: the names of the values in PyTorch's memory statistics, in bytes."""


class KeptElsewhere(Collector):
    """A metric whose values sessions or workers keep; every scrape sets them before it collects them."""

    def __init__(
        self, name: str, help: str, labels: Sequence[str] = (),
        family: Callable[..., CounterMetricFamily | GaugeMetricFamily] = CounterMetricFamily,
    ) -> None:  # fmt: skip
        self._name, self._help, self._labels, self._family = name, help, labels, family
        self._values: dict[tuple[str, ...], float] = {}

    def set(self, value: float, *labels: str) -> None:
        """Set the value of one combination of labels."""
        self._values[labels] = value

    def clear(self) -> None:
        """Forget all values: a combination of labels that is not set again is not shown."""
        self._values.clear()

    def keep(self, first_labels: Collection[str]) -> None:
        """Forget the values whose first label is not among these."""
        self._values = {labels: value for labels, value in self._values.items() if labels[0] in first_labels}

    def collect(self) -> Iterable[Metric]:
        """Return the values as Prometheus wants them."""
        family = self._family(self._name, self._help, labels=self._labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return [family]


class Traffic(Protocol):
    """What an open session counts, and the registry for the sessions that are closed."""

    frames_received: int
    frames_sent: int
    bytes_received: int
    bytes_sent: int


class Metrics:
    """All metrics of one server, which ``/metrics`` shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.sessions = Gauge("telegrad_sessions", "Open sessions.", registry=self.registry)
        self.sessions_opened = Counter("telegrad_sessions_opened", "Sessions ever opened.", registry=self.registry)
        self.tensor_bytes = Counter(
            "telegrad_http_tensor_bytes", "Bytes of tensors sent over HTTP.", ["direction"], registry=self.registry
        )
        self.errors = Counter("telegrad_errors", "Errors answered, by code.", ["code"], registry=self.registry)
        self.frames = KeptElsewhere("telegrad_frames", "WebSocket frames.", ["direction"])
        self.bytes = KeptElsewhere("telegrad_bytes", "Bytes of WebSocket frames.", ["direction"])
        self.operations = KeptElsewhere("telegrad_operations", "Operations since the worker started.", ["worker"])
        self.worker_restarts = KeptElsewhere("telegrad_worker_restarts", "How often it was started again.", ["worker"])
        self.worker_up = _gauge("telegrad_worker_up", "Whether the worker answered this scrape.", "worker")
        self.worker_sessions = _gauge("telegrad_worker_sessions", "Sessions that live on the worker.", "worker")
        self.memory = _gauge(
            "telegrad_memory_bytes", "Device memory held by tensors, or reserved.", "worker", "device", "kind"
        )
        for kept in (
            self.frames, self.bytes, self.operations, self.worker_restarts, self.worker_up, self.worker_sessions,
            self.memory,
        ):  # fmt: skip
            self.registry.register(kept)

    def set_traffic(self, counted: Sequence[Traffic]) -> None:
        """Set the counters of frames and bytes to the sums over these."""
        self.frames.set(sum(traffic.frames_received for traffic in counted), "in")
        self.frames.set(sum(traffic.frames_sent for traffic in counted), "out")
        self.bytes.set(sum(traffic.bytes_received for traffic in counted), "in")
        self.bytes.set(sum(traffic.bytes_sent for traffic in counted), "out")

    def set_memory(self, worker: str, device: str, stats: Mapping[str, float]) -> None:
        """Set the memory of a device from its allocator's statistics."""
        for kind, name in MEMORY.items():
            self.memory.set(stats.get(name, 0), worker, device, kind)

    def keep_workers(self, numbers: Collection[str]) -> None:
        """Forget what was told of other workers: they have ended for good."""
        for kept in (self.operations, self.worker_up, self.worker_restarts, self.worker_sessions):
            kept.keep(numbers)

    def render(self) -> bytes:
        """Return the text that Prometheus reads."""
        return generate_latest(self.registry)


def _gauge(name: str, help: str, *labels: str) -> KeptElsewhere:
    return KeptElsewhere(name, help, labels, GaugeMetricFamily)
