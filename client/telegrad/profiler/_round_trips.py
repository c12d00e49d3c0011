"""``round_trips``: which lines of the program waited for the server, how often, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from telegrad._session.current import current_session
from telegrad._session.session import ClientSession

from ._requests import Wait, listen, stop_listening
from ._text import columns, format_time


class RoundTrip(NamedTuple):
    """All waits of one line for one reason; times in microseconds."""

    file: str
    line: int
    function: str
    reason: str
    waits: int
    total: float
    longest: float
    bytes_received: int

    @property
    def mean(self) -> float:
        """The time of one wait, in microseconds."""
        return self.total / self.waits


class RoundTrips:
    """The waits of one session from when this was made to ``stop()``, or to the end of a ``with`` block.

    Iterating gives a ``RoundTrip`` for every line and reason, the longest total first; ``print`` shows them as a table.
    """

    def __init__(self, session: ClientSession | None) -> None:
        self._session = session
        self._sums: dict[tuple[str, int, str, str], list[Any]] = {}
        if session is not None:
            listen(session, self.add)

    @staticmethod
    def of(waits: Iterable[Wait]) -> RoundTrips:
        """Return the sums of waits that were noted before."""
        sums = RoundTrips(None)
        for wait in waits:
            sums.add(wait)
        return sums

    def add(self, wait: Wait) -> None:
        """Count a wait."""
        sums = self._sums.setdefault((wait.file, wait.line, wait.function, wait.reason), [0, 0.0, 0.0, 0])
        microseconds = (wait.end - wait.begin) / 1000
        sums[0] += 1
        sums[1] += microseconds
        sums[2] = max(sums[2], microseconds)
        sums[3] += wait.nbytes

    def stop(self) -> None:
        """Count no more."""
        if self._session is not None:
            stop_listening(self._session, self.add)

    def __enter__(self) -> RoundTrips:
        return self

    def __exit__(self, *details: object) -> None:
        self.stop()

    def __iter__(self) -> Iterator[RoundTrip]:
        rows = [RoundTrip(*key, *sums) for key, sums in list(self._sums.items())]
        return iter(sorted(rows, key=lambda row: -row.total))

    def __len__(self) -> int:
        """How many waits there were."""
        return sum([sums[0] for sums in list(self._sums.values())])

    def __bool__(self) -> bool:
        return bool(self._sums)

    @property
    def total(self) -> float:
        """How long the program has waited, in microseconds."""
        return float(sum([sums[1] for sums in list(self._sums.values())]))

    def table(self, row_limit: int = 100) -> str:
        """Return a table of the lines that waited longest."""
        if not self._sums:
            return "no line of the program has waited for the server"
        rows = list(self)
        shown = [
            (
                f"{row.file}:{row.line}", row.function, row.reason, str(row.waits), format_time(row.total),
                format_time(row.mean), format_time(row.longest), str(row.bytes_received),
            )
            for row in (rows if row_limit < 0 else rows[:row_limit])
        ]  # fmt: skip
        titles = ("Line", "Function", "Why", "Waits", "Total", "Mean", "Longest", "Bytes received")
        return f"{columns(titles, shown, left=3)}\nwaited {len(self)} times, {format_time(self.total)} in all"

    __str__ = table
    __repr__ = table


def round_trips() -> RoundTrips:
    """Count, from here on, how often and how long each line of the program waits for the server.

    Such a wait is a round trip: it takes as long as the network needs, and everything queued before it. What reads a
    value waits (``item()``, ``print``, ``if tensor:``), what needs a shape that depends on data (``nonzero()``), and
    ``synchronize()``.
    """
    return RoundTrips(current_session())
