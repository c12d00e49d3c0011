"""Packed totals are the totals that plain integers give."""

from __future__ import annotations

import random

import pytest

from server.allocator.core import ledger
from server.allocator.core.ledger import (
    ALL,
    BYTES,
    COUNT,
    LARGE,
    REQUESTED,
    SMALL,
    SPLIT,
    SPLIT_BYTES,
    UNLIMITED,
    Ledger,
)

FIELDS = [(group, which) for group in (ALL, SMALL, LARGE) for which in (COUNT, BYTES, REQUESTED, SPLIT, SPLIT_BYTES)]


def pack(values: list[int]) -> int:
    return sum(value << (ledger.WIDTH * at) for at, value in enumerate(values))


def unpack(packed: int) -> list[int]:
    return [ledger.field(packed, *position) for position in FIELDS]


@pytest.mark.parametrize("seed", range(20))
def test_larger_and_smaller_are_taken_field_by_field(seed: int) -> None:
    draw = random.Random(seed)
    one = [draw.choice([0, 1, draw.randrange(1 << 47), ledger.FIELD]) for _ in FIELDS]
    other = [draw.choice([0, 1, draw.randrange(1 << 47), value]) for value in one]
    assert unpack(ledger.larger(pack(one), pack(other))) == [max(pair) for pair in zip(one, other)]
    assert unpack(ledger.smaller(pack(one), pack(other))) == [min(pair) for pair in zip(one, other)]


def test_a_charge_counts_in_its_pool_and_in_all() -> None:
    charge = ledger.in_use(512, 100, True) + 2 * ledger.in_use(4 << 20, 3 << 20, False) + ledger.inactive(1, 7, False)
    assert unpack(charge) == [3, 512 + (8 << 20), 100 + (6 << 20), 1, 7, 1, 512, 100, 0, 0, 2, 8 << 20, 6 << 20, 1, 7]
    assert charge - ledger.in_use(512, 100, True) == charge - ledger.in_use(512, 100, True)
    assert unpack(charge + ledger.inactive(-1, -7, False))[3:5] == [0, 0]


@pytest.mark.parametrize("seed", range(10))
def test_peaks_are_exact(seed: int) -> None:
    draw = random.Random(seed)
    book, held = Ledger(), []
    now, peak = [0] * 15, [0] * 15
    for _ in range(300):
        if held and draw.random() < 0.5:
            charge = -held.pop(draw.randrange(len(held)))
        else:
            charge = ledger.in_use(draw.randrange(1, 1 << 30), draw.randrange(1, 1 << 30), draw.random() < 0.5)
            held.append(charge)
        book.add(charge)
        now = unpack(book.now)
        peak = [max(pair) for pair in zip(peak, now)]
        assert unpack(book.peak) == peak == unpack(book.allocated_peak)
    book.reset_peak()
    assert unpack(book.peak) == now


def test_a_quota_lowers_the_ceiling_of_the_bytes_only() -> None:
    book = Ledger()
    book.limit(1000)
    expected = unpack(UNLIMITED)
    expected[BYTES] = 1000
    assert unpack(book.quota) == expected
    book.limit(None)
    assert book.quota == UNLIMITED
