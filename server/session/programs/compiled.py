"""What a program comes to when the same was executed before: the operations of backends alone, optimised.

A run is recorded while it is executed as instructions. What autograd has done is then in the operations themselves, of
the backward pass too; what else a run changes are names, gradients of leaves, and histories that are used up.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from server.engine import keys
from server.engine.autograd.graph import Node
from server.engine.autograd.node import OpNode
from server.engine.programs.analysis import shared_memory
from server.engine.programs.executable import Executable
from server.engine.programs.execution import Execution
from server.engine.programs.graph import Slot
from server.engine.programs.recorder import Recorder
from server.engine.programs.specialise import specialise
from server.engine.replay import record_key
from server.engine.value import AutogradMeta, Value
from server.session.state import Absent, SessionState
from telegrad_protocol import dtypes
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op
from telegrad_protocol.programs.rows import Template

from .uploaded import Uploaded

LONGEST_SECONDS: Final = 1.0
"""Runs that take longer are executed as instructions, each of which may take as long as one may."""


class UsedUp(Node):
    """Stands for the history of a result whose graph a backward pass of the program has consumed."""

    __slots__ = ("_name",)

    def __init__(self, name: str, meta: Meta) -> None:
        super().__init__((), (meta,))
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        raise AutogradError(
            "backward: the graph was freed by an earlier pass, in the compiled function; pass retain_graph=True to it"
        )


class Given(NamedTuple):
    """A value that was there before the run: of a place among the program's values, or the gradient of that one."""

    place: int
    is_gradient: bool

    def of(self, values: Sequence[Any]) -> Value:
        """Return it."""
        value = values[self.place]
        return value.autograd.grad if self.is_gradient else value  # type: ignore[no-any-return]


class Number(NamedTuple):
    """A learning rate, which may differ from run to run: by its row, and its position among the arguments."""

    row: int
    position: int

    def of(self, template: Template) -> Any:
        """Return what it is now."""
        value = template.argument(self.row, self.position)
        return value[0] if value.__class__ is list and len(value) == 1 else value


def rate_of(op: Op) -> int | None:
    """Return the position of the learning rate among an optimizer's arguments; None for other operations."""
    return next((p for p, param in enumerate(op.params) if op.updates and param.name == "lr"), None)


class Result(NamedTuple):
    """A value that a run makes: which output of the executable it is, and what autograd knows of it.

    ``number`` tells values apart that are the same output. ``history`` is the name of the node that has made it, used
    up by now, and empty where it has none. ``gradient`` is what it has as its gradient.
    """

    output: int
    number: int
    keys: int
    origin: int | None
    history: str
    requires_grad: bool
    gradient: Outcome

    @staticmethod
    def describing(value: Value, output: int, number: int, gradient: Outcome) -> Result:
        """Describe a value."""
        meta = value.autograd
        node = None if meta is None else meta.grad_fn
        origin = None if value.base is None else value.origin
        requires_grad = meta is not None and meta.requires_grad
        return Result(output, number, value.keys, origin, "" if node is None else node.name, requires_grad, gradient)

    def made(self, outputs: Sequence[Value]) -> Value:
        """Return the value without its gradient, given the executable's outputs."""
        value = outputs[self.output]
        if self.number or (value.base is not None and self.origin is None):
            value = value.alias()
        value.keys = self.keys
        if value.base is not None and self.origin is not None:
            value.origin = self.origin
        if self.requires_grad:
            value.autograd = AutogradMeta(True, UsedUp(self.history, value.meta) if self.history else None)
        return value


Outcome: TypeAlias = "Given | Result | Absent | None"
"""What a name or a gradient is after a run; None: it is gone."""


class Variant(NamedTuple):
    """How a program is executed in one situation, on the values of ``used`` inputs.

    ``takes`` are those that the executable takes. ``names`` has what slots name afterwards, ``gradients`` what values
    have as gradients.
    """

    executable: Executable
    takes: tuple[Given | Number | Uploaded, ...]
    names: tuple[tuple[int, Outcome], ...]
    gradients: tuple[tuple[int, Outcome], ...]

    def begin(self, values: Sequence[Value], template: Template) -> Execution:
        """Return an execution on these values, and on the numbers that a program has now."""
        return self.executable.begin(
            [given.of(values) if isinstance(given, Given) else given.of(template) for given in self.takes]
        )

    def finish(self, values: Sequence[Value], outputs: Sequence[Value]) -> list[tuple[int, Any]]:
        """Set the gradients of leaves, and return what slots name; None for names that are gone."""
        made: dict[Result, Value] = {}
        names = [(slot, _made(outcome, values, outputs, made)) for slot, outcome in self.names]
        gradients = [_made(outcome, values, outputs, made) for _, outcome in self.gradients]
        for (place, _), gradient in zip(self.gradients, gradients):
            _set_gradient(values[place], gradient)
        return names


def _set_gradient(value: Value, gradient: Value | None) -> None:
    if value.autograd is None:
        value.autograd = AutogradMeta()
    value.autograd.grad = gradient


def _made(outcome: Outcome, values: Sequence[Value], outputs: Sequence[Value], made: dict[Result, Value]) -> Any:
    if isinstance(outcome, Given):
        return outcome.of(values)
    if not isinstance(outcome, Result):
        return outcome
    value = made.get(outcome)
    if value is None:
        value = made[outcome] = outcome.made(outputs)
        if outcome.gradient is not None:
            _set_gradient(value, _made(outcome.gradient, values, outputs, made))
    return value


