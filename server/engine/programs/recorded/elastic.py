"""Recorded operations on operands whose sizes differ from run to run, such as a cache that grows by each token.

Two runs on operands of other sizes tell which steps depend on these: their plans are looked up each time. All others
are executed by the plans that were recorded, and nothing is asked. Views of views that nothing else needs are not made.
Results are those of the recorded operations to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from server.engine import context
from server.engine.context import Held
from server.engine.integers.elements import Bounds, is_integral
from server.engine.integers.ranges import Indices, indices_in, takes_indices
from server.engine.operators import Operator, Run
from server.engine.plan import Plan, plan_of
from server.engine.programs.executable import Executable, Places
from server.engine.programs.execution import NEVER, Call, Execution, Stop
from server.engine.programs.graph import Slot, Step, slots_in
from server.engine.programs.shared_memory import SharedMemory
from server.engine.signature import metas_of, signature_of
from server.engine.value import Backend, Value
from server.engine.view_plan import view_below_autograd
from telegrad_protocol.errors import OutOfMemoryError
from telegrad_protocol.meta import Meta

from .composites import Composite, OtherSizesError, depending, is_loose, require, with_whole
from .sections import Part, Sectioned, kernels_in, sectioned, sections_in
from .unchanged import AsRecorded, unchanged_call

_RUNS: Final = 4
"""After so many runs it is known which inputs move, and that what is captured will be launched."""
_FEWEST_HELD: Final = 4
"""One of so many kernels has to be in a section that can be captured."""
_MOST_KEPT: Final = 128
"""So many plans are kept of a step that depends on sizes."""
_KEPT_BYTES: Final = 100
"""What the host holds for such a plan, which operations keep as well."""
_MOST_FAILURES: Final = 3
"""So often what was captured may turn out not to fit."""


KnownIndices: TypeAlias = tuple[tuple[Indices, Bounds | None], ...]
"""The operands of a step that hold indices, and their bounds; None where these are those of an input."""
How: TypeAlias = Plan | Composite | Meta
"""What executes a step: a plan, a composite that is dispatched, or the meta of a view."""


class RecordedRun(NamedTuple):
    """What a run has executed, by which plans, on inputs of which metas, and which of its steps composites came to."""

    inputs: tuple[Slot, ...]
    known: tuple[Meta | type, ...]
    steps: tuple[Step, ...]
    plans: tuple[Plan, ...]
    composites: tuple[Composite, ...]
    indices: Mapping[tuple[Slot, ...], KnownIndices] = MappingProxyType({})
    """What is known of the indices that steps take, by the results of these steps."""

    def differing(self, other: RecordedRun) -> frozenset[Slot] | None:
        """Return the inputs and results whose metas differ between two runs; None where they did something else."""
        if self.inputs != other.inputs or self.steps != other.steps or _calls_of(self) != _calls_of(other):
            return None
        here, there = ([*run.known, *[meta for plan in run.plans for meta in plan.outs or ()]] for run in (self, other))
        slots = [*self.inputs, *[slot for step in self.steps for slot in step.outs]]
        return frozenset([slot for slot, meta, its in zip(slots, here, there, strict=True) if meta is not its])

    def steps_for_one_size(self, loose: Collection[Slot]) -> list[int]:
        """Return the numbers of steps that must not be executed again where these values have other sizes.

        They write to what the run has made, of which captured sections would write to copies, or take indices of which
        it is known by these sizes that they are good.
        """
        integers = _Integers(self, loose)
        whole = {
            number for one in depending(self.composites, self.steps, loose) for number in range(one.begin, one.end)
        }
        return [
            number
            for number, step in enumerate(self.steps)
            if step.operator.op.mutates
            or (takes_indices(step.operator) and not integers.are_good(step, number in whole))
        ]

    def may_vary(self, loose: Collection[Slot]) -> bool:
        """Return whether it can be executed where these values have any sizes."""
        return all([one.is_whole for one in depending(self.composites, self.steps, loose)])


class _Integers:
    """Tells whether the integers that a step of a run takes come of steps that depend on no size."""

    def __init__(self, run: RecordedRun, loose: Collection[Slot]) -> None:
        self._loose, self._indices = loose, run.indices
        self._makers = {slot: step for step in run.steps for slot in step.outs}
        metas = [meta for plan in run.plans for meta in plan.outs or ()]
        made = zip([slot for step in run.steps for slot in step.outs], metas, strict=False)
        self._integral = {slot for slot, meta in (*zip(run.inputs, run.known), *made) if _is_integral(meta)}

    def are_good(self, step: Step, is_part_of_whole: bool) -> bool:
        """Whether the indices of a step are good on all sizes, or it is found out before they are used.

        A step that depends on sizes looks at the ranges where these are new, but not as a part of a whole composite.
        """
        known = self._indices.get(step.outs)
        if known is None or not all([self._is_fixed(one.of(step.args)) for one, _ in known]):
            return False
        if not is_loose(step, self._loose):
            return True
        return not is_part_of_whole and all([bounds is not None for _, bounds in known])

    def _is_fixed(self, slot: Slot) -> bool:
        """Whether a value, and all that have made integers for it, are the same for all sizes."""
        maker = self._makers.get(slot)
        if maker is None or slot in self._loose:
            return slot not in self._loose
        if is_loose(maker, self._loose):
            return False
        return all([self._is_fixed(one) for one in slots_in(maker.args) if one in self._integral])


def _is_integral(meta: Meta | type) -> bool:
    return isinstance(meta, Meta) and is_integral(meta)


def _calls_of(run: RecordedRun) -> list[Any]:
    return [one._replace(outs=()) for one in run.composites]


class Elastic(AsRecorded):
    """Executes a recorded run, given those of its inputs and results whose metas are others each time.

    Where work can be captured, ``captures_on`` says on which memory: what depends on no size is captured after some
    runs, and launched from then on.
    """

    __slots__ = (
        "_backend", "_kept", "_loose", "_outside", "_places", "_plain", "_run", "_sectioned", "_shared", "_sights",
    )  # fmt: skip

    def __init__(self, run: RecordedRun, outputs: Sequence[Slot], loose: Collection[Slot]) -> None:
        places = Places(run.inputs)
        self._run = _without_chains(run, outputs, loose)
        self._plain = [_call(step, how, places, loose, run.indices.get(step.outs, ())) for step, how in self._run]
        looked_up = sum([is_loose(step, loose) for step, _ in self._run])
        self._kept = Held(context.current.host_memory, looked_up * _MOST_KEPT * _KEPT_BYTES)
        super().__init__([step for step, _ in self._run], self._plain, run.plans, places, outputs, run.known)
        self._places, self._loose, self._outside = places, loose, (run.inputs, tuple(outputs))
        self._backend: Backend | None = None
        self._shared: SharedMemory | None = None
        self._sights = Sights()
        self._sectioned: Sectioned | None = None

    def captures_on(self, backend: Backend, shared: SharedMemory) -> None:
        """Have what depends on no size be captured on memory that all such work of a session shares."""
        self._backend, self._shared = backend, shared

    def begin(self, values: Sequence[Any]) -> Execution:
        if self._backend is None:
            return super().begin(values)
        if self._sectioned is not None:
            moved = self._sectioned.moved(values)
            if moved is not None and not moved:
                return self._sectioned.begin(values)
            self._sectioned = None
            self._sights.note_failure(moved)
        if not self._sights.note(values):
            return super().begin(values)
        table = self._initial.copy()
        table[: self._count] = values
        return _Watched(self._capture, self._plain, table, self._outputs)

    def _capture(self, table: Sequence[Any]) -> None:
        """Capture the sections of a run that was just made; the table has all its values."""
        assert self._backend is not None and self._shared is not None, "work is captured where it can be"
        inputs, _ = self._outside
        fixed = {slot: number for number, slot in enumerate(inputs) if number not in self._sights.moving}
        parts = self._parts()
        with suppress(OutOfMemoryError):  # of the device or the session: it goes on without
            self._sectioned = sectioned(
                parts, self._places, table, fixed, self._outputs, self._backend, self._shared
            )  # fmt: skip

    def _parts(self) -> list[Part]:
        """Return sections, and the calls between them; no sections where results may share memory untold."""
        steps = [step for step, _ in self._run]
        shares = any([step.operator.op.name == "_unversioned" for step in steps])
        return sections_in(
            steps, self._plain, lambda step: shares or is_loose(step, self._loose), self._outside[1], self._executable
        )  # fmt: skip

    @property
    def is_worth_capturing(self) -> bool:
        """Whether enough of it depends on no size. On a GPU all else takes as long as call by call, and is learnt."""
        held = sum([part.section.kernels for part in self._parts() if part.section is not None])
        return held * _FEWEST_HELD >= kernels_in([step for step, _ in self._run])

    def _executable(self, numbers: Sequence[int], takes: tuple[Slot, ...], gives: tuple[Slot, ...]) -> Executable:
        places, part = Places(takes), [self._run[number] for number in numbers]
        plans = [how for _, how in part if isinstance(how, Plan)]
        calls = [_call(step, how, places, ()) for step, how in part]
        return AsRecorded([step for step, _ in part], calls, plans, places, gives, [Value] * len(takes))


class Sights:
    """Which inputs were seen to lie elsewhere from run to run, and whether it is time to capture."""

    __slots__ = ("_blocks", "_failures", "_runs", "moving")

    def __init__(self) -> None:
        self.moving: set[int] = set()
        self._blocks: list[Any] = []
        self._runs = self._failures = 0

    def note(self, values: Sequence[Any]) -> bool:
        """Note where inputs lie; returns whether the run on these is to be captured."""
        if self._runs > _RUNS:
            return False
        self._runs += 1
        before, self._blocks = self._blocks, [v.storage.block if v.__class__ is Value else None for v in values]
        self.moving.update([n for n, (a, b) in enumerate(zip(before, self._blocks)) if a is not b])
        return self._runs > _RUNS

    def note_failure(self, moved: Collection[int] | None) -> None:
        """Note that captured work did not fit since these inputs lie elsewhere, or for another reason."""
        self._failures += 1
        self.moving.update(moved or ())
        if self._failures <= _MOST_FAILURES:
            self._runs = _RUNS if moved else 0
        self._blocks = []


class _Watched(Execution):
    """An execution that keeps all its values, and tells of them once it is over."""

    __slots__ = ("_tell",)

    def __init__(
        self, tell: Callable[[Sequence[Any]], None], calls: Sequence[Call], table: list[Any], outputs: Sequence[int]
    ) -> None:  # fmt: skip
        super().__init__(calls, table, outputs)
        self._tell = tell

    def advance(self, stop: Stop = NEVER) -> bool:
        is_over = super().advance(stop)
        if is_over:
            self._tell(self._table)
        return is_over


def _without_chains(
    run: RecordedRun, outputs: Sequence[Slot], loose: Collection[Slot]
) -> list[tuple[Step, How]]:  # fmt: skip
    """Return steps with their plans; for each view that is needed one that makes it of what is no view.

    Such a view has its meta in place of the plan.
    """
    roots: dict[Slot, Slot] = {}
    steps: list[tuple[Step, How]] = []
    whole = depending(run.composites, run.steps, loose)
    for step, plan in zip(*with_whole(run.steps, run.plans, whole), strict=True):
        source = None if is_loose(step, loose) else _viewed(step)
        if source is None:
            steps.append((step, plan))
            continue
        root = roots.get(source, source)
        for slot, meta in zip(step.outs, plan.outs or (), strict=True):
            roots[slot] = root
            steps.append((Step(step.operator, (root,), (slot,)), meta))
    needed = {*outputs}.union(*[slots_in(step.args) for step, how in steps if not isinstance(how, Meta)])
    return [(step, how) for step, how in steps if not isinstance(how, Meta) or step.outs[0] in needed]


def _viewed(step: Step) -> Slot | None:
    """Return what a step makes plain views of; None where it does anything else."""
    op = step.operator.op
    if op.view_of is None or not op.differentiable or op.name == "_unversioned":
        return None
    source = step.args[op.view_of]
    return source if isinstance(source, Slot) else None


def _call(step: Step, how: How, places: Places, loose: Collection[Slot], indices: KnownIndices = ()) -> Call:
    if isinstance(how, Meta):
        return Call(view_below_autograd(how), places.take(step.args), places.of(step.outs[0]), (), ())
    fixed = {number: meta for number, (slot, meta) in enumerate(zip(step.outs, how.outs or ())) if slot not in loose}
    if isinstance(how, Composite):
        return Call(how.run(fixed), places.take(step.args), -1, tuple([places.of(slot) for slot in step.outs]), ())
    call = unchanged_call(step, how, places)
    if not is_loose(step, loose):
        return call
    return call._replace(run=_looked_up(step, loose, fixed, indices))


def _looked_up(
    step: Step, loose: Collection[Slot], fixed: Mapping[int, Meta], indices: KnownIndices
) -> Callable[[tuple[Any, ...]], Any]:  # fmt: skip
    """Return what executes a step on operands of any sizes; ``fixed`` are the metas that results have to have.

    OtherSizesError where they have others, or an index may be out of range on these sizes. Which plan executes it is
    kept by the metas that are others each time.
    """
    operator, key_of = step.operator, _key_of(step, loose)
    runs: dict[Any, Run] = {}

    def run(args: tuple[Any, ...]) -> Any:
        key = key_of(args)
        known = runs.get(key)
        if known is None:
            if len(runs) >= _MOST_KEPT:
                runs.clear()
            if indices:
                _require_inside(operator, args, indices)
            known = runs[key] = plan_of(operator, args, signature_of(operator, args)[1]).run
        result = known(args)
        for number, meta in fixed.items():
            require(operator.op.public, result if result.__class__ is Value else result[number], meta)
        return result

    return run


def _require_inside(operator: Operator, args: tuple[Any, ...], indices: KnownIndices) -> None:
    """Raise OtherSizesError where indices that lie within bounds may be out of range for these operands."""
    for (_, bounds), one in zip(indices, indices_in(operator.op, metas_of(args)) or (), strict=True):
        if bounds is None or bounds[0] < one.range.low or bounds[1] >= one.range.end:
            raise OtherSizesError(f"{operator.op.public}: an index may be out of range on these sizes")


def _key_of(step: Step, loose: Collection[Slot]) -> Callable[[tuple[Any, ...]], Any]:
    """Return what gives the metas that are others each time, of what a step is called with."""
    places = [place for place, arg in enumerate(step.args) if any([slot in loose for slot in slots_in((arg,))])]
    if len(places) == 1:
        (place,) = places
        if isinstance(step.args[place], Slot):
            return lambda args: args[place].meta
        return lambda args: metas_of(args[place])
    return lambda args: metas_of(tuple([args[place] for place in places]))
