"""A library of ranges that writes down what is pushed, popped and marked, for processes that no profiler watches."""

from __future__ import annotations

import pytest

from server.engine.profiling import nvtx
from server.engine.profiling.nvtx import Library


class WrittenRanges:
    """A thread's stack of ranges: ``lines`` has their names, and marks after an exclamation mark, by their depth."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.lines: list[str] = []

    def push(self, name: str) -> None:
        self.lines.append("  " * len(self.open) + name)
        self.open.append(name)

    def pop(self) -> None:
        self.open.pop()  # an error where nothing is open

    def mark(self, name: str) -> None:
        self.lines.append("  " * len(self.open) + f"! {name}")

    def take(self) -> list[str]:
        """Return the lines that there are, and forget them."""
        lines, self.lines = self.lines, []
        return lines


def write_ranges(monkeypatch: pytest.MonkeyPatch) -> WrittenRanges:
    """Have sessions that emit ranges write them down, whatever devices they have."""
    written = WrittenRanges()
    library = Library(written.push, written.pop, written.mark)
    monkeypatch.setattr(nvtx, "find_library", lambda devices: library)
    return written
