"""Numba's kernels called with telegrad's tensors, up to the driver: how arguments are lowered, and what is launched."""

from __future__ import annotations

import gc
import struct
import weakref
from typing import Any

import pytest

import telegrad  # noqa: F401  # before Numba is asked to compile for a GPU
from telegrad_protocol.errors import ArgumentTypeError, DeviceError
from tests.support.kernel_driver import NotedDriver

pytest.importorskip("numba_cuda", reason="Numba's packages are for those who have kernels for it")
numba = pytest.importorskip("numba")
cuda = pytest.importorskip("numba.cuda")


@cuda.jit
def _copy(source, target):  # type: ignore[no-untyped-def]
    x, y = cuda.grid(2)
    if x < source.shape[0] and y < source.shape[1]:
        target[x, y] = source[x, y]


@cuda.jit
def _many(source, count, factor, z, flag, pair, target):  # type: ignore[no-untyped-def]
    place = cuda.grid(1)
    if place < count and flag:
        target[place] = source[place] * factor + z.real + pair[0] + pair[1]


@cuda.jit("void(float32[:], float32, int32)")
def _declared(x, value, count):  # type: ignore[no-untyped-def]
    place = cuda.grid(1)
    if place < count:
        x[place] = value


def _array(tensor: Any) -> list[bytes]:
    """A tensor as Numba's kernels take an array."""
    numbers = [tensor.numel(), tensor.itemsize, tensor.data_ptr(), *tensor.shape]
    numbers += [stride * tensor.itemsize for stride in tensor.stride()]
    return [bytes(8), bytes(8), *(struct.pack("=q", number) for number in numbers)]


def test_arrays_are_lowered_as_numba_does_it(tg: Any, driver: NotedDriver) -> None:
    a, b, out = tg.ones(6, 4, device="cuda"), tg.ones(4, 7, device="cuda"), tg.zeros(6, 4, device="cuda")
    for source in (a, b.t()[:6], a[:, 1:3], out.new_ones(4, 6).t()):
        _copy[(2, 3), (8, 16)](source, out)
        tg.cuda.synchronize()
        launched = driver.launched[-1]
        assert launched.arguments == _array(source) + _array(out)
        assert launched.geometry[:3] == ((2, 3, 1), (8, 16, 1), 0)
    assert (a._version, b._version, out._version) == (0, 0, 4)
    stream = tg.cuda.Stream()
    _copy[1, 32, stream, 256](a, out)
    _copy[1, 32](a, out)
    tg.cuda.synchronize()
    first, second = driver.launched[-2:]
    assert first.stream != second.stream and (first.geometry.shared, second.geometry.shared) == (256, 0)


def test_every_kind_of_argument_and_forall(tg: Any, driver: NotedDriver) -> None:
    source, target = tg.ones(100, device="cuda"), tg.zeros(100, device="cuda", dtype=tg.float64)
    given = (source, 100, 2.5, 1 + 2j, True, (3, 4.5), target)
    _many[2, 64](*given)
    _many.forall(100)(*given)
    tg.cuda.synchronize()
    numbers = [struct.pack("=q", 100), struct.pack("=d", 2.5), struct.pack("=d", 1), struct.pack("=d", 2), b"\1"]
    numbers += [struct.pack("=q", 3), struct.pack("=d", 4.5)]
    for launched, sizes in zip(driver.launched[-2:], [(2, 64), (1, 256)], strict=True):
        assert launched.arguments == _array(source) + numbers + _array(target)
        assert (launched.geometry.grid[0], launched.geometry.block[0]) == sizes


def test_declared_signatures_convert(tg: Any, driver: NotedDriver) -> None:
    x = tg.zeros(100, device="cuda")
    _declared[1, 128](x, 3, 100)
    tg.cuda.synchronize()
    assert driver.launched[-1].arguments == [*_array(x), struct.pack("=f", 3), struct.pack("=i", 100)]
    with pytest.raises(ArgumentTypeError, match="no declared signature"):
        _declared[1, 128](x.double(), 3, 100)


def test_what_cannot_be_passed_is_refused(tg: Any) -> None:
    x = tg.zeros(4, 4, device="cuda")
    with pytest.raises(DeviceError, match="on cpu"):
        _copy[1, 32](x, x.cpu())
    with pytest.raises(ArgumentTypeError, match="bring them to a GPU"):
        _copy[1, 32](x.cpu(), x.cpu())
    with pytest.raises(ArgumentTypeError, match="array on this machine"):
        _copy[1, 32](x, x.cpu().numpy())


def test_launches_that_come_again_are_the_same(tg: Any, driver: NotedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = tg.ones(64, device="cuda"), tg.ones(8, 8, device="cuda", dtype=tg.float64)
    arrays = (x, x[::2], x[4:], y[1], y[:, 1])
    given: list[tuple[Any, tuple[Any, ...]]] = [
        (_many, (x, 5, 2.5, 1j, True, (3, 4), y[0])), (_many, (x, True, 2, 3.0, 1, (3, 4), x)),
        *[(_many, (a, 5, 2.5, 7.0, flag, (1, 2), y[0])) for a in arrays for flag in (True, 0)],
        *[(_declared, (a, value, count)) for a in (x, x[8:]) for value in (2.5, 3, 1e300) for count in (7, 2.75)],
        (_copy, (y, y.t())), (_copy, (y, x.reshape(8, 8))),
    ]  # fmt: skip
    launched = []
    for _ in range(3):
        for kernel, args in given:
            kernel[(2, 1), 8](*args)
        tg.cuda.synchronize()
        launched.append(list(driver.launched))
        driver.launched.clear()
    assert launched[0] == launched[1] == launched[2] and len(launched[0]) == len(given)
    monkeypatch.setattr("telegrad._kernels.numba_hooks._compiled", lambda *_: pytest.fail("looked up anew"))
    _copy[(2, 1), 8](y, y.t())
    _declared[[2, 1], 8](x, 4.5, 3)
    with pytest.raises(ArgumentTypeError, match="a stream of telegrad"):
        _copy[(2, 1), 8, 77](y, y.t())


def test_nothing_keeps_a_kernel_that_the_program_has_dropped(tg: Any, driver: NotedDriver) -> None:
    kernel = cuda.jit(_copy.py_func)
    kernel[(1, 2), (8, 16)](tg.ones(2, 2, device="cuda"), tg.zeros(2, 2, device="cuda"))
    assert kernel[(1, 2), (8, 16)] is kernel[(1, 2), (8, 16)]
    end = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert end() is None
