"""What ``torch.cuda`` has beside tensors, memory and streams: figures of a GPU, waits that are told, refusals."""

from __future__ import annotations

import inspect
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from server.engine.device import nvml
from telegrad_protocol.errors import (
    AcceleratorError,
    ArgumentError,
    ArgumentTypeError,
    DeviceError,
    NotSupportedError,
    SynchronizationError,
    WorkerCrashedError,
)  # fmt: skip

FIGURES = (
    "clock_rate", "device_memory_used", "list_gpu_processes", "memory_usage", "power_draw", "temperature",
    "utilization",
)  # fmt: skip

simulated = pytest.mark.parametrize("node_host", ["simulated"], indirect=True)
real = pytest.mark.parametrize("node_host", [pytest.param("real", marks=pytest.mark.gpu)], indirect=True)


@pytest.fixture(autouse=True)
def sync_debug_mode_ends(tg: Any) -> Iterator[None]:
    yield
    tg.cuda.set_sync_debug_mode(0)


@pytest.mark.parametrize(
    "call", [lambda x: x.item(), lambda x: x.nonzero(), repr, lambda x: x.new_tensor([1]).tolist()]
)
def test_a_line_that_waits_is_told_and_named(tg: Any, call: Any) -> None:
    x = tg.ones(1)
    tg.cuda.set_sync_debug_mode("warn")
    with pytest.warns(UserWarning, match="called a synchronizing operation: .* waits for the server") as told:
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        call(x)
    expected = {line, call.__code__.co_firstlineno} if hasattr(call, "__code__") else {line}
    assert told[0].filename == __file__ and told[0].lineno in expected
    tg.cuda.set_sync_debug_mode("error")
    with pytest.raises(SynchronizationError, match="set_sync_debug_mode"):
        call(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = x * 2 + x.sum()
        tg.cuda.synchronize()
        tg.cuda.set_sync_debug_mode(0)
        assert y.item() == 3


def test_modes_of_waiting_have_names_and_numbers(tg: Any) -> None:
    for number, name in enumerate(("default", "warn", "error")):
        tg.cuda.set_sync_debug_mode(name)
        assert tg.cuda.get_sync_debug_mode() == number
        tg.cuda.set_sync_debug_mode(number)
        assert tg.cuda.get_sync_debug_mode() == number
    for wrong in ("loud", 3, -1):
        with pytest.raises(ArgumentError, match="default, warn, error"):
            tg.cuda.set_sync_debug_mode(wrong)
    with pytest.raises(ArgumentTypeError, match="not NoneType"):
        tg.cuda.set_sync_debug_mode(None)


@simulated
def test_only_a_gpu_tells_figures(tg: Any, node: Any) -> None:
    for name in FIGURES:
        with pytest.raises(DeviceError, match=f"{name}: expected a GPU, not cpu"):
            getattr(node.cuda, name)("cpu")
        with pytest.raises(DeviceError, match=f"{name}: cuda:0 is no GPU"):  # the simulated one has no such library
            getattr(node.cuda, name)()


class _FakeLibrary(types.ModuleType):
    """NVML with one GPU, of which a figure is not told."""

    NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = 0

    class NVMLError(Exception):
        pass

    nvmlInit = staticmethod(lambda: None)
    nvmlDeviceGetHandleByPciBusId = staticmethod(lambda bus: {b"0000:01:00.0": "gpu"}[bus])
    nvmlDeviceGetMemoryInfo = staticmethod(lambda gpu: types.SimpleNamespace(used=7 << 20))
    nvmlDeviceGetTemperature = staticmethod(lambda gpu, kind: 41)
    nvmlDeviceGetPowerUsage = staticmethod(lambda gpu: 120_500)
    nvmlDeviceGetClockInfo = staticmethod(lambda gpu, kind: 1980)
    nvmlDeviceGetComputeRunningProcesses = staticmethod(
        lambda gpu: [types.SimpleNamespace(pid=12, usedGpuMemory=3 << 20)]
    )

    @staticmethod
    def nvmlDeviceGetUtilizationRates(gpu: str) -> Any:
        raise _FakeLibrary.NVMLError("Not Supported")


def test_figures_have_pytorchs_units_and_what_is_not_told_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "pynvml", _FakeLibrary("pynvml"))
    told = {name: nvml.figure(name, "0000:01:00.0") for name in set(FIGURES) - {"memory_usage", "utilization"}}
    assert told == {
        "device_memory_used": 7 << 20, "temperature": 41, "power_draw": 120_500, "clock_rate": 1980,
        "list_gpu_processes": "process         12 uses        3.000 MB GPU memory",
    }  # fmt: skip
    with pytest.raises(NotSupportedError, match="utilization: the server's GPU does not tell: Not Supported"):
        nvml.figure("utilization", "0000:01:00.0")
    with pytest.raises(ArgumentError, match="no figure 'fan'; there are"):
        nvml.figure("fan", "0000:01:00.0")
    monkeypatch.setattr(nvml, "pynvml", None)
    with pytest.raises(NotSupportedError, match=r"temperature: .* can pip install nvidia-ml-py"):
        nvml.figure("temperature", "0000:01:00.0")


