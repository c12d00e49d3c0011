"""The short way of handing out blocks and taking them back: repeated sizes in a few steps.

Serves a size that a session asked for before from the bin of that size, or from the front of a larger block, where
nothing stands against it; the layer below carries out all other calls. Addresses and statistics are the same either
way. Functions are long here because every call between them would be paid for by most allocations.
"""

from __future__ import annotations

from typing import Any

from server.allocator.core.account import Account, Request
from server.allocator.core.block import Block, FreeList
from server.allocator.core.block_cache import BlockCache
from server.allocator.core.ledger import GUARDS
from server.allocator.core.splitting import join_front, split_front


class FastBins:
    """The short way around a `BlockCache`, on whose accounts, ledger and bins it works."""

    __slots__ = ("__weakref__", "_accounts", "_allocate", "_bypassed", "_complete", "_free", "_ledger", "_oversize")

    def __init__(self, below: BlockCache) -> None:
        # The methods of the layer below, bound once.
        self._allocate = below.allocate
        self._free = below.free
        self._complete = below.complete
        self._accounts = below.books.accounts
        self._ledger = below.books.ledger
        self._oversize = below.config.max_split_size
        # Set while every call must be carried out by the layer below.
        self._bypassed = below.bypasses
        below.bypass_listeners.append(self._set_bypassed)

    def _set_bypassed(self, bypassed: bool) -> None:
        self._bypassed = bypassed

    def allocate(self, nbytes: int, stream: int = 0, owner: int = 0) -> Block:
        """Return a block of at least ``nbytes`` for use on ``stream``, accounted to session ``owner``.

        Raises OutOfMemoryError when the session's quota or the device has no room.
        """
        account = self._accounts.get(owner)
        if account is None or self._bypassed:
            return self._allocate(nbytes, stream, owner)
        if account.stream != stream:
            account.select_stream(stream)
        request = account.requests.get(nbytes)
        if request is None:
            return self._allocate(nbytes, stream, owner)
        if not request.blocks:
            return self._split(request, account)
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

    def _split(self, request: Request, account: Account) -> Block:
        """Serve a known size from the front of the larger block that fits best, if it is of the same owner."""
        size, free_list = request.size, request.free_list
        if free_list.remainder is not None or free_list.expands or account.quota_bytes is not None:
            return self._split_with_care(request, account)
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
            change = request.split_off_charge
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

    def _split_with_care(self, request: Request, account: Account) -> Block:
        """Do the same where there is a last remainder, an expandable segment or a quota."""
        size, free_list = request.size, request.free_list
        account_now = account.now + request.charge
        if (account.ceiling - account_now) & GUARDS != GUARDS and account.quota_bytes is not None:
            return self._allocate(request.nbytes, free_list.stream, account.owner)
        remainder_size, remainder = free_list.remainder_size, free_list.remainder
        if free_list.expands:
            larger = free_list.best_to_split(size)  # type: ignore[attr-defined]  # an expandable free list
            is_in_bin = larger is not remainder
        else:
            larger = free_list.best_in_bins(size)
            is_in_bin = remainder_size < size or (larger is not None and larger.size < remainder_size)
        if is_in_bin:
            block = self._split_from_bin(larger, request, account.owner)
        elif (
            remainder is None
            or remainder_size - size < request.min_remainder
            or remainder_size >= self._oversize
            or remainder.owner != account.owner
        ):
            block = None
        else:
            block = self._split_from_remainder(request)
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

    def _split_from_remainder(self, request: Request) -> Block:
        """Take the front of the last remainder: the block that was freed in front of it last, if that has the size."""
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
        ledger.now = now = ledger.now + request.split_off_charge
        if (ledger.ceiling - now) & GUARDS != GUARDS:
            ledger.take_peaks()
        return block

    def _split_from_bin(self, larger: Block | None, request: Request, owner: int) -> Block | None:
        """Take the front of a free block and put the rest back; None where only the layer below may decide."""
        size, free_list = request.size, request.free_list
        if (
            larger is None
            or larger.owner != owner
            or larger.size - size < request.min_remainder
            or larger.size >= self._oversize
        ):
            return None
        pool = free_list.pool
        free_list.remove(larger)
        change = request.split_off_charge
        if larger.split:
            pool.ended_inactive_bytes += size
        else:
            change = request.charge + pool.inactive_count_charge + (larger.size - size) * pool.inactive_byte_charge
        block = split_front(larger, size)
        free_list.add(larger)
        self._ledger.add(change)
        return block

    def free(self, block: Block) -> None:
        """Take a block back; it is reused once the streams that used it are done with it."""
        bin = block.bin
        if bin is None or block.is_free or self._bypassed:
            return self._free(block)
        previous, following = block.previous, block.next
        if previous is not None and previous.is_free:
            return self._coalesce_into_previous(previous, block, following, bin.free_list)
        if following is not None and following.is_free:
            return self._coalesce_with_next(block, following, bin.free_list)
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

    def _coalesce_with_next(self, block: Block, following: Any, free_list: FreeList) -> None:
        """Merge a block with the free one behind it; deferred, if that is the last remainder or becomes it."""
        before, bin = block.previous, block.bin
        if block.owner != following.owner or (before is None and following.next is None):
            return self._complete(block)
        if following is not free_list.remainder_front:
            free_list.remove(following)
            if bin.eager_frees > 0:  # type: ignore[union-attr]
                bin.eager_frees -= 1  # type: ignore[union-attr]
                join_front(following, block)
                free_list.add(following)
                self._account_for_free(block, free_list.pool.inactive_count_charge)
                return
            free_list.open_remainder(following)
            if free_list.remainder is None:
                return self._complete(block)
        elif before is None and free_list.remainder.next is None:  # type: ignore[union-attr]
            # The segment would be wholly free.
            return self._complete(block)
        self._account_for_free(block, free_list.pool.inactive_count_charge)
        free_list.remainder_front = block
        remainder_size = free_list.remainder_size = free_list.remainder_size + block.size
        bin = free_list.bins.get(remainder_size)
        if bin is not None and bin.listed:
            free_list.resize_remainder(remainder_size)

    def _coalesce_into_previous(self, previous: Block, block: Block, following: Any, free_list: FreeList) -> None:
        """Merge a block with the free one in front of it, and with the one behind it if that is free too."""
        owner, merged_charge = block.owner, free_list.pool.inactive_count_charge
        size, beyond = previous.size + block.size, following
        joins_next = following is not None and following.is_free
        if joins_next:
            beyond = following.next
        if (
            previous.owner != owner
            or free_list.remainder is not None
            or (beyond is None and previous.previous is None)
            or (joins_next and following.owner != owner)
        ):
            return self._complete(block)
        if joins_next:
            free_list.remove(following)
            following.is_free, following.previous = True, None  # merged blocks must not keep each other alive
            size += following.size
            free_list.pool.ended_inactive_count += 1
            merged_charge *= 2
        free_list.remove(previous)
        previous.size = size
        previous.next = beyond
        if beyond is not None:
            beyond.previous = previous
        free_list.add(previous)
        self._account_for_free(block, merged_charge)

    def _account_for_free(self, block: Block, merged_charge: int) -> None:
        """Take a freed block off the totals, and with it the charge of the inactive blocks that it was merged with."""
        block.is_free = True
        self._accounts[block.owner].now -= block.charge
        ledger = self._ledger
        ledger.now = now = ledger.now - block.device_charge - merged_charge
        if (ledger.ceiling - now) & GUARDS != GUARDS:
            ledger.take_peaks()
