"""The Cholesky factorization by cuSOLVER, in the memory of its result."""

from __future__ import annotations

from typing import Any

from server.engine import keys
from server.engine.cuda.runtime.launch import pointer
from server.engine.operators import Request
from server.engine.ops.linear_algebra.factorizations import not_positive
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.dtypes import DType
from telegrad_protocol.ops.linear_algebra import factorizations as ops

from .batches import ONLY_LOWER, ONLY_UPPER, Batch, FailureCheck, Scratch, are_packed, batch_of, gatherer, packed
from .libraries import IS_AVAILABLE, LOWER, PREFIXES, UPPER, solver_function, solver_on


@prepares(ops.cholesky_ex, keys.CUDA)
def cholesky_ex(request: Request) -> Launch | None:
    A, upper, check_errors = request.args
    source = batch_of(A)
    if not IS_AVAILABLE or source is None or not are_packed(request.outs):
        return None
    backend, (count, n) = request.backend, source[:2]
    gather = gatherer(A.dtype, source, ONLY_UPPER if upper else ONLY_LOWER)
    clear = gatherer(A.dtype, packed(*source[:3]), ONLY_UPPER) if upper and count > 1 else None
    triangle = UPPER if upper else LOWER
    potrf_batched = solver_function("potrf_batched", A.dtype)
    potrf, size_of = solver_function("potrf", A.dtype), solver_function("potrf_buffer_size", A.dtype)
    check = FailureCheck(backend, "linalg.cholesky", A.shape[:-2], not_positive) if check_errors else None
    sizes: list[int] = []

    def launch(args: Any, outs: Any) -> None:
        factor, info, stream = pointer(outs[0]), pointer(outs[1]), backend.stream
        handle = solver_on(backend)
        if count > 1:
            addresses = Scratch(backend, [8 * count]).at[0]
            gather(stream, factor, pointer(args[0]), addresses, 0, info)
            potrf_batched(handle, triangle, n, addresses, n, info, count)
            if clear:  # the library leaves numbers of its own below the diagonal
                clear(stream, factor, factor, 0, 0, 0)
        else:
            gather(stream, factor, pointer(args[0]), 0, 0, info)
            if not sizes:
                sizes.append(size_of(handle, triangle, n, factor, n))
            scratch = Scratch(backend, [sizes[0] * A.dtype.itemsize])
            potrf(handle, triangle, n, factor, n, scratch.at[0], sizes[0], info)
        if check is not None:
            check.run(info)

    return launch


def check_loads(dtype: DType) -> None:
    if dtype in PREFIXES:
        for keep in (ONLY_LOWER, ONLY_UPPER):
            gatherer(dtype, Batch(1, 4, 4, 16, 1, 4), keep)
