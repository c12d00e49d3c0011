"""The cache as its users see it: whatever looks at blocks or totals, or changes where calls lead, comes through here.

Logged calls are carried out first, and what is remembered is dropped where it may no longer be true. How calls are
remembered is in `recall`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from server.allocator.cache.recall import Recall
from server.allocator.cache.watch import Reasons
from server.allocator.cache.ways import Ways
from server.allocator.core.block import Block
from server.allocator.core.block_cache import BlockCache
from server.allocator.core.layer import Layer
from server.allocator.core.ledger import BYTES_IN_USE, FIELD

_PART_FOR_A_PASS: Final = 8
"""Of the largest budget so large a part is for a pass that is about to come again: 32,768 states."""


class RecallingCache(Recall):
    """`Recall`, and what else the core offers, which tells it in turn what it is about to do."""

    __slots__ = ("_passes", "_programs")

    def __init__(self, below: Layer, core: BlockCache, ways_of: Callable[[Recall], Ways] = Recall.ways) -> None:
        super().__init__(below, core, ways_of)
        core.observer = self
        self._programs, self._passes = Reasons(self.replay_policy), Reasons(self.replay_policy)

    def begin_program(self) -> None:
        """Remember calls from here on, since a program begins: what came before it says nothing of what is to come."""
        if self._programs.suffice():
            self._passes = Reasons(self.replay_policy)
            if not self.end_cooldown():
                self.replay_policy.begin_anew()

    def expect_pass(self) -> None:
        """Remember calls from here on, and those of a whole pass: all that is computed was computed before."""
        if self._passes.suffice():
            self.end_cooldown()
            self.replay_policy.trust(_PART_FOR_A_PASS)

    def invalidate(self) -> None:
        """Carry out logged calls, and drop all that is remembered."""
        self.flush_deferred()
        self.forget()

    def record_stream(self, block: Block, stream: int) -> None:
        """Hold the block back, once freed, until what ``stream`` has queued by then is done."""
        if stream == block.segment.stream or block is self.core.null:
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
        last = self.log[-1] if self.log else None
        if last is not None and owner is not None and last.account is self._accounts.get(owner):
            return last.account_now >> BYTES_IN_USE & FIELD  # all logged calls are of one session
        self.flush_totals()
        return self.core.books.bytes_in_use(owner)

    def end_session(self, owner: int) -> None:
        """Drop the account of a session that has freed everything."""
        self.invalidate()
        self._turn_keys.pop(owner, None)
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
