"""What a worker's process needs to be fast: what C libraries read from their environment, and a stack in one piece.

An operator's own settings come first. Knows no session and no engine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

Result = TypeVar("Result")

_MALLOC: Final = {"MALLOC_MMAP_THRESHOLD_": str(256 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
"""NumPy's temporaries come from the C library: kept for the next one, they save a page fault for every 4 KiB."""
_AVX512: Final = frozenset(("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"))
_CPU: Final = Path("/proc/cpuinfo")


def library_environment() -> dict[str, str]:
    """Variables for a worker's C libraries on this machine."""
    try:
        cpu = _CPU.read_text()
    except OSError:
        cpu = ""
    return {**_MALLOC, **blas_kernels(cpu)}


def blas_kernels(cpuinfo: str) -> dict[str, str]:
    """Which kernels OpenBLAS shall use, where it does not choose the fastest.

    It takes AMD's processors for ones without AVX-512, which since Zen 4 they have: float32 products run 1.5 to 1.9
    times as fast with the kernels made for it (docs/decisions/0007).
    """
    fields = dict(_field(line) for line in cpuinfo.split("\n\n")[0].splitlines() if ":" in line)
    is_amd = fields.get("vendor_id") == "AuthenticAMD"
    return {"OPENBLAS_CORETYPE": "SkylakeX"} if is_amd and set(fields.get("flags", "").split()) >= _AVX512 else {}


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def on_one_stack(function: Callable[[], Result]) -> Result:
    """Call ``function`` where all the frames below it lie in one piece of memory.

    CPython takes memory for frames in pieces of 16 KiB and gives a piece back when its first frame returns: a loop
    whose calls cross the end of a piece pays for fresh memory at every turn, 15 to 50 us as measured. For a frame that
    says it needs a large stack a piece of twice that size is made, and who is called from it uses the rest.
    """
    return _with_room(function)


def _with_room(function: Callable[[], Result]) -> Result:
    return function()


_with_room.__code__ = _with_room.__code__.replace(co_stacksize=1 << 15)
