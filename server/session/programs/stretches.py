"""Stretches: calls of operations that a program makes again and again without saying so, executed as one.

A stretch only makes new tensors of others, without a history: nothing that is there changes. So if anything goes wrong
in the middle, nothing has happened, and its calls are executed one by one, of which the right one fails. Nothing is
optimised, so results are equal to the bit. On a GPU a stretch is one CUDA graph launch, like a run of a program
(``compiled``): on the memory where it lay, if that comes again, else on memory that all share, with copies. Which calls
came again is found by ``recurring``. Where sizes of operands are others each time, see ``elasticity``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from server.engine import keys
from server.engine.profiling.stretch_notes import Watch
from server.engine.programs.analysis import shared_memory
from server.engine.programs.captures import Captures
from server.engine.programs.recorded.composites import OtherSizesError
from server.engine.replay.varying import varies
from server.engine.value import Value
from server.session.state import SessionState
from telegrad_protocol import messages, wire
from telegrad_protocol.errors import OutOfMemoryError, TelegradError
from telegrad_protocol.programs.rows import Flat, Template

from .compiled import Variant
from .elasticity import UNKNOWN, Elasticity
from .ending import EndOfCall, EndOfStretch, RestOfStretch, RunStretch
from .equal_calls import borrowed, forget, lend
from .known import used_inputs
from .noted_calls import end_call, with_ends
from .noted_executions import begun, is_noted
from .numbered import Numbers, place_of
from .sequences import bind_names, named_before, names_after
from .situations import modes_of
from .stretch_recordings import ElasticRecording, StretchRecording
from .taken import Taken

_log = logging.getLogger(__name__)
FEWEST: Final = 8
"""Calls in a row that are worth a stretch."""
_MOST_VARIANTS: Final = 32
"""A stretch is recorded in so many situations at most."""
SOON: Final = 8192
"""A situation that is met again within so many operations is one of a loop."""
MOST_REFUSALS: Final = 8
"""A stretch whose calls were executed one by one so often in a row is not worth to be found any more."""


class Stretch:
    """Calls that came twice, and how they are executed in situations that came again."""

    __slots__ = (
        "_alone", "_divides", "_operations", "_seen", "_taken", "begins", "calls", "elastic", "first",
        "has_other_numbers", "name", "numbers", "refusals", "template", "used", "variants",
    )  # fmt: skip

    def __init__(
        self, instructions: Sequence[Any], flat: Flat, first: int, taken: Taken, divides: Sequence[Collection[int]],
        numbers: Numbers,
    ) -> None:  # fmt: skip
        self._divides = divides
        self.numbers = numbers
        """Those that are others each time."""
        self._alone = 0
        """How often in a row its calls were executed one by one, for no reason other than sizes, if for any."""
        self.has_other_numbers = False
        """Whether it turned out that one of them is needed before the stretch is launched."""
        self.template = Template(len(flat.inputs), flat.rows, flat.constants)
        fixed = [None if n in numbers.constants else one for n, one in enumerate(flat.constants)]
        self.name = wire.encoder.encode((len(flat.inputs), flat.rows, fixed, numbers.constants))
        """What is the same in all stretches of equal calls."""
        self._taken = taken
        self.first = first
        self.begins = next(one for one in instructions if one.__class__ is messages.Call)
        """The first call, as it came the first time."""
        self._operations = {one.op for one in instructions if one.__class__ is messages.Call}
        self.calls = sum([one.__class__ is messages.Call for one in instructions])
        self.used = used_inputs(flat.rows)
        """Positions of inputs that are more than freed."""
        self.variants: dict[Any, Variant | None] = {}
        self.refusals = 0
        """How often in a row its calls were executed one by one, since there was no situation for more.

        Programs that train make their calls with a history.
        """
        self._seen: dict[Any, int] = {}
        self.elastic = Elasticity()

    @property
    def holes(self) -> Sequence[tuple[int, int]]:
        """Where bytes of a batch begin and end that may be others."""
        return [*self.numbers.holes, *self._taken.holes]

    @property
    def is_divided(self) -> bool:
        """Whether it turned out that one of its operations can be no part of it."""
        return self.has_other_numbers or not all([self._operations.isdisjoint(those) for those in self._divides])

    def ids(self, distance: int, body: memoryview) -> list[int] | None:
        """Return the ids of calls of a batch whose new tensors are so far from those that came first, by slot.

        None where they cannot be those of such calls.
        """
        first = self.first + distance
        inputs = self._taken.at(distance, body, first)
        return None if inputs is None else self.template.ids(first, inputs)

    def made(self, ids: list[int]) -> list[int]:
        """Return those of the ids that the calls give out."""
        return ids[self.inputs :]

    @property
    def inputs(self) -> int:
        """How many tensors it takes from before it."""
        return len(self._taken.first)

    def variant(self, met: Any, is_profiled: bool) -> Variant | object | None:
        """Return how it is executed in a situation: None for call by call, ``UNKNOWN`` where that is not known.

        What a profile notes has sizes of its own each time, so calls on other sizes are executed one by one under it.
        """
        variant = self.variants.get(met, UNKNOWN)
        is_elastic = variant is UNKNOWN and not is_profiled and not self.numbers.constants
        return self.elastic.variant(met) if is_elastic else variant

    def take(self, numbers: tuple[float, ...]) -> bool:
        """Have its calls be made with numbers from now on; returns whether they are of those that launches read."""
        if numbers:
            self.template.change(self.numbers.as_constants(numbers))
        return all(map(varies, numbers))

    def note_calls(self, state: SessionState) -> None:
        """Note that its calls are executed one by one, in a situation that has not come before.

        Where sizes are others each time, parts without numbers that change are executed as one on all of them.
        """
        self._alone += 1
        if self.numbers.constants and self._alone >= MOST_REFUSALS:
            self.divide_at_numbers(state)

    def note_execution(self) -> None:
        """Note that its calls are executed as one."""
        self._alone = 0

    def divide_at_numbers(self, state: SessionState) -> None:
        """Have later stretches of a session end where this one has a number that is another each time."""
        self.has_other_numbers = True
        with suppress(OutOfMemoryError):  # it turns out once more
            for call in self.numbered:
                state.fixed_numbers[place_of(call)] = None

    @property
    def numbered(self) -> list[messages.Call]:
        """The calls that have such numbers."""
        rows = {self.template.place(constant)[0] for constant in self.numbers.constants}
        ids = self.template.ids(self.first, list(self._taken.first))
        return [self.template.instruction(ids, row) for row in rows]

    def forget(self, variant: Variant) -> None:
        """Forget a variant that failed; it may be recorded again."""
        for variants in (self.variants, self.elastic.variants):
            for met in [met for met, one in variants.items() if one is variant]:
                del variants[met]

    def is_worth_recording(self, met: Any, now: int) -> bool:
        """Return whether a situation came again soon, and may be recorded; ``now`` counts executed operations.

        What is met again only after much else, such as each length of a cache that grows, would be learnt little by
        little, and each stretch that is new moves the memory of all others meanwhile: that is for ``elastic``.
        """
        if len(self.variants) >= _MOST_VARIANTS:
            return False
        before, self._seen[met] = self._seen.get(met), now
        if len(self._seen) > _MOST_VARIANTS:
            self._seen.clear()
        return before is not None and now - before <= SOON


def _situation(state: SessionState, values: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return what decides how a stretch is executed on these inputs; None where it is to be call by call.

    Captured work goes by the memory of its inputs, so that decides which of them share theirs.
    """
    modes = modes_of(state)
    if modes is None or not values or values[0].__class__ is not Value or not values[0].backend.gains_by_stretches:
        return None
    backend, is_recording = values[0].backend, state.context.is_recording
    described: list[Any] = []
    for value in values:
        if value.__class__ is not Value or value.backend is not backend or not value.keys & backend.key:
            return None
        meta = value.autograd
        if meta is None:
            described.append(value.meta)
        elif is_recording and meta.requires_grad:
            return None
        else:
            described.append((value.meta, meta.requires_grad, meta.grad_fn is not None))
    return (modes, shared_memory(values) if backend.can_capture else None), tuple(described)


