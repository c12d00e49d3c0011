"""What a profiler does in each step of a program, and how many steps that has made."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import ClassVar

from telegrad_protocol.errors import ArgumentError, AutogradError


class ProfilerError(AutogradError, AssertionError):
    """A profiler is asked for what it has not recorded, or is to record nothing; PyTorch asserts that it is not."""


class ScheduleError(ArgumentError, AssertionError):
    """Numbers of steps that no profiler can follow."""


class ProfilerActivity(Enum):
    """What a profiler looks at."""

    CPU = 0
    XPU = 1
    CUDA = 2
    MTIA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(Enum):
    """What a profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Return a function that says what to do in each step: wait, warm up, be active, and again, ``repeat`` times."""
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise ScheduleError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), "
            f"active={active} (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
        )
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise ScheduleError(f"Step must be non-negative. Got {step}.")
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


def always(step: int) -> ProfilerAction:
    """Record in every step: what a profiler does without a schedule."""
    return ProfilerAction.RECORD


class KinetoStepTracker:
    """The number of the present step: the largest of those that profiles, optimizers and loops have counted."""

    _current: ClassVar[int] = 0
    _counts: ClassVar[dict[str, int]] = {}

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Have somebody begin to count, from the present step on."""
        cls._counts[requester] = cls._current

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Forget somebody who counts; returns whether there was anybody of the name."""
        return cls._counts.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Count a step of somebody's; returns the number of the present step."""
        cls._counts[requester] = cls._counts.get(requester, cls._current) + 1
        cls._current = max(cls._current, cls._counts[requester])
        return cls._current

    @classmethod
    def current_step(cls) -> int:
        """Return the number of the present step."""
        return cls._current


def kineto_available() -> bool:
    """Whether programs can be profiled."""
    return True
