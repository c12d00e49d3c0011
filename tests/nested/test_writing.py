"""Writing into jagged tensors by tensors of indices, beside the same writing into padded ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad.errors import ArgumentTypeError, DTypeError, IndexOutOfRangeError

from .twins import LENGTHS, operands_of, outcome

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
WRITTEN = [
    "x.index_put((n, j), v)", "t.index_put(x, (n, j), v[0, 0])", "x.clone().index_put_((n, j), v, accumulate=False)",
    "x.index_put([n, j, c], v[:, 0])", "z.index_put((n, j, c % 2, c), v[:, 0])", "z.index_put((n, j, c % 2), v)",
    "x.index_put((n, j), v, accumulate=True)", "x.index_put((n[:, None], j * 0), v[:1])",
    "put(x.clone(), (n, j), v)", "put(x.clone(), (n, j), 2.5)", "x.index_put((n,), v[0])",
    "x.index_put((n,), v[0, 0])", "z.index_put((n,), v[:1])", "put(x.clone(), (n,), 0.0)",
    "x.index_put((n[:1],), v[0, None, None], accumulate=True)", "z.index_put((n[None],), v[:1, :1, None])",
    "x.transpose(1, 2).index_put((n, c, j), v[:, 0]).transpose(1, 2)",
    "x.index_put((n,), v[:, None])", "z.transpose(1, 2).index_put((n, c % 2, j), v).transpose(1, 2)",
]  # fmt: skip


def put(x: Any, index: Any, value: Any) -> Any:
    x[index] = value
    return x


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("text", WRITTEN)
def test_the_same_rows_as_of_a_padded_tensor_are_written(
    text: str, lengths: list[int], tg: Any, rng: np.random.Generator
) -> None:
    numbers = rng.permutation(np.flatnonzero(lengths))
    rows = np.array([rng.integers(lengths[number]) for number in numbers])
    columns, values = rng.integers(0, 4, len(rows)), rng.standard_normal((len(rows), 4)).astype(np.float32)
    make, results = operands_of(rng, lengths), []
    for t in (tg, torch):
        made = make(t)
        if t is torch:
            made |= {name: made[name].to_padded_tensor(0.0) for name in "xz"}
        made |= {"put": put, "n": t.tensor(numbers), "j": t.tensor(rows), "c": t.tensor(columns)}
        results.append(outcome(text, t, made | {"v": t.tensor(values)}))
    ours, theirs = results
    assert ours.is_nested
    for part, padded, length in zip(ours.unbind(), theirs, lengths, strict=True):
        np.testing.assert_allclose(part.numpy(), padded[:length].numpy(), rtol=1e-6, atol=1e-6)


def test_the_last_of_equal_indices_stays_and_accumulated_ones_add_up(tg: Any, rng: np.random.Generator) -> None:
    lengths = [2, 0, 3]
    packed, values = rng.standard_normal((5, 4)), rng.standard_normal((4, 1, 4))
    nested = tg.nested.nested_tensor_from_jagged(tg.tensor(packed), tg.tensor(np.cumsum([0, *lengths])))
    numbers = np.array([2, 0, 2, 1])
    chosen, added = tg.tensor(numbers), tg.tensor(values)
    written, summed = np.split(packed.copy(), [2, 2]), np.split(packed.copy(), [2, 2])
    for number, value in zip(numbers, values, strict=True):
        written[number][:] = value
        summed[number] += value
    np.testing.assert_array_equal(nested.index_put((chosen,), added).values().numpy(), np.concatenate(written))
    np.testing.assert_allclose(
        nested.index_put((chosen,), added, accumulate=True).values().numpy(), np.concatenate(summed)
    )


@pytest.mark.parametrize("accumulate", [False, True])
def test_gradients_go_to_what_stays_and_what_is_written(accumulate: bool, tg: Any, rng: np.random.Generator) -> None:
    offsets = tg.tensor([0, 2, 2, 5])
    packed = tg.tensor(rng.standard_normal((5, 2)), requires_grad=True)
    row, all_rows = (tg.tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((2, 2), (1, 1, 2)))
    n, j = tg.tensor([2, 0]), tg.tensor([1, 1])

    def written(packed: Any, row: Any, all_rows: Any) -> Any:
        nested = tg.nested.nested_tensor_from_jagged(packed, offsets) * 2
        nested = nested.index_put((n[:1],), all_rows, accumulate=accumulate)
        return nested.index_put((n, j), row, accumulate=accumulate).values().sin()

    assert tg.autograd.gradcheck(written, (packed, row, all_rows))


def test_indices_that_are_no_rows_of_their_element_are_out_of_range(tg: Any) -> None:
    x = tg.nested.nested_tensor([tg.zeros(2, 3), tg.zeros(1, 3)], layout=tg.jagged)
    for n, j in (([1], [1]), ([0], [-1]), ([2], [0]), ([0], [2])):
        with pytest.raises(IndexOutOfRangeError):
            x.index_put((tg.tensor(n), tg.tensor(j)), tg.tensor(1.0)).values().tolist()
    with pytest.raises(DTypeError, match="expected values of float32, got int64"):
        x.index_put((tg.tensor([0]),), tg.tensor(1))
    with pytest.raises(ArgumentTypeError, match="expected tensors as indices, not NoneType"):
        x.index_put((None, tg.tensor([0])), tg.tensor(1.0))
