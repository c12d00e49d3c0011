"""Streams of samples: ``IterableWrapper(source).map(f).filter(g).shuffle().batch(4)``."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from telegrad_protocol.errors import ArgumentTypeError

from ..collate import default_collate
from ..draws import drawn_seed
from .datapipe import IterDataPipe as IterDataPipe
from .datapipe import applied, functional_datapipe
from .grouping import Grouper as Grouper
from .grouping import Multiplexer as Multiplexer
from .splitting import Demultiplexer as Demultiplexer
from .splitting import Forker as Forker


class IterableWrapperIterDataPipe(IterDataPipe[Any]):
    """The items of any iterable; with ``deepcopy``, those of a copy, so that a pass does not change what is given."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        try:
            source = copy.deepcopy(self.iterable) if self.deepcopy else self.iterable
        except TypeError:  # generators and files cannot be copied
            source = self.iterable
        return iter(source)

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]


@functional_datapipe("map")
class MapperIterDataPipe(IterDataPipe[Any]):
    """What a function makes of every sample, or of its fields ``input_col``; ``output_col`` says where it goes."""

    def __init__(self, datapipe: Any, fn: Callable[..., Any], input_col: Any = None, output_col: Any = None) -> None:
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        self.datapipe, self.fn, self.input_col, self.output_col = datapipe, fn, input_col, output_col

    def __iter__(self) -> Iterator[Any]:
        return (applied(self.fn, sample, self.input_col, self.output_col) for sample in self.datapipe)

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Tensors in place of lists of samples, as a ``DataLoader`` collates them, or by a function."""

    def __init__(self, datapipe: Any, conversion: Any = None, collate_fn: Callable[..., Any] | None = None) -> None:
        super().__init__(datapipe, collate_fn or conversion or default_collate)


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe[Any]):
    """The samples of which a function, of the sample or its fields ``input_col``, is true."""

    def __init__(self, datapipe: Any, filter_fn: Callable[..., bool], input_col: Any = None) -> None:
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def __iter__(self) -> Iterator[Any]:
        return (sample for sample in self.datapipe if self._takes(sample))

    def _takes(self, sample: Any) -> bool:
        """Whether the function is true; raises ValueError where it returns no bool."""
        columns = self.input_col if isinstance(self.input_col, (list, tuple)) else [self.input_col]
        given = [sample] if self.input_col is None else [sample[column] for column in columns]
        is_taken = self.filter_fn(*given)
        if not isinstance(is_taken, bool):
            raise ValueError(f"Boolean output is required for `filter_fn` of FilterIterDataPipe, got {type(is_taken)}")
        return is_taken


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(IterDataPipe[Any]):
    """Samples in random order: each is drawn from the next ``buffer_size`` of the stream."""

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise AssertionError("buffer_size should be larger than 0")
        self.datapipe = datapipe.unbatch(unbatch_level) if unbatch_level else datapipe
        self.buffer_size = buffer_size
        self._enabled = True
        self._seed: int | None = None

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Turn shuffling on or off, and return the pipe."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """Have the next pass draw from this seed, and return the pipe; other passes follow ``manual_seed``."""
        self._seed = seed
        return self

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            return iter(self.datapipe)
        draws = random.Random(drawn_seed() if self._seed is None else self._seed)
        self._seed = None
        return self._drawn(draws)

    def _drawn(self, draws: random.Random) -> Iterator[Any]:
        waiting: list[Any] = []
        for sample in self.datapipe:
            if len(waiting) < self.buffer_size:
                waiting.append(sample)
                continue
            place = draws.randrange(self.buffer_size)
            waiting[place], sample = sample, waiting[place]
            yield sample
        draws.shuffle(waiting)
        yield from waiting

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("batch")
class BatcherIterDataPipe(IterDataPipe[Any]):
    """Lists of ``batch_size`` samples, the last of which may be shorter unless ``drop_last``."""

    def __init__(
        self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Callable[..., Any] = list
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __iter__(self) -> Iterator[Any]:
        source = iter(self.datapipe)
        while batch := list(islice(source, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.wrapper_class(batch)

    def __len__(self) -> int:
        count = len(self.datapipe)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe[Any]):
    """The samples of lists, taken out of ``unbatch_level`` lists in each other; of all of them, with -1."""

    def __init__(self, datapipe: Any, unbatch_level: int = 1) -> None:
        if unbatch_level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._opened(sample, self.unbatch_level) for sample in self.datapipe)

    def _opened(self, sample: Any, level: int) -> Iterator[Any]:
        if level == 0 or (level == -1 and not isinstance(sample, list)):
            return iter((sample,))
        if not isinstance(sample, list):
            raise IndexError(f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe")
        return chain.from_iterable(self._opened(inner, level if level == -1 else level - 1) for inner in sample)


@functional_datapipe("concat")
class ConcaterIterDataPipe(IterDataPipe[Any]):
    """One stream after the other."""

    def __init__(self, *datapipes: Any) -> None:
        _require_streams(datapipes)
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.datapipes)

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class ZipperIterDataPipe(IterDataPipe[Any]):
    """Tuples with a sample of each stream, until the first one ends."""

    def __init__(self, *datapipes: Any) -> None:
        _require_streams(datapipes)
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        return zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(IterDataPipe[Any]):
    """Every so many-th sample, for one of several processes or workers; all of them until ``apply_sharding``."""

    def __init__(self, source_datapipe: Any, sharding_group_filter: Any = None) -> None:
        self.source_datapipe = source_datapipe
        self.num_of_instances, self.instance_id = 1, 0

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: Any = None) -> None:
        """Keep the samples ``instance_id``, ``instance_id + num_of_instances`` and so on."""
        if instance_id >= num_of_instances:
            raise ValueError(f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})")
        self.num_of_instances, self.instance_id = num_of_instances, instance_id

    def __iter__(self) -> Iterator[Any]:
        return islice(self.source_datapipe, self.instance_id, None, self.num_of_instances)

    def __len__(self) -> int:
        return len(range(self.instance_id, len(self.source_datapipe), self.num_of_instances))


def _require_streams(datapipes: tuple[Any, ...]) -> None:
    if not datapipes:
        raise ValueError("Expected at least one DataPipe, but got nothing")
    if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
        raise ArgumentTypeError("Expected all inputs to be `IterDataPipe`")


IterableWrapper = IterableWrapperIterDataPipe
Mapper = MapperIterDataPipe
Collator = CollatorIterDataPipe
Filter = FilterIterDataPipe
Shuffler = ShufflerIterDataPipe
Batcher = BatcherIterDataPipe
UnBatcher = UnBatcherIterDataPipe
Concater = ConcaterIterDataPipe
Zipper = ZipperIterDataPipe
ShardingFilter = ShardingFilterIterDataPipe
