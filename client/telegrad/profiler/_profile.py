"""``torch.profiler.profile``: records steps of a program as a schedule says, and hands each recording to a function."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ._execution_trace import ExecutionTraceObserver
from ._range_log import OpenRange, begin_range, end_range
from ._results import has_gpu
from ._schedule import KinetoStepTracker, ProfilerAction, ProfilerActivity, ProfilerError, always
from ._trace_profile import _KinetoProfile

_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def supported_activities() -> set[ProfilerActivity]:
    """Return what can be looked at: the host's work, and that of GPUs where the server has any."""
    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if has_gpu() else [])}


class profile(_KinetoProfile):
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
        chosen = set(activities) if activities is not None else None
        if use_cuda is not None:
            warnings.warn("profile: use_cuda is deprecated, use activities instead", FutureWarning, stacklevel=2)
            named = set(ProfilerActivity) if chosen is None else chosen
            chosen = named | {ProfilerActivity.CUDA} if use_cuda else named - {ProfilerActivity.CUDA}
        super().__init__(
            activities=chosen, record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack,
            with_flops=with_flops, with_modules=with_modules, experimental_config=experimental_config,
            execution_trace_observer=execution_trace_observer, acc_events=acc_events,
            custom_trace_id_callback=custom_trace_id_callback, post_processing_timeout_s=post_processing_timeout_s,
        )  # fmt: skip
        self.schedule = schedule or always
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)
        self.record_steps = schedule is not None
        self._step_range: OpenRange | None = None

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
        if self._stretch is None and self.current_action in _RECORDING and self.profiler is None:
            self.stop_trace()  # which says that nothing was begun
        if self._stretch is not None:
            self.stop_trace()
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
            self.stop_trace()
            if self.on_trace_ready and action is ProfilerAction.RECORD_AND_SAVE:
                self.on_trace_ready(self)
        self._enter_step()

    def _enter_step(self) -> None:
        if self.current_action in _RECORDING:
            self.start_trace()
            self._step_range = begin_range(f"ProfilerStep#{self.step_num}") if self.record_steps else None

    def _end_step_range(self) -> None:
        end_range(self._step_range)
        self._step_range = None


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False, use_python_export: bool = False
) -> Callable[[profile], None]:
    """Return an ``on_trace_ready`` that writes each trace into a folder, as TensorBoard's plugin reads it."""

    def write(profiler: profile) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise ProfilerError(f"Can't create directory: {dir_name} ({error.strerror})") from error
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".pt.trace.json.gz" if use_gzip else ".pt.trace.json"
        profiler.export_chrome_trace(os.path.join(dir_name, f"{name}.{time.time_ns()}{ending}"))

    return write
