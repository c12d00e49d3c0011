"""Numba's device arrays, streams and events on the server's GPU, by the names that programs use."""

from __future__ import annotations

import runpy
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import telegrad  # noqa: F401  # before Numba is asked for a GPU
from telegrad_protocol.errors import ArgumentError, DTypeError, NotSupportedError
from tests.support.kernel_driver import NotedDriver

pytest.importorskip("numba_cuda", reason="Numba's packages are for those who have kernels for it")
numba = pytest.importorskip("numba")
cuda = pytest.importorskip("numba.cuda")

PRINTED = Path(__file__).parents[1] / "examples" / "seeds" / "numba_square.py"


@cuda.jit
def _add(x, y, n):  # type: ignore[no-untyped-def]
    place = cuda.grid(1)
    if place < n:
        y[place] += x[place]


def shown_alone(folder: Path) -> Path:
    """Return the printed program without what a kernel must have computed, which this GPU does not."""
    copy = folder / PRINTED.name
    copy.write_text(PRINTED.read_text().partition("# Shown:")[0])
    return copy


def test_the_printed_program_launches_its_kernel_on_the_server(tg: Any, driver: NotedDriver, tmp_path: Path) -> None:
    variables = runpy.run_path(str(shown_alone(tmp_path)))
    (launched,) = driver.launched
    assert launched.geometry[:2] == ((1, 1, 1), (16, 16, 1))
    matrix, result = variables["d_matrix"], variables["d_result"]
    sizes = [struct.pack("=q", number) for number in (2, 3, 12, 4)]
    assert launched.arguments[5:9] == launched.arguments[14:18] == sizes
    assert np.array_equal(matrix.copy_to_host(), variables["matrix"]) and matrix.tensor._version == 0
    assert result.tensor._version == 1 and variables["result"].dtype == np.float32


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float64", "int32", "uint8", "complex64", "bool", "float16", "uint64"])
def test_arrays_show_themselves_as_numpys_do(tg: Any, dtype: str, order: Any, rng: np.random.Generator) -> None:
    given = np.asarray(rng.integers(0, 2, (3, 4, 5)), dtype, order=order)
    array = cuda.to_device(given)
    for ours, theirs in ((array, given), (array.T, given.T), (array.transpose((1, 0, 2)), given.transpose((1, 0, 2)))):
        for name in ("shape", "dtype", "strides", "ndim", "size", "nbytes"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert np.array_equal(ours.copy_to_host(), theirs) and len(ours) == len(theirs)
        assert ours.is_f_contiguous() == theirs.flags.f_contiguous
    assert np.array_equal(array[1:, 2].copy_to_host(), given[1:, 2]) and array[1, 2, 3] == given[1, 2, 3]
    assert np.array_equal(array.ravel(order=order).copy_to_host(), given.ravel(order=order))
    assert np.array_equal(array.reshape(12, 5, order=order).copy_to_host(), given.reshape(12, 5, order=order))
    like = cuda.device_array_like(given)
    assert (like.shape, like.dtype, like.strides) == (given.shape, given.dtype, given.strides)
    like[:] = given
    like[0, 0] = 1
    other = np.empty_like(given)
    assert like.copy_to_host(other) is other and (other[0, 0] == 1).all() and np.array_equal(other[1:], given[1:])
    array.copy_to_device(like)
    assert np.array_equal(np.asarray(array), other)


def test_what_the_server_has_no_place_for_is_refused(tg: Any) -> None:
    with pytest.raises(NotSupportedError, match="to_device and copy_to_host"):
        cuda.mapped_array(3)
    with pytest.raises(DTypeError, match="no arrays of"):
        cuda.to_device(np.zeros(3, "U4"))
    with pytest.raises(ArgumentError, match="not contiguous"):
        cuda.to_device(np.zeros((4, 4))[:, ::2])
    with pytest.raises(ArgumentError, match="cannot take"):
        cuda.device_array(3).copy_to_host(np.zeros(4))


def test_arrays_of_the_host_are_copied_there_and_back(tg: Any, driver: NotedDriver) -> None:
    x, y = np.ones(8), np.ones(8)
    tensor = tg.ones(8, device="cuda", dtype=tg.float64)
    _add[1, 8](x, y, 8)
    _add[1, 8](cuda.In(x), cuda.to_device(y), 8)
    _add[1, 8](cuda.as_cuda_array(tensor), tensor, 8)
    cuda.synchronize()
    assert len(driver.launched) == 3 and tensor._version == 1
    assert driver.launched[2].arguments[4] == struct.pack("=Q", tensor.data_ptr())


def test_streams_events_and_devices_have_numbas_names(tg: Any, driver: NotedDriver) -> None:
    array, stream = cuda.to_device(np.ones(8)), cuda.stream()
    before, after = cuda.event(), cuda.event()
    with stream.auto_synchronize():
        before.record(stream)
        _add[1, 8, stream](array, array, 8)
        after.record(stream)
    after.synchronize()
    assert cuda.event_elapsed_time(before, after) >= 0 and driver.launched[0].stream != 0
    device = cuda.get_current_device()
    assert cuda.is_available() and (device.id, device.compute_capability) == (0, (9, 0))
    assert (device.MULTIPROCESSOR_COUNT, device.WARP_SIZE) == (132, 32)
    with cuda.pinned(np.ones(3)):
        assert cuda.pinned_array(3, np.int8).dtype == np.int8
