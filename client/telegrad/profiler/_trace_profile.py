"""``_KinetoProfile``: one recording that the program begins and ends itself, and what can be made of it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Final

from telegrad._session.own_code import depth_of_program
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.tracing.recording import DeviceWork

from ._build import Wanted
from ._event_list import EventList
from ._execution_trace import ExecutionTraceObserver
from ._results import Results, Stretch, has_gpu
from ._round_trips import RoundTrips
from ._schedule import ProfilerActivity, ProfilerError

_PURPOSES: Final = {
    "events": "accessing events", "key_averages": "getting key averages",
    "export_chrome_trace": "exporting chrome trace", "export_memory_timeline": "exporting memory timeline",
}  # fmt: skip
"""What methods are called for that need a recording, in PyTorch's words."""


class _KinetoProfile:
    """Records what the server does between ``start_trace`` and ``stop_trace``; ``profile`` adds steps to it."""

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None, record_shapes: bool = False,
        profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
        experimental_config: Any = None, execution_trace_observer: ExecutionTraceObserver | None = None,
        acc_events: bool = False, custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        chosen = set(activities) if activities is not None else set(ProfilerActivity)
        if not chosen.intersection(ProfilerActivity):
            raise ProfilerError("No valid profiler activities found; there are ProfilerActivity.CPU and .CUDA")
        self.activities = chosen
        self.record_shapes, self.profile_memory, self.with_stack = (
            record_shapes or with_flops,
            profile_memory,
            with_stack,
        )
        self.with_flops, self.with_modules = with_flops, with_modules
        self.experimental_config, self.acc_events = experimental_config, acc_events
        self.execution_trace_observer = execution_trace_observer
        self.profiler: Results | None = None
        self._names_device = activities is not None and ProfilerActivity.CUDA in chosen
        self.use_device = "cuda" if self._names_device else None
        self._metadata: dict[str, Any] = {}
        self._stretch: Stretch | None = None
        self.custom_trace_id_callback = custom_trace_id_callback
        self.post_processing_timeout_s = post_processing_timeout_s

    def start(self) -> None:
        """Prepare a recording, and begin it."""
        self.prepare_trace()
        self.start_trace()

    def stop(self) -> None:
        """End the recording."""
        self.stop_trace()

    def prepare_trace(self) -> None:
        """Do nothing: a recording begins at once."""

    def start_trace(self) -> None:
        """Record from here on."""
        if self._stretch is None:
            self._stretch = Stretch(self._wanted(), self._metadata)

    def stop_trace(self) -> None:
        """End the recording; what was recorded is complete."""
        stretch, self._stretch = self._stretch, None
        if stretch is None and self.profiler is None:
            raise ProfilerError("Profiler must be initialized before stopping trace; start it first")
        if stretch is not None:
            earlier, self.profiler = self.profiler, stretch.stop()
            self.profiler.earlier = earlier if self.acc_events else None
            observer = self.execution_trace_observer
            if observer is not None and observer.is_registered:
                observer.write(self.profiler)

    def _wanted(self) -> Wanted:
        use_device = "cuda" if ProfilerActivity.CUDA in self.activities and has_gpu() else None
        if use_device is None and self._names_device:
            warnings.warn(
                "profile: the server has no GPU, so only the host's work is recorded", stacklevel=depth_of_program()
            )
        return Wanted(use_device, self.record_shapes, self.with_stack, self.with_flops, self.profile_memory)

    def _results(self, name: str) -> Results:
        if self.profiler is None:
            raise ProfilerError(
                f"Profiler must be initialized before {_PURPOSES.get(name, name)}: nothing is recorded yet; call it "
                "after the profile, or in on_trace_ready"
            )
        return self.profiler

    def events(self) -> EventList:
        """Return all recorded events."""
        return self._results("events").events

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Return averages of the events of one name, and of one form of operands, stack or overload where wanted."""
        return self._results("key_averages").key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def round_trips(self) -> RoundTrips:
        """Return which lines of the program waited for the server, how often and for how long."""
        return self._results("round_trips").round_trips()

    def device_work(self) -> list[DeviceWork]:
        """Return for each GPU where the times of its kernels come from, and why: CUPTI, or events."""
        return self._results("device_work").captured.timeline.recorded.devices

    def export_chrome_trace(self, path: str, use_python_export: bool = False) -> None:
        """Write the trace, which Perfetto and PyTorch's tools open; compressed if ``path`` ends in ``.gz``."""
        self._results("export_chrome_trace").export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write a line per event with its stack and a time, as flame graph tools read it; wants ``with_stack=True``."""
        events = self.events()
        if not self.with_stack:
            raise ProfilerError("export_stacks() requires with_stack=True")
        events.export_stacks(path, metric)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write the memory of a device over time: a page for ``.html``, single changes for ``.raw.json.gz``, else JSON.

        ``cuda.memory._record_memory_history`` and the server's page ``/memory`` show more.
        """
        self._results("export_memory_timeline").export_memory_timeline(path, device)

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Refuse: use a schedule."""
        raise NotSupportedError("toggle_collection_dynamic: not available; record parts of a program with schedule()")

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the trace under a name."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a value to the trace under a name; ``value`` is its JSON."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def get_trace_id(self) -> str | None:
        """Return the trace's own id, if a function was given that makes it."""
        return self.custom_trace_id_callback() if self.custom_trace_id_callback is not None else None

    def set_custom_trace_id_callback(self, callback: Callable[[], str] | None) -> None:
        """Set the function that makes the trace's own id."""
        self.custom_trace_id_callback = callback
