"""What a training step of a small model does most often, prepared: the backward of ``linear``, plain SGD."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.blas import daxpy, saxpy

from server.engine import keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import linalg, optim

from .memory import constant

_FAST = (dtypes.float32, dtypes.float64)
_SUMMED_ROWS = 2048
"""Rows that one product sums; rounding grows with their number."""


@prepares(linalg._linear_backward, keys.CPU)
def linear_backward(request: Request) -> Launch | None:
    """(m,n) @ (n,k) -> (m,k); (m,n).T @ (m,k) -> (n,k); a product with ones sums (m,n) -> (n)"""
    grad, input, weight, bias = request.args
    metas = [meta for meta in (grad, input, weight) if meta is not None]
    if not all([meta.ndim == 2 and meta.is_contiguous and meta.numel and meta.dtype in _FAST for meta in metas]):
        return None
    if bias and grad.shape[0] > _SUMMED_ROWS:
        return None
    ones = constant(1, grad.shape[0], NUMPY_DTYPES[grad.dtype].char)
    last = len(request.outs) - 1

    def launch(args: Any, outs: Any) -> None:
        rows = args[0].array
        if weight is not None:
            np.matmul(rows, args[2].array, out=outs[0].array)
        if input is not None:
            np.matmul(rows.T, args[1].array, out=outs[0 if weight is None else 1].array)
        if bias:
            np.dot(ones, rows, out=outs[last].array)

    return launch


@prepares(optim._fused_sgd_, keys.CPU)
def plain_sgd(request: Request) -> Launch | None:
    """param -= lr * grad, which BLAS does in one pass"""
    params, grads, _, decay, momentum, lr, _, _, maximize, _, scale, found_inf = request.args
    if decay or momentum or isinstance(lr, Meta) or scale is not None or found_inf is not None:
        return None
    if not all([_are_alike(p, g) for p, g in zip(params, grads, strict=True)]):
        return None
    adders = [_ADDERS[param.dtype] for param in params]

    def launch(args: Any, outs: Any) -> None:
        factor = args[5] if maximize else -args[5]
        for add, param, grad in zip(adders, args[0], args[1]):
            add(grad.array.reshape(-1), param.array.reshape(-1), a=factor)

    return launch


def _are_alike(param: Meta, grad: Meta) -> bool:
    is_dense = param.is_contiguous and grad.is_contiguous and 0 < param.numel < _LARGEST
    return param.dtype in _FAST and param.dtype is grad.dtype and is_dense


_ADDERS = {dtypes.float32: saxpy, dtypes.float64: daxpy}
"""What adds a multiple of its first argument to its second, in place where that is contiguous."""
_LARGEST = 1 << 31
"""BLAS counts in 32 bits."""
