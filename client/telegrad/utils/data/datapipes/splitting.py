"""One stream as several: ``stream.fork(2)`` gives each all samples, ``stream.demux(2, f)`` those of its number.

What one of them has not asked for yet waits in a buffer of the stream that they share.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .datapipe import IterDataPipe

_COPIES = {None: None, "shallow": copy.copy, "deep": copy.deepcopy}


class _Splitter:
    """A pass over a stream whose samples wait for several streams; ``number`` tells passes apart."""

    def __init__(self, datapipe: Any, count: int, buffer_size: int, name: str) -> None:
        if count < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {count} is found")
        if buffer_size == 0:
            raise ValueError("a buffer of no samples holds none; a negative size holds all")
        self.datapipe, self.buffer_size, self.name = datapipe, buffer_size, name
        self.waiting: list[deque[Any]] = [deque() for _ in range(count)]
        self.number = 0
        self._source: Iterator[Any] | None = None

    def begin(self) -> None:
        """Begin a pass: what waits of the one before is for nobody."""
        self.number += 1
        self._source = None
        for samples in self.waiting:
            samples.clear()

    def next_of(self, place: int) -> Any:
        """Return the next sample of a stream; those of others that come before it wait.

        Raises StopIteration at the end, and BufferError where too many wait.
        """
        waiting = self.waiting
        while not waiting[place]:
            if self._source is None:
                self._source = iter(self.datapipe)
            self.put(next(self._source))
            if 0 < self.buffer_size < self.held():
                raise BufferError(f"{self.name} buffer overflow, buffer size {self.buffer_size} is insufficient.")
        return waiting[place].popleft()

    def put(self, sample: Any) -> None:
        """Have a sample wait for those that it is for."""
        raise NotImplementedError

    def held(self) -> int:
        """How many samples wait."""
        raise NotImplementedError


class _Forks(_Splitter):
    """Every stream gets every sample, or a copy of it."""

    def __init__(self, datapipe: Any, count: int, buffer_size: int, copies: str | None) -> None:
        super().__init__(datapipe, count, buffer_size, "ForkerIterDataPipe")
        if copies not in _COPIES:
            raise ValueError(f"Unknown copy method `{copies}`, choose from None, `shallow` or `deep`")
        self.copied = _COPIES[copies]

    def put(self, sample: Any) -> None:
        copied = self.copied
        for samples in self.waiting:
            samples.append(sample if copied is None else copied(sample))

    def held(self) -> int:
        return max(map(len, self.waiting))


class _Classes(_Splitter):
    """Every sample is for the stream whose number a function gives it."""

    def __init__(
        self, datapipe: Any, count: int, classifier: Callable[[Any], int | None], drops: bool, buffer_size: int
    ) -> None:
        super().__init__(datapipe, count, buffer_size, "DemultiplexerIterDataPipe")
        self.classifier, self.drops = classifier, drops

    def put(self, sample: Any) -> None:
        number, count = self.classifier(sample), len(self.waiting)
        if number is None and self.drops:
            return
        if number is None or not 0 <= number < count:
            raise ValueError(
                f"Output of the classification fn should be between 0 and {count - 1}. {number} is returned."
            )
        self.waiting[number].append(sample)

    def held(self) -> int:
        return sum(map(len, self.waiting))


class _PartIterDataPipe(IterDataPipe[Any]):
    """One of several streams that come of one.

    Its first pass is of the same pass over the stream as those of the others; a second one begins a new pass for all.
    """

    def __init__(self, splitter: _Splitter, place: int) -> None:
        self.main_datapipe, self.instance_id = splitter, place
        self._pass = -1

    def __iter__(self) -> Iterator[Any]:
        splitter = self.main_datapipe
        if self._pass == splitter.number:
            splitter.begin()
        self._pass = splitter.number
        return self._samples(self._pass)

    def _samples(self, number: int) -> Iterator[Any]:
        splitter = self.main_datapipe
        while True:
            if splitter.number != number:
                raise RuntimeError(
                    f"This child DataPipe of {splitter.name} has been invalidated: another one, or this one again, has "
                    "begun a new pass over the stream that they share. Iterate over all of them once before that."
                )
            try:
                sample = splitter.next_of(self.instance_id)
            except StopIteration:
                return
            yield sample

    def __len__(self) -> int:
        if isinstance(self.main_datapipe, _Forks):
            return len(self.main_datapipe.datapipe)
        raise TypeError(f"{type(self).__name__} instance doesn't have valid length")


def fork(datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: str | None = None) -> list[Any]:
    """Return streams that each have all samples, ``copy`` of them where that is 'shallow' or 'deep'.

    Raises ValueError for no streams, and in a pass BufferError where one is ``buffer_size`` samples ahead of another; a
    negative size allows any number.
    """
    if num_instances == 1:
        return [datapipe]
    forks = _Forks(datapipe, num_instances, buffer_size, copy)
    return [_PartIterDataPipe(forks, place) for place in range(num_instances)]


def demux(
    datapipe: Any, num_instances: int, classifier_fn: Callable[[Any], int | None], drop_none: bool = False,
    buffer_size: int = 1000,
) -> list[Any]:  # fmt: skip
    """Return streams of the samples for which a function gives their number; with ``drop_none`` None is for nobody.

    Raises ValueError for no streams and for other numbers, and in a pass BufferError where more than ``buffer_size``
    samples wait; a negative size allows any number.
    """
    classes = _Classes(datapipe, num_instances, classifier_fn, drop_none, buffer_size)
    return [_PartIterDataPipe(classes, place) for place in range(num_instances)]


IterDataPipe.register_datapipe_as_function("fork", fork)
IterDataPipe.register_datapipe_as_function("demux", demux)
Forker, Demultiplexer = fork, demux
