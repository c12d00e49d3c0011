"""What an execution has left, told so that it can be made again over other memory; and what stands for its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from server.allocator import Block
from server.engine.in_c.runs import values_over
from server.engine.replay.shadows import REPLAYED
from server.engine.value import Backend, Storage, Value, memory_of
from telegrad_protocol.meta import Meta

Versions: TypeAlias = Sequence[tuple[int, int]]
"""Memory of inputs by its number, and how often it was modified."""


block_of = attrgetter("storage.block")
"""The block that a value lies in; storages that refer to the memory of another one have its block."""


class Memory(NamedTuple):
    """Memory that an execution leaves: its block, its size in bytes, and how often it was modified."""

    block: Block
    nbytes: int
    version: int


class Output(NamedTuple):
    """A result: an input, by its ``number``; or a value of ``meta``, on memory of an input or of its own.

    ``number`` tells results apart. ``memory`` is the number of the first input that lies in it; what is made is counted
    from the inputs on. A view has a ``base`` and an ``origin``.
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
        self._memory = {id(storage): number for storage, number in memory_in(values).items()}
        self._first = len(values)
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


def _result_of(output: Output, values: Sequence[Any], new: Sequence[Storage], made: dict[Output, Any]) -> Any:
    """Make a result anew."""
    if output.meta is None:
        return values[output.number]
    value = made.get(output)
    if value is None:
        base = None if output.base is None else _result_of(output.base, values, new, made)
        number = output.memory
        storage = values[number].storage if number < len(values) else new[number - len(values)]
        value = made[output] = Value(storage, output.meta, storage.backend, base)
        if base is not None:
            value.origin = output.origin
    return value


def results_of(outputs: tuple[Output, ...], values: Sequence[Any], new: list[Storage]) -> tuple[Any, ...]:
    """Make the results of an execution on these values, given the memory that it leaves besides theirs."""
    results = values_over(outputs, len(values), new)
    if results is not None:
        return results
    made: dict[Output, Any] = {}
    return tuple([_result_of(output, values, new, made) for output in outputs])


def versions_of(values: Sequence[Any]) -> Versions:
    """Return how often each memory of the inputs was modified until now, by its number."""
    return [(number, storage.version) for storage, number in memory_in(values).items()]


def modifications(values: Sequence[Any], versions: Versions) -> Versions:
    """Return how often memory of the inputs was modified since it had these versions, by its number."""
    counted = [(number, values[number].storage.version - before) for number, before in versions]
    return [(number, times) for number, times in counted if times]


def count_modifications(values: Sequence[Any], modified: Versions) -> None:
    """Have memory of the inputs be modified so often, by its number."""
    for number, times in modified:
        values[number].storage.version += times


def memory_in(values: Sequence[Any]) -> dict[Storage, int]:
    """Return the storages of inputs in their order, with the number of the first input that lies in each."""
    numbers: dict[Storage, int] = {}
    for number, value in enumerate(values):
        if value.__class__ is Value:
            numbers.setdefault(value.storage, number)
    return numbers
