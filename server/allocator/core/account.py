"""What one session holds, and the sizes it has asked for.

An account is a ledger with a quota and a table from requested bytes to everything that the allocator has to know to
serve that request again. Knows nothing of policy, segments or devices.
"""

from __future__ import annotations

from server.allocator.core.block import FreeList
from server.allocator.core.counters import Accumulated
from server.allocator.core.ledger import ALL, BYTES, Ledger, field, in_use
from server.allocator.core.mem_pool import MemPool

# Names no stream, so that the next request looks for its table.
NO_STREAM = -1
# Beyond this many different sizes the table starts anew; it only saves time.
REMEMBERED_SIZES = 4096


class Request:
    """One requested size of one session on one stream."""

    __slots__ = (
        "bin", "blocks", "charge", "cut_charge", "free_list", "is_small", "min_remainder", "nbytes", "size",
        "split_charge", "split_uses", "uses",
    )  # fmt: skip  # fmt: skip

    def __init__(self, nbytes: int, size: int, free_list: FreeList, *, is_oversize: bool = False) -> None:
        self.nbytes = nbytes
        self.size = size
        self.free_list = free_list
        self.bin = free_list.bin(size)
        # Where the short way looks; oversize blocks are counted and so never served by it.
        self.blocks = [] if is_oversize else self.bin.blocks
        self.is_small = free_list.pool.is_small
        self.charge = in_use(size, nbytes, self.is_small)
        # The device's charge when the block is an inactive split one, or is cut off one.
        self.cut_charge = self.charge - size * free_list.pool.inactive_byte_charge
        self.split_charge = self.cut_charge - free_list.pool.inactive_count_charge
        # What must remain of a larger block, at least, to cut this size off it.
        self.min_remainder = free_list.pool.min_remainder
        # How often it was served: from its bin by a part of a segment, and otherwise.
        self.split_uses = 0
        self.uses = 0


class Account(Ledger):
    """The ledger of one session."""

    __slots__ = (
        "accumulated", "baseline", "num_ooms", "num_rejections", "owner", "quota_bytes", "requests",
        "requests_by_route", "route", "stream",
    )  # fmt: skip

    def __init__(self, owner: int) -> None:
        super().__init__()
        self.owner = owner
        self.stream = 0
        self.requests: dict[int, Request] = {}
        # By private pool, if any, and stream.
        self.requests_by_route: dict[tuple[MemPool | None, int], dict[int, Request]] = {(None, 0): self.requests}
        # The private pool that requests go to.
        self.route: MemPool | None = None
        self.accumulated = Accumulated()
        self.quota_bytes: int | None = None
        self.num_ooms = 0
        self.num_rejections = 0
        # The session's accumulated statistics at their last reset.
        self.baseline: dict[str, int] = {}

    @property
    def active_bytes(self) -> int:
        """Bytes in use, those that wait for events included."""
        return field(self.now, ALL, BYTES)

    def select_stream(self, stream: int) -> None:
        """Make the table of one stream the one at hand."""
        if stream != self.stream:
            self.stream = stream
            self.requests = self.requests_by_route.setdefault((self.route, stream), {})

    def route_to(self, route: MemPool | None) -> None:
        """Send requests to a private pool, or to the common ones."""
        self.route = route
        self.stream = NO_STREAM

    def drop_pool(self, pool: MemPool) -> None:
        """Forget a private pool that is no more."""
        if self.route is pool:
            self.route_to(None)
        self.collect_uses()
        self.requests_by_route = {
            place: table for place, table in self.requests_by_route.items() if place[0] is not pool
        }

    def remember(self, request: Request) -> None:
        """Serve this size from its bin from now on."""
        if len(self.requests) >= REMEMBERED_SIZES:
            self.collect_uses()
            self.requests.clear()
        self.requests[request.nbytes] = request

    def forget_requests(self) -> None:
        """Drop all tables."""
        self.collect_uses()
        for table in self.requests_by_route.values():
            table.clear()

    def collect_uses(self) -> None:
        """Carry the use counts of the requests over into the flows."""
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
        # What was allocated by the sessions that have ended.
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
        return field(ledger.now, ALL, BYTES) if ledger is not None else 0
