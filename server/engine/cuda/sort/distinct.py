"""Distinct rows on GPUs: sorted by a stable sort of each column, and told apart where a row differs from the last."""

from __future__ import annotations

from typing import Any

from server.engine import functional as F
from server.engine import keys
from server.engine.cuda.index.masks import places_of
from server.engine.operators import Request, Run
from server.engine.registry import finds
from server.engine.value import Value
from telegrad_protocol import dtypes
from telegrad_protocol.ops import indexing as ops

_MOST_COLUMNS = 8
"""Rows of more elements are sorted by the array library."""


@finds(ops._unique_rows, keys.CUDA)
def unique_rows(request: Request, generic: Run) -> Run | None:
    """Return where each distinct row is first met, the number of every row's group, and how large the groups are."""
    input, consecutive = request.args
    count, columns = input.shape
    if not input.numel or input.dtype.is_complex or (columns > _MOST_COLUMNS and not consecutive):
        return None

    def run(args: tuple[Any, ...]) -> tuple[Value, ...]:
        rows = args[0].alias()
        order = F.arange(count, device=rows.device) if consecutive else _ascending(rows, columns)
        begins = _begins(F.index_select(rows, 0, order), count)
        groups = F.index_copy_(F.empty_like(order), 0, order, F.sub(F.cumsum(begins, 0), 1))
        starts = places_of(begins)
        ends = F.cat([F.narrow(starts, 0, 1, starts.numel - 1), F.full_like(F.narrow(starts, 0, 0, 1), count)], 0)
        return F.index_select(order, 0, starts), groups, F.sub(ends, starts)

    return run


def _ascending(rows: Value, columns: int) -> Value:
    """The order of rows by their first elements, then by the next ones; equal rows stay in order."""
    order = F.argsort(F.select(rows, 1, columns - 1), stable=True)
    for column in reversed(range(columns - 1)):
        sorted_so_far = F.index_select(F.select(rows, 1, column), 0, order)
        order = F.index_select(order, 0, F.argsort(sorted_so_far, stable=True))
    return order  # type: ignore[no-any-return]


def _begins(ordered: Value, count: int) -> Value:
    """Whether each row differs from the one before it; the first does."""
    differs = F.any(F.ne(F.narrow(ordered, 0, 1, count - 1), F.narrow(ordered, 0, 0, count - 1)), 1)
    return F.cat([F.ones((1,), dtype=dtypes.bool_, device=ordered.device), differs], 0)  # type: ignore[no-any-return]
