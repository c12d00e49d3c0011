"""Bare calls of SciPy, which show telegrad's own part of a figure where PyTorch's MKL is the faster library."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.fft
import scipy.linalg.blas as blas
import scipy.linalg.lapack as lapack
import torch

from server.engine import functional as F

from .kernel_cases import Case
from .kernels import to_value, turns
from .measure import Figure


def _qr(a: Any) -> None:
    work = 32 * a.shape[1]
    factor, tau = lapack.sgeqrf(a, lwork=work)[:2]
    lapack.sorgqr(factor, tau, lwork=work)


_PER_MATRIX: dict[str, Callable[..., Any]] = {
    "lu_factor": lapack.sgetrf, "det": lapack.sgetrf, "slogdet": lapack.sgetrf, "cholesky": lapack.spotrf,
    "inv": lambda a: lapack.sgetri(*lapack.sgetrf(a)[:2]), "solve": lapack.sgesv, "qr": _qr,
    "eigh": lapack.ssyevd, "svdvals": lambda a: lapack.sgesdd(a, compute_uv=0), "svd": lapack.sgesdd,
    "eig": lapack.sgeev, "lstsq": lambda a, b: lapack.sgels(a, b, lwork=64 * a.shape[1]),
    "solve_triangular": lambda a, b: blas.strsm(1, a, b),
}  # fmt: skip
"""LAPACK's routine on matrices whose columns are contiguous, by the operation's name."""


def _bare(case: Case, tensors: list[Any]) -> Callable[[], Any] | None:
    """SciPy's call without anything around it; None where there is no single one."""
    family, _, name = case.name.partition(",")[0].partition(".")
    arrays = [tensor.numpy() for tensor in tensors]
    if family == "fft":
        function = getattr(scipy.fft, name)
        return lambda: function(arrays[0])
    if name not in _PER_MATRIX:
        return None
    batches = [[np.asfortranarray(m) for m in array.reshape(-1, *array.shape[-2:])] for array in arrays]
    routine = _PER_MATRIX[name]
    return lambda: [routine(*operands) for operands in zip(*batches, strict=True)]


def with_floor(case: Case, measured: Figure, threads: int) -> Figure:
    """The figure, with what SciPy's bare call takes if the goal was missed, and telegrad's time over that."""
    torch.manual_seed(1)
    tensors = case.inputs()
    bare = None if measured.met else _bare(case, tensors)
    if bare is None:
        return measured
    values = [to_value(tensor) for tensor in tensors]
    ours, theirs = turns(lambda: case.ours(F, *values), bare, threads)
    ratio = statistics.median([a / b for a, b in zip(ours, theirs, strict=True)])
    note = f"{measured.baseline}, {ratio:.2f} x SciPy's bare call"
    return replace(measured, baseline=note, extra={**measured.extra, "over_scipy": ratio})
