"""BLAS, LAPACK and Fourier transforms of the host as they are called: MKL where it is installed, else SciPy's."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.engine import compiled
from server.engine.array_library import fourier, host_lapack, host_spectra
from server.engine.array_library.host_libraries import call, mkl, workspace

NORMS = ("backward", "ortho", "forward")
INVERSE_NORMS = ("forward", "ortho", "backward")
LAYOUTS = {
    "rows": np.ascontiguousarray, "columns": np.asfortranarray,
    "gaps": lambda a: np.repeat(a, 2, axis=-1)[..., ::2], "reversed": lambda a: a[::-1],
}  # fmt: skip
SHAPES = [
    ((8,), (0,)), ((3, 10), (1,)), ((3, 10), (0,)), ((3, 4, 5), (1,)), ((3, 4, 5), (0, 2)), ((3, 4, 5), (2, 0)),
    ((2, 3, 4, 5), (1, 2, 3)), ((7, 1), (1,)), ((0, 4), (1,)), ((1021,), (0,)), ((4, 1, 6), (0, 2)),
]  # fmt: skip


def _complex(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Any:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)


def test_mkl_is_used_where_it_is_installed() -> None:
    assert (mkl() is not None) == bool([*Path(sys.prefix, "lib").glob("libmkl_rt.so*")])


@pytest.mark.parametrize("kind", ["f", "d", "F", "D"])
def test_a_routine_is_called_for_every_matrix(rng: np.random.Generator, kind: str) -> None:
    a = _complex(rng, (5, 4, 3), "D").astype(kind) if kind in "FD" else rng.standard_normal((5, 4, 3)).astype(kind)
    factor = host_lapack.columns_of(a)
    tau, infos, work = np.empty((5, 3), kind), np.full(5, -1, np.int32), workspace("geqrf", a.dtype, 4, 3, (), 4, ())
    call("geqrf", a.dtype, 5, 4, 3, factor, 4, tau, (work,), work.size, infos)
    assert not infos.any()
    upper = np.triu(factor[:, :3])
    gram = a.conj().swapaxes(-2, -1) @ a
    np.testing.assert_allclose(upper.conj().swapaxes(-2, -1) @ upper, gram, rtol=1e-4, atol=1e-4)


def test_a_failing_matrix_of_a_batch_leaves_the_others_alone(rng: np.random.Generator) -> None:
    batch = rng.standard_normal((20, 20, 20)) + 9 * np.eye(20)
    batch[[0, 7, 19], 3] = 0
    with np.errstate(all="ignore"):
        inverse, info = host_lapack.inv(batch)
    failed = info != 0
    assert np.flatnonzero(failed).tolist() == [0, 7, 19]
    assert np.isnan(inverse[failed]).all()
    np.testing.assert_allclose(inverse[~failed] @ batch[~failed], np.broadcast_to(np.eye(20), (17, 20, 20)), atol=1e-8)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("size", [63, 64, 65, 130])
def test_the_other_triangle_of_a_cholesky_factor_is_zero(rng: np.random.Generator, size: int, upper: bool) -> None:
    root = rng.standard_normal((2, size, size))
    factor, _ = host_lapack.cholesky(root @ root.swapaxes(-2, -1) + size * np.eye(size), upper)
    assert not (np.tril(factor, -1) if upper else np.triu(factor, 1)).any()
    assert factor.diagonal(axis1=-2, axis2=-1).all()


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["F", "D"])
def test_transforms_take_every_layout(rng: np.random.Generator, kind: str, layout: str, mode: int) -> None:
    for shape, axes in SHAPES:
        x = LAYOUTS[layout](_complex(rng, shape, kind))
        for forward, order in itertools.product((True, False), "CF"):
            out = np.empty(shape, kind, order=order)
            for _ in range(2):  # the second call knows the layouts
                fourier.complex_to_complex(np, x, axes, mode, forward, out)
            theirs, names = (np.fft.fftn, NORMS) if forward else (np.fft.ifftn, INVERSE_NORMS)
            expected = theirs(x.astype("D"), axes=axes, norm=names[mode])  # type: ignore[operator]
            np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_real_signals_and_their_halves(rng: np.random.Generator, layout: str, mode: int) -> None:
    for shape, axes in SHAPES:
        x = LAYOUTS[layout](_complex(rng, shape, "D"))
        given, axis = x.copy(), axes[-1]
        half = np.empty([n // 2 + 1 if d == axis else n for d, n in enumerate(shape)], "D")
        whole = np.empty(shape, "D")
        fourier.real_to_complex(np, x.real, axes, mode, True, half)
        fourier.real_to_complex(np, x.real, axes, mode, False, whole)
        np.testing.assert_allclose(half, np.fft.rfftn(x.real, axes=axes, norm=NORMS[mode]), atol=1e-9)
        np.testing.assert_allclose(whole, np.fft.fftn(x.real, axes=axes, norm=NORMS[mode]), atol=1e-9)
        for length in {max(1, 2 * (shape[axis] - 1)), 2 * shape[axis] - 1}:
            out = np.empty([length if d == axis else n for d, n in enumerate(shape)])
            fourier.complex_to_real(np, x, (axis,), mode, out)
            expected = np.fft.irfft(x, n=length, axis=axis, norm=INVERSE_NORMS[mode])  # type: ignore[call-overload]
            np.testing.assert_allclose(out, expected, atol=1e-9)
        np.testing.assert_array_equal(x, given)


@pytest.mark.parametrize("name", ["eig", "svdvals"])
def test_beside_mkl_loops_compute_the_spectra_of_many_small_matrices(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert compiled.kernels("factorizations.eigenvectors") and compiled.kernels("factorizations.spectra")
    monkeypatch.setattr(host_spectra, "mkl", lambda: "it is there")
    monkeypatch.setattr(host_spectra, "_loops", None)
    monkeypatch.setattr(host_spectra, "call", lambda *args: pytest.fail("LAPACK was called"))
    a = rng.standard_normal((64, 8, 8)).astype(np.float32)
    if name == "eig":
        values, columns, info = host_spectra.eig(a, True)
        np.testing.assert_allclose(a @ columns, columns * values[:, None], atol=1e-4)
        assert not info.any()
    else:
        values = np.empty((64, 8), np.float32)
        assert host_spectra.svdvals_into(a, values)
        np.testing.assert_allclose(values, np.linalg.svd(a.astype(float), compute_uv=False), atol=1e-5)
