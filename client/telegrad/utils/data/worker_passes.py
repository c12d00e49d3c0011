"""The workers of one pass over data: which batches they work on, and in which order what they give is taken.

Nothing here knows the iterator that a program has, so that the pass ends, and workers stop, as soon as that is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from itertools import islice
from types import ModuleType
from typing import Any

from .collate import collate_on_host, default_collate, default_convert, upload_fields
from .draws import drawn_seed
from .failures import FailedBatch, of_worker
from .fetching import fetcher, is_stream
from .workers import END, WorkerPlan, begin, work


class WorkersAtWork:
    """The workers of a loader, or of what has its attributes, on the indices of one pass."""

    def __init__(self, loader: Any, indices: Iterator[Any], collate: Callable[[Any], Any]) -> None:
        self._loader, self._indices, self._collate_fn = loader, indices, collate
        context = loader.multiprocessing_context
        self._context = None if isinstance(context, ModuleType) else context  # a module chooses no way to start

    def ahead(self) -> Generator[Any, None, None]:
        """Give None once the workers have their first work, then what they have put together.

        Each has up to ``prefetch_factor`` batches to work on. Random numbers for the pass are drawn before the first
        batch is asked for, as in PyTorch, so that a program may restore the generator's state in between.
        """
        workers = getattr(self._loader, "_workers", None) or self._start_workers()
        try:
            yield from self._collected(workers, [worker.submit(begin) for worker in workers])
        finally:
            if not self._loader.persistent_workers:
                stop(self._loader, workers)

    def _collected(self, workers: list[Executor], beginning: list[Future[Any]]) -> Iterator[Any]:
        reading, turn = list(workers), 0
        under_way: dict[Future[Any], Executor] = {}
        most = len(workers) * (self._loader.prefetch_factor or 2)
        finish = upload_fields if self._context is not None else _unchanged
        try:
            while True:
                for wanted in islice(self._indices, max(0, most - len(under_way)) if reading else 0):
                    worker = reading[turn % len(reading)]
                    under_way[worker.submit(work, wanted)] = worker
                    turn += 1
                if beginning:
                    yield None
                    for number, began in enumerate(beginning):
                        failed = began.exception()
                        if failed is not None:
                            yield FailedBatch(of_worker(failed, number))
                            return
                    beginning = []
                if not under_way:
                    return
                future = self._next_done(under_way)
                worker, error = under_way.pop(future), future.exception()
                if error is not None:
                    yield FailedBatch(of_worker(error, workers.index(worker)))
                    continue
                batch = future.result()
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


def stop(loader: Any, workers: list[Executor]) -> None:
    """Have a loader forget its workers, and the workers end once they have what they are at."""
    loader._workers = []
    for worker in workers:
        worker.shutdown(cancel_futures=True)


def _unchanged(batch: Any) -> Any:
    return batch
