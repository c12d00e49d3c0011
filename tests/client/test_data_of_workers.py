"""What workers of a ``DataLoader`` do with its data set, and passes that libraries begin with loaders of their own."""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch.utils.data as theirs

from telegrad.utils.data.own_copies import own_copy

from .twins import assert_same, evaluate

STREAM = """
D = __import__("importlib").import_module(t.__name__ + ".utils.data")

class Range(D.IterableDataset):
    def __init__(self, start, end):
        self.bounds = {"start": start, "end": end}

    def __iter__(self):
        return iter(range(self.bounds["start"], self.bounds["end"]))

def split(worker):
    info = D.get_worker_info()
    bounds, share = info.dataset.bounds, -(-(end - start) // info.num_workers)
    bounds["start"] = start + worker * share
    bounds["end"] = min(bounds["start"] + share, end)

stream = Range(start, end)
loader = D.DataLoader(stream, size, num_workers=workers, worker_init_fn=split, persistent_workers=stays)
passes = [sorted(number for batch in loader for number in batch.tolist()) for _ in range(2)]
if stays:
    loader._iterator._shutdown_workers()
(passes, list(stream.bounds.values()))
"""


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_stream_is_divided_by_what_the_program_sets_in_each_worker(
    workers: int, stays: bool, tg: Any, rng: np.random.Generator
) -> None:
    start = int(rng.integers(0, 5))
    values = {"start": start, "end": start + int(rng.integers(3, 9)), "size": int(rng.integers(1, 4))}
    assert_same(*evaluate(STREAM, tg, workers=workers, stays=stays, **values))


class Counted(theirs.Dataset[Any]):
    """Counts what it has read, and puts samples together by a method."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.draws = random.Random(3)
        self.samples = [SimpleNamespace(at=at) for at in range(1000)]
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        self.read.append(index)
        return index

    def collate(self, samples: list[int]) -> tuple[int, ...]:
        return (*samples, len(self.read), self.draws.randrange(10**6))


def test_workers_change_copies_of_a_data_set_as_forked_processes_do(tg: Any) -> None:
    data = Counted()
    ours = list(tg.utils.data.DataLoader(data, 1, num_workers=2, collate_fn=data.collate))
    assert ours == list(theirs.DataLoader(data, 1, num_workers=2, collate_fn=data.collate))
    assert data.read == []


def test_what_workers_share(tg: Any) -> None:
    data = Counted()
    data.weight, data.file = tg.ones(2), io.StringIO()  # type: ignore[attr-defined]
    data.itself, data.generator = data, np.random.default_rng(0)  # type: ignore[attr-defined]
    copied, collate = own_copy(data, data.collate)
    assert copied is not data and copied.itself is copied and collate.__self__ is copied
    assert [getattr(copied, name) is getattr(data, name) for name in ("weight", "lock", "file", "draws", "read")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert copied.samples is not data.samples and copied.samples[0] is data.samples[0]
    assert copied.generator.random() == data.generator.random()  # type: ignore[attr-defined]


class Pages:
    """A loader of a library's own, which has what iterators of PyTorch's read and no more."""

    _dataset_kind, _auto_collation, drop_last, in_order = 1, False, False, True
    generator, worker_init_fn, multiprocessing_context, prefetch_factor = None, None, None, 2
    timeout, persistent_workers, pin_memory, pin_memory_device = 0, False, False, ""
    _IterableDataset_len_called = None

    def __init__(self, num_workers: int) -> None:
        self.dataset, self.num_workers = self, num_workers

    def _index_sampler(self) -> Iterator[int]:
        return count()

    def _get_shared_seed(self) -> None:
        pass

    def collate_fn(self, sample: Any) -> Any:
        return [sample]

    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_pass_begins_with_a_loader_that_is_none_of_pytorchs(workers: int, tg: Any) -> None:
    loader: Any = Pages(workers)
    loader._index_sampler = count()
    name = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    ours = list(getattr(tg.utils.data.dataloader, name)(loader))
    loader._index_sampler = count()
    assert ours == list(getattr(theirs.dataloader, name)(loader)) == [[0], [1], [2], [3]]


AT_ONCE = """
D = __import__("importlib").import_module(t.__name__ + ".utils.data")

class Table(D.Dataset):
    def __len__(self):
        return 5

    def __getitems__(self, indices):
        return {"rows": t.tensor(indices) * 10}

{program}
"""
PROGRAMS = [
    "[batch['rows'].tolist() for batch in D.DataLoader(Table(), 2, collate_fn=lambda batch: batch)]",
    "[batch['rows'].tolist() for batch in D.DataLoader(D.Subset(Table(), [4, 2]), 2, collate_fn=lambda batch: batch)]",
    "list(D.DataLoader(D.StackDataset(Table(), range(5)), 2))",
    "loader = D.DataLoader(range(3), 2)\n"
    "[(one._dataset_kind, one._auto_collation, len(one._index_sampler)) for one in (loader, D.DataLoader([1], None))]",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_data_sets_that_read_a_batch_at_once_may_return_it_whole(program: str, tg: Any) -> None:
    assert_same(*evaluate(AT_ONCE.replace("{program}", program), tg))
