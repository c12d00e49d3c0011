"""What indices and values of sparse tensors must be: checks of shapes, and of elements where they are asked for."""

from __future__ import annotations

import math
import threading
from typing import Any

from telegrad._session.grad_mode import no_grad
from telegrad._tensor.layouts import Layout, sparse_coo
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, IndexOutOfRangeError, ShapeError

from .indices import flat
from .tensor import BLOCKED, BY_ROWS, SparseTensor


class _Asked(threading.local):
    """Whether constructors of a thread check elements where the call does not say."""

    is_on = False


asked = _Asked()


def checked(tensor: SparseTensor, wanted: bool | None) -> SparseTensor:
    """Return the tensor; check the elements of its indices first if that is wanted."""
    if asked.is_on if wanted is None else wanted:
        check(tensor)
    return tensor


def check(tensor: SparseTensor) -> None:
    """Wait for the indices of a tensor, and raise an error if they are out of range or not in order."""
    with no_grad():
        if tensor._kind is sparse_coo:
            _check_coordinates(tensor)
        else:
            _check_compressed(tensor)


def _check_coordinates(tensor: SparseTensor) -> None:
    indices = tensor._parts[0]
    if not indices.numel():
        return
    lows, highs = indices.amin(1).tolist(), indices.amax(1).tolist()
    for dim, (low, high) in enumerate(zip(lows, highs, strict=True)):
        if low < 0:
            raise IndexOutOfRangeError(f"sparse_coo_tensor: found negative index {low} for dim {dim}")
        if high >= tensor.shape[dim]:
            raise IndexOutOfRangeError(
                f"sparse_coo_tensor: size is inconsistent with indices: for dim {dim}, size is {tensor.shape[dim]} but "
                f"found index {high}"
            )
    if tensor._is_coalesced:
        positions: Any = flat(indices, tensor.shape[: tensor.sparse_dims])
        if not bool((positions[1:] > positions[:-1]).all()):
            raise ArgumentError(
                "sparse_coo_tensor: cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor"
            )


def _check_compressed(tensor: SparseTensor) -> None:
    compressed, plain = (part.numpy() for part in tensor._parts[:2])
    lines, across = _lines_and_places(tensor)
    name = "crow_indices" if tensor._kind in BY_ROWS else "ccol_indices"
    other = "col_indices" if tensor._kind in BY_ROWS else "row_indices"
    if (compressed[..., 0] != 0).any():
        raise ArgumentError(f"`{name}[..., 0] == 0` is not satisfied.")
    if (compressed[..., -1] != plain.shape[-1]).any():
        raise ArgumentError(f"`{name}[..., -1] == nnz` is not satisfied.")
    steps = compressed[..., 1:] - compressed[..., :-1]
    if (steps < 0).any() or (steps > across).any():
        raise ArgumentError(
            f"`0 <= {name}[..., 1:] - {name}[..., :-1] <= {'ncols' if name[1] == 'r' else 'nrows'}` is not satisfied."
        )
    if plain.size and (plain.min() < 0 or plain.max() >= across):
        bound = "ncols" if name[1] == "r" else "nrows"
        raise IndexOutOfRangeError(f"`0 <= {other} < {bound}` is not satisfied: {bound} is {across}")
    count, stored = math.prod(plain.shape[:-1]), plain.shape[-1]
    for starts, places in zip(compressed.reshape(count, lines + 1), plain.reshape(count, stored), strict=True):
        rising = places[1:] > places[:-1]
        begins = starts[(starts > 0) & (starts < places.size)] - 1
        rising[begins] = True
        if not rising.all():
            raise ArgumentError(f"{other} must be different and in ascending order between neighbours of {name}")


def _lines_and_places(tensor: SparseTensor) -> tuple[int, int]:
    first = tensor.batch_dims
    blocks = tensor.blocks or (1, 1)
    rows, columns = (tensor.shape[first + i] // max(blocks[i], 1) for i in (0, 1))
    return (rows, columns) if tensor._kind in BY_ROWS else (columns, rows)


def check_compressed_shapes(layout: Layout, compressed: Tensor, plain: Tensor, values: Tensor) -> None:
    """Refuse indices and values whose shapes do not fit together."""
    if compressed.ndim < 1 or compressed.shape[-1] < 1:
        raise ShapeError(f"{layout.name}: compressed indices must have at least one element, got {compressed._meta}")
    if compressed.dtype is not plain.dtype:
        raise ArgumentError(f"{layout.name}: indices must have one dtype, got {compressed._meta} and {plain._meta}")
    batch = compressed.ndim - 1
    if plain.ndim != batch + 1 or plain.shape[:-1] != compressed.shape[:-1]:
        raise ShapeError(f"{layout.name}: indices {compressed._meta} and {plain._meta} have different batches")
    least = batch + (3 if layout in BLOCKED else 1)
    if values.ndim < least or values.shape[: batch + 1] != plain.shape:
        raise ShapeError(f"{layout.name}: values {values._meta} do not fit indices {plain._meta}")


def check_compressed_size(tensor: SparseTensor) -> None:
    """Refuse a size that is not the one that the indices describe."""
    values, first = tensor.stored, tensor.batch_dims
    inner = values.ndim - first - (3 if tensor._kind in BLOCKED else 1)
    start = values.ndim - inner
    if tensor.ndim != first + 2 + inner or any(length < 0 for length in tensor.shape):
        raise ShapeError(f"{tensor._kind.name}: size {tuple(tensor.shape)} must have {first + 2 + inner} dimensions")
    if tensor.shape[:first] != tensor._parts[0].shape[:-1] or tensor.shape[first + 2 :] != values.shape[start:]:
        raise ShapeError(f"{tensor._kind.name}: size {tuple(tensor.shape)} does not fit values {values._meta}")
    for length, block in zip(tensor.shape[first : first + 2], tensor.blocks or (1, 1), strict=True):
        if block and length % block:
            raise ShapeError(f"{tensor._kind.name}: size {tuple(tensor.shape)} is not a multiple of the blocks")
    count = tensor._parts[0].shape[-1]
    if count != _lines_and_places(tensor)[0] + 1:
        raise ShapeError(f"{tensor._kind.name}: {count} compressed indices do not fit size {tuple(tensor.shape)}")
