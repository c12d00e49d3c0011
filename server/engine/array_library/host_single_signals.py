"""Fourier transforms of signals that lie one behind the other, by loops that transform one after the other.

Says which lengths those loops take, and makes what they are given.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from server.engine.device import threads

from .addresses import data_address
from .fourier_tables import Tables, convolution, half_roots, is_smooth, roots, tables

Array = Any
_MOST = 1 << 13
"""The most complex numbers of a signal: slots of longer ones do not stay in the second-level cache."""

_KEPT = 1 << 23
"""The most bytes of scratch memory that a thread keeps."""


class _Scratch(threading.local):
    """Scratch memory that a thread keeps between transforms: fresh memory costs as much as they do."""

    memory: Array = np.empty(0, np.uint8)
    _size = _address = 0

    def take(self, nbytes: int) -> Array:
        """Memory of at least so many bytes, at a cache line's beginning."""
        if nbytes <= self._size:
            return self.memory
        memory = np.empty(nbytes + 64, np.uint8)
        memory = memory[-memory.ctypes.data % 64 :]
        if nbytes <= _KEPT:
            self.memory, self._size, self._address = memory, memory.size, memory.ctypes.data
        return memory

    def address(self, nbytes: int) -> int:
        """The address of so many bytes, which are not more than what is kept."""
        if nbytes > self._size:
            self.take(nbytes)
        return self._address


scratch = _Scratch()


@lru_cache(maxsize=1024)
def radices_of(n: int, lanes: int, passes: tuple[int, ...], ends: tuple[int, ...]) -> tuple[int, ...]:
    """The radices of the passes behind the first one; none for lengths that the loops do not take."""
    if n > _MOST or n < lanes**2 or n % lanes:
        return ()
    rest = n // lanes
    end = next((radix for radix in ends if rest % radix == 0), 0)
    if not end:
        return ()
    rest //= end
    middle = []
    for radix in passes:
        while rest % radix == 0 and not (radix == 8 and rest in (16, 32)):  # 4 x 4 and 4 x 8 are faster than 8 x 2
            middle.append(radix)
            rest //= radix
    return (*middle, end) if rest == 1 else ()


def _plan_tables(
    radices: tuple[int, ...], n: int, lanes: int, is_complex: bool, forward: bool, dtype: Any
) -> Tables:  # fmt: skip
    """The factors of passes, a slot of neighbours for each part but the first; behind them those of halves, and the two
    of the convolution, where there are such.
    """
    parts, length = [], lanes
    for radix in radices:
        neighbours = np.arange(length).reshape(length // lanes, 1, lanes)
        turned = roots(neighbours * np.arange(1, radix)[:, None], length * radix)
        parts.append(np.ascontiguousarray(np.stack([turned.real, turned.imag], -2), dtype.char.lower()))
        length *= radix
    others = [] if is_complex else [half_roots(n, lanes)]
    if length > n:
        chirp, kernel, _ = convolution(n, length)
        others += [chirp, kernel] if forward else [chirp.conj(), np.fft.fft(np.fft.ifft(kernel).conj())]
    parts += [np.ascontiguousarray(other, dtype) for other in others]
    addresses = [part.ctypes.data for part in parts]
    return Tables(np.array(radices, np.int64), np.array(addresses, np.int64), tuple(parts))


@lru_cache(maxsize=1024)
def _passes_of(n: int, lanes: int, passes: tuple[int, ...], ends: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """The length of the transforms by which signals of ``n`` numbers are transformed, and their radices; none for
    lengths that the loops do not take.

    That is their own length, or that of a convolution for lengths of which a prime factor has no pass.
    """
    radices = radices_of(n, lanes, passes, ends)
    if radices or is_smooth(n) or n < 2 * lanes:
        return n, radices
    first = -(-(2 * n - 1) // lanes) * lanes
    lengths = [
        length for length in range(first, min(3 * n, _MOST) + 1, lanes) if radices_of(length, lanes, passes, ends)
    ]
    best = min(lengths, key=lambda m: m * (2 + len(radices_of(m, lanes, passes, ends))), default=n)
    return best, radices_of(best, lanes, passes, ends) if best > n else ()


class SingleSignals(NamedTuple):
    """Transforms of some signals: a loop, its factor and its plan, and bytes of scratch memory."""

    loop: Any
    scale: float
    plan: Array
    address: int
    tables: Tables
    signals: int
    memory: int
    spare: int
    is_large: bool

    def run(self, source: int, target: int) -> None:
        """Transform what is at one address into another."""
        if self.is_large and threads.count() > 1:
            self._run_on_threads(source, target)
            return
        memory = scratch.address(self.memory + self.spare)
        self.loop(self.scale, 1.0, self.address, source, target, memory, memory + self.memory, 0, self.signals)

    def _run_on_threads(self, source: int, target: int) -> None:
        pieces, each = min(self.signals, 2 * threads.count()), self.memory + self.spare
        memory = scratch.take(each * pieces)  # is kept until the threads are done
        start = data_address(memory)
        calls = []
        for number, share in enumerate(threads.parts_of(self.signals, pieces)):
            room = start + each * number
            calls.append(
                (self.scale, 1.0, self.address, source, target, room, room + self.memory, share.start, share.stop)
            )
        threads.run_loop(self.loop, calls)


def single_signals(
    loops: Any, kind: int, count: int, n: int, steps: tuple[int, int], scale: float, forward: bool, dtype: Any
) -> SingleSignals | None:  # fmt: skip
    """What transforms signals of ``n`` complex numbers, or twice as many real ones; None for other lengths.

    ``steps`` are the bytes from signal to signal of source and target.
    """
    lanes, size, is_complex = loops.WIDTHS[dtype.itemsize // 2], dtype.itemsize, kind == loops.COMPLEX
    padded, radices = _passes_of(n, lanes, loops.PASSES, loops.ENDS)
    if not radices:
        return None
    made = tables(_plan_tables, radices, n, lanes, is_complex, forward or padded == n, dtype)
    places = made.addresses.tolist()
    passes = [word for pair in zip(radices, places, strict=False) for word in pair]
    halves = 0 if is_complex else places[len(radices)]
    factors = places[-2:] if padded > n else (0, 0)
    plan = np.array([kind, not forward, n, *steps, halves, padded, *factors, len(radices), *passes], np.int64)
    memory = 2 * padded * size + 64 + (2 * (padded + lanes) * size if padded > n else 0)
    spare = 0 if is_complex else _rounded((n + 1) * size)
    nbytes = count * n * size * 2
    return SingleSignals(
        loops.transform[dtype.char], scale, plan, plan.ctypes.data, made, count, _rounded(memory), spare,
        nbytes >= threads.LEAST_BYTES and count > 1,
    )  # fmt: skip


def _rounded(nbytes: int) -> int:
    """So many bytes, up to a cache line's end."""
    return -(-nbytes // 64) * 64
