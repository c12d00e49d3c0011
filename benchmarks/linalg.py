"""Linear algebra and Fourier transforms beside PyTorch's: ``python -m benchmarks.linalg [--device cuda:0]``.

On the CPU a figure is telegrad's time over PyTorch's, and the goal 1.2 at most; on a GPU it is PyTorch's time over
telegrad's, and the goal 0.97 at least. Operations are called on engine values in this process: what is measured is
dispatch, allocation and the library; the wire is not in it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import torch

from server.engine import functional as F
from server.engine.array_library.host_libraries import mkl

from . import on_gpu
from .kernel_cases import Case
from .kernels import compare_all
from .linalg_floor import with_floor
from .measure import Figure, about, save

_AT_MOST = 1.2
_AT_LEAST = 0.97


def _general(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[], list[Any]]:
    """Makes matrices that are far from singular."""

    def make() -> list[Any]:
        size = min(shape[-2:])
        return [torch.randn(shape, dtype=dtype) + size**0.5 * torch.eye(*shape[-2:], dtype=dtype)]

    return make


def _definite(*shape: int) -> Callable[[], list[Any]]:
    """Makes symmetric positive-definite matrices."""

    def make() -> list[Any]:
        root = torch.randn(shape)
        return [root @ root.mT / shape[-1] + torch.eye(shape[-1])]

    return make


def _with_sides(*shape: int) -> Callable[[], list[Any]]:
    return lambda: [*_general(*shape)(), torch.randn(*shape[:-1], 16)]


def _linalg(name: str, label: str, inputs: Callable[[], list[Any]]) -> Case:
    return Case(
        f"linalg.{name}, {label}", inputs, lambda F, *args: getattr(F, f"linalg_{name}")(*args),
        getattr(torch.linalg, name),
    )  # fmt: skip


SHAPES: dict[str, tuple[int, ...]] = {
    "10x10": (10, 10), "64 of 8x8": (64, 8, 8), "100 of 16x16": (100, 16, 16), "16 of 64x64": (16, 64, 64),
    "512x512": (512, 512), "1024x1024": (1024, 1024),
}  # fmt: skip
_GENERAL = ("inv", "det", "slogdet", "lu_factor", "qr", "svdvals", "svd")
_SLOW = ("svd", "svdvals", "eig", "eigh")


def linalg_cases() -> list[Case]:
    """Factorizations and what is made of them, for matrices of several sizes."""
    cases: list[Case] = []
    for label, shape in SHAPES.items():
        cases += [_linalg(name, label, _general(*shape)) for name in _GENERAL if shape[-1] < 1024 or name not in _SLOW]
        cases += [_linalg(name, label, _definite(*shape)) for name in ("cholesky", "eigh") if shape[-1] < 1024]
        cases.append(_linalg("solve", label, _with_sides(*shape)))
        if shape[-1] <= 64:
            cases += [_linalg(name, label, _general(*shape)) for name in ("eig", "matrix_exp")]
    double = lambda: [torch.randn(16, 64, 64, dtype=torch.float64)]
    cases += [_linalg("eig", "16 of 64x64, float64", double), _linalg("eigvalsh", "16 of 64x64", _definite(16, 64, 64))]
    cases += [_linalg(name, "2000x200", _general(2000, 200)) for name in ("qr", "svdvals", "svd")]
    cases.append(
        Case(
            "linalg.solve_triangular, 512x512", lambda: [torch.randn(512, 512).triu() + 30 * torch.eye(512),
                                                         torch.randn(512, 64)],
            lambda F, a, b: F.linalg_solve_triangular(a, b, upper=True),
            lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
        )
    )  # fmt: skip
    cases.append(
        Case("linalg.lstsq, 512x128", lambda: [torch.randn(512, 128), torch.randn(512, 4)],
             lambda F, a, b: F.linalg_lstsq(a, b, driver="gels"), lambda a, b: torch.linalg.lstsq(a, b, driver="gels"))
    )  # fmt: skip
    cases.append(
        Case("linalg.lstsq, 200 of 20x10", lambda: [torch.randn(200, 20, 10), torch.randn(200, 20, 3)],
             lambda F, a, b: F.linalg_lstsq(a, b), torch.linalg.lstsq)
    )  # fmt: skip
    return cases + _solvers()


def _with_factors(*shape: int) -> Callable[[], list[Any]]:
    """Makes a lower triangle with a dominant diagonal, and right sides."""
    rows = torch.arange(1.0, shape[-1] + 1)
    return lambda: [torch.randn(*shape[:-1], 3), torch.randn(shape).tril(-1) / shape[-1] + torch.diag_embed(rows)]


def _solvers() -> list[Case]:
    """What is solved with factors, and what is made of singular values, where calls cost the most."""
    cases = [_linalg("lstsq", "20x10", lambda: [torch.randn(20, 10), torch.randn(20, 3)])]
    for label, shape in (("10x10", (10, 10)), ("1000 of 3x3", (1000, 3, 3)), ("32 of 10x10", (32, 10, 10))):
        cases += [_linalg(name, label, _general(*shape)) for name in ("ldl_factor", "matrix_rank")]
        cases.append(Case(f"cholesky_solve, {label}", _with_factors(*shape), lambda F, b, L: F.cholesky_solve(b, L),
                          torch.cholesky_solve))  # fmt: skip
    cases += [_linalg(name, "200x10", _general(200, 10)) for name in ("svd", "pinv")]
    cases += [_linalg("lu", "64 of 20x5", _general(64, 20, 5)), _linalg("lu", "2000x64", _general(2000, 64))]
    reflected = lambda: [*torch.geqrf(torch.randn(16, 100, 20)), torch.randn(16, 100, 4)]
    cases.append(Case("ormqr, 16 of 100x20", reflected, lambda F, *args: F.ormqr(*args), torch.ormqr))
    return cases


_SIGNALS: dict[str, tuple[int, ...]] = {
    "1024": (1024,), "64 of 1024": (64, 1024), "64 of 1000": (64, 1000), "16 of 65536": (16, 65536),
    "1048576": (1 << 20,), "1000 of 256": (1000, 256), "64 of 1021 (prime)": (64, 1021),
}  # fmt: skip
_BATCHES: dict[str, tuple[int, ...]] = {
    "128 of 16": (128, 16), "1000 of 7": (1000, 7), "20000 of 4": (20000, 4), "20000 of 60": (20000, 60),
    "16 of 502 (2 x prime)": (16, 502), "1000 of 45": (1000, 45),
}  # fmt: skip
"""Many short signals, and lengths that are odd or have large prime factors."""
_IMAGES: dict[str, tuple[int, ...]] = {
    "256x256": (256, 256),
    "16 of 512x512": (16, 512, 512),
    "1000 of 7x7": (1000, 7, 7),
}


def _transform(name: str, label: str, shape: tuple[int, ...], dtype: torch.dtype) -> Case:
    return Case(
        f"fft.{name}, {label}", lambda: [torch.randn(shape, dtype=dtype)],
        lambda F, x: getattr(F, f"fft_{name}")(x), getattr(torch.fft, name),
    )  # fmt: skip


_DOUBLES = {"fft": torch.complex128, "rfft": torch.float64, "irfft": torch.complex128}


def _batch(name: str, label: str, count: int, n: int) -> Case:
    """Transforms of ``count`` signals of ``n`` numbers in double precision."""
    shape = (count, n // 2 + 1 if name == "irfft" else n)
    return Case(
        f"fft.{name}, {label}, float64", lambda: [torch.randn(shape, dtype=_DOUBLES[name])],
        lambda F, x: getattr(F, f"fft_{name}")(x, n), lambda x: getattr(torch.fft, name)(x, n),
    )  # fmt: skip


def fft_cases() -> list[Case]:
    """Transforms of signals and images, complex and real."""
    cases = []
    for label, shape in _SIGNALS.items():
        cases += [
            _transform("fft", label, shape, torch.complex64), _transform("rfft", label, shape, torch.float32),
            _transform("irfft", label, shape, torch.complex64),
        ]  # fmt: skip
    for label, (count, n) in _BATCHES.items():
        cases += [_batch(name, label, count, n) for name in _DOUBLES]
    along = lambda: [torch.randn(16, 256, 3, dtype=torch.complex64)]
    cases.append(Case("fft.fft, 16 of 256 x 3 along 256", along, lambda F, x: F.fft_fft(x, None, 1),
                      lambda x: torch.fft.fft(x, dim=1)))  # fmt: skip
    for label, shape in _IMAGES.items():
        cases += [
            _transform("fft2", label, shape, torch.complex64), _transform("rfft2", label, shape, torch.float32),
        ]  # fmt: skip
    window = lambda: [torch.randn(16, 65536), torch.hann_window(1024)]
    cases.append(
        Case("stft, 16 of 65536", window, lambda F, x, w: F.stft(x, 1024, window=w, return_complex=True),
             lambda x, w: torch.stft(x, 1024, window=w, return_complex=True))
    )  # fmt: skip
    return cases


def on_cpu(cases: list[Case], threads: list[int]) -> list[Figure]:
    """Telegrad's time over PyTorch's, and over SciPy's bare call where that goal is missed."""
    figures = compare_all(cases, threads, at_most=_AT_MOST)
    counts = [count for count in threads for _ in cases]
    return [with_floor(*each) for each in zip(cases * len(threads), figures, counts, strict=True)]


