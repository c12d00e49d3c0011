"""Executions of a specialised graph as one CUDA graph: a training step is a single launch.

Where a program is run again and again, its inputs lie where they lay, and the allocator is in the state that it was in.
Then all addresses are those of an execution before, and the device does its work in one launch. The host makes the
results, counts modifications, and has the allocator count the calls that the execution would have made.

A loop that keeps something new in each step never comes to a state again. Its executions are captured on memory of
their own (``private_capture``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final, NamedTuple

from server.allocator import Block
from server.allocator.cache.call_sequences import CallSequence, DryRun, SequenceStart
from server.engine import context
from server.engine.device.interface import Capture
from server.engine.in_c.runs import blocks_of, storages_over
from server.engine.random import PlacedGenerator
from server.engine.replay.captures import CaptureTable, drawing_from, go_through, settling
from server.engine.replay.shadows import REPLAYED
from server.engine.switches import Switches
from server.engine.tuning import TUNERS
from server.engine.value import Backend, Storage, Value
from server.replay_policy import PROGRAM_CAPTURES, ReplayPolicy

from .described import (
    Description,
    Inputs,
    Memory,
    Output,
    Versions,
    block_of,
    count_modifications,
    modifications,
    results_of,
    versions_of,
)  # fmt: skip
from .executable import Executable
from .execution import NEVER, Execution, Stop
from .private_capture import PrivateCapture, captured_on_memory_of_its_own
from .recorded.relocated import RelocatedRun, relocated_on_memory_of_its_own
from .shared_memory import SharedMemory

FEWEST_MISSES: Final = 10
"""After so many executions in a row that were not launched, one is captured on memory of its own."""
LARGE_BYTES: Final = 64 << 20
"""Where values between inputs and outputs take so much, memory of its own is as much again that somebody misses: it is
taken later, and given back before an execution takes other memory."""
_PATIENCE: Final = 3
"""After so many times as many executions memory of its own is taken where that is large."""
_WORTH: Final = 64
"""So many launches with copies pay for a capture without them. Where other work comes in between memory is in a few new
states, in each of which a capture would cost more than it saves until the next ones."""
_WORTH_BYTES: Final = 2 << 30
"""So do launches that have copied so many bytes: that takes a GPU about as long as a capture takes the host."""
_EXPECTED: Final = 2
"""After so many executions in a row that were not launched, the allocator is told that its calls come again."""


class _Captured(NamedTuple):
    """An execution that can be launched; ``modified`` says how often each input's memory is modified.

    ``words`` are those that it draws of the device's generator.
    """

    calls: CallSequence
    graph: Capture
    words: int
    made: tuple[Memory, ...]
    outputs: tuple[Output, ...]
    modified: Versions


class _State(NamedTuple):
    """What an execution begins with: the blocks of its inputs, its numbers, and the device's stream and scratch.

    ``memory`` is the number of the allocator's state: loops may alternate between some, with the same blocks in each.
    """

    blocks: tuple[Block, ...]
    numbers: tuple[Any, ...]
    place: tuple[Any, ...]
    memory: int


class Captures:
    """What was captured of one executable."""

    __slots__ = (
        "_copied", "_copied_bytes", "_expects", "_fewest", "_misses", "_moving", "_private", "_random", "_seen_blocks",
        "_shared", "_table", "_tuned", "backend", "executable", "has_fixed_numbers", "settles",
    )  # fmt: skip

    def __init__(
        self, executable: Executable, backend: Backend, shared: SharedMemory | None = None, fewest: int | None = None,
        *, tunes: bool = False,
    ) -> None:  # fmt: skip
        self.executable = executable
        self.backend = backend
        self._shared = shared
        """What is captured on, where no state of memory comes again; None: on memory of its own."""
        self._fewest = FEWEST_MISSES if fewest is None else fewest
        self._expects = shared is None
        """Whether the allocator is yet to be told that calls come again."""
        self.settles = shared is None
        """Whether kernels are chosen for good before a capture, which takes a while."""
        self._tuned = _tuned_switches(backend) if tunes else None
        """What is executed before a capture, and captured, is under these: its products are those that were fastest."""
        self._random = backend.random_state()
        """Where launches read the generator's state; made now, for captures must leave memory as it is."""
        self._table: CaptureTable[_Captured] = CaptureTable(PROGRAM_CAPTURES)
        self._private: PrivateCapture | RelocatedRun | None = None
        self._misses = 0
        """Executions in a row that were not launched."""
        self.has_fixed_numbers = False
        """Whether it turned out that other numbers among the inputs take another capture."""
        self._copied = self._copied_bytes = 0
        """Launches on shared memory since one was captured where it lay, and the bytes that these have copied."""
        self._moving: set[int] = set()
        """Numbers of the blocks of inputs that have changed, on memory of its own since the last such capture."""
        self._seen_blocks: tuple[Block, ...] = ()

    @property
    def tunes(self) -> bool:
        """Whether products are measured before a capture."""
        return self._tuned is not None

    @contextmanager
    def choosing(self) -> Iterator[None]:
        """Have products be computed in this block as was measured to be fastest, where this tunes."""
        current = context.current
        before = current.switches
        current.switches = self._tuned or before
        try:
            yield
        finally:
            current.switches = before

    @property
    def policy(self) -> ReplayPolicy:
        """It counts launches as hits and captures as misses."""
        return self._table.policy

    def begin(self, values: Sequence[Any]) -> CapturedExecution:
        """Return an execution, which is launched as one where it was captured in this state."""
        return CapturedExecution(self, values)

    def state_of(self, values: Sequence[Any]) -> _State:
        """Return what captures are kept by."""
        blocks, numbers = blocks_of(values), ()
        if blocks is None:  # numbers are among them, or nothing is in C
            blocks = tuple([block_of(v) for v in values if v.__class__ is Value])
            numbers = tuple([v for v in values if v.__class__ is not Value])
        return _State(blocks, numbers, self.backend.place(), self.backend.allocator.state_number())

    def launch(self, state: _State, values: Sequence[Any]) -> tuple[Any, ...] | None:
        """Launch an execution that was captured in this state, and return its results; None if nothing was done."""
        captured = self._table.find(state, self.backend)
        if captured is None:
            private = self._private
            if private is None or (self._has_paid and self._table.repeats(state, self.backend)):
                return None  # a state that comes again needs no copies
            return self._launch_private(private, state.numbers, state.place, values)
        drawn = self._place_generator(captured.words)
        if not self._table.launch(state, captured, self.backend):
            self._restore_generator(drawn)
            return None
        self._misses = 0
        self.backend.allocator.replay(captured.calls)
        count_modifications(values, captured.modified)
        made = storages_over(self.backend, captured.made) or [self._storage(memory) for memory in captured.made]
        return results_of(captured.outputs, values, made)

    @property
    def _has_paid(self) -> bool:
        """Whether copies have cost as much as a capture of what needs none, which a compiled program has at once."""
        if self._shared is None:
            return True
        return not self.lies_anywhere and (self._copied >= _WORTH or self._copied_bytes >= _WORTH_BYTES)

    @property
    def lies_anywhere(self) -> bool:
        """Whether it is launched on the memory of any inputs, without copies."""
        return isinstance(self._private, RelocatedRun)

    def launch_anywhere(self, values: Sequence[Any]) -> tuple[Any, ...] | None:
        """Launch it on the memory of any inputs, and return its results; None if nothing was done."""
        run = self._private
        return self._launch_private(run, (), self.backend.place(), values) if isinstance(run, RelocatedRun) else None

    def _storage(self, memory: Memory) -> Storage:
        storage = Storage(self.backend, memory.block, memory.nbytes)
        storage.version = memory.version
        return storage

    def _launch_private(
        self, private: PrivateCapture | RelocatedRun, numbers: tuple[Any, ...], place: tuple[Any, ...],
        values: Sequence[Any],
    ) -> tuple[Any, ...] | None:  # fmt: skip
        """The same for one that was captured on memory of its own."""
        if not private.fits(values, numbers, place):
            return None
        made = private.results.new_storages()
        if private.is_dropped:  # to make room for these
            return None
        results = private.results
        drawn = self._place_generator(results.words)
        try:
            is_launched = private.launch(values, made)
        except Exception:
            self._restore_generator(drawn)
            raise
        if not is_launched:
            self._restore_generator(drawn)
            self._private = None
            return None
        self._misses = 0
        self._copied += 1
        self._copied_bytes += private.copied_bytes
        self._table.note_launch()
        count_modifications(values, results.modified)
        return results_of(results.outputs, values, made)

    def _place_generator(self, words: int) -> tuple[int, int] | None:
        """Draw words of the device's generator for a launch; returns its state before, None where none are drawn."""
        generator = context.current.generators.get(self.backend.device)
        if not words or generator is None:
            return None
        before = generator.initial_seed(), generator.offset
        self.backend.flush()
        self._random.write(self.backend.stream, before[0], generator.reserve(words))
        return before

    def _restore_generator(self, before: tuple[int, int] | None) -> None:
        if before is not None:
            context.current.generators[self.backend.device].restore(*before)

    def note_sighting(self, values: Sequence[Any], memory: int, start: SequenceStart | None) -> None:
        """Note an execution on these values that was made otherwise before, in a state of the allocator.

        Inputs that lie elsewhere the next time move.
        """
        state = self.state_of(values)._replace(memory=memory)
        self._seen_blocks = state.blocks
        if start is not None:
            self._table.note_sighting(state, start)

    def start(self, state: _State) -> SequenceStart | None:
        """Return where the allocator's calls begin, if an execution in this state is to be captured."""
        before, self._seen_blocks = self._seen_blocks, state.blocks
        self._moving |= {number for number, (a, b) in enumerate(zip(before, state.blocks)) if a is not b}
        self._misses += 1
        if self._expects and self._misses >= _EXPECTED:
            self._expects = False
            self.backend.allocator.expect_repetition()
        return self._table.start(state, self.backend)

    @property
    def misses_often(self) -> bool:
        """Whether an execution is to be captured on memory of its own."""
        return self._misses >= self._fewest and (not self._is_large or self._misses >= _PATIENCE * self._fewest)

    @property
    def _is_large(self) -> bool:
        """Whether memory of its own would be worth mentioning."""
        return self._shared is None and self.executable.describe().temporary_bytes_after >= LARGE_BYTES

    def make_room(self) -> None:
        """Give large memory of its own back before an execution that takes other memory."""
        if self._private is not None and self._is_large:
            self._private = None

    def learn(
        self, start: SequenceStart | None, state: _State, values: Sequence[Any], versions: Versions, outputs: Any
    ) -> None:
        """Capture the execution that was just made, if a graph can repeat what it did."""
        with self.choosing():
            if start is not None:
                self._learn_state(start, state, values, versions, outputs)
            elif self.misses_often and self.policy.can_afford():
                self._learn_private(state, values, outputs)

    def _learn_state(
        self, start: SequenceStart, state: _State, values: Sequence[Any], versions: Versions, outputs: Any
    ) -> None:  # fmt: skip
        self._table.spend()
        self._copied = self._copied_bytes = 0
        calls = self.backend.allocator.sequence_since(start)
        if calls is None or calls.freed_blocks():
            return
        described = Description(values, outputs)
        blocks = [memory.block for memory in described.made if memory.nbytes]
        if calls.kept_blocks() != set(blocks) or len(set(blocks)) != len(blocks):
            return
        generator = PlacedGenerator(self._random.pointer)
        graph = self.backend.capture(partial(self._perform, calls, Inputs(values), generator))
        if graph is not None:
            modified = modifications(values, versions)
            made = tuple(described.made)
            self._table.keep(
                state, _Captured(calls, graph, generator.words, made, described.outputs, modified), self.backend
            )

    def _learn_private(self, state: _State, values: Sequence[Any], outputs: Any) -> None:
        self._private = None
        self._table.spend()
        moving, self._misses = self._moving, 0
        if self._shared is None:  # an input may have been elsewhere once; what shares memory may copy a few that were
            self._moving = set()
        generator = PlacedGenerator(self._random.pointer)
        if self._shared is not None:
            self._private = relocated_on_memory_of_its_own(
                self.executable, self.backend, values, generator, outputs, self._shared
            )
        self.has_fixed_numbers = bool(state.numbers) and self._private is None
        if self.has_fixed_numbers and self._shared is not None:
            return
        self._private = self._private or captured_on_memory_of_its_own(
            self.executable, self.backend, values, {block for n, block in enumerate(state.blocks) if n in moving},
            generator, outputs, self._shared,
        )  # fmt: skip

    def _perform(self, calls: CallSequence, inputs: Inputs, generator: PlacedGenerator) -> bool:
        """Make the dry run; returns whether it asked for the same memory in the same order."""
        with drawing_from(self.backend.device, generator):
            return go_through(self.backend, calls, partial(self._run_on_shadows, inputs))

    def _run_on_shadows(self, inputs: Inputs, dry_run: DryRun) -> None:
        values = inputs.shadows(dry_run.shadow, self.backend)
        execution = self.executable.begin_counted(values, self.backend.captured_work())
        execution.advance()
        for output in execution.outputs():
            if output.__class__ is Value:
                output.storage.keeper = REPLAYED


