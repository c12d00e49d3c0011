"""The launches of a device while somebody traces them: when they were made, and which numbers they have.

A queue of launches is given another class meanwhile, so that it does nothing more otherwise. Launches are numbered in
the order in which they were asked for. Knows no CUDA.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from server.engine.device.launch_queue import LaunchQueue
from server.engine.replay.launch_sequences import Launch, perform
from server.engine.replay.launch_sequences import Sequence as Launches

now: Final = time.monotonic_ns
MOST_FLUSHES: Final = 1 << 18
"""So many times at which launches were made are noted; later ones are missing."""


class LaunchLog:
    """When launches were made: rows of four numbers, as ``recording.FlushRow`` names them.

    ``made`` is how many were made so far, ``waiting`` are those that were asked for after them: the number of the next
    launch is ``made + len(waiting)``. Several sessions may read one log; each takes the rows of its own time.
    """

    def __init__(self, waiting: list[Launch]) -> None:
        self.made = 0
        self.waiting = waiting
        self.rows = array("q")
        self.parts = array("q")
        """Rows of two numbers, as ``recording.PartRow`` names them."""
        self.readers = 0
        self.waits = True
        self.graph: tuple[int, int, int, Sequence[int]] | None = None
        """When the graph was launched that was expected last, until when, the number of its first launch, and counts.

        What was counted is how many launches it has before the first step, and after each.
        """
        self._is_expected = False

    def note(self, begin: int, count: int) -> int:
        """Note launches that were made from a time until now, which is returned."""
        end = now()
        if len(self.rows) < 4 * MOST_FLUSHES:
            self.rows.extend((begin, end, self.made, count))
        self.made += count
        return end

    def note_parts(self, counts: Sequence[int]) -> None:
        """Note that a graph of the launches that are made next has these counts, where that is not one for each."""
        if len(self.parts) < 2 * MOST_FLUSHES:
            for launch, (before, after) in enumerate(pairwise(counts), self.made):
                if after - before != 1:
                    self.parts.extend((launch, after - before))

    def expect_graph(self, is_expected: bool) -> bool:
        """Have the graph that is launched next, by its owner, be noted as its launches; returns what was so before.

        Of graphs that are not expected it is not known what they consist of.
        """
        if is_expected:
            self.graph = None
        before, self._is_expected = self._is_expected, is_expected
        return before

    def note_graph(self, begin: int, counts: Sequence[int]) -> None:
        """Note that a graph was launched from a time until now, of which this was counted."""
        is_expected, self._is_expected = self._is_expected, False
        if is_expected and counts:
            first = self.made
            self.graph = begin, self.note(begin, counts[-1] - counts[0]), first, counts


_LOGS: dict[LaunchQueue, LaunchLog] = {}


class TracedLaunchQueue(LaunchQueue):
    """A queue whose launches are noted: those of a sequence that is replayed together, any others one by one."""

    __slots__ = ()

    def _make(self) -> None:
        log, count = _LOGS[self], len(self.waiting)
        begin, made, expected = now(), log.made, log.expect_graph(False)
        super()._make()
        log.expect_graph(expected)
        if log.made == made:  # nobody has noted them, so they were a graph
            if self.sequences.launched is not None:
                log.note_parts(self.sequences.launched.counts)
            log.note(begin, count)

    def _perform(self, sequence: Launches) -> int:
        log = _LOGS[self]
        if len(log.rows) + 4 * len(sequence) > 4 * MOST_FLUSHES:
            log.made += len(sequence)
            perform(sequence)
            return 0
        failure: Exception | None = None
        note, made, at = log.rows.extend, log.made, now()
        for launch, *arguments in sequence:
            try:
                launch(*arguments)
            except Exception as error:
                failure = failure or error
            begin, at = at, now()
            note((begin, at, made, 1))
            made += 1
        log.made = made
        if failure is not None:
            raise failure
        return 0


class EagerLaunchQueue(LaunchQueue):
    """A queue in which nothing waits, so that times between two events are those of one operation."""

    __slots__ = ()

    def allow(self) -> None:
        """Leave it as it is: no launch may wait."""


def traced(queue: LaunchQueue, waits: bool) -> LaunchLog:
    """Note the launches of a queue from here on; they do not wait for each other unless ``waits``."""
    queue.flush()
    log = _LOGS.get(queue)
    if log is None:
        log = _LOGS[queue] = LaunchLog(queue.waiting)
        log.waits = waits
        queue.disallow()
        queue.__class__ = TracedLaunchQueue if waits else EagerLaunchQueue
    log.readers += 1
    return log


def untraced(queue: LaunchQueue) -> None:
    """End ``traced`` for one reader."""
    log = _LOGS.get(queue)
    if log is None:
        return
    log.readers -= 1
    if not log.readers:
        queue.flush()
        queue.__class__ = LaunchQueue
        del _LOGS[queue]
