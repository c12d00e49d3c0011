"""Executions of a specialised graph as one CUDA graph: a training step is a single launch.

Where a program is run again and again, its inputs lie where they lay, and the allocator is in the state that it was in.
Then all addresses are those of an execution before, and the device does its work in one launch. The host makes the
results, counts modifications, and has the allocator count the calls that the execution would have made.

An execution is captured when it comes again in the same state: it is made as usual, and then gone through once more as
a dry run on shadows of the same memory, while the device notes what it is given and runs none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from server.allocator import Block
from server.allocator.cache.call_sequences import CallSequence, DryRun, SequenceStart
from server.engine import context
from server.engine.device.interface import Capture
from server.engine.random import PlacedGenerator
from server.engine.replay.shadows import REPLAYED
from server.engine.value import Backend, Storage, Value, memory_of
from server.replay_policy import PROGRAM_CAPTURES, ReplayPolicy, Sightings
from telegrad_protocol.meta import Meta

from .executable import Executable
from .execution import NEVER, Execution, Stop


class _Memory(NamedTuple):
    """Memory that an execution leaves: its block, its size in bytes, and how often it was modified."""

    block: Block
    nbytes: int
    version: int


class _Output(NamedTuple):
    """A result: an input, by its ``number``; or a value of ``meta``, on memory of an input or of its own.

    ``number`` tells results apart. Memory is counted from the inputs' on. A view has a ``base`` and an ``origin``.
    """

    number: int
    memory: int
    meta: Meta | None
    base: _Output | None
    origin: int


class _Captured(NamedTuple):
    """An execution that can be launched; ``modified`` says how often each input's memory is modified.

    ``words`` are those that it draws of the device's generator.
    """

    calls: CallSequence
    graph: Capture
    words: int
    made: tuple[_Memory, ...]
    outputs: tuple[_Output, ...]
    modified: tuple[tuple[int, int], ...]


class _State(NamedTuple):
    """What an execution begins with: the blocks of its inputs, its numbers, and the device's stream and scratch.

    ``memory`` is the number of the allocator's state: loops may alternate between some, with the same blocks in each.
    """

    blocks: tuple[Block, ...]
    numbers: tuple[Any, ...]
    place: tuple[Any, ...]
    memory: int


class Captures:
    """What was captured of one executable. ``policy`` counts launches as hits and captures as misses."""

    __slots__ = ("_captured", "_hits", "_random", "_seen", "backend", "executable", "policy")

    def __init__(self, executable: Executable, backend: Backend) -> None:
        self.executable = executable
        self.backend = backend
        self.policy = ReplayPolicy(PROGRAM_CAPTURES)
        self._random = backend.random_state()
        """Where launches read the generator's state; made now, for captures must leave memory as it is."""
        self._captured: dict[_State, _Captured] = {}
        self._seen = Sightings(PROGRAM_CAPTURES.sightings)
        self._hits = 0

    def begin(self, values: Sequence[Any]) -> CapturedExecution:
        """Return an execution, which is launched as one where it was captured in this state."""
        return CapturedExecution(self, values)

    def state_of(self, values: Sequence[Any]) -> _State:
        """Return what captures are kept by."""
        blocks = tuple([memory_of(v.storage).block for v in values if v.__class__ is Value])
        numbers = tuple([v for v in values if v.__class__ is not Value])
        return _State(blocks, numbers, self.backend.place(), self.backend.allocator.state_number())

    def launch(self, state: _State, values: Sequence[Any]) -> tuple[Any, ...] | None:
        """Launch an execution that was captured in this state, and return its results; None if nothing was done."""
        captured = self._captured.get(state)
        backend, allocator = self.backend, self.backend.allocator
        if captured is None or not allocator.can_replay(captured.calls):
            return None
        backend.flush()
        generator = context.current.generators.get(backend.device)
        seed, offset = (0, 0) if generator is None else (generator.initial_seed(), generator.offset)
        if captured.words and generator is not None:
            self._random.write(backend.stream, seed, generator.reserve(captured.words))
        if not captured.graph.launch():
            if captured.words and generator is not None:
                generator.restore(seed, offset)
            del self._captured[state]
            return None
        allocator.replay(captured.calls)
        storages = list(_storages_of(values))
        for number, times in captured.modified:
            storages[number].version += times
        for block, nbytes, version in captured.made:
            storage = Storage(backend, block, nbytes)
            storage.version = version
            storages.append(storage)
        self._hits += 1
        made: dict[_Output, Any] = {}
        return tuple([_result(output, values, storages, made) for output in captured.outputs])

    def start(self, state: _State) -> SequenceStart | None:
        """Return where the allocator's calls begin, if an execution in this state is to be captured."""
        start = self.backend.allocator.start_sequence()
        if start is None or not self.policy.can_afford() or not self._seen.repeats(state, start.state):
            return None
        return start

    def learn(
        self, start: SequenceStart, state: _State, values: Sequence[Any], versions: list[int], outputs: Any
    ) -> None:
        """Capture the execution that was just made, if a graph can repeat what it did."""
        self.policy.hit(self._hits)
        self._hits = 0
        self.policy.miss()
        calls = self.backend.allocator.sequence_since(start)
        if calls is None or calls.freed_blocks():
            return
        described = _Description(values, outputs)
        blocks = [memory.block for memory in described.made if memory.nbytes]
        if calls.kept_blocks() != set(blocks) or len(set(blocks)) != len(blocks):
            return
        generator = PlacedGenerator(self._random.pointer)
        graph = self.backend.capture(partial(self._perform, calls, _Inputs(values), generator))
        if graph is None:
            return
        if len(self._captured) >= PROGRAM_CAPTURES.records:
            self._captured.clear()
        modified = [
            (number, storage.version - before)
            for number, (storage, before) in enumerate(zip(_storages_of(values), versions))
            if storage.version != before
        ]
        self._captured[state] = _Captured(
            calls, graph, generator.words, tuple(described.made), tuple(described.outputs), tuple(modified)
        )

    def _perform(self, calls: CallSequence, inputs: _Inputs, generator: PlacedGenerator) -> bool:
        """Make the dry run; returns whether it asked for the same memory in the same order."""
        current = context.current
        generators = current.generators
        current.generators = {**generators, self.backend.device: generator}
        try:
            with self.backend.allocator.dry_run(calls) as dry_run:
                return self._run_on_shadows(inputs.shadows(dry_run, self.backend)) and dry_run.is_complete
        finally:
            current.generators = generators

    def _run_on_shadows(self, inputs: list[Any]) -> bool:
        try:
            execution = self.executable.begin(inputs)
            execution.advance()
            for output in execution.outputs():
                if output.__class__ is Value:
                    output.storage.keeper = REPLAYED
        except Exception as error:
            error.__traceback__ = error.__context__ = error.__cause__ = None  # they refer to shadow blocks
            return False
        return True


