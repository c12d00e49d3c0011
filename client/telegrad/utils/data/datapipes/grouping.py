"""Streams whose samples take turns, ``mux``, and samples that belong together, ``groupby``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from typing import Any

from .datapipe import IterDataPipe, functional_datapipe


@functional_datapipe("mux")
class MultiplexerIterDataPipe(IterDataPipe[Any]):
    """A sample of each stream in turn, until the shortest one ends."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(zip(*self.datapipes, strict=False))

    def __len__(self) -> int:
        return min(map(len, self.datapipes)) * len(self.datapipes)


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe[Any]):
    """Lists of samples for which a function gives the same key; with ``keep_key`` pairs of key and list.

    A list ends with ``group_size`` samples, or with the stream. Where ``buffer_size`` samples wait the longest list is
    given as it is; one shorter than ``guaranteed_group_size`` raises RuntimeError, or ``drop_remaining`` leaves it out.
    """

    def __init__(
        self, datapipe: Any, group_key_fn: Callable[[Any], Hashable], *, keep_key: bool = False,
        buffer_size: int = 10000, group_size: int | None = None, guaranteed_group_size: int | None = None,
        drop_remaining: bool = False,
    ) -> None:  # fmt: skip
        if group_size is not None and not 0 < group_size <= buffer_size:
            raise AssertionError("group_size must be > 0 and <= buffer_size")
        if guaranteed_group_size is not None and not (group_size and 0 < guaranteed_group_size <= group_size):
            raise AssertionError("guaranteed_group_size must be > 0 and <= group_size and group_size must be set")
        self.datapipe, self.group_key_fn, self.keep_key = datapipe, group_key_fn, keep_key
        self.max_buffer_size, self.group_size, self.drop_remaining = buffer_size, group_size, drop_remaining
        self.guaranteed_group_size = group_size if guaranteed_group_size is None else guaranteed_group_size

    def __iter__(self) -> Iterator[Any]:
        waiting: defaultdict[Hashable, list[Any]] = defaultdict(list)
        count = 0
        for sample in self.datapipe:
            key = self.group_key_fn(sample)
            waiting[key].append(sample)
            count += 1
            if len(waiting[key]) == self.group_size:
                count -= self.group_size
                yield self._shown(key, waiting.pop(key))
            if count == self.max_buffer_size:
                key = max(waiting, key=lambda each: len(waiting[each]))
                group = waiting.pop(key)
                count -= len(group)
                if self._is_given(group):
                    yield self._shown(key, group)
        for key, group in waiting.items():
            yield self._shown(key, group)

    def _shown(self, key: Hashable, group: list[Any]) -> Any:
        return (key, group) if self.keep_key else group

    def _is_given(self, group: list[Any]) -> bool:
        """Whether a list is given before its time; raises RuntimeError where it must be longer."""
        if self.guaranteed_group_size is None or len(group) >= self.guaranteed_group_size:
            return True
        if not self.drop_remaining:
            raise RuntimeError("Failed to group items", str(group))
        return False


Multiplexer = MultiplexerIterDataPipe
Grouper = GrouperIterDataPipe
