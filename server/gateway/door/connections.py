"""How many connections there may be, of one address and together. Knows no sockets: a connection is what can be closed.

Where another does not fit, one that is idle gives way to it, so that who opens connections and sends nothing keeps
nobody out. Connections that have asked for something are told from those that never have: of the two kinds, the one
that most of the idle are of gives way, and of that kind who has been idle for the longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


class Place:
    """The place of one connection among all; ``release`` gives it up, and may be called twice."""

    __slots__ = ("_connections", "address", "close", "has_asked")

    def __init__(self, connections: Connections, address: str, close: Callable[[], object]) -> None:
        self._connections, self.address, self.close = connections, address, close
        self.has_asked = False

    def busy(self) -> None:
        """A request is being served: the connection stays."""
        self.has_asked = True
        self._connections.idle.pop(self, None)

    def rest(self) -> None:
        """Nothing is being served: the connection may be closed to make room."""
        if self in self._connections.open:
            self._connections.idle[self] = None

    def release(self) -> None:
        """The connection is closed."""
        self._connections.forget(self)


class Connections:
    """The open connections, and the limits of how many there may be."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most, self._most_of_one = most, most_of_one
        self.open: set[Place] = set()
        self.idle: dict[Place, None] = {}
        """Those that wait for a request, the one that has waited for the longest first."""
        self.refused: Counter[int] = Counter()
        """By status of the answer, what was refused before it was a request."""
        self._by_address: Counter[str] = Counter()

    def admit(self, address: str, close: Callable[[], object]) -> Place | None:
        """Return the place of a new connection; None where all are in use. ``close`` ends the connection at once."""
        if self._by_address[address] >= self._most_of_one:
            has_room = self._make_room(address)
        else:
            has_room = len(self.open) < self._most or self._make_room(None)
        if not has_room:
            return None
        place = Place(self, address, close)
        self.open.add(place)
        self.idle[place] = None
        self._by_address[address] += 1
        return place

    def _make_room(self, address: str | None) -> bool:
        """Close an idle connection, of this address or of any."""
        idle = [place for place in self.idle if address in (None, place.address)]
        if not idle:
            return False
        most_have_asked = sum(place.has_asked for place in idle) > len(idle) / 2
        oldest = next(place for place in idle if place.has_asked is most_have_asked)
        self.forget(oldest)
        oldest.close()
        return True

    def forget(self, place: Place) -> None:
        """Count the connection no longer."""
        if place in self.open:
            self.open.remove(place)
            self.idle.pop(place, None)
            self._by_address[place.address] -= 1
            if not self._by_address[place.address]:
                del self._by_address[place.address]
