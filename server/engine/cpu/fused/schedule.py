"""In which order a fused kernel's computations are made on a block, and which of them are one compiled loop.

Loops are as long as possible: what waits for a function of NumPy waits, everything else goes before. An operand that is
written to keeps its elements until all that read them have done so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from server.engine.programs.fused import Compute, Kernel, Register

from .loop_text import Part
from .native import Emit, emitter


class Schedule(NamedTuple):
    """Registers in the order in which they are computed: those of a compiled loop together, all others alone."""

    runs: tuple[tuple[int, ...], ...]
    emitters: dict[int, Emit]

    def parts(self, run: Sequence[int], kernel: Kernel) -> list[Part]:
        """What the loop of a run is made of."""
        first = len(kernel.loads)
        return [Part(number, kernel.computes[number - first], self.emitters[number]) for number in run]


def scheduled(kernel: Kernel, features: frozenset[str]) -> Schedule:
    """Order the computations; ``features`` are the processor's, and empty where nothing is compiled."""
    first = len(kernel.loads)
    waiting = {number: _reads(compute) for number, compute in enumerate(kernel.computes, first)}
    emitters = {number: emitter(kernel.computes[number - first], features) for number in waiting}
    for place, register in kernel.stores:
        readers = {number for number, reads in waiting.items() if place in reads and number != register.number}
        waiting[register.number] |= readers
    known = {number: emit for number, emit in emitters.items() if emit is not None}
    done = set(range(first))
    runs: list[tuple[int, ...]] = []
    while waiting:
        loop = _ready_loop(waiting, known, done)
        if loop:
            runs += [tuple(loop)] if len(loop) > 1 else [(loop[0],)]
        alone = [number for number, reads in waiting.items() if number not in known and reads <= done]
        runs += [(number,) for number in alone]
        for number in alone:
            del waiting[number]
        done.update(alone)
    return Schedule(tuple(runs), known)


def _reads(compute: Compute) -> set[int]:
    return {arg.number for arg in compute.args if arg.__class__ is Register}


def _ready_loop(waiting: dict[int, set[int]], known: dict[int, Emit], done: set[int]) -> list[int]:
    """The registers that one loop can compute now; they are done from here on."""
    loop = []
    for number in sorted(waiting):
        if number in known and waiting[number] <= done:
            loop.append(number)
            done.add(number)
            del waiting[number]
    return loop
