"""Writing a run of a program down while it is executed as instructions, so that the next ones are executed as one."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any, Final
from weakref import ReferenceType, ref

from server.engine.autograd.graph import Edge, Node
from server.engine.autograd.node import OpNode
from server.engine.integers.elements import Bounds
from server.engine.integers.ranges import takes_indices
from server.engine.programs.analysis import shared_memory
from server.engine.programs.captures import Captures
from server.engine.programs.executable import Executable
from server.engine.programs.graph import Graph, Slot, slots_in
from server.engine.programs.indices import IndexCheck
from server.engine.programs.origins import Origins
from server.engine.programs.recorder import Recorder
from server.engine.programs.specialise import Specialisation, optimised
from server.engine.replay import record_key
from server.engine.value import Value
from server.session.state import SessionState
from telegrad_protocol.meta import Meta
from telegrad_protocol.programs.rates import rate_of

from .compiled import Constant, Given, Number, NumberOnDevice, Outcome, Result, Taken, Variant, launched
from .histories import HistoryWriter, NodePattern, UnknownHistoryError
from .uploaded import Uploaded

LONGEST_SECONDS: Final = 1.0
"""Runs that take longer are executed as instructions, each of which may take as long as one may."""


class SessionRecorder(Recorder):
    """Notes what instructions execute; requests that come in between spoil the record."""

    def __init__(self, state: SessionState, rows: dict[int, int], can_capture: bool) -> None:
        super().__init__()
        self._can_capture = can_capture
        self._state = state
        self._rows = rows
        """The numbers of rows by the ids of their instructions, which somebody holds."""
        self.constants: list[tuple[Number | Uploaded, Meta | type]] = []
        """What the last inputs of the graph are, and of which meta or class."""
        self.checks: list[IndexCheck] = []
        """What the device has checked while the host went on."""
        self._origins = Origins()
        self._last_tag = _last_tag(state)

    def enter(self, value: Value) -> Slot:
        self._origins.enter(value, len(self.inputs))
        return super().enter(value)

    def note_operation(self, operator: Any, args: tuple[Any, ...], signature: Any, result: Any) -> None:
        instruction = self._state.instruction
        if instruction is None:
            self.give_up("a request came in between")
        elif operator.op.updates and operator.op.index == getattr(instruction, "op", -1):
            rate = rate_of(operator.op)
            if rate is not None and args[rate].__class__ is float:
                args = (*args[:rate], self._number(instruction, rate), *args[rate + 1 :])
        tag = _last_tag(self._state)
        if tag > self._last_tag or self._is_trusted(operator):
            self._last_tag = max(tag, self._last_tag)
            self._note_checks(operator, args)
        if self._can_capture:
            self._origins.note(operator, args, result)
        super().note_operation(operator, args, signature, result)

    def _is_trusted(self, operator: Any) -> bool:
        """Whether an operation has taken indices that no device has checked, since the host knew these to be good.

        Others may come in the next run. Those of a backward pass were checked before.
        """
        return self._can_capture and takes_indices(operator) and not self._state.context.checks.covered

    def _note_checks(self, operator: Any, args: tuple[Any, ...]) -> None:
        """Note what must hold of inputs, so that the next runs need not wait for what a device finds."""
        checks = self._origins.checks(operator, args)
        if checks is None:
            self.give_up(f"only a device can tell whether {operator.op.public} fails")
        self.checks += [one for one in checks or () if one not in self.checks]

    def bounds(self, results: Sequence[tuple[Outcome, Any]]) -> tuple[tuple[int, Bounds], ...]:
        """Return the bounds of outputs that are integers, where the operations that made them tell."""
        known = {o.output: self._origins.bounds_of(value) for o, value in results if isinstance(o, Result)}
        return tuple([(output, bounds) for output, bounds in known.items() if bounds is not None])

    def _number(self, instruction: Any, position: int) -> Any:
        self.constants.append((Number(self._rows[id(instruction)], position), float))
        return self.enter_number()

    def note_upload(self, value: Value) -> None:
        row = self._rows.get(id(self._state.instruction))
        if row is None:
            self.give_up("a request came in between")
        else:
            self.enter(value)
            self.constants.append((Uploaded(row, value.meta), value.meta))


def _last_tag(state: SessionState) -> int:
    """Return the number of the last check that a device has not answered; it may be of what came before a record."""
    return next(reversed(state.context.checks.outstanding), 0)


class Recording:
    """A run that is being executed as instructions, and written down: from when this is made until ``variant``."""

    reads_gradients = True
    """Whether the run may read the gradients of its inputs, or give them others."""

    def __init__(
        self, state: SessionState, values: Sequence[Value], instructions: Sequence[Any], tunes: bool = False
    ) -> None:  # fmt: skip
        self._state, self._tunes = state, tunes
        self._instructions = instructions
        self._failures = state.failures
        self.values = values
        self._backend = values[0].backend if values else state.backend("")
        self._begin = time.monotonic()
        self._needs = [value.autograd is not None and value.autograd.requires_grad for value in values]
        self._histories = [_history_of(value) for value in values]
        self._given: list[tuple[ReferenceType[Value], Given]] = []
        """What was there before; gradients that the run drops go when they would go without a record."""
        self._takes: list[Given] = []
        rows = {id(one): number for number, one in enumerate(instructions)}
        self.recorder = self._new_recorder(state, rows)
        for place, value in enumerate(values):
            self._enter(value, Given(place, False))
            if self.reads_gradients and value.autograd is not None and value.autograd.grad is not None:
                self._enter(value.autograd.grad, Given(place, True))
        taken = [given.of(values) for given in self._takes]
        self._metas, self._memory = [value.meta for value in taken], shared_memory(taken)
        self._with_gradients = {given.place for _, given in self._given if given.is_gradient}
        self._before = record_key.start(state.context, self.recorder)

    def _new_recorder(self, state: SessionState, rows: dict[int, int]) -> SessionRecorder:
        return SessionRecorder(state, rows, self._backend.can_capture)

    def _enter(self, value: Value, given: Given) -> None:
        self._given.append((ref(value), given))
        if self.recorder.slot_of(value) is None:
            self.recorder.enter(value)
            self._takes.append(given)

    def stop(self) -> None:
        """Note nothing more."""
        record_key.stop(self._state.context, self._before)

    @property
    def has_failed(self) -> bool:
        """Whether an instruction has failed since, so that the record says nothing."""
        return self._state.failures > self._failures or bool(self._state.interrupt)

    def variant(self, names: Sequence[tuple[int, Any]]) -> Variant | None:
        """Return what was recorded, given what slots name now; None where it cannot be executed alone."""
        recorder = self.recorder
        if time.monotonic() - self._begin > LONGEST_SECONDS:
            recorder.give_up(f"it takes longer than {LONGEST_SECONDS} s")
            return None
        outcomes = _Outcomes(recorder, self._given)
        writer = HistoryWriter(self.values, self._histories, recorder.slot_of, outcomes.place_of)
        try:
            patterns = outcomes.write_histories(writer, [value for _, value in names], self._histories)
        except UnknownHistoryError:
            recorder.give_up("a result has a history that goes on and cannot be made anew")
            return None
        named = [(slot, outcomes.of(value)) for slot, value in names]
        gradients = self._gradients_after(outcomes)
        if recorder.reason:
            return None
        constants = [self._placed(constant, known) for constant, known in recorder.constants]
        metas: list[Meta | type] = [*self._metas, *[known for _, known in constants]]
        memory = [*self._memory, *range(len(metas), len(metas) + len(constants))]
        takes = (*self._takes, *[constant for constant, _ in constants])
        executable, awaited, replaced = self._executable(outcomes.slots, metas, memory, gradients)
        return Variant(
            self._launched(executable), Taken([None if given in replaced else given for given in takes]),
            tuple(named), tuple([one for one in gradients if self._is_changed(*one)]), tuple(patterns),
            tuple(recorder.checks),
            tuple([given.place for given in replaced]), awaited=awaited,
            bounds=recorder.bounds([(outcome, value) for (_, value), (_, outcome) in zip(names, named, strict=True)]),
        ).prepared()  # fmt: skip

    def _placed(self, constant: Number | Uploaded, known: Meta | type) -> tuple[Constant, Meta | type]:
        """Return a constant as a backend takes it, and its meta or class: numbers of captured work are in memory."""
        if isinstance(constant, Uploaded) or not self._backend.can_capture:
            return constant, known
        number = NumberOnDevice(constant, self._backend)
        return number, number.meta

    def _launched(self, executable: Executable) -> Executable | Captures:
        return launched(executable, self._backend, self._tunes)

    def _gradients_after(self, outcomes: _Outcomes) -> list[tuple[int, Outcome]]:
        """Return what inputs have as gradients now; gives up where one has got another history."""
        gradients = []
        for place, (value, needed) in enumerate(zip(self.values, self._needs, strict=True)):
            meta = value.autograd
            if meta is not None:
                if self.reads_gradients:
                    gradients.append((place, outcomes.of(meta.grad)))
                if _history_of(value) != self._histories[place] or meta.requires_grad is not needed:
                    self.recorder.give_up("an input has got another history")
        return gradients

    def _is_changed(self, place: int, gradient: Outcome) -> bool:
        """Return whether an input has another gradient than before."""
        return gradient != (Given(place, True) if place in self._with_gradients else None)

    def _executable(
        self, outputs: Sequence[Slot], metas: Sequence[Meta | type], memory: Sequence[int],
        gradients: Sequence[tuple[int, Outcome]],
    ) -> tuple[Executable, Specialisation | None, list[Given]]:  # fmt: skip
        """Return what executes what was recorded, what it waits for to be executed better, and replaced gradients."""
        graph = self.recorder.graph(outputs)
        with self._state.context.below_autocast():
            specialisation = optimised(graph, metas, memory)
            is_compiled = specialisation.is_compiled()
            executable = specialisation.executable(fuse=is_compiled)
        return executable, None if is_compiled else specialisation, self._replaced(graph, gradients)

    def _replaced(self, graph: Graph, gradients: Sequence[tuple[int, Outcome]]) -> list[Given]:
        """Return the gradients that were there before the run, that nothing reads, and that nothing is afterwards."""
        kept = {slot for step in graph.steps for slot in slots_in(step.args)}.union(graph.outputs)
        after = {outcome for _, outcome in gradients}
        return [
            given for given, slot in zip(self._takes, graph.inputs)
            if given.is_gradient and slot not in kept and given not in after
        ]  # fmt: skip


class _Outcomes:
    """What values are after a run."""

    def __init__(self, recorder: Recorder, given: Sequence[tuple[ReferenceType[Value], Given]]) -> None:
        self._recorder = recorder
        self._given = {id(there()): one for there, one in reversed(given) if there() is not None}
        self._places: dict[Slot, int] = {}
        self._results: dict[int, Result] = {}
        self._numbers: dict[Slot, int] = {}
        self._live: dict[int, tuple[int, int]] = {}
        """The node and output of each value whose history goes on, by the id of the value."""

    @property
    def slots(self) -> list[Slot]:
        """What is wanted of the graph, in the order of its outputs."""
        return list(self._places)

    def place_of(self, slot: Slot) -> int:
        """Return which output a slot is."""
        return self._places.setdefault(slot, len(self._places))

    def write_histories(
        self, writer: HistoryWriter, values: Sequence[Any], outside: Sequence[Edge | None]
    ) -> list[NodePattern]:  # fmt: skip
        """Return the graph of the values whose history goes on, and of what these are views of."""
        live: dict[int, Edge] = {}
        ends = frozenset(edge for edge in outside if edge is not None)
        for value in values:
            for one in (value, value.base) if value.__class__ is Value else ():
                edge = None if one is None or id(one) in self._given else _history_of(one)
                if edge is not None and not _is_used_up(edge, ends):
                    live[id(one)] = edge
        patterns, numbers = writer.written([node for node, _ in live.values()])
        self._live = {number: (numbers[node], output) for number, (node, output) in live.items()}
        return patterns

    def of(self, value: Any) -> Outcome:
        """Describe a value, or what stands in its place."""
        if value.__class__ is not Value:
            return value  # type: ignore[no-any-return]
        given = self._given.get(id(value))
        if given is not None:
            return given
        result = self._results.get(id(value))
        if result is None:
            slot = self._recorder.slot_of(value)
            if slot is None:
                self._recorder.give_up("a result is not known")
                return None
            result = self._results[id(value)] = self._describe(value, slot)
        return result

    def _describe(self, value: Value, slot: Slot) -> Result:
        base = self._base_of(value) if id(value) in self._live else None
        number = self._numbers[slot] = self._numbers.get(slot, -1) + 1
        gradient = None if value.autograd is None else self.of(value.autograd.grad)
        result = Result.describing(value, self.place_of(slot), number, gradient)
        if id(value) in self._live:
            return result._replace(node=self._live[id(value)], base=base)
        edge = _history_of(value)
        if edge is not None and not _is_used_up(edge, ()):
            self._recorder.give_up("a gradient has a history that goes on")
        return result

    def _base_of(self, view: Value) -> Outcome:
        """Describe what a value with a history is a view of; None for none."""
        root = view.base
        if root is None:
            return None
        if root.autograd is None or view.seen < root.autograd.rebased:
            self._recorder.give_up("a view has another history than its base")
        base = self.of(root)
        if isinstance(base, Result) and base.number:
            self._recorder.give_up("a view's base is one of several results")
        return base


def _history_of(value: Value) -> Edge | None:
    """Return which output of which node a value is; None for leaves."""
    meta = value.autograd
    return None if meta is None or meta.grad_fn is None else (meta.grad_fn, meta.output)


def _is_used_up(edge: Edge, outside: Collection[Edge | None]) -> bool:
    """Whether a pass has freed a part of the graph that leads to here, as far as it was made in the run."""
    seen: set[Node] = set()
    edges = [edge]
    while edges:
        node = edges.pop()[0]
        if isinstance(node, OpNode) and node.saved is None:
            return True
        if node not in seen:
            seen.add(node)
            edges += [one for one in node.edges if one is not None and one not in outside]
    return False
