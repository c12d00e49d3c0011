"""Operations as they were noted: functions, the values that they read and write, and the memory that they take.

The values of an operation stand for those that it was given when it was noted. They count modifications apart, so that
a replay does not invalidate what autograd has saved, and keep only memory alive that was there before the capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

from server.engine.device import cancellation
from server.engine.replay.shadows import REPLAYED
from server.engine.value import CHANGING, Backend, Storage, Value, memory_of

from .memory import Again, Allocation, Noting


class Noted(NamedTuple):
    """One operation: what executes it, on which arguments; its results, and the allocations that it makes."""

    name: str
    run: Callable[[tuple[Any, ...]], Any]
    args: tuple[Any, ...]
    results: tuple[Value, ...]
    allocations: tuple[Allocation, ...]


class StandIns:
    """Makes the values that stand for others in what is noted: the same for the same memory."""

    def __init__(self, backend: Backend, noting: Noting) -> None:
        self._backend = backend
        self._noting = noting
        self._storages: dict[int, tuple[ReferenceType[Storage], Storage]] = {}

    def is_outside(self, storage: Storage) -> bool:
        """Whether memory was there before the capture, or is no result of what was noted."""
        return storage.backend is not self._backend or self._noting.memory.get(storage.block.pointer) is None

    def forget_elements(self) -> None:
        """Note that nothing is known of what memory holds: replays write to it, and count no modification."""
        for storage, _ in self._storages.values():
            there = storage()
            if there is not None:
                there.elements = CHANGING

    def of(self, item: Any) -> Any:
        """Return what stands for an argument; lists of values are tuples."""
        if item.__class__ is tuple:
            return tuple([self.of(one) for one in item])
        return self._value(item) if item.__class__ is Value else item

    def _value(self, value: Value) -> Value:
        if value.backend is not self._backend:
            return value.alias() if value.ndim else value.alias().clone()
        return Value(self._storage(memory_of(value.storage)), value.meta, value.backend)

    def _storage(self, storage: Storage) -> Storage:
        known = self._storages.get(id(storage))
        if known is not None and known[0]() is storage:
            return known[1]
        shadow = self._noting.memory.get(storage.block.pointer)
        if shadow is None:
            made = Storage(storage.backend, storage.block, storage.nbytes, storage)
        else:
            made = Storage(storage.backend, shadow, storage.nbytes, REPLAYED)
        self._storages[id(storage)] = (ref(storage), made)
        return made


def values_in(items: Any) -> Iterator[Value]:
    """The values among arguments, in lists too."""
    for item in items:
        if item.__class__ is Value:
            yield item
        elif item.__class__ is tuple:
            yield from values_in(item)


def execute(operations: Sequence[Noted], again: Again) -> None:
    """Execute operations again; requests for memory go to ``again`` meanwhile."""
    for _, run, args, results, allocations in operations:
        if cancellation.requested:
            cancellation.stop()
        again.expect(allocations)
        made = run(args)
        for value, result in zip(results, made if made.__class__ is tuple else (made,)):
            if value.storage.block is not result.storage.block:  # it asked for other memory than before
                value.backend.store(value.array, result.array)
