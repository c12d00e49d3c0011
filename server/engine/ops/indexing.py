"""Indexing with tensors: advanced indexing, masks, embedding. Kernels check indices before they use them."""

from __future__ import annotations

import math

from server.engine import functional as F
from server.engine.array_library import indexing as arrays
from server.engine.array_library.cache_blocks import number
from server.engine.array_library.indexing import check_index, dimension
from server.engine.registry import composite, implements
from telegrad_protocol.dtypes import bool_
from telegrad_protocol.errors import IndexOutOfRangeError, ShapeError
from telegrad_protocol.layout import broadcast_shapes
from telegrad_protocol.ops import indexing as ops

from .derivatives import zeros


def copy_input(xp, out, input):
    """Copy the input into the result of an updating kernel, unless the input is the array that is updated in place."""
    if out is not input:
        xp.copyto(out, input)


def _key(xp, name, input, indices):
    """The checked indices as a NumPy key: a mask becomes positions of True elements, None a whole dimension."""
    key = []
    for index in indices:
        if index is None:
            key.append(slice(None))
        elif index.dtype.char in _MASKS:
            mask = index.astype(bool, copy=False)
            key.extend(xp.nonzero(mask) if mask.ndim else (mask,))
        else:
            at = sum(not (isinstance(k, xp.ndarray) and k.dtype == bool) for k in key)
            check_index(name, index, input.shape[at], dimension(at, input.shape[at]), wraps=True)
            key.append(index)
    _check_block(xp, input, key)
    return tuple(key)


_MASKS = "?B"
"""The types of masks: booleans, and uint8."""


def _check_block(xp, input, key):
    """Refuse indices that, broadcast against each other, select more than the session's memory could ever hold."""
    picked = [k.shape for k in key if not isinstance(k, slice)]
    block = input.itemsize
    for d, size in enumerate(input.shape):
        if d >= len(key) or isinstance(key[d], slice):
            block *= size
    arrays.check_room(xp, block * math.prod(broadcast_shapes("index", *picked)))


@implements(
    ops.index, movement=True,
    input=lambda grad, input_meta, indices: F.index_put(zeros(grad, input_meta.shape), indices, grad, True),
)  # fmt: skip
def index(xp, input, indices, *, out):
    key = _key(xp, "index", input, indices)
    arrays_at = [d for d, k in enumerate(key) if not isinstance(k, slice)]
    if out is not None and len(arrays_at) == 1 and key[arrays_at[0]].dtype != bool:
        arrays.take_rows(xp, input, key[arrays_at[0]], arrays_at[0], out)
        return None
    selected = input[key]
    return selected if out is None else xp.copyto(out, selected)


@implements(
    ops.index_put, movement=True, updates=True,
    input=lambda grad, indices, accumulate: grad if accumulate else F.index_put(grad, indices, 0),
    values=lambda grad, indices: F.index(grad, indices),
)  # fmt: skip
def index_put(xp, input, indices, values, accumulate, *, out):
    copy_input(xp, out, input)
    key = _key(xp, "index_put", input, indices)
    try:
        if not hasattr(values, "dtype"):
            values = number(values, out.dtype)
        if accumulate:
            arrays.add_at(xp, out, key, values)
        else:
            out[key] = values
    except ValueError:
        raise ShapeError(
            f"index_put: values of shape {list(xp.shape(values))} do not fit what the masks select"
        ) from None


def _checked_vector(xp, name, array, dim, index):
    """The array with ``dim`` in front, and the index as a checked vector."""
    array, index = xp.atleast_1d(array), index.reshape(-1)
    dim %= array.ndim
    check_index(name, index, array.shape[dim], dimension(dim, array.shape[dim]))
    return arrays.in_front(array, dim), index


@implements(
    ops.index_select, movement=True,
    input=lambda grad, input_meta, dim, index: F.index_add(zeros(grad, input_meta.shape), dim, index, grad),
)  # fmt: skip
def index_select(xp, input, dim, index, *, out):
    _checked_vector(xp, "index_select", input, dim, index)
    if input.ndim:
        arrays.take_rows(xp, input, index.reshape(-1), dim, out)
    else:
        out[...] = input


def _source_gradient(grad, dim, index, source_meta):
    return F.reshape(F.index_select(grad, dim, index), source_meta.shape)


def _scaled(grad, alpha):
    return grad if alpha == 1 else grad * alpha