def run_stretch(state: SessionState, run: RunStretch) -> int:
    """Handle the calls: execute them as one, or have them be next; return what the turn is to count."""
    stretch, ids, numbers = run
    if stretch.take(numbers) and not state.is_stopped:
        values: list[Any] = [state.values.get(ids[position]) for position in stretch.used]
        met = _situation(state, values)
        is_profiled = state.context.profiler is not None
        variant = None if met is None else _variant(state, stretch, met, is_profiled)
        if variant is None:
            stretch.refusals += 1
        else:
            stretch.refusals = 0
            kind: type[StretchRecording] | None
            if not isinstance(variant, Variant):
                kind = _recording_of(state, stretch, met)
            elif not is_profiled or is_noted(variant):
                return _begin(state, stretch, variant, values, ids)
            else:
                kind = StretchRecording if variant.plain.notes is None else None
            if kind is not None:
                _record(state, stretch, met, values, ids, kind)
                return 0
        stretch.note_calls(state)
    _one_by_one(state, stretch, ids)
    return 0


def _variant(state: SessionState, stretch: Stretch, met: Any, is_profiled: bool) -> Variant | object | None:
    """Return what ``Stretch.variant`` does, or what another stretch of equal calls has learnt."""
    variant = stretch.variant(met, is_profiled)
    lent = borrowed(state, stretch.name, met) if variant is UNKNOWN else None
    if lent is not None:
        variant = stretch.variants[met] = lent
    return variant


def _one_by_one(state: SessionState, stretch: Stretch, ids: list[int]) -> None:
    state.inbox.extendleft(reversed(stretch.template.instructions(ids)))


def _recording_of(state: SessionState, stretch: Stretch, met: Any) -> type[StretchRecording] | None:
    """Return how calls are to be written down in a situation that is not known; None where they are not."""
    if stretch.is_worth_recording(met, state.operations):
        return StretchRecording
    if state.context.profiler is not None or stretch.numbers.constants:
        return None
    return ElasticRecording if stretch.elastic.is_worth_recording(met) else None


