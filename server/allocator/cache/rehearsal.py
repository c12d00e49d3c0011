"""Calls that were remembered, taken together: to be gone through without being made, or made all at once.

Whoever does the same work again on the same memory may want to know its addresses without allocating, as when a device
is to be told of the work beforehand. Knows what `recall` knows.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from server.allocator.cache.recall import LONG, NOWHERE, Recall, State, Step
from server.allocator.core.block import Block
from telegrad_protocol.errors import InternalError


class Mark(NamedTuple):
    """Where an excerpt begins: the state, and what was written down by then."""

    state: State
    log: list[Step]
    length: int


class Excerpt(NamedTuple):
    """Calls that followed one another, and the states before and after them."""

    begin: State
    steps: tuple[Step, ...]
    end: State

    def given_up(self) -> set[Block]:
        """The blocks in use before these calls that one of them frees; another may take the same memory again."""
        return {block for block, step in {step.block: step for step in reversed(self.steps)}.items() if not step.takes}

    def left(self) -> set[Block]:
        """The blocks in use after these calls that one of them took."""
        return {block for block, step in {step.block: step for step in self.steps}.items() if step.takes}


class Strayed(InternalError):
    """Work that is rehearsed asks for other memory than it did before."""


class Echo(Block):
    """A block that somebody pretends to have: the same memory as that of ``real``."""

    __slots__ = ("real",)

    def __init__(self, real: Block) -> None:
        super().__init__(real.segment, real.offset, real.size, real.stream, real.owner)
        self.requested = real.requested
        self.real = real


class Rehearsal:
    """Goes through an excerpt: hands out echoes of its blocks, and changes nothing."""

    def __init__(self, excerpt: Excerpt, null: Block) -> None:
        self._excerpt = excerpt
        self._null = null
        self._state = excerpt.begin
        self._made = 0
        self._has_strayed = False
        self.late: list[Block] = []
        """Blocks that are really in use and were freed meanwhile."""

    @property
    def is_complete(self) -> bool:
        """Whether all calls of the excerpt were gone through, and no others."""
        return not self._has_strayed and self._made == len(self._excerpt.steps)

    def echo(self, block: Block) -> Block:
        """A block that is in use before these calls, to pretend to have."""
        return block if block is self._null else Echo(block)

    def allocate(self, nbytes: int, stream: int, owner: int) -> Block:
        """An echo of the block that this call would get."""
        if nbytes <= 0:
            return self._null
        step = self._follow((nbytes, stream, owner))
        if step is None:
            raise Strayed(f"allocator: {nbytes} bytes that were not asked for before")
        return Echo(step.block)

    def free(self, block: Block) -> None:
        """Take an echo back."""
        if block.__class__ is Echo:
            self._follow(block.real)
        elif block is not self._null:
            self.late.append(block)

    def _follow(self, call: object) -> Step | None:
        """The step that a call is; None where it is not the next of the excerpt, and ever after."""
        step, steps = self._state.get(call), self._excerpt.steps
        if self._has_strayed or step is None or self._made >= len(steps) or steps[self._made] is not step:
            self._has_strayed = True
            return None
        self._made += 1
        self._state = step.after
        return step


class Rehearsals:
    """Takes out calls that `Recall` remembers, makes them at once, and has them gone through without being made."""

    def __init__(self, recall: Recall) -> None:
        self._recall = recall
        self._null = recall.core.null
        self._rehearsal: Rehearsal | None = None
        # What Recall does not remember comes here first: within a rehearsal it remembers nothing.
        recall.allocate_unknown = self._allocate
        recall.free_unknown = self._free

    def mark(self) -> Mark | None:
        """Where an excerpt may begin; None where calls are not remembered now."""
        recall = self._recall
        return None if recall.state is NOWHERE else Mark(recall.state, recall.log, len(recall.log))

    def excerpt(self, mark: Mark) -> Excerpt | None:
        """The calls since then; None if they were not all remembered, or are more than one would keep."""
        steps = mark.log[mark.length :]
        if mark.log is not self._recall.log or len(steps) > LONG // 2:
            return None
        state = mark.state
        for step in steps:
            if step not in state.values():
                return None
            state = step.after
        return Excerpt(mark.state, tuple(steps), state) if state is self._recall.state else None

    def begins(self, excerpt: Excerpt) -> bool:
        """Whether the calls of an excerpt can be made now."""
        return self._recall.state is excerpt.begin

    def repeat(self, excerpt: Excerpt) -> None:
        """Make all calls of an excerpt, which must begin now, at once."""
        recall = self._recall
        recall.log.extend(excerpt.steps)
        recall.state = excerpt.end
        if len(recall.log) > LONG:
            recall.flush_totals()

    @contextmanager
    def rehearsing(self, excerpt: Excerpt) -> Iterator[Rehearsal]:
        """Within the block, calls are those of a rehearsal."""
        recall, collects = self._recall, gc.isenabled()
        gc.disable()
        state, recall.state = recall.state, NOWHERE
        rehearsal = self._rehearsal = Rehearsal(excerpt, self._null)
        try:
            yield rehearsal
        finally:
            self._rehearsal, recall.state = None, state
            if collects:
                gc.enable()
            for block in rehearsal.late:
                recall.free(block)

    def _allocate(self, nbytes: int, stream: int, owner: int) -> Block:
        if self._rehearsal is not None:
            return self._rehearsal.allocate(nbytes, stream, owner)
        return self._recall.allocate_anew(nbytes, stream, owner)

    def _free(self, block: Block) -> None:
        if self._rehearsal is not None:
            self._rehearsal.free(block)
        elif block.__class__ is not Echo:  # one that outlived its rehearsal stands for nothing
            self._recall.free_anew(block)

    def record_stream(self, block: Block, stream: int) -> None:
        """Hold the block back, once freed, until what ``stream`` has queued by then is done."""
        if block.__class__ is Echo:
            raise Strayed("allocator: memory that is rehearsed with goes to another stream")
        self._recall.record_stream(block, stream)
