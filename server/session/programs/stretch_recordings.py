"""Stretches that are being executed call by call, and written down: what they hold, and what executes them as one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from time import monotonic_ns
from typing import Any

from server.engine.integers.ranges import indices_in, takes_indices
from server.engine.operators import Operator
from server.engine.plan import Plan
from server.engine.profiling.stretch_notes import Watch
from server.engine.programs.analysis import is_opaque
from server.engine.programs.captures import Captures
from server.engine.programs.executable import Executable
from server.engine.programs.graph import Slot
from server.engine.programs.recorded.elastic import Elastic, KnownIndices, RecordedRun
from server.engine.programs.recorded.unchanged import Unchanged
from server.engine.programs.shared_memory import SharedMemory
from server.engine.replay.varying import plan_of_any_numbers
from server.engine.signature import metas_of
from server.engine.value import Value
from server.session.state import SessionState
from telegrad_protocol.meta import Meta

from .compiled import Constant, Given, Number, Variant, is_whole, launched_soon
from .holding import note_check
from .noted_calls import CallRecorder
from .recording import Recording
from .uploaded import Uploaded


class _StretchRecorder(CallRecorder):
    """Gives up where an operation is not what a stretch may hold, as far as only its execution tells."""

    def __init__(
        self, state: SessionState, rows: dict[int, int], can_capture: bool, watch: Watch | None,
        numbers: Sequence[tuple[int, int]],
    ) -> None:  # fmt: skip
        super().__init__(state, rows, can_capture)
        self._watch = watch
        self._numbers: dict[int, list[int]] = {}
        """Positions of numbers that are others each time among the arguments of a call, by its row."""
        for row, position in numbers:
            self._numbers.setdefault(row, []).append(position)
        self.callers: list[int] = []
        """The operation that the program has called, for each step."""
        self.known: list[KnownIndices | None] = []
        """What is known of the indices that each step takes; None for one that takes none."""

    def note_operation(self, operator: Operator, args: tuple[Any, ...], signature: Any, result: Any) -> None:
        if is_opaque(operator):
            self.note_other(operator.op.public)
        if self._watch is not None:
            self._watch.times.append(monotonic_ns())
        self.callers.append(getattr(self._state.instruction, "op", -1))
        self.known.append(self._known_indices(operator, args) if takes_indices(operator) else None)
        row = self._rows.get(id(self._state.instruction), -1)
        plan = self._plan_of_any_numbers(operator, args) if row in self._numbers else None
        if plan is None:
            super().note_operation(operator, args, signature, result)
            return
        given = list(args)
        for position in self._numbers[row]:
            given[position] = self._number(self._state.instruction, position)
            if self._watch is not None:
                self._watch.numbered.append((len(self._watch.times) - 1, position))
        super().note_operation(operator, tuple(given), signature, result)
        if not self.reason:
            self.plans[-1] = plan

    def _plan_of_any_numbers(self, operator: Operator, args: tuple[Any, ...]) -> Plan | None:
        """Return a plan that reads the numbers of a call in each launch; None for what it does on the way to that."""
        instruction = self._state.instruction
        if getattr(instruction, "op", -1) != operator.op.index:
            return None
        positions = self._numbers[self._rows[id(instruction)]]
        return plan_of_any_numbers(operator, args) if all([args[p].__class__ is float for p in positions]) else None

    def _known_indices(self, operator: Operator, args: tuple[Any, ...]) -> KnownIndices:
        """Note what must hold of inputs so that indices are good; a stretch cannot hold what nobody can tell of."""
        indices = indices_in(operator.op, metas_of(args)) or ()
        if self._can_capture:
            checks = self._origins.checks(operator, args)
            if checks is None:
                self.divide(self.callers[-1], f"only a device can tell whether {operator.op.public} fails")
            self.checks += checks or ()
        return tuple([(one, self._origins.bounds_of(one.of(args))) for one in indices])

    def _note_checks(self, operator: Any, args: tuple[Any, ...]) -> None:
        if not takes_indices(operator):
            note_check(self._state.instruction.op)
            self.give_up(f"only a device can tell whether {operator.op.public} fails")

    def note_write_to_input(self, operator: Operator) -> None:
        self.divide(self.callers[-1], f"{operator.op.public} changes an input, which cannot be taken back")

    def divide(self, operation: int, reason: str) -> None:
        """Give up, and have later stretches of the session end before this operation."""
        self._state.divides.add(operation)
        self.give_up(reason)


class StretchRecording(Recording):
    """A stretch that is being executed call by call, and written down; ``watch`` sees what a profile notes of it."""

    reads_gradients = False
    watch: Watch | None = None
    recorder: _StretchRecorder

    def __init__(
        self, state: SessionState, values: Sequence[Value], instructions: Sequence[Any],
        numbers: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        self._numbers = numbers
        """Where numbers are that will be others: the row of a call, and the position among its arguments."""
        super().__init__(state, values, instructions)
        if len(self._takes) < len(values):
            self.recorder.give_up("two inputs are the same memory, which they need not be the next time")
        allocator = self._backend.allocator
        self._memory_state, self._start = allocator.state_number(), allocator.start_sequence()

    def _new_recorder(self, state: SessionState, rows: dict[int, int]) -> _StretchRecorder:
        profiler = state.context.profiler
        self.watch = None if profiler is None else Watch(profiler)
        return _StretchRecorder(state, rows, self._backend.can_capture, self.watch, self._numbers)

    @property
    def has_all_numbers(self) -> bool:
        """Whether each number that will be another one is what a launch reads."""
        return bool(self.recorder.reason) or len(self.recorder.constants) == len(self._numbers)

    def _placed(self, constant: Number | Uploaded, known: Meta | type) -> tuple[Constant, Meta | type]:
        return constant, known

    def _executable(
        self, outputs: Sequence[Slot], metas: Sequence[Meta | type], memory: Sequence[int], gradients: Sequence[Any]
    ) -> tuple[Executable, None, list[Given]]:  # fmt: skip
        recorder = self.recorder
        return Unchanged(recorder.steps, recorder.plans, recorder.inputs, outputs, metas), None, []

    @property
    def _shared_memory(self) -> SharedMemory:
        """What captured work of the session is done on."""
        backend, memory = self._backend, self._state.shared_memory
        if backend.device not in memory:
            memory[backend.device] = SharedMemory(backend)
        return memory[backend.device]

    def _launched(self, executable: Executable) -> Executable | Captures:
        made = launched_soon(executable, self._backend, self._shared_memory)
        if isinstance(made, Captures):
            made.note_sighting([given.of(self.values) for given in self._takes], self._memory_state, self._start)
        return made


class ElasticRecording(StretchRecording):
    """One of two runs on inputs of other sizes, which together tell what depends on these."""

    loose: Collection[Slot] = ()

    def variant(self, names: Sequence[tuple[int, Any]]) -> Variant | None:
        """Return what was recorded; None also where a device could launch too little of it as one."""
        run = self.run
        for number in run.steps_for_one_size(self.loose) if run is not None else ():
            self.recorder.divide(self.recorder.callers[number], "on other sizes it may write, or find, another element")
        variant = super().variant(names) if run is not None and run.may_vary(self.loose) else None
        if variant is None or not is_whole(variant.plain, self._backend):
            return variant
        executable = variant.plain
        assert isinstance(executable, Elastic), "it was made for other sizes"
        if not executable.is_worth_capturing:
            return None
        executable.captures_on(self._backend, self._shared_memory)
        return variant

    @property
    def run(self) -> RecordedRun | None:
        """What was executed; None where it cannot be executed alone."""
        recorder = self.recorder
        if recorder.reason:
            return None
        steps, plans, composites = tuple(recorder.steps), tuple(recorder.plans), tuple(recorder.composites)
        indices = {step.outs: known for step, known in zip(steps, recorder.known, strict=True) if known is not None}
        return RecordedRun(tuple(recorder.inputs), tuple(self._metas), steps, plans, composites, indices)

    def _executable(
        self, outputs: Sequence[Slot], metas: Sequence[Meta | type], memory: Sequence[int], gradients: Sequence[Any]
    ) -> tuple[Executable, None, list[Given]]:  # fmt: skip
        run = self.run
        assert run is not None, "a record that was given up has no executable"
        return Elastic(run, outputs, self.loose), None, []

    def _launched(self, executable: Executable) -> Executable:
        return executable
