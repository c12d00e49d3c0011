"""Which steps become one kernel: element-wise steps of one shape, where nothing has to happen between them.

Steps depend on those that make what they read, and on those that touch memory which one of both writes. Joining two
groups is allowed where no step outside must come after one and before the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from telegrad_protocol.layout import overlaps_itself
from telegrad_protocol.meta import Meta

from .analysis import EVERYTHING, Analysis, Effects
from .fused import FUSERS, Compute, Fuser, compute_of
from .graph import Slot, Step, slots_in

_MOST_MEMBERS = 64
"""Steps in a kernel: more would not fit a GPU's registers, and take long to compile."""
_NEAR = 64
"""How many steps apart those may be that share nothing but an operand: its memory is held meanwhile."""


class Candidate(NamedTuple):
    """A step that can be a part of a fused kernel, the value it makes or writes to, and the device's rules."""

    compute: Compute
    out: Meta
    fuser: Fuser


class Group:
    """Steps that are executed as one, by their positions; bits of integers stand for sets of steps.

    ``kind`` says how: empty for element-wise steps and for a single one, else a kind of ``joined``.
    """

    __slots__ = ("after", "candidate", "kind", "members", "positions")

    def __init__(self, position: int, after: int, candidate: Candidate | None) -> None:
        self.positions = [position]
        self.members = 1 << position
        self.after = after
        """All steps that must come before, directly or not."""
        self.candidate = candidate
        self.kind = ""

    def copy(self) -> Group:
        """The same group, for another grouping."""
        group = Group(self.positions[0], self.after, self.candidate)
        group.positions, group.members, group.kind = self.positions, self.members, self.kind
        return group


class Grouping:
    """Steps in groups: element-wise ones of one shape that share operands, and each other one alone.

    ``keys`` has the key of each device's backend; on those without a fuser each step is a group. ``again`` are slots
    whose values were made before and dropped: what makes them is joined with nothing that is executed earlier.
    """

    def __init__(
        self, steps: Sequence[Step], analysis: Analysis, keys: Mapping[object, int], fuse: bool = True,
        again: frozenset[Slot] = frozenset(),
    ) -> None:  # fmt: skip
        self.steps, self.analysis, self.keys = steps, analysis, keys
        self._again = frozenset([p for p, step in enumerate(steps) if not again.isdisjoint(step.outs)])
        self.by_step: list[Group] = []
        self._groups: dict[int, Group] = {}
        self._touching: dict[Slot, list[int]] = {}
        self._dependencies = list(_dependencies(steps, analysis.effects))
        for position, direct in enumerate(self._dependencies):
            after = 0
            for earlier in direct:
                after |= self.by_step[earlier].members | self.by_step[earlier].after
            candidate = candidate_of(steps[position], analysis, position, keys) if fuse else None
            group = Group(position, after, candidate)
            self.by_step.append(group)
            self._groups[id(group)] = group
            if candidate is not None:
                self._join_neighbours(group)

    def copy(self) -> Grouping:
        """The same groups, which can be joined without changing these."""
        other: Grouping = object.__new__(Grouping)
        other.__dict__.update(self.__dict__)
        copies = {number: group.copy() for number, group in self._groups.items()}
        other.by_step = [copies[id(group)] for group in self.by_step]
        other._groups = {id(group): group for group in copies.values()}
        return other

    def _join_neighbours(self, group: Group) -> None:
        """Join a new group with those that it shares operands or memory with, the latest first."""
        position, steps, touching = group.positions[0], self.steps, self._touching
        step = steps[position]
        near = [p for slot in slots_in(step.args) for p in touching.get(slot, ())]
        made = {p for p in near if not set(steps[p].outs).isdisjoint(slots_in(step.args))}
        for p in sorted(set(near), reverse=True):
            other = self.by_step[p]
            if other is group or (p not in made and position - p > _NEAR) or not _fit(group, other):
                continue
            if self._again and not self._is_late(group, other):
                continue
            if self.has_nothing_between(other, group) and self._is_one_kernel(other, group):
                self.absorb(other, group)
                group = other
        for slot in (*slots_in(step.args), *step.outs):
            touching.setdefault(slot, []).append(position)

    def _is_late(self, one: Group, two: Group) -> bool:
        """Whether nothing of two groups lies before what is made again in them."""
        again = self._again.intersection((*one.positions, *two.positions))
        return not again or min(one.positions[0], two.positions[0]) in again

    def has_nothing_between(self, one: Group, two: Group) -> bool:
        """Whether no other group must come after one of these and before the other."""
        for outside in self._groups.values():
            if outside is one or outside is two:
                continue
            if outside.members & two.after and outside.after & one.members:
                return False
            if outside.members & one.after and outside.after & two.members:
                return False
        return True

    def _is_one_kernel(self, one: Group, two: Group) -> bool:
        """Whether a kernel can take the operands, and sees what it writes to through one value alone."""
        positions = sorted(one.positions + two.positions)
        fuser = one.candidate.fuser if one.candidate else None
        return (
            fuser is not None
            and len(_outside_roots(positions, self.steps, self.analysis)) <= fuser.most_operands
            and _writes_meet_only_themselves(positions, self.steps, self.analysis)
        )

    def absorb(self, group: Group, other: Group) -> None:
        """Make one group of two, which is the first of them."""
        del self._groups[id(other)]
        group.positions = sorted(group.positions + other.positions)
        group.members |= other.members
        group.after = (group.after | other.after) & ~group.members
        for position in other.positions:
            self.by_step[position] = group
        for later in self._groups.values():
            if later is not group and later.after & group.members:
                later.after |= group.members | group.after

    def ordered(self) -> list[Group]:
        """The groups in an order in which they can be executed: otherwise by each one's last step."""
        waiting: dict[int, int] = {}
        followers: dict[int, list[Group]] = {number: [] for number in self._groups}
        for number, group in self._groups.items():
            before = {id(self.by_step[p]) for position in group.positions for p in self._dependencies[position]}
            before.discard(number)
            waiting[number] = len(before)
            for earlier in before:
                followers[earlier].append(group)
        ready = [(group.positions[-1], group) for number, group in self._groups.items() if not waiting[number]]
        heapq.heapify(ready)
        ordered = []
        while ready:
            _, group = heapq.heappop(ready)
            ordered.append(group)
            for follower in followers[id(group)]:
                waiting[id(follower)] -= 1
                if not waiting[id(follower)]:
                    heapq.heappush(ready, (follower.positions[-1], follower))
        return ordered


