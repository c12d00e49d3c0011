"""``utils.data``: data sets, samplers, collation, loaders give what PyTorch's give where no random order matters."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter, namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as theirs

Pair = namedtuple("Pair", "left right")


class Squares(theirs.Dataset[Any]):
    """A data set of no tensors, which both loaders read."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        if index == 1000:
            raise KeyError("sample 1000 is damaged")
        array = np.full((2, 3), index, np.float32)
        pair = Pair(index / 2, index % 2 == 0)
        return {"array": array, "number": index, "pair": pair, "name": str(index), "list": [index]}


def plain(batch: Any) -> Any:
    """A batch as plain Python data with the types of tensors."""
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch).__name__, [plain(value) for value in batch]
    if hasattr(batch, "tolist"):
        return str(batch.dtype).replace("telegrad.", "torch."), tuple(batch.shape), batch.tolist()
    return batch


OPTIONS = [{}, {"drop_last": True}, {"num_workers": 2}, {"num_workers": 3, "prefetch_factor": 1}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batches_are_those_of_pytorch(tg: Any, options: dict[str, Any]) -> None:
    data = Squares(11)
    ours = tg.utils.data.DataLoader(data, 4, **options)
    reference = theirs.DataLoader(data, 4, drop_last=bool(options.get("drop_last")))
    assert [plain(batch) for batch in ours] == [plain(batch) for batch in reference]
    assert len(ours) == len(reference)


def test_single_samples_are_converted(tg: Any) -> None:
    data = Squares(3)
    ours = [plain(sample) for sample in tg.utils.data.DataLoader(data, batch_size=None)]
    assert ours == [plain(sample) for sample in theirs.DataLoader(data, batch_size=None)]


@pytest.mark.parametrize("workers", [0, 2])
def test_tensor_data_sets_and_their_subsets(tg: Any, workers: int) -> None:
    x, y = tg.arange(20.0).reshape(10, 2), tg.arange(10)
    data = tg.utils.data.TensorDataset(x, y)
    subset = tg.utils.data.Subset(tg.utils.data.Subset(data, [9, 8, 7, 3]), [3, 0, 1])
    batches = list(tg.utils.data.DataLoader(subset, 2, num_workers=workers))
    assert [[b.tolist() for b in batch] for batch in batches] == [[[[6, 7], [18, 19]], [3, 9]], [[[16, 17]], [8]]]
    joined = tg.utils.data.default_collate([subset[0], subset[1]])
    assert [plain(a) for a in joined] == [plain(a) for a in batches[0]]


def test_random_orders_are_permutations_and_repeat_with_the_seed(tg: Any, seed: int) -> None:
    loader = tg.utils.data.DataLoader(range(100), 10, shuffle=True)

    def epoch() -> list[int]:
        return [number for batch in loader for number in batch.tolist()]

    tg.manual_seed(seed)
    first, second = epoch(), epoch()
    tg.manual_seed(seed)
    assert epoch() == first != second
    assert sorted(first) == sorted(second) == list(range(100))


def test_workers_draw_random_numbers_before_the_first_batch_is_asked_for(tg: Any, seed: int) -> None:
    """A program that restores the generator's state between the two finds it as it was, as in PyTorch."""
    tg.manual_seed(seed)
    batches = iter(tg.utils.data.DataLoader(range(20), 5, shuffle=True, num_workers=2))
    state = tg.get_rng_state()
    assert len(next(batches)) == 5
    assert tg.equal(tg.get_rng_state(), state)
    batches.close()


def test_the_iterator_of_a_stream_is_made_with_that_of_its_loader(tg: Any) -> None:
    class Broken(tg.utils.data.IterableDataset):  # type: ignore[name-defined, misc]
        def __iter__(self) -> Iterator[int]:
            raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        iter(tg.utils.data.DataLoader(Broken()))


def test_samplers(tg: Any, seed: int) -> None:
    data = tg.utils.data
    tg.manual_seed(seed)
    drawn = Counter(data.WeightedRandomSampler([0.0, 1.0, 3.0], 4000))
    assert set(drawn) == {1, 2} and 2600 < drawn[2] < 3400
    assert sorted(data.WeightedRandomSampler(tg.tensor([1.0, 2.0, 3.0]), 3, replacement=False)) == [0, 1, 2]
    assert sorted(data.RandomSampler(range(3), num_samples=7)).count(0) in (2, 3)
    assert sorted(data.SubsetRandomSampler([4, 7, 9])) == [4, 7, 9]
    assert list(data.BatchSampler(data.SequentialSampler(range(5)), 2, True)) == [[0, 1], [2, 3]]
    parts = [list(data.DistributedSampler(range(7), 3, rank)) for rank in range(3)]
    assert {index for part in parts for index in part} == set(range(7)) and {len(part) for part in parts} == {3}
    with pytest.raises(ValueError, match="without replacement out of 1 whose weight is not zero"):
        data.WeightedRandomSampler([0.0, 1.0], 2, replacement=False)


def test_splits_by_lengths_and_fractions(tg: Any) -> None:
    split = tg.utils.data.random_split
    assert [len(part) for part in split(range(10), [7, 3])] == [7, 3]
    parts = split(range(11), [0.5, 0.3, 0.2])
    assert [len(part) for part in parts] == [len(part) for part in theirs.random_split(range(11), [0.5, 0.3, 0.2])]
    assert sorted(number for part in parts for number in part) == list(range(11))
    with pytest.raises(ValueError, match="do not add up to the 10 samples"):
        split(range(10), [7, 4])


def test_composed_data_sets(tg: Any) -> None:
    data = tg.utils.data
    joined = data.ConcatDataset([range(3), range(10, 12)])
    assert [joined[i] for i in range(5)] == [0, 1, 2, 10, 11] and joined[-1] == 11
    with pytest.raises(IndexError):
        joined[5]
    stacked = data.StackDataset(a=range(3), b=[5, 6, 7])
    assert [plain(batch) for batch in data.DataLoader(stacked, 2)] == [
        {"a": ("torch.int64", (2,), [0, 1]), "b": ("torch.int64", (2,), [5, 6])},
        {"a": ("torch.int64", (1,), [2]), "b": ("torch.int64", (1,), [7])},
    ]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_streams(tg: Any, workers: int) -> None:
    data = tg.utils.data

    class Numbers(data.IterableDataset):  # type: ignore[name-defined, misc]
        def __iter__(self) -> Iterator[int]:
            info = data.get_worker_info()
            return iter(range(10)) if info is None else iter(range(info.id, 10, info.num_workers))

    loader = data.DataLoader(Numbers(), 2, num_workers=workers)
    for _ in range(2):
        assert sorted(number for batch in loader for number in batch.tolist()) == list(range(10))
    chained = data.DataLoader(data.ChainDataset([Numbers(), Numbers()]), 4, num_workers=workers, drop_last=True)
    assert all(len(batch) == 4 for batch in chained)
    with pytest.raises(ValueError, match="takes no shuffle"):
        data.DataLoader(Numbers(), shuffle=True)


def test_workers_start_with_their_function_stay_if_asked_and_fail_in_the_program(tg: Any) -> None:
    started: list[int] = []
    loader = tg.utils.data.DataLoader(
        range(8), 2, num_workers=2, worker_init_fn=started.append, persistent_workers=True
    )
    assert [batch.tolist() for batch in loader] == [batch.tolist() for batch in loader]
    assert sorted(started) == [0, 1]
    del loader
    with pytest.raises(KeyError, match="sample 1000 is damaged"):
        list(tg.utils.data.DataLoader(Squares(1001), 100, num_workers=2))

    def fail(_: int) -> None:
        raise OSError("no such disk")

    with pytest.raises(OSError, match="no such disk"):
        list(tg.utils.data.DataLoader(range(8), num_workers=1, worker_init_fn=fail))


def test_workers_read_ahead_but_not_further_than_told(tg: Any) -> None:
    read: list[int] = []
    ready = threading.Event()

    class Counted(theirs.Dataset[int]):
        def __getitem__(self, index: int) -> int:
            read.append(index)
            if index == 3:
                ready.set()
            return index

        def __len__(self) -> int:
            return 10

    batches = iter(tg.utils.data.DataLoader(Counted(), 1, num_workers=2, prefetch_factor=2))
    assert next(batches).tolist() == [0]
    assert ready.wait(20), "four batches are under way when the first is asked for"
    batches.close()
    assert max(read) == 3


def test_a_worker_that_takes_too_long(tg: Any) -> None:
    go_on = threading.Event()

    class Slow(theirs.Dataset[int]):
        def __getitem__(self, index: int) -> int:
            go_on.wait()
            return index

        def __len__(self) -> int:
            return 1

    timer = threading.Timer(1.0, go_on.set)  # the program waits for the worker's end after the error
    timer.start()
    with pytest.raises(RuntimeError, match=r"timed out after 0\.01 seconds"):
        list(tg.utils.data.DataLoader(Slow(), num_workers=1, timeout=0.01))
    timer.join()


BAD_ARGUMENTS: list[dict[str, Any]] = [
    {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2}, {"persistent_workers": True}, {"batch_size": 0},
    {"sampler": [1], "shuffle": True}, {"batch_sampler": [[1]], "batch_size": 2},
    {"batch_size": None, "drop_last": True},
]  # fmt: skip


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS, ids=str)
def test_arguments_that_pytorch_refuses(tg: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        theirs.DataLoader(range(3), **arguments)
    with pytest.raises(ValueError, match=r"^(DataLoader|BatchSampler): "):
        tg.utils.data.DataLoader(range(3), **arguments)


def test_samples_that_do_not_fit_together(tg: Any) -> None:
    collate = tg.utils.data.default_collate
    with pytest.raises(RuntimeError, match="different shapes"):
        collate([np.zeros(2), np.zeros(3)])
    with pytest.raises(RuntimeError, match="should be of equal size"):
        collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="found object; give the DataLoader a collate_fn"):
        collate([object()])
    assert plain(collate([2])) == plain(torch.utils.data.default_collate([2]))
    assert collate(list(np.array(["a", "b"]))) == torch.utils.data.default_collate(list(np.array(["a", "b"])))
    with pytest.raises(ValueError, match="multiprocessing_context can only be used with num_workers"):
        tg.utils.data.DataLoader([1], multiprocessing_context="spawn")


