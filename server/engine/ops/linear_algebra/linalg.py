"""Linear algebra. Operands keep their strides, because BLAS takes transposed matrices without a copy."""

from __future__ import annotations

import functools
import math

from server.engine import functional as F
from server.engine.autograd.inplace import requires_grad
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS, Single
from server.engine.ops.complex import conj
from server.engine.registry import comes_to, composite, implements
from telegrad_protocol.ops.linear_algebra import linalg as ops

from .folded_products import product_of

_MUL, _UNSQUEEZE = OPERATORS["mul"], OPERATORS["unsqueeze"]


def _conj_number(number):
    return number.conjugate() if isinstance(number, complex) else number


def _adjoint(value):
    return conj(F.transpose(value, -2, -1))


def _scale(value, factor):
    return value if factor == 1 else F.mul(value, _conj_number(factor))


def _is_column_major(meta):
    return meta.strides[-2] == 1 and meta.strides[-1] == meta.shape[-2]


def _left_gradient(product, grad, right, left_meta):
    """The gradient of left in left @ right, in the memory order of left: (m,n) @ (k,n).T -> (m,k)"""
    if _is_column_major(left_meta):
        return F.transpose(product(conj(right), F.transpose(grad, -2, -1)), -2, -1)
    return product(grad, _adjoint(right))


def _right_gradient(product, grad, left, right_meta):
    """The gradient of right in left @ right, in the memory order of right: (m,k).T @ (m,n) -> (k,n)"""
    if _is_column_major(right_meta):
        return F.transpose(product(F.transpose(grad, -2, -1), conj(left)), -2, -1)
    return product(_adjoint(left), grad)


def _outer(left, right):
    return dispatch(_MUL, (dispatch(_UNSQUEEZE, (left, 1)), right))


@implements(
    ops.mm,
    input=lambda grad, mat2, input_meta: _left_gradient(F.mm, grad, mat2, input_meta),
    mat2=lambda grad, input, mat2_meta: _right_gradient(F.mm, grad, input, mat2_meta),
)
def mm(xp, input, mat2, *, out):
    xp.matmul(input, mat2, out=out)


@implements(
    ops.bmm,
    input=lambda grad, mat2: F.bmm(grad, _adjoint(mat2)),
    mat2=lambda grad, input: F.bmm(_adjoint(input), grad),
)
def bmm(xp, input, mat2, *, out):
    product = xp.multiply if input.shape[2] == 1 else xp.matmul  # columns times rows, such as gradients per sample
    product(input, mat2, out=out)


@implements(
    ops.mv,
    input=lambda grad, vec: _outer(grad, conj(vec)),  # (m) x (k) -> (m,k)
    vec=lambda grad, input: F.mv(_adjoint(input), grad),  # (m,k).T @ (m) -> (k)
)
def mv(xp, input, vec, *, out):
    xp.matmul(input, vec, out=out)


@implements(
    ops.dot,
    input=lambda grad, tensor: F.mul(grad, conj(tensor)),
    tensor=lambda grad, input: F.mul(grad, conj(input)),
)
def dot(xp, input, tensor, *, out):
    xp.matmul(input, tensor, out=out)


@implements(
    ops.vdot,
    input=lambda grad, other: F.mul(conj(grad), other),
    other=lambda grad, input: F.mul(grad, input),
)
def vdot(xp, input, other, *, out):
    xp.matmul(xp.conj(input), other, out=out)


def _number(xp, factor, out):
    """``factor`` in the type of ``out``: integers wrap around, as in arithmetic on tensors."""
    return xp.asarray(factor).astype(out.dtype) if out.dtype.kind in "iub" else factor


def add_scaled(xp, input, beta, alpha, out):
    """Turn the product in ``out`` into alpha * product + beta * input."""
    if alpha != 1:
        xp.multiply(out, _number(xp, alpha, out), out=out)
    if beta == 1:
        xp.add(out, input, out=out)
    elif beta != 0:
        xp.add(out, xp.multiply(input, _number(xp, beta, out)), out=out)


@implements(
    ops.addmm,
    input=lambda grad, beta: _scale(grad, beta),
    mat1=lambda grad, mat2, mat1_meta, alpha: _scale(_left_gradient(F.mm, grad, mat2, mat1_meta), alpha),
    mat2=lambda grad, mat1, mat2_meta, alpha: _scale(_right_gradient(F.mm, grad, mat1, mat2_meta), alpha),
)
def addmm(xp, input, mat1, mat2, *, beta, alpha, out):
    xp.matmul(mat1, mat2, out=out)
    add_scaled(xp, input, beta, alpha, out)


def _inner_gradient(grad, input, mat1, mat2, beta, alpha, use_gelu):
    """The gradient of the activation's input, which is recomputed."""
    preactivation = F.addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    if use_gelu:
        return F._gelu_backward(grad, preactivation, approximate="tanh")
    return F._relu_backward(grad, F.relu(preactivation))


