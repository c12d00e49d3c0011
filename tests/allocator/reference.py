"""PyTorch's caching algorithm written plainly, as the reference of the property tests.

Every question is answered by looking at all blocks and every statistic by counting them again, so that nothing here
shares a data structure, or a shortcut, with the allocator under test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from server.allocator import AllocatorConfig
from server.allocator.core.sizes import MIB

GROUPS = ("all", "small_pool", "large_pool")
FREE, IN_USE, WAITING, UNMAPPED = "free", "in use", "waiting", "unmapped"


@dataclass(eq=False)
class Piece:
    offset: int
    size: int
    state: str = FREE
    requested: int = 0
    streams: set[int] = field(default_factory=set)
    events: list[int] = field(default_factory=list)
    born: int = 0


@dataclass(eq=False)
class Stretch:
    pointer: int
    size: int
    stream: int
    small: bool
    pieces: list[Piece]
    page: int = 0

    def mapped(self) -> int:
        return sum(piece.size for piece in self.pieces if piece.state != UNMAPPED)

    def whole(self) -> bool:
        return len(self.pieces) == 1


class OutOfMemory(Exception):
    pass


class ReferenceAllocator:
    """A device of ``size`` bytes; addresses are handed out in order, as by the simulated device."""

    def __init__(
        self, size: int, config: AllocatorConfig, fraction: float | None, first_address: int = 1 << 40
    ) -> None:
        self.size = size
        self.config = config
        self.allowed = None if fraction is None else int(fraction * size)
        self.next_address = first_address
        self.stretches: list[Stretch] = []
        self.events: dict[int, list[tuple[int, Stretch, Piece]]] = {}
        self.event_count = 0
        self.unfinished: set[int] = set()
        self.searches = {True: 0, False: 0}
        self.counters = dict.fromkeys(
            ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"), 0
        )
        self.stats: dict[str, list[int]] = {key: [0, 0, 0, 0] for key in self.recount()}

    def recount(self) -> dict[str, int]:
        """Every current amount, counted from the blocks."""
        names = (
            "allocation", "allocated_bytes", "active", "active_bytes", "requested_bytes", "inactive_split",
            "inactive_split_bytes", "segment", "reserved_bytes",
        )  # fmt: skip
        counts = {f"{name}.{group}": 0 for name in names for group in GROUPS}
        counts |= {"oversize_allocations": 0, "oversize_segments": 0}
        for stretch in self.stretches:
            own = "small_pool" if stretch.small else "large_pool"
            for group in ("all", own):
                counts[f"segment.{group}"] += not stretch.page
                counts[f"reserved_bytes.{group}"] += stretch.mapped()
            counts["oversize_segments"] += not stretch.page and stretch.size >= self.config.max_split_size
            for piece in stretch.pieces:
                if piece.state == UNMAPPED:
                    continue
                counts["oversize_allocations"] += piece.state == IN_USE and piece.size >= self.config.max_split_size
                for group in ("all", own):
                    if piece.state == IN_USE:
                        counts[f"allocation.{group}"] += 1
                        counts[f"allocated_bytes.{group}"] += piece.size
                    if piece.state != FREE:
                        counts[f"active.{group}"] += 1
                        counts[f"active_bytes.{group}"] += piece.size
                        counts[f"requested_bytes.{group}"] += piece.requested
                    elif not stretch.whole() and not stretch.page:
                        counts[f"inactive_split.{group}"] += 1
                        counts[f"inactive_split_bytes.{group}"] += piece.size
        return counts

    def observe(self) -> None:
        """Account for the one change since the last time."""
        for key, now in self.recount().items():
            stat = self.stats[key]
            difference = now - stat[0]
            stat[0] = now
            stat[1] = max(stat[1], now)
            stat[2] += max(difference, 0)
            stat[3] += max(-difference, 0)

    def table(self) -> dict[str, int]:
        parts = ("current", "peak", "allocated", "freed")
        flat = {f"{key}.{part}": stat[at] for key, stat in self.stats.items() for at, part in enumerate(parts)}
        return flat | self.counters

    def find(self, size: int, stream: int, small: bool) -> tuple[Stretch, Piece] | None:
        self.searches[small] += 1
        fitting = [
            (piece.size, stretch.pointer + piece.offset, stretch, piece)
            for stretch in self.stretches
            if stretch.stream == stream and stretch.small == small
            for piece in stretch.pieces
            if piece.state == FREE and piece.size >= size
        ]
        if not fitting:
            return None
        fitting.sort(key=lambda entry: entry[:2])
        at = 0
        while at + 1 < len(fitting) and self.room(*fitting[at + 1]) < self.room(*fitting[at]):
            at += 1
        best = fitting[at]
        limit = self.config.max_split_size
        if size < limit and best[0] >= limit:
            return None
        if size >= limit and best[0] >= size + self.config.max_non_split_rounding:
            return None
        return best[2], best[3]

    def room(self, size: int, address: int, stretch: Stretch, piece: Piece) -> int:
        """How large a free piece can grow."""
        following = stretch.pieces[stretch.pieces.index(piece) + 1 :]
        return size + (following[0].size if following and following[0].state == UNMAPPED else 0)

    def reserved(self) -> int:
        return sum(stretch.mapped() for stretch in self.stretches)

    def expand(self, size: int, stream: int, small: bool) -> tuple[Stretch, Piece] | None:
        """Free bytes in a row from mapping what is missing, at the lowest gap where that is possible."""
        stretch, at = self.place_to_grow(size, stream, small)
        needed = size
        while True:
            piece = stretch.pieces[at]
            if piece.state == FREE and piece.size >= size:
                return stretch, piece
            if piece.state == FREE:
                at, needed = at + 1, size - piece.size
                piece = stretch.pieces[at]
            nbytes = -(-min(needed, piece.size) // stretch.page) * stretch.page
            if self.reserved() + nbytes > self.size:
                return None
            rest = Piece(piece.offset + nbytes, piece.size - nbytes, UNMAPPED)
            piece.size, piece.state = nbytes, FREE
            if rest.size:
                stretch.pieces.insert(at + 1, rest)
            self.counters["num_device_alloc"] += 1
            piece = self.merge(stretch, piece)
            at = stretch.pieces.index(piece)
            self.observe()

    def place_to_grow(self, size: int, stream: int, small: bool) -> tuple[Stretch, int]:
        for stretch in self.stretches:
            if stretch.stream != stream or stretch.small != small:
                continue
            for at, piece in enumerate(stretch.pieces):
                if piece.state != UNMAPPED:
                    continue
                start = at - 1 if at and stretch.pieces[at - 1].state == FREE else at
                available = takewhile(lambda each: each.state in (FREE, UNMAPPED), stretch.pieces[start:])
                if sum(each.size for each in available) >= size:
                    return stretch, start
        page = (2 if small else 20) * MIB
        nbytes = -(-(self.size + self.size // 8) // page) * page
        stretch = Stretch(self.next_address, nbytes, stream, small, [Piece(0, nbytes, UNMAPPED)], page)
        self.next_address += nbytes
        self.stretches.append(stretch)
        return stretch, 0

    def unmap(self, stretch: Stretch, piece: Piece) -> None:
        """Take the memory from the whole pages of a free piece."""
        begin = -(-piece.offset // stretch.page) * stretch.page
        end = (piece.offset + piece.size) // stretch.page * stretch.page
        if begin >= end:
            return
        parts = [
            Piece(piece.offset, begin - piece.offset),
            Piece(begin, end - begin, UNMAPPED),
            Piece(end, piece.offset + piece.size - end),
        ]
        at = stretch.pieces.index(piece)
        stretch.pieces[at : at + 1] = [part for part in parts if part.size]
        self.merge(stretch, parts[1])
        if stretch.whole():
            self.stretches.remove(stretch)
        self.counters["num_device_free"] += 1
        self.observe()

    def merge(self, stretch: Stretch, piece: Piece) -> Piece:
        """Join a piece with its neighbours of the same state."""
        pieces = stretch.pieces
        at = pieces.index(piece)
        if at + 1 < len(pieces) and pieces[at + 1].state == piece.state:
            piece.size += pieces.pop(at + 1).size
        if at and pieces[at - 1].state == piece.state:
            before = pieces.pop(at - 1)
            piece.offset, piece.size = before.offset, piece.size + before.size
        return piece

    def obtain(self, size: int, stream: int, small: bool) -> tuple[Stretch, Piece] | None:
        if size <= MIB:
            nbytes = 2 * MIB
        elif size < 10 * MIB:
            nbytes = 20 * MIB
        else:
            nbytes = -(-size // (2 * MIB)) * 2 * MIB
        if self.allowed is not None and self.reserved() + nbytes > self.allowed:
            return None
        if self.config.expandable_segments:
            return self.expand(size, stream, small)
        if self.reserved() + nbytes > self.size:
            return None
        piece = Piece(0, nbytes, born=self.searches[small])
        stretch = Stretch(self.next_address, nbytes, stream, small, [piece])
        self.next_address += nbytes
        self.stretches.append(stretch)
        self.counters["num_device_alloc"] += 1
        self.observe()
        return stretch, piece

    def release(self, stretch: Stretch) -> None:
        self.stretches.remove(stretch)
        self.counters["num_device_free"] += 1
        self.observe()

    def idle(self, small: bool | None = None) -> list[Stretch]:
        """The wholly free segments."""
        return [
            stretch
            for stretch in self.stretches
            if stretch.whole() and stretch.pieces[0].state == FREE and small in (None, stretch.small)
        ]

    def collect(self) -> None:
        if self.allowed is None or self.config.garbage_collection_threshold == 0.0:
            return
        if self.config.expandable_segments:
            return
        target = self.reserved() - int(self.config.garbage_collection_threshold * self.allowed)
        reclaimed = 0
        while reclaimed < target:
            ages = {stretch: self.searches[False] - stretch.pieces[0].born for stretch in self.idle(small=False)}
            old = [stretch for stretch, age in ages.items() if age >= sum(ages.values()) / len(ages)]
            if not old:
                return
            for stretch in old:
                reclaimed += stretch.size
                self.release(stretch)

    def release_available(self, size: int, stream: int, small: bool) -> bool:
        limit = self.config.max_split_size
        if self.config.expandable_segments:
            return False
        oversize = [
            stretch
            for stretch in self.idle(small)
            if stretch.stream == stream and stretch.size >= limit
        ]  # fmt: skip
        oversize.sort(key=lambda stretch: (stretch.size, stretch.pointer))
        wanted = max(size, limit)
        enough = [stretch for stretch in oversize if stretch.size >= wanted]
        if enough:
            self.release(enough[0])
            return True
        released = 0
        while oversize and released < wanted:
            stretch = oversize.pop()
            released += stretch.size
            self.release(stretch)
        return released >= wanted

    def release_all(self) -> None:
        self.counters["num_sync_all_streams"] += 1
        self.unfinished.clear()
        self.process_events()
        if self.config.expandable_segments:
            for stretch in list(self.stretches):
                for piece in [piece for piece in stretch.pieces if piece.state == FREE]:
                    self.unmap(stretch, piece)
            self.stretches = [stretch for stretch in self.stretches if stretch.mapped()]
            return
        for stretch in self.idle():
            self.release(stretch)

    def allocate(self, nbytes: int, stream: int) -> tuple[int, Stretch, Piece]:
        self.process_events()
        size = self.config.round_size(nbytes)
        small = size <= MIB
        found = self.find(size, stream, small)
        if found is None:
            self.collect()
            found = self.obtain(size, stream, small)
        if found is None and self.release_available(size, stream, small):
            found = self.obtain(size, stream, small)
        if found is None:
            self.release_all()
            self.counters["num_alloc_retries"] += 1
            found = self.obtain(size, stream, small)
        if found is None:
            self.counters["num_ooms"] += 1
            raise OutOfMemory
        stretch, piece = found
        remaining = piece.size - size
        if (
            remaining >= 512
            if small or self.config.expandable_segments
            else (size < self.config.max_split_size and remaining > MIB)
        ):
            rest = Piece(piece.offset + size, remaining, born=self.searches[small])
            stretch.pieces.insert(stretch.pieces.index(piece) + 1, rest)
            piece.size = size
        piece.state, piece.requested = IN_USE, nbytes
        self.observe()
        return stretch.pointer + piece.offset, stretch, piece

    def free(self, stretch: Stretch, piece: Piece) -> None:
        if not piece.streams:
            self.complete(stretch, piece)
            return
        piece.state = WAITING
        for stream in sorted(piece.streams):
            self.event_count += 1
            self.unfinished.add(self.event_count)
            piece.events.append(self.event_count)
            self.events.setdefault(stream, []).append((self.event_count, stretch, piece))
        piece.streams = set()
        self.observe()

    def complete(self, stretch: Stretch, piece: Piece) -> None:
        piece.state, piece.born = FREE, self.searches[stretch.small]
        self.merge(stretch, piece)
        self.observe()

    def process_events(self) -> None:
        for stream, queue in list(self.events.items()):
            while queue and queue[0][0] not in self.unfinished:
                event, stretch, piece = queue.pop(0)
                piece.events.remove(event)
                if not piece.events:
                    self.complete(stretch, piece)
            if not queue:
                del self.events[stream]

    def check(self) -> None:
        """The pieces of a segment tile it, and no two neighbours are free."""
        for stretch in self.stretches:
            assert stretch.pieces[0].offset == 0
            assert sum(piece.size for piece in stretch.pieces) == stretch.size
            for one, other in pairwise(stretch.pieces):
                assert one.offset + one.size == other.offset
                assert one.state != other.state or one.state not in (FREE, UNMAPPED)
