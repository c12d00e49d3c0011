"""Compiled loops for Fourier transforms on the host, beside transforms in extended precision and pocketfft's errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.fft
import torch

from server.engine import compiled
from server.engine.array_library import host_fourier
from server.engine.device import threads

from .adapters import EngineAdapter

NORMS = ("backward", "ortho", "forward")
INVERSE_NORMS = ("forward", "ortho", "backward")
EPS = {"F": 2**-24, "D": 2**-53}
LONG = (1024, 1000, 2048, 4095, 5000, 3**8, 8192, 11 * 13 * 49, 12288, 65536, 65535, 100000, 131070, 14 * 1021)
ELEMENTS = 1 << 12
"""Enough for the loops to be used."""


@pytest.fixture(autouse=True)
def loops() -> None:
    """Small transforms do not load them."""
    assert all([compiled.kernels(name) for name in host_fourier.MODULES])


def signals(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Any:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)


def wide(x: Any) -> Any:
    """The same numbers in the next higher precision, in which a transform is exact beside one in theirs."""
    return x.astype({"f": "d", "F": "D", "d": "g", "D": "G"}[x.dtype.char])


def error(actual: Any, exact: Any) -> float:
    return float(np.linalg.norm(actual - exact) / max(np.linalg.norm(exact), 1e-300))


def check(actual: Any, exact: Any, pocketfft: Any, kind: str, what: str) -> None:
    """The error is a few units in the last place, or little more than pocketfft's."""
    bound = max(2 * error(pocketfft, exact), EPS[kind] * (1 + math.log2(exact.shape[-1] + 1)))
    assert error(actual, exact) <= bound, what


