"""Passes over the data of a loader: iterators that read batches in this thread, or take them from workers.

They are made of a ``DataLoader`` or of what has its attributes, since libraries make them of loaders of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NoReturn

from telegrad._session.labelling import LABELLED_METHODS, LabelledMethod

from .draws import pass_seed
from .failures import FailedBatch
from .fetching import fetcher, is_stream
from .worker_passes import WorkersAtWork, stop
from .workers import END


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
        if isinstance(batch, FailedBatch):
            try:
                raise batch.error from None
            finally:
                del batch, self  # the error has this frame, which would keep it and the workers of the pass
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
        pass_seed(self._loader.generator)
        source = iter(self._dataset) if is_stream(self._loader) else self._dataset
        return _in_this_thread(self._sampler_iter, fetcher(self._loader, self._collate_fn), source)


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Batches that workers put together, which stay with the loader where that has persistent ones."""

    def _begun(self) -> Generator[Any, None, None]:
        batches = WorkersAtWork(self._loader, self._sampler_iter, self._collate_fn).ahead()
        next(batches)
        return batches

    def _shutdown_workers(self) -> None:
        """End the pass, and workers that would have stayed for the next one."""
        self.close()
        stop(self._loader, getattr(self._loader, "_workers", []))


def _in_this_thread(wanted: Iterator[Any], fetch: Callable[[Any, Any], Any], source: Any) -> Generator[Any, None, None]:
    for indices in wanted:
        read = [_read(fetch, source, indices)]  # an error in it has no place among the variables, which it would keep
        if read[0] is END:
            return
        yield read.pop()


def _read(fetch: Callable[[Any, Any], Any], source: Any, wanted: Any) -> Any:
    try:
        return fetch(source, wanted)
    except Exception as error:
        return FailedBatch(error)