@implements(
    ops.index_add, movement=True, updates=True,
    input=lambda grad: grad,
    source=lambda grad, dim, index, source_meta, alpha: _scaled(_source_gradient(grad, dim, index, source_meta), alpha),
)  # fmt: skip
def index_add(xp, input, dim, index, source, *, alpha, out):
    copy_input(xp, out, input)
    target, places = _checked_vector(xp, "index_add", out, dim, index)
    source = xp.atleast_1d(source)
    rows = arrays.in_front(source, dim % source.ndim)
    arrays.reduce_at(xp, target, (places,), rows if alpha == 1 else rows * arrays.scalar(alpha, rows.dtype), "sum")


@implements(
    ops.index_copy, movement=True, updates=True,
    input=lambda grad, dim, index: F.index_fill(grad, dim, index, 0),
    source=lambda grad, dim, index, source_meta: _source_gradient(grad, dim, index, source_meta),
)  # fmt: skip
def index_copy(xp, input, dim, index, source, *, out):
    copy_input(xp, out, input)
    target, places = _checked_vector(xp, "index_copy", out, dim, index)
    target[places] = xp.moveaxis(xp.atleast_1d(source), dim, 0)


def _filled_mask(grad, dim, index):
    empty_mask = F.zeros(grad.meta.shape, dtype=bool_, device=grad.device)
    return F.index_fill(empty_mask, dim, index, True)


@implements(
    ops.index_fill, movement=True, updates=True,
    input=lambda grad, dim, index: F.index_fill(grad, dim, index, 0),
    value=lambda grad, dim, index: F.sum(F.masked_select(grad, _filled_mask(grad, dim, index))),
)  # fmt: skip
def index_fill(xp, input, dim, index, value, *, out):
    copy_input(xp, out, input)
    target, places = _checked_vector(xp, "index_fill", out, dim, index)
    target[places] = value if hasattr(value, "dtype") else number(value, out.dtype)


def _masked_select_backward(grad, input_meta, mask):
    shape = broadcast_shapes("masked_select", input_meta.shape, mask.meta.shape)
    return F.masked_scatter(zeros(grad, shape), mask, grad)


@implements(ops.masked_select, movement=True, input=_masked_select_backward)
def masked_select(xp, input, mask):
    arrays.check_room(xp, input.itemsize * math.prod(broadcast_shapes("masked_select", input.shape, mask.shape)))
    values, chosen = xp.broadcast_arrays(input, mask.astype(bool, copy=False))
    return values[chosen]


def _masked_scatter_source_backward(grad, mask, source_meta):
    chosen = F.masked_select(grad, mask)
    missing = source_meta.numel - chosen.meta.numel
    return F.reshape(F.cat([chosen, zeros(grad, (missing,))]) if missing else chosen, source_meta.shape)


def _masked_scatter_input_backward(grad, mask):
    return F.index_put(grad, (F.expand(mask, grad.meta.shape),), 0)


@implements(
    ops.masked_scatter,
    movement=True,
    updates=True,
    input=_masked_scatter_input_backward,
    source=_masked_scatter_source_backward,
)
def masked_scatter(xp, input, mask, source, *, out):
    copy_input(xp, out, input)
    chosen = xp.broadcast_to(mask.astype(bool, copy=False), out.shape)
    count = int(chosen.sum())
    if count > source.size:
        raise ShapeError(f"masked_scatter: the mask selects {count} elements, the source has {source.size}")
    out[chosen] = source.reshape(-1)[:count]


@implements(ops.nonzero, movement=True)
def nonzero(xp, input, *, as_tuple):
    if not input.ndim:
        return xp.zeros((int(bool(input)), 0), "int64")
    arrays.check_room(xp, 8 * input.ndim * int(xp.sum(input != 0)))
    return xp.stack(xp.nonzero(input)).astype("int64", copy=False).T


@implements(ops._unique_rows)
def _unique_rows(xp, input, consecutive):
    rows = input.astype("float32") if input.dtype.itemsize == 2 and input.dtype.kind not in "iu" else input
    count = len(rows)
    order = xp.arange(count) if consecutive or not rows.shape[1] else _ascending(xp, rows)
    ordered = rows[order]
    begins = xp.ones(count, bool)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    groups = xp.empty(count, "int64")
    groups[order] = xp.cumsum(begins) - 1
    starts = xp.nonzero(begins)[0]
    ends = xp.concatenate([starts[1:], xp.full(min(count, 1), count, starts.dtype)])
    counts = xp.empty(max(len(starts), 1), "int64")[: len(starts)]  # NumPy gives an empty array strides of 0
    counts[...] = ends - starts
    return order[starts].astype("int64"), groups, counts


