"""Times, bytes and columns as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def format_time(microseconds: float, unit: str | None = None) -> str:
    """Return a time with three decimals in a unit, ``s``, ``ms`` or ``us``; in the largest that fits if None."""
    if unit == "s" or (unit is None and microseconds >= 1e6):
        return f"{microseconds / 1e6:.3f}s"
    if unit == "ms" or (unit is None and microseconds >= 1e3):
        return f"{microseconds / 1e3:.3f}ms"
    return f"{microseconds:.3f}us"


def format_share(part: float, whole: float) -> str:
    """Return a share in percent with two decimals, ``NaN`` of nothing."""
    return f"{part * 100 / whole:.2f}%" if whole else "NaN"


def format_memory(nbytes: float) -> str:
    """Return a number of bytes in the largest unit that fits."""
    for size, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {name}"
    return f"{nbytes} B"


def columns(titles: Sequence[str], rows: Sequence[Sequence[Any]], left: int = 1) -> str:
    """Return rows under their titles, the first ``left`` columns left-aligned, between lines."""
    cells = [list(map(str, titles)), *[list(map(str, row)) for row in rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    line = "  ".join("-" * width for width in widths)
    texts = [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([line, texts[0], line, *texts[1:], line])
