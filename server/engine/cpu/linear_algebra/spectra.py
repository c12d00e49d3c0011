"""Eigenvalues of symmetric matrices and singular values by LAPACK, in the results' memory."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

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
from server.engine.ops.linear_algebra import matrix_functions, matrix_norms
from server.engine.ops.linear_algebra import solvers as generic_solvers
from server.engine.ops.linear_algebra import spectra as generic
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra import matrix_functions as contracts
from telegrad_protocol.ops.linear_algebra import solvers, spectra

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

Array = Any
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


def _columns_at(place: Place, dtype: Any, shape: tuple[int, int, int]) -> Matrices:
    """Matrices with contiguous columns, one behind the other."""
    return Matrices(place, dtype, shape, (0, 0, 0)).dense_at(place)


class _Singular(NamedTuple):
    """Steps that write singular values, and where these and the singular vectors are."""

    steps: list[Step]
    values: Place
    u: Matrices | None
    vh: Matrices | None


def _singular_steps(
    A: Meta, job: str, values: Place | None, u: Matrices | None = None, vh: Matrices | None = None
) -> _Singular | None:
    """The steps that write singular values, and singular vectors if they are wanted; in scratch memory by default."""
    count, (m, n), dtype, given = count_of(A), A.shape[-2:], np.dtype(NUMPY_DTYPES[A.dtype]), matrices_of(0, A)
    k, real, are_spare = min(m, n), dtype.type(0).real.dtype.itemsize, job == "S" and u is None
    rows = k if are_spare else 1 if vh is None else vh.shape[1]
    size, reals = gesdd_sizes(dtype, job, m, n, rows)
    places = scratch_places(
        A.nbytes, 4 * count, count * k * real, size * dtype.itemsize, reals * real, 32 * k, dtype.itemsize,
        *([count * m * k * dtype.itemsize, count * k * n * dtype.itemsize] if are_spare else []),
    )  # fmt: skip
    if places is None:
        return None
    at, info, spare, work, second, integers, unused, *vectors = places
    if are_spare:
        u, vh = _columns_at(vectors[0], dtype, (count, m, k)), _columns_at(vectors[1], dtype, (count, k, n))
    columns, info = given.dense_at(at), info._replace(step=4)
    found = spare._replace(step=k * real) if values is None else values
    left, right = (unused if each is None else each.place for each in (u, vh))
    rest = [second] if reals else []
    steps = [
        Copy(given, columns),
        *_refusing(columns),
        Call("gesdd", dtype, count, job, m, n, columns.place, m, found, left, m, right, rows, work, size, *rest,
             integers, info),
        EndIfAny(info, count),
        EndIfNaN(found._replace(step=real), dtype, count * k),
    ]  # fmt: skip
    return _Singular(steps, found, u, vh)


@prepares(spectra.svd, keys.CPU)
def svd(request: Request) -> Launch | None:
    (A, full, _), (U, S, Vh) = request.args, request.outs
    if not (A.numel and has_singular_loop(A.shape)):
        return None
    made = _singular_steps(A, "A" if full else "S", numbers_of(2, S, 1), matrices_of(1, U), matrices_of(3, Vh))
    launch = made and launch_of_steps(generic.svd, ("driver",), request, (U, Vh), made.steps)
    return launch or launch_of(generic.svd, ("driver",), request, partial(svd_into, full))


def _is_for_gesdd(A: Meta) -> bool:
    """Whether singular values alone are LAPACK's, of matrices as they are."""
    char = NUMPY_DTYPES[A.dtype].char
    return A.numel > 0 and has_singular_loop(A.shape) and not has_singular_loops(A.shape, char)


@prepares(spectra.plain_svdvals, keys.CPU)
def plain_svdvals(request: Request) -> Launch | None:
    (A,), (values,) = request.args, request.outs
    made = _singular_steps(A, "N", numbers_of(1, values, 1)) if _is_for_gesdd(A) else None
    launch = made and launch_of_steps(generic.plain_svdvals, (), request, (), made.steps)
    return launch or launch_of(generic.plain_svdvals, (), request, svdvals_into)


