"""Broadcasting of sparse tensors: each stored element is repeated along dimensions that become longer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from telegrad._tensor.layouts import sparse_coo

from .functions import run
from .indices import arange, coordinates
from .tensor import SparseTensor


def spread(tensor: SparseTensor, shape: Sequence[int]) -> SparseTensor:
    """Return a tensor in coordinates broadcast to another shape; dimensions that are added in front are sparse."""
    before = len(shape) - tensor.ndim
    sparse = before + tensor.sparse_dims
    sizes = (1,) * before + tuple(tensor.shape)
    longer = [dim for dim in range(sparse) if dim < before or sizes[dim] != shape[dim]]
    times = math.prod(shape[dim] for dim in longer)
    indices, values = tensor._parts
    places = coordinates(arange(times, indices), [shape[dim] for dim in longer])
    number = dict(zip(longer, range(len(longer)), strict=True))
    lines = [
        places[number[dim]].repeat_interleave(tensor.count) if dim in number else indices[dim - before].repeat(times)
        for dim in range(sparse)
    ]
    inner = tuple(shape[sparse:])
    repeated = values.expand(tensor.count, *inner).repeat(times, *[1] * len(inner))
    is_in_order = tensor._is_coalesced and longer == list(range(len(longer)))
    return SparseTensor(sparse_coo, (run("stack", lines), repeated), shape, is_in_order)
