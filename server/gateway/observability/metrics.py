"""Prometheus metrics of one server. Counts what it is told; asks nobody.

Each server has its own registry of metrics, so that several may live in one process. The table in
docs/observability.md is generated from ``Metrics``, so a metric's help is its documentation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from server import __version__
from server.ipc.measures import TenantLoad, WorkerState

from .kept import KeptElsewhere

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MEMORY: Final = {"allocated": "allocated_bytes.all.current", "reserved": "reserved_bytes.all.current"}
"""By the label ``kind`` of our gauge: the names of the values in PyTorch's memory statistics, in bytes."""
REQUEST_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)

Own = TypeVar("Own", Counter, Gauge, Histogram)


class Described(NamedTuple):
    """A metric as a table shows it. ``name`` is that of a counter's series, with ``_total``."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


class Traffic(Protocol):
    """What an open session counts, and what is kept of a tenant's sessions that are closed."""

    frames_received: int
    frames_sent: int
    bytes_received: int
    bytes_sent: int


class Metrics:
    """All metrics of one server, which ``/metrics`` shows. Labels are bounded: no session and no line is one."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.described: list[Described] = []
        self._of_workers: list[KeptElsewhere] = []
        ProcessCollector(registry=self.registry)
        own, kept, of_worker = self._own, self._kept, self._of_worker
        counter, gauge, histogram = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
        own(Gauge, "build_info", "1; the label tells the version of the server.", "version").labels(__version__).set(1)

        self.sessions = own(Gauge, "sessions", "Open sessions.")
        self.sessions_opened = own(Counter, "sessions_opened", "Sessions ever opened.")
        self.sessions_lost = own(
            Counter, "sessions_lost", "Sessions that a crash, a limit or a defect ended, by error.", "code", "tenant"
        )
        self.reconnects = own(
            Counter, "session_reconnects", "Connections of clients that had lost one before.", "tenant"
        )
        self.tenant_sessions = kept(
            gauge, "tenant_sessions", "Open sessions; `state` is `connected`, or `waiting` for its client.",
            "tenant", "worker", "state",
        )  # fmt: skip
        self.frames = kept(counter, "frames", "WebSocket frames of sessions.", "direction", "tenant")
        self.bytes = kept(counter, "bytes", "Bytes of WebSocket frames of sessions.", "direction", "tenant")
        self.tensor_bytes = own(Counter, "http_tensor_bytes", "Bytes of tensors sent over HTTP.", "direction")

        self.failures = own(
            Counter, "failures", "What failed for clients, by class of error: instructions of a session's `stream`, "
            "and requests over `http`.", "code", "tenant", "source",
        )  # fmt: skip
        self.rejections = own(
            Counter, "rejections", "What was refused: `authentication`, `permission`, `sessions` (too many), "
            "`placement` (no worker serves), `memory` (a quota or the device is full), `limit`, `body`.",
            "reason", "tenant",
        )  # fmt: skip
        self.requests = own(
            Histogram, "http_request_seconds", "From the head of an HTTP request to the end of its answer.",
            "method", "route", "status", buckets=REQUEST_BOUNDS,
        )  # fmt: skip
        self.program_requests = own(
            Counter, "program_requests", "Calls of exported programs, `answered` or `failed`.",
            "program", "tenant", "outcome",
        )  # fmt: skip
        self.program_seconds = own(
            Histogram, "program_seconds", "From a call of an exported program to its answer, where it was answered.",
            "program", "tenant", buckets=REQUEST_BOUNDS,
        )  # fmt: skip
        self.program_batch = own(
            Histogram, "program_batch_requests", "Calls of an exported program that were computed as one.",
            "program", "tenant", buckets=BATCH_BOUNDS,
        )  # fmt: skip
        self.connections = own(Gauge, "connections", "Open connections to the server's port.")
        self.refused = kept(
            counter, "connections_refused", "Connections and requests refused before they were routed, by status.",
            "status",
        )  # fmt: skip

        self.worker_up = of_worker(gauge, "worker_up", "Whether the worker answered this scrape.")
        self.worker_sessions = of_worker(gauge, "worker_sessions", "Sessions that live on the worker.")
        self.worker_restarts = of_worker(counter, "worker_restarts", "How often it was started again.")
        self.watchdog = own(
            Counter, "watchdog_endings", "What took too long: its turn was `cancelled`, its worker `killed`, or killed "
            "since it was `silent`.", "worker", "action",
        )  # fmt: skip
        self.resident = of_worker(gauge, "worker_resident_bytes", "Host memory of the worker's process.")
        self.cpu_seconds = of_worker(counter, "worker_cpu_seconds", "Processor time of the worker's process.")
        self.operations = of_worker(counter, "operations", "Operations since the worker started.", "tenant")
        self.turn = of_worker(
            histogram, "turn_seconds", "Host time of a turn, in which a session executes up to 64 instructions."
        )
        self.queue = of_worker(
            histogram, "queue_seconds", "From the receipt of a frame in the gateway to the turn that takes it."
        )
        self.round_trip = of_worker(
            histogram, "round_trip_seconds", "From the receipt of the last frame before an answer until it is written."
        )
        self.device = of_worker(
            histogram, "device_seconds", "For how long GPUs were seen at a session's work, from one of its turns to "
            "the next."
        )  # fmt: skip
        self.queued = of_worker(gauge, "queued_instructions", "Instructions that wait to be executed.", "tenant")
        self.queued_bytes = of_worker(gauge, "queued_bytes", "Bytes of frames that wait to be decoded.", "tenant")
        self.unsent_bytes = of_worker(gauge, "unsent_bytes", "Bytes of replies that wait to be sent.", "tenant")
        self.ahead = of_worker(
            gauge, "operations_ahead", "Instructions launched on GPUs that these may not have completed.", "tenant"
        )
        self.compilations = of_worker(
            counter, "kernel_compilations", "Texts of CUDA kernels that were compiled: while a session waited "
            "(`session`), or `beside` it, and those of the latter that `failed`.", "where",
        )  # fmt: skip
        self.choices = of_worker(
            counter, "library_choices", "How something is computed in given sizes: NVIDIA's libraries were `asked`, or "
            "it was `borrowed` from neighbouring sizes.", "how",
        )  # fmt: skip
        self.memory = kept(
            gauge, "memory_bytes", "Memory of a device held by tensors (`allocated`), or `reserved`.",
            "worker", "device", "kind",
        )  # fmt: skip
        self.out_of_memory = of_worker(
            counter, "out_of_memory", "Allocations that failed since the device was full.", "device"
        )
        self.disk_free = kept(gauge, "kernel_cache_free_bytes", "Room on the disk of the cache of compiled kernels.")
        self.disk_size = kept(gauge, "kernel_cache_size_bytes", "Size of the disk of the cache of compiled kernels.")
        self.certificate_expires = kept(
            gauge, "certificate_expires_timestamp_seconds", "When the TLS certificate expires, in seconds since 1970."
        )
        self.gpus = {
            name: kept(gauge if not name.endswith("errors") else counter, f"gpu_{name}", help, "device", *labels)
            for name, help, *labels in GPU_METRICS
        }

    def _own(self, kind: type[Own], name: str, help: str, *labels: str, **options: Any) -> Own:
        metric = kind(f"telegrad_{name}", help, labels, registry=self.registry, **options)
        self._describe(f"telegrad_{name}", kind.__name__.lower(), labels, help)
        return metric

    def _kept(self, family: Any, name: str, help: str, *labels: str) -> KeptElsewhere:
        metric = KeptElsewhere(f"telegrad_{name}", help, labels, family)
        self.registry.register(metric)
        self._describe(f"telegrad_{name}", family(name, help).type, labels, help)
        return metric

    def _of_worker(self, family: Any, name: str, help: str, *labels: str) -> KeptElsewhere:
        metric = self._kept(family, name, help, "worker", *labels)
        self._of_workers.append(metric)
        return metric

    def _describe(self, name: str, kind: str, labels: tuple[str, ...], help: str) -> None:
        suffix = "_total" if kind == "counter" else ""
        self.described.append(Described(name + suffix, kind, labels, help))

    def set_traffic(self, counted: Mapping[str, Collection[Traffic]]) -> None:
        """Set the counters of frames and bytes to the sums over what was counted for each tenant."""
        for tenant, traffics in counted.items():
            self.frames.set(sum(traffic.frames_received for traffic in traffics), "in", tenant)
            self.frames.set(sum(traffic.frames_sent for traffic in traffics), "out", tenant)
            self.bytes.set(sum(traffic.bytes_received for traffic in traffics), "in", tenant)
            self.bytes.set(sum(traffic.bytes_sent for traffic in traffics), "out", tenant)

    def set_operations(self, worker: str, by_tenant: Mapping[str, float]) -> None:
        """Set how many operations each tenant's sessions have executed on a worker."""
        for tenant, count in by_tenant.items():
            self.operations.set(count, worker, tenant)

    def set_memory(self, worker: str, device: str, stats: Mapping[str, float]) -> None:
        """Set the memory of a device from its allocator's statistics."""
        for kind, name in MEMORY.items():
            self.memory.set(stats.get(name, 0), worker, device, kind)
        self.out_of_memory.set(stats.get("num_ooms", 0), worker, device)

    def set_state(self, worker: str, state: WorkerState) -> None:
        """Set what the loop of a worker has measured."""
        self.turn.set(state.turn, worker)
        self.queue.set(state.queue, worker)
        self.round_trip.set(state.round_trip, worker)
        self.device.set(state.device, worker)
        self.resident.set(state.resident_bytes, worker)
        self.cpu_seconds.set(state.cpu_seconds, worker)
        counts = state.compilations
        for where, count in (("session", counts.on_path), ("beside", counts.beside), ("failed", counts.failed)):
            self.compilations.set(count, worker, where)
        for how, count in (("asked", state.choices.asked), ("borrowed", state.choices.borrowed)):
            self.choices.set(count, worker, how)
        self.forget_load(worker)
        for tenant, load in state.loads.items():
            self._set_load(worker, tenant, load)

    def _set_load(self, worker: str, tenant: str, load: TenantLoad) -> None:
        self.queued.set(load.queued_instructions, worker, tenant)
        self.queued_bytes.set(load.queued_bytes, worker, tenant)
        self.unsent_bytes.set(load.unsent_bytes, worker, tenant)
        self.ahead.set(load.ahead, worker, tenant)

    def forget_load(self, worker: str) -> None:
        """Show nothing of what waits in a worker, which has not told it."""
        for metric in (self.queued, self.queued_bytes, self.unsent_bytes, self.ahead):
            metric.forget(worker)

    def keep_workers(self, numbers: Collection[str]) -> None:
        """Forget what was told of other workers: they have ended for good."""
        for metric in self._of_workers:
            metric.keep(numbers)

    def render(self) -> bytes:
        """Return the text that Prometheus reads."""
        return generate_latest(self.registry)


GPU_METRICS: Final[tuple[tuple[str, ...], ...]] = (
    ("info", "1; labels tell the GPU's UUID, model and driver.", "uuid", "name", "driver"),
    ("utilization_ratio", "Share of the time in which a kernel ran on the GPU, lately."),
    ("memory_utilization_ratio", "Share of the time in which the GPU's memory was read or written, lately."),
    ("memory_used_bytes", "Memory of the GPU in use, by all processes."),
    ("memory_total_bytes", "Memory that the GPU has."),
    ("temperature_celsius", "Temperature of the GPU."),
    ("power_watts", "Power that the GPU draws."),
    ("power_limit_watts", "Power that the GPU may draw."),
    ("clock_hertz", "Clock of the GPU's multiprocessors."),
    ("ecc_errors", "Errors of the GPU's memory since the driver was loaded, `corrected` or `uncorrected`.", "kind"),
)
"""Metrics of each GPU that the server uses: name, help, and labels beside ``device``. Absent without a GPU."""
