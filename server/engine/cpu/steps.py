"""Prepared kernels of a model's training step: ``linear``, its backward, and SGD without momentum.

Products of few elements are ``cpu/small``'s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_libraries import linear_algebra
from server.engine.blas_threads import LARGE
from server.engine.device import cancellation, threads
from server.engine.in_c import small as small_in_c
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import optim
from telegrad_protocol.ops.linear_algebra import linalg

from .memory import constant
from .products.linear import multiply_gradients
from .small import products as small_products

_FAST = (dtypes.float32, dtypes.float64)
_SUMMED_ROWS = 2048
"""The most rows that one product sums; the rounding error grows with their number."""


@prepares(linalg.linear, keys.CPU)
def linear(request: Request) -> Launch | None:
    """(m,k) @ (n,k).T + (n) -> (m,n), of so few products that threads do not pay: what the generic kernel computes"""
    if small_in_c.is_there() and small_products.linear(request) is not None:
        return None
    input, weight, bias = request.args
    metas = [meta for meta in (input, weight, bias) if meta is not None]
    is_taken = all([meta.is_contiguous and meta.numel and meta.dtype is request.outs[0].dtype for meta in metas])
    if not is_taken or input.dtype not in _FAST or input.ndim != 2 or weight.ndim != 2:
        return None
    if (bias is not None and bias.ndim != 1) or input.numel * weight.shape[0] >= 4 * threads.LEAST_PRODUCTS:
        return None

    def launch(args: Any, outs: Any) -> None:
        out = outs[0].array
        np.matmul(args[0].array, args[1].array.T, out=out)
        if bias is not None:
            np.add(out, args[2].array, out=out)

    return launch


@prepares(linalg._linear_backward, keys.CPU)
def linear_backward(request: Request) -> Launch | None:
    """(m,n) @ (n,k) -> (m,k); (m,n).T @ (m,k) -> (n,k); a product with ones sums the rows: (m,n) -> (n)"""
    if small_in_c.is_there() and small_products.linear_backward(request) is not None:
        return None
    grad, input, weight, bias = request.args
    metas = [meta for meta in (grad, input, weight) if meta is not None]
    if not all([meta.ndim == 2 and meta.is_contiguous and meta.numel and meta.dtype in _FAST for meta in metas]):
        return None
    if bias and grad.shape[0] > _SUMMED_ROWS:
        return None
    ones = constant(1, grad.shape[0], NUMPY_DTYPES[grad.dtype].char)
    last = len(request.outs) - 1
    products = sum([grad.numel * meta.shape[1] for meta in (input, weight) if meta is not None])
    nbytes = sum([meta.nbytes for meta in (*metas, *request.outs)])
    is_shared = products >= 4 * threads.LEAST_PRODUCTS and nbytes < LARGE  # BLAS has threads of its own for more

    def launch(args: Any, outs: Any) -> None:
        rows = args[0].array
        if not (is_shared and _by_threads(args, outs)):
            if weight is not None:
                np.matmul(rows, args[2].array, out=outs[0].array)
            if input is not None:
                np.matmul(rows.T, args[1].array, out=outs[0 if weight is None else 1].array)
        if bias:
            np.dot(ones, rows, out=outs[last].array)

    return launch


def _by_threads(args: Any, outs: Any) -> bool:
    """Write the products as one job of threads; False, and nothing written, where they do not pay."""
    rows, input, weight = [None if arg is None else arg.array for arg in args[:3]]
    return multiply_gradients(rows, input, weight, [out.array for out in outs])


@prepares(optim._fused_sgd_, keys.CPU)
def plain_sgd(request: Request) -> Launch | None:
    """param -= lr * grad, by BLAS's ``axpy``"""
    params, grads, _, decay, momentum, lr, _, _, maximize, _, scale, found_inf = request.args
    if decay or momentum or scale is not None or found_inf is not None or (isinstance(lr, Meta) and lr.numel != 1):
        return None
    if not all([_is_taken(p, g) for p, g in zip(params, grads, strict=True)]):
        return None
    axpys = [getattr(linear_algebra().blas, _AXPY[param.dtype]) for param in params]

    def launch(args: Any, outs: Any) -> None:
        rate = float(args[5].array.item()) if isinstance(args[5], Value) else args[5]
        factor = rate if maximize else -rate
        for axpy, param, grad in zip(axpys, args[0], args[1]):
            if cancellation.requested:
                cancellation.stop()
            axpy(grad.array.reshape(-1), param.array.reshape(-1), a=factor)

    return launch


def _is_taken(param: Meta, grad: Meta) -> bool:
    is_dense = param.is_contiguous and grad.is_contiguous and 0 < param.numel < _LARGEST
    return param.dtype in _FAST and param.dtype is grad.dtype and is_dense


_AXPY = {dtypes.float32: "saxpy", dtypes.float64: "daxpy"}
"""BLAS's y += a * x by dtype, in place for contiguous vectors."""
_LARGEST = 1 << 31
"""BLAS counts elements in 32 bits."""
