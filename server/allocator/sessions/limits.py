"""How much of a device each session may have in use, and how much the sessions of one tenant together.

Knows sessions by number only; the core refuses what is beyond the limits that are set here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from server.allocator.core.account import Account
from server.allocator.core.cache_layer import CacheLayer
from server.allocator.core.sizes import MIB
from telegrad_protocol.errors import ArgumentError

PORTION = 64 * MIB
"""What a session gets of its group's limit at once, at least, if there is so much; an eighth of what is left else."""


@dataclass
class _Group:
    """Sessions with a limit on what they have in use together: their quotas never add up to more."""

    limit: int
    members: set[int] = field(default_factory=set)


class SessionLimits:
    """The quotas that the operator granted, and the tighter ones that sessions chose within them.

    A session of a group starts with no quota at all, and gets more of the group's limit whenever it needs it; what the
    others have no use for is taken from them first. So the path of an allocation looks at one quota, whoever else there
    is.
    """

    def __init__(self, below: CacheLayer) -> None:
        self._below = below
        self._books = below.core.books
        self._upstream = below.core.upstream
        self._granted: dict[int, int | None] = {}
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[int, _Group] = {}
        below.core.raise_quota = self._raise

    def set_quota(self, owner: int, nbytes: int | None) -> None:
        """Limit the bytes in use by one session, as the operator may; None lifts the limit."""
        self._granted[owner] = nbytes
        self._set(owner, nbytes)

    def join_group(self, owner: int, name: str, nbytes: int) -> None:
        """Limit the bytes in use by all sessions that joined the group; the limit is the one that was given last."""
        group = self._groups.setdefault(name, _Group(nbytes))
        group.limit = nbytes
        group.members.add(owner)
        self._group_of[owner] = group
        self._set(owner, self._granted.get(owner))

    def set_session_fraction(self, fraction: float, owner: int) -> None:
        """Limit the bytes in use by a session to a fraction of the device's memory, within its quota."""
        if not 0.0 <= fraction <= 1.0:
            raise ArgumentError(f"set_per_process_memory_fraction: {fraction} is not between 0 and 1")
        wanted = None if fraction == 1.0 else int(fraction * self._upstream.free_and_total()[1])
        self._set(owner, _least(self._granted.get(owner), wanted))

    def session_fraction(self, owner: int) -> float:
        """Return the share of the device's memory that a session may have in use."""
        most, total = self._books.account(owner).most_bytes, self._upstream.free_and_total()[1]
        return 1.0 if most is None or not total else min(1.0, most / total)

    def forget(self, owner: int) -> None:
        """Drop the quota of a session that has ended."""
        self._granted.pop(owner, None)
        group = self._group_of.pop(owner, None)
        if group is not None:
            group.members.discard(owner)
            self._groups = {name: other for name, other in self._groups.items() if other.members}

    def _set(self, owner: int, nbytes: int | None) -> None:
        group = self._group_of.get(owner)
        if group is None:
            self._below.set_quota(owner, nbytes)
            return
        most = min(group.limit, group.limit if nbytes is None else nbytes)
        self._below.set_quota(owner, min(self._below.allocated_bytes(owner), most), most)

    def _raise(self, account: Account, size: int) -> bool:
        """Give a session so much more of its group's limit that ``size`` bytes fit, if that can be had."""
        group, wanted = self._group_of.get(account.owner), account.active_bytes + size
        if group is None or account.most_bytes is None or wanted > account.most_bytes:
            return False
        others = [self._books.account(member) for member in group.members if member != account.owner]
        spare = group.limit - sum([other.quota_bytes or 0 for other in others])
        if wanted > spare:
            for other in others:
                self._below.core.set_quota(
                    other.owner, min(other.active_bytes, other.quota_bytes or 0), other.most_bytes
                )
            spare = group.limit - sum([other.quota_bytes or 0 for other in others])
        if wanted > spare:
            return False
        granted = wanted + max(PORTION, (spare - wanted) // 8)
        self._below.core.set_quota(account.owner, min(granted, spare, account.most_bytes), account.most_bytes)
        return True


def _least(*limits: int | None) -> int | None:
    return min([limit for limit in limits if limit is not None], default=None)
