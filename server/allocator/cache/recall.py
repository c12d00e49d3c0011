"""Calls whose outcome is known from the last time: a training step asks for the same memory again and again.

Which block serves a request depends on nothing but on what is in use, as long as no segment comes or goes and no memory
changes hands. So this remembers states, named by what is in use in them, and where each call led from there. A call
that is remembered is only written down; whoever wants to see blocks or totals calls `catch_up` first, which carries out
what the calls since then amount to. All other calls are carried out by `cache`, and remembered where they start from a
state that was met before. Knows what `general` knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from random import Random
from typing import Any

from server.allocator.cache.cache import BlockCache
from server.allocator.core.block import Block, Segment, carve, exchange, stand_in
from server.allocator.core.expandable import is_edge
from server.allocator.sessions.account import Account
from server.allocator.sessions.ledger import ALL, GUARDS, SPLIT, SPLIT_BYTES, Ledger, field
from server.allocator.sessions.shortage import Situation

# Calls that are written down before their effect on the totals is worked out.
LONG = 4096
# States, or pieces of memory, beyond which the memory starts anew: it only saves time.
REMEMBERED = 1 << 16
# Where calls do not repeat, after how many of them nothing is remembered for a while: at first, and at most. The steps
# of large models have thousands, and are known after about five.
PATIENCE, MOST_PATIENCE = 1 << 16, 1 << 18
# How much longer that while is.
REST = 8
# How many calls must be remembered for each that is not.
WORTH = 3

State = dict[Any, "Step"]
# A state in which nothing is remembered, because it was not met before.
NOWHERE: State = {}


class Step:
    """One call from one state: the block that it takes or frees, and what is so after it."""

    __slots__ = ("account", "account_now", "after", "block", "left_bytes", "left_count", "name", "now", "takes")

    def __init__(self, block: Block, account: Account, *, takes: bool) -> None:
        self.block = block
        self.takes = takes
        self.account = account
        self.account_now = account.now

    def lead_to(self, after: State, name: int, before: int, now: int) -> None:
        """Note the state after it, the name of that, and the device's totals before and after."""
        self.after = after
        self.name = name
        self.now = now
        # What ceased to be an inactive split block.
        self.left_count = max(0, field(before, ALL, SPLIT) - field(now, ALL, SPLIT))
        self.left_bytes = max(0, field(before, ALL, SPLIT_BYTES) - field(now, ALL, SPLIT_BYTES))


