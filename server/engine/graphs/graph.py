"""What was captured, and its replay: as graphs of the device where it has some, else operation by operation."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from server.allocator.core.mem_pool import MemPool
from server.engine import context
from server.engine.checks import DeferredCheck
from server.engine.device.interface import Capture, RandomState
from server.engine.random import PlacedGenerator
from server.engine.value import Backend

from .memory import Again, routed
from .noted import Noted, execute

_log = logging.getLogger(__name__)
FEW: Final = 3
"""Fewer operations between others that cannot be captured are executed one by one."""
OPERATION_BYTES: Final = 3000
"""What the host holds for an operation."""
_MOST_PLACES: Final = 4
"""For so many streams graphs are kept; further ones take the place of all."""


class DeviceGraph(NamedTuple):
    """Operations as one graph: how many words they draw of the generator, from which state, and what they check."""

    operations: tuple[Noted, ...]
    graph: Capture
    random: RandomState
    words: int
    checks: tuple[tuple[int, DeferredCheck], ...]


Part = DeviceGraph | tuple[Noted, ...]


class CapturedGraph:
    """A graph that a client has captured. Its memory is the pool's until ``close``."""

    def __init__(self, backend: Backend, owner: int, pool: MemPool, operations: Sequence[Noted]) -> None:
        self.backend = backend
        self.pool = pool
        self.operations: tuple[Noted, ...] = tuple(operations)
        self._owner = owner
        self._again = Again()
        self._parts: dict[tuple[Any, ...], list[Part]] = {}
        self._warm: tuple[Any, ...] | None = None
        """Where the last replay was that executed the operations one by one."""

    @property
    def nbytes(self) -> int:
        """What the host holds for it."""
        return OPERATION_BYTES * (len(self.operations) + 1)

    def close(self) -> None:
        """Give the memory up; what is left of it in use goes back as it is freed."""
        self.operations = ()
        self._parts.clear()
        with self.backend.exclusive_allocator() as allocator:
            allocator.release_mem_pool(self.pool)

    def replay(self, instruction: Any) -> None:
        """Do what was captured again, on the current stream and with the generators as they are now."""
        parts = self._parts_here() if self.backend.can_capture else None
        if parts is None:
            self._execute(self.operations)
            self._warm = self.backend.place() if self.backend.can_capture else None
            return
        for part in parts:
            if isinstance(part, DeviceGraph):
                self._launch(part, instruction)
            else:
                self._execute(part)

    def _execute(self, operations: Sequence[Noted]) -> None:
        with routed(self.backend.allocator, self._owner, self._again):
            execute(operations, self._again)

    def _parts_here(self) -> list[Part] | None:
        """The parts for the current stream: graphs have its number, and that of its scratch memory, in them.

        None where the last replay was on another one: what kernels need once for a stream is made without a capture.
        """
        place = self.backend.place()
        parts = self._parts.get(place)
        if parts is None and place == self._warm:
            if len(self._parts) >= _MOST_PLACES:
                self._parts.clear()
            parts = self._parts[place] = self._make_parts()
        return parts

    def _make_parts(self) -> list[Part]:
        random = self.backend.random_state()
        whole = self._capture(self.operations, random)
        if whole is not None:
            return [whole]
        can = [self._capture((operation,), random) is not None for operation in self.operations]
        names = {operation.name for operation, fits in zip(self.operations, can, strict=True) if not fits}
        _log.info("operations of a captured graph are executed one by one", extra={"operations": sorted(names)})
        parts: list[Part] = []
        for fits, group in groupby(zip(self.operations, can, strict=True), key=lambda pair: pair[1]):
            operations = tuple([operation for operation, _ in group])
            graph = self._capture(operations, random) if fits and len(operations) >= FEW else None
            parts.append(graph or operations)
        return parts

    def _capture(self, operations: tuple[Noted, ...], random: RandomState) -> DeviceGraph | None:
        """Return operations as one graph; None where there is something that a graph cannot repeat."""
        if not operations:
            return None
        current, device = context.current, self.backend.device
        generator, generators = PlacedGenerator(random.pointer), current.generators
        current.generators = {**generators, device: generator}

        def work() -> bool:
            try:
                self._execute(operations)
            except Exception as error:  # what cannot be captured is executed, and fails there if it has to
                error.__traceback__ = error.__context__ = None
                return False
            return True

        collects = gc.isenabled()
        gc.disable()  # what it frees may call the device
        self._again.is_strict = True
        try:
            graph = self.backend.capture(work)
        finally:
            self._again.is_strict = False
            if collects:
                gc.enable()
            current.generators = generators
            expected = dict(current.checks.outstanding)
            current.checks.outstanding.clear()
        if graph is None:
            return None
        checks = tuple([(tag, entry.check) for tag, entry in expected.items()])
        return DeviceGraph(operations, graph, random, generator.words, checks)

    def _launch(self, part: DeviceGraph, instruction: Any) -> None:
        current = context.current
        self.backend.flush()
        generator = current.generators[self.backend.device]
        seed, offset = generator.initial_seed(), generator.offset
        if part.words:
            part.random.write(self.backend.stream, seed, generator.reserve(part.words))
        if not part.graph.launch():
            generator.restore(seed, offset)
            self._execute(part.operations)
        elif part.checks:
            current.checks.expect_again(part.checks, instruction, self.backend.stream)
