"""Contracts of linear algebra: products of vectors, matrices and batches of matrices.

Matrix products are row-major whatever the strides of their operands, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from telegrad_protocol.dtypes import FLOAT, DType, bool_, int64, result_type
from telegrad_protocol.errors import ArgumentError, DimensionError, DTypeError, ShapeError
from telegrad_protocol.layout import Size, broadcast_shapes, contiguous_strides, result_strides, view_strides, wrap_dim
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import Scalar, alias, op


def _same_dtype(name: str, *operands: Meta) -> DType:
    """Return the one type of all operands of a product; refuse operands of several."""
    dtype = operands[0].dtype
    if any(operand.dtype is not dtype for operand in operands):
        raise DTypeError(f"{name}: operands must have the same dtype, got {_listed(operands)}")
    if dtype is bool_:
        raise DTypeError(f"{name}: not defined for bool, got {_listed(operands)}")
    return dtype


def _listed(operands: tuple[Meta, ...]) -> str:
    return " and ".join(map(repr, operands))


def _check_factors(name: str, dtype: DType, beta: Scalar, alpha: Scalar) -> None:
    for label, factor in (("beta", beta), ("alpha", alpha)):
        if not dtype.is_complex and isinstance(factor, complex):
            raise DTypeError(f"{name}: {label} must be real for operands of type {dtype.name}, got {factor!r}")


def _added(name: str, input: Meta, product: Size, *factors: Meta, beta: Scalar, alpha: Scalar) -> Meta:
    """Return the meta of beta * input + alpha * product."""
    _check_factors(name, _same_dtype(name, *factors, input), beta, alpha)
    if broadcast_shapes(name, input.shape, product) != product:
        raise ShapeError(f"{name}: input {input} does not expand to the product's shape {list(product)}")
    return input.like(product)


def _matrix_product(name: str, left: Meta, right: Meta) -> Size:
    if not (left.ndim == right.ndim == 2 and left.shape[1] == right.shape[0]):
        raise ShapeError(f"{name}: cannot multiply {left} by {right}: {_unfit(left.shape, right.shape)}")
    return left.shape[0], right.shape[1]


def _unfit(left: Size, right: Size) -> str:
    """Return the words that PyTorch has for matrices that cannot be multiplied, which programs look for."""
    columns = "x".join(map(str, [math.prod(left[:-1]), *left[-1:]]))
    return f"mat1 and mat2 shapes cannot be multiplied ({columns} and {'x'.join(map(str, right))})"


def _batch_product(name: str, left: Meta, right: Meta) -> Size:
    if not (left.ndim == right.ndim == 3 and left.shape[0] == right.shape[0] and left.shape[2] == right.shape[1]):
        wrong = [f"batch{place} must be a 3D tensor" for place, m in ((1, left), (2, right)) if m.ndim != 3][:1]
        raise ShapeError(": ".join([f"{name}: cannot multiply {left} by {right} batch by batch", *wrong]))
    return left.shape[0], left.shape[1], right.shape[2]


def _vector_product(name: str, matrix: Meta, vector: Meta) -> Size:
    if not (matrix.ndim == 2 and vector.ndim == 1 and matrix.shape[1] == vector.shape[0]):
        raise ShapeError(f"{name}: cannot multiply {matrix} by {vector}")
    return (matrix.shape[0],)


@op
def mm(input: Meta, mat2: Meta) -> Meta:
    """Multiply two matrices: (m, k) @ (k, n) -> (m, n)."""
    size = _matrix_product("mm", input, mat2)
    return input.like(size, _same_dtype("mm", input, mat2))


@op
def bmm(input: Meta, mat2: Meta) -> Meta:
    """Multiply two batches of matrices: (b, m, k) @ (b, k, n) -> (b, m, n)."""
    size = _batch_product("bmm", input, mat2)
    return input.like(size, _same_dtype("bmm", input, mat2))


@op
def mv(input: Meta, vec: Meta) -> Meta:
    """Multiply a matrix and a vector: (m, k) @ (k) -> (m)."""
    size = _vector_product("mv", input, vec)
    return input.like(size, _same_dtype("mv", input, vec))


def _inner(name: str, left: Meta, right: Meta) -> Meta:
    if not left.ndim == right.ndim == 1:
        raise ShapeError(f"{name}: 1D tensors expected, but got {left} and {right}")
    if left.dtype is not right.dtype:
        raise DTypeError(f"{name}: dot : expected both vectors to have same dtype, but found {left} and {right}")
    if left.shape != right.shape:
        raise ShapeError(f"{name}: inconsistent tensor size, expected vectors of one length, got {left} and {right}")
    return left.like((), left.dtype)


@op
def dot(input: Meta, tensor: Meta) -> Meta:
    """Sum the products of the elements of two vectors."""
    return _inner("dot", input, tensor)


@op
def vdot(input: Meta, other: Meta) -> Meta:
    """Sum the products of the elements of two vectors, with the first one conjugated."""
    if input.dtype is bool_:
        raise DTypeError(f"vdot: not defined for bool, got {input}")
    return _inner("vdot", input, other)


@op(inplace=True)
def addmm(input: Meta, mat1: Meta, mat2: Meta, *, beta: Scalar = 1, alpha: Scalar = 1) -> Meta:
    """Compute beta * input + alpha * (mat1 @ mat2); with beta = 0 input is ignored, NaN included."""
    return _added("addmm", input, _matrix_product("addmm", mat1, mat2), mat1, mat2, beta=beta, alpha=alpha)


@op(method=False)
def _addmm_activation(
    input: Meta, mat1: Meta, mat2: Meta, *, beta: Scalar = 1, alpha: Scalar = 1, use_gelu: bool = False
) -> Meta:
    """Compute relu(beta * input + alpha * (mat1 @ mat2)), or GELU in its tanh approximation instead of relu."""
    if not mat1.dtype.is_floating_point:
        raise DTypeError(f"_addmm_activation: expected floating-point matrices, got {mat1}")
    size = _matrix_product("_addmm_activation", mat1, mat2)
    return _added("_addmm_activation", input, size, mat1, mat2, beta=beta, alpha=alpha)


@op(inplace=True)
def addmv(input: Meta, mat: Meta, vec: Meta, *, beta: Scalar = 1, alpha: Scalar = 1) -> Meta:
    """Compute beta * input + alpha * (mat @ vec); with beta = 0 input is ignored, NaN included."""
    return _added("addmv", input, _vector_product("addmv", mat, vec), mat, vec, beta=beta, alpha=alpha)


@op(inplace=True)
def addr(input: Meta, vec1: Meta, vec2: Meta, *, beta: Scalar = 1, alpha: Scalar = 1) -> Meta:
    """Compute beta * input + alpha * outer(vec1, vec2); with beta = 0 input is ignored, NaN included."""
    if vec1.ndim != 1 or vec2.ndim != 1:
        raise ShapeError(f"addr: expected two vectors, got {vec1} and {vec2}")
    dtype = result_type((input, vec1, vec2))
    _check_integral_factors(dtype, beta, alpha)
    _check_factors("addr", dtype, beta, alpha)
    size = vec1.shape[0], vec2.shape[0]
    if broadcast_shapes("addr", input.shape, size) != size:
        raise ShapeError(f"addr: input {input} does not expand to the product's shape {list(size)}")
    spread = (input.shape, input.strides), ((size[0], 1), (vec1.strides[0], 0)), ((1, size[1]), (0, vec2.strides[0]))
    return input.like(size, dtype, strides=result_strides(size, spread))


def _check_integral_factors(dtype: DType, beta: Scalar, alpha: Scalar) -> None:
    if dtype.category < FLOAT and (isinstance(beta, float) or isinstance(alpha, float)):
        raise DTypeError(f"addr: beta and alpha must be integers for a {dtype.name} result, got {beta!r} and {alpha!r}")
    if dtype is not bool_ and (isinstance(beta, bool) or isinstance(alpha, bool)):
        raise DTypeError(f"addr: beta and alpha can only be bool for a bool result, not for {dtype.name}")


@op(inplace=True)
def baddbmm(input: Meta, batch1: Meta, batch2: Meta, *, beta: Scalar = 1, alpha: Scalar = 1) -> Meta:
    """Compute beta * input + alpha * bmm(batch1, batch2); with beta = 0 input is ignored, NaN included."""
    size = _batch_product("baddbmm", batch1, batch2)
    return _added("baddbmm", input, size, batch1, batch2, beta=beta, alpha=alpha)


@op(inplace=True)
def addbmm(input: Meta, batch1: Meta, batch2: Meta, *, beta: Scalar = 1, alpha: Scalar = 1) -> Meta:
    """Compute beta * input + alpha * sum(batch1 @ batch2) over the batch; with beta = 0 input is ignored."""
    size = _batch_product("addbmm", batch1, batch2)[1:]
    return _added("addbmm", input, size, batch1, batch2, beta=beta, alpha=alpha)


@op
def matmul(input: Meta, other: Meta) -> Meta:
    """Multiply vectors, matrices, or batches of matrices whose batch dimensions broadcast."""
    if not input.ndim or not other.ndim:
        raise ShapeError(f"matmul: both operands need at least one dimension, got {input} and {other}")
    if input.shape[-1] != other.shape[max(other.ndim - 2, 0)]:
        raise ShapeError(f"matmul: cannot multiply {input} by {other}: {_unfit(input.shape, other.shape)}")
    batch = broadcast_shapes("matmul", input.shape[:-2], other.shape[:-2])
    size = batch + input.shape[-2:-1] + (other.shape[-1:] if other.ndim > 1 else ())
    return input.like(size, _same_dtype("matmul", input, other))


@op(module="nn.functional", method=False)
def linear(input: Meta, weight: Meta, bias: Meta | None = None) -> Meta:
    """Compute input @ weight.T + bias: (..., k), (n, k), (n) -> (..., n); a weight of (k) gives (...).

    The bias may have any shape that broadcasts to the result's.
    """
    if not input.ndim or weight.ndim not in (1, 2) or input.shape[-1] != weight.shape[-1]:
        turned = weight.shape[::-1]
        raise ShapeError(
            f"linear: cannot multiply {input} by the transpose of the weight {weight}: {_unfit(input.shape, turned)}"
        )
    size = input.shape[:-1] + weight.shape[:-1]
    if bias is None:
        return input.like(size, _same_dtype("linear", input, weight))
    if broadcast_shapes("linear", bias.shape, size) != size:
        raise ShapeError(f"linear: the bias {bias} does not fit the weight {weight}")
    return input.like(size, _same_dtype("linear", input, weight, bias))


@op(method=False, out=False)
def _linear_backward(
    grad_out: Meta, input: Meta | None = None, weight: Meta | None = None, bias: bool = False
) -> tuple[Meta, ...]:  # fmt: skip
    """Compute the gradients of ``linear`` by the input (if weight is given), weight (if input is given) and bias.

    grad_out (..., n) @ weight (n,k) -> (..., k); grad_out.T @ input (..., k) -> (n,k); grad_out summed over rows: (n).
    """
    if not grad_out.ndim:
        raise ShapeError(f"_linear_backward: expected a gradient of one dimension or more, got {grad_out}")
    size = grad_out.shape[-1]
    given = [meta for meta in (grad_out, input, weight) if meta is not None]
    dtype = _same_dtype("_linear_backward", *given)
    if weight is not None and (weight.ndim != 2 or weight.shape[0] != size):
        raise ShapeError(f"_linear_backward: gradient {grad_out} does not fit the weight {weight}")
    if input is not None and (not input.ndim or input.shape[:-1] != grad_out.shape[:-1]):
        raise ShapeError(f"_linear_backward: gradient {grad_out} does not fit the input {input}")
    gradients = []
    if weight is not None:
        gradients.append(grad_out.like((*grad_out.shape[:-1], weight.shape[1]), dtype))
    if input is not None:
        gradients.append(grad_out.like((size, input.shape[-1]), dtype))
    return (*gradients, grad_out.like((size,), dtype)) if bias else tuple(gradients)


@op(module="nn.functional", method=False, out=False)
def bilinear(input1: Meta, input2: Meta, weight: Meta, bias: Meta | None = None) -> Meta:
    """Compute input1 . weight[o] . input2 + bias[o] for every o: (..., i), (..., j), (o, i, j), (o) -> (..., o)."""
    if input1.ndim != input2.ndim or input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(f"bilinear: inputs must agree in all but the last dimension, got {input1} and {input2}")
    if weight.ndim != 3 or weight.shape[1:] != (input1.shape[-1], input2.shape[-1]):
        raise ShapeError(f"bilinear: weight {weight} does not fit the inputs {input1} and {input2}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"bilinear: bias {bias} does not fit the weight {weight}")
    given = (input1, input2, weight, bias) if bias is not None else (input1, input2, weight)
    return input1.like((*input1.shape[:-1], weight.shape[0]), _same_dtype("bilinear", *given))


@op
def outer(input: Meta, vec2: Meta) -> Meta:
    """Multiply all pairs of elements of two vectors: (m), (n) -> (m, n)."""
    if input.ndim != 1 or vec2.ndim != 1:
        raise ShapeError(f"outer: expected two vectors, got {input} and {vec2}")
    return input.like((input.shape[0], vec2.shape[0]), result_type((input, vec2)))


@op(out=False)
def trace(input: Meta) -> Meta:
    """Sum the diagonal of a matrix; integers and bools are summed as int64."""
    if input.ndim != 2:
        raise ShapeError(f"trace: expected a matrix, got {input}")
    return input.like((), input.dtype if input.dtype.category >= FLOAT else int64)


@op
def kron(input: Meta, other: Meta) -> Meta:
    """Compute the Kronecker product: every element of input times the whole of other."""
    ndim = max(input.ndim, other.ndim)
    left, right = ((1,) * (ndim - m.ndim) + m.shape for m in (input, other))
    pairs = list(zip(left, right, strict=True))
    operands = [_spread(input, [n for a in left for n in (a, 1)]), _spread(other, [n for b in right for n in (1, b)])]
    product = tuple([size for pair in pairs for size in pair])
    shape = tuple([a * b for a, b in pairs])
    strides = view_strides(product, result_strides(product, operands), shape)
    return input.like(shape, result_type((input, other)), strides=strides)


def _spread(meta: Meta, sizes: Sequence[int]) -> tuple[Size, Size]:
    """Return sizes and strides of what has further dimensions of size 1."""
    size = tuple(sizes)
    return size, view_strides(meta.shape, meta.strides, size) or contiguous_strides(size)


@op
def inner(input: Meta, other: Meta) -> Meta:
    """Sum products over the last dimension of both: (..., k), (***, k) -> (..., ***); a 0-d operand multiplies."""
    if not input.ndim or not other.ndim:
        full = other if input.ndim == 0 else input
        strides = result_strides(full.shape, [(full.shape, full.strides)])
        return full.like(dtype=result_type((input, other)), strides=strides)
    if input.shape[-1] != other.shape[-1]:
        raise ShapeError(f"inner: the last dimensions of {input} and {other} differ")
    return input.like(input.shape[:-1] + other.shape[:-1], _same_dtype("inner", input, other))


def cross_dim(input: Meta, other: Meta, dim: int | None) -> tuple[Size, int]:
    """Return the broadcast shape of a cross product, and the dimension of size 3 along which it is taken."""
    shape = broadcast_shapes("cross", input.shape, other.shape)
    if dim is not None:
        return shape, wrap_dim("cross", dim, len(shape))
    dimension = next((d for d, size in enumerate(shape) if size == 3), None)
    if dimension is None:
        raise ArgumentError(f"cross: no dimension of size 3 in {input}")
    return shape, dimension


@op
def cross(input: Meta, other: Meta, dim: int | None = None) -> Meta:
    """Compute the cross product of vectors along ``dim``, by default the first dimension of size 3."""
    if input.ndim != other.ndim:
        raise ShapeError(f"cross: inputs must have the same number of dimensions, got {input} and {other}")
    if not input.ndim and dim is not None:
        raise DimensionError(f"cross: {input} has no dimension {dim}")
    if result_type((input, other)) is bool_:
        raise DTypeError(f"cross: not defined for bool, got {input} and {other}")
    shape, along = cross_dim(input, other, dim)
    if input.shape[along] != 3 or other.shape[along] != 3:
        raise ShapeError(
            f"cross: inputs dimension {along if dim is None else dim} must have length 3, got {input} and {other}"
        )
    return input.like(shape, result_type((input, other)))


alias("ger", outer)
