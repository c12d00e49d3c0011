"""``DataLoader``: batches of a data set, read by this thread or ahead of it by workers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from itertools import repeat
from typing import Any, Final, Generic, TypeAlias, TypeVar

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from .collate import default_collate, default_convert
from .dataset import Dataset, IterableDataset
from .fetching import _DatasetKind as _DatasetKind
from .passes import _BaseDataLoaderIter as _BaseDataLoaderIter
from .passes import _MultiProcessingDataLoaderIter as _MultiProcessingDataLoaderIter
from .passes import _SingleProcessDataLoaderIter as _SingleProcessDataLoaderIter
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

T_co = TypeVar("T_co", covariant=True)


_FIXED: Final = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
"""What a loader is made with and its samplers go by, which is not set later."""


class DataLoader(Generic[T_co]):
    """Iterates over a data set in batches, with PyTorch's arguments.

    Operations wait for no answer, so that the server computes while this thread puts the next batch together. A
    program that reads a loss in every step waits: ``num_workers`` then has that many threads work ahead of it, up to
    ``prefetch_factor`` batches each (2 unless told), and their uploads travel while the server computes.

    Workers are threads of this process and may use tensors. Each has a copy of the data set of its own, as a forked
    process has, so that ``worker_init_fn`` may set which part of the data a worker reads; tensors, arrays and the
    samples of large lists are shared (``own_copies``). With ``multiprocessing_context`` ("fork", "spawn",
    "forkserver" or a context) they are processes, for data sets whose Python code takes long: those give NumPy arrays
    and numbers, which become tensors in this process; a tensor of this process's session is refused there by a
    CommunicationError. ``pin_memory`` changes nothing: uploads run through page-locked memory of the server anyway.
    """

    _is_complete = False

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        _check_sampling(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = _context(multiprocessing_context, num_workers)
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self.drop_last = drop_last
        self.batch_size = None if batch_sampler is not None else batch_size
        self.sampler: Any = self._default_sampler(bool(shuffle)) if sampler is None else sampler
        self.batch_sampler: Any = batch_sampler
        if batch_sampler is None and batch_size is not None:
            self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        collate = default_convert if self.batch_sampler is None else default_collate
        self.collate_fn: Callable[[Any], Any] = collate_fn or collate
        self._workers: list[Executor] = []
        self._iterator: _BaseDataLoaderIter | None = None
        self._is_complete = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and self._is_complete:
            raise ArgumentError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def _default_sampler(self, shuffle: bool) -> Any:
        if isinstance(self.dataset, IterableDataset):
            return _Endless()
        return RandomSampler(self.dataset, generator=self.generator) if shuffle else SequentialSampler(self.dataset)  # type: ignore[arg-type]

    @property
    def _dataset_kind(self) -> int:
        return _DatasetKind.Iterable if isinstance(self.dataset, IterableDataset) else _DatasetKind.Map

    @property
    def _auto_collation(self) -> bool:
        """Whether samples are put together into batches."""
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        """What gives indices, of batches or of single samples."""
        return self.batch_sampler if self._auto_collation else self.sampler

    def __iter__(self) -> _BaseDataLoaderIter:
        if not self.num_workers:
            return _SingleProcessDataLoaderIter(self)
        started = _MultiProcessingDataLoaderIter(self)
        self._iterator = started if self.persistent_workers else None
        return started

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return len(self._index_sampler)
        size = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return size
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)


_collate_fn_t: TypeAlias = Callable[[list[Any]], Any]


class _Endless(Sampler[Any]):
    """Stands for indices where a stream has none."""

    def __iter__(self) -> Iterator[Any]:
        return repeat(None)


def _context(given: Any, num_workers: int) -> Any:
    if given is not None and not num_workers:
        raise ArgumentError("DataLoader: multiprocessing_context can only be used with num_workers > 0")
    if isinstance(given, str):
        return multiprocessing.get_context(given)
    if given is not None and not hasattr(given, "Process"):
        raise ArgumentTypeError(
            "DataLoader: multiprocessing_context option should be a valid context object or a string specifying the "
            f"start method, but is a {type(given).__name__}"
        )
    return given


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool) -> None:
    if num_workers < 0:
        raise ArgumentError(
            "DataLoader: num_workers option should be non-negative; use num_workers=0 to read the data in this thread"
        )
    if timeout < 0:
        raise ArgumentError("DataLoader: timeout option should be non-negative")
    if not num_workers and prefetch_factor is not None:
        raise ArgumentError("DataLoader: prefetch_factor option could only be specified with num_workers > 0")
    if prefetch_factor is not None and prefetch_factor <= 0:
        raise ArgumentError("DataLoader: prefetch_factor option should be positive")
    if persistent_workers and not num_workers:
        raise ArgumentError("DataLoader: persistent_workers option needs num_workers > 0")


def _check_sampling(
    dataset: Any, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    if isinstance(dataset, IterableDataset):
        given = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
        unusable = [name for name, value in given.items() if value is not None]
        if unusable:
            raise ArgumentError(f"DataLoader: an IterableDataset is a stream and takes no {unusable[0]}")
    if sampler is not None and shuffle:
        raise ArgumentError("DataLoader: sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ArgumentError(
            "DataLoader: batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
        )
    if batch_size is None and drop_last:
        raise ArgumentError(
            "DataLoader: batch_size=None option makes no batches, and is mutually exclusive with drop_last"
        )
