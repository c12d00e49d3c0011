"""Indexing with tensors: gathering, scattering, masks, embedding. Indices are checked before they are used."""

from __future__ import annotations

import math

from telegrad_protocol.dtypes import bool_
from telegrad_protocol.errors import IndexOutOfRangeError, ShapeError
from telegrad_protocol.layout import broadcast_shapes
from telegrad_protocol.ops import indexing as ops

from .. import arrays
from .. import functional as F  # noqa: N812 - the field's name
from ..arrays import check_index, dimension
from ..operators import OPERATORS, composite, implements


def _zeros(like, shape):
    return F.zeros(shape, dtype=like.dtype, device=like.device)


def _start(xp, out, input):
    """What an updating kernel begins with: the input, unless it is the very array that is updated."""
    if out is not input:
        xp.copyto(out, input)


# -- index and index_put -----------------------------------------------------------------------------------------------


def _key(xp, name, input, indices):
    """Index arrays as NumPy takes them: masks as positions, None as a whole dimension, all checked."""
    key = []
    for index in indices:
        if index is None:
            key.append(slice(None))
        elif index.dtype == bool or index.dtype.name == "uint8":
            mask = index.astype(bool, copy=False)
            key.extend(xp.nonzero(mask) if mask.ndim else (mask,))
        else:
            at = sum(not (isinstance(k, xp.ndarray) and k.dtype == bool) for k in key)
            check_index(name, index, input.shape[at], dimension(at, input.shape[at]), wraps=True)
            key.append(index)
    return tuple(key)


@implements(
    ops.index, movement=True,
    input=lambda grad, input_meta, indices: F.index_put(_zeros(grad, input_meta.shape), indices, grad, True),
)  # fmt: skip
def index(xp, input, indices, *, out):
    key = _key(xp, "index", input, indices)
    arrays_at = [d for d, k in enumerate(key) if not isinstance(k, slice)]
    if out is not None and len(arrays_at) == 1 and key[arrays_at[0]].dtype != bool:
        arrays.take_rows(xp, input, key[arrays_at[0]], arrays_at[0], out)
        return None
    found = input[key]
    return found if out is None else xp.copyto(out, found)


@implements(
    ops.index_put, movement=True, updates=True,
    input=lambda grad, indices, accumulate: grad if accumulate else F.index_put(grad, indices, 0),
    values=lambda grad, indices: F.index(grad, indices),
)  # fmt: skip
def index_put(xp, input, indices, values, accumulate, *, out):
    _start(xp, out, input)
    key = _key(xp, "index_put", input, indices)
    try:
        if accumulate:
            arrays.add_at(xp, out, key, values)
        else:
            out[key] = values
    except ValueError:
        raise ShapeError(f"index_put: values of shape {list(xp.shape(values))} do not fit what the masks select") from None


# -- gather and scatter ------------------------------------------------------------------------------------------------


def _place(xp, name, array, dim, index):
    """The array and the index with at least one dimension, and the key that addresses the indexed elements."""
    array, index = xp.atleast_1d(array), xp.atleast_1d(index)
    dim %= array.ndim
    check_index(name, index, array.shape[dim], dimension(dim, array.shape[dim]))
    return array, arrays.along(xp, index, dim), tuple(slice(n) for n in index.shape)


@implements(
    ops.gather, movement=True,
    input=lambda grad, input_meta, dim, index: F.scatter_add(_zeros(grad, input_meta.shape), dim, index, grad),
)  # fmt: skip
def gather(xp, input, dim, index, *, sparse_grad, out):
    if index.size:
        array, key, _ = _place(xp, "gather", input, dim, index)
        out[...] = array[key].reshape(out.shape)


def _erased(grad, dim, index):
    return F.run(OPERATORS["scatter.value"], grad, dim, index, 0)


def _no_multiply(reduce):
    if reduce == "multiply":
        from telegrad_protocol.errors import NotSupportedError

        raise NotSupportedError("scatter: reduce='multiply' has no derivative; use scatter_reduce with 'prod'")


def _scatter_input(grad, dim, index, reduce):
    _no_multiply(reduce)
    return grad if reduce == "add" else _erased(grad, dim, index)


def _scatter_src(grad, dim, index, src_meta, reduce):
    _no_multiply(reduce)
    return _spread(F.gather(grad, dim, index), src_meta.shape)


