"""``linear`` and its gradients on large operands: products of matrices that threads share by blocks of the result."""

from __future__ import annotations

import math
from typing import Any

from server.engine import keys
from server.engine.cpu.row_loops import sum_columns
from server.engine.cpu.rows import column_sums, is_fast
from server.engine.device import threads
from server.engine.ops.layers import linear as generic
from server.engine.registry import kernel
from telegrad_protocol.ops.linear_algebra import linalg as ops

from .blocks import calls_of, loops_for, multiply

Array = Any


@kernel(ops.linear, keys.CPU)
def linear(xp, input, weight, bias, *, out):
    are_rows = out.size and input.size and weight.ndim == 2 and input.flags.c_contiguous and out.flags.c_contiguous
    are_rows = are_rows and (bias is None or bias.ndim < 2)
    rows = out.reshape(-1, weight.shape[0]) if are_rows else None
    if rows is None or not multiply(input.reshape(-1, weight.shape[1]), weight.T, rows, bias):
        generic.linear(xp, input, weight, bias, out=out)


@kernel(ops._linear_backward, keys.CPU)
def linear_backward(xp, grad_out, input, weight, bias, *, out):
    if not is_fast(grad_out):
        generic._linear_backward(xp, grad_out, input, weight, bias, out=out)
        return
    if not ((input is None or is_fast(input)) and multiply_gradients(grad_out, input, weight, out)):
        generic._linear_backward(xp, grad_out, input, weight, False, out=out)
    if bias:
        grad = grad_out.reshape(-1, grad_out.shape[-1])
        if not sum_columns(grad, out[-1]):
            column_sums(grad, out[-1])


def multiply_gradients(grad_out: Array, input: Array | None, weight: Array | None, out: Any) -> bool:
    """Write the gradients of input and weight as one job; False, and nothing written, where threads do not pay."""
    operands = [operand for operand in (weight, input) if operand is not None]
    products = sum([grad_out.size * operand.shape[-1] for operand in operands])
    loops = loops_for(products, grad_out, *operands)
    if loops is None:
        return False
    grad = grad_out.reshape(math.prod(grad_out.shape[:-1]), grad_out.shape[-1])
    results, calls = iter(out), []
    pairs = [] if weight is None else [(grad, weight, next(results).reshape(len(grad), weight.shape[1]))]
    if input is not None:
        pairs.append((grad.T, input.reshape(len(grad), input.shape[-1]), next(results)))
    for left, right, target in pairs:
        some = calls_of(left, right, target)
        if some is None:
            return False
        calls += some
    threads.run_loop(loops.multiply[grad.dtype.char], calls, calls_blas=True)
    return True
