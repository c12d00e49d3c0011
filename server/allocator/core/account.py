"""What one session holds, and the sizes that it has asked for.

An account is a ledger with a quota and a table from requested bytes to everything that the allocator has to know to
serve that request again. It knows nothing of segments or devices, nor of which block serves a request.
"""

from __future__ import annotations

from server.allocator.core.block import FreeList
from server.allocator.core.counters import Accumulated
from server.allocator.core.ledger import BYTES_IN_USE, FIELD, Ledger, in_use
from server.allocator.core.mem_pool import MemPool

# The number of no stream: an account that has it selects the table of the next request's stream anew.
NO_STREAM = -1
# How many sizes a table has before it is emptied, since it only saves time.
REMEMBERED_SIZES = 4096


class Request:
    """One requested size of one session on one stream."""

    __slots__ = (
        "bin",
        "blocks",
        "charge",
        "free_list",
        "is_small",
        "min_remainder",
        "nbytes",
        "size",
        "split_charge",
        "split_off_charge",
        "split_uses",
        "uses",
    )  # fmt: skip

    def __init__(self, nbytes: int, size: int, free_list: FreeList, *, is_oversize: bool = False) -> None:
        self.nbytes = nbytes
        self.size = size
        self.free_list = free_list
        self.bin = free_list.bin(size)
        # The blocks that fast bins may hand out; oversize blocks are counted one by one, so they must not.
        self.blocks = [] if is_oversize else self.bin.blocks
        self.is_small = free_list.pool.is_small
        self.charge = in_use(size, nbytes, self.is_small)
        # The device's charge when the block is split off an inactive split block, and when it is one itself.
        self.split_off_charge = self.charge - size * free_list.pool.inactive_byte_charge
        self.split_charge = self.split_off_charge - free_list.pool.inactive_count_charge
        # How many bytes must remain of a larger block, at least, for this size to be split off it.
        self.min_remainder = free_list.pool.min_remainder
        # How often fast bins served the request with a split block of its bin, and how often otherwise.
        self.split_uses = 0
        self.uses = 0


class Account(Ledger):
    """The ledger of one session."""

    __slots__ = (
        "accumulated", "baseline", "most_bytes", "num_ooms", "num_rejections", "owner", "quota_bytes", "requests",
        "requests_by_route", "route", "stream",
    )  # fmt: skip

    def __init__(self, owner: int) -> None:
        super().__init__()
        self.owner = owner
        self.stream = 0
        self.requests: dict[int, Request] = {}
        # The tables of requests, by private pool (None: the common pools) and stream.
        self.requests_by_route: dict[tuple[MemPool | None, int], dict[int, Request]] = {(None, 0): self.requests}
        # The private pool that serves the session's requests; None: the common pools.
        self.route: MemPool | None = None
        self.accumulated = Accumulated()
        self.quota_bytes: int | None = None
        # What the quota may be raised to, where it is raised as the session asks for more; else the quota.
        self.most_bytes: int | None = None
        self.num_ooms = 0
        self.num_rejections = 0
        # The session's accumulated statistics at their last reset.
        self.baseline: dict[str, int] = {}

    @property
    def active_bytes(self) -> int:
        """The bytes in use, blocks that wait for events included."""
        return self.now >> BYTES_IN_USE & FIELD

    def select_stream(self, stream: int) -> None:
        """Look requests up in the table of one stream from now on."""
        if stream != self.stream:
            self.stream = stream
            self.requests = self.requests_by_route.setdefault((self.route, stream), {})

    def route_to(self, route: MemPool | None) -> None:
        """Send requests to a private pool, or with None to the common ones."""
        self.route = route
        self.stream = NO_STREAM

    def drop_pool(self, pool: MemPool) -> None:
        """Drop the tables of a private pool that is gone."""
        if self.route is pool:
            self.route_to(None)
        self.collect_uses()
        tables = self.requests_by_route.items()
        self.requests_by_route = {(route, stream): table for (route, stream), table in tables if route is not pool}

    def remember(self, request: Request) -> None:
        """Let fast bins serve requests of this size from now on."""
        if len(self.requests) >= REMEMBERED_SIZES:
            self.collect_uses()
            self.requests.clear()
        self.requests[request.nbytes] = request

    def forget_requests(self) -> None:
        """Empty all tables."""
        self.collect_uses()
        for table in self.requests_by_route.values():
            table.clear()

    def collect_uses(self) -> None:
        """Add the use counts of all requests to what the session has allocated so far."""
        for table in self.requests_by_route.values():
            for request in table.values():
                self._collect_uses(request)

    def _collect_uses(self, request: Request) -> None:
        uses, split_uses = request.uses + request.split_uses, request.split_uses
        self.accumulated.add(uses, uses * request.size, uses * request.nbytes, request.is_small)
        pool = request.free_list.pool
        pool.ended_inactive_count += split_uses
        pool.ended_inactive_bytes += split_uses * request.size
        request.uses = request.split_uses = 0


class Books:
    """The totals of a device, and the accounts of the sessions that share it."""

    __slots__ = ("accounts", "ended", "ledger")

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.accounts: dict[int, Account] = {}
        # What the sessions that have ended allocated.
        self.ended = Accumulated()

    def account(self, owner: int) -> Account:
        """The account of a session, opened at its first request."""
        account = self.accounts.get(owner)
        if account is None:
            account = self.accounts[owner] = Account(owner)
        return account

    def close(self, owner: int) -> None:
        """Drop the account of a session, and keep what it allocated in the totals."""
        account = self.accounts.pop(owner)
        account.collect_uses()
        self.ended.add_all(account.accumulated)

    def allocated(self) -> Accumulated:
        """What all sessions allocated so far, those that have ended included."""
        total = Accumulated()
        total.add_all(self.ended)
        for account in self.accounts.values():
            account.collect_uses()
            total.add_all(account.accumulated)
        return total

    def bytes_in_use(self, owner: int | None = None) -> int:
        """Bytes in use by one session, or by all; blocks that wait for events are included."""
        ledger = self.ledger if owner is None else self.accounts.get(owner)
        return ledger.now >> BYTES_IN_USE & FIELD if ledger is not None else 0