def _spread(grad, shape):
    """The gradient of a source of which only the first elements were read."""
    for dim, size in enumerate(shape):
        if grad.meta.shape[dim] != size:
            whole = (*grad.meta.shape[:dim], size, *grad.meta.shape[dim + 1 :])
            grad = F.slice_scatter(_zeros(grad, whole), grad, dim, 0, grad.meta.shape[dim])
    return F.reshape(grad, shape)


_REDUCES = {"add": "sum", "multiply": "prod"}


def _scatter(xp, out, dim, index, src, how):
    if not index.size:
        return
    target, key, part = _place(xp, "scatter", out, dim, index)
    values = xp.atleast_1d(src)[part] if getattr(src, "ndim", 0) else src
    if how is None:
        target[key] = values
    else:
        arrays.reduce_at(xp, target, key, values, how)


@implements(ops.scatter, movement=True, updates=True, input=_scatter_input, src=_scatter_src)
def scatter(xp, input, dim, index, src, *, reduce, out):
    _start(xp, out, input)
    _scatter(xp, out, dim, index, src, _REDUCES.get(reduce))


@implements(ops.scatter_value, movement=True, updates=True, input=_scatter_input)
def scatter_value(xp, input, dim, index, value, *, reduce, out):
    _start(xp, out, input)
    _scatter(xp, out, dim, index, value, _REDUCES.get(reduce))


@implements(
    ops.scatter_add, movement=True, updates=True,
    input=lambda grad: grad,
    src=lambda grad, dim, index, src_meta: _spread(F.gather(grad, dim, index), src_meta.shape),
)  # fmt: skip
def scatter_add(xp, input, dim, index, src, *, out):
    _start(xp, out, input)
    _scatter(xp, out, dim, index, src, "sum")


def _reduce_grads(grad, out, input, dim, index, src, reduce, include_self):
    """Gradients of input and source, before the input's own share is taken away (PyTorch's formulas)."""
    if reduce == "sum":
        return grad, F.gather(grad, dim, index)
    if reduce == "mean":
        ones = F.ones(src.meta.shape, dtype=grad.dtype, device=grad.device)
        start = F.ones(input.meta.shape, dtype=grad.dtype, device=grad.device) if include_self else _zeros(grad, input.meta.shape)
        count = F.clamp(F.scatter_add(start, dim, index, ones), 1)
        return F.div(grad, count), F.gather(F.div(grad, count), dim, index)
    if reduce == "prod":
        return _prod_grads(grad, out, input, dim, index, src, include_self)
    source_hits = F._to_copy(F.eq(src, F.gather(out, dim, index)), dtype=grad.dtype)
    own_hits = F._to_copy(F.eq(input, out), dtype=grad.dtype)
    share = F.div(grad, F.scatter_add(own_hits, dim, index, source_hits))
    return F.mul(own_hits, share), F.mul(source_hits, F.gather(share, dim, index))


def _prod_grads(grad, out, input, dim, index, src, include_self):
    one = F.ones((), dtype=grad.dtype, device=grad.device)
    own = F.where(F.eq(input, 0), one, input)
    own_result = F.scatter_reduce(own, dim, index, src, "prod", include_self=include_self)
    is_zero = F.eq(src, 0)
    zeros = F.gather(F.scatter_add(_zeros(grad, input.meta.shape), dim, index, F._to_copy(is_zero, dtype=grad.dtype)), dim, index)
    is_single = F.logical_and(is_zero, F.eq(zeros, 1))
    rest = F.scatter_reduce(input, dim, index, F.where(is_single, one, src), "prod", include_self=include_self)
    usual = F.div(F.gather(F.mul(grad, out), dim, index), F.where(is_zero, one, src))
    return F.div(F.mul(grad, own_result), own), F.where(is_single, F.gather(F.mul(grad, rest), dim, index), usual)


def _reduce_input(grad, out, input, dim, index, src, reduce, include_self):
    own = _reduce_grads(grad, out, input, dim, index, _cut(src, index), reduce, include_self)[0]
    return own if include_self else _erased(own, dim, index)


def _reduce_src(grad, out, input, dim, index, src, reduce, include_self):
    part = _reduce_grads(grad, out, input, dim, index, _cut(src, index), reduce, include_self)[1]
    return _spread(part, src.meta.shape)


def _cut(src, index):
    for dim, size in enumerate(index.meta.shape):
        if src.meta.shape[dim] != size:
            src = F.narrow(src, dim, 0, size)
    return src


