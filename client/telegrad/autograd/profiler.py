"""``torch.autograd.profiler``: the older form of ``telegrad.profiler``."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from telegrad.profiler._build import Wanted
from telegrad.profiler._event_list import EventList as EventList
from telegrad.profiler._events import DeviceType as DeviceType
from telegrad.profiler._events import FunctionEvent as FunctionEvent
from telegrad.profiler._events import FunctionEventAvg as FunctionEventAvg
from telegrad.profiler._events import Interval as Interval
from telegrad.profiler._events import Kernel as Kernel
from telegrad.profiler._range_log import current
from telegrad.profiler._range_log import record_function as record_function
from telegrad.profiler._results import Results, Stretch, has_gpu
from telegrad.profiler._schedule import KinetoStepTracker as KinetoStepTracker
from telegrad.profiler._schedule import ProfilerActivity as ProfilerActivity
from telegrad.profiler._schedule import ProfilerError
from telegrad_protocol.errors import AutogradError, NotSupportedError

__all__ = [
    "EventList", "FunctionEvent", "FunctionEventAvg", "KinetoStepTracker", "emit_itt", "emit_nvtx", "profile",
    "record_function",
]  # fmt: skip


def _profiler_enabled() -> bool:
    """Return whether something is profiled now."""
    return bool(current)


def __getattr__(name: str) -> bool:
    """Return whether something is profiled now, under PyTorch's name."""
    if name == "_is_profiler_enabled":
        return _profiler_enabled()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class profile:
    """Records what happens within a ``with`` block, and shows it as a table; ``telegrad.profiler.profile`` does more.

    ``use_device="cuda"``, or ``use_cuda=True``, records the work of the GPU too; without one on the server only the
    host's is recorded.
    """

    def __init__(
        self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None,
        record_shapes: bool = False, with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False,
        with_modules: bool = False, use_kineto: bool = False, use_cpu: bool = True, experimental_config: Any = None,
        acc_events: bool = False, custom_trace_id_callback: Any = None, post_processing_timeout_s: float | None = None,
        activity_filters: Any = None,
    ) -> None:  # fmt: skip
        self.enabled = enabled
        self.use_cuda = use_cuda
        self.use_device = "cuda" if use_cuda else use_device
        self.record_shapes = record_shapes or with_flops
        self.with_flops, self.profile_memory, self.with_stack = with_flops, profile_memory, with_stack
        self.with_modules = with_modules
        self.entered = False
        self._stretch: Stretch | None = None
        self._results: Results | None = None

    def __enter__(self) -> profile:
        if not self.enabled:
            return self
        if self.entered:
            raise AutogradError("profile: a profile cannot be entered twice")
        self.entered = True
        use_device = self.use_device if has_gpu() else None
        if self.use_device and use_device is None:
            warnings.warn("profile: the server has no GPU, so only the host's work is recorded", stacklevel=2)
        wanted = Wanted(use_device, self.record_shapes, self.with_stack, self.with_flops, self.profile_memory)
        self._stretch = Stretch(wanted, {})
        return self

    def __exit__(self, *details: object) -> None:
        if self._stretch is not None:
            self._results = self._stretch.stop()

    @property
    def function_events(self) -> EventList:
        """All recorded events."""
        if self._results is None:
            raise ProfilerError("profile: nothing is recorded yet; look at it after its block")
        return self._results.events

    def table(self, *args: Any, **kwargs: Any) -> str:
        """Return the events as a table."""
        return self.function_events.table(*args, **kwargs)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Return averages of the events of one name, and of one form of operands, stack or overload where wanted."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> FunctionEventAvg:
        """Return one average of all events."""
        return self.function_events.total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The host's time of all events, in microseconds."""
        return self.function_events.self_cpu_time_total

    def export_chrome_trace(self, path: str) -> None:
        """Write everything that was noted, in Chrome's format."""
        if self._results is None:
            raise ProfilerError("profile: nothing is recorded yet; look at it after its block")
        self._results.export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write a line per event with its stack and a time; wants ``with_stack=True``."""
        self.function_events.export_stacks(path, metric)

    def __repr__(self) -> str:
        return repr(self.function_events) if self._results is not None else "<unfinished profile>"

    def __str__(self) -> str:
        return str(self.function_events) if self._results is not None else "<unfinished profile>"


def emit_nvtx(enabled: bool = True, record_shapes: bool = False) -> AbstractContextManager[None]:
    """Refuse if enabled: NVIDIA's profilers watch one process, and the GPU's work is in the server's."""
    if not enabled:
        return nullcontext()
    raise NotSupportedError(
        "emit_nvtx: the GPU's work is in the server's process, where this program's marks do not reach; "
        "profiler.profile() records kernels with the lines that they come from"
    )


def emit_itt(enabled: bool = True, record_shapes: bool = False) -> AbstractContextManager[None]:
    """Refuse if enabled: Intel's profilers watch one process, and the work is in the server's."""
    if not enabled:
        return nullcontext()
    raise NotSupportedError(
        "emit_itt: the work is in the server's process, where this program's marks do not reach; "
        "profiler.profile() records operations with the lines that they come from"
    )
