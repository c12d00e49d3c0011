"""Eigenvalues of symmetric matrices and singular values by LAPACK, in the results' memory."""

from __future__ import annotations

import ctypes
import math
from functools import partial
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_libraries import mkl
from server.engine.array_library.host_small_matrices import has_singular_loops
from server.engine.array_library.host_spectra import (
    eigh_into,
    eigh_sizes,
    eigvalsh_into,
    gesdd_sizes,
    has_singular_loop,
    has_symmetric_loops,
    svd_into,
    svdvals_into,
)
from server.engine.operators import Request
from server.engine.ops import matrix_functions
from server.engine.ops import spectra as generic
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import matrix_functions as contracts
from telegrad_protocol.ops import spectra

from .by_address import count_of, launch_of_steps, scratch_places
from .matrices import launch_of
from .sequences import (
    Call,
    Copy,
    EndIfAny,
    EndIfNaN,
    EndIfNotFinite,
    Matrices,
    Place,
    Step,
    launch_in_sequence,
    matrices_of,
    numbers_of,
)

_INT = np.dtype(np.int32)


def _refusing(given: Matrices) -> list[Step]:
    """A step that ends where dense matrices are not finite, with which MKL does not always come to an end."""
    return [] if mkl() is None else [EndIfNotFinite(given.place, given.dtype, math.prod(given.shape))]


def _symmetric_steps(
    A: Meta, upper: bool, values: Place | None, vectors: Matrices | None
) -> tuple[list[Step], Place] | None:
    """The steps that write eigenvalues, or have them in scratch memory, and eigenvectors if they are wanted."""
    count, n, dtype, given = count_of(A), A.shape[-1], np.dtype(NUMPY_DTYPES[A.dtype]), matrices_of(0, A)
    real = dtype.type(0).real.dtype.itemsize
    head = "N" if vectors is None else "V", "U" if upper else "L", n
    name, sizes = eigh_sizes(dtype, *head)
    bytes_of = [size * each for size, each in sizes]
    places = scratch_places(A.nbytes if vectors is None else 0, 4 * count, count * n * real, *bytes_of)
    if places is None:
        return None
    at, info, spare, *works = places
    columns, info = given.dense_at(at) if vectors is None else vectors, info._replace(step=4)
    found = spare._replace(step=n * real) if values is None else values
    work = [part for place, (size, _) in zip(works, sizes, strict=True) for part in (place, size)]
    return [
        Copy(given, columns),
        *_refusing(columns),
        Call(name, dtype, count, *head, columns.place, n, found, *work, info),
        EndIfAny(info, count),
        EndIfNaN(found._replace(step=real), dtype, count * n),
    ], found


@prepares(spectra.eigh, keys.CPU)
def eigh(request: Request) -> Launch | None:
    (A, UPLO), (values, vectors) = request.args, request.outs
    upper, launch = UPLO in "Uu", None
    if A.numel and not has_symmetric_loops(A.shape, NUMPY_DTYPES[A.dtype].char, True):
        made = _symmetric_steps(A, upper, numbers_of(1, values, 1), matrices_of(2, vectors))
        launch = made and launch_of_steps(generic.eigh, (), request, (vectors,), made[0])
    return launch or launch_of(generic.eigh, (), request, lambda a, *results: eigh_into(a, upper, *results))


@prepares(spectra.plain_eigvalsh, keys.CPU)
def plain_eigvalsh(request: Request) -> Launch | None:
    (A, UPLO), (values,) = request.args, request.outs
    upper, launch = UPLO in "Uu", None
    if A.numel and not has_symmetric_loops(A.shape, NUMPY_DTYPES[A.dtype].char, False):
        made = _symmetric_steps(A, upper, numbers_of(1, values, 1), None)
        launch = made and launch_of_steps(generic.plain_eigvalsh, (), request, (), made[0])
    return launch or launch_of(generic.plain_eigvalsh, (), request, lambda a, found: eigvalsh_into(a, upper, found))


