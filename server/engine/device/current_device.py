"""The GPU that CUDA's calls of this thread go to: kernels, events, streams and libraries' handles are made on it.

A process with one GPU never changes it. With several, whatever works on one of them makes it current first, and all
but the runs of operations put back what was current before, so that they may stand in the middle of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from .cupy_module import runtime

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class OnOneDevice(Protocol):
    """What belongs to one GPU."""

    index: int


Owner = TypeVar("Owner", bound=OnOneDevice)


@cache
def device_count() -> int:
    """How many GPUs this process sees; 0 where CuPy is missing."""
    return 0 if runtime is None else int(runtime.getDeviceCount())


@contextmanager
def current_device(index: int) -> Iterator[None]:
    """Make a GPU current within the block."""
    before = runtime.getDevice()
    if before == index:
        yield
        return
    runtime.setDevice(index)
    try:
        yield
    finally:
        runtime.setDevice(before)


def on_its_device(method: Callable[Concatenate[Owner, Parameters], Result]) -> Callable[..., Result]:
    """``method`` with the GPU current that its object belongs to."""

    @wraps(method)
    def guarded(self: Owner, *args: Any, **keywords: Any) -> Result:
        if device_count() < 2:
            return method(self, *args, **keywords)
        with current_device(self.index):
            return method(self, *args, **keywords)

    return guarded


def run_on(index: int, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``run``, which makes a GPU current first, and leaves it so: the next operation mostly runs there too."""
    if device_count() < 2:
        return run
    get_device, set_device = runtime.getDevice, runtime.setDevice

    def guarded(args: Any) -> Any:
        if get_device() != index:
            set_device(index)
        return run(args)

    return guarded
