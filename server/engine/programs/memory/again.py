"""What can be computed again where a backward pass needs it, at the cost of reading its operands and no more.

An element-wise result whose operands are held anyway, or are made of such by few element-wise steps, may be dropped
after what reads it first. Where an element-wise step of the backward pass reads the same operands, computing it again
is a part of that kernel, and costs one write; a weight's gradient, which nothing waits for, is put off behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from server.engine.programs.graph import Slot, Step, replaced, slots_in
from server.engine.programs.grouping import candidate_of
from server.engine.programs.joined import SUMS
from server.engine.programs.joins.weights import LAYER, apart
from server.engine.programs.temporaries import Lifetime
from telegrad_protocol.meta import Meta

from .draft import Change, Draft

_SMALL: Final = 16
"""Operands of so small a part of a value may be held for longer than they are anyway."""
_LONGEST: Final = 8
"""The most steps by which a value is computed again."""
_BEFORE, _AFTER, _STEP = 0.5, 0.25, 1e-3


class _Uses(NamedTuple):
    """The steps that read a value before a time, and those that do after it; views of it are none."""

    near: list[int]
    far: list[int]


class _Again(NamedTuple):
    """Steps that make a value once more, with the slots that stand for it and its views, and what they read."""

    steps: list[Step]
    names: dict[Slot, Slot]
    operands: set[Slot]


class Recomputing:
    """Finds changes that drop values over a time at which most memory is held."""

    def __init__(self, draft: Draft, keys: object) -> None:
        self._draft, self._keys = draft, keys
        self._memory = draft.analysis.memory_of
        self._candidates: dict[int, bool] = {}
        self._by_memory: dict[int, list[Slot]] = {}
        for slot in draft.makers:
            self._by_memory.setdefault(self._memory(slot), []).append(slot)

    def changes_at(self, time: float, least: int) -> Iterator[Change]:
        """The changes that make something live less at a time, the cheapest and longest first."""
        draft = self._draft
        yield from self._taken_apart(time, least)
        slots = [
            (number, one) for number, one in draft.held.items()
            if one.begin < time < one.end and one.nbytes >= least and number >= 0
        ]  # fmt: skip
        found = [change for number, one in slots for change in self._dropping(number, one, time)]
        order = {
            id(change): (change.moved / max(1, _saved(change, draft)), -_length(change, draft)) for change in found
        }
        yield from sorted(found, key=lambda change: order[id(change)])

    def _taken_apart(self, time: float, least: int) -> Iterator[Change]:
        """A layer's input that the weight's gradient reads last is dropped before the input's gradient is made."""
        draft = self._draft
        group = draft.groups[int(time)] if time == int(time) and time < len(draft.groups) else None
        if group is None or len(group.positions) != 1 or group.positions[0] in draft.changed:
            return
        position = group.positions[0]
        step = draft.steps[position]
        if not _is_both(step):
            return
        number = self._memory(step.args[1])
        held = draft.held.get(number)
        if held is None or held.end != time or held.nbytes < least:
            return
        by_input, others = apart(step)
        early = time - _AFTER
        changed = {number: held._replace(end=early)}
        for slot in others.outs:
            made = draft.held.get(self._memory(slot))
            if made is not None:
                changed[self._memory(slot)] = made._replace(begin=early)
        added = ((position - _AFTER, others), (position, by_input))
        yield Change(added=added, left_out=(position,), held=changed)

    def _dropping(self, number: int, held: Lifetime, time: float) -> Iterator[Change]:
        """What drops a value after its last use before a time, and makes it again before the first one after it."""
        base = self._base_of(number)
        if base is None:
            return
        uses = self._uses(number, time)
        if uses is None or not uses.near or not uses.far or not self._draft.changed.isdisjoint(uses.far):
            return
        begin = max([self._draft.times[p] for p in uses.near])
        left = {number: held._replace(end=float(begin))}
        first = self._draft.steps[uses.far[0]]
        change = None
        if first.operator.op.name == LAYER and first.args[1] is not None and len(uses.far) == 1:
            change = self._put_off(base, uses.far[0], left, held)
        change = change or self._made_before(base, uses, left, held)
        if change is not None:
            yield change

    def _base_of(self, number: int) -> Slot | None:
        """The element-wise result that a memory holds, if nobody writes to it, and nobody wants it afterwards."""
        draft = self._draft
        if number in draft.outputs or number in draft.written_at or number in draft.pinned:
            return None
        bases = [slot for slot in self._slots_of(number) if draft.steps[draft.makers[slot]].operator.op.view_of is None]
        return bases[0] if len(bases) == 1 and self._is_candidate(draft.makers[bases[0]]) else None

    def _slots_of(self, number: int) -> list[Slot]:
        """The slots in a memory that steps fill."""
        return self._by_memory.get(number, [])

    def _is_candidate(self, position: int) -> bool:
        """Whether a step is an element-wise computation, of a value of its own."""
        known = self._candidates.get(position)
        if known is None:
            step = self._draft.steps[position]
            found = candidate_of(step, self._draft.analysis, position, self._keys)  # type: ignore[arg-type]
            known = self._candidates[position] = found is not None and not step.operator.op.mutates
        return known

    def _uses(self, number: int, time: float) -> _Uses | None:
        """Who reads a memory before and after a time; None where that is done at the time itself."""
        draft = self._draft
        near: list[int] = []
        far: list[int] = []
        for position in draft.readers.get(number, ()):
            if draft.steps[position].operator.op.view_of is not None:
                continue
            if draft.times[position] == time:
                return None
            (near if draft.times[position] < time else far).append(position)
        return _Uses(near, far)

    def _again(self, base: Slot, place: int, reads: Sequence[int]) -> _Again | None:
        """What makes a value again before a step that is executed at its time; ``reads`` are the steps that read it."""
        again = _Again([], {}, set())
        if not self._remake(base, place, again, self._nbytes(base)):
            return None
        for position in reads:
            for slot in slots_in(self._draft.steps[position].args):
                if self._memory(slot) == self._memory(base) and slot not in again.names:
                    self._view_again(slot, again)
        return again

    def _view_again(self, slot: Slot, again: _Again) -> Slot:
        """Make a view of a value once more, and the views in between."""
        if slot not in again.names:
            step = self._draft.steps[self._draft.makers[slot]]
            place = step.operator.op.view_of
            assert place is not None
            self._view_again(step.args[place], again)
            again.names[slot] = self._add(step, again)
        return again.names[slot]

    def _remake(self, slot: Slot, place: int, again: _Again, nbytes: int) -> bool:
        """Add the step that makes a slot, and those that make its operands where these are not there at a place."""
        position = self._draft.makers[slot]
        step = self._draft.steps[position]
        for operand in slots_in(step.args):
            if operand in again.names or operand in again.operands:
                continue
            if self._is_there(operand, position, place, nbytes):
                again.operands.add(operand)
            elif (
                len(again.steps) >= _LONGEST
                or not self._can_remake(operand)
                or not self._remake(operand, place, again, nbytes)
            ):
                return False
        again.names[slot] = self._add(step, again)
        return True

    def _can_remake(self, slot: Slot) -> bool:
        number, maker = self._memory(slot), self._draft.makers.get(slot)
        if maker is None or number in self._draft.written_at or number in self._draft.outputs:
            return False
        return len(self._slots_of(number)) == 1 and self._is_candidate(maker)

    def _add(self, step: Step, again: _Again) -> Slot:
        made = self._draft.new_slot()
        args = replaced(step.args, {slot: again.names.get(slot, slot) for slot in slots_in(step.args)})
        again.steps.append(Step(step.operator, args, (made,)))
        return made

    def _is_there(self, slot: Slot, maker: int, place: int, nbytes: int) -> bool:
        """Whether an operand is as it was when it was read first, and is held anyway, or is small."""
        draft, number = self._draft, self._memory(slot)
        if draft.is_written_between(number, maker, place):
            return False
        return draft.last_read[number] >= draft.times[place] or self._nbytes(slot) * _SMALL <= nbytes

    def _nbytes(self, slot: Slot) -> int:
        meta = self._draft.analysis.known[slot]
        return meta.nbytes if isinstance(meta, Meta) else 0

    def _longer(self, again: _Again, end: float) -> dict[int, Lifetime]:
        """The lifetimes of operands that are held until a time."""
        held = self._draft.held
        numbers = {self._memory(slot) for slot in again.operands}
        return {n: held[n]._replace(end=max(held[n].end, end)) for n in numbers if n in held}

    def _made_before(
        self, base: Slot, uses: _Uses, left: dict[int, Lifetime], held: Lifetime
    ) -> Change | None:  # fmt: skip
        """Make a value again just before what reads it next: in the same kernel where that is element-wise."""
        draft, first = self._draft, uses.far[0]
        again = self._again(base, first, uses.far)
        if again is None:
            return None
        time, last = draft.times[first], max([draft.times[p] for p in uses.far])
        is_one = self._shares_kernel(base, first) and any([self._reads(first, slot) for slot in again.operands])
        begin = time if is_one else time - _BEFORE
        moved = sum([self._nbytes(slot) for slot in again.operands if not (is_one and self._reads(first, slot))])
        if not is_one or last > time:
            left = {**left, -1 - draft.makers[base]: Lifetime(begin, last, held.nbytes)}
            moved += held.nbytes
        return self._change(again, first - _BEFORE, uses.far, {**self._longer(again, time), **left}, moved)

    def _put_off(self, base: Slot, layer: int, left: dict[int, Lifetime], held: Lifetime) -> Change | None:
        """Make a layer's input again in a kernel behind the layer's backward pass, and its weight's gradient then."""
        draft = self._draft
        partner = self._partner(base, layer)
        if partner is None:
            return None
        again, group = self._again(base, partner, [layer]), draft.groups[draft.times[partner]]
        moving = self._following(layer, group.positions)
        if again is None or moving is None:
            return None
        end, time = group.positions[-1], draft.times[partner]
        late = time + _AFTER
        held_then = {**self._longer(again, time), -1 - draft.makers[base]: Lifetime(time, late, held.nbytes), **left}
        for number in {self._memory(slot) for p in moving for slot in slots_in(draft.steps[p].args)}:
            if number in draft.held and number not in left:
                before = held_then.get(number, draft.held[number])
                held_then[number] = before._replace(end=max(before.end, late))
        step, extra = draft.steps[layer], []
        places = {p: end + _AFTER + _STEP * (1 + k) for k, p in enumerate(moving[1:])}
        left_out: tuple[int, ...] = ()
        names = {layer: again.names}
        if step.args[2] is not None:
            by_input, others = apart(step)
            args = replaced(others.args, {slot: again.names.get(slot, slot) for slot in slots_in(others.args)})
            extra = [(float(layer), by_input), (end + _AFTER, others._replace(args=args))]
            left_out, names = (layer,), {}
        else:
            places[layer] = end + _AFTER
        moved = held.nbytes + sum([self._nbytes(slot) for slot in again.operands if not self._reads(partner, slot)])
        first = group.positions[0] - _BEFORE
        added = [(first + _STEP * k, one) for k, one in enumerate(again.steps)]
        return Change((*added, *extra), places, names, left_out, held_then, moved)

    def _change(
        self, again: _Again, place: float, readers: Sequence[int], held: dict[int, Lifetime], moved: int
    ) -> Change:  # fmt: skip
        added = tuple([(place + _STEP * k, step) for k, step in enumerate(again.steps)])
        return Change(added, {}, dict.fromkeys(readers, again.names), (), held, moved)

    def _partner(self, base: Slot, layer: int) -> int | None:
        """The next element-wise step behind a layer's backward pass that reads what a value is made of."""
        draft = self._draft
        made_of = slots_in(draft.steps[draft.makers[base]].args)
        readers = [p for slot in made_of for p in draft.readers.get(self._memory(slot), ()) if p > layer]
        for position in sorted(readers):
            is_later = draft.times[position] > draft.times[layer]
            if is_later and position not in draft.changed and self._shares_kernel(base, position):
                return position
        return None

    def _shares_kernel(self, base: Slot, position: int) -> bool:
        """Whether a step is element-wise, of the shape of a value, in a kernel that can do more besides."""
        draft = self._draft
        group = draft.groups[draft.times[position]]
        if group.kind not in ("", SUMS) or not self._is_candidate(position):
            return False
        made, wanted = draft.analysis.known[draft.steps[position].outs[0]], draft.analysis.known[base]
        return isinstance(made, Meta) and isinstance(wanted, Meta) and made.shape == wanted.shape

    def _reads(self, position: int, slot: Slot) -> bool:
        """Whether the kernel of a step reads a value anyway."""
        draft = self._draft
        roots = draft.analysis.roots
        group = draft.groups[draft.times[position]]
        return any([roots[one] == roots[slot] for p in group.positions for one in slots_in(draft.steps[p].args)])

    def _following(self, layer: int, partners: Sequence[int]) -> list[int] | None:
        """A layer's gradient of its weight with the steps before a group's end that read it; None where it must not be
        put off."""
        draft, analysis = self._draft, self._draft.analysis
        step = draft.steps[layer]
        made = set(step.outs if step.args[2] is None else step.outs[1:])
        moving, inside = [layer], frozenset(partners)
        for position in range(layer + 1, partners[-1] + 1):
            later = draft.steps[position]
            if made.isdisjoint(slots_in(later.args)):
                continue
            if position in inside or position in draft.changed or analysis.effects[position].writes:
                return None
            made.update(later.outs)
            moving.append(position)
        read = {n for p in moving for n in analysis.effects[p].reads}
        is_written = any([draft.is_written_between(number, layer, partners[-1]) for number in read])
        return None if is_written or analysis.effects[layer].writes else moving


def _is_both(step: Step) -> bool:
    """Whether a step makes the gradients of a layer's input and weight."""
    return step.operator.op.name == LAYER and step.args[1] is not None and step.args[2] is not None


def _saved(change: Change, draft: Draft) -> int:
    return sum([draft.held[number].nbytes for number, one in change.held.items()
                if number in draft.held and one.end < draft.held[number].end])  # fmt: skip


def _length(change: Change, draft: Draft) -> float:
    return max([draft.held[n].end - one.end for n, one in change.held.items() if n in draft.held], default=0.0)
