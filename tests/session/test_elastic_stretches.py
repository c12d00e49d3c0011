"""Calls that come again on other sizes, or with a number that is another each time, are executed as one, too."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from .stretches import call_by_call

pytestmark = pytest.mark.usefixtures("gains_by_stretches")


@pytest.mark.parametrize("place", range(10))
def test_a_number_that_changes_each_time_divides_a_stretch(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str], place: int
) -> None:
    """Two hundred values of it take one or two bytes each, and the calls that have none are executed as one."""
    tg, device = on
    table = tg.tensor(rng.standard_normal((200, 4)), device=device)

    def run(number: int) -> np.ndarray[Any, Any]:
        y = table[0]
        for step in range(10):
            y = (y * 1.25).sin()
            if step == place:
                y = y + table[number]
        return y.numpy()

    with call_by_call(tg):
        expected = [run(number) for number in range(200)]
    for number in rng.permutation(200).tolist():
        np.testing.assert_array_equal(run(number), expected[number])
    assert noted["_begin"] > 50


def _decoded(tg: Any, weights: list[Any], table: Any, count: int) -> list[np.ndarray[Any, Any]]:
    """Tokens with a cache of keys and values that grows by each of them, in several layers.

    What a device has to say about the index of a token is outstanding when the layers come.
    """
    caches: list[Any] = [None] * len(weights)
    results, token = [], tg.zeros(1, dtype=tg.int64, device=table.device)
    for _ in range(count):
        y = tg.nn.functional.embedding(token, table)
        for layer, weight in enumerate(weights):
            query, key, value = (tg.nn.functional.layer_norm(y, (16,)) @ weight).split(8, dim=1)
            if caches[layer] is not None:
                key, value = tg.cat([caches[layer][0], key]), tg.cat([caches[layer][1], value])
            caches[layer] = key, value
            mixed = tg.softmax(query @ key.transpose(0, 1) * 0.3, -1) @ value
            y = y + tg.cat([mixed.tanh(), mixed.view(2, 4).transpose(0, 1).reshape(1, 8)], 1)
        token = (y @ table.transpose(0, 1)).argmax(-1)
        results.append(y)
    return [each.numpy() for each in results]


def test_a_cache_may_grow(on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]) -> None:
    """No length comes twice, and the calls of each token are executed as one after a few of them."""
    tg, device = on
    weights = [tg.tensor(rng.standard_normal((16, 24)), device=device, dtype=tg.float32) for _ in range(4)]
    table = tg.tensor(rng.standard_normal((50, 16)), device=device, dtype=tg.float32)
    with call_by_call(tg):
        expected = _decoded(tg, weights, table, 80)
    # On a GPU a product of a new shape is done by a guess first, and later by what turns out to be the fastest.
    tolerance = 0 if device == "cpu" else 1e-4
    for found, wanted in zip(_decoded(tg, weights, table, 80), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    assert noted["_begin"] > 40 and not noted["_take_back"]


def test_sizes_that_depend_on_more_than_was_seen_are_found_out(
    tg: Any, rng: np.random.Generator, noted: Counter[str]
) -> None:  # fmt: skip
    """The product of one row with another is a row; where there are more rows, or columns, it is not."""
    table = tg.tensor(rng.standard_normal((40, 40)))

    def run(rows: int, width: int) -> None:
        x = table[:rows, :width]
        expected = x.numpy().sum(0)[:8] * np.tanh(x.numpy().sum()) * 1.01**10
        y = x.sum(0)[:8] * x.sum().tanh()
        for _ in range(10):
            y = y * 1.01
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12)

    for rows in range(2, 14):
        run(rows, 20)
    before = noted["_begin"]
    assert before and not noted["_take_back"]
    run(3, 5)
    assert noted["_begin"] == before + 1 and noted["_take_back"] == 1
    for rows in range(2, 14):
        run(rows, 20)


def test_inputs_that_were_the_same_memory_may_be_two(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]
) -> None:
    tg, device = on
    x, y = (tg.tensor(rng.standard_normal(8), device=device) for _ in range(2))

    def run(is_alias: bool) -> None:
        a = x * 1.0
        b = a.detach() if is_alias else y * 1.0
        assert a.sum().item() != 0
        for _ in range(12):
            c = (a - b).cos()
        np.testing.assert_allclose(c.numpy(), np.cos(a.numpy() - b.numpy()), atol=1e-12)

    for is_alias in [True] * 6 + [False, True] * 3:
        run(is_alias)


def _of_three(tg: Any, device: str, number: int, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Calls on three tensors whose sizes need not agree: the second is broadcast, the third is reduced."""
    x, y, z = (tg.tensor(array, device=device) for array in arrays)
    x._session.flush()
    a = (x * y).sin() + y
    b = (z.cos() * 0.5).sum() + a
    c = tg.maximum(b, y) - x * number
    return [one.numpy() for one in (a, b, c.sum(), c)]


