"""What a training step of a small model does most often, prepared: the backward of ``linear``, plain SGD."""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import linalg, optim

from .. import keys
from ..backend import NUMPY_DTYPES
from ..operators import Launch, Request, prepares
from .memory import BLOCK_BYTES, constant, scratch

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
    """param -= lr * grad, for small parameters as they are, for large ones in blocks that stay in the cache"""
    params, grads, _, decay, momentum, lr, _, _, maximize, _, scale, found_inf = request.args
    if decay or momentum or isinstance(lr, Meta) or scale is not None or found_inf is not None:
        return None
    if not all([_are_alike(p, g) for p, g in zip(params, grads, strict=True)]):
        return None

    def launch(args: Any, outs: Any) -> None:
        factor = args[5] if maximize else -args[5]
        for param, grad in zip(args[0], args[1], strict=True):
            _add_multiple(param.array.reshape(-1), grad.array.reshape(-1), factor)

    return launch


def _are_alike(param: Meta, grad: Meta) -> bool:
    return param.dtype in _FAST and param.dtype is grad.dtype and param.is_contiguous and grad.is_contiguous


def _add_multiple(target: Any, array: Any, factor: float) -> None:
    step = BLOCK_BYTES // target.itemsize
    for start in range(0, target.size, step):
        part = target[start : start + step]
        product = np.multiply(array[start : start + step], factor, out=scratch("step", part.shape, part.dtype.char))
        np.add(part, product, out=part)
