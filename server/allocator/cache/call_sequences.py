"""Sequences of remembered calls: made all at once, or gone through as a dry run that changes nothing.

Whoever does the same work again on the same memory may have to know its addresses without allocating: a CUDA graph is
captured while the work is done on *shadow blocks*, and when the graph is launched all calls of the work are made at
once. Knows what `recall` knows.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from server.allocator.cache.recall import LONGEST_LOG, UNKNOWN
from server.allocator.cache.recalling_cache import RecallingCache
from server.allocator.cache.steps import State, Step
from server.allocator.core.block import Block

from .shadow_blocks import Arena, ReplayMismatch, ShadowBlock


class SequenceStart(NamedTuple):
    """Where a sequence begins: the state, the log of calls, and the log's length then."""

    state: State
    log: list[Step]
    length: int


class CallSequence(NamedTuple):
    """Calls that followed one another, and the states before and after them."""

    begin: State
    steps: tuple[Step, ...]
    end: State

    def freed_blocks(self) -> set[Block]:
        """The blocks in use before these calls that one of them frees; another may take the same memory again."""
        first_steps = {step.block: step for step in reversed(self.steps)}
        return {block for block, step in first_steps.items() if not step.takes}

    def kept_blocks(self) -> set[Block]:
        """The blocks in use after these calls that one of them took."""
        last_steps = {step.block: step for step in self.steps}
        return {block for block, step in last_steps.items() if step.takes}


class DryRun:
    """Goes through a sequence: hands out shadows of its blocks, and changes nothing."""

    def __init__(self, sequence: CallSequence, null: Block) -> None:
        self._sequence = sequence
        self._null = null
        self._state = sequence.begin
        self._made = 0
        self._has_mismatch = False
        self.queued_frees: list[Block] = []
        """Blocks that are really in use and were freed meanwhile; they are freed after the dry run."""

    @property
    def is_complete(self) -> bool:
        """Whether all calls of the sequence were gone through, and no others."""
        return not self._has_mismatch and self._made == len(self._sequence.steps)

    def shadow(self, block: Block) -> Block:
        """Return a stand-in for a block that is in use before these calls."""
        return block if block is self._null else ShadowBlock(block)

    def allocate(self, nbytes: int, stream: int, owner: int) -> Block:
        """Return a shadow of the block that this call would get."""
        if nbytes <= 0:
            return self._null
        step = self._follow((nbytes, stream, owner))
        if step is None:
            raise ReplayMismatch(f"allocator: {nbytes} bytes that were not asked for before")
        return ShadowBlock(step.block)

    def free(self, block: Block) -> None:
        """Take a shadow back."""
        if block.__class__ is ShadowBlock:
            self._follow(block.real)
        elif block is not self._null:
            self.queued_frees.append(block)

    def _follow(self, call: object) -> Step | None:
        """Return the step that a call is; None from the first call on that is not the next of the sequence."""
        step, steps = self._state.get(call), self._sequence.steps
        if self._has_mismatch or step is None or self._made >= len(steps) or steps[self._made] is not step:
            self._has_mismatch = True
            return None
        self._made += 1
        self._state = step.after
        return step


class CallSequences:
    """Cuts sequences out of what `Recall` remembers, makes them at once, and has them gone through as dry runs."""

    def __init__(self, recall: RecallingCache) -> None:
        self._recall = recall
        self._null = recall.core.null

    def start_sequence(self) -> SequenceStart | None:
        """Return where a sequence may begin; None if calls are not remembered now."""
        recall = self._recall
        return None if recall.state is UNKNOWN else SequenceStart(recall.state, recall.log, len(recall.log))

    def state_number(self) -> int:
        """Return a number that is the same in the same state of memory; another state may get it once one is gone."""
        return id(self._recall.state)

    def sequence_since(self, start: SequenceStart) -> CallSequence | None:
        """Return the calls since ``start``; None if some were not remembered, or they are too many to be kept."""
        steps = start.log[start.length :]
        if start.log is not self._recall.log or len(steps) > LONGEST_LOG // 2:
            return None
        state = start.state
        for step in steps:
            if step not in state.values():
                return None
            state = step.after
        return CallSequence(start.state, tuple(steps), state) if state is self._recall.state else None

    def can_replay(self, sequence: CallSequence) -> bool:
        """Whether memory is in the state in which the sequence begins."""
        return self._recall.state is sequence.begin

    def replay(self, sequence: CallSequence) -> None:
        """Make all calls of a sequence that ``can_replay`` at once."""
        recall = self._recall
        recall.log.extend(sequence.steps)
        recall.state = sequence.end
        if len(recall.log) > LONGEST_LOG:
            recall.flush_totals()

    @contextmanager
    def dry_run(self, sequence: CallSequence) -> Iterator[DryRun]:
        """Within the block, calls are those of a dry run; Python's garbage collector is off."""
        dry_run = DryRun(sequence, self._null)
        with self._served_by(dry_run):
            yield dry_run

    @contextmanager
    def run_in(self, block: Block, apart: Collection[int] = (), behind: int = 0) -> Iterator[Arena]:
        """Within the block, calls are served from one block of the caller; Python's garbage collector is off.

        ``apart`` and ``behind`` are as of an `Arena`.
        """
        arena = Arena(block, self._null, apart, behind)
        with self._served_by(arena):
            yield arena

    @contextmanager
    def _served_by(self, instead: DryRun | Arena) -> Iterator[None]:
        recall, collects = self._recall, gc.isenabled()
        gc.disable()
        state, recall.state = recall.state, UNKNOWN
        # From a state without remembered calls, every call comes to these.
        before = recall.allocate_unknown, recall.free_unknown
        recall.allocate_unknown, recall.free_unknown = instead.allocate, instead.free
        try:
            yield
        finally:
            recall.allocate_unknown, recall.free_unknown = before
            recall.state = state
            if collects:
                gc.enable()
            for block in instead.queued_frees:
                recall.free(block)

    def record_stream(self, block: Block, stream: int) -> None:
        """Hold the block back, once freed, until what ``stream`` has queued by then is done."""
        if block.__class__ is ShadowBlock:
            raise ReplayMismatch("allocator: memory of a dry run goes to another stream")
        self._recall.record_stream(block, stream)
