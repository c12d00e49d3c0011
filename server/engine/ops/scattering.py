"""``gather``, ``scatter`` and their relatives, which address single elements. Indices are checked before use."""

from __future__ import annotations

from server.engine import functional as F
from server.engine.array_library import indexing as arrays
from server.engine.array_library.cache_blocks import number
from server.engine.array_library.indexing import check_index, dimension
from server.engine.operators import OPERATORS
from server.engine.registry import composite, implements
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.layout import broadcast_shapes
from telegrad_protocol.ops import scattering as ops

from .derivatives import zeros
from .indexing import copy_input


def _address(xp, name, array, dim, index):
    """The array and the index with at least one dimension, and the key that addresses the indexed elements."""
    array, index = xp.atleast_1d(array), xp.atleast_1d(index)
    dim %= array.ndim
    check_index(name, index, array.shape[dim], dimension(dim, array.shape[dim]))
    return array, arrays.along(xp, index, dim), tuple(slice(n) for n in index.shape)


@implements(
    ops.gather, movement=True,
    input=lambda grad, input_meta, dim, index: F.scatter_add(zeros(grad, input_meta.shape), dim, index, grad),
)  # fmt: skip
def gather(xp, input, dim, index, *, sparse_grad, out):
    if index.size:
        array, key, _ = _address(xp, "gather", input, dim, index)
        out[...] = array[key].reshape(out.shape)


def _zero_indexed(grad, dim, index):
    """The gradient with zeros at the indexed positions."""
    return F.run(OPERATORS["scatter.value"], grad, dim, index, 0)


def _refuse_multiply(reduce):
    if reduce == "multiply":
        raise NotSupportedError("scatter: reduce='multiply' has no derivative; use scatter_reduce with 'prod'")


def _scatter_input(grad, dim, index, reduce):
    _refuse_multiply(reduce)
    return grad if reduce == "add" else _zero_indexed(grad, dim, index)


def _scatter_src(grad, dim, index, src_meta, reduce):
    _refuse_multiply(reduce)
    return _pad_gradient(F.gather(grad, dim, index), src_meta.shape)


def _pad_gradient(grad, shape):
    """The gradient of a source of which only the leading part was read: zeros are put behind that part."""
    for dim, size in enumerate(shape):
        if grad.meta.shape[dim] != size:
            whole = (*grad.meta.shape[:dim], size, *grad.meta.shape[dim + 1 :])
            grad = F.slice_scatter(zeros(grad, whole), grad, dim, 0, grad.meta.shape[dim])
    return F.reshape(grad, shape)


_REDUCES = {"add": "sum", "multiply": "prod"}


def _scatter(xp, out, dim, index, src, how):
    if not index.size:
        return
    target, key, part = _address(xp, "scatter", out, dim, index)
    values = xp.atleast_1d(src)[part] if getattr(src, "ndim", 0) else src
    if how is None:
        target[key] = values
    else:
        arrays.reduce_at(xp, target, key, values, how)


@implements(ops.scatter, movement=True, updates=True, input=_scatter_input, src=_scatter_src)
def scatter(xp, input, dim, index, src, *, reduce, out):
    copy_input(xp, out, input)
    _scatter(xp, out, dim, index, src, _REDUCES.get(reduce))


@implements(ops.scatter_value, movement=True, updates=True, input=_scatter_input)
def scatter_value(xp, input, dim, index, value, *, reduce, out):
    copy_input(xp, out, input)
    _scatter(xp, out, dim, index, number(value, out.dtype), _REDUCES.get(reduce))


@implements(
    ops.scatter_add, movement=True, updates=True,
    input=lambda grad: grad,
    src=lambda grad, dim, index, src_meta: _pad_gradient(F.gather(grad, dim, index), src_meta.shape),
)  # fmt: skip
def scatter_add(xp, input, dim, index, src, *, out):
    copy_input(xp, out, input)
    _scatter(xp, out, dim, index, src, "sum")


