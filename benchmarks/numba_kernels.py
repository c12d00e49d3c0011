"""A product of matrices for Numba, whose tiles lie in shared memory, in the manner of its manual."""

from __future__ import annotations

from typing import Any

from numba import cuda, float32

TILE = 16


@cuda.jit
def matmul_kernel(a, b, c):  # type: ignore[no-untyped-def]
    """Write the product of two matrices; a block computes a tile."""
    a_tile = cuda.shared.array(shape=(TILE, TILE), dtype=float32)
    b_tile = cuda.shared.array(shape=(TILE, TILE), dtype=float32)
    x, y = cuda.grid(2)
    column, row = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for step in range((a.shape[1] + TILE - 1) // TILE):
        a_tile[row, column] = 0
        b_tile[row, column] = 0
        if y < a.shape[0] and column + step * TILE < a.shape[1]:
            a_tile[row, column] = a[y, column + step * TILE]
        if x < b.shape[1] and row + step * TILE < b.shape[0]:
            b_tile[row, column] = b[row + step * TILE, x]
        cuda.syncthreads()
        for place in range(TILE):
            total += a_tile[row, place] * b_tile[place, column]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


def matmul(a: Any, b: Any, out: Any) -> None:
    """Write the product of two matrices of float32."""
    rows, columns = out.shape
    matmul_kernel[(-(-columns // TILE), -(-rows // TILE)), (TILE, TILE)](a, b, out)
