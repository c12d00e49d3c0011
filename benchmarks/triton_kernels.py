"""Kernels for Triton in the manner of its tutorials: addition, softmax of rows, and a product of matrices."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of two vectors."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < count
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=mask) + tl.load(y_ptr + places, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(  # type: ignore[no-untyped-def]
    out_ptr, in_ptr, in_stride, out_stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr
):
    """The softmax of rows, each in registers; programs take rows in turn."""
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        places = tl.arange(0, BLOCK)
        mask = places < columns
        line = tl.load(in_ptr + row * in_stride + places, mask=mask, other=-float("inf"))
        powers = tl.exp(line - tl.max(line, axis=0))
        tl.store(out_ptr + row * out_stride + places, powers / tl.sum(powers, axis=0), mask=mask)


@triton.jit
def matmul_kernel(  # type: ignore[no-untyped-def]
    a_ptr, b_ptr, c_ptr, m, n, k, a_row, a_column, b_row, b_column, c_row, c_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """A product of matrices, tile by tile; programs that run side by side share rows of tiles."""
    number, row_tiles, column_tiles = tl.program_id(0), tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    in_group = GROUP * column_tiles
    first = number // in_group * GROUP
    size = min(row_tiles - first, GROUP)
    row_tile, column_tile = first + number % in_group % size, number % in_group // size
    rows = (row_tile * ROWS + tl.arange(0, ROWS)) % m
    columns = (column_tile * COLUMNS + tl.arange(0, COLUMNS)) % n
    depth = tl.arange(0, DEPTH)
    a_ptrs = a_ptr + rows[:, None] * a_row + depth[None, :] * a_column
    b_ptrs = b_ptr + depth[:, None] * b_row + columns[None, :] * b_column
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(tl.cdiv(k, DEPTH)):
        a = tl.load(a_ptrs, mask=depth[None, :] < k - step * DEPTH, other=0.0)
        b = tl.load(b_ptrs, mask=depth[:, None] < k - step * DEPTH, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += DEPTH * a_column
        b_ptrs += DEPTH * b_row
    rows, columns = row_tile * ROWS + tl.arange(0, ROWS), column_tile * COLUMNS + tl.arange(0, COLUMNS)
    c_ptrs = c_ptr + rows[:, None] * c_row + columns[None, :] * c_column
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def transpose_kernel(source, target, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The transpose of a matrix, tile by tile, by descriptors that the host has made."""
    row, column = tl.program_id(0) * SIZE, tl.program_id(1) * SIZE
    target.store([column, row], source.load([row, column]).T)


MATMUL_CONFIGS = [
    triton.Config({"ROWS": 128, "COLUMNS": 256, "DEPTH": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"ROWS": 128, "COLUMNS": 128, "DEPTH": 64, "GROUP": 8}, num_stages=4, num_warps=4),
    triton.Config({"ROWS": 64, "COLUMNS": 64, "DEPTH": 32, "GROUP": 8}, num_stages=4, num_warps=4),
]
tuned_matmul_kernel = triton.autotune(configs=MATMUL_CONFIGS, key=["m", "n", "k"])(matmul_kernel)


def add(x: Any, y: Any, out: Any) -> None:
    """Write the sum of two vectors."""
    add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel(), BLOCK=1024)


def softmax(x: Any, out: Any, programs: int = 1056) -> None:
    """Write the softmax of the rows of a matrix."""
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    softmax_kernel[(min(programs, rows), 1, 1)](
        out, x, x.stride(0), out.stride(0), rows, columns, BLOCK=block, STAGES=2, num_warps=8
    )


def transpose(x: Any, out: Any, tile: int = 64) -> None:
    """Write the transpose of a matrix."""
    source, target = [TensorDescriptor.from_tensor(matrix, [tile, tile]) for matrix in (x, out)]
    transpose_kernel[triton.cdiv(x.shape[0], tile), triton.cdiv(x.shape[1], tile)](source, target, SIZE=tile)


def matmul(a: Any, b: Any, out: Any, tuned: bool = False) -> None:
    """Write the product of two matrices; ``tuned``: with the configuration that is measured to be the fastest."""
    (m, k), n = a.shape, b.shape[1]
    arguments = (a, b, out, m, n, k, *a.stride(), *b.stride(), *out.stride())
    if tuned:
        tuned_matmul_kernel[lambda meta: (triton.cdiv(m, meta["ROWS"]) * triton.cdiv(n, meta["COLUMNS"]),)](*arguments)
        return
    chosen = MATMUL_CONFIGS[0]
    tiles = triton.cdiv(m, chosen.kwargs["ROWS"]) * triton.cdiv(n, chosen.kwargs["COLUMNS"])
    matmul_kernel[(tiles,)](*arguments, **chosen.kwargs, num_warps=8, num_stages=3)