@implements(ops.scatter_reduce, movement=True, updates=True, input=_reduce_input, src=_reduce_src)
def scatter_reduce(xp, input, dim, index, src, reduce, *, include_self, out):
    _start(xp, out, input)
    if not index.size:
        return
    target, key, part = _place(xp, "scatter_reduce", out, dim, index)
    values = xp.atleast_1d(src)[part]
    if not include_self:
        target[key] = arrays.identity(reduce, out.dtype)
    if reduce == "mean":
        arrays.mean_at(xp, target, key, values, include_self)
    else:
        arrays.reduce_at(xp, target, key, values, reduce)


# -- along one dimension -----------------------------------------------------------------------------------------------


def _checked_vector(xp, name, array, dim, index):
    """The array with ``dim`` in front, and the index as a checked vector."""
    array, index = xp.atleast_1d(array), index.reshape(-1)
    dim %= array.ndim
    check_index(name, index, array.shape[dim], dimension(dim, array.shape[dim]))
    return xp.moveaxis(array, dim, 0), index


@implements(
    ops.index_select, movement=True,
    input=lambda grad, input_meta, dim, index: F.index_add(_zeros(grad, input_meta.shape), dim, index, grad),
)  # fmt: skip
def index_select(xp, input, dim, index, *, out):
    _checked_vector(xp, "index_select", input, dim, index)
    if input.ndim:
        arrays.take_rows(xp, input, index.reshape(-1), dim, out)
    else:
        out[...] = input


def _parts(grad, dim, index, source_meta):
    return F.reshape(F.index_select(grad, dim, index), source_meta.shape)


def _scaled(grad, alpha):
    return grad if alpha == 1 else grad * alpha


@implements(
    ops.index_add, movement=True, updates=True,
    input=lambda grad: grad,
    source=lambda grad, dim, index, source_meta, alpha: _scaled(_parts(grad, dim, index, source_meta), alpha),
)  # fmt: skip
def index_add(xp, input, dim, index, source, *, alpha, out):
    _start(xp, out, input)
    target, places = _checked_vector(xp, "index_add", out, dim, index)
    rows = xp.moveaxis(xp.atleast_1d(source), dim, 0)
    arrays.reduce_at(xp, target, (places,), rows if alpha == 1 else rows * arrays.scalar(alpha, rows.dtype), "sum")


@implements(
    ops.index_copy, movement=True, updates=True,
    input=lambda grad, dim, index: F.index_fill(grad, dim, index, 0),
    source=lambda grad, dim, index, source_meta: _parts(grad, dim, index, source_meta),
)  # fmt: skip
def index_copy(xp, input, dim, index, source, *, out):
    _start(xp, out, input)
    target, places = _checked_vector(xp, "index_copy", out, dim, index)
    target[places] = xp.moveaxis(xp.atleast_1d(source), dim, 0)


def _filled_mask(grad, dim, index):
    nothing = F.zeros(grad.meta.shape, dtype=bool_, device=grad.device)
    return F.index_fill(nothing, dim, index, True)


@implements(
    ops.index_fill, movement=True, updates=True,
    input=lambda grad, dim, index: F.index_fill(grad, dim, index, 0),
    value=lambda grad, dim, index: F.sum(F.masked_select(grad, _filled_mask(grad, dim, index))),
)  # fmt: skip
def index_fill(xp, input, dim, index, value, *, out):
    _start(xp, out, input)
    target, places = _checked_vector(xp, "index_fill", out, dim, index)
    target[places] = value


# -- as vectors --------------------------------------------------------------------------------------------------------


@implements(
    ops.take, movement=True,
    input=lambda grad, input_meta, index: F.put(_zeros(grad, input_meta.shape), index, grad, True),
)  # fmt: skip
def take(xp, input, index, *, out):
    check_index("take", index, input.size, f"{input.size} elements", wraps=True)
    arrays.take_rows(xp, input.reshape(-1), index, 0, out)


@implements(
    ops.put, movement=True, updates=True,
    input=lambda grad, index, source_meta, accumulate: (
        grad if accumulate else F.put(grad, index, _zeros(grad, source_meta.shape))
    ),
    source=lambda grad, index, source_meta: F.reshape(F.take(grad, index), source_meta.shape),
)  # fmt: skip
def put(xp, input, index, source, accumulate, *, out):
    _start(xp, out, input)
    check_index("put", index, input.size, f"{input.size} elements", wraps=True)
    flat = out.reshape(-1)
    places = arrays.wrapped(xp, index, input.size).reshape(-1)
    if accumulate:
        arrays.reduce_at(xp, flat, (places,), source.reshape(-1), "sum")
    else:
        flat[places] = source.reshape(-1)
    if not xp.may_share_memory(flat, out):
        out[...] = flat.reshape(out.shape)


