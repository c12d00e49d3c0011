"""Tables of text, as ``Graph.print_tabular`` prints the nodes of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows below headers, in columns that are as wide as their contents."""
    texts = [[str(value) for value in row] for row in rows]
    columns = zip(headers, zip(*texts, strict=True) if texts else [()] * len(headers), strict=True)
    widths = [max(len(header) + 2, *map(len, column), 0) for header, column in columns]
    lines = [headers, ["-" * width for width in widths], *texts]
    padded = [[text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join(["  ".join(line).rstrip() for line in padded])