class _Inputs:
    """What an execution takes, told without holding it: numbers, and metas with the memory that they describe."""

    def __init__(self, values: Sequence[Any]) -> None:
        owners = {id(owner): owner for owner in (memory_of(v.storage) for v in values if v.__class__ is Value)}
        numbers = {key: number for number, key in enumerate(owners)}
        self._memory = [(owner.block, owner.nbytes) for owner in owners.values()]
        self._given = [(numbers[id(memory_of(v.storage))], v.meta) if v.__class__ is Value else (-1, v) for v in values]

    def shadows(self, dry_run: DryRun, backend: Backend) -> list[Any]:
        """Return stand-ins: values on shadows of the memory."""
        storages = [Storage(backend, dry_run.shadow(block), nbytes, REPLAYED) for block, nbytes in self._memory]
        return [given if number < 0 else Value(storages[number], given, backend) for number, given in self._given]


class CapturedExecution:
    """One execution: launched as one where that can be, made step by step otherwise."""

    __slots__ = ("_captures", "_execution", "_results", "_start", "_state", "_values")

    def __init__(self, captures: Captures, values: Sequence[Any]) -> None:
        self._captures = captures
        self._values = values
        self._execution: Execution | None = None
        self._results: tuple[Any, ...] | None = None

    def advance(self, stop: Stop = NEVER) -> bool:
        """Go on until ``stop.holds`` or everything was executed; returns whether it was."""
        if self._execution is not None:
            return self._finish(self._execution) if self._execution.advance(stop) else False
        captures, values = self._captures, self._values
        state = captures.state_of(values)
        self._results = captures.launch(state, values)
        if self._results is not None:
            return True
        versions = [storage.version for storage in _storages_of(values)]
        start = captures.start(state)
        self._execution = execution = captures.executable.begin(values)
        if not execution.advance(stop):
            return False
        self._finish(execution)
        if start is not None:
            captures.learn(start, state, values, versions, self._results)
        return True

    def _finish(self, execution: Execution) -> bool:
        self._results = execution.outputs()
        return True

    def outputs(self) -> tuple[Any, ...]:
        """Return what was wanted, once all was executed."""
        return self._results or ()


class _Description:
    """What an execution has left, told so that it can be made again."""

    def __init__(self, values: Sequence[Any], outputs: Sequence[Any]) -> None:
        self._inputs = {id(value): number for number, value in enumerate(values)}
        self._memory = {id(storage): number for number, storage in enumerate(_storages_of(values))}
        self._first = len(self._memory)
        self._numbers: dict[int, int] = {}
        self.made: list[_Memory] = []
        self.outputs = [self._describe(output) for output in outputs]

    def _describe(self, value: Any) -> _Output:
        number = self._inputs.get(id(value))
        if number is not None:
            return _Output(number, -1, None, None, 0)
        storage = value.storage
        if id(storage) not in self._memory:
            self._memory[id(storage)] = self._first + len(self.made)
            self.made.append(_Memory(storage.block, storage.nbytes, storage.version))
        base = None if value.base is None else self._describe(value.base)
        number = self._numbers.setdefault(id(value), len(self._numbers))
        return _Output(number, self._memory[id(storage)], value.meta, base, 0 if base is None else value.origin)


def _result(output: _Output, values: Sequence[Any], storages: Sequence[Storage], made: dict[_Output, Any]) -> Any:
    """Make a result anew."""
    if output.meta is None:
        return values[output.number]
    value = made.get(output)
    if value is None:
        base = None if output.base is None else _result(output.base, values, storages, made)
        storage = storages[output.memory]
        value = made[output] = Value(storage, output.meta, storage.backend, base)
        if base is not None:
            value.origin = output.origin
    return value


def _storages_of(values: Sequence[Any]) -> Iterator[Storage]:
    """The storages of inputs, each once, in their order."""
    return iter({id(v.storage): v.storage for v in values if v.__class__ is Value}.values())
