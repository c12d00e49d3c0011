"""``linear`` and its gradients on large operands: products of matrices that threads share by rows of the result."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.device import threads
from server.engine.ops import linear as generic
from server.engine.registry import kernel
from telegrad_protocol.ops import linalg as ops

from .rows import column_sums, is_fast

Array = Any
_LEAST_ROWS = 64
"""Rows of a result that a thread computes at a time, at least: a product of fewer reads the other matrix too often."""
_PARTS_PER_THREAD = 2
"""So that a thread that is held up, since other processes use the processors too, holds up less."""


def _row_parts(rows: int, products: int) -> list[slice]:
    """The rows of a result that threads take at a time; all at once where that is little work, or for one thread."""
    number = min(rows // _LEAST_ROWS, products // threads.LEAST_PRODUCTS, _PARTS_PER_THREAD * threads.count())
    number = number if threads.count() > 1 else 1
    return threads.parts_of(rows, max(number, 1))


def _is_large(*products: int) -> bool:
    return sum(products) >= 2 * threads.LEAST_PRODUCTS


@kernel(ops.linear, keys.CPU)
def linear(xp, input, weight, bias, *, out):
    if not (is_fast(input) and is_fast(out) and weight.ndim == 2 and _is_large(out.size * weight.shape[1])):
        generic.linear(xp, input, weight, bias, out=out)
        return
    rows, result, columns = input.reshape(-1, weight.shape[1]), out.reshape(-1, weight.shape[0]), weight.T
    parts = _row_parts(len(rows), out.size * weight.shape[1])

    def run(part: int) -> None:
        block = result[parts[part]]
        np.matmul(rows[parts[part]], columns, out=block)
        if bias is not None:
            np.add(block, bias, out=block)

    threads.run(run, len(parts))


@kernel(ops._linear_backward, keys.CPU)
def linear_backward(xp, grad_out, input, weight, bias, *, out):
    width = grad_out.shape[-1]
    products = [grad_out.size * operand.shape[-1] for operand in (weight, input) if operand is not None]
    if not (is_fast(grad_out) and (input is None or is_fast(input)) and _is_large(*products)):
        generic._linear_backward(xp, grad_out, input, weight, bias, out=out)
        return
    grad = grad_out.reshape(math.prod(grad_out.shape[:-1]), width)
    results, tasks = iter(out), []
    if weight is not None:
        tasks += _product(grad, weight, next(results).reshape(len(grad), weight.shape[1]))
    if input is not None:
        tasks += _product(grad.T, input.reshape(len(grad), input.shape[-1]), next(results))
    if bias:
        target = next(results)
        tasks.append(lambda: column_sums(grad, target))
    threads.run(lambda number: tasks[number](), len(tasks))


def _product(left: Array, right: Array, out: Array) -> list[Callable[[], Any]]:
    """The parts of a product of matrices, each of which writes some rows of the result."""
    parts = _row_parts(len(left), out.size * left.shape[1])
    return [lambda rows=rows: np.matmul(left[rows], right, out=out[rows]) for rows in parts]  # type: ignore[misc]
