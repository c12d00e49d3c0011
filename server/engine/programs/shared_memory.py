"""Memory that captured work shares: executions that follow each other on one stream need it one at a time.

What an execution leaves in it is copied out before the next one begins, so nothing of it is ever needed twice.
"""

from __future__ import annotations

from typing import Final

from server.allocator import Block
from server.engine import context
from server.engine.value import Backend
from telegrad_protocol.errors import InternalError

FIRST_BYTES: Final = 8 << 20
MOST_BYTES: Final = 32 << 20
"""Work that needs more is not captured so: it keeps a device busy anyway, and copies would cost more than launches."""


class Memory:
    """A block for captured work, given back with the last work that was captured on it.

    It is accounted to the session, or to the server, as its libraries' scratch memory is.
    """

    __slots__ = ("_backend", "_block", "_users", "nbytes")

    def __init__(self, backend: Backend, nbytes: int, *, is_servers: bool = False) -> None:
        owner = 0 if is_servers else context.current.owner
        with backend.exclusive_allocator() as allocator:
            self._block: Block | None = allocator.allocate(nbytes, backend.stream, owner)
        self._backend, self._users, self.nbytes = backend, 0, nbytes

    def __del__(self) -> None:
        block, self._block = getattr(self, "_block", None), None
        if block is not None:
            self._backend.release(block)

    @property
    def block(self) -> Block:
        """What an arena of the session whose turn it is takes its parts from."""
        block = self._block
        if block is None:
            raise InternalError("memory of captured work was given back")
        return Block(block.segment, block.offset, block.size, block.stream, context.current.owner)

    def enter(self) -> None:
        """Note that work was captured on it."""
        self._users += 1

    def leave(self) -> None:
        """Note that such work is no more; with the last it is given back. Finalizers may call this at any time."""
        block = self._without_users()
        if block is not None:
            self._backend.release(block)

    def leave_at_once(self) -> None:
        """The same from within a call of the allocator that is short of memory: it finds the memory free afterwards."""
        block = self._without_users()
        if block is not None:
            with self._backend.exclusive_allocator() as allocator:
                allocator.free(block)

    def _without_users(self) -> Block | None:
        """Count one user less; return the block if that was the last one."""
        self._users -= 1
        if self._users:
            return None
        block, self._block, self.nbytes = self._block, None, 0
        return block


class SharedMemory:
    """The memory of one session on one device, which grows with what is captured on it."""

    __slots__ = ("_backend", "_last")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._last: Memory | None = None

    def of(self, nbytes: int) -> Memory | None:
        """Return memory of at least so many bytes; None where that is too much. May raise OutOfMemoryError."""
        if nbytes > MOST_BYTES:
            return None
        if self._last is None or self._last.nbytes < nbytes:
            size = FIRST_BYTES
            while size < nbytes:
                size *= 2
            self._last = Memory(self._backend, size, is_servers=True)
        return self._last
