"""Coalescing: stored elements in ascending order, with those of the same indices added up."""

from __future__ import annotations

from telegrad._tensor.layouts import sparse_coo
from telegrad._tensor.tensor import Tensor

from .indices import coordinates, flat, merged, summed
from .tensor import SparseTensor


def coalesce(tensor: SparseTensor) -> SparseTensor:
    """Return the tensor with each index once, in order; itself if it is so. One round trip, for how many there are."""
    tensor.require("coalesce", sparse_coo)
    if tensor._is_coalesced:
        return tensor
    indices, values = tensor._parts
    sizes = tensor.shape[: tensor.sparse_dims]
    if values.shape[0] < 2:
        return SparseTensor(sparse_coo, (indices, values), tensor.shape, is_coalesced=True)
    keys, places = merged(flat(indices, sizes))
    return from_positions(keys, summed(values, places, keys.shape[0]), tensor.shape, len(sizes))


def from_positions(keys: Tensor, values: Tensor, shape: tuple[int, ...], sparse_dims: int) -> SparseTensor:
    """Return a coalesced tensor of values at ascending row-major positions."""
    return SparseTensor(sparse_coo, (coordinates(keys, shape[:sparse_dims]), values), shape, is_coalesced=True)
