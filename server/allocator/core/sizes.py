"""How many bytes a request really takes, and how many are asked of the upstream for it.

The constants are those of PyTorch's CUDA allocator. Pure arithmetic; knows no memory.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

MIN_BLOCK = 512
SMALL_REQUEST = 1 * MIB
SMALL_SEGMENT = 2 * MIB
LARGE_REQUEST = 10 * MIB
LARGE_SEGMENT = 20 * MIB
LARGE_ROUNDING = 2 * MIB


def round_up(nbytes: int, multiple: int) -> int:
    """Return the smallest multiple of ``multiple`` that is at least ``nbytes``."""
    return -(-nbytes // multiple) * multiple


def round_power2_division(nbytes: int, divisions: int) -> int:
    """Round up to the next of ``divisions`` (at least 2) equal steps from one power of two to the next."""
    floor = 1 << (nbytes.bit_length() - 1)
    return nbytes if nbytes == floor else round_up(nbytes, floor // divisions)


def segment_size(size: int) -> int:
    """Return how many bytes to ask of the upstream for a block of ``size`` rounded bytes."""
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size < LARGE_REQUEST:
        return LARGE_SEGMENT
    return round_up(size, LARGE_ROUNDING)


def human(nbytes: int) -> str:
    """Format bytes in the unit that suits people."""
    value, unit = float(nbytes), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{nbytes} bytes" if unit == "bytes" else f"{value:.2f} {unit}"
