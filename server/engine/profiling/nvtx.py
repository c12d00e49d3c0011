"""NVIDIA's library of ranges and marks, NVTX, by three functions: CuPy's, where a session has a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from telegrad_protocol.meta import Device


class Library(NamedTuple):
    """What ranges are told to: the stack of ranges of the calling thread, and marks."""

    push: Callable[[str], object]
    pop: Callable[[], object]
    mark: Callable[[str], object]


def find_library(devices: Sequence[Device]) -> Library | str:
    """Return the library for a session with these devices, or in words why there is none."""
    if all([device.type == "cpu" for device in devices]):
        return "the server has no GPU"
    try:
        from cupy.cuda import nvtx
    except ImportError as error:
        return f"the server's CuPy has no NVTX ({error})"
    if not nvtx.available:
        return "the server's CuPy has no NVTX"
    return Library(nvtx.RangePush, nvtx.RangePop, nvtx.Mark)
