"""Sections of a recorded run that depend on no size: each is captured, and launched as one from then on.

All sections of a run are captured on memory that stays, one behind the other, and leave their results there: what comes
between them reads these where they lie. Inputs that lie elsewhere each time are copied there before a launch. Results
of the run are copied out at its end, to memory that is allocated for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from server.allocator import Block
from server.engine.programs.described import results_of
from server.engine.programs.executable import Executable, Places
from server.engine.programs.execution import NEVER, Call, Execution, Stop
from server.engine.programs.graph import Slot, Step, slots_in
from server.engine.programs.private_capture import CapturedRun, Copies, PrivateRun, extents_of
from server.engine.programs.shared_memory import FIRST_BYTES, Memory, SharedMemory
from server.engine.random import PlacedGenerator
from server.engine.replay.shadows import REPLAYED
from server.engine.value import Backend, Storage, Value
from telegrad_protocol.dtypes import uint8
from telegrad_protocol.errors import InternalError
from telegrad_protocol.meta import Meta

from .unchanged import freeing

FEWEST_KERNELS: Final = 3
"""A section of fewer operations is not worth a graph."""


class LostError(InternalError):
    """Captured work was given back, or refused by the device: what was to be launched has to be executed."""


class Section(NamedTuple):
    """Steps in a row of which none depends on a size: ``takes`` and ``gives`` are slots from before and for after it.

    ``make`` returns what executes it; ``kernels`` is how many of the steps compute.
    """

    takes: tuple[Slot, ...]
    gives: tuple[Slot, ...]
    make: Callable[[], Executable]
    kernels: int


class Part(NamedTuple):
    """A section, or a call that is made each time: which values it takes, and which it makes."""

    call: Call | None
    section: Section | None
    uses: frozenset[Slot]


def sections_in(
    steps: Sequence[Step], calls: Sequence[Call], loose: Callable[[Step], bool], wanted: Collection[Slot],
    make: Callable[[Sequence[int], tuple[Slot, ...], tuple[Slot, ...]], Executable],
) -> list[Part]:  # fmt: skip
    """Divide steps, whose calls are given, into sections and what is between them.

    ``loose`` says which steps depend on sizes. Views of what no section makes are no part of one: they may be results,
    and share the memory of what they are views of. ``make`` returns what executes steps, by their numbers, given the
    slots that these take and give.
    """
    parts: list[Part] = []
    waiting: list[int] = []
    made: set[Slot] = set()

    def end() -> None:
        if kernels_in([steps[number] for number in waiting]) < FEWEST_KERNELS:
            parts.extend([_single(steps[number], calls[number]) for number in waiting])
        else:
            parts.append(_section(steps, tuple(waiting), made.copy(), wanted, make))
        waiting.clear()
        made.clear()

    for number, step in enumerate(steps):
        if loose(step):
            end()
        elif step.operator.op.view_of is None or not made.isdisjoint(slots_in(step.args)):
            waiting.append(number)
            made.update(step.outs)
            continue
        parts.append(_single(step, calls[number]))
    end()
    return parts


def kernels_in(steps: Sequence[Step]) -> int:
    """Return how many steps compute: views do not."""
    return sum([step.operator.op.view_of is None for step in steps])


def _single(step: Step, call: Call) -> Part:
    return Part(call, None, frozenset([*slots_in(step.args), *step.outs]))


def _section(
    steps: Sequence[Step], numbers: tuple[int, ...], made: set[Slot], wanted: Collection[Slot],
    make: Callable[[Sequence[int], tuple[Slot, ...], tuple[Slot, ...]], Executable],
) -> Part:  # fmt: skip
    inside = {*numbers}
    takes = dict.fromkeys([slot for number in numbers for slot in slots_in(steps[number].args) if slot not in made])
    others = [step for number, step in enumerate(steps) if number not in inside]
    needed = {*wanted}.union(*[slots_in(step.args) for step in others])
    gives = tuple([slot for number in numbers for slot in steps[number].outs if slot in needed])
    kernels = kernels_in([steps[number] for number in numbers])
    section = Section(tuple(takes), gives, lambda: make(numbers, tuple(takes), gives), kernels)
    return Part(None, section, frozenset(takes))


class _Launched(CapturedRun):
    """A section that was captured: ``results`` are what it leaves, and ``sources`` which of its inputs are copied."""

    def __init__(self, run: PrivateRun, graph: Any, memory: Memory, values: Sequence[Value]) -> None:
        super().__init__(run, graph, memory)
        self.sources = [one.number for one in run.moved]
        made = [_staying(run.backend, one.block, one.nbytes, one.version) for one in run.made]
        self.results: tuple[Value, ...] = results_of(run.outputs, values, made)

    def launch(self, moved: tuple[Value, ...]) -> None:
        """Launch it, with copies of these inputs; LostError where that cannot be."""
        if self.is_dropped or not self.launch_on([value.storage.block for value in moved]):
            raise LostError("captured work: its memory was needed for something else")


def _staying(backend: Backend, block: Block, nbytes: int, version: int) -> Storage:
    storage = Storage(backend, block, nbytes, REPLAYED)
    storage.version = version
    return storage


class _Captor:
    """Captures the sections of one run, each behind the other in one block.

    ``table`` has the values of a run by place, and ``stay`` are blocks that inputs lie in where they lay.
    """

    def __init__(
        self, backend: Backend, memory: Memory, places: Places, table: Sequence[Any], stay: Collection[Block]
    ) -> None:  # fmt: skip
        self._backend, self._memory, self._places = backend, memory, places
        self._table, self._stay = list(table), stay
        self._left = memory.block
        self._made: set[Slot] = set()
        self.launched: list[_Launched] = []
        self.is_too_small = False

    def calls(self, parts: Sequence[Part]) -> list[Call] | None:
        """Return a call for each part; None where a graph cannot repeat what a section does."""
        calls = []
        for part in parts:
            call = part.call if part.section is None else self._captured(part.section)
            if call is None:
                return None
            calls.append(call)
        return calls

    def table_of_made(self) -> list[Any]:
        """Return what is in the table before a run: constants, and what sections leave where it stays."""
        table = self._places.initial.copy()
        for slot in self._made:
            place = self._places.of(slot)
            table[place] = self._table[place]
        return table

    def _captured(self, section: Section) -> Call | None:
        places = [self._places.of(slot) for slot in section.takes]
        values = [self._table[place] for place in places]
        moving = [
            value for slot, value in zip(section.takes, values)
            if slot not in self._made and value.storage.block not in self._stay
        ]  # fmt: skip
        extents = extents_of(moving, {value.storage.block for value in moving})
        if extents is None:
            return None
        run = PrivateRun(section.make(), self._backend, values, extents, PlacedGenerator(0), self._left)
        graph = self._backend.capture(run)
        self.is_too_small = run.is_too_small
        given = len(values)
        if graph is None or run.modified or run.generator.words or any([one.memory < given for one in run.outputs]):
            return None
        launched = _Launched(run, graph, self._memory, values)
        self.launched.append(launched)
        for slot, value in zip(section.gives, launched.results):
            self._table[self._places.of(slot)] = value
        self._made.update(section.gives)
        self._left = _rest_of(self._left, run.most)
        return Call(launched.launch, _taking([places[source] for source in launched.sources]), -1, (), ())


def _taking(places: Sequence[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Return what takes the values in these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda table: tuple([table[place] for place in places])


def _rest_of(block: Block, used: int) -> Block:
    return Block(block.segment, block.offset + used, block.size - used, block.stream, block.owner)


class Sectioned:
    """A run whose sections are launched. ``fixed`` are inputs by number, with the addresses where they have to lie."""

    def __init__(
        self, calls: Sequence[Call], initial: Sequence[Any], outputs: Sequence[int], launched: Sequence[_Launched],
        fixed: Sequence[tuple[int, int]], backend: Backend,
    ) -> None:  # fmt: skip
        self._calls, self._initial, self._outputs = tuple(calls), list(initial), tuple(outputs)
        self.launched, self._fixed = tuple(launched), tuple(fixed)
        self._backend, self._place = backend, backend.place()
        self.at_once = backend.at_once(lambda work, stop: work(stop))
        """Does work whose launches do not wait: they are between graphs, and no sequence of them comes again."""
        self._copies: dict[tuple[int, ...], tuple[Copies, list[Meta]]] = {}

    @property
    def is_dropped(self) -> bool:
        """Whether any of its memory was given back."""
        return any([one.is_dropped for one in self.launched])

    def moved(self, values: Sequence[Any]) -> list[int] | None:
        """Return which inputs lie elsewhere than they have to; None where it cannot be launched at all."""
        if self.is_dropped or self._backend.place() != self._place:
            return None
        return [n for n, pointer in self._fixed if values[n].storage.block.pointer != pointer]

    def begin(self, values: Sequence[Any]) -> Execution:
        """Return an execution on these values."""
        table = self._initial.copy()
        table[: len(values)] = values
        return _SectionedExecution(self, self._calls, table, self._outputs)

    def taken_out(self, results: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return results with copies of those that lie in memory of sections; LostError where that was given back."""
        staying = {id(v.storage): v.storage for v in results if v.__class__ is Value and v.storage.keeper is REPLAYED}
        copied = self._copied(staying)
        return tuple([_on_copies(value, copied) for value in results])

    def _copied(self, staying: dict[int, Storage]) -> dict[int, Storage]:
        """Return a copy of each storage, by the ``id`` of this."""
        key, backend = tuple(staying), self._backend
        known = self._copies.get(key)
        if known is None:
            copies = Copies(backend, [(one.block, one.nbytes) for one in staying.values()])
            metas = [Meta.of((one.nbytes,), uint8, backend.device) for one in staying.values()]
            known = self._copies[key] = copies, metas
        copies, metas = known
        made = [backend.empty(meta).storage for meta in metas]
        if self.is_dropped:  # by now, or to make room for these
            raise LostError("captured work: its memory was needed for something else")
        copies.copy_out([storage.block for storage in made])
        for storage, one in zip(made, staying.values()):
            storage.version = one.version
        return dict(zip(key, made))


