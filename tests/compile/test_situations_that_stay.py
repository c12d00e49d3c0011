"""A program that was executed in many situations is executed as one in the next ones, too, if these stay."""

from __future__ import annotations

from typing import Any

import numpy as np

from server.session.programs import known


def _programs(tensor: Any, host: Any) -> list[Any]:
    (session,) = [one for one in host._all_sessions.values() if one.state.programs]
    return list(session.state.programs.values())


def test_a_situation_that_stays_takes_the_place_of_an_old_one() -> None:
    import telegrad as tg
    from server.worker.host import Host

    host = Host(["cpu"])
    with tg.connect(in_process=host):
        x = tg.ones(3)

        def work(x: Any) -> Any:
            return ((x * 2).sin() + 1).sum() * x

        compiled = tg.compile(work)
        rows = range(2, 2 + known._MOST_VARIANTS + 3)
        for count in rows:
            for _ in range(4):
                compiled(tg.ones(count, 3)).sum().item()
        (program,) = [one for one in _programs(x, host) if one.variants]
        assert len(program.variants) == known._MOST_VARIANTS
        charged = program.nbytes
        for _ in range(known._STAYING + 2):
            result = compiled(tg.ones(rows[-1], 3))
        np.testing.assert_array_equal(result.numpy(), work(tg.ones(rows[-1], 3)).numpy())
        shapes = [situation.metas[0].shape for situation, _ in program.variants]
        assert (rows[-1], 3) in shapes and (rows[0], 3) not in shapes
        assert len(program.variants) == known._MOST_VARIANTS
        assert program.nbytes == charged
