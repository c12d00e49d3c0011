"""Maxima of windows over images and signals in float32, by compiled loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.device import threads
from server.engine.ops.layers import pooling as generic
from server.engine.registry import kernel
from telegrad_protocol.ops.layers import pooling as ops

Array = Any
_COST = 8
"""How many multiply-adds take as long as it takes to compare an element."""


def _loops(dims: int, size: int, *arrays: Array) -> Any:
    """The compiled loops if they take these arrays, with planes of so many elements; else None."""
    are_rows = all([array.flags.c_contiguous and array.dtype in (np.float32, np.int64) for array in arrays])
    if not are_rows or dims > 2 or not 0 < size < 1 << 31 or arrays[0].size < compiled.LEAST:
        return None
    return compiled.kernels("images.pooling") if arrays[0].dtype.char == "f" else None


def _images(array: Array, dims: int) -> Array:
    """(planes, height, width), where a signal has one line."""
    sizes = (1, *array.shape[-dims:])[-2:]
    return array.reshape(math.prod(array.shape[:-dims]), *sizes)


@kernel(ops._max_pool, keys.CPU)
def max_pool(xp, input, kernel_size, stride, padding, dilation, ceil_mode, *, out):
    dims = len(kernel_size)
    loops = _loops(dims, math.prod(input.shape[-dims:]), input, *out)
    if loops is None:
        generic._max_pool(xp, input, kernel_size, stride, padding, dilation, ceil_mode, out=out)
        return
    axes = zip(kernel_size, stride, padding, dilation, strict=True)
    numbers = [(1, 1, 0, 1), *axes][-2:]
    images, output, indices = (_images(array, dims) for array in (input, *out))
    shares = threads.shares_of_products(len(images), _COST * output.size * math.prod(kernel_size))
    geometry = np.array(numbers, np.int64).reshape(-1)
    threads.run_loop(loops.max_pool, [(images[s], geometry, output[s], indices[s]) for s in shares])


@kernel(ops._max_pool_backward, keys.CPU)
def max_pool_backward(xp, grad_output, indices, input_size, kernel_size, stride, padding, dilation, *, out):
    dims = len(kernel_size)
    loops = _loops(dims, math.prod(input_size), out, grad_output, indices)
    if loops is None or not grad_output.size:
        arguments = (grad_output, indices, input_size, kernel_size, stride, padding, dilation)
        generic._max_pool_backward(xp, *arguments, out=out)
        return
    planes = math.prod(out.shape[:-dims])
    grads, places, result = (array.reshape(planes, -1) for array in (grad_output, indices, out))
    shares = threads.shares_of_products(planes, _COST * out.size)
    threads.run_loop(loops.max_pool_backward, [(grads[s], places[s], result[s]) for s in shares])
