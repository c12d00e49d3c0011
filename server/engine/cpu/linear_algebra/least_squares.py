"""Least-squares problems of moderate size by LAPACK's drivers without singular values, in scratch memory."""

from __future__ import annotations

from ctypes import addressof
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_libraries import Each, by_addresses, workspace_size
from server.engine.operators import Request
from server.engine.ops.linear_algebra import solvers as generic
from server.engine.ops.linear_algebra.matrices import check_info
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra import solvers

from .by_address import MOST_SCRATCH, count_of, scratch

_SHARED = Each(0)
_MOST_ELEMENTS = 1 << 11
"""Elements of a matrix up to which nothing is gained by factorizing it before LAPACK is called, or by loops."""


class _Memory:
    """Arrays in scratch memory, one behind the other; ``at`` has the offsets at which they begin."""

    def __init__(self) -> None:
        self.size, self.at = 0, dict[str, int]()

    def add(self, name: str, count: int, dtype: Any) -> None:
        """Put an array of so many elements behind those that are there."""
        self.at[name] = self.size
        self.size += -(-count * np.dtype(dtype).itemsize // 16) * 16


def _memory(A: Meta, longest: int, columns: int, work: int) -> _Memory:
    (m, n), count, dtype, memory = A.shape[-2:], count_of(A), NUMPY_DTYPES[A.dtype], _Memory()
    for name, size, kind in (
        ("factors", count * m * n, dtype), ("sides", count * longest * columns, dtype), ("pivots", count * n, np.int32),
        ("cutoff", 1, dtype), ("ranks", count, np.int32), ("work", work, dtype), ("reals", 2 * n, dtype),
        ("info", 1, np.int32), ("infos", count, np.int32),
    ):  # fmt: skip
        memory.add(name, size, kind)
    return memory


def _routine(A: Meta, longest: int, columns: int, driver: str) -> tuple[Any, tuple[str, ...], int]:
    """The driver, the names of the arrays that it is given, and the size of its workspace."""
    (m, n), count, dtype = A.shape[-2:], count_of(A), NUMPY_DTYPES[A.dtype]
    factors, sides = Each(m * n * dtype.itemsize), Each(longest * columns * dtype.itemsize)
    if driver == "gels":
        size = workspace_size("gels", dtype, "N", m, n, columns, (), m, (), longest)
        head = ("N", m, n, columns, factors, m, sides, longest, _SHARED, size, Each(4))
        return by_addresses("gels", dtype, count, *head), ("factors", "sides", "work", "infos"), size
    reals = [_SHARED] if dtype.kind == "c" else []
    size = max(4 * n + 1, 2 * min(m, n) + columns) + 64 * (max(m, n) + columns + 1)
    wide = (m, n, columns, factors, m, sides, longest, Each(4 * n), _SHARED, Each(4), _SHARED, size, *reals, _SHARED)
    names = ("factors", "sides", "pivots", "cutoff", "ranks", "work", *(["reals"] if reals else []), "info")
    return by_addresses("gelsy", dtype, count, *wide), names, size


@prepares(solvers.lstsq_plain, keys.CPU)
def lstsq_plain(request: Request) -> Launch | None:
    A, B, rcond, driver = request.args
    driver, (m, n), dtype = driver or "gelsy", A.shape[-2:], NUMPY_DTYPES[A.dtype]
    if not (A.numel and B.numel and driver in ("gels", "gelsy") and m * n <= _MOST_ELEMENTS):
        return None
    is_vectors, longest = B.ndim < A.ndim, max(m, n)
    columns = 1 if is_vectors else B.shape[-1]
    solve, names, work = _routine(A, longest, columns, driver)
    layout = _memory(A, longest, columns, work)
    if layout.size > MOST_SCRATCH:
        return None
    memory, places = scratch(layout.size), [layout.at[name] for name in names]
    shape, cutoff = A.shape[:-2], generic.least_squares_cutoff(A.shape, dtype, rcond)

    def array(name: str, kind: Any, size: tuple[int, ...]) -> Any:
        return np.frombuffer(memory, kind, int(np.prod(size)), layout.at[name]).reshape(size)

    factors = array("factors", dtype, (*shape, n, m)).swapaxes(-2, -1)
    sides = array("sides", dtype, (*shape, columns, longest)).swapaxes(-2, -1)
    pivots, ranks = array("pivots", np.int32, (*shape, n)), array("ranks", np.int32, shape)
    limit, infos = array("cutoff", dtype, (1,)).real, array("infos", np.int32, shape)

    def launch(args: Any, outs: Any) -> None:
        a, b = args[0].array, args[1].array
        np.copyto(factors, a)
        np.copyto(sides[..., :m, :], b[..., None] if is_vectors else b)
        if n > m:
            sides[..., m:, :] = 0
        if driver == "gelsy":
            pivots.fill(0)
            limit.fill(cutoff)
        begin = addressof(memory)
        solve(*[begin + place for place in places])
        solution, residuals, rank, _ = [out.array for out in outs]
        np.copyto(solution[..., None] if is_vectors else solution, sides[..., :n, :])
        if driver == "gelsy":
            np.copyto(rank, ranks)
            return
        check_info(np, "linalg.lstsq", infos, generic.not_of_full_rank)
        if m > n:
            np.sum(np.square(np.abs(sides[..., n:, :])), -2, out=residuals)

    return launch