def _activation_gradients(grad, input, mat1, mat2, mat1_meta, mat2_meta, beta, alpha, use_gelu, wanted):
    inner = _inner_gradient(grad, input, mat1, mat2, beta, alpha, use_gelu)
    return (
        _scale(inner, beta) if wanted[0] else None,
        _scale(_left_gradient(F.mm, inner, mat2, mat1_meta), alpha) if wanted[1] else None,
        _scale(_right_gradient(F.mm, inner, mat1, mat2_meta), alpha) if wanted[2] else None,
    )


@implements(
    ops._addmm_activation,
    input=lambda grad, input, mat1, mat2, beta, alpha, use_gelu: _scale(
        _inner_gradient(grad, input, mat1, mat2, beta, alpha, use_gelu), beta
    ),
    mat1=lambda grad, input, mat1, mat2, mat1_meta, beta, alpha, use_gelu: _scale(
        _left_gradient(F.mm, _inner_gradient(grad, input, mat1, mat2, beta, alpha, use_gelu), mat2, mat1_meta),
        alpha,
    ),
    mat2=lambda grad, input, mat1, mat2, mat2_meta, beta, alpha, use_gelu: _scale(
        _right_gradient(F.mm, _inner_gradient(grad, input, mat1, mat2, beta, alpha, use_gelu), mat1, mat2_meta),
        alpha,
    ),
    together=_activation_gradients,
)
def _addmm_activation(xp, input, mat1, mat2, *, beta, alpha, use_gelu, out):
    addmm(xp, input, mat1, mat2, beta=beta, alpha=alpha, out=out)
    if use_gelu:
        inner = xp.tanh(math.sqrt(2.0 / math.pi) * (out + 0.044715 * out**3))
        xp.multiply(out, 0.5 + 0.5 * inner, out=out)
    else:
        xp.maximum(out, 0, out=out)


@implements(
    ops.addmv,
    input=lambda grad, beta: _scale(grad, beta),
    mat=lambda grad, vec, alpha: _scale(_outer(grad, conj(vec)), alpha),
    vec=lambda grad, mat, alpha: _scale(F.mv(_adjoint(mat), grad), alpha),
)
def addmv(xp, input, mat, vec, *, beta, alpha, out):
    xp.matmul(mat, vec, out=out)
    add_scaled(xp, input, beta, alpha, out)


@implements(
    ops.addr,
    input=lambda grad, beta: _scale(grad, beta),
    vec1=lambda grad, vec2, alpha: _scale(F.mv(grad, conj(vec2)), alpha),  # (m,n) @ (n) -> (m)
    vec2=lambda grad, vec1, alpha: _scale(F.mv(F.transpose(grad, 0, 1), conj(vec1)), alpha),  # (m,n).T @ (m) -> (n)
)
def addr(xp, input, vec1, vec2, *, beta, alpha, out):
    first = xp.expand_dims(vec1, 1)
    if out.dtype == bool:
        product = xp.logical_and(first, vec2) if alpha else False
        xp.logical_or(product, input if beta else False, out=out)
        return
    xp.multiply(first.astype(out.dtype, copy=False), vec2, out=out, casting="unsafe")
    add_scaled(xp, input.astype(out.dtype, copy=False), beta, alpha, out)


@implements(
    ops.baddbmm,
    input=lambda grad, beta: _scale(grad, beta),
    batch1=lambda grad, batch2, alpha: _scale(F.bmm(grad, _adjoint(batch2)), alpha),
    batch2=lambda grad, batch1, alpha: _scale(F.bmm(_adjoint(batch1), grad), alpha),
)
def baddbmm(xp, input, batch1, batch2, *, beta, alpha, out):
    xp.matmul(batch1, batch2, out=out)
    add_scaled(xp, input, beta, alpha, out)


_FEW_PRODUCTS = 64
"""Up to this many products ``addbmm`` rounds after every product, as PyTorch does; more become one long product."""


def _side_by_side(batch):
    """(b, n, m) -> (n, b m)"""
    return F.flatten(F.transpose(batch, 0, 1), 1, 2)


@composite(ops.addbmm)
def addbmm(input, batch1, batch2, *, beta, alpha):
    """One product after the other, rounded in between as in PyTorch, which shows in half precision."""
    if not batch1.shape[0]:
        nothing = F.zeros(batch1.shape[1], batch2.shape[2], dtype=input.dtype, device=input.device)
        return nothing if beta == 0 else F.add(nothing, input, alpha=beta)
    if batch1.shape[0] > _FEW_PRODUCTS:
        return F.addmm(input, _side_by_side(batch1), F.flatten(batch2, 0, 1), beta=beta, alpha=alpha)
    result = F.addmm(input, F.select(batch1, 0, 0), F.select(batch2, 0, 0), beta=beta, alpha=alpha)
    for i in range(1, batch1.shape[0]):
        result = F.addmm(result, F.select(batch1, 0, i), F.select(batch2, 0, i), alpha=alpha)
    return result


