"""The memory of a device over time, in the forms in which PyTorch's profiler writes it.

PyTorch tells parameters, gradients and others apart; what is noted here is how much there is of all of them, which has
its place under what is of none of these.
"""

from __future__ import annotations

import gzip
import json
from typing import Any, Final

from ._capture import Captured

_OTHERS: Final = 7
"""The place of what is of no category."""
_PREEXISTING, _CREATED, _DESTROYED = 1, 2, 4
_WIDTH, _HEIGHT = 1200, 400


def write_memory_timeline(captured: Captured, path: str, device: str) -> None:
    """Write a page for ``.html``, single changes for ``.raw.json.gz``, and otherwise the memory at each time."""
    changes = _changes(captured, device)
    if path.endswith(".html"):
        text = _page(changes, device)
    elif path.endswith(".raw.json.gz"):
        text = json.dumps(_raw(changes))
    else:
        text = json.dumps(_sizes(changes))
    with gzip.open(path, "wt") if path.endswith(".gz") else open(path, "w") as file:
        file.write(text)


def _changes(captured: Captured, device: str) -> list[tuple[int, int, int]]:
    """Return when memory has changed, in nanoseconds of the time of day, by how much, and how much there was then."""
    return [
        (int(at * 1000) + captured.wall_offset, change, total)
        for at, where, change, total in captured.timeline.memory
        if where == device
    ]


def _sizes(changes: list[tuple[int, int, int]]) -> list[Any]:
    sizes = [[0] * (_OTHERS + 1) + [total] for _, _, total in changes]
    return [[at // 1000 for at, _, _ in changes], sizes]


def _raw(changes: list[tuple[int, int, int]]) -> list[Any]:
    before = changes[0][2] - changes[0][1] if changes else 0
    rows = [[-1, _PREEXISTING, before, _OTHERS]] if before else []
    return rows + [
        [at, _CREATED if change > 0 else _DESTROYED, change, _OTHERS] for at, change, _ in changes
    ]  # fmt: skip


def _page(changes: list[tuple[int, int, int]], device: str) -> str:
    most = max([total for _, _, total in changes], default=0)
    begin, end = (changes[0][0], changes[-1][0]) if changes else (0, 0)
    points, height = [f"0,{_HEIGHT}"], _HEIGHT
    for at, _, total in changes:
        x = (at - begin) * _WIDTH // max(end - begin, 1)
        points.append(f"{x},{height}")
        height = _HEIGHT - total * _HEIGHT // max(most, 1)
        points.append(f"{x},{height}")
    points += [f"{_WIDTH},{height}", f"{_WIDTH},{_HEIGHT}"]
    return (
        f'<!DOCTYPE html><html><head><meta charset="utf-8"><title>Memory of {device}</title></head><body>'
        f"<p>Memory of {device} over {(end - begin) / 1e6:.3f} ms: at most {most / (1 << 20):.3f} MiB</p>"
        f'<svg width="{_WIDTH}" height="{_HEIGHT}"><polygon points="{" ".join(points)}" fill="steelblue"/></svg>'
        "</body></html>"
    )