def test_sizes_of_several_inputs_change_in_their_own_ways(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]
) -> None:
    """An input that had the same size in two runs, while another differed, may have any size in the next one."""
    tg, device = on
    drawn = []
    for number in range(400):
        rows, columns, length = (int(size) for size in rng.choice([1, 3], 3))
        shapes = [(columns,), (int(rng.choice([1, columns])),), (rows, length)]
        drawn.append((number // 25, [rng.standard_normal(shape).astype(np.float32) for shape in shapes]))
    with call_by_call(tg):
        expected = [_of_three(tg, device, *each) for each in drawn]
    for each, wanted in zip(drawn, expected, strict=True):
        for one, other in zip(_of_three(tg, device, *each), wanted, strict=True):
            np.testing.assert_array_equal(one, other)
    # A GPU executes calls on other sizes as one only where enough of them depends on no size; here none does.
    assert noted["_begin"] > (20 if device == "cpu" else 0)


def _last_rows(tg: Any, x: Any) -> list[Any]:
    """The last rows of a few rows are the same memory as all of them."""
    last = x[-9:].sin()
    return [last, x.sum(), x.cos(), x[-9:], x]


def _as_one_row(tg: Any, x: Any) -> list[Any]:
    """Rows that lie behind each other are viewed, and others are copied."""
    row = x.reshape(-1)
    return [row, row.sin(), row.sum()]


def _without_ones(tg: Any, x: Any) -> list[Any]:
    row = x.squeeze(0).cos()
    return [row, x.sin(), x.sum(-1), row.sum(0)]


def _with_more_types(tg: Any, x: Any) -> list[Any]:
    with tg.autocast("cpu", dtype=tg.bfloat16):
        y = x @ x.t()
    return [
        y.float(),
        x.to(tg.float64),
        x.type_as(y).float(),
        (x * tg.ones((), dtype=tg.float32, device=x.device)).float(),
    ]


def _of_layouts(tg: Any, device: str, function: Any, arrays: list[Any], layouts: list[tuple[Any, ...]]) -> list[Any]:
    """What a function makes of matrices, which are written to afterwards: what shares their memory is, too."""
    kept = []
    for number, (kind, rows, columns, dtype) in enumerate(layouts):
        large = tg.tensor(arrays[number], dtype=getattr(tg, dtype), device=device)
        x = large[:columns, :rows].clone().t() if kind == "transposed" else large[:rows, :columns]
        x = x.clone() if kind == "whole" else x
        x._session.flush()
        y = x.sum()
        for _ in range(8):
            y = y.cos()
        made = [y, *function(tg, x)]
        x._session.flush()
        x.mul_(2)
        kept.append(made)
    return [[(one.dtype, one.stride(), one.double().numpy()) for one in made] for made in kept]


@pytest.mark.parametrize(
    ("function", "learnt", "then"),
    [
        (_last_rows, "whole", ("whole", 11, 3, "float64")), (_as_one_row, "transposed", ("whole", 5, 3, "float64")),
        (_as_one_row, "whole", ("transposed", 5, 3, "float64")), (_without_ones, "whole", ("whole", 1, 9, "float64")),
        (_with_more_types, "bfloat16", ("whole", 5, 3, "float32")),
    ],
)  # fmt: skip
def test_calls_look_at_sizes_and_layouts_again_in_each_run(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str], function: Any, learnt: str, then: Any
) -> None:
    """What two runs have in common need not hold in the next: that a result is a view, or the memory of another."""
    tg, device = on
    first = ("whole", learnt) if learnt == "bfloat16" else (learnt, "float64")
    layouts = [*[(first[0], rows, 3, first[1]) for rows in range(2, 9)], then]
    for rows, columns in rng.integers(0, 12, (12, 2)):
        kind, dtype = rng.choice(["whole", "transposed", "part"]), rng.choice(["float64", "float64", "float32"])
        layouts.append((str(kind), int(rows), int(columns), str(dtype)))
    arrays = [rng.standard_normal((12, 12)) for _ in layouts]
    with call_by_call(tg):
        expected = _of_layouts(tg, device, function, arrays, layouts)
    found = _of_layouts(tg, device, function, arrays, layouts)
    for layout, these, those in zip(layouts, found, expected, strict=True):
        for (*kind, one), (*wanted, other) in zip(these, those, strict=True):
            assert kind == wanted, layout
            np.testing.assert_array_equal(one, other, err_msg=str(layout))
    assert noted["_begin"] > (1 if device == "cpu" else -1)