def situation(state: SessionState, values: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return what decides how a program runs on these inputs, besides its constants.

    None where the instructions have to be executed: the values have a history, or are on a GPU, or somebody watches.
    """
    current = state.context
    if (
        current.trace is not None or current.profiler is not None or state.histories or current.checks.outstanding
        or current.own_streams.left_default or current.casts or state.plain_handlers
    ):  # fmt: skip
        return None
    described: list[Any] = []
    gradients: list[Any] = []
    for value in values:
        if value.__class__ is not Value or not value.keys & keys.CPU:
            return None
        meta = value.autograd
        if meta is None:
            described.append(value.meta)
        elif meta.grad_fn is not None or (value.base is not None and meta.requires_grad):
            return None
        else:
            described.append((value.meta, meta.requires_grad, None if meta.grad is None else meta.grad.meta))
            gradients.append(meta.grad)
    modes = (
        current.excluded, current.included, current.inference, current.autocast, current.switches, current.cudnn,
        dtypes._default,
    )  # fmt: skip
    return modes, tuple(described), shared_memory([*values, *[g for g in gradients if g is not None]])


class _SessionRecorder(Recorder):
    """Notes what instructions execute; requests that come in between spoil the record."""

    def __init__(self, state: SessionState, rows: dict[int, int]) -> None:
        super().__init__()
        self._state = state
        self._rows = rows
        """The numbers of rows by the ids of their instructions, which somebody holds."""
        self.constants: list[tuple[Number | Uploaded, Meta | type]] = []
        """What the last inputs of the graph are, and of which meta or class."""

    def note_operation(self, operator: Any, args: tuple[Any, ...], signature: Any, result: Any) -> None:
        instruction = self._state.instruction
        if instruction is None:
            self.give_up("a request came in between")
        elif operator.op.updates and operator.op.index == getattr(instruction, "op", -1):
            rate = rate_of(operator.op)
            if rate is not None and args[rate].__class__ is float:
                args = (*args[:rate], self._number(instruction, rate), *args[rate + 1 :])
        super().note_operation(operator, args, signature, result)

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


class Recording:
    """A run that is being executed as instructions, and written down: from when this is made until ``variant``."""

    def __init__(self, state: SessionState, values: Sequence[Value], instructions: Sequence[Any]) -> None:
        self._state = state
        self._instructions = instructions
        self._failures = state.failures
        self._values = values
        self._begin = time.monotonic()
        self._needs = [value.autograd is not None and value.autograd.requires_grad for value in values]
        self._given: list[tuple[Value, Given]] = []
        self._takes: list[Given] = []
        self.recorder = _SessionRecorder(state, {id(one): number for number, one in enumerate(instructions)})
        for place, value in enumerate(values):
            self._enter(value, Given(place, False))
            if value.autograd is not None and value.autograd.grad is not None:
                self._enter(value.autograd.grad, Given(place, True))
        taken = [given.of(values) for given in self._takes]
        self._metas, self._memory = [value.meta for value in taken], shared_memory(taken)
        self._before = record_key.start(state.context, self.recorder)

    def _enter(self, value: Value, given: Given) -> None:
        self._given.append((value, given))
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
            return None
        outcomes = _Outcomes(recorder, self._given)
        named = [(slot, outcomes.of(value)) for slot, value in names]
        gradients = []
        for place, (value, needed) in enumerate(zip(self._values, self._needs, strict=True)):
            meta = value.autograd
            if meta is not None:
                gradients.append((place, outcomes.of(meta.grad)))
                if meta.grad_fn is not None or meta.requires_grad is not needed:
                    recorder.give_up("an input has got another history")
        if recorder.reason:
            return None
        graph, constants = recorder.graph(outcomes.slots), recorder.constants
        metas: list[Meta | type] = [*self._metas, *[known for _, known in constants]]
        memory = [*self._memory, *range(len(metas), len(metas) + len(constants))]
        takes = (*self._takes, *[constant for constant, _ in constants])
        with self._state.context.below_autocast():
            executable = specialise(graph, metas, memory)
        return Variant(executable, takes, tuple(named), tuple(gradients))


class _Outcomes:
    """What values are after a run."""

    def __init__(self, recorder: Recorder, given: Sequence[tuple[Value, Given]]) -> None:
        self._recorder = recorder
        self._given = {id(value): given for value, given in reversed(given)}
        self._places: dict[Slot, int] = {}
        self._results: dict[int, Result] = {}
        self._numbers: dict[Slot, int] = {}

    @property
    def slots(self) -> list[Slot]:
        """What is wanted of the graph, in the order of its outputs."""
        return list(self._places)

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
            if slot is None or not _is_used_up(value):
                self._recorder.give_up("a result has a history that goes on, or is not known")
                return None
            result = self._results[id(value)] = self._describe(value, slot)
        return result

    def _describe(self, value: Value, slot: Slot) -> Result:
        place = self._places.setdefault(slot, len(self._places))
        number = self._numbers[slot] = self._numbers.get(slot, -1) + 1
        gradient = None if value.autograd is None else self.of(value.autograd.grad)
        return Result.describing(value, place, number, gradient)


def _is_used_up(value: Value) -> bool:
    """Whether no gradient can flow into what has made a value: a pass has freed a part of the graph."""
    if value.autograd is None or value.autograd.grad_fn is None:
        return True
    seen: set[Node] = set()
    nodes: list[Node] = [value.autograd.grad_fn]
    while nodes:
        node = nodes.pop()
        if isinstance(node, OpNode) and node.saved is None:
            return True
        if node not in seen:
            seen.add(node)
            nodes += [edge[0] for edge in node.edges if edge is not None]
    return False
