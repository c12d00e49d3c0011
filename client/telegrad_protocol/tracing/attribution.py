"""Whom the work of a GPU was done for, where CUPTI has its times.

A launch that waited has a number, and was made in a time that was noted, alone or as a part of a graph. A graph's work
is told apart by its order, if there is as much of it as was counted. Any other launch belongs to the innermost span in
which CUDA was called. The clocks of CUPTI and of the worker may differ by some microseconds, so numbers and order
decide before times do; work for which neither fits belongs to what contains all operations that it can belong to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from . import recording
from .recording import DeviceWork, FlushRow, PartRow, rows_of
from .spans import Clock, Finder, KernelSpan, Span

_SHIFTS: Final = (0.0, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 8.0, -8.0)
"""By how many microseconds clocks are taken to differ, until each launch that was noted has work."""


class _Group:
    """What one call of CUDA has launched, in the order in which the GPU has begun it; ``at`` is the call's middle."""

    __slots__ = ("at", "is_taken", "kernels")

    def __init__(self, kernels: list[KernelSpan]) -> None:
        self.kernels = sorted(kernels, key=lambda kernel: kernel.begin)
        call = self.kernels[0].call
        self.at = self.kernels[0].begin if call is None else (call.begin + call.end) / 2
        self.is_taken = False

    @property
    def is_graph(self) -> bool:
        """Whether it is the work of a graph."""
        return any([kernel.row.graph for kernel in self.kernels])


class _Run:
    """Launches that were made directly one after the other: the rows of one, or one row of several made together."""

    def __init__(self, rows: Sequence[FlushRow], clock: Clock) -> None:
        self.rows = rows
        self._begins, self._end = [clock(row.begin) for row in rows], clock(rows[-1].end)

    def placed(self, groups: Sequence[_Group], times: Sequence[float], shift: float) -> list[list[_Group]]:
        """Return for each row the groups of its time that are not taken, with the clocks so far apart."""
        placed: list[list[_Group]] = [[] for _ in self.rows]
        begin, end = bisect_right(times, self._begins[0] + shift), bisect_right(times, self._end + shift)
        for group in groups[begin:end]:
            if not group.is_taken:
                placed[bisect_right(self._begins, group.at - shift) - 1].append(group)
        return [_possible(row, together) for row, together in zip(self.rows, placed, strict=True)]

    def fits(self, placed: Sequence[Sequence[_Group]]) -> bool:
        """Whether each launch has work, and several that were made together are one graph."""
        return all([
            bool(together) if row.launches == 1 else len(together) == 1 for row, together in zip(self.rows, placed)
        ])  # fmt: skip

    def holds(self, place: int, group: _Group) -> bool:
        """Whether a row's time contains the whole call."""
        call, end = group.kernels[0].call, [*self._begins[1:], self._end][place]
        return call is not None and self._begins[place] <= call.begin and call.end <= end


def _possible(row: FlushRow, groups: list[_Group]) -> list[_Group]:
    """Return those of the groups that can be the row's: several launches that were made together are a graph."""
    graphs = [group for group in groups if group.is_graph]
    return graphs if graphs and row.launches > 1 else groups


def _runs(rows: Iterable[FlushRow], clock: Clock) -> list[_Run]:
    runs: list[list[FlushRow]] = []
    for row in rows:
        if runs and row.launches == runs[-1][-1].launches == 1 and row.begin == runs[-1][-1].end:
            runs[-1].append(row)
        else:
            runs.append([row])
    return [_Run(run, clock) for run in runs]


