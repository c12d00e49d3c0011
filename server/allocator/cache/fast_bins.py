"""The short way of handing out blocks and taking them back: repeated sizes in a few steps.

Serves a size that a session asked for before from the bin of that size, or from the front of a larger block, where
nothing stands against it; all else goes the general way. Both show the same to whoever looks. Knows what `general`
knows.
"""

from __future__ import annotations

from typing import Any

from server.allocator.core.account import Account, Request
from server.allocator.core.block import Block, FreeList
from server.allocator.core.block_cache import BlockCache
from server.allocator.core.ledger import GUARDS
from server.allocator.core.splitting import join_front, split_front


class FastBins:
    """The short way around a `BlockCache`, whose accounts, ledger and bins it works on."""

    def __init__(self, below: BlockCache) -> None:
        # The methods of the layer below, bound once.
        self._allocate = below.allocate
        self._free = below.free
        self._complete = below.complete
        self._accounts = below.books.accounts
        self._ledger = below.books.ledger
        self._oversize = below.config.max_split_size
        # Set while something wants to see every call: then nothing takes the short way.
        self._bypasses = below.bypasses
        below.bypass_listeners.append(self._set_bypass)

    def _set_bypass(self, bypasses: bool) -> None:
        self._bypasses = bypasses

    def allocate(self, nbytes: int, stream: int = 0, owner: int = 0) -> Block:
        """Return a block of at least ``nbytes`` for use on ``stream``, accounted to session ``owner``.

        Raises OutOfMemoryError when the session's quota or the device has no room.
        """
        account = self._accounts.get(owner)
        if account is None or account.stream != stream or self._bypasses:
            return self._allocate(nbytes, stream, owner)
        request = account.requests.get(nbytes)
        if request is None:
            return self._allocate(nbytes, stream, owner)
        if not request.blocks:
            return self._cut(request, account)
        block = request.blocks[-1]
        account_now = account.now + request.charge
        charge = request.split_charge if block.split else request.charge
        ledger = self._ledger
        ledger_now = ledger.now + charge
        if (
            block.owner != owner
            or (account.ceiling - account_now) & GUARDS != GUARDS
            or (ledger.ceiling - ledger_now) & GUARDS != GUARDS
        ):
            return self._allocate(nbytes, stream, owner)
        request.blocks.pop()
        if block.split:
            request.split_uses += 1
        else:
            request.uses += 1
        account.now = account_now
        ledger.now = ledger_now
        block.is_free = False
        block.requested = nbytes
        block.charge = request.charge
        block.device_charge = charge
        return block

    def _cut(self, request: Request, account: Account) -> Block:
        """Serve a known size from the front of a larger block, the short way where nothing stands against it."""
        size, free_list = request.size, request.free_list
        if free_list.remainder is not None or free_list.expands or account.quota_bytes is not None:
            return self._cut_with_care(request, account)
        block = free_list.best_in_bins(size)
        if (
            block is None
            or block.owner != account.owner
            or block.size - size < request.min_remainder
            or block.size >= self._oversize
        ):
            return self._allocate(request.nbytes, free_list.stream, account.owner)
        free_list.remove(block)
        if block.split:
            free_list.pool.ended_inactive_bytes += size
            change = request.cut_charge
        else:
            pool = free_list.pool
            change = request.charge + pool.inactive_count_charge + (block.size - size) * pool.inactive_byte_charge
        front = split_front(block, size)
        free_list.add(block)
        request.uses += 1
        front.requested = request.nbytes
        front.bin = request.bin
        front.charge = charge = request.charge
        front.device_charge = request.split_charge
        ledger = self._ledger
        ledger.now = now = ledger.now + change
        if (ledger.ceiling - now) & GUARDS != GUARDS:
            ledger.take_peaks()
        account.now = now = account.now + charge
        if (account.ceiling - now) & GUARDS != GUARDS:
            account.take_peaks()
        return front

    def _cut_with_care(self, request: Request, account: Account) -> Block:
        """The same where there is a remainder, an expandable segment or a quota."""
        size, free_list = request.size, request.free_list
        account_now = account.now + request.charge
        if (account.ceiling - account_now) & GUARDS != GUARDS and account.quota_bytes is not None:
            return self._allocate(request.nbytes, free_list.stream, account.owner)
        remainder_size, remainder = free_list.remainder_size, free_list.remainder
        if free_list.expands:
            found = free_list.cut_from(size)  # type: ignore[attr-defined]  # an expandable free_list
            is_in_bin = found is not remainder
        else:
            found = free_list.best_in_bins(size)
            is_in_bin = remainder_size < size or (found is not None and found.size < remainder_size)
        if is_in_bin:
            block = self._cut_from_bin(found, request, account.owner)
        elif (
            remainder is None
            or remainder_size - size < request.min_remainder
            or remainder_size >= self._oversize
            or remainder.owner != account.owner
        ):
            block = None
        else:
            block = self._cut_from_remainder(request)
        if block is None:
            return self._allocate(request.nbytes, free_list.stream, account.owner)
        request.uses += 1
        block.requested = request.nbytes
        block.bin = request.bin
        block.charge = request.charge
        block.device_charge = request.split_charge
        account.now = account_now
        if (account.ceiling - account_now) & GUARDS != GUARDS:
            account.take_peaks()
        return block

    def _cut_from_remainder(self, request: Request) -> Block:
        """The front of a free_list's remainder: what was merged with it last, if that has the size."""
        size, free_list = request.size, request.free_list
        remainder: Any = free_list.remainder
        block: Block = free_list.remainder_front  # type: ignore[assignment]  # there is one where there is a remainder
        if block is not remainder and block.size == size:
            free_list.remainder_front = block.next
            block.is_free = False
            request.bin.eager_frees = 0
        else:
            free_list.coalesce_remainder()
            block = split_front(remainder, size)
        remainder_size = free_list.remainder_size = free_list.remainder_size - size
        bin = free_list.bins.get(remainder_size)
        if bin is not None and bin.listed:
            free_list.resize_remainder(remainder_size)
        free_list.pool.ended_inactive_bytes += size
        ledger = self._ledger
        ledger.now = now = ledger.now + request.cut_charge
        if (ledger.ceiling - now) & GUARDS != GUARDS:
            ledger.take_peaks()
        return block

    def _cut_from_bin(self, found: Block | None, request: Request, owner: int) -> Block | None:
        """The front of a free block, whose remainder becomes the remainder; None where only the policy may decide."""
        size, free_list = request.size, request.free_list
        if (
            found is None
            or found.owner != owner
            or found.size - size < request.min_remainder
            or found.size >= self._oversize
        ):
            return None
        pool = free_list.pool
        free_list.remove(found)
        change = request.cut_charge
        if found.split:
            pool.ended_inactive_bytes += size
        else:
            change = request.charge + pool.inactive_count_charge + (found.size - size) * pool.inactive_byte_charge
        block = split_front(found, size)
        free_list.add(found)
        self._ledger.add(change)
        return block

    def free(self, block: Block) -> None:
        """Take a block back; it is reused once the streams that used it are done with it."""
        bin = block.bin
        if bin is None or block.is_free or self._bypasses:
            return self._free(block)
        previous, following = block.previous, block.next
        if previous is not None and previous.is_free:
            return self._merge_behind(previous, block, following, bin.free_list)
        if following is not None and following.is_free:
            return self._merge_before(block, following, bin.free_list)
        ledger = self._ledger
        ledger.now = now = ledger.now - block.device_charge
        if (ledger.ceiling - now) & GUARDS != GUARDS:
            ledger.take_peaks()
        self._accounts[block.owner].now -= block.charge
        block.is_free = True
        blocks = bin.blocks
        if bin.listed and (not blocks or blocks[-1].pointer > block.pointer):
            blocks.append(block)
        else:
            bin.add(block)

    def _merge_before(self, block: Block, following: Any, free_list: FreeList) -> None:
        """Merge a block with the free one behind it: in the books only, if that is the remainder or becomes it."""
        before, bin = block.previous, block.bin
        if block.owner != following.owner or (before is None and following.next is None):
            return self._complete(block)
        if following is not free_list.remainder_front:
            free_list.remove(following)
            if bin.eager_frees > 0:  # type: ignore[union-attr]
                bin.eager_frees -= 1  # type: ignore[union-attr]
                join_front(following, block)
                free_list.add(following)
                self._take_off(block, free_list.pool.inactive_count_charge)
                return
            free_list.open_remainder(following)
            if free_list.remainder is None:
                return self._complete(block)
        elif before is None and free_list.remainder.next is None:  # type: ignore[union-attr]
            # The segment would be wholly free.
            return self._complete(block)
        self._take_off(block, free_list.pool.inactive_count_charge)
        free_list.remainder_front = block
        remainder_size = free_list.remainder_size = free_list.remainder_size + block.size
        bin = free_list.bins.get(remainder_size)
        if bin is not None and bin.listed:
            free_list.resize_remainder(remainder_size)

    def _merge_behind(self, previous: Block, block: Block, following: Any, free_list: FreeList) -> None:
        """Merge a block with the free one before it, and with one behind it."""
        owner, merged, size = block.owner, free_list.pool.inactive_count_charge, previous.size + block.size
        beyond = following
        joins = following is not None and following.is_free
        if joins:
            beyond = following.next
        if (
            previous.owner != owner
            or free_list.remainder is not None
            or (beyond is None and previous.previous is None)
            or (joins and following.owner != owner)
        ):
            return self._complete(block)
        if joins:
            free_list.remove(following)
            following.is_free = True
            size += following.size
            free_list.pool.ended_inactive_count += 1
            merged *= 2
        free_list.remove(previous)
        previous.size = size
        previous.next = beyond
        if beyond is not None:
            beyond.previous = previous
        free_list.add(previous)
        self._take_off(block, merged)

    def _take_off(self, block: Block, merged: int) -> None:
        """Account for a free; the charge of the inactive blocks that it was merged with comes off too."""
        block.is_free = True
        self._accounts[block.owner].now -= block.charge
        ledger = self._ledger
        ledger.now = now = ledger.now - block.device_charge - merged
        if (ledger.ceiling - now) & GUARDS != GUARDS:
            ledger.take_peaks()
