"""``torch.autograd.profiler``: the older form of ``telegrad.profiler``, and ranges for another profiler."""

from __future__ import annotations

import warnings
from collections import deque
from typing import Any, Final

from telegrad._session.current import current_session
from telegrad._session.labelling import Emission
from telegrad._session.own_code import note
from telegrad.profiler._build import Wanted
from telegrad.profiler._event_list import EventList as EventList
from telegrad.profiler._events import DeviceType as DeviceType
from telegrad.profiler._events import FunctionEvent as FunctionEvent
from telegrad.profiler._events import FunctionEventAvg as FunctionEventAvg
from telegrad.profiler._events import Interval as Interval
from telegrad.profiler._events import Kernel as Kernel
from telegrad.profiler._labels import Labels
from telegrad.profiler._range_log import RangeNote, current
from telegrad.profiler._range_log import record_function as record_function
from telegrad.profiler._requests import untold
from telegrad.profiler._results import Results, Stretch, has_gpu
from telegrad.profiler._schedule import KinetoStepTracker as KinetoStepTracker
from telegrad.profiler._schedule import ProfilerActivity as ProfilerActivity
from telegrad.profiler._schedule import ProfilerError
from telegrad.profiler._schedule import kineto_available as kineto_available
from telegrad.profiler._text import format_memory as _format_memory  # noqa: F401 - profiler_util has it
from telegrad.profiler._text import format_share as _format_time_share  # noqa: F401
from telegrad.profiler._text import format_time as _format_time  # noqa: F401
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.shown_name import shown_name

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
            raise AutogradError("Profiler context manager is not reentrant: a profile cannot be entered twice")
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
        return (
            repr(self.function_events)
            if self._results is not None
            else f"<unfinished {shown_name('autograd.profile')}>"
        )

    def __str__(self) -> str:
        return (
            str(self.function_events) if self._results is not None else f"<unfinished {shown_name('autograd.profile')}>"
        )


_NOTHING_NOTED: Final[deque[RangeNote]] = deque(maxlen=0)
"""Takes the client's notes of ranges, which only a profile shows."""


class _Block:
    """A ``with`` block of a program that begins something when it is entered, which it can be once."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled, self.record_shapes = enabled, record_shapes
        self.entered = False

    def __enter__(self) -> Any:
        if not self.enabled:
            return None
        if self.entered:
            raise AutogradError(f"{type(self).__name__}: a block cannot be entered twice; make another one")
        self.entered = True
        self._begin()
        return self

    def _begin(self) -> None:
        raise NotImplementedError

    def __exit__(self, *details: object) -> None:
        """End what the block has begun: nothing, unless a class says otherwise."""


class emit_nvtx(_Block):
    """Has the worker emit an NVTX range around each operation of the ``with`` block, and each node of backward passes.

    Nsight Systems shows them where it is attached to the server. Ranges and marks of ``cuda.nvtx``, and labels of
    ``record_function``, are emitted between them. ``record_shapes``: names of ranges tell the shapes of operands.
    Operations are executed one by one within the block. On a server without a GPU it warns, and does nothing.
    """

    _emission: Emission | None = None
    _labels: list[Any]

    def _begin(self) -> None:
        if current:
            raise AutogradError("emit_nvtx: a profile is going on in this program; end it first")
        session = current_session()
        with untold():
            missing = session.query("start_ranges", bool(self.record_shapes))
        if missing:
            note(f"emit_nvtx: {missing}, so nothing is emitted")
            return
        self._emission = Emission(session)
        current[:] = [self._emission, _NOTHING_NOTED]
        self._labels = Labels.of_all()

    def __exit__(self, *details: object) -> None:
        emission, self._emission = self._emission, None
        if emission is None:
            return
        current.clear()
        for labels in self._labels:
            labels.remove()
        emission.stop()


class emit_itt(_Block):
    """Runs the ``with`` block, and warns: Intel's profilers watch one process, and the work is in the server's."""

    def _begin(self) -> None:
        note(
            "emit_itt: Intel's profilers watch one process, and the work is in the server's, so nothing is emitted; "
            "profiler.profile() records operations with the lines that they come from"
        )
