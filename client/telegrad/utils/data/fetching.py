"""How a loader's batches are read: by indices, by single indices, or as the next samples of a stream."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from .collate import default_collate
from .dataset import can_collate, samples_of
from .workers import END


class _DatasetKind:
    """How samples are fetched, as numbers that packages compare."""

    Map = 0
    Iterable = 1


def is_stream(loader: Any) -> bool:
    """Whether a loader's samples come one after another, not by their indices."""
    return bool(loader._dataset_kind == _DatasetKind.Iterable)


def fetcher(loader: Any, collate: Callable[[Any], Any]) -> Any:
    """Return what reads a batch of a loader's data: ``fetch(dataset or stream, indices)``."""
    if is_stream(loader):
        return _StreamFetcher(collate, loader._auto_collation, loader.drop_last)
    if not loader._auto_collation:
        return _SampleFetcher(collate)
    return _collated if collate is default_collate and can_collate(loader.dataset) else _BatchFetcher(collate)


class _BatchFetcher:
    """Reads samples by a list of indices, and collates them."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, dataset: Any, indices: Any) -> Any:
        return self.collate(samples_of(dataset, list(indices)))


class _SampleFetcher(_BatchFetcher):
    """Reads one sample of a data set by its index, for loaders that make no batches."""

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
