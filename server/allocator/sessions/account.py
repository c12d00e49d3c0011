"""What one session holds, and the sizes it has asked for.

An account is a ledger with a quota and a table from requested bytes to everything that the allocator has to know to
serve that request again. Knows nothing of policy, segments or devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.allocator.core.pool import Shelf
from server.allocator.core.sizes import MIN_BLOCK, SMALL_REQUEST
from server.allocator.sessions.ledger import ALL, BYTES, LARGE, SMALL, Ledger, field, in_use

if TYPE_CHECKING:
    from server.allocator.core.private import MemPool

# Names no stream, so that the next request looks for its table.
NO_STREAM = -1
# Beyond this many different sizes the table starts anew; it only saves time.
REMEMBERED_SIZES = 4096


class Request:
    """One requested size of one session on one stream."""

    __slots__ = (
        "bin", "blocks", "charge", "cut_charge", "is_small", "nbytes", "remainder", "shelf", "size", "split_charge",
        "split_uses", "uses",
    )  # fmt: skip

    def __init__(self, nbytes: int, size: int, shelf: Shelf, *, is_oversize: bool = False) -> None:
        self.nbytes = nbytes
        self.size = size
        self.shelf = shelf
        self.bin = shelf.bin(size)
        # Where the short way looks; oversize blocks are counted and so never served by it.
        self.blocks = [] if is_oversize else self.bin.blocks
        self.is_small = shelf.pool.is_small
        self.charge = in_use(size, nbytes, self.is_small)
        # The device's charge when the block is an inactive split one, or is cut off one.
        self.cut_charge = self.charge - size * shelf.pool.one_byte
        self.split_charge = self.cut_charge - shelf.pool.one_count
        # What must remain of a larger block, at least, to cut this size off it.
        self.remainder = MIN_BLOCK if self.is_small or shelf.expands else SMALL_REQUEST + 1
        # How often it was served: from its bin by a part of a segment, and otherwise.
        self.split_uses = 0
        self.uses = 0


class Flow:
    """What went one way since the start: count, bytes and requested bytes, by pool."""

    __slots__ = ("sums",)

    def __init__(self) -> None:
        self.sums = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]

    def add(self, count: int, nbytes: int, requested: int, is_small: bool) -> None:
        """Add to one pool and to all."""
        for group in (ALL, SMALL if is_small else LARGE):
            sums = self.sums[group]
            sums[0] += count
            sums[1] += nbytes
            sums[2] += requested

    def add_flow(self, other: Flow) -> None:
        """Add another flow, field by field."""
        for mine, theirs in zip(self.sums, other.sums):
            mine[:] = [one + two for one, two in zip(mine, theirs)]


class Account(Ledger):
    """The ledger of one session."""

    __slots__ = (
        "flow",
        "num_ooms",
        "num_rejections",
        "owner",
        "quota_bytes",
        "requests",
        "requests_by_place",
        "route",
        "stream",
    )

    def __init__(self, owner: int) -> None:
        super().__init__()
        self.owner = owner
        self.stream = 0
        self.requests: dict[int, Request] = {}
        # By private pool, if any, and stream.
        self.requests_by_place: dict[tuple[MemPool | None, int], dict[int, Request]] = {(None, 0): self.requests}
        # The private pool that requests go to.
        self.route: MemPool | None = None
        self.flow = Flow()
        self.quota_bytes: int | None = None
        self.num_ooms = 0
        self.num_rejections = 0

    @property
    def active_bytes(self) -> int:
        """Bytes in use, those that wait for events included."""
        return field(self.now, ALL, BYTES)

    def turn_to(self, stream: int) -> None:
        """Make the table of one stream the one at hand."""
        if stream != self.stream:
            self.stream = stream
            self.requests = self.requests_by_place.setdefault((self.route, stream), {})

    def turn_to_pool(self, route: MemPool | None) -> None:
        """Send requests to a private pool, or to the common ones."""
        self.route = route
        self.stream = NO_STREAM

    def leave_pool(self, pool: MemPool) -> None:
        """Forget a private pool that is no more."""
        if self.route is pool:
            self.turn_to_pool(None)
        self.fold()
        self.requests_by_place = {
            place: table for place, table in self.requests_by_place.items() if place[0] is not pool
        }

    def remember(self, request: Request) -> None:
        """Serve this size from its bin from now on."""
        if len(self.requests) >= REMEMBERED_SIZES:
            self.fold()
            self.requests.clear()
        self.requests[request.nbytes] = request

    def forget_requests(self) -> None:
        """Drop all tables."""
        self.fold()
        for table in self.requests_by_place.values():
            table.clear()

    def fold(self) -> None:
        """Carry the use counts of the requests over into the flows."""
        for table in self.requests_by_place.values():
            for request in table.values():
                self._fold(request)

    def _fold(self, request: Request) -> None:
        uses, split_uses = request.uses + request.split_uses, request.split_uses
        self.flow.add(uses, uses * request.size, uses * request.nbytes, request.is_small)
        pool = request.shelf.pool
        pool.left_count += split_uses
        pool.left_bytes += split_uses * request.size
        request.uses = request.split_uses = 0
