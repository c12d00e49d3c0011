"""A specialised graph: a list of functions bound beforehand, and the memory that each reads and fills.

Values lie in a list by number, so that a step takes its arguments from there in one call and looks nothing up. What a
step was compiled for is known from the operands' metas, which are compared when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from server.engine import context
from server.engine.context import Held
from server.engine.device.interface import Counter
from server.engine.operators import Operator
from server.engine.value import Value
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.meta import CPU, Device, Meta

from .execution import Call, Execution
from .graph import Slot, check_inputs
from .stamped import Profiler, StampedExecution


@dataclass(frozen=True)
class Description:
    """What was done to a graph: counts of steps and kernels, bytes of temporaries, and texts to read."""

    steps: int
    """Steps of the graph, after operations that consist of others were replaced by these."""
    kernels_before: int
    """Steps that compute: views are none."""
    kernels_after: int
    dead: int
    repeated: int
    folded: int
    fused: tuple[tuple[str, ...], ...]
    """The names of the operations in each fused kernel."""
    temporary_bytes_before: int
    """The most that values between inputs and outputs take at once, if every step is executed alone."""
    temporary_bytes_after: int
    text: str
    """The steps as they are executed, and the texts that fused kernels were made from."""

    def __str__(self) -> str:
        lines = [
            f"{self.steps} steps, {self.kernels_before} kernels before, {self.kernels_after} after",
            f"dead {self.dead}, repeated {self.repeated}, folded {self.folded}",
            f"temporary bytes {self.temporary_bytes_before} before, {self.temporary_bytes_after} after",
            *[f"fused {len(names)}: {', '.join(names)}" for names in self.fused],
        ]
        return "\n".join([*lines, "", self.text])


class Part(NamedTuple):
    """What a step of an executable is: an operation with its bound arguments, or a kernel of several operations."""

    operators: tuple[Operator, ...]
    bound: tuple[Any, ...] | None
    """None of a kernel of several operations, and where they are not known."""


class Executable:
    """Executes a graph on operands of the metas that it was specialised for."""

    __slots__ = (
        "_calls", "_count", "_description", "_held", "_initial", "_known", "_outputs", "devices", "notes",
        "parts",
    )  # fmt: skip

    def __init__(
        self, calls: Sequence[Call], initial: list[Any], known: Sequence[Any], outputs: Sequence[int],
        description: Description, held: Held, devices: frozenset[Device], parts: Sequence[Part] = (),
    ) -> None:  # fmt: skip
        self._calls = tuple(calls)
        self._initial = initial
        self._known = tuple(known)
        self._count = len(self._known)
        self._outputs = tuple(outputs)
        self._description = description
        self._held = held
        """Its machine code, in the account of the session."""
        self.devices = devices
        """Where its values are: those that it takes, makes, or passes on."""
        self.parts = tuple(parts)
        """What each step is; empty where that is not kept."""
        self.notes: Any = None
        """What a profile says of the steps; its owner's."""

    @property
    def device(self) -> Device:
        """The device whose launches are counted under a profile."""
        return next((device for device in self.devices if device.type != "cpu"), CPU)

    def run(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Execute the steps on values for the inputs, in order, and return the outputs.

        Values must have the metas, and share memory only where they did, as when the graph was specialised: another
        meta is an ArgumentError. Values that require a gradient are an AutogradError.
        """
        self._check(values)
        execution = self.begin(values)
        execution.advance()
        return execution.outputs()

    def begin(self, values: Sequence[Any]) -> Execution:
        """Return an execution, for an owner that has compared the metas, and wants no gradients of the values.

        Its steps are stamped while the session is profiled.
        """
        table = self._initial.copy()
        table[: self._count] = values
        profiler: Profiler | None = context.current.profiler
        if profiler is None:
            return Execution(self._calls, table, self._outputs)
        look = profiler.note_memory if profiler.with_memory else None
        return StampedExecution(self._calls, table, self._outputs, profiler.counter(self.device), look)

    def begin_counted(self, values: Sequence[Any], counter: Counter) -> Execution:
        """Return an execution that is being captured: what each step adds to the graph is counted."""
        table = self._initial.copy()
        table[: self._count] = values
        return StampedExecution(self._calls, table, self._outputs, counter)

    def _check(self, values: Sequence[Any]) -> None:
        check_inputs(self._count, values)
        for position, (value, known) in enumerate(zip(values, self._known)):
            if value.__class__ is Value:
                if value.meta is not known:
                    raise ArgumentError(
                        f"program: input {position} is {value.meta} with strides {list(value.meta.strides)} on "
                        f"{value.device}, and it was specialised for {_described(known)}"
                    )
            elif value.__class__ is not known:
                wanted = "a tensor" if isinstance(known, Meta) else f"a number of type {known.__name__}"
                raise ArgumentError(f"program: input {position} is {value!r}, and {wanted} was expected")

    def describe(self) -> Description:
        """What was eliminated, folded and fused, and the text of what runs."""
        return self._description


def _described(known: Any) -> str:
    if isinstance(known, Meta):
        return f"{known} with strides {list(known.strides)} and offset {known.offset} on {known.device}"
    return f"a number of type {known.__name__}"


class Places:
    """The list of values of an executable: inputs first, then constants, attributes and what steps make."""

    def __init__(self, inputs: Sequence[Slot]) -> None:
        self.initial: list[Any] = [None] * len(inputs)
        self._of: dict[int, int] = {slot.number: place for place, slot in enumerate(inputs)}

    def of(self, root: Slot) -> int:
        """The place of a value."""
        place = self._of.get(root.number)
        if place is None:
            place = self._of[root.number] = self._append(None)
        return place

    def share(self, root: Slot, other: Slot) -> None:
        """Give a value the place of another one, which is no more."""
        self._of[root.number] = self.of(other)

    def __contains__(self, root: Slot) -> bool:
        return root.number in self._of

    def put(self, root: Slot, value: Any) -> None:
        """Enter a constant."""
        self.initial[self.of(root)] = value

    def _append(self, item: Any) -> int:
        self.initial.append(item)
        return len(self.initial) - 1

    def take(self, args: tuple[Any, ...]) -> Callable[[list[Any]], tuple[Any, ...]]:
        """A function that makes these arguments from the list of values; slots in them are roots."""
        if not args:
            return lambda table: ()
        if any([_holds_slots(arg) for arg in args]):
            makers = [self._maker(arg) for arg in args]
            return lambda table: tuple([make(table) for make in makers])
        numbers = [self._number(arg) for arg in args]
        if len(numbers) == 1:
            only = numbers[0]
            return lambda table: (table[only],)
        return itemgetter(*numbers)

    def _number(self, arg: Any) -> int:
        return self.of(arg) if arg.__class__ is Slot else self._append(arg)

    def _maker(self, arg: Any) -> Callable[[list[Any]], Any]:
        return self.take(arg) if _holds_slots(arg) else itemgetter(self._number(arg))


def _holds_slots(arg: Any) -> bool:
    return arg.__class__ is tuple and any([item.__class__ is Slot or _holds_slots(item) for item in arg])
