"""Finds for which sizes a recorded program holds: which hints share a size, and where the ranges end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from telegrad.fx._sizes.fitting import Point
from telegrad_protocol.errors import ProgramError

from ._recording import Recording
from ._samples import LARGE, Samples, Symbol

_MOST_JOINED: Final = 3
"""So many other dimensions without names are tried to have the size of one."""

Record = Callable[[dict[str, int]], Recording]
"""Records the module with these sizes of symbols; those that are not named have the size of the example."""


def settle(symbols: Sequence[Symbol], record: Record) -> tuple[Samples, dict[str, str | None]]:
    """Return recordings that tell the program of all sizes, and what became of the symbols of hints.

    A hint's symbol that cannot vary alone varies with another one of its size, whose name is told; or not at all, for
    which None is told: then it is static.
    """
    kept = [symbol for symbol in symbols if symbol.is_named]
    became: dict[str, str | None] = {}
    hints = [symbol for symbol in symbols if not symbol.is_named]
    for symbol in hints:
        if _varies(symbol, [symbol], kept, became, record):
            kept.append(symbol)
            became[symbol.name] = symbol.name
            _find_factor(symbol, kept, became, record)
    for symbol in hints:
        if symbol.name not in became:
            _join(symbol, [other for other in hints if other.name not in became], kept, became, record)
    samples = _samples(kept, became, record)
    samples.first()
    samples.moved = [samples.moved_by_one(index) for index in range(len(kept))]
    for index, symbol in enumerate(kept):
        if not symbol.is_named and abs(samples.moved[index][index] - symbol.base) == 1:
            _narrow(samples, index, symbol)
    _record_more(samples)
    within = samples.points
    for index, symbol in enumerate(kept):
        _find_range(samples, index, symbol)
    _fit(samples, within)
    _admit_empty(samples, [index for index, symbol in enumerate(kept) if symbol.takes_none and symbol.min == 1])
    return samples, became


def _fit(samples: Samples, within: Sequence[Point]) -> None:
    """Find formulas that hold in all ranges; or in a part of those of hints, whose ranges are narrowed to it."""
    try:
        samples.sizes()
    except ProgramError:
        if not any([_holds_in_a_part(samples, points) for points in (within, *_parts(samples, within))]):
            raise
        for index, symbol in enumerate(samples.symbols):
            if not symbol.is_named:
                _narrow_to_formulas(samples, index, symbol)


def _parts(samples: Samples, within: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield the points from the example on, and those next to it, from which hints are then thought to be moved."""
    yield [point for point in within if all([size >= base for size, base in zip(point, samples.base, strict=True)])]
    near = [samples.with_size(index, size + 1) for index, size in enumerate(samples.base)]
    samples.moved = [
        near[index] if not symbol.is_named and near[index] in within else samples.moved[index]
        for index, symbol in enumerate(samples.symbols)
    ]
    yield [point for point in within if all([abs(a - b) < 2 for a, b in zip(point, samples.base, strict=True)])]


def _holds_in_a_part(samples: Samples, points: Sequence[Point]) -> bool:
    return any([not symbol.is_named for symbol in samples.symbols]) and samples.fit(points)


def _narrow_to_formulas(samples: Samples, index: int, symbol: Symbol) -> None:
    def holds(size: int) -> bool:
        return samples.does_the_same_at(samples.with_size(index, size))

    if not holds(symbol.min):
        symbol.min = _last(holds, symbol.base, symbol.min)
    high = _far(symbol) if symbol.max is None else symbol.max
    if not holds(high):
        symbol.max = _last(holds, max(symbol.base, samples.moved[index][index]), high)


def _admit_empty(samples: Samples, indices: Sequence[int]) -> None:
    """Let symbols be 0 where the module does the same on tensors without elements, for each alone and for all."""
    empty = [index for index in indices if samples.does_the_same_at(samples.with_size(index, 0))]
    if len(empty) > 1:
        point = tuple([0 if index in empty else size for index, size in enumerate(samples.base)])
        empty = empty if samples.does_the_same_at(point) else empty[:1]
    for index in empty:
        samples.symbols[index].min = 0


def _samples(kept: Sequence[Symbol], became: dict[str, str | None], record: Record) -> Samples:
    def at(point: Point) -> Recording:
        sizes = {symbol.name: size * symbol.factor for symbol, size in zip(kept, point, strict=True)}
        joined = {name: sizes[to] for name, to in became.items() if to is not None and to in sizes}
        return record({**sizes, **joined})

    return Samples(list(kept), at)


