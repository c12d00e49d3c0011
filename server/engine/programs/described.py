"""What an execution has left, told so that it can be made again over other memory; and what stands for its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from server.allocator import Block
from server.engine.replay.shadows import REPLAYED
from server.engine.value import Backend, Storage, Value, memory_of
from telegrad_protocol.meta import Meta


class Memory(NamedTuple):
    """Memory that an execution leaves: its block, its size in bytes, and how often it was modified."""

    block: Block
    nbytes: int
    version: int


class Output(NamedTuple):
    """A result: an input, by its ``number``; or a value of ``meta``, on memory of an input or of its own.

    ``number`` tells results apart. Memory is counted from the inputs' on. A view has a ``base`` and an ``origin``.
    """

    number: int
    memory: int
    meta: Meta | None
    base: Output | None
    origin: int


class Description:
    """What an execution has left, told so that it can be made again."""

    def __init__(self, values: Sequence[Any], outputs: Sequence[Any]) -> None:
        self._inputs = {id(value): number for number, value in enumerate(values)}
        self._memory = {id(storage): number for number, storage in enumerate(storages_of(values))}
        self._first = len(self._memory)
        self._numbers: dict[int, int] = {}
        self.made: list[Memory] = []
        """The memory that is none of the inputs'."""
        self.outputs = tuple([self._describe(output) for output in outputs])

    def _describe(self, value: Any) -> Output:
        number = self._inputs.get(id(value))
        if number is not None:
            return Output(number, -1, None, None, 0)
        storage = value.storage
        if id(storage) not in self._memory:
            self._memory[id(storage)] = self._first + len(self.made)
            self.made.append(Memory(storage.block, storage.nbytes, storage.version))
        base = None if value.base is None else self._describe(value.base)
        number = self._numbers.setdefault(id(value), len(self._numbers))
        return Output(number, self._memory[id(storage)], value.meta, base, 0 if base is None else value.origin)


class Inputs:
    """What an execution takes, told without holding it: numbers, and metas with the memory that they describe."""

    def __init__(self, values: Sequence[Any]) -> None:
        owners = {id(owner): owner for owner in (memory_of(v.storage) for v in values if v.__class__ is Value)}
        numbers = {key: number for number, key in enumerate(owners)}
        self._memory = [(owner.block, owner.nbytes) for owner in owners.values()]
        self._given = [(numbers[id(memory_of(v.storage))], v.meta) if v.__class__ is Value else (-1, v) for v in values]

    def shadows(self, shadow: Callable[[Block], Block], backend: Backend) -> list[Any]:
        """Return stand-ins: values on what ``shadow`` gives for each block."""
        storages = [Storage(backend, shadow(block), nbytes, REPLAYED) for block, nbytes in self._memory]
        return [given if number < 0 else Value(storages[number], given, backend) for number, given in self._given]


def _result_of(output: Output, values: Sequence[Any], storages: Sequence[Storage], made: dict[Output, Any]) -> Any:
    """Make a result anew."""
    if output.meta is None:
        return values[output.number]
    value = made.get(output)
    if value is None:
        base = None if output.base is None else _result_of(output.base, values, storages, made)
        storage = storages[output.memory]
        value = made[output] = Value(storage, output.meta, storage.backend, base)
        if base is not None:
            value.origin = output.origin
    return value


def results_of(
    outputs: Sequence[Output], values: Sequence[Any], storages: Sequence[Storage]
) -> tuple[Any, ...]:  # fmt: skip
    """Make the results of an execution on these values, whose memory comes first in ``storages``."""
    made: dict[Output, Any] = {}
    return tuple([_result_of(output, values, storages, made) for output in outputs])


def modifications(values: Sequence[Any], versions: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return how often each memory of the inputs was modified since it had these versions, by its number."""
    counted = [storage.version - before for storage, before in zip(storages_of(values), versions)]
    return tuple([(number, times) for number, times in enumerate(counted) if times])


def storages_of(values: Sequence[Any]) -> Iterator[Storage]:
    """The storages of inputs, each once, in their order."""
    return iter({id(v.storage): v.storage for v in values if v.__class__ is Value}.values())