@composite(ops.matmul)
def matmul(input, other):
    dims = input.ndim, other.ndim
    if dims == (2, 2):
        return F.mm(input, other)
    if dims == (1, 1):
        return F.dot(input, other)
    if dims == (2, 1):
        return F.mv(input, other)
    if dims == (1, 2):
        return F.squeeze(F.mm(F.unsqueeze(input, 0), other), 0)
    smaller = other if dims[0] >= dims[1] else input
    return product_of(input.meta, other.meta, requires_grad(smaller))(input, other)


_PRODUCTS = {(2, 2): "mm", (1, 1): "dot", (2, 1): "mv"}


@comes_to(ops.matmul)
def _only_product(records, input, other):
    dims = input.ndim, other.ndim
    name = "bmm" if dims == (3, 3) and input.shape[0] == other.shape[0] else _PRODUCTS.get(dims)
    return name and Single(OPERATORS[name])


@composite(ops.outer)
def outer(input, vec2):
    return _outer(input, vec2)


def _trace_backward(grad, input_meta):
    rows, columns = input_meta.shape
    return F.mul(grad, F.eye(rows, columns, dtype=grad.dtype, device=grad.device))


@implements(ops.trace, input=_trace_backward)
def trace(xp, input, *, out):
    xp.sum(xp.diagonal(input), dtype=out.dtype, out=out)


@composite(ops.kron)
def kron(input, other):
    """Dimensions of both alternate: (a, 1, c, 1) * (1, b, 1, d) -> (a b, c d)"""
    ndim = max(input.ndim, other.ndim)
    left, right = ((1,) * (ndim - v.ndim) + v.shape for v in (input, other))
    spread = F.reshape(input, [size for a in left for size in (a, 1)])
    repeated = F.reshape(other, [size for b in right for size in (1, b)])
    return F.reshape(F.mul(spread, repeated), [a * b for a, b in zip(left, right, strict=True)])


@composite(ops.inner)
def inner(input, other):
    if not input.ndim or not other.ndim:
        return F.mul(input, other)
    if input.ndim == other.ndim == 1:
        return F.dot(input, other)
    shared = input.shape[-1]
    left = F.reshape(input, (math.prod(input.shape[:-1]), shared))
    right = F.reshape(other, (math.prod(other.shape[:-1]), shared))
    return F.view(F.mm(left, F.t(right)), input.shape[:-1] + other.shape[:-1])


def _cross_gradient(left, right, left_meta, right_meta, dim):
    """The derivative of a cross product is a cross product axis the same dimension."""
    shape, axis = ops.cross_dim(left_meta, right_meta, dim)
    return F.cross(F.expand(left, shape), F.expand(right, shape), axis)


_FEW_ELEMENTS = 1024
"""Up to so many elements of a cross product it pays to copy operands, so that less operations are needed."""


@functools.cache
def _along(behind):
    """Indices of three neighbours along a dimension that has so many behind it: the first, the second, the third."""
    return [(..., slice(start, start + 3), *[slice(None)] * behind) for start in range(3)]


def _small_cross(xp, a, b, axis, out):
    """A cross product by the three elements of each operand, followed by the same again."""
    wide = [x if x.shape == out.shape else xp.broadcast_to(x, out.shape) for x in (a, b)]
    a, b = (xp.concatenate((x, x), axis) for x in wide)
    _, second, third = _along(out.ndim - 1 - axis % out.ndim)
    xp.subtract(a[second] * b[third], a[third] * b[second], out=out)


@implements(
    ops.cross,
    input=lambda grad, other, input_meta, other_meta, dim: _cross_gradient(
        conj(other), grad, input_meta, other_meta, dim
    ),
    other=lambda grad, input, input_meta, other_meta, dim: _cross_gradient(
        grad, conj(input), input_meta, other_meta, dim
    ),
)
def cross(xp, input, other, dim, *, out):
    axis = out.shape.index(3) if dim is None else dim
    if out.size <= _FEW_ELEMENTS:
        _small_cross(xp, input, other, axis, out)
        return
    a, b = (xp.moveaxis(xp.broadcast_to(operand, out.shape), axis, 0) for operand in (input, other))
    target = xp.moveaxis(out, axis, 0)
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        left, right = xp.multiply(a[j : j + 1], b[k : k + 1]), xp.multiply(a[k : k + 1], b[j : j + 1])
        xp.subtract(left, right, out=target[i : i + 1])  # slices, because ``out`` takes no scalars