def on_cuda(cases: list[Case]) -> list[Figure]:
    """PyTorch's time over telegrad's; a case that one of them refuses is a figure that was missed, and says why."""
    on_gpu.open_gpu()
    figures = []
    for case in cases:
        try:
            figures.append(_on_gpu(case))
        except Exception as error:
            reason = str(error).partition("\n")[0]
            figures.append(Figure(case.name, "x torch", 0.0, 0.0, 0.0, f">= {_AT_LEAST:g}", False, reason))
    return figures


def _on_gpu(case: Case) -> Figure:
    torch.manual_seed(1)
    tensors = [tensor.cuda() for tensor in case.inputs()]
    values = [on_gpu.to_value(tensor) for tensor in tensors]
    return on_gpu.compare(
        case.name, lambda: case.ours(F, *values), lambda: case.theirs(*tensors), at_least=_AT_LEAST, repeats=5
    )


def _libraries(device: str) -> dict[str, str]:
    """What telegrad calls on the CPU."""
    if device != "cpu":
        return {}
    return {"libraries": "OpenBLAS and pocketfft of SciPy" if mkl() is None else f"MKL {version('mkl')}"}


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.linalg", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="threads of PyTorch on the CPU")
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    cases = [case for case in (*linalg_cases(), *fft_cases()) if options.only in case.name]
    figures = on_cpu(cases, options.threads) if options.device == "cpu" else on_cuda(cases)
    for each in figures:
        print(each.row())
    if options.save:
        save(options.save, figures, **about(options.device.partition(":")[0]), **_libraries(options.device))
    return int(any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