class RecallingCache(BlockCache):
    """`BlockCache`, which looks for nothing that it has found before."""

    def __init__(self, *args: Any, **options: Any) -> None:
        # The session whose calls are remembered in the states at hand, and the state that they have led to.
        self._turn = 0
        self._state = NOWHERE
        # What was called since the totals were right, and the blocks whose use differs from what the segments say.
        self._log: list[Step] = []
        self._moved: set[Block] = set()
        # All keys of the blocks in use, by exclusive or: the state's name.
        self._name = 0
        self._states: dict[tuple[int, int], State] = {}
        # By place, size, request and session: the key of a piece that was in use once, the block of one that was twice.
        self._pieces: dict[tuple[int, int, int, int], int | Block] = {}
        self._changes = 0
        self._keys = Random()
        # While that is made up for: what is freed then, and not remembered, comes after it.
        self._is_busy = False
        self._late: list[Block] = []
        # How long calls may come that are not remembered, how many came, and for how many more nothing is.
        self._patience = PATIENCE
        self._misses = 0
        self._rest = 0
        super().__init__(*args, **options)

    def allocate(self, nbytes: int, stream: int = 0, owner: int = 0) -> Block:
        """Return a block of at least ``nbytes`` for use on ``stream``, accounted to session ``owner``.

        Raises OutOfMemoryError when the session's quota or the device has no room.
        """
        step = self._state.get((nbytes, stream, owner))
        if step is None:
            return self._allocate_anew(nbytes, stream, owner)
        self._state = step.after
        log = self._log
        log.append(step)
        if len(log) > LONG:
            self.reckon()
        return step.block

    def free(self, block: Block) -> None:
        """Take a block back; it is reused once the streams that used it are done with it."""
        step = self._state.get(block)
        if step is None:
            return self._free_anew(block)
        self._state = step.after
        self._log.append(step)

    def _allocate_anew(self, nbytes: int, stream: int, owner: int) -> Block:
        if nbytes <= 0 or (self._rest and self._rests()):
            return super().allocate(nbytes, stream, owner)
        call = nbytes, stream, owner
        if self._log or self._moved:
            self.catch_up()
        state = self._depart(owner)
        if call in state:
            return self._go_on(state).allocate(*call)
        name, before, changes = self._name, self._ledger.now, self.policy.changes
        block = self._recognize(super().allocate(nbytes, stream, owner))
        is_alone = self._name == name and self.policy.changes == changes
        self._name ^= block.key
        after = self._arrive(owner)
        if after is not None and state is not NOWHERE and is_alone and block.lasting and block.size < self._oversize:
            step = state[call] = Step(block, self._accounts[owner], takes=True)
            step.lead_to(after, self._name, before, self._ledger.now)
        return block

    def _free_anew(self, block: Block) -> None:
        if block is self._null:
            return
        if self._is_busy:
            self._late.append(block)
            return
        if self._rest and self._rests():
            block.lasting = False
            return super().free(block)
        if self._log or self._moved:
            self.catch_up()
        if block.idle or block in self._events:
            return super().free(block)
        owner = block.owner
        state = self._depart(owner)
        if block in state:
            return self._go_on(state).free(block)
        before, changes = self._ledger.now, self.policy.changes
        super().free(stand_in(block) if block.lasting else block)
        if block in self._events:
            return
        self._name ^= block.key
        after = self._arrive(owner)
        if (
            after is not None
            and state is not NOWHERE
            and self.policy.changes == changes
            and block.lasting
            and block.size < self._oversize
        ):
            step = state[block] = Step(block, self._accounts[owner], takes=False)
            step.lead_to(after, self._name, before, self._ledger.now)

    def _depart(self, owner: int) -> State:
        """Leave the state at hand; what is remembered of this session's calls from it."""
        state, self._state = self._state, NOWHERE
        if self.policy.changes != self._changes:
            self.forget()
        if owner == self._turn:
            return state
        self._turn = owner
        return NOWHERE if self._attentive else self._states.get((self._name, owner), NOWHERE)

    def _go_on(self, state: State) -> RecallingCache:
        self._state = state
        return self

    def _arrive(self, owner: int) -> State | None:
        """Remember the state that a call has led to; None while somebody wants to see every call."""
        if self._attentive:
            return None
        self._misses += 1
        if self._misses > self._patience:
            self._lie_down()
            return None
        if self.policy.changes != self._changes:
            self.forget()
        place = self._name, owner
        state = self._states.get(place)
        if state is None:
            if len(self._states) >= REMEMBERED or len(self._pieces) >= REMEMBERED:
                self.forget()
            state = self._states[place] = {}
        else:
            self._state = state
        return state

    def _recognize(self, block: Block) -> Block:
        """The block that stood for this piece of memory before, in the place of the one that was just cut.

        Not if segments have come or gone since: another one may lie at the same address.
        """
        if self.policy.changes != self._changes:
            self.forget()
        piece = block.pointer, block.size, block.requested, block.owner
        known = self._pieces.get(piece)
        if isinstance(known, Block):
            known.bin, known.split, known.idle = block.bin, block.split, False
            exchange(block, known)
            return known
        block.key = known or self._keys.getrandbits(128)
        block.lasting = known is not None
        block.array = block.meta = None
        self._pieces[piece] = block if block.lasting else block.key
        return block

    def _lie_down(self) -> None:
        """Remember nothing for a while, because nothing repeats."""
        self.forget()
        self._rest = REST * self._patience
        self._patience = min(2 * self._patience, MOST_PATIENCE)
        self._misses = 0

    def _rests(self) -> bool:
        self._rest -= 1
        if not self._rest:
            self._name = 0
            for segment in self.policy.segments.values():
                for block in segment.blocks():
                    self._look_at(block)
        return self._rest > 0

    def _look_at(self, block: Block) -> None:
        if block.mapped and not block.idle:
            block.lasting = False
            block.key = self._keys.getrandbits(128)
            self._name ^= block.key

    def forget(self) -> None:
        """Remember nothing; for what changes where calls lead. What is written down must have been carried out."""
        self._state = NOWHERE
        self._changes = self.policy.changes
        for state in self._states.values():
            state.clear()
        self._states.clear()
        self._pieces.clear()

    def reckon(self) -> None:
        """Bring the totals up to date."""
        if self._log:
            self._undisturbed(self._reckon)

    def _reckon(self) -> None:
        log, self._log = self._log, []
        self._misses = max(0, self._misses - len(log) // WORTH)
        if len(log) > LONG:
            self._patience = PATIENCE
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
            step.account.flow.add(times, times * block.size, times * block.requested, pool.is_small)
            _meet(step.account, step.account_now)
        pool.left_count += times * step.left_count
        pool.left_bytes += times * step.left_bytes
        _meet(self._ledger, step.now)

    def catch_up(self) -> None:
        """Bring the totals and the segments up to date."""
        if self._log or self._moved:
            self._undisturbed(self._catch_up)

    def _undisturbed(self, work: Callable[[], None]) -> None:
        """Do it all before anything that Python's garbage collector frees meanwhile."""
        if self._is_busy:
            return
        self._is_busy = True
        try:
            work()
        finally:
            self._is_busy = False
        while self._late:
            self.free(self._late.pop())

    def _catch_up(self) -> None:
        if self._log:
            self._reckon()
        if not self._moved:
            return
        moved, self._moved = self._moved, set()
        self.policy.settle()
        taken = [block for block in moved if block.idle]
        for block in moved.difference(taken):
            self._put_back(block)
        self._put_in_place(taken)

    def _put_back(self, block: Block) -> None:
        pool = block.segment.pool
        counted = pool.left_count, pool.left_bytes
        self.policy.put(stand_in(block))
        pool.left_count, pool.left_bytes = counted

    def _put_in_place(self, blocks: Iterable[Block]) -> None:
        for segment, group in groupby(sorted(blocks, key=attrgetter("pointer")), attrgetter("segment")):
            _carve_out(segment, group)

    def leave(self) -> None:
        """Catch up, and take no state for granted until the next call has been carried out."""
        self.catch_up()
        self._state = NOWHERE

    def start_over(self) -> None:
        """Catch up, and remember nothing."""
        self.catch_up()
        self.forget()

    def record_stream(self, block: Block, stream: int) -> None:
        """Hold the block back, once freed, until what ``stream`` has queued by then is done."""
        if stream == block.stream or block is self._null:
            return
        self.start_over()
        block.lasting = False
        super().record_stream(block, stream)

    def empty_cache(self) -> None:
        """Give every segment that is wholly free back to the upstream."""
        self.start_over()
        super().empty_cache()

    def set_quota(self, owner: int, nbytes: int | None) -> None:
        """Limit the bytes in use by one session; None lifts the limit."""
        self.start_over()
        super().set_quota(owner, nbytes)

    def allocated_bytes(self, owner: int | None = None) -> int:
        """Bytes in use by one session, or by all; those that wait for events included."""
        self.reckon()
        return super().allocated_bytes(owner)

    def end_session(self, owner: int) -> None:
        """Drop the account of a session that has freed everything."""
        self.start_over()
        super().end_session(owner)

    def _release_cached(self) -> None:
        self.forget()
        super()._release_cached()

    def _resume(self, block: Block) -> None:
        super()._resume(block)
        self._name ^= block.key

    def _watch(self) -> None:
        self.leave()
        super()._watch()

    def _situation(self, account: Account, wanted: int) -> Situation:
        self.catch_up()
        return super()._situation(account, wanted)


def _meet(ledger: Ledger, now: int) -> None:
    """Let a ledger have had these totals."""
    if (ledger.ceiling - now) & GUARDS != GUARDS:
        ledger.now = now
        ledger.take_peaks()


def _carve_out(segment: Segment, blocks: Iterable[Block]) -> None:
    """Put blocks, in the order of their addresses, where there are free ones that hold them."""
    room: Any = segment.first
    for block in blocks:
        while room.offset + room.size <= block.offset:
            room = room.next
        shelf = segment.pool.shelves[block.stream]
        shelf.remove(room)
        if room.offset < block.offset:
            shelf.add(carve(room, block.offset - room.offset))
        block.split = room.split or room.size > block.size
        if room.size > block.size:
            exchange(carve(room, block.size), block)
            shelf.add(room)
        else:
            exchange(room, block)
        block.idle = False
        block.bin = None if is_edge(block) else shelf.bin(block.size)
        room = block
