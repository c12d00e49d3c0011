"""Executions whose launches were noted once, and are made again as one graph on whatever memory there is.

What lies between inputs and results has memory of its own, as of a capture on such (``private_capture``). Inputs and
results lie anywhere: each launch of the graph is given where, so nothing is copied, and numbers as well. It is made of
launches of kernels alone, in microseconds for each of them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Sequence
from typing import Any, Final

from server.engine.device.interface import NotingCounter, Relocatable
from server.engine.in_c.launches import OF_DOUBLE, OF_MADE, OF_SINGLE, OF_VALUE
from server.engine.programs.described import block_of
from server.engine.programs.executable import Executable
from server.engine.programs.private_capture import PrivateRun, Results, RunOnOwnMemory, nbytes_of
from server.engine.programs.shared_memory import Memory, SharedMemory
from server.engine.random import PlacedGenerator
from server.engine.value import Backend, Storage, Value
from telegrad_protocol.errors import OutOfMemoryError

_IRRATIONAL: Final = 1 / math.pi
_FAR: Final = 1e24
"""About as large are numbers that stand for others: what a program has as a constant is far from that."""


class RelocatedRun(RunOnOwnMemory):
    """An execution as one graph, whose launches are given the memory and the numbers of each execution."""

    _graph: Relocatable
    copied_bytes = 0
    """Bytes that a launch copies into memory of its own first; none, since kernels are given where inputs lie."""

    def __init__(self, run: PrivateRun, graph: Relocatable, memory: Memory) -> None:
        super().__init__(run.backend, graph, memory)
        self.results = Results(run)
        self._place = run.backend.place()

    def fits(self, values: Sequence[Any], numbers: tuple[Any, ...], place: tuple[Any, ...]) -> bool:
        """Whether it does what an execution on these values would do, whatever the numbers among them are."""
        return not self.is_dropped and place == self._place

    def launch(self, values: Sequence[Any], made: Sequence[Storage]) -> bool:
        """Launch it for these storages of results; False if the device refuses to launch."""
        self._backend.flush()
        if not self._graph.launch_on(values, made):
            return False
        self._backend.graph_memory.note_launch(self)
        return True


class Work:
    """An execution on the memory of some values, as a device notes it; ``run`` is what was executed last."""

    def __init__(
        self, executable: Executable, backend: Backend, values: Sequence[Any], generator: PlacedGenerator,
        memory: Memory,
    ) -> None:  # fmt: skip
        self.executable, self._backend = executable, backend
        self._values = [value if value.__class__ is Value else _stand_in(n) for n, value in enumerate(values)]
        self._generator, self._memory = generator, memory
        self.run: PrivateRun | None = None

    def note(self, counter: NotingCounter) -> bool:
        """Execute it, on the memory where inputs lie now.

        That is done twice: what tells where a result lies is an address, so nothing else may lie there at any time.
        """
        self.run = first = self._run(counter)
        if not first():
            return False
        counter.forget()
        self._generator.words = 0
        self.run = self._run(counter, first.numbers_of_made, first.most)
        return self.run() and self.run.numbers_of_made == first.numbers_of_made

    def _run(self, counter: NotingCounter, apart: Collection[int] = (), behind: int = 0) -> PrivateRun:
        return PrivateRun(
            self.executable, self._backend, self._values, {}, self._generator, self._memory.block, counter,
            frozenset(apart), behind,
        )  # fmt: skip

    def rows(self) -> list[tuple[int, int, int, int]]:
        """Return where the memory of inputs and results lies."""
        assert self.run is not None, "it is asked for after the execution"
        blocks = {block_of(value): number for number, value in enumerate(self._values) if value.__class__ is Value}
        lying = [(OF_VALUE, number, block.pointer, block.pointer + block.size) for block, number in blocks.items()]
        made = [(OF_MADE, number, one.block.pointer, one.block.pointer + one.block.size)
                for number, one in enumerate(self.run.made)]  # fmt: skip
        numbers = [(kind, number, bits, bits) for number, value in enumerate(self._values) if value.__class__ is float
                   for kind, bits in _bits_of(value)]  # fmt: skip
        return lying + made + numbers


def _stand_in(number: int) -> float:
    """Return a number in place of one that will be another each time: its bits tell where launches have it."""
    return (number + _IRRATIONAL) * _IRRATIONAL * _FAR


def _bits_of(number: float) -> list[tuple[int, int]]:
    """Return a number as launches may have it, with the kind of each."""
    forms = ((OF_SINGLE, "<f"), (OF_DOUBLE, "<d"))
    return [(kind, int.from_bytes(struct.pack(form, number), "little")) for kind, form in forms]


def relocated_on_memory_of_its_own(
    executable: Executable, backend: Backend, values: Sequence[Any], generator: PlacedGenerator,
    outputs: Sequence[Any], shared: SharedMemory,
) -> RelocatedRun | None:  # fmt: skip
    """Note the launches of an execution that was just made on these values, with these results.

    None where it does more than launch kernels, or there is too little memory.
    """
    nbytes = nbytes_of(executable, outputs)
    while True:
        try:
            memory = shared.of(nbytes)
        except OutOfMemoryError:
            return None
        if memory is None:
            return None
        generator.words = 0
        work = Work(executable, backend, values, generator, memory)
        graph = backend.relocatable(work)
        if graph is not None and work.run is not None:
            return RelocatedRun(work.run, graph, memory)
        if work.run is None or not work.run.is_too_small:
            return None
        nbytes = 2 * max(nbytes, memory.nbytes)
