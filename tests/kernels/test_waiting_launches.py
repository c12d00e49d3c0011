"""Launches of a program's own kernels wait with others, come again as one, and do not keep their modules loaded."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from server.engine.device.launch_queue import LaunchQueue
from tests.support.kernel_driver import Launched, NotedDriver
from tests.support.node import SimulatedGpu, SimulatedHost

TEXT = """
extern "C" __global__ void axpy(const float* x, float* out, int n, float alpha, unsigned int seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += alpha * x[i] + seed;
}
extern "C" __global__ void scale(float* out, double by) { out[threadIdx.x] *= by; }
"""


class Graphs:
    """Captures what the driver would launch, and does it again."""

    def __init__(self, driver: NotedDriver) -> None:
        self._driver = driver
        self.replayed = 0
        self.kept: weakref.WeakSet[_Graph] = weakref.WeakSet()

    def capture(self, stream: int, work: Callable[[], bool]) -> Any:
        before, self._driver.launched = self._driver.launched, []
        assert work()
        noted, self._driver.launched = self._driver.launched, before
        graph = _Graph(self, noted)
        self.kept.add(graph)
        return graph

    def launch(self, noted: list[Launched]) -> None:
        self.replayed += 1
        self._driver.launched.extend(noted)


class _Graph:
    def __init__(self, graphs: Graphs, noted: list[Launched]) -> None:
        self._graphs, self._noted = graphs, noted

    def launch(self) -> bool:
        self._graphs.launch(self._noted)
        return True


@pytest.fixture
def graphs(simulated: SimulatedHost, driver: NotedDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graphs]:
    """What a queue for the launches of the simulated GPU captures."""
    graphs = Graphs(driver)
    queue = LaunchQueue(graphs.capture, lambda stream: True)
    gpu = simulated.backends[simulated.default_device]
    for name, method in {
        "submit": lambda self, perform, *args: (
            queue.submit(perform, self.stream, *args) if self is gpu else perform(self.stream, *args)
        ),
        "allow_waiting": lambda self: queue.allow() if self is gpu else None,
        "end_waiting": lambda self: queue.disallow() if self is gpu else None,
        "flush": lambda self: queue.flush() if self is gpu else None,
        "synchronize": lambda self: queue.flush() if self is gpu else None,
        "forget_launches": lambda self, performs: queue.forget(performs) if self is gpu else None,
    }.items():
        monkeypatch.setattr(SimulatedGpu, name, method)
    yield graphs
    queue.disallow()


def _launches(tg: Any, rng: np.random.Generator) -> list[Callable[[], None]]:
    """What repeats, among it launches that differ in the sign of zero, in their grid or in one address only."""
    module = tg.cuda.RawModule(TEXT)
    axpy, scale = module.get_function("axpy"), module.get_function("scale")
    x, out = tg.tensor(rng.random(300), dtype=tg.float32, device="cuda"), tg.zeros(300, device="cuda")
    argument_lists = [
        (axpy, (2,), (x, out, 300, float(rng.random()), 2**32 - 1)), (axpy, (2,), (x, out, 300, 0.0, 7)),
        (axpy, (2,), (x, out, 300, -0.0, 7)), (axpy, (3,), (x, out, 300, -0.0, 7)),
        (axpy, (2,), (x[4:], out, 296, float("nan"), 0)), (scale, (1,), (out, -0.0)), (scale, (1,), (out, 0.0)),
    ]  # fmt: skip
    return [lambda given=given: given[0](given[1], (128,), given[2]) for given in argument_lists]  # type: ignore[misc]


def test_launches_that_come_again_are_made_as_one_and_stay_what_they_are(
    tg: Any, driver: NotedDriver, graphs: Graphs, rng: np.random.Generator
) -> None:
    launches = _launches(tg, rng)
    expected: list[Launched] = []
    for launch in launches:  # each is waited for
        launch()
        tg.cuda.synchronize()
        expected.append(driver.launched[-1])
    assert len(driver.launched) == len(launches)
    assert len({(one.geometry, *one.arguments) for one in expected}) == len(launches)
    for order in (rng.permutation(len(launches)), rng.permutation(len(launches))):
        for _ in range(5):
            driver.launched.clear()
            for place in order:
                launches[place]()
            tg.cuda.synchronize()
            assert driver.launched == [expected[place] for place in order]
    assert graphs.replayed > 0


def test_the_first_launch_and_what_the_driver_refuses_tell_their_own_line(
    tg: Any, driver: NotedDriver, graphs: Graphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = tg.zeros(128, device="cuda")
    scale = tg.cuda.RawModule(TEXT).get_function("scale")

    def refuse(*_: Any) -> Callable[..., None]:
        def launch(stream: int, grid: Any) -> None:
            raise tg.errors.ArgumentError("launch: too many resources")

        return launch

    with monkeypatch.context() as patched:
        patched.setattr(NotedDriver, "prepare", refuse)
        with pytest.raises(tg.errors.ArgumentError, match="too many resources") as raised:
            scale((1,), (128,), (x, 1.0))
            tg.cuda.synchronize()
    assert "test_waiting_launches" in raised.value.site
    assert x._version == 0, "nothing was launched"


def test_captured_launches_do_not_keep_modules_loaded(
    simulated: SimulatedHost, driver: NotedDriver, graphs: Graphs, rng: np.random.Generator
) -> None:
    import telegrad as tg

    loaded, unloaded = len(driver.loaded), driver.unloaded
    with tg.connect(in_process=simulated):
        launches = _launches(tg, rng)
        for _ in range(4):
            for launch in launches:
                launch()
            tg.cuda.synchronize()
        assert graphs.kept
        del launch, launches
        gc.collect()
    assert len(driver.loaded) - loaded == driver.unloaded - unloaded > 0
    assert not graphs.kept