class _SectionedExecution(Execution):
    __slots__ = ("_sectioned",)

    def __init__(self, sectioned: Sectioned, calls: Sequence[Call], table: list[Any], outputs: Sequence[int]) -> None:
        super().__init__(calls, table, outputs)
        self._sectioned = sectioned

    def advance(self, stop: Stop = NEVER) -> bool:
        return self._sectioned.at_once(super().advance, stop)  # type: ignore[no-any-return]

    def outputs(self) -> tuple[Any, ...]:
        return self._sectioned.taken_out(super().outputs())


def _on_copies(value: Any, copied: dict[int, Storage]) -> Any:
    """Return a result as it is on the copy of its memory, if there is one."""
    if value.__class__ is not Value or value.storage.keeper is not REPLAYED:
        return value
    base = None if value.base is None else _on_copies(value.base, copied)
    result = Value(copied[id(value.storage)], value.meta, value.backend, base)
    if base is not None:
        result.origin = value.origin
    return result


def sectioned(
    parts: Sequence[Part], places: Places, table: Sequence[Any], fixed: Mapping[Slot, int], outputs: Sequence[int],
    backend: Backend, shared: SharedMemory,
) -> Sectioned | None:  # fmt: skip
    """Capture the sections of a run that was just made, and whose values are in ``table``, by place.

    ``fixed`` are inputs that lie where they lay, with their numbers. None where there are no sections, or one cannot be
    captured.
    """
    if not any([part.section is not None for part in parts]):
        return None
    stay = {number: table[number].storage.block for number in fixed.values() if table[number].__class__ is Value}
    memory = shared.of(FIRST_BYTES)
    while memory is not None:
        captor = _Captor(backend, memory, places, table, {*stay.values()})
        calls = captor.calls(parts)
        if calls is not None:
            used = [{*map(places.of, part.uses)} for part in parts]
            pointers = [(number, block.pointer) for number, block in stay.items()]
            made = freeing(calls, used, outputs)
            return Sectioned(made, captor.table_of_made(), outputs, captor.launched, pointers, backend)
        memory = shared.of(2 * memory.nbytes) if captor.is_too_small else None
    return None
