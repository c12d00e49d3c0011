"""Remembered calls, and what a log of them adds to the totals.

A state of memory has the same totals whenever it occurs. So a log of calls that lead from state to state only has to be
added to what was ever allocated; what is in use follows from the last of them, and peaks were taken when the calls were
carried out for the first time. Knows blocks and ledgers; nothing of how states are recognised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import repeat
from typing import Any, Final

from server.allocator.core.account import Account
from server.allocator.core.block import Block
from server.allocator.core.heap import Heap
from server.allocator.core.ledger import ALL, FIELD, GROUP_WIDTH, SPLIT, SPLIT_BYTES, WIDTH, Ledger

# From one state, where calls led: by size, stream and session for allocations, by block for frees.
State = dict[Any, "Step"]

_SHORT_LOG: Final = 8
"""Calls of so short a log are counted one by one."""
_WIDTH: Final = 64
_FIELD: Final = (1 << _WIDTH) - 1
_FIELDS: Final = 5
"""A call adds to five amounts: blocks, bytes and requested bytes that were allocated, blocks and bytes that ceased to
be inactive split ones. They are fields of one integer, those of the small pools below those of the large ones."""
_SPLIT_PLACE, _SPLIT_BYTES_PLACE = (ALL * GROUP_WIDTH + which * WIDTH for which in (SPLIT, SPLIT_BYTES))
"""Where the totals of a device have blocks that are inactive split ones, and their bytes."""


class Step:
    """One call from one state: the block that it takes or frees, and the state after it with its name and totals.

    ``before`` has the device's totals before the call. ``resets`` is how often the peaks of device and session had been
    reset when they were last compared with the totals after the call.
    """

    __slots__ = (
        "account", "account_now", "after", "amounts", "before", "block", "name", "now", "resets", "takes",
    )  # fmt: skip

    def __init__(
        self, block: Block, takes: bool, account: Account, after: State, name: int, before: int, ledger: Ledger
    ) -> None:  # fmt: skip
        self.block = block
        self.takes = takes
        self.account = account
        self.account_now = account.now
        self.after = after
        self.name = name
        self.before = before
        self.now = ledger.now
        self.resets = ledger.resets + account.resets
        self.amounts: int | None = None
        """What the call adds to the amounts; None until somebody has asked."""

    def work_out_amounts(self) -> int:
        """Return what the call adds to the amounts, as fields of one integer, and keep it."""
        block, before, now = self.block, self.before, self.now
        packed = 1 | block.size << _WIDTH | block.requested << 2 * _WIDTH if self.takes else 0
        ended_count = (before >> _SPLIT_PLACE & FIELD) - (now >> _SPLIT_PLACE & FIELD)
        if ended_count > 0:
            packed |= ended_count << 3 * _WIDTH
        ended_bytes = (before >> _SPLIT_BYTES_PLACE & FIELD) - (now >> _SPLIT_BYTES_PLACE & FIELD)
        if ended_bytes > 0:
            packed |= ended_bytes << 4 * _WIDTH
        self.amounts = packed if block.segment.pool.is_small else packed << (_WIDTH * _FIELDS)
        return self.amounts

    def take_peaks(self, ledger: Ledger, resets: int) -> None:
        """Compare the totals after the call with peaks that were reset since this was done."""
        self.resets = resets
        if self.takes:
            self.account.pass_through(self.account_now)
        ledger.pass_through(self.now)


def count_calls(log: list[Step], moved: set[Block], ledger: Ledger, heap: Heap) -> None:
    """Bring the totals up to date after these calls of one session.

    ``moved`` has the blocks whose use differs from what the segments say, before the calls and then after them.
    """
    last = log[-1]
    account, total = last.account, 0
    resets = ledger.resets + account.resets
    counted: Iterable[tuple[Step, int]] = zip(log, repeat(1)) if len(log) < _SHORT_LOG else Counter(log).items()
    for step, times in counted:
        amounts = step.amounts
        if amounts is None:
            amounts = step.work_out_amounts()
        if amounts:
            total += amounts if times == 1 else times * amounts
        if times & 1:
            block = step.block
            if block in moved:
                moved.remove(block)
            else:
                moved.add(block)
        if step.resets != resets:
            step.take_peaks(ledger, resets)
    ledger.now, account.now = last.now, last.account_now
    for pool in (heap.small, heap.large):
        if not total:
            return
        count, nbytes, requested, ended_count, ended_bytes = (
            total >> (_WIDTH * place) & _FIELD for place in range(_FIELDS)
        )
        account.accumulated.add(count, nbytes, requested, pool.is_small)
        pool.ended_inactive_count += ended_count
        pool.ended_inactive_bytes += ended_bytes
        total >>= _WIDTH * _FIELDS
