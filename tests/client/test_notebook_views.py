"""What a notebook shows of tensors: the table of their first elements, and how little of them travels for it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest


def _cells(html: str) -> list[list[str]]:
    """Return the texts of a table's rows, those of headers left out."""
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [cells for row in rows if (cells := re.findall(r"<td>(.*?)</td>", row))]


@pytest.mark.parametrize("shape", [(3,), (2, 3), (10, 10), (1, 1), (4, 1)])
def test_a_small_tensor_is_shown_whole(tg: Any, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    array = rng.integers(-99, 99, shape)
    rows = _cells(tg.tensor(array.tolist())._repr_html_())
    assert rows == [[str(value) for value in row] for row in np.atleast_2d(array).tolist()]


def test_of_a_large_tensor_the_head_is_shown(tg: Any) -> None:
    rows = _cells(tg.arange(1_000_000).reshape(1000, 1000)._repr_html_())
    assert rows[:10] == [[*(str(1000 * row + column) for column in range(10)), "…"] for row in range(10)]
    assert rows[10] == ["…"] * 11 and len(rows) == 11
    assert _cells(tg.arange(11)._repr_html_()) == [[*map(str, range(10)), "…"]]


def test_of_more_dimensions_the_first_matrix_is_shown(tg: Any) -> None:
    html = tg.arange(24).reshape(2, 3, 2, 2)._repr_html_()
    assert _cells(html) == [["0", "1"], ["2", "3"]]
    assert "[0, 0, :, :]" in html and "2 × 3 × 2 × 2" in html


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 2)])
def test_an_empty_tensor_has_no_table(tg: Any, shape: tuple[int, ...]) -> None:
    html = tg.zeros(shape)._repr_html_()
    assert "<table" not in html and " × ".join(map(str, shape)) in html


def test_elements_are_written_as_in_the_text(tg: Any) -> None:
    assert _cells(tg.tensor([1.5, float("nan"), float("-inf")])._repr_html_()) == [["1.5000", "nan", "-inf"]]
    assert _cells(tg.tensor([1e-9, 1.0])._repr_html_()) == [["1.0000e-09", "1.0000e+00"]]
    assert _cells(tg.tensor([True, False])._repr_html_()) == [["True", "False"]]
    assert _cells(tg.tensor(1 + 2j)._repr_html_()) == [["1.+2.j"]]
    assert _cells(tg.tensor(2.5, dtype=tg.bfloat16)._repr_html_()) == [["2.5000"]]


def test_a_line_says_what_it_is(tg: Any) -> None:
    weight = tg.nn.Parameter(tg.ones(2))
    (weight * 2).sum().backward()
    assert "<b>Parameter</b> 2 · float32 · cpu · requires_grad · has a gradient" in weight._repr_html_()
    assert "grad_fn=&lt;MulBackward0&gt;" in (weight * 2)._repr_html_()


def test_names_of_classes_are_escaped(tg: Any) -> None:
    named = type("<i>", (tg.Tensor,), {})
    assert "<b>&lt;i&gt;</b>" in named._wrap(tg.ones(1))._repr_html_()


def test_only_the_head_travels_and_nothing_before_it_is_shown(tg: Any) -> None:
    large = tg.zeros(2000, 2000, requires_grad=True)
    large.sum().item()
    before = tg.wire_stats()
    html = large._repr_html_()
    after = tg.wire_stats()
    assert after.round_trips - before.round_trips == 1
    assert after.bytes_received - before.bytes_received < 1000
    assert "requires_grad" in html


def test_text_and_table_of_a_small_tensor_are_one_read(tg: Any) -> None:
    small = tg.arange(6.0).reshape(2, 3)
    before = tg.wire_stats().round_trips
    shown = small._repr_mimebundle_()
    assert tg.wire_stats().round_trips - before == 1
    assert shown == {"text/plain": repr(small), "text/html": small._repr_html_()}


def test_text_and_table_of_a_large_tensor_are_those_of_it(tg: Any) -> None:
    large = tg.arange(3000.0)
    assert large._repr_mimebundle_() == {"text/plain": repr(large), "text/html": large._repr_html_()}


def test_outside_of_a_notebook_an_error_is_raised_at_once(tg: Any) -> None:
    with pytest.raises(tg.errors.IndexOutOfRangeError):
        tg.zeros(2).index_select(0, tg.tensor([5]))._repr_mimebundle_()


def test_the_memory_summary_is_a_string(tg: Any) -> None:
    summary = tg.cuda.memory_summary()
    assert isinstance(summary, str) and summary.startswith("|===")
    assert summary._repr_html_() == f"<pre>{summary}</pre>"
