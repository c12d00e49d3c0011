"""Noted launches are made again elsewhere: on memory of the host, by kernels that read and write at addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.driver")

from server.allocator import Block
from server.engine.cuda.runtime import launch as launches_of_kernels
from server.engine.cuda.runtime.launch import Kernel
from server.engine.device import relocated_graph
from server.engine.device.launch_queue import LaunchQueue
from server.engine.device.relocated_graph import RelocatedGraph, WaitingCounter
from server.engine.in_c import launches as launches_in_c
from server.engine.programs.recorded.relocated import Work
from server.engine.programs.shared_memory import Memory
from server.engine.random import PlacedGenerator
from server.engine.value import Backend, Value
from telegrad_protocol.dtypes import float32
from telegrad_protocol.meta import Meta
from tests.engine.cuda_registrations import withdraw
from tests.ops.adapters import EngineAdapter
from tests.support.compilers import needs_calls_in_c
from tests.support.graph_driver import GraphDriver

withdraw()
pytestmark = needs_calls_in_c
_KERNEL = 7


def _at(address: int, count: int) -> np.ndarray[Any, Any]:
    return np.frombuffer((ctypes.c_char * (4 * count)).from_address(address), np.float32)


def _compute(out: int, a: int, b: int, factor: int, counts: tuple[int, int, int]) -> None:
    """Sums of elements of both operands, repeated as often as the result needs them; the second times a number."""
    times = np.array([factor], np.uint64).view(np.float64)[0]
    n, n_a, n_b = counts
    _at(out, n)[:] = np.resize(_at(a, n_a), n) + np.float32(times) * np.resize(_at(b, n_b), n)


class _Step:
    """What a program makes of two earlier values; the size of the result has nothing to do with theirs."""

    def __init__(self, a: int, b: int, count: int, factor: int | None, is_alone: bool) -> None:
        self.a, self.b, self.count, self.factor, self.is_alone = a, b, count, factor, is_alone


class _Program:
    """An executable of random steps, whose values are freed after their last use but for some."""

    def __init__(self, rng: np.random.Generator, backend: Backend, queue: LaunchQueue, inputs: int) -> None:
        self.backend, self.queue = backend, queue
        self.sizes = [int(n) for n in rng.integers(1, 400, inputs)]
        self.steps: list[_Step] = []
        for _ in range(int(rng.integers(3, 25))):
            a, b = (int(n) for n in rng.integers(len(self.sizes), size=2))
            factor = int(rng.integers(2)) if rng.random() < 0.5 else None
            self.steps.append(_Step(a, b, int(rng.integers(1, 3000)), factor, False))
            self.sizes.append(self.steps[-1].count)
        for step in rng.choice(np.array(self.steps, object), 2, replace=False):
            step.is_alone = True
        self.wanted = sorted({len(self.sizes) - 1, *map(int, rng.integers(inputs, len(self.sizes), 2))})
        self.inputs = inputs
        self.constant = float((rng.integers(6) + 1 / np.pi) / np.pi)
        """A factor that stays: no number that stands for others may be like it."""
        self.launches: dict[tuple[int, int, int], Any] = {}

    def describe(self) -> Any:
        return SimpleNamespace(temporary_bytes_after=0)

    def begin_counted(self, values: list[Any], counter: Any) -> _Program:
        self._values, self._counter = values, counter
        return self

    def _launch_of(self, counts: tuple[int, int, int], is_alone: bool) -> Callable[..., None]:
        if is_alone:
            return lambda stream, *given: self.queue.launch(self._alone, stream, *given, counts)
        if counts not in self.launches:
            constants = [("int", count) for count in counts]
            kernel = Kernel(SimpleNamespace(ptr=_KERNEL), "compute", self.queue)
            self.launches[counts] = kernel.prepare(1, 32, "PPPQ", constants)
        return self.launches[counts]  # type: ignore[no-any-return]

    def _alone(self, stream: int, *given: Any) -> None:
        _compute(*given)

    def advance(self) -> None:
        """Launch the steps, and free what nothing needs any more."""
        table: list[Any] = [value for value in self._values if value.__class__ is Value]
        numbers = [value for value in self._values if value.__class__ is float]
        uses = [*self.wanted, *[use for step in self.steps for use in (step.a, step.b)]]
        for step in self.steps:
            out = self.backend.empty(Meta.of((step.count,), float32, self.backend.device))
            counts = step.count, self.sizes[step.a], self.sizes[step.b]
            places = [value.storage.block.pointer for value in (out, table[step.a], table[step.b])]
            factor = self.constant if step.factor is None else numbers[step.factor]
            bits = int(np.float64(factor).view(np.uint64))
            self._launch_of(counts, step.is_alone)(5, *places, bits)
            table.append(out)
            del out
            for use in (step.a, step.b):
                uses.remove(use)
                if use not in uses:
                    table[use] = None
        self._table = table
        self._counter.note_counts([0])

    def outputs(self) -> list[Value]:
        made, self._table = [self._table[n] for n in self.wanted], []
        return made

    def expected(self, inputs: Sequence[np.ndarray[Any, Any]], numbers: Sequence[float]) -> list[np.ndarray[Any, Any]]:
        """Return the results that NumPy computes of the same steps."""
        made = [*inputs]
        for step in self.steps:
            times = np.float32(self.constant if step.factor is None else numbers[step.factor])
            made.append(np.resize(made[step.a], step.count) + times * np.resize(made[step.b], step.count))
        return [made[n] for n in self.wanted]


class _Executing(GraphDriver):
    """A driver that executes the kernel."""

    def run(self) -> None:
        """Execute what was started."""
        for _, function, _, _, _, (out, a, b, factor, *counts) in self.started:
            assert function == _KERNEL
            _compute(out, a, b, factor, tuple(counts))
        self.started.clear()

    def _launch(self, executable: int, stream: int | None) -> int:
        status = super()._launch(executable, stream)
        self.run()
        return status


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> _Executing:
    driver = _Executing({_KERNEL: "QQQQiii"})
    cupy = SimpleNamespace(driver=SimpleNamespace(launchKernel=driver.launch_alone))
    monkeypatch.setattr(launches_of_kernels, "cp", SimpleNamespace(cuda=cupy))
    monkeypatch.setattr(relocated_graph, "runtime", SimpleNamespace(getDevice=int, CUDARuntimeError=ArithmeticError))
    return driver


def _guarded(backend: Backend, count: int) -> tuple[Value, np.ndarray[Any, Any], Block]:
    """A new value, and what lies behind its elements, which nobody may write to."""
    value = backend.empty(Meta.of((count + 4096,), float32, backend.device))
    behind = _at(value.storage.block.pointer + 4 * count, 4096)
    behind[:] = 77
    return value, behind, value.storage.block


@pytest.mark.parametrize("turn", range(8))
def test_results_are_those_of_the_steps_wherever_memory_is(
    adapter: EngineAdapter, rng: np.random.Generator, driver: _Executing, turn: int
) -> None:
    """Memory between is used several times, also that of what is larger than a result: it must lie apart from these."""
    chains = launches_in_c.chains(driver.addresses, 1 << 10)
    queue = LaunchQueue(lambda stream, work: None, lambda stream: False, chains=chains)
    backend = adapter.backends[adapter.device]
    program = _Program(rng, backend, queue, int(rng.integers(1, 4)))
    used = {step.factor for step in program.steps if step.factor is not None}
    numbers = [1.5] * (1 + max(used)) if used else []

    def drawn() -> tuple[list[np.ndarray[Any, Any]], list[Value], list[float]]:
        arrays = [rng.standard_normal(n).astype(np.float32) for n in program.sizes[: program.inputs]]
        values = [backend.empty(Meta.of(a.shape, float32, backend.device)) for a in arrays]
        for value, array in zip(values, arrays, strict=True):
            value.array[...] = array
        return arrays, values, rng.uniform(1.1, 1.4, len(numbers)).tolist()

    _, values, given = drawn()
    memory = Memory(backend, 1 << 20)
    generator = PlacedGenerator(0)
    work = Work(program, backend, [*values, *given], generator, memory)  # type: ignore[arg-type]
    counter = WaitingCounter(queue)
    graph = RelocatedGraph.noted(queue, 5, partial(work.note, counter), work.rows, counter.counts)
    has_all = len(used) == len(numbers)
    assert (graph is not None) == has_all
    for _ in range(4 if graph is not None else 0):
        arrays, values, given = drawn()
        made = [_guarded(backend, program.sizes[n]) for n in program.wanted]
        assert graph is not None
        assert graph.launch_on([*values, *given], [value.storage for value, _, _ in made])
        for n, (value, behind, _), expected in zip(program.wanted, made, program.expected(arrays, given), strict=True):
            np.testing.assert_array_equal(_at(value.storage.block.pointer, program.sizes[n]), expected)
            assert np.all(behind == 77), "another value of the run was written there"
