"""What a program comes to when the same was executed before: the operations of backends alone, optimised.

A run is recorded while it is executed as instructions. What autograd has done is then in the operations themselves, of
the backward pass too; what else a run changes are names, gradients of leaves, and histories that are used up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from server.engine import context
from server.engine.autograd import changes
from server.engine.autograd.graph import Node
from server.engine.in_c.runs import Rows, give_gradients, named_by
from server.engine.integers.elements import Bounds, note_bounds
from server.engine.integers.ranges import are_known
from server.engine.programs.captures import CapturedExecution, Captures
from server.engine.programs.executable import Description, Executable
from server.engine.programs.execution import Execution
from server.engine.programs.indices import IndexCheck, are_good
from server.engine.programs.shared_memory import SharedMemory
from server.engine.programs.specialise import Specialisation
from server.engine.value import AutogradMeta, Backend, Value
from server.session.state import Absent
from telegrad_protocol import dtypes
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta
from telegrad_protocol.programs.rows import Template

from .histories import NodePattern, made_anew
from .uploaded import Uploaded

_log = logging.getLogger(__name__)
_SOON: Final = 1


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


class NumberOnDevice:
    """A number where a captured execution reads it: launches of one graph have the same arguments each time."""

    __slots__ = ("_held", "_number", "_value")

    def __init__(self, number: Number, backend: Backend) -> None:
        self._number = number
        self._value = backend.empty(Meta.of((), dtypes.float64, backend.device))
        self._held: float | None = None

    @property
    def meta(self) -> Meta:
        """That of the tensor which holds it."""
        return self._value.meta

    def of(self, template: Template) -> Value:
        """Return the tensor, which holds what the number is now."""
        number = self._number.of(template)
        if number != self._held:
            self._value.fill_(number)
            self._held = number
        return self._value


Constant: TypeAlias = Number | NumberOnDevice | Uploaded
"""What differs between runs that are executed alike."""


class Result(NamedTuple):
    """A value that a run makes: which output of the executable it is, and what autograd knows of it.

    ``number`` tells values apart that are the same output. ``history`` is the name of the node that has made it, used
    up by now, and empty where it has none; ``node`` is the number of the node, and of its output, where the graph goes
    on. A view with such a history has a ``base``. ``gradient`` is what it has as its gradient.
    """

    output: int
    number: int
    keys: int
    origin: int | None
    history: str
    requires_grad: bool
    gradient: Outcome
    node: tuple[int, int] | None = None
    base: Outcome = None

    @staticmethod
    def describing(value: Value, output: int, number: int, gradient: Outcome) -> Result:
        """Describe a value whose history is used up, if it has one."""
        meta = value.autograd
        node = None if meta is None else meta.grad_fn
        origin = None if value.base is None else value.origin
        requires_grad = meta is not None and meta.requires_grad
        return Result(output, number, value.keys, origin, "" if node is None else node.name, requires_grad, gradient)

    def made(self, outputs: Sequence[Value], nodes: Sequence[Node], base: Value | None) -> Value:
        """Return the value without its gradient, given the executable's outputs, and the nodes that go on."""
        value = outputs[self.output]
        if self.number or (value.base is not None and self.origin is None):
            value = value.alias()
        if base is not None:
            value.base, value.seen = base, value.storage.version
        value.keys = self.keys
        if value.base is not None and self.origin is not None:
            value.origin = self.origin
        if self.node is not None:
            value.autograd = AutogradMeta(True, nodes[self.node[0]], self.node[1])
        elif self.requires_grad:
            value.autograd = AutogradMeta(True, UsedUp(self.history, value.meta) if self.history else None)
        return value

    @property
    def is_plain(self) -> bool:
        """Whether it is an output that nothing else is, no view, and without a history or a gradient."""
        return not (
            self.number or self.requires_grad or self.origin is not None or self.node is not None
            or self.gradient is not None or self.base is not None
        )  # fmt: skip


Outcome: TypeAlias = "Given | Result | Absent | None"
"""What a name or a gradient is after a run; None: it is gone."""


Outcomes: TypeAlias = tuple[tuple[int, Outcome], ...]
"""What slots name, or what places have as gradients."""


class Split(NamedTuple):
    """Outcomes of which most are plain results, or nothing: rows of these, and the others."""

    rows: Rows
    others: Outcomes

    @staticmethod
    def of(outcomes: Outcomes) -> Split:
        """Return the same in two parts."""
        rows = tuple([(place, -1, 0) if one is None else (place, one.output, one.keys) for place, one in outcomes
                      if one is None or (isinstance(one, Result) and one.is_plain)])  # fmt: skip
        known = {place for place, _, _ in rows}
        return Split(rows, tuple([one for one in outcomes if one[0] not in known]))