def _tuned_switches(backend: Backend) -> Switches | None:
    """The switches as they are, with the choices that are kept for a device; None where it has none.

    A session that tunes by itself keeps its own.
    """
    switches, tuner_of = context.current.switches, TUNERS.get(backend.key)
    if tuner_of is None or switches.tuner is not None:
        return None
    return switches.with_tuner(tuner_of(backend))


class CapturedExecution:
    """One execution: launched as one where that can be, made step by step otherwise."""

    __slots__ = ("_captures", "_execution", "_results", "_values")

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
        versions = versions_of(values)
        start = captures.start(state)
        captures.make_room()
        self._execution = execution = captures.executable.begin(values)
        is_next = start is not None or captures.misses_often
        with (
            settling(captures.backend, captures.settles and is_next),
            captures.choosing() if is_next else nullcontext(),
        ):
            is_over = execution.advance(stop)
        if not is_over:
            return False
        self._finish(execution)
        captures.learn(start, state, values, versions, self._results)
        return True

    def _finish(self, execution: Execution) -> bool:
        self._results = execution.outputs()
        return True

    @property
    def execution(self) -> Execution | None:
        """What it was made by step by step; None where it was launched as one."""
        return self._execution

    def outputs(self) -> tuple[Any, ...]:
        """Return what was wanted, once all was executed."""
        return self._results or ()
