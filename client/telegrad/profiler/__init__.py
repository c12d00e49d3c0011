"""``torch.profiler``'s names, which programs import. Measuring with them is refused until the server can be profiled.

``record_function`` is a label for a profiler: without one it does nothing, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from enum import Enum
from typing import Any

from telegrad_protocol.errors import NotSupportedError

__all__ = [
    "ExecutionTraceObserver", "ProfilerAction", "ProfilerActivity", "kineto_available", "profile", "record_function",
    "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip


class ProfilerActivity(Enum):
    """What a profiler would look at."""

    CPU = 0
    XPU = 1
    CUDA = 2
    MTIA = 3
    HPU = 4


class ProfilerAction(Enum):
    """What a profiler would do in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class record_function(ContextDecorator):
    """Labels a block, or as a decorator a function, for a profiler."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *details: object) -> None:
        pass


class profile:
    """Refuses to be made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotSupportedError(
            "profile: a session cannot be profiled yet; cuda.set_sync_debug_mode('warn') names lines that wait, "
            "cuda.Event(enable_timing=True) measures times on a GPU, telegrad.wire_stats() and /metrics count"
        )


class ExecutionTraceObserver(profile):
    """Refuses to be made."""


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Return a function that says what to do in each step: wait, warm up, be active, and again, ``repeat`` times."""
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        if repeat and step // length >= repeat:
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Any:
    """Return a function that a profiler would call; there is no profiler yet."""
    return lambda profiler: None


def supported_activities() -> set[ProfilerActivity]:
    """What can be looked at: nothing yet."""
    return set()


def kineto_available() -> bool:
    """Whether there is a profiler: there is none yet."""
    return False
