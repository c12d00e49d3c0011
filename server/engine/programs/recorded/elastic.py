"""Recorded operations on operands whose sizes differ from run to run, such as a cache that grows by each token.

Two runs on operands of other sizes tell which steps depend on these: their plans are looked up each time. All others
are executed by the plans that were recorded, and nothing is asked. Views of views that nothing else needs are not made.
Results are those of the recorded operations to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from server.engine.operators import Operator
from server.engine.plan import Plan, run_backend
from server.engine.programs.executable import Places
from server.engine.programs.execution import Call
from server.engine.programs.graph import Slot, Step, slots_in
from server.engine.signature import signature_of
from server.engine.value import Value
from server.engine.view_plan import view_below_autograd
from telegrad_protocol.meta import Meta

from .unchanged import AsRecorded, unchanged_call

_NO_KEYS: Final = 0


class OtherSizesError(Exception):
    """Sizes that were the same in the recorded runs are others in this one: its operations have to be dispatched."""


class RecordedRun(NamedTuple):
    """What a run has executed, by which plans, on inputs of which metas."""

    inputs: tuple[Slot, ...]
    known: tuple[Meta | type, ...]
    steps: tuple[Step, ...]
    plans: tuple[Plan, ...]

    def differing(self, other: RecordedRun) -> frozenset[Slot] | None:
        """Return the inputs and results whose metas differ between two runs; None where they did something else."""
        if self.inputs != other.inputs or self.steps != other.steps:
            return None
        here, there = ([*run.known, *[meta for plan in run.plans for meta in plan.outs or ()]] for run in (self, other))
        slots = [*self.inputs, *[slot for step in self.steps for slot in step.outs]]
        return frozenset([slot for slot, meta, its in zip(slots, here, there, strict=True) if meta is not its])


class Elastic(AsRecorded):
    """Executes a recorded run, given those of its inputs and results whose metas are others each time."""

    __slots__ = ()

    def __init__(self, run: RecordedRun, outputs: Sequence[Slot], loose: Collection[Slot]) -> None:
        places = Places(run.inputs)
        kept = _without_chains(run, outputs, loose)
        calls = [_call(step, how, places, loose) for step, how in kept]
        super().__init__([step for step, _ in kept], calls, run.plans, places, outputs, run.known)


def _without_chains(
    run: RecordedRun, outputs: Sequence[Slot], loose: Collection[Slot]
) -> list[tuple[Step, Plan | Meta]]:  # fmt: skip
    """Return steps with their plans; for each view that is needed one that makes it of what is no view.

    Such a view has its meta in place of the plan.
    """
    roots: dict[Slot, Slot] = {}
    steps: list[tuple[Step, Plan | Meta]] = []
    for step, plan in zip(run.steps, run.plans, strict=True):
        source = None if _is_loose(step, loose) else _viewed(step)
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


def _is_loose(step: Step, loose: Collection[Slot]) -> bool:
    return any([slot in loose for slot in (*slots_in(step.args), *step.outs)])


def _call(step: Step, how: Plan | Meta, places: Places, loose: Collection[Slot]) -> Call:
    if isinstance(how, Meta):
        return Call(view_below_autograd(how), places.take(step.args), places.of(step.outs[0]), (), ())
    call = unchanged_call(step, how, places)
    if not _is_loose(step, loose):
        return call
    fixed = {number: meta for number, (slot, meta) in enumerate(zip(step.outs, how.outs or ())) if slot not in loose}
    return call._replace(run=_looked_up(step.operator, fixed))


def _looked_up(operator: Operator, fixed: Mapping[int, Meta]) -> Callable[[tuple[Any, ...]], Any]:
    """Return what executes an operation on operands of any sizes; ``fixed`` are the metas that results have to have.

    OtherSizesError where they have others.
    """

    def run(args: tuple[Any, ...]) -> Any:
        result = run_backend(operator, args, signature_of(operator, args)[1], _NO_KEYS)
        for number, meta in fixed.items():
            made = result if result.__class__ is Value else result[number]
            if made.meta is not meta:
                raise OtherSizesError(f"{operator.op.public}: {made.meta}, and {meta} was expected")
        return result

    return run