class Taken:
    """What an executable takes of a run: values that were there before, constants, and None for what it never reads."""

    __slots__ = ("_nothing", "_others", "_pick", "given")

    def __init__(self, given: Sequence[Given | Constant | None]) -> None:
        self.given = tuple(given)
        plain = [one.place if isinstance(one, Given) and not one.is_gradient else None for one in given]
        self._nothing = [number for number, one in enumerate(given) if one is None]
        self._others = [
            (number, one) for number, one in enumerate(given) if one is not None and plain[number] is None
        ]  # fmt: skip
        places = [0 if place is None else place for place in plain]
        picks = len(places) > 1 and len(self._others) + len(self._nothing) < len(places)
        self._pick: Callable[[Sequence[Any]], Sequence[Any]] | None = itemgetter(*places) if picks else None
        """Takes what is among the values at once; None where it is one or none."""

    def of(self, values: Sequence[Any], template: Template) -> list[Any]:
        """Return it, of these values and of the constants that a program has now."""
        if self._pick is None:
            return [_taken(one, values, template) for one in self.given]
        taken: list[Any] = [*self._pick(values)]
        for number in self._nothing:
            taken[number] = None
        for number, one in self._others:
            taken[number] = _taken(one, values, template)
        return taken


def _taken(given: Given | Constant | None, values: Sequence[Any], template: Template) -> Any:
    return None if given is None else given.of(values) if isinstance(given, Given) else given.of(template)


class Variant(NamedTuple):
    """How a program is executed in one situation, on the values of ``used`` inputs.

    ``takes`` are those that the executable takes. ``names`` has what slots name afterwards, ``gradients`` what values
    have as gradients where these are other ones, ``graph`` the part of the backward graph that goes on.
    """

    executable: Executable | Captures
    takes: Taken
    names: Outcomes
    gradients: Outcomes
    graph: tuple[NodePattern, ...]
    checks: tuple[IndexCheck, ...]
    replaced: tuple[int, ...]
    """Values whose gradients nothing reads before they are replaced: their memory serves the run."""
    released: tuple[int, ...] = ()
    """Slots of inputs that the program does nothing with but to free them, which is done before the run."""
    awaited: Specialisation | None = None
    """What it is executed by once its fused kernels were compiled; None where they are there, or are not needed."""
    bounds: tuple[tuple[int, Bounds], ...] = ()
    """Outputs that are integers within bounds, whatever the inputs hold."""
    split: tuple[Split, Split] | None = None
    """Names and gradients, in the form in which C makes them."""

    def prepared(self) -> Variant:
        """Return the same with names and gradients in the form for C."""
        return self._replace(split=(Split.of(self.names), Split.of(self.gradients)))

    @property
    def changed(self) -> int:
        """How many changes a run notes: one for the gradients that it drops, one for those that it sets."""
        return bool(self.replaced) + bool(self.gradients)

    @property
    def has_fixed_numbers(self) -> bool:
        """Whether it turned out that it cannot be launched as one with other numbers each time."""
        return isinstance(self.executable, Captures) and self.executable.has_fixed_numbers

    @property
    def lies_anywhere(self) -> bool:
        """Whether it is launched as one on the memory of any inputs, without copies."""
        return isinstance(self.executable, Captures) and self.executable.lies_anywhere

    @property
    def plain(self) -> Executable:
        """What executes it step by step."""
        return self.executable.executable if isinstance(self.executable, Captures) else self.executable

    @property
    def description(self) -> Description:
        """What was done to the recorded operations."""
        return self.plain.describe()

    def refined(self) -> Variant:
        """Return the variant with its fused kernels, once they were compiled; the same one until then."""
        awaited = self.awaited
        if awaited is None or not awaited.is_compiled():
            return self
        plain = self._replace(awaited=None)
        try:
            executable = awaited.executable()
        except Exception:
            _log.exception("fused kernels could not be loaded; a program's operations are executed one by one")
            return plain
        before = self.executable
        if isinstance(before, Captures):
            return plain._replace(executable=launched(executable, before.backend, before.tunes))
        return plain._replace(executable=executable)

    def taken(self, values: Sequence[Value], template: Template) -> list[Any] | None:
        """Return what the executable takes of these values, and of the constants that a program has now.

        None where an index is out of range, or may be: the instructions say which one.
        """
        taken = self.takes.of(values, template)
        return taken if all([are_good(check, taken[check.input]) for check in self.checks]) else None

    def known(self, values: Sequence[Value], template: Template) -> list[Any] | None:
        """Return the same; None where the host does not know that all indices are good, which waits for no device."""
        taken = self.takes.of(values, template)
        for check in self.checks:
            if not are_known(taken[check.input], check.meta, check.range):
                return None
        return taken

    def begin(
        self, values: Sequence[Value], template: Template, known: list[Any] | None = None
    ) -> Execution | CapturedExecution | None:
        """Return an execution on these values, and on the constants that a program has now; None as ``taken``.

        What is ``known`` is not looked at again.
        """
        taken = self.taken(values, template) if known is None else known
        if taken is None:
            return None
        if self.replaced:
            _set_gradients([(values[place], None) for place in self.replaced])
        profiler = context.current.profiler
        if profiler is not None and profiler.with_memory:  # what a step has allocated is known after that alone
            return self.plain.begin(taken)
        return self.executable.begin(taken)

    def finish(self, values: list[Any], outputs: tuple[Any, ...]) -> list[tuple[int, Any]]:
        """Set the gradients of leaves, and return what slots name; None for names that are gone."""
        nodes = made_anew(self.graph, values, outputs) if self.graph else []
        if nodes:
            context.current.remade_nodes = nodes[0].sequence, nodes[-1].sequence
        for number, bounds in self.bounds:
            note_bounds(outputs[number], bounds)
        return self._named(values, outputs, nodes)

    def _named(self, values: list[Any], outputs: tuple[Any, ...], nodes: Sequence[Node]) -> list[tuple[int, Any]]:
        """Set the gradients, and return what slots name; C does it for what is plain."""
        of_names, of_gradients = self.split or (Split((), self.names), Split((), self.gradients))
        names = named_by(of_names.rows, outputs)
        if names is None:
            names, of_names = [], Split((), self.names)
        if not of_names.others and not self.gradients:
            return names
        making = _Making(values, outputs, nodes)
        names += [(slot, making.of(outcome)) for slot, outcome in of_names.others]
        if self.gradients:
            changes.note()
            if not give_gradients(values, of_gradients.rows, outputs):
                of_gradients = Split((), self.gradients)
            _set([(values[place], making.of(outcome)) for place, outcome in of_gradients.others])
        return names


