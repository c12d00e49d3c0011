"""Calls whose outcome is known from the last time: a training step asks for the same memory again and again.

Which block serves a request depends on nothing but what is in use, as long as no segment comes or goes and no memory
changes hands. So this layer remembers states, named by what is in use in them, and where each call led from there. A
call that is remembered is only logged; whoever wants to see blocks or totals calls `flush_deferred` first, which
carries out what the logged calls amount to. All other calls are carried out by the layer below, and remembered if they
start from a state that occurred before. Knows the core, whose blocks the layer below hands out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from server.allocator.cache.placement import place_blocks
from server.allocator.core.account import Account
from server.allocator.core.block import Block
from server.allocator.core.block_cache import BlockCache
from server.allocator.core.layer import Layer
from server.allocator.core.ledger import ALL, SPLIT, SPLIT_BYTES, field
from server.allocator.core.splitting import replace_block, replace_by_copy
from server.replay_policy import ALLOCATOR_CALLS, ReplayPolicy

# How many calls are logged before their effect on the totals is worked out; working out a batch takes about 1 ms.
LONGEST_LOG = 4096

# From one state, where calls led: by size, stream and session for allocations, by block for frees.
State = dict[Any, "Step"]
# The state of memory of which nothing is remembered, because it did not occur before.
UNKNOWN: State = {}


class Step:
    """One call from one state: the block that it takes or frees, the state after it, and the totals then."""

    __slots__ = (
        "account", "account_now", "after", "block", "ended_inactive_bytes", "ended_inactive_count", "name", "now",
        "takes",
    )  # fmt: skip

    def __init__(self, block: Block, account: Account, *, takes: bool) -> None:
        self.block = block
        self.takes = takes
        self.account = account
        self.account_now = account.now

    def lead_to(self, after: State, name: int, before: int, now: int) -> None:
        """Note the state after the call, that state's name, and the device's totals before and after."""
        self.after = after
        self.name = name
        self.now = now
        # How many inactive split blocks, and bytes in them, ceased to be inactive.
        self.ended_inactive_count = max(0, field(before, ALL, SPLIT) - field(now, ALL, SPLIT))
        self.ended_inactive_bytes = max(0, field(before, ALL, SPLIT_BYTES) - field(now, ALL, SPLIT_BYTES))


class Recall:
    """A layer that answers remembered calls; the layer below carries out all others.

    ``replay_policy`` counts remembered calls as hits, others as misses, and calls as the events of a cooldown.
    """

    def __init__(self, below: Layer, core: BlockCache) -> None:
        self._allocate_below = below.allocate
        self._free_below = below.free
        # Who gets the calls that are not remembered; a layer above may put itself here.
        self.allocate_unknown = self.allocate_anew
        self.free_unknown = self.free_anew
        self.core = core
        self._heap = core.heap
        self._ledger = core.books.ledger
        self._accounts = core.books.accounts
        self._oversize = core.config.max_split_size
        # The session whose calls are remembered in the states at hand, and the state that they have led to.
        self._turn = 0
        self.state = UNKNOWN
        # The calls since the totals were right, and the blocks whose use differs from what the segments say.
        self.log: list[Step] = []
        self._moved: set[Block] = set()
        # All keys of the blocks in use, by exclusive or: the state's name.
        self._name = 0
        self._states: dict[tuple[int, int], State] = {}
        # By place, size, request and session: the key of a piece that was in use once, the block of one that was twice.
        self._pieces: dict[tuple[int, int, int, int], int | Block] = {}
        self._changes = 0
        self._keys = Random()
        # Whether logged calls are being carried out; blocks that are freed meanwhile are queued.
        self._is_flushing = False
        self._queued_frees: list[Block] = []
        self.replay_policy = ReplayPolicy(ALLOCATOR_CALLS)
        self._most_states = ALLOCATOR_CALLS.sightings
        core.observer = self

    def allocate(self, nbytes: int, stream: int = 0, owner: int = 0) -> Block:
        """Return a block of at least ``nbytes`` for use on ``stream``, accounted to session ``owner``.

        Raises OutOfMemoryError when the session's quota or the device has no room.
        """
        step = self.state.get((nbytes, stream, owner))
        if step is None:
            return self.allocate_unknown(nbytes, stream, owner)
        self.state = step.after
        log = self.log
        log.append(step)
        if len(log) > LONGEST_LOG:
            self.flush_totals()
        return step.block

    def free(self, block: Block) -> None:
        """Take a block back; it is reused once the streams that used it are done with it."""
        step = self.state.get(block)
        if step is None:
            return self.free_unknown(block)
        self.state = step.after
        self.log.append(step)

    def allocate_anew(self, nbytes: int, stream: int, owner: int) -> Block:
        """Carry out an allocation that is not remembered, and remember where it led."""
        if nbytes <= 0 or (self.replay_policy.cooldown and self._cools_down()):
            return self._allocate_below(nbytes, stream, owner)
        call = nbytes, stream, owner
        if self.log or self._moved:
            self.flush_deferred()
        state = self._leave_state(owner)
        if call in state:
            return self._continue_from(state).allocate(*call)
        name, before, changes = self._name, self._ledger.now, self._heap.generation
        block = self._recognize(self._allocate_below(nbytes, stream, owner))
        is_alone = self._name == name and self._heap.generation == changes
        self._name ^= block.key
        after = self._enter_state(owner)
        if after is not None and state is not UNKNOWN and is_alone and block.is_stable and block.size < self._oversize:
            step = state[call] = Step(block, self._accounts[owner], takes=True)
            step.lead_to(after, self._name, before, self._ledger.now)
        return block

    def free_anew(self, block: Block) -> None:
        """Carry out a free that is not remembered, and remember where it led."""
        if block is self.core.null:
            return
        if self._is_flushing:
            self._queued_frees.append(block)
            return
        if self.replay_policy.cooldown and self._cools_down():
            block.is_stable = False
            return self._free_below(block)
        if self.log or self._moved:
            self.flush_deferred()
        if block.is_free or block in self.core.events:
            return self._free_below(block)
        owner = block.owner
        state = self._leave_state(owner)
        if block in state:
            return self._continue_from(state).free(block)
        before, changes = self._ledger.now, self._heap.generation
        self._free_below(replace_by_copy(block) if block.is_stable else block)
        if block in self.core.events:
            return
        self._name ^= block.key
        after = self._enter_state(owner)
        if (
            after is not None
            and state is not UNKNOWN
            and self._heap.generation == changes
            and block.is_stable
            and block.size < self._oversize
        ):
            step = state[block] = Step(block, self._accounts[owner], takes=False)
            step.lead_to(after, self._name, before, self._ledger.now)

    def _leave_state(self, owner: int) -> State:
        """Leave the current state; returns what is remembered of this session's calls from it."""
        state, self.state = self.state, UNKNOWN
        if self._heap.generation != self._changes:
            self.forget()
        if owner == self._turn:
            return state
        self._turn = owner
        return UNKNOWN if self.core.bypasses else self._states.get((self._name, owner), UNKNOWN)

    def _continue_from(self, state: State) -> Recall:
        self.state = state
        return self

    def _enter_state(self, owner: int) -> State | None:
        """Remember the state that a call has led to; None while somebody wants to see every call."""
        if self.core.bypasses:
            return None
        if self.replay_policy.miss():
            self.forget()
            return None
        if self._heap.generation != self._changes:
            self.forget()
        place = self._name, owner
        state = self._states.get(place)
        if state is None:
            if max(len(self._states), len(self._pieces)) >= self._most_states:
                self.forget()
            state = self._states[place] = {}
        else:
            self.state = state
        return state

    def _recognize(self, block: Block) -> Block:
        """Return the block that stood for this piece of memory before, put in the place of the one that was just cut.

        If segments have come or gone since, the new block is returned: another segment may lie at the same address.
        """
        if self._heap.generation != self._changes:
            self.forget()
        piece = block.pointer, block.size, block.requested, block.owner
        known = self._pieces.get(piece)
        if isinstance(known, Block):
            known.bin, known.split, known.is_free = block.bin, block.split, False
            replace_block(block, known)
            return known
        block.key = known or self._keys.getrandbits(128)
        block.is_stable = known is not None
        block.array = block.meta = None
        self._pieces[piece] = block if block.is_stable else block.key
        return block

    def _cools_down(self) -> bool:
        """Count a call of a cooldown; returns whether the cooldown goes on. When it ends, the state gets a new name."""
        if not self.replay_policy.cool_down():
            return True
        self._name = 0
        for segment in self._heap.segments.values():
            for block in segment.blocks():
                self._add_to_name(block)
        return False

    def end_cooldown(self) -> bool:
        """Remember calls again from here on, if they are not: what has repeated nothing may not be what comes."""
        if not self.replay_policy.cooldown:
            return False
        self.replay_policy.cooldown = 1
        self._cools_down()
        return True

    def _add_to_name(self, block: Block) -> None:
        if block.mapped and not block.is_free:
            block.is_stable = False
            block.key = self._keys.getrandbits(128)
            self._name ^= block.key

    def forget(self) -> None:
        """Drop all that is remembered; for what changes where calls lead. Logged calls must have been carried out."""
        self.state = UNKNOWN
        self._changes = self._heap.generation
        for state in self._states.values():
            state.clear()
        self._states.clear()
        self._pieces.clear()

    def remembered(self) -> tuple[int, int]:
        """How many states, and how many pieces of memory, are remembered."""
        return len(self._states), len(self._pieces)

    def flush_totals(self) -> None:
        """Bring the totals up to date."""
        if self.log:
            self._undisturbed(self._flush_totals)

    def _flush_totals(self) -> None:
        log, self.log = self.log, []
        self.replay_policy.hit(len(log))
        for step, times in Counter(log).items():
            self._count(step, times)
        self._name = log[-1].name
        self._ledger.now = log[-1].now
        log[-1].account.now = log[-1].account_now

    def _count(self, step: Step, times: int) -> None:
        block = step.block
        pool = block.segment.pool
        if times & 1:
            self._moved ^= {block}
        if step.takes:
            step.account.accumulated.add(times, times * block.size, times * block.requested, pool.is_small)
            step.account.pass_through(step.account_now)
        pool.ended_inactive_count += times * step.ended_inactive_count
        pool.ended_inactive_bytes += times * step.ended_inactive_bytes
        self._ledger.pass_through(step.now)

    def flush_deferred(self) -> None:
        """Bring the totals and the segments up to date."""
        if self.log or self._moved:
            self._undisturbed(self._flush_deferred)

    def _undisturbed(self, work: Callable[[], None]) -> None:
        """Do work during which blocks that Python's garbage collector frees are queued; they are freed after it."""
        if self._is_flushing:
            return
        self._is_flushing = True
        try:
            work()
        finally:
            self._is_flushing = False
        while self._queued_frees:
            self.free(self._queued_frees.pop())

    def _flush_deferred(self) -> None:
        if self.log:
            self._flush_totals()
        if not self._moved:
            return
        moved, self._moved = self._moved, set()
        self._heap.coalesce_deferred()
        taken = [block for block in moved if block.is_free]
        for block in moved.difference(taken):
            self._put_back(block)
        place_blocks(taken)

    def _put_back(self, block: Block) -> None:
        pool = block.segment.pool
        counted = pool.ended_inactive_count, pool.ended_inactive_bytes
        self._heap.put(replace_by_copy(block))
        pool.ended_inactive_count, pool.ended_inactive_bytes = counted

    def detach(self) -> None:
        """Carry out logged calls; the current state is unknown until the next call has been carried out."""
        self.flush_deferred()
        self.state = UNKNOWN

    def invalidate(self) -> None:
        """Carry out logged calls, and drop all that is remembered."""
        self.flush_deferred()
        self.forget()

    def record_stream(self, block: Block, stream: int) -> None:
        """Hold the block back, once freed, until what ``stream`` has queued by then is done."""
        if stream == block.stream or block is self.core.null:
            return
        self.invalidate()
        block.is_stable = False
        self.core.record_stream(block, stream)

    def empty_cache(self) -> None:
        """Give every segment that is wholly free back to the upstream."""
        self.invalidate()
        self.core.empty_cache()

    def set_quota(self, owner: int, nbytes: int | None, most: int | None = None) -> None:
        """Limit the bytes in use by one session; None lifts the limit. It may be raised to ``most``."""
        self.invalidate()
        self.core.set_quota(owner, nbytes, most)

    def allocated_bytes(self, owner: int | None = None) -> int:
        """Bytes in use by one session, or by all; those that wait for events included."""
        self.flush_totals()
        return self.core.books.bytes_in_use(owner)

    def end_session(self, owner: int) -> None:
        """Drop the account of a session that has freed everything."""
        self.invalidate()
        self.core.end_session(owner)

    def before_release(self) -> None:
        """Drop all that is remembered, because segments may go."""
        self.forget()

    def before_inspection(self) -> None:
        """Bring totals and segments up to date."""
        self.flush_deferred()

    def before_bypass_changes(self) -> None:
        """Bring totals and segments up to date, and leave the current state."""
        self.detach()

    def after_completion(self, block: Block) -> None:
        """Note that a block is no longer in use."""
        self._name ^= block.key