@pytest.mark.parametrize("kind", ["F", "D"])
def test_every_length_is_as_exact_as_pocketfft(rng: np.random.Generator, kind: str) -> None:
    taken = 0
    for n in (*range(1, 301), *LONG):
        x = signals(rng, (max(2, -(-ELEMENTS // n)), n), kind)
        for forward, transform in ((True, scipy.fft.fft), (False, scipy.fft.ifft)):
            out = np.empty(x.shape, kind)
            if host_fourier.transform(x, (1,), 1, forward, out):
                taken += 1
                check(out, transform(wide(x), norm="ortho"), transform(x, norm="ortho"), kind, f"{n} {forward}")
        half = np.empty((len(x), n // 2 + 1), kind)
        real = np.ascontiguousarray(x.real)
        if host_fourier.transform(real, (1,), 0, True, half):
            check(half, scipy.fft.rfft(wide(real)), scipy.fft.rfft(real), kind, f"real {n}")
        back = np.empty(x.shape, kind.lower())
        given = np.ascontiguousarray(x[:, : n // 2 + 1])
        if host_fourier.transform(given, (1,), 2, False, back):
            exact = scipy.fft.irfft(wide(given), n)
            check(back, exact, scipy.fft.irfft(given, n), kind, f"hermitian {n}")
    assert taken > 400


@pytest.mark.parametrize("kind", ["F", "D"])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_layouts_axes_and_factors(rng: np.random.Generator, kind: str, mode: int) -> None:
    for shape, axes in [((40, 50, 12), (0, 1, 2)), ((40, 50, 12), (2, 0)), ((3, 64, 70), (1,)), ((4, 900, 3), (1,)),
                        ((9, 31, 33), (0, 2)), ((7, 5, 300), (1, 2)), ((2, 6000, 2), (1,))]:  # fmt: skip
        for order in ("C", "F"):
            x = np.asarray(np.repeat(signals(rng, shape, kind), 2, axis=0)[::-2], order=order)  # type: ignore[call-overload]
            given = x.copy()
            for forward, transform, norms in ((True, scipy.fft.fftn, NORMS), (False, scipy.fft.ifftn, INVERSE_NORMS)):
                out = np.empty(shape, kind, order=order)  # type: ignore[call-overload]
                for _ in range(2):  # the second call knows the layouts
                    assert host_fourier.transform(x, axes, mode, forward, out)
                    assert error(out, transform(wide(x), axes=axes, norm=norms[mode])) < 20 * EPS[kind]
            half = np.empty([n // 2 + 1 if d == axes[-1] else n for d, n in enumerate(shape)], kind)
            assert host_fourier.transform(x.real, axes, mode, True, half)
            assert error(half, scipy.fft.rfftn(wide(x.real), axes=axes, norm=NORMS[mode])) < 20 * EPS[kind]
            axis = axes[-1]
            back = np.empty(shape, kind.lower())
            hermitian = x[tuple([slice(n) for n in half.shape])]
            assert host_fourier.transform(hermitian, (axis,), mode, False, back)
            exact = scipy.fft.irfft(wide(hermitian), shape[axis], axis, norm=INVERSE_NORMS[mode])
            assert error(back, exact) < 20 * EPS[kind]
            np.testing.assert_array_equal(x, given)


@pytest.mark.parametrize("kind", ["F", "D"])
@pytest.mark.parametrize("count", [1, 3, 70])
def test_dense_signals_are_transformed_between_addresses(rng: np.random.Generator, kind: str, count: int) -> None:
    real, taken = np.dtype(kind.lower()), 0
    for n in (512, 640, 1000, 1024, 1280, 2688, 4096, 8192, 16384):
        for forward, mode in ((True, 0), (False, 2), (True, 1)):
            run = host_fourier.by_addresses(np.dtype(kind), np.dtype(kind), (count, n), (1,), mode, forward)
            if callable(run):
                taken += 1
                x, out = signals(rng, (count, n), kind), np.empty((count, n), kind)
                run(x.ctypes.data, out.ctypes.data)
                transform, norms = (scipy.fft.fft, NORMS) if forward else (scipy.fft.ifft, INVERSE_NORMS)
                exact = transform(wide(x), norm=norms[mode])
                check(out, exact, transform(x, norm=norms[mode]), kind, f"{n} {forward}")
        run = host_fourier.by_addresses(real, np.dtype(kind), (count, n), (1,), 0, True)
        if callable(run):
            given, half = rng.standard_normal((count, n)).astype(real), np.empty((count, n // 2 + 1), kind)
            run(given.ctypes.data, half.ctypes.data)
            check(half, scipy.fft.rfft(wide(given)), scipy.fft.rfft(given), kind, f"real {n}")
        run = host_fourier.by_addresses(np.dtype(kind), real, (count, n), (1,), 0, False)
        if callable(run):
            given, back = signals(rng, (count, n // 2 + 1), kind), np.empty((count, n), real)
            run(given.ctypes.data, back.ctypes.data)
            exact = scipy.fft.irfft(wide(given), n, norm="forward")
            check(back, exact, scipy.fft.irfft(given, n, norm="forward"), kind, f"hermitian {n}")
    assert taken >= 15


SHORT = (*range(1, 20), 31, 48, 61, 67, 96, 101, 122, 127, 134, 254, 255, 257, 514, 1018, 2042)
"""Lengths that are one pass, several passes, convolutions, and twice such a length."""


@pytest.mark.parametrize("kind", ["F", "D"])
@pytest.mark.parametrize("count", [1, 2, 5, 16, 17, 45])
def test_short_batches_are_as_exact_as_pocketfft(rng: np.random.Generator, kind: str, count: int) -> None:
    """Lanes of the last vector have no signal of their own where the count is no multiple of theirs."""
    taken = 0
    for n in SHORT:
        x, out = signals(rng, (count, n), kind), np.empty((count, n), kind)
        for forward, transform in ((True, scipy.fft.fft), (False, scipy.fft.ifft)):
            if host_fourier.transform(x, (1,), 1, forward, out):
                taken += 1
                check(out, transform(wide(x), norm="ortho"), transform(x, norm="ortho"), kind, f"{n} {forward}")
        real, half = np.ascontiguousarray(x.real), np.empty((count, n // 2 + 1), kind)
        if host_fourier.transform(real, (1,), 0, True, half):
            check(half, scipy.fft.rfft(wide(real)), scipy.fft.rfft(real), kind, f"real {n}")
        given, back = np.ascontiguousarray(x[:, : n // 2 + 1]), np.empty((count, n), kind.lower())
        if host_fourier.transform(given, (1,), 2, False, back):
            check(back, scipy.fft.irfft(wide(given), n), scipy.fft.irfft(given, n), kind, f"hermitian {n}")
    assert taken >= (8 if count < 4 else 2 * len(SHORT))


@pytest.mark.parametrize("kind", ["F", "D"])
def test_nothing_beside_the_result_is_written(rng: np.random.Generator, kind: str) -> None:
    """Vectors reach beyond signals that are shorter than they are, and beyond the last of those side by side."""
    size, real = np.dtype(kind).itemsize, np.dtype(kind.lower())
    for shape, axis in (((21, 3), 1), ((21, 7), 1), ((5, 13), 1), ((35, 16), 1), ((2, 6, 9), 1), ((3, 70, 3), 1)):
        half = tuple([n // 2 + 1 if d == axis else n for d, n in enumerate(shape)])
        whole, numbers = signals(rng, shape, kind), rng.standard_normal(shape).astype(real)
        cases = (
            (whole, shape, kind),
            (numbers, half, kind),
            (np.ascontiguousarray(whole[tuple(map(slice, half))]), shape, real),
        )
        for given, wanted, dtype in cases:
            run = host_fourier.by_addresses(given.dtype, np.dtype(dtype), shape, (axis,), 0, given is not cases[2][0])
            assert callable(run)
            nbytes = math.prod(wanted) * np.dtype(dtype).itemsize
            memory = np.full(nbytes + 32 * size, 77, np.uint8)
            run(given.ctypes.data, memory.ctypes.data + 16 * size)
            assert (memory[: 16 * size] == 77).all() and (memory[nbytes + 16 * size :] == 77).all(), (shape, dtype)


@pytest.mark.parametrize("kind", ["F", "D"])
def test_signals_along_other_dimensions(rng: np.random.Generator, kind: str) -> None:
    """Few signals that lie side by side are copied first, others are lanes, of which the last vector has not all."""
    for shape, axes in [((5, 12, 5), (1,)), ((16, 256, 3), (1,)), ((64, 16, 9), (1, 2)), ((100, 7, 7), (1, 2)),
                        ((5, 100, 2), (1,)), ((45, 7, 2), (1,)), ((33, 15), (0,)), ((3, 4100, 5), (1,)),
                        ((16, 16), (0, 1)), ((6, 128, 129), (1, 2)), ((20, 9, 9, 8), (3, 1, 2)),
                        ((4, 101, 6), (1,))]:  # fmt: skip
        x = signals(rng, shape, kind)
        for forward, transform in ((True, scipy.fft.fftn), (False, scipy.fft.ifftn)):
            out = np.empty(shape, kind)
            assert host_fourier.transform(x, axes, 1, forward, out)
            assert error(out, transform(wide(x), axes=axes, norm="ortho")) < 20 * EPS[kind]
        real, lengths = np.ascontiguousarray(x.real), [shape[axis] for axis in axes]
        half = np.empty([n // 2 + 1 if d == axes[-1] else n for d, n in enumerate(shape)], kind)
        assert host_fourier.transform(real, axes, 0, True, half)
        assert error(half, scipy.fft.rfftn(wide(real), axes=axes)) < 20 * EPS[kind]
        given, back = np.ascontiguousarray(x[tuple(map(slice, half.shape))]), np.empty(shape, kind.lower())
        assert host_fourier.transform(given, axes, 2, False, back)
        assert error(back, scipy.fft.irfftn(wide(given), lengths, axes=axes)) < 20 * EPS[kind]


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2"])
def test_operations_on_images_are_pytorchs(rng: np.random.Generator, name: str) -> None:
    adapter = EngineAdapter()
    for shape in ((16, 16), (40, 7, 7), (3, 20, 21), (2, 128, 96)):
        given = torch.from_numpy(signals(rng, shape, "F"))
        given = given.real.contiguous() if name == "rfft2" else given
        expected = getattr(torch.fft, name)(given.to(torch.promote_types(given.dtype, torch.float64)))
        value = adapter.tensor(given)
        for _ in range(3):
            actual = adapter.numpy(getattr(adapter.functional, f"fft_{name}")(value))
            assert error(actual, expected.numpy()) < 20 * EPS["F"]


def test_signals_of_other_scales_stay_exact(rng: np.random.Generator) -> None:
    """A lane's rounding depends on its own signal alone, however large those beside it are."""
    scales = 10.0 ** rng.integers(-30, 30, 50)
    for n in (5, 15, 33, 101, 202):
        real = (rng.standard_normal((50, n)) * scales[:, None]).astype("f")
        half = np.empty((50, n // 2 + 1), "F")
        assert host_fourier.transform(real, (1,), 0, True, half)
        for row, exact in zip(half, scipy.fft.rfft(wide(real)), strict=True):
            assert error(row, exact) < 20 * EPS["F"]


def test_views_at_an_offset_are_transformed_where_they_are(rng: np.random.Generator) -> None:
    adapter = EngineAdapter()
    whole = torch.from_numpy(signals(rng, (3, 1024), "F"))
    for name in ("fft", "ifft", "rfft", "irfft"):
        given = whole.real.contiguous() if name == "rfft" else whole[:, :513].contiguous() if name == "irfft" else whole
        function = getattr(adapter.functional, f"fft_{name}")
        value = adapter.tensor(given)
        expected = getattr(torch.fft, name)(given.to(torch.promote_types(given.dtype, torch.float64)))
        for row in range(3):
            for _ in range(3):  # the first call finds out what the composite comes to, and the second remembers it
                actual = adapter.numpy(function(adapter.functional.select(value, 0, row)))
                assert error(actual, expected[row].numpy()) < 20 * EPS["F"], name


def test_threads_change_no_bit(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    for shape, axes in [((300, 500), (0, 1)), ((5, 1 << 15), (1,)), ((99, 1024), (1,)), ((37, 4, 1021), (2,))]:
        x = signals(rng, shape, "F")
        results = []
        for number in (1, 3):
            monkeypatch.setattr(threads, "available", lambda number=number: number)
            results.append(np.empty(shape, "F"))
            assert host_fourier.transform(x, axes, 0, True, results[-1])
        np.testing.assert_array_equal(*results)


def test_values_that_are_not_finite_stay_in_their_signal(rng: np.random.Generator) -> None:
    x = signals(rng, (40, 240), "F")
    x[7, 3] = complex(math.inf, 0)
    x[33] = complex(math.nan, math.nan)
    out = np.empty(x.shape, "F")
    assert host_fourier.transform(x, (1,), 0, True, out)
    assert np.flatnonzero(~np.isfinite(out).all(1)).tolist() == [7, 33]


def test_small_transforms_and_those_without_loops_are_left_to_the_library(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = np.empty(16, "F")
    assert not host_fourier.transform(signals(rng, (16,), "F"), (0,), 0, True, out)
    monkeypatch.setattr(compiled, "kernels", lambda name: None)
    x = signals(rng, (64, 1024), "F")
    assert not host_fourier.transform(x, (1,), 0, True, np.empty(x.shape, "F"))


@pytest.mark.parametrize("kind", ["F", "D"])
def test_operands_of_other_layouts_and_real_ones(rng: np.random.Generator, kind: str) -> None:
    """Transposed signals are read where they are, others are copied, and real ones may have a whole transform."""
    adapter = EngineAdapter()
    functional = adapter.functional
    for shape in ((64, 40), (100, 16), (37, 33), (5000, 20), (128, 2), (30, 134)):
        tensor = torch.from_numpy(signals(rng, shape, kind))
        for given in (tensor, tensor.real.contiguous()):
            value, exact = adapter.tensor(given), wide(given.numpy())
            name = "fft" if given.is_complex() else "rfft"
            transposed = getattr(scipy.fft, name)(exact.T), scipy.fft.fft(exact.T)
            exact_sliced, exact_whole = scipy.fft.fft(exact[:, ::2]), scipy.fft.fft2(exact)
            for _ in range(3):
                view = functional.transpose(value, 0, 1)
                for actual, expected in zip(
                    (getattr(functional, f"fft_{name}")(view), functional.fft_fft(view)), transposed, strict=True
                ):
                    assert error(adapter.numpy(actual), expected) < 20 * EPS[kind], (shape, name)
                sliced = functional.fft_fft(functional.slice(value, 1, 0, None, 2))
                assert error(adapter.numpy(sliced), exact_sliced) < 20 * EPS[kind]
                whole = functional.fft_fft2(value)
                assert error(adapter.numpy(whole), exact_whole) < 20 * EPS[kind]
        back = functional.fft_irfft(functional.transpose(adapter.tensor(tensor), 0, 1))
        assert error(adapter.numpy(back), scipy.fft.irfft(wide(tensor.numpy().T))) < 20 * EPS[kind]


def test_beside_mkl_loops_make_real_numbers_and_nothing_else(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_fourier, "mkl", lambda: "it is there")
    half, whole = signals(rng, (8, 513), "F"), np.empty((8, 1024), np.float32)
    assert host_fourier.transform(half, (1,), 2, False, whole)
    assert error(whole, scipy.fft.irfft(wide(half))) < 1e-6
    assert not host_fourier.transform(half, (1,), 2, False, np.empty_like(half))
    assert not host_fourier.transform(whole, (1,), 1, True, np.empty_like(half))
