"""Dispatch keys: bits of an integer, of which the highest one that is set decides which kernel runs."""

from __future__ import annotations

from typing import Final

META: Final = 1 << 0
CPU: Final = 1 << 1
CUDA: Final = 1 << 2
SPARSE_CSR: Final = 1 << 3
RECORD: Final = 1 << 4
AUTOGRAD: Final = 1 << 5
AUTOCAST_CPU: Final = 1 << 6
AUTOCAST_CUDA: Final = 1 << 7
BELOW_AUTOCAST: Final = AUTOGRAD | AUTOCAST_CPU | AUTOCAST_CUDA
"""What is left out where operations are computed in the types that their operands have, without autograd."""
BATCHED: Final = 1 << 8
PROFILER: Final = 1 << 9
TRACER: Final = 1 << 10
RANGES: Final = 1 << 11

DOMAIN_SHIFT: Final = 16
"""From this bit on the key sets of lookups have the number of the caller's domain, which selects no kernel."""
ALL: Final = (1 << DOMAIN_SHIFT) - 1

NAMES: Final = {
    RANGES: "Ranges", TRACER: "Tracer", PROFILER: "Profiler", BATCHED: "Batched", AUTOCAST_CUDA: "AutocastCUDA",
    AUTOCAST_CPU: "AutocastCPU", AUTOGRAD: "Autograd", RECORD: "Record", SPARSE_CSR: "SparseCsr", CUDA: "CUDA",
    CPU: "CPU", META: "Meta",
}  # fmt: skip
FROM_THE_TOP: Final = tuple(NAMES)


def below(key: int) -> int:
    """The mask of all keys under ``key``."""
    return key - 1


def spell(keys: int) -> str:
    """The names of a key set, highest first."""
    return ", ".join(name for key, name in NAMES.items() if keys & key) or "none"
