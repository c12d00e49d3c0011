"""``torch.profiler``: where the time of a program goes, in the client, on the wire, in the worker and on its GPUs.

Begin with ``round_trips()``: it names the lines that wait for the server. ``profile`` records everything else.
"""

from __future__ import annotations

from . import itt as itt
from ._events import DeviceType as DeviceType
from ._events import RecordScope as RecordScope
from ._execution_trace import ExecutionTraceObserver as ExecutionTraceObserver
from ._labels import _ExperimentalConfig as _ExperimentalConfig
from ._page import page as page
from ._profile import profile as profile
from ._profile import supported_activities as supported_activities
from ._profile import tensorboard_trace_handler as tensorboard_trace_handler
from ._range_log import record_function as record_function
from ._round_trips import RoundTrip as RoundTrip
from ._round_trips import RoundTrips as RoundTrips
from ._round_trips import round_trips as round_trips
from ._schedule import KinetoStepTracker as KinetoStepTracker
from ._schedule import ProfilerAction as ProfilerAction
from ._schedule import ProfilerActivity as ProfilerActivity
from ._schedule import kineto_available as kineto_available
from ._schedule import schedule as schedule
from ._trace_profile import _KinetoProfile as _KinetoProfile

__all__ = [
    "DeviceType", "ExecutionTraceObserver", "KinetoStepTracker", "ProfilerAction", "ProfilerActivity", "RecordScope",
    "RoundTrip", "RoundTrips", "itt", "kineto_available", "page", "profile", "record_function", "round_trips",
    "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip
