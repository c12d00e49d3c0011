"""``DataLoader``: batches of a data set, read by this thread or ahead of it by workers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from itertools import islice, repeat
from typing import Any, Final, Generic, NoReturn, TypeAlias, TypeVar

from telegrad._session.labelling import LABELLED_METHODS, LabelledMethod
from telegrad_protocol.errors import ArgumentError

from .collate import collate_on_host, default_collate, default_convert, upload_fields
from .dataset import Dataset, IterableDataset, can_collate, samples_of
from .draws import drawn_seed
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from .workers import END, WorkerPlan, begin, work

T_co = TypeVar("T_co", covariant=True)


_FIXED: Final = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
"""What a loader is made with and its samplers go by, which is not set later."""


class DataLoader(Generic[T_co]):
    """Iterates over a data set in batches, with PyTorch's arguments.

    Operations wait for no answer, so that the server computes while this thread puts the next batch together. A
    program that reads a loss in every step waits: ``num_workers`` then has that many threads work ahead of it, up to
    ``prefetch_factor`` batches each (2 unless told), and their uploads travel while the server computes.

    Workers are threads of this process and may use tensors. With ``multiprocessing_context`` ("fork", "spawn",
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
        self.multiprocessing_context = _context(multiprocessing_context) if num_workers else None
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

    def __iter__(self) -> _BaseDataLoaderIter:
        indices = iter(self.sampler if self.batch_sampler is None else self.batch_sampler)
        if self.num_workers:
            batches = self._ahead(indices)
            next(batches)
            started = _MultiProcessingDataLoaderIter(self, batches)
            self._iterator = started if self.persistent_workers else None
            return started
        source = iter(self.dataset) if isinstance(self.dataset, IterableDataset) else self.dataset
        return _SingleProcessDataLoaderIter(self, self._in_this_thread(source, indices))

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
        size = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return size
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)

    def _in_this_thread(self, source: Any, indices: Iterator[Any]) -> Generator[Any, None, None]:
        fetch = self._fetcher(self.collate_fn)
        for wanted in indices:
            batch = fetch(source, wanted)
            if batch is END:
                return
            yield batch

    def _ahead(self, indices: Iterator[Any]) -> Generator[Any, None, None]:
        """Give None once the workers have their first work, then what they have put together.

        Each has up to ``prefetch_factor`` batches to work on. Random numbers for the pass are drawn before the first
        batch is asked for, as in PyTorch, so that a program may restore the generator's state in between.
        """
        workers = self._workers or self._start_workers()
        try:
            yield from self._collected(workers, [worker.submit(begin) for worker in workers], indices)
        finally:
            if not self.persistent_workers:
                self._stop(workers)

    def _stop(self, workers: list[Executor]) -> None:
        self._workers = []
        for worker in workers:
            worker.shutdown(cancel_futures=True)

    def _collected(
        self, workers: list[Executor], beginning: list[Future[Any]], indices: Iterator[Any]
    ) -> Iterator[Any]:
        reading, turn = list(workers), 0
        under_way: dict[Future[Any], Executor] = {}
        most = len(workers) * (self.prefetch_factor or 2)
        finish = upload_fields if self.multiprocessing_context is not None else _unchanged
        try:
            while True:
                for wanted in islice(indices, max(0, most - len(under_way)) if reading else 0):
                    worker = reading[turn % len(reading)]
                    under_way[worker.submit(work, wanted)] = worker
                    turn += 1
                if beginning:
                    yield None
                    for began in beginning:
                        began.result()
                    beginning = []
                if not under_way:
                    return
                future = self._next(under_way)
                worker, batch = under_way.pop(future), future.result()
                if not isinstance(batch, str) or batch != END:
                    yield finish(batch)
                elif worker in reading:
                    reading.remove(worker)
        finally:
            for future in under_way:
                future.cancel()

    def _next(self, under_way: dict[Future[Any], Executor]) -> Future[Any]:
        """Return the next batch once it is there."""
        awaited = [next(iter(under_way))] if self.in_order else list(under_way)
        done, _ = wait(awaited, self.timeout or None, FIRST_COMPLETED)
        if not done:
            raise RuntimeError(f"DataLoader timed out after {self.timeout} seconds")
        return next(future for future in awaited if future in done)

    def _start_workers(self) -> list[Executor]:
        context, collate = self.multiprocessing_context, self.collate_fn
        if context is not None and collate in (default_collate, default_convert):
            collate = collate_on_host if collate is default_collate else _unchanged
        fetch, seed = self._fetcher(collate), drawn_seed(self.generator)
        plan = WorkerPlan(self.dataset, fetch, self.worker_init_fn, self.num_workers, seed, context)
        workers = plan.start()
        if self.persistent_workers:
            self._workers = workers
        return workers

    def _fetcher(self, collate: Callable[[Any], Any]) -> Any:
        if isinstance(self.dataset, IterableDataset):
            return _StreamFetcher(collate, self.batch_sampler is not None, self.drop_last)
        if self.batch_sampler is None:
            return _SampleFetcher(collate)
        return _collated if collate is default_collate and can_collate(self.dataset) else _BatchFetcher(collate)


_collate_fn_t: TypeAlias = Callable[[list[Any]], Any]


class _DatasetKind:
    """How samples are fetched, as numbers that packages compare."""

    Map = 0
    Iterable = 1


class _Endless(Sampler[Any]):
    """Stands for indices where a stream has none."""

    def __iter__(self) -> Iterator[Any]:
        return repeat(None)


class _BaseDataLoaderIter:
    """The batches of one pass over the data; its length is that of the loader. Libraries know it by this name."""

    def __init__(self, loader: DataLoader[Any], batches: Generator[Any, None, None]) -> None:
        self._loader = loader
        self._batches = batches

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def __len__(self) -> int:
        return len(self._loader)

    def close(self) -> None:
        """End the pass: workers that this pass has started are told to stop."""
        self._batches.close()

    def __getstate__(self) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


LABELLED_METHODS.append(LabelledMethod(_BaseDataLoaderIter, "__next__", "enumerate(DataLoader)"))


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Batches that this thread puts together."""


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Batches that workers put together."""

    def _shutdown_workers(self) -> None:
        """End the pass, and workers that would have stayed for the next one."""
        self.close()
        self._loader._stop(self._loader._workers)


class _BatchFetcher:
    """Reads samples by a list of indices, and collates them."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, dataset: Any, indices: Any) -> Any:
        return self.collate(samples_of(dataset, list(indices)))


class _SampleFetcher(_BatchFetcher):
    """Reads one sample by its index."""

    def __call__(self, dataset: Any, indices: Any) -> Any:
        return self.collate(dataset[indices])


class _StreamFetcher(_BatchFetcher):
    """Reads as many samples of a stream as there are places in a list, or one."""

    def __init__(self, collate: Callable[[Any], Any], is_batched: bool, drop_last: bool) -> None:
        super().__init__(collate)
        self.is_batched = is_batched
        self.drop_last = drop_last

    def __call__(self, dataset: Any, indices: Any) -> Any:
        samples = list(islice(dataset, len(indices) if self.is_batched else 1))
        if not samples or (self.is_batched and self.drop_last and len(samples) < len(indices)):
            return END
        return self.collate(samples if self.is_batched else samples[0])


def _collated(dataset: Any, indices: Any) -> Any:
    return dataset.collated(list(indices))


def _unchanged(batch: Any) -> Any:
    return batch


def _context(given: Any) -> Any:
    return multiprocessing.get_context(given) if isinstance(given, str) else given


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
