"""The short way of handing out blocks and taking them back: repeated sizes in a few steps.

Serves a size that a session asked for before from the bin of that size, or from the front of a larger block, where
nothing stands against it; all else goes the general way. Both show the same to whoever looks. Knows what `general`
knows.
"""

from __future__ import annotations

from typing import Any

from server.allocator.cache.general import GeneralCache
from server.allocator.core.block import Block, carve, extend
from server.allocator.core.pool import Shelf
from server.allocator.sessions.account import Account, Request
from server.allocator.sessions.ledger import GUARDS


class BlockCache(GeneralCache):
    """`GeneralCache`, fast where most calls are."""

    def allocate(self, nbytes: int, stream: int = 0, owner: int = 0) -> Block:
        """Return a block of at least ``nbytes`` for use on ``stream``, accounted to session ``owner``.

        Raises OutOfMemoryError when the session's quota or the device has no room.
        """
        account = self._accounts.get(owner)
        if account is None or account.stream != stream or self._attentive:
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
        block.idle = False
        block.requested = nbytes
        block.charge = request.charge
        block.device_charge = charge
        return block

    def _cut(self, request: Request, account: Account) -> Block:
        """Serve a known size from the front of a larger block, the short way where nothing stands against it."""
        size, shelf = request.size, request.shelf
        if shelf.tail is not None or shelf.expands or account.quota_bytes is not None:
            return self._cut_with_care(request, account)
        block = shelf.best_in_bins(size)
        if (
            block is None
            or block.owner != account.owner
            or block.size - size < request.remainder
            or block.size >= self._oversize
        ):
            return self._allocate(request.nbytes, shelf.stream, account.owner)
        shelf.remove(block)
        if block.split:
            shelf.pool.left_bytes += size
            change = request.cut_charge
        else:
            change = request.charge + shelf.pool.one_count + (block.size - size) * shelf.pool.one_byte
        front = carve(block, size)
        shelf.add(block)
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
        """The same where there is a tail, an expandable segment or a quota."""
        size, shelf = request.size, request.shelf
        account_now = account.now + request.charge
        if (account.ceiling - account_now) & GUARDS != GUARDS and account.quota_bytes is not None:
            return self._allocate(request.nbytes, shelf.stream, account.owner)
        span, tail = shelf.span, shelf.tail
        if shelf.expands:
            found = shelf.cut_from(size)  # type: ignore[attr-defined]  # an expandable shelf
            is_in_bin = found is not tail
        else:
            found = shelf.best_in_bins(size)
            is_in_bin = span < size or (found is not None and found.size < span)
        if is_in_bin:
            block = self._cut_from_bin(found, request, account.owner)
        elif tail is None or span - size < request.remainder or span >= self._oversize or tail.owner != account.owner:
            block = None
        else:
            block = self._cut_from_tail(request)
        if block is None:
            return self._allocate(request.nbytes, shelf.stream, account.owner)
        request.uses += 1
        block.requested = request.nbytes
        block.bin = request.bin
        block.charge = request.charge
        block.device_charge = request.split_charge
        account.now = account_now
        if (account.ceiling - account_now) & GUARDS != GUARDS:
            account.take_peaks()
        return block

    def _cut_from_tail(self, request: Request) -> Block:
        """The front of a shelf's tail: what was merged with it last, if that has the size."""
        size, shelf = request.size, request.shelf
        tail: Any = shelf.tail
        block: Block = shelf.front  # type: ignore[assignment]  # there is one where there is a tail
        if block is not tail and block.size == size:
            shelf.front = block.next
            block.idle = False
            request.bin.faith = 0
        else:
            shelf.merge_tail()
            block = carve(tail, size)
        span = shelf.span = shelf.span - size
        bin = shelf.bins.get(span)
        if bin is not None and bin.listed:
            shelf.resize_tail(span)
        shelf.pool.left_bytes += size
        ledger = self._ledger
        ledger.now = now = ledger.now + request.cut_charge
        if (ledger.ceiling - now) & GUARDS != GUARDS:
            ledger.take_peaks()
        return block

    def _cut_from_bin(self, found: Block | None, request: Request, owner: int) -> Block | None:
        """The front of a free block, whose remainder becomes the tail; None where only the policy may decide."""
        size, shelf = request.size, request.shelf
        if (
            found is None
            or found.owner != owner
            or found.size - size < request.remainder
            or found.size >= self._oversize
        ):
            return None
        pool = shelf.pool
        shelf.remove(found)
        change = request.cut_charge
        if found.split:
            pool.left_bytes += size
        else:
            change = request.charge + pool.one_count + (found.size - size) * pool.one_byte
        block = carve(found, size)
        shelf.add(found)
        self._ledger.add(change)
        return block

    def free(self, block: Block) -> None:
        """Take a block back; it is reused once the streams that used it are done with it."""
        bin = block.bin
        if bin is None or block.idle or self._attentive:
            return self._free(block)
        previous, following = block.previous, block.next
        if previous is not None and previous.idle:
            return self._merge_behind(previous, block, following, bin.shelf)
        if following is not None and following.idle:
            return self._merge_before(block, following, bin.shelf)
        ledger = self._ledger
        ledger.now = now = ledger.now - block.device_charge
        if (ledger.ceiling - now) & GUARDS != GUARDS:
            ledger.take_peaks()
        self._accounts[block.owner].now -= block.charge
        block.idle = True
        blocks = bin.blocks
        if bin.listed and (not blocks or blocks[-1].pointer > block.pointer):
            blocks.append(block)
        else:
            bin.add(block)

    def _merge_before(self, block: Block, following: Any, shelf: Shelf) -> None:
        """Merge a block with the free one behind it: in the books only, if that is the tail or becomes it."""
        before, bin = block.previous, block.bin
        if block.owner != following.owner or (before is None and following.next is None):
            return self._complete(block)
        if following is not shelf.front:
            shelf.remove(following)
            if bin.faith < 0:  # type: ignore[union-attr]
                bin.faith += 1  # type: ignore[union-attr]
                extend(following, block)
                shelf.add(following)
                self._take_off(block, shelf.pool.one_count)
                return
            shelf.open_tail(following)
            if shelf.tail is None:
                return self._complete(block)
        elif before is None and shelf.tail.next is None:  # type: ignore[union-attr]
            # The segment would be wholly free.
            return self._complete(block)
        self._take_off(block, shelf.pool.one_count)
        shelf.front = block
        span = shelf.span = shelf.span + block.size
        bin = shelf.bins.get(span)
        if bin is not None and bin.listed:
            shelf.resize_tail(span)

    def _merge_behind(self, previous: Block, block: Block, following: Any, shelf: Shelf) -> None:
        """Merge a block with the free one before it, and with one behind it."""
        owner, merged, size = block.owner, shelf.pool.one_count, previous.size + block.size
        beyond = following
        joins = following is not None and following.idle
        if joins:
            beyond = following.next
        if (
            previous.owner != owner
            or shelf.tail is not None
            or (beyond is None and previous.previous is None)
            or (joins and following.owner != owner)
        ):
            return self._complete(block)
        if joins:
            shelf.remove(following)
            following.idle = True
            size += following.size
            shelf.pool.left_count += 1
            merged *= 2
        shelf.remove(previous)
        previous.size = size
        previous.next = beyond
        if beyond is not None:
            beyond.previous = previous
        shelf.add(previous)
        self._take_off(block, merged)

    def _take_off(self, block: Block, merged: int) -> None:
        """Account for a free; the charge of the inactive blocks that it was merged with comes off too."""
        block.idle = True
        self._accounts[block.owner].now -= block.charge
        ledger = self._ledger
        ledger.now = now = ledger.now - block.device_charge - merged
        if (ledger.ceiling - now) & GUARDS != GUARDS:
            ledger.take_peaks()
