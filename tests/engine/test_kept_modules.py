"""Modules of kernels that programs bring about: which of them stay loaded, and when others are unloaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

pytest.importorskip("cuda.bindings.driver")

from server.engine.cuda.runtime import kept_modules, modules
from server.engine.cuda.runtime.kept_modules import MOST_KEPT, MOST_RETIRED, load_kept
from server.engine.cuda.runtime.used_before import UsedBefore


class Function:
    def __init__(self, module: Module) -> None:
        self.module, self.ptr = module, 1


class Module:
    def load(self, cubin: bytes) -> None:
        self.cubin = cubin

    def get_function(self, name: str) -> Function:
        return Function(self)


class SimulatedDriver:
    """What the module uses of CuPy: modules that are known for as long as they are loaded, and waits that are counted.
    """  # fmt: skip

    def __init__(self) -> None:
        self.loaded: WeakSet[Module] = WeakSet()
        self.waits = 0
        self.cuda, self.function, self.id = self, self, 0

    def Device(self, number: int = 0) -> SimulatedDriver:
        return self

    def synchronize(self) -> None:
        self.waits += 1

    def Module(self) -> Module:
        module = Module()
        self.loaded.add(module)
        return module


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimulatedDriver]:
    driver = SimulatedDriver()
    monkeypatch.setattr(kept_modules, "cp", driver)
    monkeypatch.setattr(kept_modules, "architecture", lambda device: "sm_90")
    monkeypatch.setattr(modules, "cp", driver)
    monkeypatch.setattr(modules, "compile_cubin", lambda source, architecture, options: source.encode())
    log = UsedBefore(tmp_path / "used")
    monkeypatch.setattr(modules, "used_before", lambda target: log)
    monkeypatch.setattr(kept_modules, "launches_on", lambda device: None)
    kept_modules._kept.cache_clear()
    kept_modules._retired.clear()
    yield driver
    kept_modules._kept.cache_clear()
    kept_modules._retired.clear()


def test_what_nothing_launches_is_unloaded_in_batches_and_the_rest_stays(driver: SimulatedDriver) -> None:
    held = [load_kept(f"held {number}", "fused") for number in range(5)]
    assert load_kept("held 3", "fused") is held[3]
    for number in range(MOST_KEPT + MOST_RETIRED - 1):
        load_kept(f"dropped {number}", "fused")
    assert driver.waits == 0 and len(driver.loaded) == 5 + MOST_KEPT + MOST_RETIRED - 1
    load_kept("another", "fused")
    load_kept("one more", "fused")
    gc.collect()
    assert driver.waits == 1, "the device is idle when modules are unloaded"
    assert len(driver.loaded) <= 5 + MOST_KEPT + 1
    assert {kernel._function.module for kernel in held} <= set(driver.loaded)


@pytest.mark.gpu
def test_kernels_run_after_others_were_unloaded(cuda_host: Any, cuda_device: str) -> None:
    from server.engine.device.cupy_module import cp

    def text(number: int) -> str:
        return f'extern "C" __global__ void fill(long long* x) {{ x[0] = {number}; }}'

    with cp.cuda.Device(int(cuda_device.partition(":")[2])) as device:
        x = cp.zeros(1, cp.int64)
        launch = load_kept(text(7), "fill").prepare(1, 1, "P")
        for number in range(MOST_RETIRED + 2):
            load_kept(text(100 + number), "fill").prepare(1, 1, "P")(0, x.data.ptr)
        kept_modules._kept.cache_clear()
        gc.collect()  # launches refer to themselves
        load_kept(text(99), "fill")
        assert not kept_modules._retired.get(device.id)
        launch(0, x.data.ptr)
        device.synchronize()
        assert x.tolist() == [7]