def _singular_steps(
    A: Meta, job: str, values: Place | None, u: Matrices | None = None, vh: Matrices | None = None
) -> tuple[list[Step], Place] | None:
    """The steps that write singular values, or have them in scratch memory, and singular vectors if they are wanted."""
    count, (m, n), dtype, given = count_of(A), A.shape[-2:], np.dtype(NUMPY_DTYPES[A.dtype]), matrices_of(0, A)
    k, real, rows = min(m, n), dtype.type(0).real.dtype.itemsize, 1 if vh is None else vh.shape[1]
    size, reals = gesdd_sizes(dtype, job, m, n, rows)
    places = scratch_places(
        A.nbytes, 4 * count, count * k * real, size * dtype.itemsize, reals * real, 32 * k, dtype.itemsize
    )
    if places is None:
        return None
    at, info, spare, work, second, integers, unused = places
    columns, info = given.dense_at(at), info._replace(step=4)
    found = spare._replace(step=k * real) if values is None else values
    left, right = (unused if each is None else each.place for each in (u, vh))
    rest = [second] if reals else []
    return [
        Copy(given, columns),
        *_refusing(columns),
        Call("gesdd", dtype, count, job, m, n, columns.place, m, found, left, m, right, rows, work, size, *rest,
             integers, info),
        EndIfAny(info, count),
        EndIfNaN(found._replace(step=real), dtype, count * k),
    ], found  # fmt: skip


@prepares(spectra.svd, keys.CPU)
def svd(request: Request) -> Launch | None:
    (A, full, _), (U, S, Vh) = request.args, request.outs
    if not (A.numel and has_singular_loop(A.shape)):
        return None
    made = _singular_steps(A, "A" if full else "S", numbers_of(2, S, 1), matrices_of(1, U), matrices_of(3, Vh))
    launch = made and launch_of_steps(generic.svd, ("driver",), request, (U, Vh), made[0])
    return launch or launch_of(generic.svd, ("driver",), request, partial(svd_into, full))


def _is_for_gesdd(A: Meta) -> bool:
    """Whether singular values alone are LAPACK's, of matrices as they are."""
    char = NUMPY_DTYPES[A.dtype].char
    return A.numel > 0 and has_singular_loop(A.shape) and not has_singular_loops(A.shape, char)


@prepares(spectra.plain_svdvals, keys.CPU)
def plain_svdvals(request: Request) -> Launch | None:
    (A,), (values,) = request.args, request.outs
    made = _singular_steps(A, "N", numbers_of(1, values, 1)) if _is_for_gesdd(A) else None
    launch = made and launch_of_steps(generic.plain_svdvals, (), request, (), made[0])
    return launch or launch_of(generic.plain_svdvals, (), request, svdvals_into)


@prepares(contracts.plain_matrix_rank, keys.CPU)
def plain_matrix_rank(request: Request) -> Launch | None:
    """The values are in scratch memory, and compared by NumPy."""
    A, atol, rtol, hermitian = request.args
    if hermitian:
        is_for_loops = has_symmetric_loops(A.shape, NUMPY_DTYPES[A.dtype].char, False)
        made = _symmetric_steps(A, False, None, None) if A.numel and not is_for_loops else None
    else:
        made = _singular_steps(A, "N", None) if _is_for_gesdd(A) else None
    if made is None:
        return None
    (steps, place), real = made, np.dtype(NUMPY_DTYPES[A.dtype]).type(0).real.dtype
    count, k = count_of(A), place.step // real.itemsize
    memory: Any = (ctypes.c_char * (count * place.step)).from_address(place.offset)
    values, (relative, absolute) = np.frombuffer(memory, real).reshape(count, k), map(real.type, (rtol, atol))

    def then(args: Any, outs: Any) -> None:
        magnitudes = np.absolute(values) if hermitian else values
        largest = magnitudes.max(-1, keepdims=True) if hermitian else values[:, :1]  # they are in descending order
        cutoffs = np.maximum(largest * relative, absolute)
        np.add.reduce(magnitudes > cutoffs, -1, out=outs[0].array.reshape(count))

    if not request.outs[0].is_contiguous:
        return None
    generically = launch_of(matrix_functions.plain_matrix_rank, (), request, lambda *arrays: False)
    return launch_in_sequence(steps, (A,), generically, then)