def _real_numbers(place: Place, dtype: Any, count: int) -> Any:
    """NumPy's view of as many real numbers for each matrix as there are from one to the next, in scratch memory."""
    real = dtype.type(0).real.dtype
    memory: Any = (ctypes.c_char * (count * place.step)).from_address(place.offset)
    return np.frombuffer(memory, real).reshape(count, place.step // real.itemsize)


@prepares(contracts.plain_matrix_rank, keys.CPU)
def plain_matrix_rank(request: Request) -> Launch | None:
    """The values are in scratch memory, and compared by NumPy."""
    A, atol, rtol, hermitian = request.args
    if hermitian:
        is_for_loops = has_symmetric_loops(A.shape, NUMPY_DTYPES[A.dtype].char, False)
        made = _symmetric_steps(A, False, None, None) if A.numel and not is_for_loops else None
    else:
        singular = _singular_steps(A, "N", None) if _is_for_gesdd(A) else None
        made = singular and (singular.steps, singular.values)
    if made is None:
        return None
    (steps, place), count = made, count_of(A)
    values = _real_numbers(place, np.dtype(NUMPY_DTYPES[A.dtype]), count)
    relative, absolute = map(values.dtype.type, (rtol, atol))

    def then(args: Any, outs: Any) -> None:
        magnitudes = np.absolute(values) if hermitian else values
        largest = magnitudes.max(-1, keepdims=True) if hermitian else values[:, :1]  # they are in descending order
        cutoffs = np.maximum(largest * relative, absolute)
        np.add.reduce(magnitudes > cutoffs, -1, out=outs[0].array.reshape(count))

    if not request.outs[0].is_contiguous:
        return None
    generically = launch_of(matrix_functions.plain_matrix_rank, (), request, lambda *arrays: False)
    return launch_in_sequence(steps, (A,), generically, then)


def _launch_of_values(
    generic_kernel: Any, names: tuple[str, ...], request: Request, reduce: Callable[[Array, Array], Any]
) -> Launch | None:
    """A launch that writes a number for each matrix's singular values, which are rows in descending order."""
    A, (out,) = request.args[0], request.outs
    count, k, dtype = count_of(A), min(A.shape[-2:]), np.dtype(NUMPY_DTYPES[A.dtype])
    made = _singular_steps(A, "N", None) if _is_for_gesdd(A) else None
    if not out.is_contiguous:
        return None
    if made is None:

        def write(a: Array, result: Array) -> bool:
            values = np.empty((count, k), dtype.type(0).real.dtype)
            if not svdvals_into(a, values):
                return False
            reduce(values, result.reshape(count))
            return True

        return launch_of(generic_kernel, names, request, write)
    values = _real_numbers(made.values, dtype, count)
    generically = launch_of(generic_kernel, names, request, lambda *arrays: False)
    return launch_in_sequence(
        made.steps, (A,), generically, lambda args, outs: reduce(values, outs[0].array.reshape(count))
    )


_OF_VALUES: dict[str, Callable[[Array, Array], Any]] = {
    "nuc": lambda values, out: np.add.reduce(values, -1, out=out),
    "2": lambda values, out: np.copyto(out, values[:, 0]),
    "-2": lambda values, out: np.copyto(out, values[:, -1]),
}


@prepares(contracts.plain_matrix_norm, keys.CPU)
def plain_matrix_norm(request: Request) -> Launch | None:
    """The norms that are made of singular values, of matrices in the last two dimensions."""
    A, ord, dim, _ = request.args
    if ord not in _OF_VALUES or contracts.matrix_dims("linalg.matrix_norm", A, dim) != (A.ndim - 2, A.ndim - 1):
        return None
    names = "ord", "dim", "keepdim"
    return _launch_of_values(matrix_norms.plain_matrix_norm, names, request, _OF_VALUES[ord])


@prepares(contracts.plain_cond, keys.CPU)
def plain_cond(request: Request) -> Launch | None:
    """The largest singular value over the smallest, or the other way round."""
    first, second = (-1, 0) if request.args[1] else (0, -1)

    def divide(values: Array, out: Array) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            np.divide(values[:, first], values[:, second], out=out)

    return _launch_of_values(matrix_functions.plain_cond, ("is_inverted",), request, divide)


@prepares(solvers.plain_pinv, keys.CPU)
def plain_pinv(request: Request) -> Launch | None:
    """V S^-1 U^H of singular values and vectors in scratch memory, which are multiplied by NumPy."""
    (A, atol, rtol, hermitian), (out,) = request.args, request.outs
    is_taken = A.numel and not hermitian and has_singular_loop(A.shape) and out.is_contiguous
    if not is_taken or isinstance(atol, Meta) or isinstance(rtol, Meta):
        return None
    made, count, dtype = _singular_steps(A, "S", None), count_of(A), np.dtype(NUMPY_DTYPES[A.dtype])
    if made is None or made.u is None or made.vh is None:
        return None
    values = _real_numbers(made.values, dtype, count)
    v, u = [matrices.transposed.array(()) for matrices in (made.vh, made.u)]  # rows of both are contiguous
    relative, absolute = map(values.dtype.type, (rtol, atol))
    shape = count, A.shape[-1], A.shape[-2]

    def then(args: Any, outs: Any) -> None:
        inverse = np.zeros_like(values)
        np.divide(1, values, out=inverse, where=values > np.maximum(values[:, :1] * relative, absolute))
        np.multiply(v, inverse[:, None, :], out=v)
        result = np.matmul(v, u, out=outs[0].array.reshape(shape))
        if dtype.kind == "c":
            np.conjugate(result, out=result)

    generically = launch_of(generic_solvers.plain_pinv, (), request, lambda *arrays: False)
    return launch_in_sequence(made.steps, (A,), generically, then)
