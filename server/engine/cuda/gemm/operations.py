"""Which products the operations of linear algebra are: files them with the CUDA key."""

from __future__ import annotations

from typing import Any

from server.engine import keys
from server.engine.operators import OPERATORS, Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra import linalg as ops

from . import cublaslt
from .gemm import multiplication
from .layout import Matrices, column, flattened, matrices, spread, spread_column
from .product import Product

_LARGE = 1 << 30
"""Multiplications that take longer than a launch."""


@prepares(ops.mm, keys.CUDA, deferrable=True)
@prepares(ops.bmm, keys.CUDA, deferrable=True)
def product(request: Request) -> Launch | None:
    left, right = request.args
    return multiplication(request.backend, Product(matrices(left), matrices(right), matrices(request.outs[0])))


@prepares(ops.mv, keys.CUDA, deferrable=True)
def matrix_vector(request: Request) -> Launch | None:
    matrix, vector = request.args
    return multiplication(request.backend, Product(matrices(matrix), column(vector), column(request.outs[0])))


def _sum(request: Request, left: Matrices, right: Matrices, added: Matrices, out: Matrices) -> Launch | None:
    *_, beta, alpha = request.args
    return multiplication(
        request.backend,
        Product(left, right, out, 1, 2, added=added, added_at=0, alpha=alpha, beta=beta, may_alias=True),
    )


@prepares(ops.addmm, keys.CUDA, elementwise=True, deferrable=True)
@prepares(ops.baddbmm, keys.CUDA, elementwise=True, deferrable=True)
def scaled_sum(request: Request) -> Launch | None:
    """Filed as elementwise because what is added may be the result; a factor that is gets a copy."""
    added, left, right = request.args[:3]
    out = request.outs[0]
    return _sum(request, matrices(left), matrices(right), spread(added, out.shape), matrices(out))


@prepares(ops._addmm_activation, keys.CUDA, deferrable=True)
def activated_sum(request: Request) -> Launch | None:
    """The activation is part of the product where what is added is a bias."""
    added, left, right, beta, alpha, use_gelu = request.args
    out = request.outs[0]
    described = Product(
        matrices(left), matrices(right), matrices(out), 1, 2, added=spread(added, out.shape), alpha=alpha, beta=beta,
        activation=cublaslt.GELU if use_gelu else cublaslt.RELU,
    )  # fmt: skip
    return multiplication(request.backend, described) if described.adds_bias else None


@prepares(ops.addmv, keys.CUDA, elementwise=True, deferrable=True)
def scaled_vector_sum(request: Request) -> Launch | None:
    added, matrix, vector = request.args[:3]
    out = request.outs[0]
    return _sum(request, matrices(matrix), column(vector), spread_column(added, out.shape[0]), column(out))


@prepares(ops.linear, keys.CUDA, deferrable=True)
def linear(request: Request) -> Launch | None:
    input, weight, bias = request.args
    described = linear_product(input, weight, bias, request.outs[0])
    return None if described is None else multiplication(request.backend, described)


def linear_product(input: Meta, weight: Meta, bias: Meta | None, out: Meta) -> Product | None:
    """(rows, k) @ (n, k).T + (n); a weight of one dimension is a matrix of one row. None for what is no product."""
    by_weight = matrices(weight).T if weight.ndim == 2 else column(weight)
    result = flattened(out) if weight.ndim == 2 else _as_column(out)
    if result is None or (bias is not None and (bias.ndim > 1 or (weight.ndim == 1 and bias.numel > 1))):
        return None
    added = None if bias is None else spread(bias, (result.rows, result.columns))
    return Product(flattened(input), by_weight, result, added=added, added_at=2, beta=0 if bias is None else 1)


def _as_column(meta: Meta) -> Matrices | None:
    """A row-major tensor as a matrix of one column."""
    return Matrices(meta.dtype, 1, meta.numel, 1, 0, 1, 1, meta.offset) if meta.is_contiguous else None


@prepares(ops._linear_backward, keys.CUDA, deferrable=True)
def linear_backward(request: Request) -> Launch | None:
    """The gradients of input, weight and bias, as far as they are asked for; the last two in one product."""
    grad, input, weight, has_bias = request.args
    if grad.dtype.is_complex:
        return None
    launches: list[Launch | None] = []
    rows, number = flattened(grad), 0
    if weight is not None:
        by_input = Product(rows, matrices(weight), flattened(request.outs[0]), 0, 2, 0)
        launches.append(multiplication(request.backend, by_input))
        number = 1
    if input is not None:
        by_weight = Product(rows.T, flattened(input), matrices(request.outs[number]), 0, 1, number)
        bias_at = number + 1 if has_bias else None
        launches += _weight_gradient(request, by_weight, bias_at)
    elif has_bias:
        launches.append(_row_sum(request, number))
    return _one_after_the_other(launches)


def _weight_gradient(request: Request, by_weight: Product, bias_at: int | None) -> list[Launch | None]:
    if bias_at is None:
        return [multiplication(request.backend, by_weight)]
    if _is_better_apart(by_weight):
        return [multiplication(request.backend, by_weight), _row_sum(request, bias_at)]
    together = multiplication(request.backend, by_weight._replace(bias_gradient_at=bias_at))
    if together is not None and by_weight.left.columns and by_weight.out.columns:
        return [together]
    return [multiplication(request.backend, by_weight), _row_sum(request, bias_at)]


def _is_better_apart(by_weight: Product) -> bool:
    """Whether the bias gradient is summed by a kernel of its own: one more launch, but in float16 less time."""
    out = by_weight.out
    return out.dtype is dtypes.float16 and out.rows * out.columns * by_weight.left.columns >= _LARGE


def _row_sum(request: Request, number: int) -> Launch | None:
    """The sum of the gradient over all but its last dimension, by whichever kernel sums."""
    grad, backend = request.args[0], request.backend
    dims = tuple(range(grad.ndim - 1))
    if not dims:
        return lambda args, outs: backend.store(outs[number].array, args[0].array)
    summed = OPERATORS["sum"]
    asked = Request(summed.op, backend, (grad, dims, False, None), (request.outs[number],), None)
    for preparer in summed.preparers.get(keys.CUDA, ()):
        launch = preparer.factory(asked)
        if launch is not None:
            return _renumbered(launch, number)

    def plain(args: Any, outs: Any) -> None:
        backend.flush()
        source = args[0].array
        backend.store(outs[number].array, source.sum(axis=dims, dtype="f4" if source.itemsize == 2 else None))

    return plain


def _renumbered(launch: Launch, number: int) -> Launch:
    return lambda args, outs: launch(args[:1], (outs[number],))


def _one_after_the_other(launches: list[Launch | None]) -> Launch | None:
    if any(launch is None for launch in launches):
        return None
    chosen = [launch for launch in launches if launch is not None]

    def run(args: Any, outs: Any) -> None:
        for launch in chosen:
            launch(args, outs)

    return run
