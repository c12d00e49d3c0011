"""What is kept for calls that come again: one bound for the tables of all operators.

Clients decide which shapes they send, so what is kept for them must not grow with what they send: neither with the
number of operations, nor with that of the operands of one. Entries belong to domains, tenants as the engine knows them,
whose numbers are in the keys. Knows nothing of operators.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from server.allocator.native_calls import module
from server.engine.keys import DOMAIN_SHIFT
from telegrad_protocol.dtypes import DType

CAPACITY: Final = 1 << 14
"""The most entries of each table of an operator."""
MOST_WEIGHT: Final = 40_000
"""The most entries of all tables together, at about 1.3 KB each; one of many operands counts as several."""
_OPERANDS_OF_AN_ENTRY: Final = 16
_LONG_TABLES: Final = 8
"""Of so many of the longest tables a part is removed where all together are too large."""

_MOST_LATEST: Final = 256

Table = dict[Any, Any]
_is_flat = frozenset((tuple,)).isdisjoint


class Tables:
    """The tables of all operators, and the weight of their entries: of all, and by domain."""

    __slots__ = ("all", "by_domain", "weight")

    def __init__(self) -> None:
        self.all: list[Table] = []
        self.weight = 0
        self.by_domain: Counter[int] = Counter()

    def count(self, key: Any, sign: int) -> None:
        """Note that an entry has come, or gone."""
        weight, domain, by_domain = sign, domain_of(key), self.by_domain
        if key.__class__ is tuple:
            weight *= 1 + _items_in(key) // _OPERANDS_OF_AN_ENTRY
        self.weight += weight
        by_domain[domain] = by_domain.get(domain, 0) + weight


latest: Table = {}
"""The key set and the signature of each of the latest calls that were new; lookups make keys that no others make."""
tables = Tables()
"""The tables of what this process remembers, in which all entries are counted together."""


def new_table() -> Table:
    """Return a table whose entries count."""
    table: Table = {}
    tables.all.append(table)
    return table


def total_weight() -> int:
    """Return how many entries of the usual size there are in all tables together."""
    return tables.weight


def remember(table: Table, key: Any, value: Any) -> None:
    """Keep what was worked out for a call; of full tables, the domain with most in them loses a part at random.

    So nobody can drive out what another tenant uses.
    """
    before = len(table)
    if before >= CAPACITY:
        _thin_out(table, Counter(map(domain_of, table)).most_common(1)[0][0])
        before = len(table)
    table[key] = value
    if len(table) != before:
        _count_entry(tables, key, 1)
    while tables.weight > MOST_WEIGHT:
        _thin_out_all(tables.by_domain.most_common(1)[0][0])


def remember_latest(key: Any, value: Any) -> None:
    """Keep something of a call that may come again soon, or never."""
    if len(latest) >= _MOST_LATEST:
        latest.clear()
    latest[key] = value


def forget_all(table: Table) -> None:
    """Empty a table."""
    for key in table:
        _count_entry(tables, key, -1)
    table.clear()


def forget_domain(domain: int) -> None:
    """Forget what was worked out for the calls of a domain, whose number is given to another."""
    latest.clear()
    for table in tables.all:
        _remove(table, [key for key in table if domain_of(key) == domain])
    del tables.by_domain[domain]


def _thin_out_all(domain: int) -> None:
    """Remove a part of what a domain has in the long tables, or wherever it has something."""
    longest = heapq.nlargest(_LONG_TABLES, tables.all, key=len)
    if not any([_thin_out(table, domain) for table in longest]):
        for table in tables.all:
            _thin_out(table, domain)


def _thin_out(table: Table, domain: int) -> bool:
    """Remove an eighth of a domain's entries in a table; whether it has any."""
    theirs = [key for key in table if domain_of(key) == domain]
    _remove(table, random.sample(theirs, -(-len(theirs) // 8)))
    return bool(theirs)


def _remove(table: Table, keys: list[Any]) -> None:
    for key in keys:
        del table[key]
        _count_entry(tables, key, -1)


def _domain_of(key: Any) -> int:
    """The domain of the caller for whom something is kept, by a signature or by a key that contains one; else 0."""
    if key.__class__ is not tuple or len(key) < 2:
        return 0
    first = key[0]
    if first.__class__ is DType:
        return key[1]  # type: ignore[no-any-return]
    if first.__class__ is tuple:
        return _domain_of(first)
    return 0 if isinstance(first, type) else int(key[2]) >> DOMAIN_SHIFT


def _count(items: tuple[Any, ...]) -> int:
    """Return how many items there are in nested tuples."""
    count = len(items)
    for item in items:
        if item.__class__ is tuple:
            count += len(item) if _is_flat(map(type, item)) else _count(item)
    return count


domain_of: Final[Callable[[Any], int]] = _domain_of if module is None else module.domain_of
_items_in: Final[Callable[[tuple[Any, ...]], int]] = _count if module is None else module.count_items
_count_entry: Final[Callable[[Tables, Any, int], None]] = Tables.count if module is None else module.count_entry
