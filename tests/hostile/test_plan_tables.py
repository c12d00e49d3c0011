"""What the engine keeps of one tenant's calls: nobody else is faster for it, and nobody else drives it out."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from server.engine.operators import OPERATORS
from server.engine.replay import remembered
from server.engine.replay.remembered import (
    CAPACITY,
    forget_all,
    forget_domain,
    new_table,
    remember,
    total_weight,
)
from server.worker.domains import KEPT, Domains
from server.worker.host import Host
from telegrad_protocol.dtypes import float32
from tests.session.driver import Talk, call


@pytest.fixture
def tenant(host: Host) -> Iterator[Callable[[str], Talk]]:
    """Opens sessions of tenants."""
    opened: list[Talk] = []

    def open_one(name: str) -> Talk:
        opened.append(Talk(host, tenant=name))
        return opened[-1]

    yield open_one
    for talk in opened:
        talk.session.close()


def shaped(talk: Talk, size: int) -> None:
    """Use a shape in a few operations, with and without gradients."""
    replies = talk.send(
        call("ones", 1, [1]), call("expand", 2, 1, [size]), call("narrow", 3, 2, 0, 0, 1), call("add", 4, 3, 3)
    )
    assert replies == []


def kept() -> int:
    """How many plans there are."""
    return sum(operator.cache_sizes()["plans"] for operator in OPERATORS.values())


def test_what_another_tenant_has_used_is_worked_out_anew(
    tenant: Callable[[str], Talk], rng: np.random.Generator
) -> None:
    first, second, colleague = tenant("alice"), tenant("bob"), tenant("alice")
    sizes = rng.choice(2**40, 3, replace=False) + 2
    for talk in (first, second, colleague):
        shaped(talk, 7)
    added = []
    uses = [(first, sizes[0]), (first, sizes[1]), (second, sizes[0]), (second, sizes[2]), (colleague, sizes[1])]
    for talk, size in uses:
        before = kept()
        shaped(talk, int(size))
        added.append(kept() - before)
    assert added[0] == added[1] == added[2] == added[3] > 0
    assert added[4] == 0, "sessions of one tenant share what is worked out"


def test_the_time_of_a_first_call_does_not_tell_whether_another_tenant_has_made_it(
    tenant: Callable[[str], Talk], rng: np.random.Generator
) -> None:
    """Of two times, one of each kind, either is the shorter one in about half of the pairs."""
    spy, other = tenant("spy"), tenant("other")
    sizes = [int(size) for size in rng.choice(2**40, 600, replace=False) + 2]
    used = set(sizes[::2])
    for size in used:
        shaped(other, size)
    times: dict[bool, list[float]] = {True: [], False: []}
    for size in rng.permutation(sizes):
        begin = time.perf_counter()
        shaped(spy, int(size))
        times[int(size) in used].append(time.perf_counter() - begin)
    shorter = np.mean(np.array(times[True])[:, None] < np.array(times[False]))
    assert 0.35 < shorter < 0.65, f"a shape that was used before is the faster one in {shorter:.0%} of the pairs"


def test_a_tenant_with_new_shapes_drives_out_nothing_of_others(
    tenant: Callable[[str], Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "CAPACITY", 400)
    victim, attacker = tenant("victim"), tenant("attacker")
    for talk in (victim, attacker):
        for size in range(2, 60):
            shaped(talk, size)
    for size in range(1000, 2000):
        shaped(attacker, size)
    before = kept()
    for size in range(2, 60):
        shaped(victim, size)
    assert kept() == before, "plans of the victim were lost"


def test_who_has_most_in_a_full_table_loses_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "tables", remembered.Tables())
    before, table = total_weight(), new_table()
    mine = [(float32, 1001, number) for number in range(CAPACITY // 4)]
    for key in mine:
        remember(table, key, 1)
    for number in range(2 * CAPACITY):
        remember(table, (float32, 1002, number), 2)
    assert len(table) <= CAPACITY and all(key in table for key in mine)
    assert len(table) > CAPACITY // 2
    forget_domain(1002)
    assert list(table) == mine
    forget_all(table)
    assert total_weight() == before


def test_who_has_most_in_all_tables_together_loses_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "tables", remembered.Tables())
    tables = [new_table() for _ in range(20)]
    mine = [(float32, 1001, number) for number in range(50)]
    for table in tables[:10]:
        for key in mine:
            remember(table, key, 1)
    monkeypatch.setattr(remembered, "MOST_WEIGHT", total_weight() + 1000)
    for number in range(20_000):
        remember(tables[number % 20], (float32, 1002, number), 2)
        assert total_weight() <= remembered.MOST_WEIGHT
    assert all(key in table for table in tables[:10] for key in mine)
    for table in tables:
        forget_all(table)


def test_numbers_of_tenants_without_sessions_are_used_again() -> None:
    domains = Domains()
    numbers = [domains.number_of(f"tenant {number}", ()) for number in range(KEPT - 1)]
    assert len({0, *numbers}) == KEPT
    assert domains.number_of("tenant 0", ()) == numbers[0]
    assert domains.number_of("another", {numbers[1]}) == numbers[2]
    assert domains.number_of("tenant 1", ()) == numbers[1]
    assert domains.number_of("", ()) == 0
    assert domains.number_of("one more", range(KEPT)) == KEPT


def test_what_is_forgotten_is_gone_at_once(tg: Any, rng: np.random.Generator) -> None:
    """The garbage collector comes late in a worker: what clients use once must not wait for it."""
    weight = tg.ones(8, 8, requires_grad=True)

    def use(sizes: Iterable[int]) -> None:
        base = tg.ones(1).expand(1 << 40)
        for size in sizes:
            x = base.narrow(0, size, size) + 1
            (x * tg.ones(1, requires_grad=True)).sum().backward()
            tg.nn.functional.linear(tg.ones(size, 8), weight).softmax(1).sum().item()

    use([3, 4])
    sizes = [int(size) for size in rng.choice(np.arange(5, 300), 60, replace=False)]
    gc.collect()
    gc.disable()
    try:
        use(sizes)
        before = total_weight()
        for operator in OPERATORS.values():
            operator.clear_caches()
        assert before - total_weight() > 60 * 10
        assert gc.collect() < 60
    finally:
        gc.enable()