def _ascending(xp, rows):
    """The order of rows by their first elements, then by the next ones; equal rows stay in order."""
    if rows.shape[1] == 1:
        return xp.argsort(rows[:, 0], kind="stable")
    return xp.lexsort(xp.ascontiguousarray(rows.T[::-1]))


@composite(ops.argwhere)
def argwhere(input):
    return F.nonzero(input)


@implements(ops.bincount, movement=True)
def bincount(xp, input, weights, minlength):
    if input.size and int(input.min()) < 0:
        raise IndexOutOfRangeError("bincount: numbers must not be negative")
    length = max(minlength, int(input.max()) + 1 if input.size else 0)
    arrays.check_room(xp, 8 * length)
    kind = "int64" if weights is None else "float32" if weights.dtype.name == "float32" else "float64"
    counts = xp.zeros(length, kind)
    values = xp.ones(input.size, kind) if weights is None else weights.astype(kind)
    arrays.reduce_at(xp, counts, (input,), values, "sum")
    return counts


@composite(ops.embedding)
def embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse):
    if max_norm is not None:
        F.embedding_renorm_(F.detach(weight), input, max_norm, norm_type)
    padding = -1 if padding_idx is None else padding_idx % weight.meta.shape[0]
    return F._embedding(input, weight, padding, scale_grad_by_freq)


@implements(
    ops._embedding, movement=True,
    weight=lambda grad, input, weight_meta, padding_idx, scale_grad_by_freq: F.embedding_dense_backward(
        grad, input, weight_meta.shape[0], padding_idx, scale_grad_by_freq
    ),
)  # fmt: skip
def _embedding(xp, input, weight, padding_idx, scale_grad_by_freq, *, out):
    check_index("embedding", input, weight.shape[0], f"a table of {weight.shape[0]} rows")
    arrays.take_rows(xp, weight, input, 0, out)


def _embedding_backward_backward(grad, indices, padding_idx):
    if 0 <= padding_idx < grad.meta.shape[0]:
        grad = F.select_scatter(grad, zeros(grad, grad.meta.shape[1:]), 0, padding_idx)
    return F._embedding(indices, grad, -1, False)


@implements(ops.embedding_dense_backward, movement=True, grad_output=_embedding_backward_backward)
def embedding_dense_backward(xp, grad_output, indices, num_weights, padding_idx, scale_grad_by_freq, *, out):
    places = indices.reshape(-1)
    check_index("embedding_dense_backward", places, num_weights, f"a table of {num_weights} rows")
    rows = grad_output.reshape(places.size, out.shape[1])
    if scale_grad_by_freq and places.size:
        counts = xp.bincount(places, minlength=num_weights)
        rows = rows / counts[places][:, None]
    out[...] = 0
    arrays.reduce_at(xp, out, (places,), rows, "sum")
    if 0 <= padding_idx < num_weights:
        out[padding_idx] = 0


def _row_norms(size, norm_type):
    if norm_type == 0:
        return (size != 0).sum(1)
    if math.isinf(norm_type):
        return size.max(1) if norm_type > 0 else size.min(1)
    return (size**norm_type).sum(1) ** (1 / norm_type)


@implements(ops.embedding_renorm_, movement=True)  # rows in half precision are written where they are
def embedding_renorm_(xp, weight, indices, max_norm, norm_type):
    check_index("embedding", indices, weight.shape[0], f"a table of {weight.shape[0]} rows")
    places = xp.unique(indices)
    rows = weight[places]
    if not rows.size:
        return
    wide = rows.astype("float32") if rows.dtype.itemsize == 2 else rows
    norms = _row_norms(xp.abs(wide), norm_type)
    scale = xp.where(norms > max_norm, max_norm / (norms + 1e-7), 1)
    weight[places] = (wide * scale[:, None].astype(wide.dtype)).astype(rows.dtype)


@implements(ops.one_hot, movement=True)
def one_hot(xp, tensor, num_classes, *, out):
    classes = num_classes if num_classes >= 0 else int(tensor.max()) + 1
    check_index("one_hot", tensor, classes, f"{classes} classes")
    if out is not None and not out.size:
        return None
    arrays.check_room(xp, 8 * classes * tensor.size)
    hot = tensor[..., None] == xp.arange(classes)
    return hot.astype("int64") if out is None else xp.copyto(out, hot, casting="unsafe")