def _join(
    symbol: Symbol, waiting: Sequence[Symbol], kept: list[Symbol], became: dict[str, str | None], record: Record
) -> None:  # fmt: skip
    """Find the symbols of the same size with which one varies, and note what becomes of it and of them."""
    for other in [other for other in kept if other.base * other.factor == symbol.base]:
        if _varies(other, [symbol], kept, became, record):
            became[symbol.name] = other.name
            return
    same = [other for other in waiting if other.base == symbol.base and other is not symbol]
    for count in range(1, min(len(same), _MOST_JOINED) + 1):
        for chosen in itertools.combinations(same, count):
            together = [symbol, *chosen]
            if _varies(symbol, together, kept, became, record):
                kept.append(symbol)
                became.update(dict.fromkeys([one.name for one in together], symbol.name))
                _find_factor(symbol, kept, became, record)
                return
    if symbol.kind == "DYNAMIC":
        _samples([*kept, symbol], became, record).moved_by_one(len(kept))  # raises what is wrong
    became[symbol.name] = None


def _find_factor(symbol: Symbol, kept: Sequence[Symbol], became: dict[str, str | None], record: Record) -> None:
    """Have a hint's dimension be a multiple of what it has to be one of, if it cannot be moved by one."""
    samples, index = _samples(kept, became, record), kept.index(symbol)
    for factor in [factor for factor in range(1, symbol.base + 1) if symbol.base % factor == 0]:
        above = [*filter(symbol.takes, (symbol.base + factor, symbol.base + 3 * factor))]
        below = [*filter(symbol.takes, (symbol.base - factor, symbol.base - 2 * factor))]
        for near in (above, below):
            if near and all([samples.is_recorded_at(samples.with_size(index, size)) for size in near]):
                symbol.count_by(factor)
                return


def _varies(
    leader: Symbol, joined: Sequence[Symbol], kept: Sequence[Symbol], became: dict[str, str | None], record: Record
) -> bool:  # fmt: skip
    """Whether the module does the same where these hints have the size of ``leader``, and that is another one."""
    tried = {**became, **{symbol.name: leader.name for symbol in joined}}
    varied = list(kept) if leader in kept else [*kept, leader]
    try:
        _samples(varied, tried, record).moved_by_one(varied.index(leader))
    except ProgramError:
        return False
    return True


def _record_more(samples: Samples) -> None:
    """Record where all symbols differ from the example at once, by odd steps, so that formulas are verified."""
    for step in (1, 7):
        point = []
        for number, symbol in enumerate(samples.symbols):
            sizes = (symbol.base + step + number, symbol.base - 1, symbol.base + 1)
            point.append(next(filter(symbol.takes, sizes), symbol.base))
        samples.record_at(tuple(point))
    for number, symbol in enumerate(samples.symbols):
        for size in filter(symbol.takes, (symbol.base + 1, symbol.base + 3, symbol.base + 11)):
            samples.record_at(samples.with_size(number, size))


def _find_range(samples: Samples, index: int, symbol: Symbol) -> None:
    """Record at both ends of a symbol's range, and narrow that of a hint where the module fails there."""
    low = max(symbol.min, 1)
    try:
        samples.record_at(samples.with_size(index, low))
    except ProgramError:
        if symbol.is_named and symbol.min > 1:
            raise
        low = symbol.min = 2
        try:
            samples.record_at(samples.with_size(index, max(low, min(symbol.base, 2))))
        except ProgramError:
            if symbol.is_named:
                raise
            low = _last_alike(samples, index, symbol.base, low)
    symbol.min = low
    high = _far(symbol) if symbol.max is None else symbol.max
    try:
        samples.record_at(samples.with_size(index, high))
    except ProgramError as error:
        most = _last_alike(samples, index, max(symbol.base, samples.moved[index][index]), high)
        if symbol.is_named:
            said = "has no maximum" if symbol.max is None else f"may be {symbol.max}"
            raise ProgramError(
                f"export: {symbol.name} {said}, and the largest size that works is {most}; say "
                f"Dim({symbol.name!r}, max={most}). {error.message.removeprefix('export: ').capitalize()}"
            ) from error
        symbol.max = most


def _narrow(samples: Samples, index: int, symbol: Symbol) -> None:
    """Find the range of a hint around whose size in the example the module does the same, though not far from it."""
    far = max(symbol.base + 2 * LARGE, 2) if symbol.max is None else symbol.max
    symbol.max = _last_alike(samples, index, symbol.base, far + 1)
    symbol.min = _last_alike(samples, index, symbol.base, max(symbol.min, 1) - 1)


def _last_alike(samples: Samples, index: int, works: int, fails: int) -> int:
    """Return the last size from one that works towards one that does not at which the module does the same."""
    return _last(lambda size: samples.is_recorded_at(samples.with_size(index, size)), works, fails)


def _last(holds: Callable[[int], bool], works: int, fails: int) -> int:
    while abs(fails - works) > 1:
        middle = (works + fails) // 2
        if holds(middle):
            works = middle
        else:
            fails = middle
    return works


def _far(symbol: Symbol) -> int:
    """Return the size at which a dimension without a bound is recorded."""
    return max(LARGE, 16 * symbol.base) + 3