def _reduce_grads(grad, out, input, dim, index, src, reduce, include_self):
    """The gradients of input and source by PyTorch's formulas; for the input, callers apply ``include_self``."""
    if reduce == "sum":
        return grad, F.gather(grad, dim, index)
    if reduce == "mean":
        ones = F.ones(src.meta.shape, dtype=grad.dtype, device=grad.device)
        own = F.full(input.meta.shape, float(include_self), dtype=grad.dtype, device=grad.device)
        count = F.clamp(F.scatter_add(own, dim, index, ones), 1)
        return F.div(grad, count), F.gather(F.div(grad, count), dim, index)
    if reduce == "prod":
        return _prod_grads(grad, out, input, dim, index, src, include_self)
    source_hits = F._to_copy(F.eq(src, F.gather(out, dim, index)), dtype=grad.dtype)
    own_hits = F._to_copy(F.eq(input, out), dtype=grad.dtype)
    share = F.div(grad, F.scatter_add(own_hits, dim, index, source_hits))
    return F.mul(own_hits, share), F.mul(source_hits, F.gather(share, dim, index))


def _prod_grads(grad, out, input, dim, index, src, include_self):
    """The gradients of a product; where exactly one factor is 0, its gradient is the product of all others."""
    one = F.ones((), dtype=grad.dtype, device=grad.device)
    own = F.where(F.eq(input, 0), one, input)
    own_result = F.scatter_reduce(own, dim, index, src, "prod", include_self=include_self)
    is_zero = F.eq(src, 0)
    counted = F.scatter_add(zeros(grad, input.meta.shape), dim, index, F._to_copy(is_zero, dtype=grad.dtype))
    zero_count = F.gather(counted, dim, index)
    is_single = F.logical_and(is_zero, F.eq(zero_count, 1))
    other_product = F.scatter_reduce(input, dim, index, F.where(is_single, one, src), "prod", include_self=include_self)
    regular = F.div(F.gather(F.mul(grad, out), dim, index), F.where(is_zero, one, src))
    return F.div(F.mul(grad, own_result), own), F.where(
        is_single, F.gather(F.mul(grad, other_product), dim, index), regular
    )


def _reduce_input(grad, out, input, dim, index, src, reduce, include_self):
    own = _reduce_grads(grad, out, input, dim, index, _crop_source(src, index), reduce, include_self)[0]
    return own if include_self else _zero_indexed(own, dim, index)


def _reduce_src(grad, out, input, dim, index, src, reduce, include_self):
    part = _reduce_grads(grad, out, input, dim, index, _crop_source(src, index), reduce, include_self)[1]
    return _pad_gradient(part, src.meta.shape)


def _crop_source(src, index):
    """The leading part of the source that the index reads, of the index's shape."""
    for dim, size in enumerate(index.meta.shape):
        if src.meta.shape[dim] != size:
            src = F.narrow(src, dim, 0, size)
    return src


@implements(ops.scatter_reduce, movement=True, updates=True, input=_reduce_input, src=_reduce_src)
def scatter_reduce(xp, input, dim, index, src, reduce, *, include_self, out):
    copy_input(xp, out, input)
    if not index.size:
        return
    target, key, part = _address(xp, "scatter_reduce", out, dim, index)
    values = xp.atleast_1d(src)[part]
    if not include_self:
        target[key] = arrays.identity(reduce, out.dtype)
    if reduce == "mean":
        arrays.mean_at(xp, target, key, values, include_self)
    else:
        arrays.reduce_at(xp, target, key, values, reduce)


@implements(
    ops.take, movement=True,
    input=lambda grad, input_meta, index: F.put(zeros(grad, input_meta.shape), index, grad, True),
)  # fmt: skip
def take(xp, input, index, *, out):
    check_index("take", index, input.size, f"{input.size} elements", wraps=True)
    arrays.take_rows(xp, input.reshape(-1), index, 0, out)


@implements(
    ops.put, movement=True, updates=True,
    input=lambda grad, index, source_meta, accumulate: (
        grad if accumulate else F.put(grad, index, zeros(grad, source_meta.shape))
    ),
    source=lambda grad, index, source_meta: F.reshape(F.take(grad, index), source_meta.shape),
)  # fmt: skip
def put(xp, input, index, source, accumulate, *, out):
    copy_input(xp, out, input)
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
    indices = F.where(F.lt(indices, 0), F.add(indices, input.meta.shape[dim]), indices)
    shapes = [[1 if d == dim % v.meta.ndim else s for d, s in enumerate(v.meta.shape)] for v in (input, indices)]
    common = broadcast_shapes("take_along_dim", *map(tuple, shapes))
    return F.gather(_expand_except(input, common, dim), dim, _expand_except(indices, common, dim))


def _expand_except(value, common, dim):
    """The value expanded to the common shape in all dimensions but ``dim``."""
    at = dim % value.meta.ndim
    return F.expand(value, (*common[:at], value.meta.shape[at], *common[at + 1 :]))