def launched(executable: Executable, backend: Backend, tunes: bool = False) -> Executable | Captures:
    """Return what captures the executions of an executable that does all on one device, if the device can.

    Where it ``tunes``, products are measured before a capture.
    """
    return Captures(executable, backend, tunes=tunes) if is_whole(executable, backend) else executable


def launched_soon(executable: Executable, backend: Backend, shared: SharedMemory) -> Executable | Captures:
    """Return the same for what is executed rarely: it is captured at once, on shared memory if in no state again."""
    if not is_whole(executable, backend):
        return executable
    return Captures(executable, backend, shared, _SOON)


def is_whole(executable: Executable, backend: Backend) -> bool:
    """Return whether an executable does all on one device, and that can capture it."""
    return backend.can_capture and executable.devices == {backend.device}


def _set_gradients(pairs: Sequence[tuple[Value, Value | None]]) -> None:
    """Give values these gradients, and count that."""
    changes.note()
    _set(pairs)


def _set(pairs: Sequence[tuple[Value, Value | None]]) -> None:
    for value, gradient in pairs:
        if value.autograd is None:
            value.autograd = AutogradMeta()
        value.autograd.grad = gradient


class _Making:
    """Makes what names and gradients are after a run."""

    def __init__(self, values: Sequence[Any], outputs: Sequence[Value], nodes: Sequence[Node]) -> None:
        self._values, self._outputs, self._nodes = values, outputs, nodes
        self._made: dict[tuple[int, int], Value] = {}
        """By the output that it is, and by what tells values apart that are the same output."""

    def of(self, outcome: Outcome) -> Any:
        """Return a value, or what stands in its place; the same for the same outcome."""
        if outcome.__class__ is not Result:
            return outcome.of(self._values) if isinstance(outcome, Given) else outcome  # which None is, too
        key = outcome.output, outcome.number
        value = self._made.get(key)
        if value is None:
            base = None if outcome.base is None else self.of(outcome.base)
            value = self._made[key] = outcome.made(self._outputs, self._nodes, base)
            if outcome.gradient is not None:
                _set_gradients([(value, self.of(outcome.gradient))])
        return value
