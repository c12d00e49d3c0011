"""1x1 convolutions as matrix products, in half precision and channels-last.

Such an image is a matrix of pixels by channels in memory, so the product runs without a copy. Which of the two
libraries is faster was measured by hand on the layers of ResNet-50, both ways; what was chosen is in
`benchmarks/results/convolution-h200.json`. The rest is left to `cudnn_convolution`.
"""

from __future__ import annotations

import math
from typing import Any

from server.engine import context, keys
from server.engine.array_library.dtypes import HALVES
from server.engine.cuda.gemm.gemm import multiplication
from server.engine.cuda.gemm.layout import Matrices, matrices
from server.engine.cuda.gemm.product import Product
from server.engine.cuda.runtime import cudnn_graph
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.memory_format import channels_last_strides
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import convolution as ops

from . import cudnn as cudnn_convolution

_ = cudnn_convolution  # filed before, so that it is asked after
_FEW_PIXELS, _NARROWING = 4096, 4
"""Forward, and backward by input, cuDNN is faster for more pixels, and where channels do not become fewer."""


def _pixels(meta: Meta) -> Matrices | None:
    """A row per pixel, a column per channel; None where the tensor does not lie so."""
    if meta.ndim != 4 or not meta.numel or meta.dtype not in HALVES or not cudnn_graph.is_aligned(meta):
        return None
    count, channels = math.prod(meta.shape) // meta.shape[1], meta.shape[1]
    steps = zip(meta.shape, meta.strides, channels_last_strides(meta.shape), strict=True)
    if any(given != step for size, given, step in steps if size != 1):
        return None
    return matrices(Meta.of((count, channels), meta.dtype, meta.device, (channels, 1), meta.offset))


def _weight(meta: Meta) -> Matrices | None:
    """A row per channel that is made, a column per channel that is read."""
    made, read, *sizes = meta.shape
    lies = (made == 1 or meta.strides[0] == read) and (read == 1 or meta.strides[1] == 1)
    if sizes != [1, 1] or not lies or meta.dtype not in HALVES:
        return None
    return matrices(Meta.of((made, read), meta.dtype, meta.device, (read, 1), meta.offset))


def _is_plain(stride: Any, padding: Any, dilation: Any, groups: int) -> bool:
    spread = [ops.spread("convolution", "numbers", numbers, 2) for numbers in (stride, padding, dilation)]
    return groups == 1 and [tuple(numbers) for numbers in spread] == [(1, 1), (0, 0), (1, 1)]


def _multiplied(request: Request, left: Matrices | None, right: Matrices | None, out: Matrices | None) -> Launch | None:
    if left is None or right is None or out is None:
        return None
    if context.current.switches.tuner is not None:  # which tells products of matrices apart, not their callers
        return None
    return multiplication(request.backend, Product(left, right, out))


@prepares(ops.convolution, keys.CUDA, deferrable=True)
def _forward(request: Request) -> Launch | None:
    """(pixels, read) @ (made, read).T; backwards by input (pixels, made) @ (made, read)"""
    input, weight, bias, stride, padding, dilation, transposed, _, groups = request.args
    if bias is not None or input.ndim != 4 or not _is_plain(stride, padding, dilation, groups):
        return None
    made = _pixels(request.outs[0])
    factor = _weight(weight)
    if factor is None or made is None:
        return None
    factor = factor if transposed else factor.T
    if made.rows > _FEW_PIXELS or factor.rows < _NARROWING * factor.columns:
        return None
    return _multiplied(request, _pixels(input), factor, made)


@prepares(ops._convolution_weight_backward, keys.CUDA, deferrable=True)
def _by_weight(request: Request) -> Launch | None:
    """(pixels, made).T @ (pixels, read)"""
    grad, input, _, stride, padding, dilation, _, groups = request.args
    if input.ndim != 4 or not _is_plain(stride, padding, dilation, groups):
        return None
    by_pixel = _pixels(grad)
    return _multiplied(request, by_pixel and by_pixel.T, _pixels(input), _weight(request.outs[0]))