def _record(
    state: SessionState, stretch: Stretch, met: Any, values: list[Any], ids: list[int], kind: type[StretchRecording]
) -> None:
    """Have the calls be next, written down."""
    before = named_before(state, ids[: stretch.inputs])
    instructions = stretch.template.instructions(ids)
    recording = kind(state, values, instructions, [stretch.template.place(one) for one in stretch.numbers.constants])
    if kind is ElasticRecording:
        instructions = with_ends(stretch, recording.recorder, instructions)
    state.inbox.extendleft(reversed([*instructions, EndOfStretch(stretch, met, recording, ids, before)]))


def end_stretch(state: SessionState, end: EndOfStretch) -> None:
    """Handle the end of a stretch that was recorded: keep what came of it."""
    stretch, recording = end.stretch, end.recording
    recording.stop()
    if recording.has_failed:
        return
    if not recording.has_all_numbers:
        stretch.divide_at_numbers(state)
        return
    variants, met = stretch.variants, end.situation
    try:
        if isinstance(recording, ElasticRecording):
            variants, met = stretch.elastic.variants, stretch.elastic.key(met)
            loose = stretch.elastic.compare(met, recording.run)
            if loose is None:
                return
            recording.loose = loose
        variant = variants.get(met)
        if variant is None:
            variants[met] = None
            variants[met] = variant = recording.variant(names_after(state, end.ids, end.before))
            if variant is not None and variants is stretch.variants:
                lend(state, stretch.name, met, variant)
        if variant is not None and recording.watch is not None:
            _note(variant, recording.watch, end.ids)
    except TelegradError:  # there is no room for it, or it cannot be made anew
        pass
    except Exception:
        variants[met] = None
        _log.exception("calls that came again could not be written down; they are executed one by one")


def _note(variant: Variant, watch: Watch, ids: list[int]) -> None:
    """Have a variant be noted as its calls were; where that is no more known, they are looked at another time."""
    if watch.is_whole:
        variant.plain.notes = watch.notes(ids)


def _launched(variant: Variant, taken: list[Any]) -> tuple[Any, ...] | None:
    """Launch at once what lies anywhere, and return its results; None if nothing was done."""
    captures = variant.executable
    if captures.__class__ is not Captures:
        return None
    try:
        return captures.launch_anywhere(taken)
    except Exception:  # an execution of it fails, too, and says why
        return None


def _begin(state: SessionState, stretch: Stretch, variant: Variant, values: list[Any], ids: list[int]) -> int:
    known = variant.known(values, stretch.template)
    if known is None:
        _one_by_one(state, stretch, ids)
        return 0
    stretch.note_execution()
    outputs = _launched(variant, known) if state.context.profiler is None else None
    if outputs is not None:
        state.operations += stretch.calls
        bind_names(state, ids, variant.finish(values, outputs))
        return stretch.calls
    generators = [(one, one.initial_seed(), one.offset) for one in state.context.generators.values()]
    execution = begun(variant, values, stretch.template, known)
    return continue_stretch(state, RestOfStretch(stretch, variant, values, ids, execution, generators))


def continue_stretch(state: SessionState, rest: RestOfStretch) -> int:
    """Execute calls as one until they or the turn end; return what the turn is to count."""
    stretch, variant, values, ids, execution, _ = rest
    current = state.context
    if state.is_stopped:  # by an interrupt, or by an index that a device has found out of range
        _take_back(state, rest)
        return 0
    remade, excluded, checks = current.remade_nodes, current.excluded, current.checks
    covered = checks.covered
    try:
        checks.covered = True  # indices were looked at before, and nothing else in a stretch is checked
        current.excluded = excluded | keys.BELOW_AUTOCAST
        if not execution.advance(state.replies):
            state.inbox.appendleft(rest)
            return 0
        names = variant.finish(values, execution.outputs())
    except Exception as error:
        if isinstance(error, OtherSizesError):
            stretch.elastic.refuse(variant)
        elif not isinstance(error, TelegradError):
            _log.exception("calls that came again could not be executed as one; they are executed one by one")
        stretch.forget(variant)
        forget(state, variant)
        _take_back(state, rest)
        return 0
    finally:
        current.remade_nodes, current.excluded = remade, excluded
        checks.covered = covered
    if stretch.numbers.constants and variant.has_fixed_numbers:
        stretch.divide_at_numbers(state)
    state.operations += stretch.calls
    bind_names(state, ids, names)
    return stretch.calls  # type: ignore[no-any-return]


def _take_back(state: SessionState, rest: RestOfStretch) -> None:
    """Have calls be next whose execution as one has come to nothing: nothing but generators has changed by it."""
    for generator, seed, offset in rest.drawn:
        if generator.offset != offset:
            generator.restore(seed, offset)
    _one_by_one(state, rest.stretch, rest.ids)


HANDLERS: Final[dict[type, Any]] = {
    RunStretch: run_stretch, EndOfCall: end_call, EndOfStretch: end_stretch, RestOfStretch: continue_stretch,
}  # fmt: skip
"""What handles the instructions about stretches."""
