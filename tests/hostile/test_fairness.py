"""A neighbour whose instructions take long gets no more of the worker's time than others."""

from __future__ import annotations

import pytest

import telegrad as tg
from server.engine.replay import remembered
from server.engine.replay.remembered import CAPACITY, forget_all, new_table, remember, total_weight
from tests.end_to_end.server_process import ServerProcess

PRODUCTS = 200


def test_short_instructions_overtake_a_queue_of_long_ones() -> None:
    with ServerProcess(OMP_NUM_THREADS="1") as server, tg.connect(server.url) as victim:
        x = tg.ones(4)
        with tg.connect(server.url) as attacker:
            a = tg.ones(1000, 1000)
            assert a[0, 0].item() == 1
            before = server.operations
            products = [a @ a for _ in range(PRODUCTS)]  # sent at once: a queue of seconds
            victim.use()
            assert x.sum().item() == 4.0
            done = server.operations - before
            assert done < PRODUCTS, "the queue was executed before the neighbour's instructions"
            attacker.use()
            assert products[-1][0, 0].item() == 1000
        victim.use()


def test_a_table_that_is_full_keeps_most_of_what_others_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "tables", remembered.Tables())
    before, table = total_weight(), new_table()
    for key in range(CAPACITY + 1):
        remember(table, key, key)
    assert len(table) <= CAPACITY and len(table) > CAPACITY // 2
    assert all(table[key] == key for key in table) and table[CAPACITY] == CAPACITY
    forget_all(table)
    assert total_weight() == before
