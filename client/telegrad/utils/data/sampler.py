"""Samplers: in which order a ``DataLoader`` reads the samples of a data set.

Orders repeat after ``manual_seed``, or with a generator of the same seed; they are not PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from .dataset import Dataset
from .draws import host_generator, permutation

T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """Base of all samplers: a subclass defines ``__iter__``, which gives indices, or lists of them."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


class SequentialSampler(Sampler[int]):
    """All indices in order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order: all of them, ``num_samples`` of them, or any number with ``replacement``."""

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Any = None
    ) -> None:
        if not isinstance(replacement, bool):
            raise ArgumentTypeError(f"RandomSampler: replacement should be a boolean value, but is {replacement!r}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ArgumentError(f"RandomSampler: num_samples should be a positive integer, but is {self.num_samples!r}")

    @property
    def num_samples(self) -> int:
        """How many indices there will be."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        size, draw = len(self.data_source), host_generator(self.generator)
        if self.replacement:
            yield from draw.integers(0, size, self.num_samples).tolist()
            return
        left = self.num_samples
        while left > 0:
            yield from islice(draw.permutation(size).tolist(), left)
            left -= size

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Some indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for place in permutation(len(self.indices), self.generator):
            yield self.indices[place]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with probabilities in proportion to ``weights``, a sequence or a tensor."""

    def __init__(
        self, weights: Sequence[float] | Tensor, num_samples: int, replacement: bool = True, generator: Any = None
    ) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ArgumentError(f"WeightedRandomSampler: num_samples should be a positive integer, not {num_samples!r}")
        _require_bool("WeightedRandomSampler", "replacement", replacement)
        values = weights.tolist() if isinstance(weights, Tensor) else weights
        self.weights = np.asarray(values, np.float64)
        if self.weights.ndim != 1:
            raise ArgumentError(f"WeightedRandomSampler: weights should have one dimension, not {self.weights.shape}")
        if (self.weights < 0).any() or not np.isfinite(self.weights).all() or not self.weights.sum() > 0:
            raise ArgumentError("WeightedRandomSampler: weights should be finite, not negative, and not all zero")
        if not replacement and num_samples > np.count_nonzero(self.weights):
            raise ArgumentError(
                f"WeightedRandomSampler: {num_samples} samples without replacement out of "
                f"{np.count_nonzero(self.weights)} whose weight is not zero"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        draw, shares = host_generator(self.generator), self.weights / self.weights.sum()
        yield from draw.choice(len(shares), self.num_samples, self.replacement, shares).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of ``batch_size`` indices of another sampler; ``drop_last`` leaves out the last list if it is shorter."""

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ArgumentError(f"BatchSampler: batch_size should be a positive integer value, but is {batch_size!r}")
        _require_bool("BatchSampler", "drop_last", drop_last)
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        size = len(self.sampler)  # type: ignore[arg-type]
        return size // self.batch_size if self.drop_last else math.ceil(size / self.batch_size)


class DistributedSampler(Sampler[int]):
    """Every ``num_replicas``-th index from ``rank`` on, for processes that share a data set.

    telegrad has no process groups: both numbers are given, and default to one process that reads everything. Call
    ``set_epoch`` before each epoch for another order.
    """

    def __init__(
        self, dataset: Dataset[Any], num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
        seed: int = 0, drop_last: bool = False,
    ) -> None:  # fmt: skip
        self.dataset = dataset
        self.num_replicas = 1 if num_replicas is None else num_replicas
        self.rank = 0 if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ArgumentError(f"DistributedSampler: rank {self.rank} should be below num_replicas {num_replicas}")
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        size = len(dataset)  # type: ignore[arg-type]
        self.num_samples = size // self.num_replicas if drop_last else math.ceil(size / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)  # type: ignore[arg-type]
        order = np.random.default_rng(self.seed + self.epoch).permutation(size) if self.shuffle else np.arange(size)
        yield from np.resize(order, self.total_size)[self.rank :: self.num_replicas].tolist()

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration give the order of this epoch."""
        self.epoch = epoch


def _require_bool(name: str, parameter: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}: {parameter} should be a boolean value, but is {value!r}")
