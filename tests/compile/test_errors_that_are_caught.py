"""What a factorization in a compiled function raises is caught where it is without ``compile``."""

from __future__ import annotations

from typing import Any

import pytest

CALLS = 8


def _factored(lib: Any, a: Any) -> Any:
    return lib.linalg.cholesky(a * 2) + 1


def _repaired(lib: Any, a: Any) -> Any:
    try:
        return lib.linalg.cholesky(a)
    except lib.linalg.LinAlgError:
        return lib.linalg.cholesky(a + 3 * lib.eye(2))


def _outcome(lib: Any, function: Any, a: Any) -> Any:
    try:
        return function(lib, a).tolist()
    except lib.linalg.LinAlgError:
        return "caught"


@pytest.mark.parametrize("function", [_factored, _repaired])
def test_errors_are_caught_around_and_in_a_compiled_function(tg: Any, function: Any) -> None:
    torch = pytest.importorskip("torch")
    compiled = tg.compile(function)
    for call in range(CALLS):
        sign = -1.0 if call in (1, 4, 7) else 1.0
        assert _outcome(tg, compiled, sign * tg.eye(2)) == _outcome(torch, function, sign * torch.eye(2))


def test_a_call_that_is_left_out_raises_where_it_is_caught(tg: Any) -> None:
    compiled = tg.compile(lambda a: tg.linalg.inv(a * 2) + 1)
    good, bad = tg.eye(2), tg.zeros(2, 2)
    for _ in range(CALLS):
        compiled(good)
    with pytest.raises(tg.linalg.LinAlgError):
        compiled(bad)
    assert compiled(good).tolist() == [[1.5, 1.0], [1.0, 1.5]]


def test_layers_that_are_left_out_raise_where_they_are_caught(tg: Any) -> None:
    class Solve(tg.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any, b: Any) -> Any:
            return tg.linalg.solve(a * 2, b + 1).sin() * 2 + 1

    layer, seen = Solve(), []

    @tg.compile
    def step(a: Any, b: Any) -> str:
        seen.append(len(seen))
        try:
            layer(a, b)
        except tg.linalg.LinAlgError:
            return "caught"
        return "solved"

    b = tg.ones(2, 1)
    for call in range(CALLS):
        singular = call in (3, 6, 7)
        assert step(tg.zeros(2, 2) if singular else tg.eye(2), b) == ("caught" if singular else "solved")


def test_one_graph_waits_for_nothing(tg: Any) -> None:
    compiled = tg.compile(lambda a: tg.linalg.inv(a * 2), fullgraph=True)
    for _ in range(CALLS):
        try:
            result = compiled(tg.eye(2))
        except tg.linalg.LinAlgError:
            raise AssertionError("nothing is wrong with this matrix") from None
        assert result.tolist() == [[0.5, 0.0], [0.0, 0.5]]
