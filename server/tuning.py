"""What the C libraries under a worker are told before it starts: they read their environment when they are loaded.

An operator's own settings come first. Knows no session and no engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

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