class Attribution:
    """Finds whom work was done for; ``launched_for`` has the innermost spans that have asked for numbered launches."""

    def __init__(self, spans: list[Span], launched_for: Mapping[tuple[int, int], Span], clock: Clock) -> None:
        self._finder, self._launched_for, self._clock = Finder(spans), launched_for, clock
        self._parts: dict[int, int] = {}

    def owners(self, work: DeviceWork, kernels: Iterable[KernelSpan]) -> Iterator[tuple[KernelSpan, Span | None]]:
        """Yield the work of a GPU with the spans that it was done for."""
        by_call: dict[int, list[KernelSpan]] = {}
        for kernel in kernels:
            by_call.setdefault(kernel.row.correlation, []).append(kernel)
        groups = sorted(map(_Group, by_call.values()), key=lambda group: group.at)
        yield from self._of_numbered(work, groups)
        for group in groups:
            if not group.is_taken:
                span = self._finder.innermost(group.at)
                for kernel in group.kernels:
                    yield kernel, _no_operation(span) if group.is_graph else span

    def _of_numbered(self, work: DeviceWork, groups: list[_Group]) -> Iterator[tuple[KernelSpan, Span | None]]:
        self._parts = {part.launch: part.kernels for part in rows_of(PartRow, work.parts)}
        times = [group.at for group in groups]
        runs = _runs(rows_of(FlushRow, work.flushes), self._clock)
        for shift in _SHIFTS if not work.dropped else _SHIFTS[:1]:
            remaining = []
            for run in runs:
                placed = run.placed(groups, times, shift)
                if run.fits(placed):
                    yield from self._of_rows(work.device, run.rows, placed)
                else:
                    remaining.append(run)
            runs = remaining
        for run in runs:
            yield from self._of_misfit(work.device, run, run.placed(groups, times, 0.0))

    def _of_rows(
        self, device: int, rows: Sequence[FlushRow], placed: Sequence[Sequence[_Group]]
    ) -> Iterator[tuple[KernelSpan, Span | None]]:  # fmt: skip
        for row, together in zip(rows, placed, strict=True):
            kernels = _taken(together)
            spans = self._asked_for(device, row)
            places = _places(kernels, [self._parts.get(row.first + place, 1) for place in range(row.launches)])
            if places is None:
                spans, places = [_common(spans)], [0] * len(kernels)
            yield from zip(kernels, map(spans.__getitem__, places), strict=True)

    def _of_misfit(
        self, device: int, run: _Run, placed: Sequence[Sequence[_Group]]
    ) -> Iterator[tuple[KernelSpan, Span | None]]:  # fmt: skip
        """Yield by order where there is one call for each launch, else by time what was called within one row's."""
        together = [group for groups in placed for group in groups]
        if len(together) == len(run.rows):
            yield from self._of_rows(device, run.rows, [[group] for group in together])
            return
        certain = [[group for group in groups if run.holds(place, group)] for place, groups in enumerate(placed)]
        yield from self._of_rows(device, run.rows, certain)
        everyone = _common([span for row in run.rows for span in self._asked_for(device, row)])
        for kernel in _taken([group for group in together if not group.is_taken]):
            yield kernel, everyone

    def _asked_for(self, device: int, row: FlushRow) -> list[Span | None]:
        """Return the spans that have asked for a row's launches, in the order of these."""
        numbers = range(row.first, row.first + row.launches)
        around = self._finder.innermost(self._clock(row.begin))
        return [self._launched_for.get((device, number), around) for number in numbers]


def _taken(groups: Sequence[_Group]) -> list[KernelSpan]:
    for group in groups:
        group.is_taken = True
    return [kernel for group in groups for kernel in group.kernels]


def _places(kernels: Sequence[KernelSpan], counted: Sequence[int]) -> list[int] | None:
    """Return which launch of some that were made together each of their kernels belongs to; None if that is unknown.

    ``counted`` is how many kernels each of them has. Where that has not counted a second kernel in which cuBLASLt adds
    up the parts of a product, such a kernel belongs to the launch before it.
    """
    if len(counted) == 1:
        return [0] * len(kernels)
    places = [place for place, count in enumerate(counted) for _ in range(count)]
    if len(places) == len(kernels) or not kernels:
        return places[: len(kernels)]
    firsts = [number == 0 or "splitKreduce" not in kernel.name for number, kernel in enumerate(kernels)]
    own = list(accumulate(firsts, initial=-1))[1:]
    return [places[number] for number in own] if len(places) == own[-1] + 1 else None


def _common(spans: Sequence[Span | None]) -> Span | None:
    """Return the innermost span that contains all of these, or is the only one of them."""
    common = _line(spans[0]) if spans else []
    for span in {id(span): span for span in spans}.values():
        line = {id(one) for one in _line(span)}
        common = [one for one in common if id(one) in line]
    return common[0] if common else None


def _line(span: Span | None) -> list[Span]:
    """Return a span and those that contain it, the innermost first."""
    line = []
    while span is not None:
        line.append(span)
        span = span.parent
    return line


def _no_operation(span: Span | None) -> Span | None:
    """Return the innermost span around that is no operation, since these launch no graphs."""
    return next((one for one in _line(span) if one.kind != recording.OPERATION), None)
