"""Composites in recorded runs: what they come to depends on their operands' metas, so they are dispatched each time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from server.engine.dispatcher import dispatch
from server.engine.plan import Plan
from server.engine.programs.graph import Slot, Step, slots_in
from server.engine.value import Value
from telegrad_protocol.meta import Meta


class OtherSizesError(Exception):
    """Sizes that were the same in the recorded runs are others in this one: its operations have to be dispatched."""


class Composite(NamedTuple):
    """A call of a composite, which came to the steps from ``begin`` to ``end``.

    ``step`` is the call itself; it has no results where these could not be told. ``are_new`` says which results are no
    views, and ``outs`` are their metas.
    """

    begin: int
    end: int
    step: Step
    are_new: tuple[bool, ...]
    outs: tuple[Meta, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it can be executed as one step: its results are known, and none of them is an operand."""
        outs = self.step.outs
        return bool(outs) and not {*outs}.intersection(slots_in(self.step.args))

    def run(self, fixed: Mapping[int, Meta]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        """Return what executes it on operands of any sizes; ``fixed`` are the metas that results have to have.

        OtherSizesError where they have others, or a result is a view or an operand, and was none.
        """
        operator, are_new = self.step.operator, self.are_new

        def run(args: tuple[Any, ...]) -> tuple[Any, ...]:
            result = dispatch(operator, args)
            made: tuple[Any, ...] = result if result.__class__ is tuple else (result,)
            given = {id(value) for value in _values_in(args)}
            if [value.base is None and id(value) not in given for value in made] != [*are_new]:
                raise OtherSizesError(f"{operator.op.public}: its results share memory in another way than before")
            for number, meta in fixed.items():
                require(operator.op.public, made[number], meta)
            return made

        return run


def require(name: str, made: Value, meta: Meta) -> None:
    """Raise OtherSizesError where a result has another meta than it has to have."""
    if made.meta is not meta:
        raise OtherSizesError(f"{name}: {made.meta}, and {meta} was expected")


def _values_in(items: Sequence[Any]) -> list[Value]:
    return [
        one for item in items for one in (item if item.__class__ is tuple else (item,)) if one.__class__ is Value
    ]  # fmt: skip


def depending(composites: Sequence[Composite], steps: Sequence[Step], loose: Collection[Slot]) -> list[Composite]:
    """Return the composites that depend on sizes, given the steps of the run and the values whose sizes may be any."""
    return [
        one for one in composites
        if any([is_loose(step, loose) for step in (one.step, *steps[one.begin : one.end])])
    ]  # fmt: skip


def with_whole(
    steps: Sequence[Step], plans: Sequence[Plan], composites: Sequence[Composite]
) -> tuple[list[Step], list[Plan | Composite]]:  # fmt: skip
    """Return steps and what executes them, with one step for each of these composites."""
    made: list[Step] = []
    hows: list[Plan | Composite] = []
    at = 0
    for one in composites:
        made += [*steps[at : one.begin], one.step]
        hows += [*plans[at : one.begin], one]
        at = one.end
    return [*made, *steps[at:]], [*hows, *plans[at:]]


def is_loose(step: Step, loose: Collection[Slot]) -> bool:
    """Return whether what a step takes or makes may have any size."""
    return any([slot in loose for slot in (*slots_in(step.args), *step.outs)])
