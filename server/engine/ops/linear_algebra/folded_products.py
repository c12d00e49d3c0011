"""Products of batches of matrices: one product of a matrix into which a batch is folded, or one of equal batches."""

from __future__ import annotations

import functools
import math

from server.engine import functional as F
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from telegrad_protocol.layout import broadcast_shapes

_MM, _BMM, _MV, _VIEW, _RESHAPE = [OPERATORS[name] for name in ("mm", "bmm", "mv", "view", "reshape")]


@functools.lru_cache(maxsize=4096)
def product_of(left, right, is_trained):
    """What multiplies operands of these metas, of which the smaller one requires a gradient or does not."""
    if not _folds(left, right, is_trained):
        return _batched(left, right)
    return _folded_transposed if right.ndim > left.ndim else _folded_into(left, right)


def _folds(left, right, is_trained):
    """Whether the larger operand is folded into a matrix, as PyTorch's ``should_fold`` decides.

    It is where that takes no copy, or where the copy saves backward a larger tensor.
    """
    larger, smaller = (left, right) if left.ndim >= right.ndim else (right, left)
    if larger.ndim < 3 or smaller.ndim > 2:
        return False
    if is_trained:
        return True
    if left.ndim == 2:
        return False
    if not larger.numel:
        return True
    strides = larger.strides if larger is left else (*larger.strides[:-2], larger.strides[-1], larger.strides[-2])
    shape = larger.shape if larger is left else (*larger.shape[:-2], larger.shape[-1], larger.shape[-2])
    return all(strides[d] == strides[d + 1] * shape[d + 1] for d in range(larger.ndim - 2))


def _folded_into(left, right):
    """What multiplies the rows of all matrices by one matrix or vector."""
    rows = left.shape[:-1]
    folded = math.prod(rows), left.shape[-1]
    if right.ndim == 1:
        return lambda left, right: dispatch(_VIEW, (dispatch(_MV, (dispatch(_RESHAPE, (left, folded)), right)), rows))
    shape = *rows, right.shape[1]
    return lambda left, right: dispatch(_VIEW, (dispatch(_MM, (dispatch(_RESHAPE, (left, folded)), right)), shape))


def _folded_transposed(left, right):
    """left @ right as (right.T @ left.T).T"""
    stack = F.transpose(right, -2, -1)
    if left.ndim == 1:
        return _folded_into(stack.meta, left.meta)(stack, left)
    turned = F.t(left)
    return F.contiguous(F.transpose(_folded_into(stack.meta, turned.meta)(stack, turned), -2, -1))


def _batched(left, right):
    """What multiplies batches: their dimensions broadcast against each other and are flattened into one."""
    if left.ndim == right.ndim == 3 and left.shape[0] == right.shape[0]:
        return F.bmm
    is_row, is_column = left.ndim == 1, right.ndim == 1
    m, k, n = 1 if is_row else left.shape[-2], left.shape[-1], 1 if is_column else right.shape[-1]
    batch = broadcast_shapes("matmul", left.shape[:-2], right.shape[:-2])
    first, second = (math.prod(batch), m, k), (math.prod(batch), k, n)
    shape = batch + left.shape[-2:-1] + (() if is_column else right.shape[-1:])

    def multiply(left, right):
        rows = F.unsqueeze(left, 0) if is_row else left
        columns = F.unsqueeze(right, 1) if is_column else right
        flat = dispatch(_BMM, (_flattened(rows, batch, first), _flattened(columns, batch, second)))
        return dispatch(_VIEW, (flat, shape))

    return multiply


def _flattened(value, batch, size):
    spread = value if value.shape[:-2] == batch else F.expand(value, batch + value.shape[-2:])
    return spread if spread.shape == size else dispatch(_RESHAPE, (spread, size))
