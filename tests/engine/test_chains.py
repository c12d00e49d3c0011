"""Launches of kernels in a row are made as one graph: each kernel with its own geometry and parameters, in order."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.driver")

from server.engine.cuda.runtime import launch as launches_of_kernels
from server.engine.cuda.runtime.launch import Kernel
from server.engine.device.launch_queue import LaunchQueue
from server.engine.in_c import launches as launches_in_c
from server.engine.replay.shadows import REPLAYED
from server.engine.value import Storage, Value
from tests.engine.cuda_registrations import withdraw
from tests.support.compilers import needs_calls_in_c
from tests.support.graph_driver import GraphDriver

withdraw()
pytestmark = needs_calls_in_c
_KERNELS = 6
_MOST = 1 << 10


class _Device:
    """A queue over a driver of graphs, kernels of several signatures, and launches of each by several geometries."""

    def __init__(self, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, most: int = _MOST) -> None:
        self.rng = rng
        pointers = [int(n) for n in rng.integers(1, 16, _KERNELS)]
        self.driver = GraphDriver({100 + n: "Q" * count + "id" for n, count in enumerate(pointers)})
        cupy = SimpleNamespace(driver=SimpleNamespace(launchKernel=self.driver.launch_alone))
        monkeypatch.setattr(launches_of_kernels, "cp", SimpleNamespace(cuda=cupy))
        self.chains = launches_in_c.chains(self.driver.addresses, most)
        self.queue = LaunchQueue(lambda stream, work: None, lambda stream: False, chains=self.chains)
        self.launches = [
            [
                (count, Kernel(SimpleNamespace(ptr=100 + n), "kernel", self.queue).prepare(
                    tuple(int(size) for size in rng.integers(1, 9, 3)), (32, 1 + variant), "P" * count,
                    [("int", int(rng.integers(99))), ("double", float(rng.standard_normal()))], shared=8 * variant))
                for variant in range(3)
            ]
            for n, count in enumerate(pointers)
        ]  # fmt: skip

    def entry(self, kernel: int, stream: int) -> tuple[Any, ...]:
        """One launch of a kernel, of any geometry and on any addresses."""
        count, launch = self.launches[kernel][self.rng.integers(3)]
        return (launch, stream, *[int(n) for n in self.rng.integers(1 << 40, 1 << 47, count)])

    def alone(self, sequence: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """What is started if each launch is made by itself."""
        begin = len(self.driver.started)
        for launch, *arguments in sequence:
            launch(*arguments)
        started = self.driver.started[begin:]
        del self.driver.started[begin:]
        return started

    def made(self, sequence: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """What is started if the queue makes them."""
        self.driver.started.clear()
        self.queue.waiting.extend(sequence)
        self.queue.flush()
        return self.driver.started


@pytest.fixture
def device(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> _Device:
    return _Device(rng, monkeypatch)


def _kernels(device: _Device, longest: int = 90) -> list[int]:
    return [int(n) for n in device.rng.integers(_KERNELS, size=device.rng.integers(1, longest))]


def test_what_comes_again_is_a_graph_of_the_launches_as_they_are_now(device: _Device) -> None:
    for _ in range(6):
        kernels = _kernels(device)
        for _ in range(4):
            sequence = tuple([device.entry(kernel, 5) for kernel in kernels])
            assert device.made(sequence) == device.alone(sequence)
        assert sum(device.driver.launched[-(1 + (len(kernels) > 64)) :]) == len(kernels)


def test_launches_of_other_kinds_and_streams_are_made_in_their_turn(device: _Device) -> None:
    def other(stream: int, what: int) -> None:
        device.driver.started.append((stream, what))

    for _ in range(10):
        kinds = [
            (kernel, int(device.rng.integers(1, 3)), bool(device.rng.random() < 0.2)) for kernel in _kernels(device)
        ]
        for _ in range(3):
            sequence = tuple(
                [
                    (other, stream, kernel) if is_other else device.entry(kernel, stream)
                    for kernel, stream, is_other in kinds
                ]
            )
            assert device.made(sequence) == device.alone(sequence)
    assert max(device.driver.launched) > 1


def test_nodes_that_stay_as_they_were_are_not_set_again(device: _Device) -> None:
    sequence = tuple([device.entry(kernel, 5) for kernel in _kernels(device)])
    for _ in range(3):
        device.made(sequence)
    before = device.driver.set_nodes
    assert device.made(sequence) == device.alone(sequence)
    wide = sum([len(entry) - 2 > 12 for entry in sequence])
    assert device.driver.set_nodes - before == wide, "only what has too many addresses to be compared is set again"


@pytest.mark.parametrize("refused", ["create", "add", "instantiate", "set", "launch"])
def test_what_the_driver_refuses_is_made_alone(device: _Device, refused: str) -> None:
    kernels = _kernels(device)
    for turn in range(6):
        if turn == (3 if refused in ("set", "launch") else 0):
            device.driver.refuses.add(refused)
        sequence = tuple([device.entry(kernel, 5) for kernel in kernels])
        assert device.made(sequence) == device.alone(sequence)


def test_all_launches_are_made_even_if_one_fails(device: _Device) -> None:
    def failing(stream: int) -> None:
        raise ArithmeticError("it fails")

    for _ in range(3):
        kernels = _kernels(device, 9)
        first, last = ([device.entry(kernel, 5) for kernel in kernels] for _ in range(2))
        with pytest.raises(ArithmeticError, match="it fails"):
            device.made((*first, (failing, 5), *last))
        assert device.driver.started == device.alone((*first, *last))


def test_graphs_end_with_what_keeps_them(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    device = _Device(rng, monkeypatch, most=100)
    for _ in range(30):
        kernels = _kernels(device, 60)
        for _ in range(3):
            device.made(tuple([device.entry(kernel, 5) for kernel in kernels]))
        assert device.chains.nodes <= 100
    assert device.driver.alive > 0
    device.queue.forget(())
    assert (device.driver.alive, device.chains.nodes) == (0, 0)
    sequence = [device.entry(kernel, 5) for kernel in (0, 1, 2)]
    for _ in range(3):
        device.made(tuple(sequence))
    driver = device.driver
    del device, sequence
    gc.collect()
    assert driver.alive == 0


def _storage(pointer: int) -> Storage:
    storage = Storage.__new__(Storage)
    storage.block, storage.keeper = SimpleNamespace(pointer=pointer), REPLAYED  # type: ignore[assignment]
    return storage


def _value(pointer: int) -> Value:
    value = Value.__new__(Value)
    value.storage = _storage(pointer)
    return value


class _Elsewhere:
    """Launches on memory that moves, on memory that stays, and with numbers, noted once; some are none of kernels."""

    _BYTES = 4096

    def __init__(self, device: _Device, alone: int = 0) -> None:
        self._device, self._rng = device, device.rng
        self._moving = int(device.rng.integers(1, 6))
        self._numbers = int(device.rng.integers(0, 3))
        self._values = int(device.rng.integers(0, self._moving + 1))
        """So many of what moves are values, and the others are made; numbers come after the values."""
        self.begins, self.numbers = self.drawn()
        self._plan = [
            (kernel, device.rng.integers(3), [self._source() for _ in range(device.launches[kernel][0][0])])
            for kernel in _kernels(device)
        ]
        for _ in range(alone):
            self._plan.insert(int(self._rng.integers(len(self._plan) + 1)), (-1, 0, [self._source() for _ in range(5)]))
        sources = [one for _, _, all_of_one in self._plan for one in all_of_one]
        self.has_all_numbers = all([any([one[:2] == ("number", n) for one in sources]) for n in range(self._numbers)])

    def drawn(self) -> tuple[list[int], list[float]]:
        """Where memory begins, which does not overlap, and numbers."""
        places = self._rng.choice(1 << 20, self._moving, replace=False)
        return [(1 << 44) + self._BYTES * int(n) for n in places], self._rng.uniform(1e-3, 9, self._numbers).tolist()

    def _source(self) -> tuple[str, int, int]:
        kind = self._rng.choice(["moving", "staying", "number"] if self._numbers else ["moving", "staying"])
        if kind == "staying":
            return kind, int(self._rng.integers(1 << 40, 1 << 43)), 0
        if kind == "number":
            return kind, int(self._rng.integers(self._numbers)), int(self._rng.choice([4, 8]))
        return kind, int(self._rng.integers(self._moving)), int(self._rng.integers(self._BYTES))

    def entries(self, begins: list[int], numbers: list[float]) -> tuple[Any, ...]:
        """The launches, for memory that begins there."""

        def given(kind: str, which: int, more: int) -> int:
            if kind == "number":
                return int.from_bytes(struct.pack({4: "<f", 8: "<d"}[more], numbers[which]), "little")
            return which if kind == "staying" else begins[which] + more

        return tuple([
            (self._device.launches[n][variant][1] if n >= 0 else self._call, 5, *[given(*one) for one in sources])
            for n, variant, sources in self._plan
        ])  # fmt: skip

    def _call(self, *given: int) -> None:
        self._device.driver.started.append(given)

    def run(self) -> Any:
        """Return what makes the same launches on other memory and with other numbers."""
        rows = [(launches_in_c.OF_VALUE, n, begin, begin + self._BYTES) if n < self._values else
                (launches_in_c.OF_MADE, n - self._values, begin, begin + self._BYTES)
                for n, begin in enumerate(self.begins)]  # fmt: skip
        for n, number in enumerate(self.numbers, self._values):
            for kind, form in ((launches_in_c.OF_SINGLE, "<f"), (launches_in_c.OF_DOUBLE, "<d")):
                bits = int.from_bytes(struct.pack(form, number), "little")
                rows.append((kind, n, bits, bits))
        return launches_in_c.relocated(self._device.chains, self.entries(self.begins, self.numbers), tuple(rows))

    def launch(self, run: Any, begins: list[int], numbers: list[float]) -> bool:
        """Make them where memory begins now."""
        values = [*map(_value, begins[: self._values]), *numbers]
        return bool(run.launch(5, values, [*map(_storage, begins[self._values :])]))


def test_noted_launches_are_made_on_other_memory_and_with_other_numbers(device: _Device) -> None:
    made = 0
    for _ in range(20):
        work = _Elsewhere(device, int(device.rng.integers(4)))
        run = work.run()
        assert (run is not None) == work.has_all_numbers, "a number that no parameter has cannot be another one"
        for _ in range(3 if run is not None else 0):
            begins, numbers = work.drawn()
            device.driver.started.clear()
            assert work.launch(run, begins, numbers)
            assert device.driver.started == device.alone(work.entries(begins, numbers))
            made += 1
    assert made


@pytest.mark.parametrize("refused", ["create", "add", "instantiate", "set", "launch"])
def test_noted_launches_that_the_driver_refuses_do_nothing(device: _Device, refused: str) -> None:
    work = _Elsewhere(device)
    while not work.has_all_numbers:
        work = _Elsewhere(device)
    if refused in ("set", "launch"):
        run = work.run()
        device.driver.refuses.add(refused)
        begins, numbers = ([begin + (1 << 45) for begin in work.begins], [2 * number for number in work.numbers])
        is_launched = work.launch(run, begins, numbers)
        has_none_to_set = refused == "set" and work.entries(begins, numbers) == work.entries(work.begins, work.numbers)
        assert is_launched == has_none_to_set
    else:
        device.driver.refuses.add(refused)
        assert work.run() is None
        assert device.driver.alive == 0


def test_launches_on_another_stream_or_of_libraries_alone_cannot_be_made_elsewhere(device: _Device) -> None:
    kernels, call = [device.entry(kernel, 5) for kernel in (0, 1)], (lambda stream: None, 5)
    for launches in ((*kernels, device.entry(2, 6)), (call,), (*kernels, *(5 * [call])), ()):
        assert launches_in_c.relocated(device.chains, launches, ()) is None


def test_a_call_that_fails_elsewhere_says_so(device: _Device) -> None:
    def failing(stream: int) -> None:
        raise ArithmeticError("it fails")

    run = launches_in_c.relocated(device.chains, (device.entry(0, 5), (failing, 5), device.entry(1, 5)), ())
    with pytest.raises(ArithmeticError, match="it fails"):
        run.launch(5, [], [])
    assert len(device.driver.started) == 1


def test_noting_makes_nothing_and_ends_where_something_else_is_done(device: _Device) -> None:
    queue, entries = device.queue, [device.entry(kernel, 5) for kernel in (0, 1, 2, 3)]

    def work(other: Callable[[], object] = bool) -> bool:
        for launch, *arguments in entries:
            launch(*arguments)
        other()
        return True

    assert queue.noted(work) == tuple(entries)
    for other in (queue.flush, queue.at_once(bool)):
        assert queue.noted(partial(work, other)) is None
    assert queue.noted(lambda: False) is None
    with pytest.raises(ArithmeticError):
        queue.noted(lambda: 1 // 0 > 0)
    assert not device.driver.started
    assert not (queue.waiting or queue.is_open or queue.may_wait)
    work()
    assert device.driver.started == device.alone(tuple(entries))


@pytest.mark.parametrize("given", [[], (1,), ((),)])
def test_what_is_no_launch_is_told(device: _Device, given: Any) -> None:
    with pytest.raises(TypeError, match="perform: expected"):
        device.chains.perform(given)


def test_launches_in_chains_count_as_sequences_that_come_again(device: _Device) -> None:
    kernels = [0, 1, 2, 3]
    make: Callable[[], Any] = lambda: device.made(tuple([device.entry(kernel, 5) for kernel in kernels]))
    for _ in range(2):
        make()
    device.queue.allow()
    for _ in range(2000):
        make()
    assert device.queue.may_wait