@real
def test_a_gpu_tells_its_figures(node: Any) -> None:
    pytest.importorskip("pynvml")
    cuda = node.cuda
    assert 0 < cuda.temperature() < 120
    assert 0 <= cuda.utilization() <= 100
    assert 0 <= cuda.memory_usage() <= 100
    assert cuda.power_draw() > 1000 and cuda.clock_rate() > 100
    assert 0 < cuda.device_memory_used() <= cuda.mem_get_info()[1]
    assert cuda.list_gpu_processes().startswith("GPU:0\n")


REFUSED = {
    "ExternalStream": (0,), "get_stream_from_external": (0,), "CUDAPluggableAllocator": ("x.so", "a", "b"),
    "change_current_allocator": (None,), "caching_allocator_enable": (False,), "current_blas_handle": (),
    "current_solver_handle": (), "GreenContext": (),
}  # fmt: skip
"""What needs an address or is of a later version, and arguments for it."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_an_address_refuses_in_words(name: str, tg: Any) -> None:
    with pytest.raises(NotSupportedError, match=rf"^{name}: .{{20,}}"):
        getattr(tg.cuda, name)(*REFUSED[name])


def test_the_runtime_of_cuda_as_programs_use_it(node: Any) -> None:
    cuda = node.cuda
    runtime = cuda.cudart()
    cuda.check_error(runtime.cudaProfilerStart())
    assert runtime.cudaProfilerStop() == runtime.cudaError.success
    assert runtime.cudaMemGetInfo(0) == cuda.mem_get_info(0)
    with pytest.raises(cuda.CudaError, match=r"unknown CUDA error \(2\)"):
        cuda.check_error(2)
    with pytest.raises(NotSupportedError, match="cannot be pinned"):
        runtime.cudaHostRegister(0, 4096, 0)
    kinds = {f"{major}{minor}" for major, minor in map(cuda.get_device_capability, range(2))}
    assert cuda.get_arch_list() == [f"sm_{kind}" for kind in sorted(kinds)]
    flags = [f"-gencode compute=compute_{kind},code=sm_{kind}" for kind in sorted(kinds)]
    assert cuda.get_gencode_flags() == " ".join(flags)
    assert cuda.is_tf32_supported() and not cuda.is_current_stream_capturing()
    cuda.ipc_collect()
    cuda.caching_allocator_enable(True)
    with pytest.raises(NotSupportedError, match="always caches"), cuda.caching_allocator_disabled():
        pass
    with cuda.nvtx.range("step {}", 3):
        cuda.nvtx.mark("here")


def test_raw_memory_is_found_on_whichever_gpu_has_it(node: Any) -> None:
    second = node.cuda.caching_allocator_alloc(512, "cuda:1", node.cuda.default_stream(1))
    node.cuda.caching_allocator_delete(second)
    with pytest.raises(ArgumentError, match="no memory was allocated"):
        node.cuda.caching_allocator_delete(second)
    with pytest.raises(ArgumentTypeError, match="expected a Stream"):
        node.cuda.caching_allocator_alloc(512, stream=3)


def test_events_and_streams_of_the_accelerator(node: Any) -> None:
    start, end = node.Event("cuda", enable_timing=True), node.Event("cuda:0", enable_timing=True)
    with node.Stream("cuda", priority=-1) as stream:
        start.record()
        node.zeros(4, device="cuda").add_(1)
        end.record(stream)
    end.synchronize()
    assert end.query() and start.elapsed_time(end) >= 0
    assert isinstance(node.cuda.Event(), node.Event) and isinstance(node.cuda.Stream(), node.Stream)
    with pytest.raises(DeviceError):
        node.Event("cpu")


def test_a_gpu_that_failed_is_caught_as_pytorch_programs_catch_it(tg: Any) -> None:
    assert issubclass(WorkerCrashedError, AcceleratorError) and issubclass(AcceleratorError, RuntimeError)
    assert tg.AcceleratorError is tg.cuda.AcceleratorError is AcceleratorError


def test_a_server_without_a_gpu_says_so(tg: Any) -> None:
    assert tg.cuda.get_arch_list() == [] and tg.cuda.get_gencode_flags() == ""
    tg.cuda.reset_peak_host_memory_stats()
    tg.cuda.reset_accumulated_host_memory_stats()
    assert tg.cuda.host_memory_stats() == {}
    with pytest.raises(DeviceError, match="temperature: the server has no GPU"):
        tg.cuda.temperature()
