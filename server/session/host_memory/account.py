"""The account of what one session makes the host hold, besides the elements of its tensors, and those of a tenant.

Python's objects cannot be counted one by one on the way of every operation. So the account has a bound, which only
grows too fast: the tensors that the session names, the nodes that were made since they were last counted, and what is
noted one by one. Where the bound passes the quota, ``census`` counts what there is. Knows no session.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from telegrad_protocol.errors import OutOfMemoryError

TENSOR_BYTES: Final = 800
"""What the host holds for a tensor that a session names, as measured: value, storage, block, history and number."""
NODE_BYTES: Final = 1200
"""What it holds for a node of a backward graph of two operands, as measured, with what the node saves of both."""
MIB: Final = 1 << 20
PORTION: Final = 16 * MIB
"""What an account gets of its tenant's limit at once, at least, where there is so much."""
GRACE: Final = 16 * MIB
"""How far a session that was told may grow before it is told again; at the third time it ends."""
_TIMES: Final = 3
_MANY: Final = 10_000
_PAUSES: Final = 2
"""After many nodes were counted, they are not counted again for so many times as long as that took, unless tensors were
freed."""

Key = TypeVar("Key")
Item = TypeVar("Item")


class HostGroup:
    """The accounts of one tenant's sessions in a worker: what they may hold together never adds up to more."""

    def __init__(self, limit: float = math.inf) -> None:
        self.limit = limit
        self.members: set[HostAccount] = set()

    def grant(self, account: HostAccount, held: int) -> float:
        """Return the new quota of an account that holds so much: as much as it already has, if there is no more."""
        most = min(account.most, self.limit)
        others = [member for member in self.members if member is not account]
        spare = self.limit - sum([other.quota for other in others])
        if held + PORTION > spare:
            for other in others:
                other.give_back()
            spare = self.limit - sum([other.quota for other in others])
        wanted = held + max(PORTION, (spare - held) / 8)
        return max(min(wanted, spare, most), 0.0) if math.isfinite(self.limit) else most


class HostAccount:
    """What one session holds, in bytes.

    The session adds to ``noted`` what it notes one by one, and to ``nodes`` the nodes that are made; ``count`` counts
    its tensors, and ``census`` its nodes, as many of two operands. It compares ``bound`` with ``quota`` itself.
    """

    __slots__ = ("_census", "_count", "_counted", "_next_census", "_times", "group", "most", "nodes", "noted", "quota")

    def __init__(self, count: Callable[[], int], census: Callable[[], int]) -> None:
        self.most = self.quota = math.inf
        self.group = HostGroup()
        self.noted = self.nodes = 0
        self._count, self._census = count, census
        self._times = 0
        self._next_census = 0.0
        self._counted = 0

    def limit(self, most: float, group: HostGroup) -> None:
        """Let the session hold so much, and its group's sessions as much together as the group says."""
        self.most, self.group = most, group
        group.members.add(self)
        self.quota = 0.0 if math.isfinite(group.limit) else most

    @property
    def bound(self) -> int:
        """At most so many bytes are held."""
        return self._count() * TENSOR_BYTES + self.nodes * NODE_BYTES + self.noted

    def settle(self, extra: int = 0) -> None:
        """Count what is held, and raise the quota for it and ``extra`` bytes, or raise OutOfMemoryError."""
        begin = time.monotonic()
        count = self._count()
        if begin >= self._next_census or count < self._counted:
            self.nodes, self._counted = self._census(), count
            end = time.monotonic()
            self._next_census = end + _PAUSES * (end - begin) if self.nodes > _MANY else 0.0
        held = self.bound + extra
        self.quota = quota = self.group.grant(self, held)
        if held <= quota:
            self._times = 0
            return
        if not extra:
            self._times += 1
            self.quota = held + GRACE
        raise self._error(held, extra)

    @property
    def is_exhausted(self) -> bool:
        """Whether the session went on growing, however often it was told."""
        return self._times >= _TIMES

    def check_room(self, nbytes: int) -> None:
        """Raise OutOfMemoryError if so many bytes more would be beyond the quota."""
        if self.bound + nbytes > self.quota:
            self.settle(nbytes)

    def note(self, nbytes: int) -> None:
        """Add what is held from now on; OutOfMemoryError where it is too much. ``forget`` takes it back."""
        self.check_room(nbytes)
        self.noted += nbytes

    def forget(self, nbytes: int) -> None:
        """Take back what was noted."""
        self.noted -= nbytes

    def give_back(self) -> None:
        """Lower the quota to what is held, for the others of the tenant."""
        self.quota = min(self.quota, self.bound)

    def close(self) -> None:
        """Leave the tenant's other sessions what this one had."""
        self.group.members.discard(self)
        self.quota = math.inf

    def _error(self, held: int, extra: int) -> OutOfMemoryError:
        tensors, nodes = self._count(), self.nodes
        limit = min(self.most, self.group.limit)
        others = sum([int(member.bound) for member in self.group.members if member is not self])
        shared = f", of which other sessions of the tenant hold {others / MIB:,.0f} MiB" if others >= MIB else ""
        wanted = f" and wants {extra / MIB:,.1f} MiB" if extra else ""
        return OutOfMemoryError(
            f"host memory quota exceeded: this session holds {(held - extra) / MIB:,.0f} MiB of the server's memory "
            f"besides the elements of its tensors{wanted}: {tensors:,} tensors, graphs of the size of {nodes:,} nodes, "
            f"and {self.noted / MIB:,.1f} MiB of lines, copies and others; the limit is {limit / MIB:,.0f} MiB"
            f"{shared} (TELEGRAD_HOST_QUOTA_BYTES, or host_memory of the tenant); delete tensors and results whose "
            "graph is not needed, use no_grad(), or read what was asked for"
        )


class Charged(dict[Key, Item], Generic[Key, Item]):
    """A table whose entries are noted in an account, at ``weight`` bytes each, or as much as ``weigh`` says."""

    def __init__(self, account: HostAccount, weight: int, weigh: Callable[[Any], int] = lambda item: 0) -> None:
        super().__init__()
        self._account, self._weight, self._weigh = account, weight, weigh

    def __setitem__(self, key: Key, item: Item) -> None:
        nbytes = self._weight + self._weigh(item)
        if key in self:
            nbytes -= self._weight + self._weigh(self[key])
        self._account.note(nbytes)
        super().__setitem__(key, item)

    def pop(self, key: Key, default: Any = None) -> Any:
        """Return the entry of a key, which is there no longer, or ``default``."""
        if key in self:
            self._account.forget(self._weight + self._weigh(self[key]))
        return super().pop(key, default)

    def clear(self) -> None:
        for item in self.values():
            self._account.forget(self._weight + self._weigh(item))
        super().clear()
