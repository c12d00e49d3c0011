"""Passes over the data of a loader: iterators that read batches in this thread, or take them from workers.

They are made of a ``DataLoader`` or of what has its attributes, since libraries make them of loaders of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from itertools import islice
from types import ModuleType
from typing import Any, NoReturn

from telegrad._session.labelling import LABELLED_METHODS, LabelledMethod

from .collate import collate_on_host, default_collate, default_convert, upload_fields
from .draws import drawn_seed
from .fetching import fetcher, is_stream
from .workers import END, WorkerPlan, begin, work


class _BaseDataLoaderIter:
    """The batches of one pass over the data; its length is that of the loader. Libraries know it by this name."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._index_sampler = loader._index_sampler
        self._sampler_iter: Iterator[Any] = iter(self._index_sampler)
        self._collate_fn: Callable[[Any], Any] = loader.collate_fn
        self._num_yielded = 0
        self._batches = self._begun()

    def _begun(self) -> Generator[Any, None, None]:
        raise NotImplementedError(f"{type(self).__name__} reads nothing; use one of its subclasses")

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        self._num_yielded += 1
        return batch

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

    def _begun(self) -> Generator[Any, None, None]:
        source = iter(self._dataset) if is_stream(self._loader) else self._dataset
        return self._in_this_thread(source, fetcher(self._loader, self._collate_fn))

    def _in_this_thread(self, source: Any, fetch: Any) -> Generator[Any, None, None]:
        for wanted in self._sampler_iter:
            batch = fetch(source, wanted)
            if batch is END:
                return
            yield batch


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Batches that workers put together, which stay with the loader where that has persistent ones."""

    def _begun(self) -> Generator[Any, None, None]:
        context = self._loader.multiprocessing_context
        self._context = None if isinstance(context, ModuleType) else context  # a module chooses no way to start
        batches = self._ahead()
        next(batches)
        return batches

    def _shutdown_workers(self) -> None:
        """End the pass, and workers that would have stayed for the next one."""
        self.close()
        self._stop(getattr(self._loader, "_workers", []))

    def _ahead(self) -> Generator[Any, None, None]:
        """Give None once the workers have their first work, then what they have put together.

        Each has up to ``prefetch_factor`` batches to work on. Random numbers for the pass are drawn before the first
        batch is asked for, as in PyTorch, so that a program may restore the generator's state in between.
        """
        workers = getattr(self._loader, "_workers", None) or self._start_workers()
        try:
            yield from self._collected(workers, [worker.submit(begin) for worker in workers])
        finally:
            if not self._loader.persistent_workers:
                self._stop(workers)

    def _stop(self, workers: list[Executor]) -> None:
        self._loader._workers = []
        for worker in workers:
            worker.shutdown(cancel_futures=True)

    def _collected(self, workers: list[Executor], beginning: list[Future[Any]]) -> Iterator[Any]:
        reading, turn = list(workers), 0
        under_way: dict[Future[Any], Executor] = {}
        most = len(workers) * (self._loader.prefetch_factor or 2)
        finish = upload_fields if self._context is not None else _unchanged
        try:
            while True:
                for wanted in islice(self._sampler_iter, max(0, most - len(under_way)) if reading else 0):
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
                future = self._next_done(under_way)
                worker, batch = under_way.pop(future), future.result()
                if not isinstance(batch, str) or batch != END:
                    yield finish(batch)
                elif worker in reading:
                    reading.remove(worker)
        finally:
            for future in under_way:
                future.cancel()

    def _next_done(self, under_way: dict[Future[Any], Executor]) -> Future[Any]:
        """Return the next batch once it is there."""
        awaited = [next(iter(under_way))] if self._loader.in_order else list(under_way)
        timeout = self._loader.timeout
        done, _ = wait(awaited, timeout or None, FIRST_COMPLETED)
        if not done:
            raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
        return next(future for future in awaited if future in done)

    def _start_workers(self) -> list[Executor]:
        loader, collate = self._loader, self._collate_fn
        if self._context is not None and collate in (default_collate, default_convert):
            collate = collate_on_host if collate is default_collate else _unchanged
        fetch, seed = fetcher(loader, collate), drawn_seed(loader.generator)
        plan = WorkerPlan(
            loader.dataset, fetch, loader.worker_init_fn, loader.num_workers, seed, self._context, is_stream(loader)
        )
        workers = plan.start()
        if loader.persistent_workers:
            loader._workers = workers
        return workers


def _unchanged(batch: Any) -> Any:
    return batch
