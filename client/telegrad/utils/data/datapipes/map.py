"""Sequences of samples: ``SequenceWrapper(source).map(f).batch(4)``."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from telegrad_protocol.errors import ArgumentTypeError

from ..draws import permutation
from .datapipe import MapDataPipe as MapDataPipe
from .datapipe import functional_datapipe
from .iter import IterableWrapper


class SequenceWrapperMapDataPipe(MapDataPipe[Any]):
    """The items of a sequence or mapping; with ``deepcopy``, those of a copy."""

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe[Any]):
    """What a function makes of the samples."""

    def __init__(self, datapipe: Any, fn: Callable[..., Any]) -> None:
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


class ShufflerMapDataPipe(IterableWrapper):
    """The samples in random order, as a stream; each pass has another one."""

    def __init__(self, datapipe: Any, *, indices: Sequence[Any] | None = None) -> None:
        super().__init__(datapipe, deepcopy=False)
        self.indices = list(range(len(datapipe))) if indices is None else list(indices)

    def __iter__(self) -> Iterator[Any]:
        return (self.iterable[self.indices[place]] for place in permutation(len(self.indices)))  # type: ignore[index]


MapDataPipe.register_function("shuffle", ShufflerMapDataPipe)


@functional_datapipe("batch")
class BatcherMapDataPipe(MapDataPipe[Any]):
    """Lists of ``batch_size`` samples, the last of which may be shorter unless ``drop_last``."""

    def __init__(
        self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Callable[..., Any] = list
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        first = index * self.batch_size
        last = min(first + self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[place] for place in range(first, last)])

    def __len__(self) -> int:
        count = len(self.datapipe)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe[Any]):
    """One sequence after the other, by one index."""

    def __init__(self, *datapipes: Any) -> None:
        _require_sequences(datapipes)
        self.datapipes = datapipes

    def __getitem__(self, index: Any) -> Any:
        ends = list(accumulate(map(len, self.datapipes)))
        which = bisect_right(ends, index)
        if which == len(ends):
            raise IndexError(f"Index {index} is out of range.")
        return self.datapipes[which][index - (ends[which - 1] if which else 0)]

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class ZipperMapDataPipe(MapDataPipe[Any]):
    """Tuples with the samples that several sequences have at an index."""

    def __init__(self, *datapipes: Any) -> None:
        _require_sequences(datapipes)
        self.datapipes = datapipes

    def __getitem__(self, index: Any) -> Any:
        return tuple(pipe[index] for pipe in self.datapipes)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


def _require_sequences(datapipes: tuple[Any, ...]) -> None:
    if not datapipes:
        raise ValueError("Expected at least one DataPipe, but got nothing")
    if not all(isinstance(pipe, MapDataPipe) for pipe in datapipes):
        raise ArgumentTypeError("Expected all inputs to be `MapDataPipe`")


SequenceWrapper = SequenceWrapperMapDataPipe
Mapper = MapperMapDataPipe
Shuffler = ShufflerMapDataPipe
Batcher = BatcherMapDataPipe
Concater = ConcaterMapDataPipe
Zipper = ZipperMapDataPipe
