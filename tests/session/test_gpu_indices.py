"""An index that only the GPU finds out of range: raised at the next read, and nothing after it has happened."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from telegrad.errors import IndexOutOfRangeError, NotComputedError

pytestmark = pytest.mark.gpu


def _line_of(text: str) -> int:
    lines = enumerate(Path(__file__).read_text().splitlines(), 1)
    return next(n for n, line in lines if text in line and "_line_of" not in line)


def test_it_is_raised_at_the_next_read_with_the_line_of_the_call(cuda_tg: Any) -> None:
    tg = cuda_tg
    table, rows = tg.zeros(10, 4, device="cuda"), tg.tensor([1, 99], device="cuda")
    counter = tg.zeros(1, device="cuda")
    with pytest.raises(IndexError, match="99") as raised:
        looked_up = tg.nn.functional.embedding(rows, table)  # the culprit
        counter.add_(1)
        (looked_up * 2).tolist()
    error = raised.value
    assert isinstance(error, IndexOutOfRangeError)
    assert error.site.startswith(f"{__file__}:{_line_of('# the culprit')} in test_it")
    assert "embedding" in error.operation
    assert "float32[10,4]" in error.operands
    assert counter.tolist() == [0.0]
    with pytest.raises(NotComputedError, match=rf"embedding failed at .*:{_line_of('# the culprit')}"):
        looked_up.tolist()
    assert (counter + 1).tolist() == [1.0]


def test_what_was_computed_before_it_is_there(cuda_tg: Any) -> None:
    tg = cuda_tg
    table = tg.ones(3, 2, device="cuda")
    before = table * 2
    with pytest.raises(IndexOutOfRangeError):
        table.index_select(0, tg.tensor([7], device="cuda")).tolist()
    assert before.tolist() == [[2.0, 2.0]] * 3


def test_what_another_thread_has_done_since_then_stays_done(cuda_tg: Any) -> None:
    tg = cuda_tg
    results: list[Any] = []
    victim = tg.ones(3, 2, device="cuda").index_select(0, tg.tensor([7], device="cuda"))
    thread = threading.Thread(target=lambda: results.append((tg.ones(2, device="cuda") + 1).tolist()))
    thread.start()
    thread.join()
    assert results == [[2.0, 2.0]]
    with pytest.raises(IndexOutOfRangeError):
        victim.tolist()


def test_gradients_seeds_and_modes_after_it_are_as_if_it_had_stopped_there(cuda_tg: Any) -> None:
    tg = cuda_tg
    weight = tg.ones(2, device="cuda", requires_grad=True)
    loss = (weight * 3).sum()
    tg.manual_seed(7)
    expected = tg.rand(3, device="cuda").tolist()
    tg.manual_seed(7)
    with pytest.raises(IndexOutOfRangeError):
        tg.zeros(3, device="cuda").index_select(0, tg.tensor([7], device="cuda"))
        tg.rand(1000, device="cuda")
        loss.backward()
        tg.ones(1, device="cuda").tolist()
    assert tg.rand(3, device="cuda").tolist() == expected
    loss.backward()
    assert weight.grad.tolist() == [3.0, 3.0]


def test_it_is_raised_without_a_read_too(cuda_tg: Any) -> None:
    tg = cuda_tg
    with pytest.raises(IndexOutOfRangeError):
        tg.zeros(3, device="cuda").index_select(0, tg.tensor([7], device="cuda"))
        for _ in range(10_000):
            tg.zeros(1, device="cuda")
    assert tg.ones(2, device="cuda").tolist() == [1.0, 1.0]


@pytest.mark.parametrize("accumulate", [False, True])
def test_nothing_is_written_in_place(cuda_tg: Any, accumulate: bool) -> None:
    tg = cuda_tg
    x = tg.zeros(4, 3, device="cuda")
    with pytest.raises(IndexOutOfRangeError):
        x.index_put_((tg.tensor([0, 4], device="cuda"),), tg.ones(2, 3, device="cuda"), accumulate=accumulate)
        x.tolist()
    assert x.tolist() == [[0.0] * 3] * 4
    x.index_put_((tg.tensor([0, 3], device="cuda"),), tg.ones(2, 3, device="cuda"), accumulate=accumulate)
    assert x.tolist() == [[1.0] * 3, [0.0] * 3, [0.0] * 3, [1.0] * 3]


def test_the_first_of_several_is_raised_and_later_ones_are_forgotten(cuda_tg: Any) -> None:
    tg = cuda_tg
    table = tg.zeros(3, device="cuda")
    with pytest.raises(IndexOutOfRangeError, match="11"):
        for n in (11, 12, 13):
            table.index_select(0, tg.tensor([n], device="cuda"))
        table.tolist()
    for _ in range(3):
        assert table.index_select(0, tg.tensor([1], device="cuda")).tolist() == [0.0]


def test_targets_of_a_loss_are_checked(cuda_tg: Any) -> None:
    tg = cuda_tg
    logits = tg.randn(4, 5, device="cuda", requires_grad=True)
    with pytest.raises(IndexOutOfRangeError, match="index 5 is out of range for 5 classes"):
        loss = tg.nn.functional.cross_entropy(logits, tg.tensor([0, 1, 5, 2], device="cuda"))
        loss.backward()
        loss.item()
    with pytest.raises(NotComputedError, match="cross_entropy failed"):
        logits.grad.tolist()


def test_training_goes_on_while_indices_are_checked(cuda_tg: Any) -> None:
    tg = cuda_tg
    table = tg.zeros(10, 4, device="cuda", requires_grad=True)
    rows = tg.tensor([1, 2, 2], device="cuda")
    for _ in range(50):
        table.grad = None
        tg.nn.functional.embedding(rows, table).sum().backward()
        with tg.no_grad():
            table -= table.grad * 0.5
    expected = np.zeros((10, 4), np.float32)
    expected[1], expected[2] = -25, -50
    np.testing.assert_array_equal(table.detach().numpy(), expected)


def test_indices_of_a_captured_graph_are_checked_in_each_replay(cuda_tg: Any) -> None:
    """When the graph was captured they were known to be good; a replay may find others in the same memory."""
    tg = cuda_tg
    table, rows = tg.rand(10, 4, device="cuda"), tg.tensor([1, 9], device="cuda")
    for _ in range(2):
        table[rows] + 1
    graph = tg.cuda.CUDAGraph()
    with tg.cuda.graph(graph):
        found = table[rows] + 1
    for chosen in ([3, 4], [0, 9]):
        rows.copy_(tg.tensor(chosen))
        graph.replay()
        np.testing.assert_array_equal(found.numpy(), table.numpy()[chosen] + 1)
    rows.copy_(tg.tensor([3, 10]))
    with pytest.raises(IndexOutOfRangeError):
        graph.replay()
        found.tolist()
