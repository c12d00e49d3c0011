"""Compiled loops over the rows of matrices, in cache-sized blocks and on several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from server.engine import compiled
from server.engine.device import threads

from .halves import is_half, narrow, widened, words
from .memory import scratch
from .rows import row_blocks

Array = Any
_ALL = slice(None)


def loops_for(*arrays: Array | None, module: str = "rows") -> Any:
    """The compiled loops if they take all of these: large and row-major, in float32 or half precision; else None."""
    first = arrays[0]
    if first is None or first.size < compiled.LEAST:
        return None
    if not all([a is None or (a.dtype.char in "feE" and a.flags.c_contiguous) for a in arrays]):
        return None
    return compiled.kernels(module)


def piece_rows(matrix: Array, count: int) -> Sequence[slice]:
    """The rows that one thread takes at a time, where ``count`` matrices like this one are read and written."""
    nbytes = matrix.nbytes * count
    return threads.pieces_of(len(matrix), nbytes, threads.LEAST_BYTES) if nbytes >= 2 * threads.LEAST_BYTES else [_ALL]


def run_rows(loop: Any, matrices: Sequence[Array], arguments: Callable[..., tuple[Any, ...]]) -> None:
    """Call ``loop(*arguments(rows, *matrices))`` for the rows that threads take, each row being computed by itself.

    ``rows`` is a slice; the first matrix tells how many rows there are.
    """
    first, matrices = matrices[0], [words(matrix) for matrix in matrices]
    shares = threads.shares_of(len(first), first.nbytes * len(matrices))
    threads.run_loop(loop, [arguments(rows, *[matrix[rows] for matrix in matrices]) for rows in shares])


def sum_columns(x: Array, out: Array) -> bool:
    """Write the sums of the columns of a matrix, of which threads take some each; False where no loop does.

    BLAS sums those of small matrices in single precision.
    """
    is_taken = x.shape[1] >= threads.VECTOR and (is_half(x) or x.nbytes >= 2 * threads.LEAST_BYTES)
    loops = loops_for(x) if is_taken else None
    if loops is None:
        return False
    shares = threads.shares_of(x.shape[1], x.nbytes, threads.VECTOR)
    sums = np.empty(x.shape[1], "f")
    calls = [(words(x), share.start, sums[share]) for share in shares]
    threads.run_loop(loops.column_sums[x.dtype.char], calls)
    np.copyto(out, sums, casting="same_kind")
    return True


def on_row_blocks(
    work: Callable[..., None], inputs: Sequence[Array], outputs: Sequence[Array], pieces: Sequence[slice] | None = None
) -> None:  # fmt: skip
    """Call ``work(piece, rows, *matrices)`` with cache-sized blocks of all matrices, which are float32, on all threads.

    ``piece`` numbers what threads take at a time, ``rows`` is a slice. Half precision passes through float32.
    """
    if pieces is None:
        pieces = piece_rows(inputs[0], len(inputs) + len(outputs))

    def run(piece: int) -> None:
        rows = pieces[piece]
        start = rows.start or 0
        parts = [a[rows] for a in inputs], [a[rows] for a in outputs]
        for block, matrices in _blocks(*parts):
            work(piece, slice(start + block.start, start + block.stop), *matrices)

    threads.run(run, len(pieces))


def _blocks(inputs: Sequence[Array], outputs: Sequence[Array]) -> Iterator[tuple[slice, Sequence[Array]]]:
    """Cache-sized blocks of rows in float32; what is written to half precision is rounded after each."""
    count, length = inputs[0].shape
    for block in row_blocks(count, length, 4):
        exact = slice(block.start, min(block.stop, count))
        wide = [widened(array[exact], f"input {i}") for i, array in enumerate(inputs)]
        targets = [
            scratch(f"output {i}", a[exact].shape, "f") if is_half(a) else a[exact] for i, a in enumerate(outputs)
        ]
        yield exact, [*wide, *targets]
        for array, target in zip(outputs, targets, strict=True):
            if is_half(array):
                narrow(target, array[exact])