PROCESSES = """
import os, sys, telegrad as tg, numpy as np
from telegrad.utils.data import DataLoader, Dataset, get_worker_info

class Host(Dataset):
    def __len__(self): return 6
    def __getitem__(self, index):
        return np.full(2, index, np.float32), index, get_worker_info().id, os.getpid() != parent

class Remote(Host):
    def __getitem__(self, index): return weight * index

if __name__ == "__main__":
    with tg.connect(devices="cpu"):
        parent, weight = os.getpid(), tg.ones(2)
        for batch in DataLoader(Host(), 2, num_workers=2, multiprocessing_context="fork"):
            print([field.tolist() for field in batch])
        try:
            list(DataLoader(Remote(), 2, num_workers=1, multiprocessing_context="fork"))
        except tg.errors.CommunicationError as error:
            print("belongs to the process that was forked" in str(error))
"""


def test_processes_give_host_data_and_are_refused_tensors() -> None:
    done = subprocess.run([sys.executable, "-c", PROCESSES], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "[[[0.0, 0.0], [1.0, 1.0]], [0, 1], [0, 0], [True, True]]",
        "[[[2.0, 2.0], [3.0, 3.0]], [2, 3], [1, 1], [True, True]]",
        "[[[4.0, 4.0], [5.0, 5.0]], [4, 5], [0, 0], [True, True]]",
        "True",
    ], done.stderr
