"""Recorded operations as they are: each step is the plan that executed it, and nothing is optimised.

Results are those of the recorded operations to the bit, and making such an executable takes a few microseconds for each
step, so that it pays for what comes again a few times only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from server.engine import context
from server.engine.context import Held
from server.engine.plan import Plan
from server.engine.programs.executable import Description, Executable, Places
from server.engine.programs.execution import Call
from server.engine.programs.graph import Slot, Step, slots_in, text_of
from telegrad_protocol.meta import Device, Meta

_CALL_BYTES = 1000
"""What the host holds for a step, its arguments and its place among the values."""
_NOTHING_DONE = Description(0, 0, 0, 0, 0, 0, (), 0, 0, "")


class AsRecorded(Executable):
    """Executes one call for each of some steps. What describes it is only made for those who ask."""

    __slots__ = ("_steps",)

    def __init__(
        self, steps: Sequence[Step], calls: Sequence[Call], plans: Sequence[Plan], places: Places,
        outputs: Sequence[Slot], known: Sequence[Meta | type],
    ) -> None:  # fmt: skip
        self._steps = steps
        wanted = [places.of(slot) for slot in outputs]
        held = Held(context.current.host_memory, len(calls) * _CALL_BYTES)
        used = [{places.of(slot) for slot in (*slots_in(step.args), *step.outs)} for step in steps]
        super().__init__(
            freeing(calls, used, wanted), places.initial, known, wanted, _NOTHING_DONE, held,
            _devices(plans, known),
        )  # fmt: skip

    def describe(self) -> Description:
        kernels = sum([step.operator.op.view_of is None for step in self._steps])
        text = "\n".join(map(text_of, self._steps))
        return Description(len(self._steps), kernels, kernels, 0, 0, 0, (), 0, 0, text)


class Unchanged(AsRecorded):
    """Executes steps as they were recorded, on operands of the same metas."""

    __slots__ = ()

    def __init__(
        self, steps: Sequence[Step], plans: Sequence[Plan], inputs: Sequence[Slot], outputs: Sequence[Slot],
        known: Sequence[Meta | type],
    ) -> None:  # fmt: skip
        places = Places(inputs)
        calls = [unchanged_call(step, plan, places) for step, plan in zip(steps, plans, strict=True)]
        super().__init__(steps, calls, plans, places, outputs, known)


def unchanged_call(step: Step, plan: Plan, places: Places) -> Call:
    """Return a step as its plan executes it."""
    take, outs = places.take(step.args), tuple([places.of(slot) for slot in step.outs])
    is_one = plan.count == 1 and len(outs) == 1
    return Call(plan.run, take, outs[0] if is_one else -1, () if is_one else outs, ())


def freeing(calls: Sequence[Call], used: Sequence[Collection[int]], wanted: Iterable[int]) -> list[Call]:
    """Return the calls, which use these places, each with those that nothing needs after it."""
    needed = {*wanted}
    made = []
    for call, places in zip(reversed(calls), reversed(used), strict=True):
        ended = {*places} - needed
        needed |= ended
        made.append(call._replace(freed=tuple(ended)) if ended else call)
    return made[::-1]


def _devices(plans: Sequence[Plan], known: Sequence[Meta | type]) -> frozenset[Device]:
    outs = {out.device for plan in plans for out in plan.outs or ()}
    return frozenset(outs.union([meta.device for meta in known if isinstance(meta, Meta)]))
