"""Calls whose outcome is known from the last time: a training step asks for the same memory again and again.

Which block serves a request depends on nothing but what is in use, as long as no segment comes or goes and no memory
changes hands. So this layer names states by what is in use in them, and remembers where each call led from a state that
has come back. A call that is remembered is only logged; whoever wants to see blocks or totals calls `flush_deferred`
first, as `recalling_cache` does, which carries out what the logged calls amount to. All other calls are carried out by
the layer below: of those from states that did not occur before, nothing is kept but the name of the state that they led
to. Knows the core, whose blocks the layer below hands out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from server.allocator.cache.pieces import Pieces
from server.allocator.cache.placement import place_blocks, put_back
from server.allocator.cache.steps import State, Step, count_calls
from server.allocator.cache.watch import OTHERS, Signs
from server.allocator.cache.ways import Ways
from server.allocator.core.block import Block
from server.allocator.core.block_cache import BlockCache
from server.allocator.core.layer import Calls, Layer
from server.allocator.core.splitting import replace_by_copy
from server.replay_policy import ALLOCATOR_CALLS, ReplayPolicy

# How many calls are logged before their effect on the totals is worked out.
LONGEST_LOG = 4096
# The state of memory of which nothing is remembered, because it did not occur before.
UNKNOWN: State = {}
# What is kept of a state that occurred once.
SEEN: Final[State] = {}
_LONGEST_COUNT: Final = 256
"""So many misses are counted before the policy is told of them."""


class Recall:
    """A layer that answers remembered calls; the layer below carries out all others.

    ``replay_policy`` counts remembered calls as hits, others as misses, and calls as the events of a cooldown.
    ``calls`` are the functions that users call: ``allocate`` and ``free``, in C where that is compiled.
    """

    __slots__ = (
        "__weakref__", "_accounts", "_allocate_below", "_changes", "_count", "_free_below", "_heap",
        "_is_bypassed", "_is_cooling", "_is_flushing", "_ledger", "_left", "_most_states", "_moved", "_name",
        "_oversize", "_pieces", "_queued_frees", "_signs", "_states", "_turn", "_turn_key", "_turn_keys",
        "_ways", "allocate_unknown", "calls", "core", "free_unknown", "log", "replay_policy", "state",
    )  # fmt: skip

    def __init__(self, below: Layer, core: BlockCache, ways_of: Callable[[Recall], Ways]) -> None:
        self._allocate_below = below.allocate
        self._free_below = below.free
        self._ways = ways_of(self)
        self.calls = Calls(self._ways.allocate, self._ways.free)
        # Who gets the calls that are not remembered; a layer above may put itself here for a while.
        self.allocate_unknown, self.free_unknown = self._ways.allocate_anew, self._ways.free_anew
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
        self._pieces = Pieces()
        # A key for each session. That of the session whose turn it is and the keys of the blocks in use, by exclusive
        # or, are the state's name.
        self._turn_keys: dict[int, int] = {}
        self._name = self._turn_key = self._key_of_turn(0)
        # By name: what is known of states.
        self._states: dict[int, State] = {}
        self._changes = 0
        # Whether logged calls are being carried out; blocks that are freed meanwhile are queued.
        self._is_flushing = False
        self._queued_frees: list[Block] = []
        self.replay_policy = ReplayPolicy(ALLOCATOR_CALLS)
        self._signs = Signs()
        self._is_cooling, self._most_states = False, ALLOCATOR_CALLS.sightings
        # How many misses there are between two times that the policy is told of them, and how many of them are left.
        self._count = self._left = max(1, min(_LONGEST_COUNT, self._most_states >> 6))
        self._is_bypassed = core.bypasses
        core.bypass_listeners.append(self._set_bypassed)

    def __del__(self) -> None:
        """Take apart what is remembered: it is in circles that the garbage collector does not look at."""
        self._drop_states()

    def ways(self) -> Ways:
        """Return the functions of Python, which say what each call does."""
        return Ways(self.allocate, self.free, self.allocate_anew, self.free_anew, self._free_in_cooldown)

    def _set_bypassed(self, is_bypassed: bool) -> None:
        self._is_bypassed = is_bypassed

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
        """Carry out an allocation that is not remembered, and note the state that it leads to."""
        if nbytes <= 0:
            return self._allocate_below(nbytes, stream, owner)
        if self.log or self._moved:
            self.flush_deferred()
        if owner != self._turn and (nbytes, stream, owner) in self._take_turn(owner):
            return self.allocate(nbytes, stream, owner)
        state, self.state = self.state, UNKNOWN
        from_name, before = self._name, self._ledger.now
        block = self._allocate_below(nbytes, stream, owner)
        if self._heap.generation != self._changes:
            self.forget()
        piece = block.pointer, block.size, nbytes, owner
        key: Any = self._pieces.table.get(piece)
        if key.__class__ is not int:
            key = self._pieces.name(block, piece)
        block.key, block.is_stable = key, False
        states, name = self._states, self._name ^ key
        if name not in states and not self._is_bypassed:
            self._name, states[name] = name, SEEN
            self.state = UNKNOWN
            self._count_miss()
            return block
        return self._link_allocation(block, state, from_name, before, nbytes, stream, owner)

    def _link_allocation(
        self, block: Block, state: State, from_name: int, before: int, nbytes: int, stream: int, owner: int
    ) -> Block:
        """Enter the state that an allocation has led to, and remember it if it was between two states known before.

        ``state``, ``from_name`` and ``before`` are the state and its name, and the device's totals, before the call.
        """
        is_alone = self._name == from_name
        name = self._name ^ block.key
        self._enter_state(name)
        if state is UNKNOWN or self.state is UNKNOWN or not is_alone or block.size >= self._oversize:
            return block
        block = self._pieces.recognize(block)
        step = Step(block, True, self._accounts[owner], self.state, name, before, self._ledger)
        self._remember(state, (nbytes, stream, owner), step)
        return block

    def _remember(self, state: State, call: Any, step: Step) -> None:
        """Remember where a call led from a state.

        The first one from a state is no miss: that the state came back is a sign, and there are no more such calls than
        states.
        """
        has_others = bool(state)
        state[call] = step
        if has_others:
            self._count_miss()

    def free_anew(self, block: Block) -> None:
        """Carry out a free that is not remembered, and note the state that it leads to."""
        if self._is_flushing:
            self._queued_frees.append(block)
            return
        if self.replay_policy.cooldown:
            self._begin_cooldown()
            return self._free_in_cooldown(block)
        if self.log or self._moved:
            if not block.owns_memory:
                return
            self.flush_deferred()
        if block.is_free or self._is_bypassed:
            return self._free_with_care(block)
        if block.owner != self._turn and block in self._take_turn(block.owner):
            return self.free(block)
        if block.is_stable or (self.state is not UNKNOWN and self._name ^ block.key in self._states):
            return self._free_to_known(block)
        self._free_below(block)
        if self._heap.generation != self._changes:
            self.forget()
        states, name = self._states, self._name ^ block.key
        if name in states or self._is_bypassed:
            return self._enter_without(block)
        self._name, states[name] = name, SEEN
        self.state = UNKNOWN
        self._count_miss()

    def _free_with_care(self, block: Block) -> None:
        """Free a block that is free already, or while somebody wants to see every call."""
        if not block.owns_memory:
            return
        if block.is_free or block in self.core.events:
            return self._free_below(block)
        if block.owner != self._turn:
            self._take_turn(block.owner)
        self._give_back(block)
        self._enter_without(block)

    def _enter_without(self, block: Block) -> None:
        """Enter the state that a free has led to; the same without a name where the block stays in use for an event."""
        self.state = UNKNOWN
        if not self._is_bypassed or block not in self.core.events:
            self._enter_state(self._name ^ block.key)

    def _free_to_known(self, block: Block) -> None:
        """Carry out a free between two states that occurred before, and remember it; or that of a stable block."""
        state, before = self.state, self._ledger.now
        name = self._name ^ block.key
        is_linked = state is not UNKNOWN and name in self._states and block.size < self._oversize
        known = self._pieces.representative(block) if is_linked else None
        self._give_back(block)
        self._enter_without(block)
        if known is not None and known not in state and self.state is not UNKNOWN:
            step = Step(known, False, self._accounts[block.owner], self.state, name, before, self._ledger)
            self._remember(state, known, step)

    def _give_back(self, block: Block) -> None:
        """Have a block freed, or a copy of it if it stands for its piece; then it is never free itself."""
        self._free_below(replace_by_copy(block) if block.is_stable else block)
        if self._heap.generation != self._changes:
            self.forget()

    def _take_turn(self, owner: int) -> State:
        """Go on with another session's calls; returns what is remembered of them from the state at hand."""
        self._turn, self.state = owner, UNKNOWN
        self._name ^= self._turn_key
        self._turn_key = self._key_of_turn(owner)
        self._name ^= self._turn_key
        if self._heap.generation != self._changes:
            self.forget()
        if self._name in self._states and not self._is_bypassed:
            self._enter_state(self._name)
        return self.state

    def _key_of_turn(self, owner: int) -> int:
        key = self._turn_keys.get(owner)
        if key is None:
            key = self._turn_keys[owner] = self._pieces.new_key()
        return key

    def _enter_state(self, name: int) -> None:
        """Note the state that a call has led to; calls from it are remembered if it occurred before."""
        self._name, self.state = name, UNKNOWN
        if self._is_bypassed or self._is_cooling:
            return
        state = self._states.get(name)
        if state is None:
            self._states[name] = SEEN
            self._count_miss()
            return
        if state is SEEN:
            state = self._states[name] = {}
        self.state = state

    def _count_miss(self) -> None:
        """Count a state, or another call between two, that was new; a cooldown begins if there were too many."""
        self._left -= 1
        if self._left:
            return
        gives_up = self.replay_policy.miss(self._count)
        if max(self.remembered()) >= self._most_states:
            self.forget()
        self._count = self._left = max(1, min(_LONGEST_COUNT, self._most_states >> 6, self.replay_policy.room()))
        if gives_up:
            self._begin_cooldown()

    def _begin_cooldown(self) -> None:
        """Leave all calls to the layer below, but for watching whether frees come again."""
        self.detach()
        self.allocate_unknown, self.free_unknown = self._allocate_below, self._ways.free_in_cooldown
        self._is_cooling = True

    def _free_in_cooldown(self, block: Block) -> None:
        """Carry out a free during a cooldown, which ends when its calls are over or frees come again."""
        pointer, owner = block.pointer, block.owner
        if block.is_free or block.is_stable:
            if block.owns_memory:
                self._give_back(block)
        else:
            self._free_below(block)
        policy = self.replay_policy
        policy.cooldown -= 2  # as many blocks are allocated
        account = self._accounts.get(owner)
        held = 0 if account is None else hash((account.now,))
        if policy.cooldown <= 0:
            self._remember_again()
        elif not held & OTHERS:
            self._look_for_signs(held, pointer)

    def _look_for_signs(self, held: int, pointer: int) -> None:
        """Note a free by the hash of what its session holds and where it was; signs of repetition end the cooldown."""
        if self._signs.note(held, self._ledger.now, pointer):
            self._trust_signs()

    def _trust_signs(self) -> None:
        """Remember calls from here on, and much of them."""
        self.replay_policy.trust()
        self._remember_again()

    def end_cooldown(self) -> bool:
        """Remember calls again from here on, if they are not: what has repeated nothing may not be what comes."""
        if not self._is_cooling and not self.replay_policy.cooldown:
            return False
        self._remember_again()
        self.replay_policy.begin_anew()
        return True

    def expect_repetition(self) -> None:
        """Remember calls from here on, and many of them: what makes them is about to come again as it was."""
        self.replay_policy.trust()
        if self._is_cooling or self.replay_policy.cooldown:
            self._remember_again()

    def _remember_again(self) -> None:
        """Remember calls from here on."""
        self.detach()
        self.replay_policy.cooldown, self._is_cooling = 0, False
        self.allocate_unknown, self.free_unknown = self._ways.allocate_anew, self._ways.free_anew
        if self._heap.generation != self._changes:
            self.forget()
        self._name = self._turn_key ^ self._pieces.name_of_all(self._heap.segments.values())

    def forget(self) -> None:
        """Drop all that is remembered; for what changes where calls lead. Logged calls must have been carried out."""
        self.state = UNKNOWN
        self._changes = self._heap.generation
        self._drop_states()
        self._pieces.forget()

    def _drop_states(self) -> None:
        for state in self._states.values():
            state.clear()
        self._states.clear()

    def remembered(self) -> tuple[int, int]:
        """How many states, and how many pieces of memory, are remembered."""
        return len(self._states), len(self._pieces.table)

    def flush_totals(self) -> None:
        """Bring the totals up to date."""
        if self.log:
            self._undisturbed(self._flush_totals)

    def _flush_totals(self) -> None:
        log, self.log = self.log, []
        self.replay_policy.hit(len(log))
        if len(log) > _LONGEST_COUNT:
            self._signs.prove()
        self._name = log[-1].name
        count_calls(log, self._moved, self._ledger, self._heap)

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
            put_back(self._heap, block)
        place_blocks(taken)

    def detach(self) -> None:
        """Carry out logged calls; the current state is unknown until the next call has been carried out."""
        self.flush_deferred()
        self.state = UNKNOWN