def _dependencies(steps: Sequence[Step], effects: Sequence[Effects]) -> Iterator[set[int]]:
    """For each step the earlier ones that it must follow."""
    made: dict[Slot, int] = {}
    writer: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    for position, (step, (reads, writes)) in enumerate(zip(steps, effects)):
        if EVERYTHING in writes:
            yield set(range(position))
        else:
            direct = {made[slot] for slot in slots_in(step.args) if slot in made}
            for number in (*reads, *writes, EVERYTHING):
                if number in writer:
                    direct.add(writer[number])
            for number in writes:
                direct |= readers.get(number, set())
            yield direct
        made.update(dict.fromkeys(step.outs, position))
        for number in writes:
            writer[number], readers[number] = position, set()
        for number in reads:
            readers.setdefault(number, set()).add(position)


def candidate_of(step: Step, analysis: Analysis, position: int, keys: Mapping[object, int]) -> Candidate | None:
    """The element-wise computation that a step is, if the device fuses it."""
    bound, op = analysis.bound[position], step.operator.op
    if bound is None or len(step.outs) != 1 or (analysis.effects[position].writes and len(op.mutates) != 1):
        return None
    out = analysis.known[step.outs[0]]
    metas = op.metas_in(bound)
    if not isinstance(out, Meta) or not out.numel or any([meta.device is not out.device for meta in metas]):
        return None
    if op.mutates and overlaps_itself(out.shape, out.strides):
        return None
    fuser = FUSERS.get(keys.get(out.device, 0))
    compute = compute_of(op, step.args, bound, out)
    if fuser is None or compute is None or any([item.__class__ is tuple for item in compute.args]):
        return None
    return Candidate(compute, out, fuser) if fuser.takes(compute, out) else None


def _fit(group: Group, other: Group) -> bool:
    """Whether the groups compute elements of one shape on one device."""
    mine, theirs = group.candidate, other.candidate
    if mine is None or theirs is None or len(group.positions) + len(other.positions) > _MOST_MEMBERS:
        return False
    return mine.out.shape == theirs.out.shape and mine.out.device is theirs.out.device


def _outside_roots(positions: list[int], steps: Sequence[Step], analysis: Analysis) -> set[Slot]:
    """The values that come from outside."""
    inside = {slot for p in positions for slot in steps[p].outs}
    return {analysis.roots[slot] for p in positions for slot in slots_in(steps[p].args) if slot not in inside}


def _writes_meet_only_themselves(positions: list[int], steps: Sequence[Step], analysis: Analysis) -> bool:
    """Whether memory that the steps write to is seen by them through one and the same value."""
    written = {number for p in positions for number in analysis.effects[p].writes}
    if not written:
        return True
    seen: dict[int, Slot] = {}
    for position in positions:
        for slot in (*slots_in(steps[position].args), *steps[position].outs):
            number = analysis.memory_of(slot)
            if number in written and seen.setdefault(number, analysis.roots[slot]) != analysis.roots[slot]:
                return False
    return True
