"""``torch.profiler.profile``: records steps of a program as a schedule says, and hands each recording to a function."""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from telegrad._session.own_code import depth_of_program
from telegrad_protocol.errors import AutogradError, NotSupportedError
from telegrad_protocol.tracing.recording import DeviceWork

from ._build import Wanted
from ._event_list import EventList
from ._execution_trace import ExecutionTraceObserver
from ._range_log import OpenRange, begin_range, end_range
from ._results import Results, Stretch, has_gpu
from ._round_trips import RoundTrips
from ._schedule import ProfilerAction, ProfilerActivity, always
from ._step_counts import KinetoStepTracker

_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def supported_activities() -> set[ProfilerActivity]:
    """Return what can be looked at: the host's work, and that of GPUs where the server has any."""
    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if has_gpu() else [])}


class profile:
    """Records what the server does for this program, and shows it as tables and as a trace.

    ``activities``: what to look at; the host and the GPU if None. ``schedule`` says for each step, which ``step()``
    ends, what to do; without one everything between ``start()`` and ``stop()`` is recorded. ``on_trace_ready`` is
    called with this object when a recording is complete. ``record_shapes`` shows operands, ``profile_memory`` memory,
    ``with_stack`` the lines of the program, ``with_flops`` estimates of floating-point operations.
    ``execution_trace_observer`` writes each recording to its file. With ``acc_events`` events and averages are those of
    all recordings so far, not of the last one alone.
    """

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None, record_shapes: bool = False,
        profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
        experimental_config: Any = None, execution_trace_observer: ExecutionTraceObserver | None = None,
        acc_events: bool = False, use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        chosen = set(activities) if activities is not None else set(ProfilerActivity)
        if use_cuda is not None:
            warnings.warn("profile: use_cuda is deprecated, use activities instead", FutureWarning, stacklevel=2)
            chosen = chosen | {ProfilerActivity.CUDA} if use_cuda else chosen - {ProfilerActivity.CUDA}
        if not chosen:
            raise AutogradError("profile: no activities are chosen; there are ProfilerActivity.CPU and .CUDA")
        self.activities = chosen
        self.schedule = schedule or always
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory, self.with_stack = (
            record_shapes or with_flops,
            profile_memory,
            with_stack,
        )
        self.with_flops, self.with_modules = with_flops, with_modules
        self.experimental_config, self.acc_events = experimental_config, acc_events
        self.execution_trace_observer = execution_trace_observer
        self.step_num = 0
        self.current_action = self.schedule(0)
        self.profiler: Results | None = None
        self.record_steps = schedule is not None
        self.use_device = "cuda" if ProfilerActivity.CUDA in chosen and activities is not None else None
        self._names_device = activities is not None and ProfilerActivity.CUDA in chosen
        self._metadata: dict[str, Any] = {}
        self._stretch: Stretch | None = None
        self._step_range: OpenRange | None = None
        self.custom_trace_id_callback = custom_trace_id_callback
        self.post_processing_timeout_s = post_processing_timeout_s

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with the first step."""
        self._enter_step()

    def stop(self) -> None:
        """End the last step; what was recorded is complete, and ``on_trace_ready`` is called."""
        self._end_step_range()
        if self._stretch is not None:
            self._finish()
            if self.on_trace_ready:
                self.on_trace_ready(self)

    def step(self) -> None:
        """Begin the next step."""
        self._end_step_range()
        action = self.current_action
        self.step_num += 1
        KinetoStepTracker.increment_step("ProfilerStep")
        self.current_action = self.schedule(self.step_num)
        if self._stretch is not None and (
            action is ProfilerAction.RECORD_AND_SAVE or self.current_action not in _RECORDING
        ):
            self._finish()
            if self.on_trace_ready and action is ProfilerAction.RECORD_AND_SAVE:
                self.on_trace_ready(self)
        self._enter_step()

    def _enter_step(self) -> None:
        if self.current_action in _RECORDING:
            if self._stretch is None:
                self._stretch = Stretch(self._wanted(), self._metadata)
            self._step_range = begin_range(f"ProfilerStep#{self.step_num}") if self.record_steps else None

    def _end_step_range(self) -> None:
        end_range(self._step_range)
        self._step_range = None

    def _finish(self) -> None:
        stretch, self._stretch = self._stretch, None
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
            raise AutogradError(f"{name}: nothing is recorded yet; call it after the profile, or in on_trace_ready")
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
        self.events().export_stacks(path, metric)

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


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False, use_python_export: bool = False
) -> Callable[[profile], None]:
    """Return an ``on_trace_ready`` that writes each trace into a folder, as TensorBoard's plugin reads it."""

    def write(profiler: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".pt.trace.json.gz" if use_gzip else ".pt.trace.json"
        profiler.export_chrome_trace(os.path.join(dir_name, f"{name}.{time.time_ns()}{ending}"))

    return write


def kineto_available() -> bool:
    """Whether programs can be profiled."""
    return True
