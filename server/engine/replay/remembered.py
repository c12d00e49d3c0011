"""What is kept for calls that come again: one bound for the tables of all operators.

Clients decide which shapes they send, so what is kept for them must not grow with what they send: neither with the
number of operations, nor with that of the operands of one. Knows nothing of operators.
"""

from __future__ import annotations

import random
from typing import Any, Final

CAPACITY: Final = 1 << 14
"""The most entries of each table of an operator."""
MOST_WEIGHT: Final = 40_000
"""The most entries of all tables together, at about 1.3 KB each; one of many operands counts as several."""
_OPERANDS_OF_AN_ENTRY: Final = 16

Table = dict[Any, Any]


class _Tables:
    """The tables of all operators, and the weight of their entries."""

    def __init__(self) -> None:
        self.all: list[Table] = []
        self.weight = 0


_tables = _Tables()


def new_table() -> Table:
    """Return a table whose entries count."""
    table: Table = {}
    _tables.all.append(table)
    return table


def total_weight() -> int:
    """Return how many entries of the usual size there are in all tables together."""
    return _tables.weight


def remember(table: Table, key: Any, value: Any) -> None:
    """Keep what was worked out for a call; tables that clients have filled lose a part at random.

    Nobody can drive out what another client uses, and a client that fills tables notices it as much as others do.
    """
    if len(table) >= CAPACITY:
        _thin_out(table)
    if key not in table:
        _tables.weight += _weigh(key)
    table[key] = value
    while _tables.weight > MOST_WEIGHT:
        _thin_out(max(_tables.all, key=len))


def forget_all(table: Table) -> None:
    """Empty a table."""
    _tables.weight -= sum(map(_weigh, table))
    table.clear()


def _thin_out(table: Table) -> None:
    for old in random.sample(list(table), -(-len(table) // 8)):
        del table[old]
        _tables.weight -= _weigh(old)


def _weigh(key: Any) -> int:
    return 1 + _count(key) // _OPERANDS_OF_AN_ENTRY


def _count(key: Any) -> int:
    """Return how many items there are in nested tuples."""
    return len(key) + sum([_count(item) for item in key if type(item) is tuple]) if type(key) is tuple else 0