@composite(ops.take_along_dim)
def take_along_dim(input, indices, dim):
    if dim is None:
        return take_along_dim(F.reshape(input, (-1,)), F.reshape(indices, (-1,)), 0)
    if input.meta.ndim:
        indices = F.where(F.lt(indices, 0), F.add(indices, input.meta.shape[dim]), indices)
    shapes = [[1 if d == dim % v.meta.ndim else s for d, s in enumerate(v.meta.shape)] for v in (input, indices)]
    common = broadcast_shapes("take_along_dim", *map(tuple, shapes))
    return F.gather(_wide(input, common, dim), dim, _wide(indices, common, dim))


def _wide(value, common, dim):
    at = dim % value.meta.ndim
    return F.expand(value, (*common[:at], value.meta.shape[at], *common[at + 1 :]))


# -- masks -------------------------------------------------------------------------------------------------------------


def _select_back(grad, input_meta, mask):
    shape = broadcast_shapes("masked_select", input_meta.shape, mask.meta.shape)
    return F.masked_scatter(_zeros(grad, shape), mask, grad)


@implements(ops.masked_select, movement=True, input=_select_back)
def masked_select(xp, input, mask):
    values, chosen = xp.broadcast_arrays(input, mask.astype(bool, copy=False))
    return values[chosen]


def _masked_source(grad, mask, source_meta):
    chosen = F.masked_select(grad, mask)
    missing = source_meta.numel - chosen.meta.numel
    return F.reshape(F.cat([chosen, _zeros(grad, (missing,))]) if missing else chosen, source_meta.shape)


def _mask_erased(grad, mask):
    return F.index_put(grad, (F.expand(mask, grad.meta.shape),), 0)


@implements(ops.masked_scatter, movement=True, updates=True, input=_mask_erased, source=_masked_source)
def masked_scatter(xp, input, mask, source, *, out):
    _start(xp, out, input)
    chosen = xp.broadcast_to(mask.astype(bool, copy=False), out.shape)
    count = int(chosen.sum())
    if count > source.size:
        raise ShapeError(f"masked_scatter: the mask selects {count} elements, the source has {source.size}")
    out[chosen] = source.reshape(-1)[:count]


@implements(ops.nonzero, movement=True)
def nonzero(xp, input, *, as_tuple):
    if not input.ndim:
        return xp.zeros((int(bool(input)), 0), "int64")
    return xp.stack(xp.nonzero(input)).astype("int64", copy=False).T


@composite(ops.argwhere)
def argwhere(input):
    return F.nonzero(input)


@implements(ops.bincount, movement=True)
def bincount(xp, input, weights, minlength):
    if input.size and int(input.min()) < 0:
        raise IndexOutOfRangeError("bincount: numbers must not be negative")
    length = max(minlength, int(input.max()) + 1 if input.size else 0)
    kind = "int64" if weights is None else "float32" if weights.dtype.name == "float32" else "float64"
    counts = xp.zeros(length, kind)
    values = xp.ones(input.size, kind) if weights is None else weights.astype(kind)
    arrays.reduce_at(xp, counts, (input,), values, "sum")
    return counts


# -- lookup ------------------------------------------------------------------------------------------------------------


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


def _dense_back(grad, indices, padding_idx):
    if 0 <= padding_idx < grad.meta.shape[0]:
        grad = F.select_scatter(grad, _zeros(grad, grad.meta.shape[1:]), 0, padding_idx)
    return F._embedding(indices, grad, -1, False)


@implements(ops.embedding_dense_backward, movement=True, grad_output=_dense_back)
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


@implements(ops.embedding_renorm_)
def embedding_renorm_(xp, weight, indices, max_norm, norm_type):
    check_index("embedding", indices, weight.shape[0], f"a table of {weight.shape[0]} rows")
    places = xp.unique(indices)
    rows = weight[places]
    size = xp.abs(rows)
    norms = size.max(1) if math.isinf(norm_type) else (size**norm_type).sum(1) ** (1 / norm_type)
    scale = xp.where(norms > max_norm, max_norm / (norms + 1e-7), 1)
    weight[places] = rows * scale[:, None].astype(rows.dtype)


@implements(ops.one_hot, movement=True)
def one_hot(xp, tensor, num_classes, *, out):
    classes = num_classes if num_classes >= 0 else int(tensor.max()) + 1
    check_index("one_hot", tensor, classes, f"{classes} classes")
    hot = tensor[..., None] == xp.arange(classes)
    return hot.astype("int64") if out is None else xp.copyto(out, hot, casting="unsafe")
