"""What loaders do beside giving batches: errors of samples, orders with and without workers, and mixed numbers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
import torch.utils.data


class TwoPartsError(Exception):
    """An error that is not made of one text."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


class Damaged:
    """Samples of which the third raises an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> int:
        if index == 2:
            raise self.error
        return index


def _outcomes(t: Any, error: Exception, workers: int) -> list[Any]:
    """What six requests for a batch give: numbers, or the class and the first words of an error."""
    batches, results = iter(t.utils.data.DataLoader(Damaged(error), num_workers=workers)), []
    for _ in range(6):
        try:
            results.append(next(batches).tolist())
        except Exception as raised:
            results.append((type(raised), str(raised).split("\n")[0], "Original Traceback" in str(raised)))
    return results


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("error", [KeyError("a"), ValueError("b"), TwoPartsError("c", "d"), StopIteration()], ids=repr)
def test_an_error_of_a_sample_names_the_worker_and_does_not_end_the_pass(
    tg: Any, error: Exception, workers: int
) -> None:
    ours = _outcomes(tg, error, workers)
    assert ours[3:5] == [[3], [4]]
    if not workers:  # a worker of PyTorch's is a process, which a test need not start
        assert ours == _outcomes(torch, error, workers)
        return
    kind = RuntimeError if type(error) is TwoPartsError else type(error)
    assert ours[2] == (kind, f"Caught {type(error).__name__} in DataLoader worker process 0.", True)


def test_batches_come_in_the_same_order_with_and_without_workers(tg: Any, seed: int) -> None:
    orders = []
    for workers in (0, 1, 2):
        tg.manual_seed(seed)
        loader = tg.utils.data.DataLoader(range(50), 5, shuffle=True, num_workers=workers)
        orders.append([[batch.tolist() for batch in loader] for _ in range(2)])
    assert orders[0] == orders[1] == orders[2]


NUMBERS = [[1, 2.5], [True, 2], [True, 2.5], [2.5, 1], [1, 2], [True, False], [10**20, 1]]


@pytest.mark.parametrize("numbers", NUMBERS, ids=str)
def test_numbers_of_several_kinds_have_their_common_type(tg: Any, numbers: list[Any]) -> None:
    if 10**20 in numbers:
        for t in (torch, tg):
            with pytest.raises((ValueError, RuntimeError)):
                t.utils.data.default_collate(numbers)
        return
    ours, theirs = (t.utils.data.default_collate(numbers) for t in (tg, torch))
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
    assert ours.tolist() == theirs.tolist()


def test_a_class_of_the_program_is_collated_by_its_function_beside_the_usual_ones(tg: Any) -> None:
    for t in (torch, tg):
        functions = import_module("torch.utils.data._utils.collate" if t is torch else "telegrad.utils.data.collate")
        table = {**functions.default_collate_fn_map, Damaged: lambda batch, *, collate_fn_map=None: len(batch)}
        assert {t.Tensor, float, int, str, bytes} <= set(table)
        number, count = functions.collate([(1, Damaged(OSError())), (2, Damaged(OSError()))], collate_fn_map=table)
        assert (number.tolist(), count) == ([1, 2], 2)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda data: data.ConcatDataset([range(2)])[-3], ValueError),
        (lambda data: data.ConcatDataset([range(2)])[2], IndexError),
        (lambda data: list(data.ChainDataset([range(2)])), AssertionError),
        (lambda data: data.RandomSampler(range(2), replacement=1), TypeError),
        (lambda data: data.DataLoader(range(2), num_workers=1, multiprocessing_context=3), TypeError),
    ],
)
def test_errors_have_the_classes_of_pytorchs(tg: Any, make: Any, kind: type[Exception]) -> None:
    for t in (torch, tg):
        with pytest.raises(kind):
            make(t.utils.data)
