"""The part of a backend that allocates values and frees blocks. Knows no operations.

Python's garbage collector may free a value in the middle of an allocator call. Blocks that come back then are queued,
and freed when that call has returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from server.allocator import Block, CachingAllocator
from server.engine import context
from server.engine.in_c.values import new_value as new_value_in_c
from server.engine.value import Backend, Storage, Value, new_storage, new_value
from telegrad_protocol.meta import Meta


class AllocatingBackend(Backend):
    """A backend whose values lie in blocks of a caching allocator, accounted to the session whose turn it is."""

    def begin_session(self) -> None:
        self.allocator.end_cooldown()

    def empty(self, meta: Meta) -> Value:
        """A new value of uninitialised memory, accounted to the session whose turn it is."""
        nbytes = meta.extent * meta.dtype.itemsize
        if new_value_in_c is not None:
            return new_value_in_c(self, self.key, nbytes, meta)
        self.in_allocator = True  # `_allocate`, inlined
        try:
            stream = self.stream if self.apart is None else self.apart.get(nbytes, self.stream)
            block = self.allocator.allocate(nbytes, stream, context.current.owner)
        finally:
            self.in_allocator = False
            if self.queued_frees:
                self.free_queued()
        storage: Storage = new_storage()
        storage.backend, storage.block, storage.nbytes = self, block, nbytes
        storage.keeper, storage.version = None, 0
        value: Value = new_value()
        value.storage, value.meta, value.backend = storage, meta, self
        value.base = value.autograd = value._array = None
        value.keys = self.key
        return value

    def _allocate(self, nbytes: int) -> Block:
        with self.exclusive_allocator() as allocator:
            return allocator.allocate(nbytes, self.stream, context.current.owner)

    @contextmanager
    def exclusive_allocator(self) -> Iterator[CachingAllocator]:
        """The allocator, for more than one call; blocks that the garbage collector frees meanwhile are freed after."""
        before, self.in_allocator = self.in_allocator, True
        try:
            yield self.allocator
        finally:
            self.in_allocator = before
        if self.queued_frees and not before:
            self.free_queued()

    def check_room(self, nbytes: int) -> None:
        """Raise OutOfMemoryError if the session whose turn it is could not hold so many bytes."""
        with self.exclusive_allocator() as allocator:
            allocator.check_room(nbytes, context.current.owner)

    def release(self, block: Block) -> None:
        """Give a block back, or queue it where the garbage collector runs in the middle of an allocator call."""
        if self.in_allocator:
            self.queued_frees.append(block)
            return
        self.in_allocator = True
        try:
            self.allocator.free(block)
        finally:
            self.in_allocator = False
        if self.queued_frees:
            self.free_queued()

    def stop_freeing(self) -> None:
        """Free nothing from here on: the process ends, and what frees memory may be gone before the last value."""
        self.in_allocator = True

    def free_queued(self) -> None:
        """Give back the blocks that were queued while the allocator was in use."""
        while self.queued_frees:
            self.release(self.queued_frees.pop())

    def adopt(self, array: Any, meta: Meta) -> Value:
        """A value that holds what a kernel returned, in the layout and dtype that the contract promised."""
        value = self.empty(meta)
        self.store(value.array, array)
        return value
