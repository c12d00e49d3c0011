"""Triton's functions called with telegrad's tensors, up to the driver: what is compiled, specialised and launched."""

from __future__ import annotations

import struct
from typing import Any

import pytest

import telegrad
from telegrad_protocol.errors import DeviceError
from tests.support.kernel_driver import NotedDriver

triton = pytest.importorskip("triton", reason="Triton's wheel has 290 MB; GPU machines have it with PyTorch")
tl = pytest.importorskip("triton.language")
pytest.importorskip("triton.tools.tensor_descriptor")

BLOCK = 256


@triton.jit
def _add(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x, y = tl.load(x_ptr + places, mask=mask), tl.load(y_ptr + places, mask=mask)
    tl.store(out_ptr + places, x + alpha * y, mask=mask)


@triton.autotune(configs=[triton.Config({"BLOCK": size}, num_warps=4) for size in (128, 256)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def _scale(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x_ptr + places, tl.load(x_ptr + places) * 2)
    else:
        tl.store(x_ptr + places, tl.load(x_ptr + places, mask=places < n) * 2, mask=places < n)


@triton.jit
def _types(out_ptr, null_ptr, half, brain, double, small, big, flag, pair, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    total = half + brain + double + small + big + flag + pair[0] + pair[1]
    tl.store(out_ptr, total)
    if null_ptr is not None:
        tl.store(null_ptr, 1)


@triton.jit
def _row_sum(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.make_tensor_descriptor(x_ptr, shape=[n, BLOCK], strides=[BLOCK, 1], block_shape=[1, BLOCK])
    tl.store(out_ptr + tl.program_id(0), tl.sum(rows.load([tl.program_id(0), 0])))


def _launched(tg: Any, driver: NotedDriver) -> Any:
    tg.cuda.synchronize()
    return driver.launched[-1]


def _addresses(*tensors: Any) -> list[bytes]:
    return [struct.pack("=Q", tensor.data_ptr()) for tensor in tensors]


def test_kernels_are_specialised_as_triton_does_it(tg: Any, driver: NotedDriver) -> None:
    x, y, out = (tg.ones(1008, device="cuda") for _ in range(3))
    numbers = [struct.pack("=i", 1000), struct.pack("=f", 2.5)]
    aligned = _add[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, y, out, 1000, 2.5, BLOCK=BLOCK)
    launched = _launched(tg, driver)
    assert launched.arguments[:5] == [*_addresses(x, y, out), *numbers] and not any(map(any, launched.arguments[5:]))
    assert launched.geometry[:2] == ((4, 1, 1), (128, 1, 1))
    assert (x._version, y._version, out._version) == (0, 0, 1)
    assert _add[(4,)](x, y, out, 1000, 1.5, BLOCK=BLOCK) is aligned
    shifted = _add[(4,)](x[1:], y, out, 1000, 2.5, BLOCK=BLOCK)
    assert shifted is not aligned and _launched(tg, driver).arguments[0] == _addresses(x[1:])[0]
    assert _add[(4,)](x[4:], y, out, 1000, 2.5, BLOCK=BLOCK) is aligned, "16 bytes from the beginning"
    assert _add[(1,)](x, y, out, 1, 2.5, BLOCK=BLOCK) is not aligned
    assert len(_launched(tg, driver).arguments) == len(launched.arguments) - 1, "n is 1, a constant"
    assert _add[(4,)](x.half(), y, out, 1000, 2.5, BLOCK=BLOCK) is not aligned
    with pytest.raises(DeviceError, match=r"argument 2 is float32\[1008\] on cpu"):
        _add[(4,)](x, y.cpu(), out, 1000, 2.5, BLOCK=BLOCK)


def test_autotune_measures_on_the_server_and_heuristics_hold(tg: Any, driver: NotedDriver) -> None:
    x = tg.ones(1024, device="cuda")
    _scale[lambda meta: (triton.cdiv(1024, meta["BLOCK"]),)](x, 1024)
    assert _scale.best_config.kwargs["BLOCK"] in (128, 256) and len(_scale.configs_timings) == 2
    before = x._version
    _scale[lambda meta: (triton.cdiv(1024, meta["BLOCK"]),)](x, 1024)
    assert x._version == before + 1
    assert triton.testing.do_bench(lambda: _add[(4,)](x, x, x, 1000, 1.0, BLOCK=BLOCK), quantiles=[0.5]) == 2.5


def test_every_type_of_argument_has_its_bytes(tg: Any, driver: NotedDriver) -> None:
    out = tg.zeros(4, device="cuda", dtype=tg.float64)
    _types[(1,)](out, None, 1.5, 2.5, 3.5, 7, 2**40, True, (5, 6.5), BLOCK=2)
    given = [value for value in _launched(tg, driver).arguments if any(value)]
    assert given == [
        *_addresses(out), *(struct.pack("=f", value) for value in (1.5, 2.5, 3.5)), struct.pack("=i", 7),
        struct.pack("=q", 2**40), b"\1", struct.pack("=i", 5), struct.pack("=f", 6.5),
    ]  # fmt: skip


def test_what_tutorials_ask_of_the_driver_is_the_servers(tg: Any, driver: NotedDriver) -> None:
    active = triton.runtime.driver.active
    device = active.get_active_torch_device()
    properties = active.utils.get_device_properties(device.index)
    assert str(device) == "cuda:0" and active.get_current_target().arch == 90
    assert (properties["multiprocessor_count"], properties["max_shared_mem"]) == (132, 227 << 10)
    x = tg.ones(1000, device=device)
    kernel = _add.warmup(x, x, x, 1000, 2.5, BLOCK=BLOCK, grid=(1,))
    kernel._init_handles()
    assert kernel.n_regs == 32 and not driver.launched
    kernel[(7, 1, 1)](x, x, x, 1000, 2.5, BLOCK)
    assert _launched(tg, driver).geometry.grid == (7, 1, 1)


def test_descriptors_are_made_in_kernels_with_memory_of_the_session(tg: Any, driver: NotedDriver) -> None:
    x, out = tg.ones(4, 64, device="cuda"), tg.zeros(4, device="cuda")
    allocated = tg.cuda.memory_allocated()
    _row_sum[(4,)](x, out, 4, BLOCK=64)
    scratch = _launched(tg, driver).arguments[-2]
    assert any(scratch) and tg.cuda.memory_allocated() == allocated


@triton.jit
def _by_descriptor(rows, out, pair, scale):  # type: ignore[no-untyped-def]
    place = tl.program_id(0)
    out.store([place, 0], rows.load([place, 0]) * scale + pair[1].load([place, 0]))


def test_descriptors_that_the_host_makes_become_maps_of_the_server(tg: Any, driver: NotedDriver) -> None:
    descriptor = triton.tools.tensor_descriptor.TensorDescriptor
    x, out = tg.ones(6, 64, device="cuda", dtype=tg.float16), tg.zeros(6, 128, device="cuda", dtype=tg.float16)
    given = descriptor.from_tensor(x, [1, 64]), descriptor(out[:, 64:], [6, 64], [128, 1], [1, 64])
    _by_descriptor[(6,)](*given, (3, given[0]), 2.5)
    arguments = _launched(tg, driver).arguments
    maps = [(address, made) for address, made in driver.maps]
    assert [address for address, _ in maps] == [x.data_ptr(), out.data_ptr() + 128, x.data_ptr()]
    (_, first), (_, second), _ = maps
    assert (first.kind, first.itemsize, first.shape, first.strides, first.box) == (6, 2, (6, 64), (64, 1), (1, 64))
    assert (second.shape, second.strides) == ((6, 64), (128, 1))
    assert [len(argument) for argument in arguments[:5]] == [128, 4, 4, 8, 8]
    assert (x._version, out._version) == (0, 1), "stores through a map are followed back to it"


def test_kernels_run_inside_functions_with_derivatives(tg: Any, driver: NotedDriver) -> None:
    class Add(tg.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            out = tg.zeros_like(x)
            _add[(4,)](x, y, out, x.numel(), 1.0, BLOCK=BLOCK)
            return out

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad, 2 * grad

    x, y = (tg.ones(1000, device="cuda", requires_grad=True) for _ in range(2))
    Add.apply(x, y).sum().backward()
    assert (x.grad.sum().item(), y.grad.sum().item(), len(driver.launched)) == (1000, 2000, 1)


def test_custom_operators_launch_kernels_as_the_seeds_print_it(tg: Any, driver: NotedDriver) -> None:
    @tg.library.custom_op("kernels_test::triton_add", mutates_args=())
    def triton_add(x: telegrad.Tensor, y: telegrad.Tensor) -> telegrad.Tensor:
        assert x.is_cuda and y.is_cuda and x.shape == y.shape
        out = tg.empty_like(x)
        _add[((x.numel() + 1023) // 1024,)](x.contiguous(), y.contiguous(), out, x.numel(), 1.0, BLOCK=1024)
        return out

    @triton_add.register_fake
    def _(x: Any, y: Any) -> Any:
        return tg.empty_like(x)

    triton_add.register_autograd(lambda ctx, grad: (grad, grad))
    x, y = (tg.ones(4096, device="cuda", requires_grad=True) for _ in range(2))
    tg.ops.kernels_test.triton_add(x, y).sum().backward()
    assert (x.grad.shape, y.grad.sum().item()) == ((4096,), 4096)
    assert [launch.geometry.grid for launch in driver.launched] == [(4, 1, 1)]

    @tg.library.triton_op("kernels_test::doubled", mutates_args=())
    def doubled(x: telegrad.Tensor) -> telegrad.Tensor:
        out = tg.empty_like(x)
        tg.library.wrap_triton(_add)[(4,)](x, x, out, x.numel(), 1.0, BLOCK=1024)
        return out

    assert doubled(tg.empty(3, 5, device="meta")).shape == (3, 5)
    with pytest.raises(DeviceError, match="on meta, and has no elements"):
        _add[(4,)](x.detach(), tg.empty(4096, device="meta"), x.detach(), 1000, 1.0, BLOCK=1024)
    doubled(x.detach())
    tg.cuda.synchronize()
    assert len(driver.launched) == 2


def test_a_compiled_kernel_outlives_its_session(tg: Any, simulated: Any, driver: NotedDriver) -> None:
    loaded = len(driver.loaded)
    for _ in range(2):
        with tg.connect(in_process=simulated):
            x = tg.ones(1000, device="cuda")
            _add[(4,)](x, x, x, 1000, 3.5, BLOCK=BLOCK)
            tg.cuda.synchronize()
    assert len(driver.loaded) == loaded + 2
