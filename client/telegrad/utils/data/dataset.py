"""Data sets: samples by index, or as a stream, and data sets made of others."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Generic, TypeVar

from telegrad._functions.creation import tensor as new_tensor
from telegrad._ops.functions import function
from telegrad._ops.operands.asserted_errors import AssertedArgumentError, AssertedTypeError
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, IndexOutOfRangeError

from .draws import permutation

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Samples by index: a subclass defines ``__getitem__``, and ``__len__`` for most samplers.

    With ``__getitems__``, which takes a list of indices and returns a list of samples, a batch is one call.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Samples as a stream: a subclass defines ``__iter__``. Each worker of a ``DataLoader`` reads its own."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[T_co]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """The slices along the first dimension of tensors that have equally many.

    A ``DataLoader`` that collates as usual reads a batch of it by one ``index_select`` for each tensor.
    """

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensor.shape[0] != tensors[0].shape[0] for tensor in tensors):
            sizes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
            raise AssertedArgumentError(
                f"TensorDataset: Size mismatch between tensors, in their first dimension: {sizes}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple([tensor[index] for tensor in self.tensors])

    def __len__(self) -> int:
        return len(self.tensors[0])

    def collated(self, indices: Sequence[int]) -> list[Tensor]:
        """Return what ``default_collate`` makes of the samples at these indices."""
        where = {tensor.device: None for tensor in self.tensors}
        chosen = {device: new_tensor(indices, device=device) for device in where}
        return [function("index_select")(tensor, 0, chosen[tensor.device]) for tensor in self.tensors]


class StackDataset(Dataset[T_co]):
    """Data sets of one length side by side: a sample is the tuple, or by keyword the dict, of their samples."""

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Dataset[T_co], **kwargs: Dataset[T_co]) -> None:
        if (args and kwargs) or not (args or kwargs):
            raise ArgumentError("StackDataset: give data sets either by position, for tuples, or by name, for dicts")
        self.datasets = args or kwargs
        lengths = {len(dataset) for dataset in self._all()}
        if len(lengths) > 1:
            raise ArgumentError(f"StackDataset: the data sets have different lengths: {sorted(lengths)}")
        self._length = lengths.pop()

    def _all(self) -> list[Any]:
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple([dataset[index] for dataset in self.datasets])

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        columns = [_single_samples_of(dataset, indices) for dataset in self._all()]
        if isinstance(self.datasets, dict):
            return [dict(zip(self.datasets, row)) for row in zip(*columns)]
        return list(zip(*columns))

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """Data sets one after the other."""

    datasets: list[Dataset[T_co]]
    cumulative_sizes: list[int]

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        super().__init__()
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertedArgumentError("ConcatDataset: datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertedTypeError(
                "ConcatDataset does not support IterableDataset, which has no indices; use ChainDataset"
            )
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """Return the lengths, summed up."""
        return list(accumulate(map(len, sequence)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        size = len(self)
        if index < -size:
            raise ArgumentError(f"ConcatDataset: there is no sample {index} among {size}")
        if index >= size:
            raise IndexOutOfRangeError(f"ConcatDataset: there is no sample {index} among {size}")
        index %= size
        place = bisect_right(self.cumulative_sizes, index)
        return self.datasets[place][index - (self.cumulative_sizes[place - 1] if place else 0)]


class ChainDataset(IterableDataset[Any]):
    """Streams one after the other."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertedTypeError(f"ChainDataset: a {type(dataset).__name__} is no IterableDataset")
        return chain.from_iterable(self.datasets)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return sum(map(len, self.datasets))  # type: ignore[arg-type]


class Subset(Dataset[T_co]):
    """The samples of a data set at some indices."""

    dataset: Dataset[T_co]
    indices: Sequence[int]

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> T_co:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        samples: list[T_co] = samples_of(self.dataset, [self.indices[index] for index in indices])
        return samples

    def collated(self, indices: Sequence[int]) -> list[Tensor]:
        """Return what ``default_collate`` makes of the samples at these indices, of a ``TensorDataset``'s subset."""
        return self.dataset.collated([self.indices[index] for index in indices])  # type: ignore[attr-defined, no-any-return]

    def __len__(self) -> int:
        return len(self.indices)


def can_collate(dataset: Any) -> bool:
    """Whether ``collated`` stands for reading samples one by one: no subclass has changed how they are read."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return type(dataset) is TensorDataset and len(dataset.tensors) > 0


def samples_of(dataset: Any, indices: list[Any]) -> Any:
    """Return the samples at some indices; where the data set reads them at once, whatever it returns for them."""
    at_once = getattr(dataset, "__getitems__", None)
    return at_once(indices) if callable(at_once) else [dataset[index] for index in indices]


def _single_samples_of(dataset: Any, indices: list[Any]) -> Any:
    """Return a sample for each index."""
    samples = samples_of(dataset, indices)
    if len(samples) != len(indices):
        raise ArgumentError(
            f"{type(dataset).__name__}.__getitems__ returned {len(samples)} samples for {len(indices)} indices"
        )
    return samples


def random_split(dataset: Dataset[T], lengths: Sequence[int | float], generator: Any = None) -> list[Subset[T]]:
    """Split a data set at random into subsets of these lengths, or of these fractions that add up to one.

    What fractions leave over is dealt out to the subsets in turn.
    """
    size = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9:
        lengths = _parts(size, lengths)
    if sum(lengths) != size:
        raise ArgumentError(f"random_split: the lengths {list(lengths)} do not add up to the {size} samples there are")
    order, ends = permutation(size, generator), accumulate(lengths)
    return [Subset(dataset, order[int(end - length) : int(end)]) for end, length in zip(ends, lengths)]


def _parts(size: int, fractions: Sequence[float]) -> list[int]:
    for fraction in fractions:
        if not 0 <= fraction <= 1:
            raise ArgumentError(f"random_split: {fraction} is no fraction between 0 and 1")
    parts = [math.floor(size * fraction) for fraction in fractions]
    for place in range(size - sum(parts)):
        parts[place % len(parts)] += 1
    return parts
