"""Changes of layout: dense tensors to sparse ones and back, and sparse ones to each other.

Dense tensors are searched for elements that are not zero, which waits for the server once. Sparse tensors keep the
elements that they store, zeros too, and wait only where elements have to be merged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad._tensor.layouts import Layout, sparse_coo, sparse_csr, strided
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError, ShapeError

from .coalescing import coalesce
from .functions import run
from .indices import arange, coordinates, expanded, flat, merged, starts, summed, zeros
from .tensor import BLOCKED, BY_COLUMNS, BY_ROWS, COMPRESSED, SPELLED, SparseTensor


def to_dense(tensor: SparseTensor) -> Tensor:
    """Return all elements of a sparse tensor, those that are not stored as zeros."""
    if tensor._kind is sparse_coo:
        return _dense_of_coordinates(tensor)
    return _dense_of_lines(tensor)


def _dense_of_coordinates(tensor: SparseTensor) -> Tensor:
    indices, values = tensor._parts
    sizes = tensor.shape[: tensor.sparse_dims]
    total = summed(values, flat(indices, sizes), math.prod(sizes))
    return total.reshape(tensor.shape)


def _dense_of_lines(tensor: SparseTensor) -> Tensor:
    rows, columns = row_and_column(tensor)
    blocks, first = tensor.blocks or (1, 1), tensor.batch_dims
    batch, dense = tensor.shape[:first], tensor.shape[first + 2 :]
    high, wide = (size // max(block, 1) for size, block in zip(tensor.shape[first : first + 2], blocks, strict=True))
    count = math.prod(batch)
    places = _positions(rows, columns, count, high, wide)
    values = tensor.stored.reshape(count * tensor.count, *tensor.stored.shape[first + 1 :])
    total = summed(values, places, count * high * wide)
    if tensor._kind not in BLOCKED:
        return total.reshape(tensor.shape)
    total = total.reshape(count, high, wide, *blocks, *dense).transpose(2, 3)
    return total.reshape(tensor.shape)


def _positions(rows: Tensor, columns: Tensor, count: int, high: int, wide: int) -> Tensor:
    """Return the positions of stored elements among those of ``count`` matrices, as a vector."""
    stored = rows.shape[-1]
    matrix = arange(count, rows).reshape(count, 1)
    return ((matrix * high + rows.reshape(count, stored)) * wide + columns.reshape(count, stored)).reshape(-1)


def row_and_column(tensor: SparseTensor) -> tuple[Tensor, Tensor]:
    """Return the row and the column of every stored element or block of a compressed layout, as int64."""
    compressed, plain, _ = tensor._parts
    lines, places = expanded(compressed, tensor.count), plain.to(dtypes.int64)
    return (lines, places) if tensor._kind in BY_ROWS else (places, lines)


# From dense tensors.
def coordinates_of(dense: Tensor, sparse_dims: int) -> SparseTensor:
    """Return a dense tensor in coordinates of its first dimensions; elements of the others are stored together."""
    if not 0 <= sparse_dims <= dense.ndim or (dense.ndim and not sparse_dims):
        raise ArgumentError(f"to_sparse: sparse_dim must be in [1, {dense.ndim}], got {sparse_dims}")
    if not dense.ndim:
        indices = run("nonzero", dense.reshape(1)).t()[:0]
        values = dense.reshape(1)[: indices.shape[1]]
        return SparseTensor(sparse_coo, (indices, values), (), is_coalesced=True)
    mask = dense.detach() != 0
    if sparse_dims < dense.ndim:
        mask = mask.reshape(*dense.shape[:sparse_dims], math.prod(dense.shape[sparse_dims:])).any(-1)
    indices = run("nonzero", mask).t().contiguous()
    values = dense[tuple(indices)]
    return SparseTensor(sparse_coo, (indices, values), dense.shape, is_coalesced=True)


def lines_of(dense: Tensor, kind: Layout, blocks: tuple[int, int] | None, dense_dims: int) -> SparseTensor:
    """Return a dense tensor in a compressed layout."""
    first = dense.ndim - 2 - dense_dims
    if first < 0:
        raise ShapeError(f"to_{kind.name}: expected at least {2 + dense_dims} dimensions, got {dense._meta}")
    batch, (rows, columns) = tuple(dense.shape[:first]), dense.shape[first : first + 2]
    bh, bw = blocks or (1, 1)
    if not bh or not bw or rows % bh or columns % bw:
        raise ShapeError(f"to_{kind.name}: {dense._meta} must be divisible by blocks of {bh}x{bw}")
    count, high, wide = math.prod(batch), rows // bh, columns // bw
    inner = dense.shape[first + 2 :]
    cells = dense.reshape(count, high, bh, wide, bw, *inner).transpose(2, 3)
    if kind in BY_COLUMNS:
        cells = cells.transpose(1, 2)
    mask = (cells.detach() != 0).reshape(*cells.shape[:3], math.prod(cells.shape[3:])).any(-1)
    found = run("nonzero", mask).t()
    stored = _stored_of_each(mask, found.shape[1], batch, kind)
    ends = mask.sum(2).cumsum(1)
    compressed = run("cat", [ends.new_zeros((count, 1)), ends], 1)
    values = cells[found[0], found[1], found[2]]
    shape = (stored, bh, bw, *inner) if kind in BLOCKED else (stored, *inner)
    plain = found[2].reshape(*batch, stored)
    parts = (compressed.reshape(*batch, compressed.shape[1]), plain, values.reshape(*batch, *shape))
    return SparseTensor(kind, parts, dense.shape)


def _stored_of_each(mask: Tensor, total: int, batch: Sequence[int], kind: Layout) -> int:
    if not batch:
        return total
    counts = set(mask.sum((1, 2)).tolist())
    if len(counts) > 1:
        raise NotSupportedError(
            f"to_{kind.name}: all matrices of a batch must have the same number of elements that are not zero"
        )
    return int(counts.pop()) if counts else 0


# Between sparse layouts.
def to_coordinates(tensor: SparseTensor) -> SparseTensor:
    """Return a sparse tensor in coordinates."""
    if tensor._kind is sparse_coo:
        return tensor
    if tensor.batch_dims:
        return coordinates_of(to_dense(tensor), tensor.batch_dims + 2)
    rows, columns = row_and_column(tensor)
    if tensor._kind in BLOCKED:
        return _coordinates_of_blocks(tensor, rows, columns)
    indices = run("stack", [rows, columns])
    return coalesced_order(SparseTensor(sparse_coo, (indices, tensor.stored), tensor.shape, tensor._kind is sparse_csr))


def _coordinates_of_blocks(tensor: SparseTensor, rows: Tensor, columns: Tensor) -> SparseTensor:
    high, wide = tensor.blocks or (1, 1)
    shape = (tensor.count, high, wide)
    all_rows = (rows.reshape(tensor.count, 1, 1) * high + arange(high, rows).reshape(1, high, 1)).expand(shape)
    all_columns = (columns.reshape(tensor.count, 1, 1) * wide + arange(wide, rows)).expand(shape)
    indices = run("stack", [all_rows.reshape(-1), all_columns.reshape(-1)])
    values = tensor.stored.reshape(math.prod(shape), *tensor.shape[2:])
    return coalesced_order(SparseTensor(sparse_coo, (indices, values), tensor.shape))


def coalesced_order(tensor: SparseTensor) -> SparseTensor:
    """Return a tensor whose indices are all different with them in ascending order; waits for nothing."""
    if tensor._is_coalesced:
        return tensor
    indices, values = tensor._parts
    order = run("argsort", flat(indices, tensor.shape[: tensor.sparse_dims]))
    return SparseTensor(sparse_coo, (indices[:, order], values[order]), tensor.shape, is_coalesced=True)


def to_lines(tensor: SparseTensor, kind: Layout, blocks: tuple[int, int] | None) -> SparseTensor:
    """Return a sparse tensor in a compressed layout."""
    if tensor._kind is kind and (blocks is None or blocks == tensor.blocks):
        return tensor
    if tensor.batch_dims:
        return lines_of(to_dense(tensor), kind, blocks, tensor.dense_dims)
    source = coalesce(to_coordinates(tensor))
    if source.sparse_dims != 2:
        raise ShapeError(f"to_{kind.name}: expected a matrix, not {source.sparse_dims} sparse dimensions")
    if kind in BLOCKED:
        return _blocks_of(source, kind, blocks or (0, 0))
    return _lines_of_coordinates(source, kind)


def _lines_of_coordinates(source: SparseTensor, kind: Layout) -> SparseTensor:
    (rows, columns), values = source._parts[0].unbind(0), source.stored
    if kind is sparse_csr:
        return SparseTensor(kind, (starts(rows, source.shape[0]), columns, values), source.shape)
    order = run("argsort", columns * source.shape[0] + rows)
    return SparseTensor(kind, (starts(columns[order], source.shape[1]), rows[order], values[order]), source.shape)


def _blocks_of(source: SparseTensor, kind: Layout, blocks: tuple[int, int]) -> SparseTensor:
    high, wide = blocks
    if not high or not wide or source.shape[0] % high or source.shape[1] % wide:
        raise ShapeError(f"to_{kind.name}: {tuple(source.shape)} must be divisible by blocks of {high}x{wide}")
    rows, columns = source._parts[0].unbind(0)
    across, down = source.shape[1] // wide, source.shape[0] // high
    row, column = run("div", rows, high, rounding_mode="floor"), run("div", columns, wide, rounding_mode="floor")
    by_rows = kind in BY_ROWS
    keys, places = merged(row * across + column if by_rows else column * down + row)
    inside = (rows % high) * wide + columns % wide
    values = summed(source.stored, places * (high * wide) + inside, keys.shape[0] * high * wide)
    lines = coordinates(keys, (down, across) if by_rows else (across, down))
    parts = (
        starts(lines[0], down if by_rows else across), lines[1],
        values.reshape(keys.shape[0], high, wide, *source.shape[2:]),
    )  # fmt: skip
    return SparseTensor(kind, parts, source.shape)


# What users call.
def to_sparse(
    tensor: Tensor, sparse_dim: int | Layout | None = None, *, layout: Layout | None = None, blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """Return a tensor in a sparse layout, coordinates by default."""
    if isinstance(sparse_dim, Layout):
        sparse_dim, layout = None, sparse_dim
    if layout is strided:
        return to_dense(tensor) if isinstance(tensor, SparseTensor) else tensor
    if layout is not None and layout in COMPRESSED:
        if sparse_dim is not None:
            raise ArgumentError(f"to_sparse: sparse_dim is for coordinates, not for {layout.name}")
        return compress("to_sparse", tensor, layout, blocksize, dense_dim)
    if isinstance(tensor, SparseTensor):
        made = to_coordinates(tensor)
        if sparse_dim not in (None, made.sparse_dims):
            raise ArgumentError(
                f"to_sparse: conversion from {SPELLED[tensor._kind]} to Sparse with sparse_dim argument "
                f"!={made.sparse_dims} is not supported"
            )
        return made
    if sparse_dim is None:
        sparse_dim = tensor.ndim - (dense_dim or 0)
    return coordinates_of(tensor, sparse_dim)


def compress(
    name: str, tensor: Tensor, kind: Layout, blocksize: Any = None, dense_dim: int | None = None
) -> SparseTensor:
    """Return a tensor, dense or sparse, in a compressed layout."""
    if kind in BLOCKED:
        if blocksize is None and not (isinstance(tensor, SparseTensor) and tensor._kind is kind):
            raise ArgumentTypeError(f"{name}: {kind.name} needs a blocksize of two sizes")
    elif blocksize is not None:
        raise ArgumentError(f"{name}: blocksize is for blocked layouts, not for {kind.name}")
    sizes = (blocksize, blocksize) if isinstance(blocksize, int) else blocksize
    blocks = None if sizes is None else (int(sizes[0]), int(sizes[1]))
    if isinstance(tensor, SparseTensor):
        return to_lines(tensor, kind, blocks)
    return lines_of(tensor, kind, blocks, dense_dim or 0)


def masked(dense: Tensor, mask: SparseTensor) -> SparseTensor:
    """Return the elements of a tensor at the stored indices of a sparse one."""
    if dense.shape != mask.shape:
        raise ShapeError(f"sparse_mask: expected a mask of the shape of {dense._meta}, got {tuple(mask.shape)}")
    if isinstance(dense, SparseTensor):
        return _masked_sparse(dense, mask)
    return mask.like(picked(dense, mask))


def picked(dense: Tensor, mask: SparseTensor) -> Tensor:
    """Return the elements of a dense tensor at stored indices, in their order."""
    if mask._kind is sparse_coo:
        sizes = mask.shape[: mask.sparse_dims]
        cells = dense.reshape(math.prod(sizes), *mask.shape[mask.sparse_dims :])
        return run("index_select", cells, 0, flat(mask._parts[0], sizes))  # type: ignore[no-any-return]
    rows, columns = row_and_column(mask)
    first, blocks = mask.batch_dims, mask.blocks or (1, 1)
    count = math.prod(mask.shape[:first])
    high, wide = (size // max(block, 1) for size, block in zip(mask.shape[first : first + 2], blocks, strict=True))
    places = _positions(rows, columns, count, high, wide)
    cells = dense.reshape(count, high, blocks[0], wide, blocks[1], *mask.shape[first + 2 :]).transpose(2, 3)
    cells = cells.reshape(count * high * wide, *cells.shape[3:])
    return run("index_select", cells, 0, places).reshape(mask.stored.shape)  # type: ignore[no-any-return]


def _masked_sparse(tensor: SparseTensor, mask: SparseTensor) -> SparseTensor:
    if mask._kind not in (sparse_coo, sparse_csr) or mask.batch_dims:
        return masked(to_dense(tensor), mask)
    source, wanted = coalesce(to_coordinates(tensor)), to_coordinates(mask)
    sizes = source.shape[: source.sparse_dims]
    return mask.like(looked_up(flat(source._parts[0], sizes), source.stored, flat(wanted._parts[0], sizes)))


def looked_up(keys: Tensor, values: Tensor, sought: Tensor) -> Tensor:
    """Return the values at keys that are sought, zeros where there is none; ``keys`` are ascending."""
    count = int(keys.shape[0])
    if not count:
        return zeros((sought.shape[0], *values.shape[1:]), values)
    places = run("searchsorted", keys.contiguous(), sought.contiguous()).clamp(max=count - 1)
    is_there = (keys[places] == sought).reshape(sought.shape[0], *[1] * (values.ndim - 1))
    return run("where", is_there, values[places], zeros((), values))  # type: ignore[no-any-return]
