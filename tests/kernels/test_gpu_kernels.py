"""Kernels of the program's own on a real GPU: their results, and hostile ones beside another session."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import telegrad as client
from server.engine.cuda.runtime import user_text
from server.engine.user_kernels.interface import Text
from telegrad_protocol.errors import (
    ArgumentError,
    LimitExceededError,
    NotAllowedError,
    TelegradError,
    WorkerCrashedError,
)

from ..end_to_end.server_process import ServerProcess
from ..transport.waiting import wait_until

pytestmark = pytest.mark.gpu
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
needs_numba = pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
ADD = r"""
extern "C" __global__ void add(const float* a, const float* b, float* c, int n, float alpha) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + alpha * b[i];
}
"""


@pytest.fixture
def tg(cuda_tg: Any) -> Any:
    """The client on a session on a GPU, in this process."""
    return cuda_tg


def _drawn(tg: Any, rng: np.random.Generator, *shape: int) -> tuple[np.ndarray[Any, Any], Any]:
    data = rng.standard_normal(shape, np.float32)
    return data, tg.tensor(data, device="cuda")


def test_a_kernel_in_a_captured_graph_computes_anew(tg: Any, rng: np.random.Generator) -> None:
    (_, a), (_, b) = _drawn(tg, rng, 1000), _drawn(tg, rng, 1000)
    kernel, graph = tg.cuda.RawKernel(ADD, "add"), tg.cuda.CUDAGraph()
    with tg.cuda.graph(graph):
        doubled, out = b * 2, tg.empty(1000, device="cuda")
        kernel((4,), (256,), (a, doubled, out, 1000, 1.0))
        total = out + 1
    for _ in range(4):
        x, y = rng.standard_normal((2, 1000), np.float32)
        a.copy_(tg.tensor(x, device="cuda"))
        b.copy_(tg.tensor(y, device="cuda"))
        graph.replay()
        np.testing.assert_array_equal(total.numpy(), x + y * np.float32(2) + np.float32(1))


def test_cuda_text_computes(tg: Any, rng: np.random.Generator) -> None:
    (x, a), (y, b) = _drawn(tg, rng, 1000), _drawn(tg, rng, 1000)
    out = tg.empty(1000, device="cuda")
    kernel = tg.cuda.RawKernel(ADD, "add")
    kernel((4,), (256,), (a, b, out, 1000, 2.5))
    np.testing.assert_allclose(out.numpy(), x + np.float32(2.5) * y, rtol=1e-6, atol=1e-6)
    kernel((4,), (256,), (out, a, out, 1000, -1.0))
    kernel((1,), (256,), (b[3:], b, out[500:], 100, 1.0))
    expected = x + np.float32(2.5) * y - x
    expected[500:600] = y[3:103] + y[:100]
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-5)
    assert 0 < kernel.num_regs < 256 and kernel.max_threads_per_block == 1024 and kernel.binary_version >= 70
    stream = tg.cuda.Stream()
    with tg.cuda.stream(stream):
        kernel((4,), (256,), (a, b, out, 1000, 1.0))
    stream.synchronize()
    np.testing.assert_allclose(out.numpy(), x + y, rtol=1e-6, atol=1e-6)


def test_launches_that_come_again_among_operations_compute_the_same(tg: Any, rng: np.random.Generator) -> None:
    (x, a), (y, b) = _drawn(tg, rng, 1000), _drawn(tg, rng, 1000)
    expected = np.zeros(1000, np.float32)
    out = tg.zeros(1000, device="cuda")
    for kernel in (tg.cuda.RawKernel(ADD, "add"), tg.cuda.RawKernel(ADD, "add")):  # the first one's module goes
        for number in range(60):
            for alpha in (0.5, 0.0, -0.0):
                kernel((4,), (256,), (out, a, out, 1000, alpha))
                out.mul_(0.5)
                kernel((4 - number % 2,), (256,), (out, b, out, 700, 1.0))
                expected = (expected + np.float32(alpha) * x) * np.float32(0.5)
                expected[:700] += y[:700]
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-5)
        del kernel


def test_a_profile_tells_which_launch_a_kernel_belongs_to(tg: Any, rng: np.random.Generator) -> None:
    (_, a), (_, b) = _drawn(tg, rng, 1000), _drawn(tg, rng, 1000)
    out = tg.empty_like(a)
    kernel = tg.cuda.RawKernel(ADD, "add")

    def step() -> None:
        kernel((4,), (256,), (a, b, out, 1000, 1.0))
        tg.exp(out)

    for _ in range(5):
        step()
    tg.cuda.synchronize()
    with tg.profiler.profile() as profile:
        for _ in range(8):
            step()
        tg.cuda.synchronize()
    rows = {event.key: event for event in profile.key_averages()}
    launched = rows["telegrad::launch_kernel: add"]
    assert launched.count == rows["aten::exp"].count == 8
    assert launched.self_device_time_total > 0 and rows["aten::exp"].self_device_time_total > 0


def test_shared_memory_templates_and_cooperative_launches(tg: Any) -> None:
    text = r"""
    template <class T> __global__ void reverse(T* x, int n) {
        extern __shared__ char memory[];
        T* kept = (T*)memory;
        for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = x[i];
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = kept[n - 1 - i];
    }
    """
    module = tg.cuda.RawModule(code=text, name_expressions=["reverse<double>", "reverse<short>"])
    for name, dtype in (("double", tg.float64), ("short", tg.int16)):
        x = tg.arange(10_000, device="cuda", dtype=dtype)
        module.get_function(f"reverse<{name}>")((1,), (1024,), (x, 10_000), shared_mem=x.nbytes)
        assert x.tolist() == [*range(9_999, -1, -1)]
    meeting = r"""
    extern "C" __global__ void meet(volatile int* met, int* seen) {
        if (threadIdx.x == 0) {
            atomicAdd((int*)met, 1);
            while (*met < gridDim.x) { }
            seen[blockIdx.x] = *met;
        }
    }
    """
    met, seen = tg.zeros(1, dtype=tg.int32, device="cuda"), tg.zeros(64, dtype=tg.int32, device="cuda")
    tg.cuda.RawKernel(meeting, "meet", enable_cooperative_groups=True)((64,), (32,), (met, seen))
    assert seen.tolist() == [64] * 64
    with pytest.raises(ArgumentError):
        tg.cuda.RawKernel(meeting, "meet", enable_cooperative_groups=True)((1_000_000,), (1024,), (met, seen))
        tg.cuda.synchronize()


@pytest.mark.skipif(not user_text._include_options(), reason="CUDA's headers are not installed")
def test_headers_of_cuda_are_there(tg: Any) -> None:
    text = """
    #include <cuda_fp16.h>
    extern "C" __global__ void twice(__half* x) { x[threadIdx.x] = __hadd(x[threadIdx.x], x[threadIdx.x]); }
    """
    x = tg.arange(10, device="cuda", dtype=tg.float16)
    tg.cuda.RawKernel(text, "twice")((1,), (10,), (x,))
    assert x.tolist() == [2.0 * i for i in range(10)]


def test_ptx_is_loaded(tg: Any, tmp_path: Any) -> None:
    compiled = user_text.compile_text(Text(ADD, "add.cu", 1, (), {}, ()), "sm_90")
    (tmp_path / "add.ptx").write_text(compiled.ptx)
    a, out = tg.ones(100, device="cuda"), tg.zeros(100, device="cuda")
    tg.cuda.RawModule(path=str(tmp_path / "add.ptx")).add((1,), (128,), (a, a, out, 100, 2.0))
    assert out.sum().item() == 300 and out._version == 1 and a._version == 0
    (tmp_path / "bad.ptx").write_text(compiled.ptx.replace("add.f32", "odd.f32").replace("fma.rn.f32", "odd.f32"))
    with pytest.raises(ArgumentError, match="refuses"):
        tg.cuda.RawModule(path=str(tmp_path / "bad.ptx")).add((1,), (128,), (a, a, out, 100, 2.0))


@needs_triton
def test_tutorials_of_triton_compute(tg: Any, rng: np.random.Generator) -> None:
    from benchmarks import triton_kernels

    (x, a), (y, b) = _drawn(tg, rng, 98_432), _drawn(tg, rng, 98_432)
    out = tg.empty_like(a)
    triton_kernels.add(a, b, out)
    np.testing.assert_array_equal(out.numpy(), x + y)
    data, rows = _drawn(tg, rng, 1823, 781)
    out = tg.empty_like(rows)
    triton_kernels.softmax(rows, out)
    powers = np.exp(data.astype(np.float64) - data.max(1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), powers / powers.sum(1, keepdims=True), rtol=1e-4, atol=1e-7)
    factors = [tg.tensor(rng.standard_normal((512, 512)), device="cuda").half() for _ in range(2)]
    expected = factors[0].cpu().double().numpy() @ factors[1].cpu().double().numpy()
    for tuned in (False, True):
        product = tg.empty(512, 512, device="cuda", dtype=tg.float16)
        triton_kernels.matmul(*factors, product, tuned)
        np.testing.assert_allclose(product.double().numpy(), expected, rtol=1e-2, atol=5e-2)
    data, wide = _drawn(tg, rng, 200, 328)
    flipped = tg.zeros(328, 200, device="cuda")
    if tg.cuda.get_device_capability() >= (9, 0):
        triton_kernels.transpose(wide, flipped)
        np.testing.assert_array_equal(flipped.numpy(), data.T)
    assert len(triton_kernels.tuned_matmul_kernel.configs_timings) == 3


@needs_triton
def test_tritons_kernels_run_inside_functions_with_derivatives(tg: Any, rng: np.random.Generator) -> None:
    from benchmarks import triton_kernels

    class Add(tg.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            out = tg.empty_like(x)
            triton_kernels.add(x, y, out)
            return out

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad, grad

    x, y = (tg.ones(1000, device="cuda", requires_grad=True) for _ in range(2))
    (Add.apply(x, y) * 3).sum().backward()
    assert x.grad.sum().item() == y.grad.sum().item() == 3000


@needs_numba
def test_numbas_product_in_shared_memory_computes(tg: Any, rng: np.random.Generator) -> None:
    from benchmarks import numba_kernels

    (x, a), (y, b) = _drawn(tg, rng, 130, 77), _drawn(tg, rng, 95, 77)
    out = tg.empty(130, 95, device="cuda")
    numba_kernels.matmul(a, b.t(), out)
    np.testing.assert_allclose(out.numpy(), x @ y.T, rtol=1e-4, atol=1e-4)
    assert (a._version, b._version, out._version) == (0, 0, 1)


WILD = r"""
extern "C" __global__ void wild(char* x, unsigned long long reach) {
    unsigned long long first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (unsigned long long i = first; i < reach; i += step) x[i] = 0x5a;
}
"""


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """A server that allows kernels, each on a worker of its own."""
    with ServerProcess(TELEGRAD_DEVICES="cuda:0", TELEGRAD_ALLOW_KERNELS="1") as process:
        yield process


def test_a_kernel_that_writes_everywhere_ends_its_own_worker_and_no_other(server: ServerProcess) -> None:
    """Machines differ in whether CUDA ends such a kernel at once or the GPU hangs until the watchdog ends its worker.

    In both cases its owner is told within the watchdog's bound, and who works on the GPU meanwhile loses nothing.
    """
    with client.connect(server.url) as victim, ThreadPoolExecutor(1) as beside:
        held = client.arange(1000, device="cuda")
        assert held.sum().item() == 499_500
        with pytest.raises(NotAllowedError, match="kernels=True"):
            client.cuda.RawKernel(WILD, "wild").compile()
        attacker = client.connect(server.url, kernels=True)
        assert attacker.isolation == "session" and attacker.worker != victim.worker
        x = client.zeros(10, device="cuda")
        kernel = client.cuda.RawKernel(WILD, "wild")
        with pytest.raises((WorkerCrashedError, LimitExceededError)) as told:
            kernel((1024,), (256,), (x, np.uint64(1 << 46)))
            meanwhile = beside.submit(lambda: [(held * n).sum().item() for n in range(100)])
            client.cuda.synchronize()
        said = {
            WorkerCrashedError: r"wild at .*test_gpu_kernels.py:\d+",
            LimitExceededError: r"10 s, which is the limit \(TELEGRAD_KERNEL_SECONDS\)",
        }
        assert re.search(said[type(told.value)], str(told.value))
        assert meanwhile.result() == [n * 499_500 for n in range(100)], "who works meanwhile waits, and loses nothing"
        attacker.end()
        victim.use()
        assert held.tolist() == [*range(1000)], "what another worker holds was not reached"
        assert (held * 2).sum().item() == 999_000
    with client.connect(server.url, kernels=True):
        assert client.ones(3, device="cuda").sum().item() == 3


def test_a_kernel_that_never_ends_meets_the_watchdog_and_nobody_else_does() -> None:
    settings = {"TELEGRAD_ALLOW_KERNELS": "1", "TELEGRAD_KERNEL_SECONDS": "5"}
    with ServerProcess(TELEGRAD_DEVICES="cuda:0", **settings) as server, client.connect(server.url) as victim:
        held = client.arange(1000, device="cuda")
        assert held.sum().item() == 499_500
        attacker = client.connect(server.url, kernels=True)
        text = 'extern "C" __global__ void endless(volatile int* x) { while (x[0] == 0) { } }'
        with pytest.raises(TelegradError) as ended:
            client.cuda.RawKernel(text, "endless")((1,), (32,), (client.zeros(1, dtype=client.int32, device="cuda"),))
            client.cuda.synchronize()
        assert "5 s" in str(ended.value)
        attacker.end()
        victim.use()
        assert (held + 1).sum().item() == 500_500
        wait_until(lambda: len(server.get("/v1/devices")) >= 1, "the server answers")
