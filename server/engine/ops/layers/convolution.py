"""Convolutions, transposed convolutions, their gradients, and ``unfold`` and ``fold``.

The generic kernels lower a convolution to matrix products (im2col), a cache-sized piece of the columns at a time.
Shapes in docstrings: n samples, c input channels, o output channels, k kernel positions, p output positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from server.engine import functional as F
from server.engine.device import cancellation, threads
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.ops.complex import conj
from server.engine.registry import composite, implements
from server.engine.value import Value
from telegrad_protocol.memory_format import is_channels_last
from telegrad_protocol.ops.layers import convolution as ops

from . import windows

_CONVOLUTION, _WEIGHT_BACKWARD = OPERATORS["convolution"], OPERATORS["_convolution_weight_backward"]
_HOST_PIECE = 1 << 17
"""Elements of the columns that are made at a time on the host: they stay in a core's second-level cache."""
_SUMS = 8
"""The sums of weight gradients that the host's threads make apart, whatever their number: at most so many weights."""
_DEVICE_PIECE = 1 << 26
"""Elements of the columns that are made at a time on a GPU, which bounds the temporary memory."""


def _zeros(sizes):
    return (0,) * len(sizes)


def _crop_to(value, shape):
    """The first ``shape`` elements: the gradient may have more positions than the result had."""
    for dim, size in enumerate(shape):
        if value.shape[dim] != size:
            value = F.narrow(value, dim, 0, size)
    return value


def _output_padding(size, grad_size, kernel, stride, padding, dilation):
    """The number of elements at the end of the input that no window reached: the output padding of the transpose."""
    rows = zip(size, grad_size, kernel, stride, padding, dilation, strict=True)
    return tuple(n - ((g - 1) * s - 2 * p + d * (k - 1) + 1) for n, g, k, s, p, d in rows)


def _convolution_backward(grad, weight, input_shape, stride, padding, dilation, groups):
    """The gradient of a convolution's input: (n,o,p) * (o,c,k) -> (n,c,stride * p + dilation * k - padding)"""
    dims = weight.ndim - 2
    numbers = [ops.spread("convolution", "", v, dims) for v in (stride, padding, dilation)]
    rest = _output_padding(input_shape[2:], grad.shape[2:], weight.shape[2:], *numbers)
    return dispatch(_CONVOLUTION, (grad, weight, None, *numbers, True, rest, groups))


def _convolution_to_shape(input, weight, shape, stride, padding, dilation, groups):
    """The convolution of the input, cropped to a known shape: the gradient of a transposed convolution's input."""
    numbers = (stride, padding, dilation, False, _zeros(weight.shape[2:]), groups)
    return _crop_to(dispatch(_CONVOLUTION, (input, weight, None, *numbers)), shape)


def _input_gradient(grad, input_meta, weight, stride, padding, dilation, transposed, groups):
    backward = _convolution_to_shape if transposed else _convolution_backward
    return backward(grad, conj(weight), input_meta.shape, stride, padding, dilation, groups)


def _weight_gradient(grad, input, weight_meta, stride, padding, dilation, transposed, groups):
    kernel = weight_meta.shape[2:]
    numbers = [ops.spread("convolution", "", v, len(kernel)) for v in (stride, padding, dilation)]
    rows, columns = (conj(input), grad) if transposed else (grad, conj(input))
    is_channels_last_weight = is_channels_last(weight_meta.shape, weight_meta.strides)
    return dispatch(_WEIGHT_BACKWARD, (rows, columns, kernel, *numbers, groups, is_channels_last_weight))


@implements(
    ops.convolution,
    input=_input_gradient,
    weight=_weight_gradient,
    bias=lambda grad: F.sum(grad, (0, *range(2, grad.ndim))),
)
def convolution(
    xp, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *, out
):  # fmt: skip
    numbers = [ops.spread("convolution", "", v, weight.ndim - 2) for v in (stride, padding, dilation)]
    if not out.size:
        return
    if not input.size or not weight.size:
        out[...] = 0
    elif transposed:
        _convolve_transposed(xp, input, weight, *numbers, groups, out)
    else:
        _convolve(xp, input, weight, *numbers, groups, out)
    if bias is not None:
        out += bias.reshape(-1, *(1,) * (out.ndim - 2))


@implements(
    ops._convolution_weight_backward,
    grad_output=lambda grad, grad_output_meta, input, stride, padding, dilation, groups: _convolution_to_shape(
        conj(input), grad, grad_output_meta.shape, stride, padding, dilation, groups
    ),
    input=lambda grad, grad_output, input_meta, stride, padding, dilation, groups: _convolution_backward(
        conj(grad_output), grad, input_meta.shape, stride, padding, dilation, groups
    ),
)
def _convolution_weight_backward(
    xp, grad_output, input, kernel_size, stride, padding, dilation, groups, channels_last, *, out
):  # fmt: skip
    if not grad_output.size or not input.size:
        out[...] = 0
        return
    padded, size, rows = _pad(xp, input, padding), grad_output.shape[2:], out.shape[0] // groups
    pieces = list(_pieces(xp, grad_output, padded.shape[1] * math.prod(kernel_size)))
    chunks = threads.parts_of(len(pieces), min(len(pieces), _SUMS)) if xp is np else [slice(None)]
    totals = xp.zeros((len(chunks), groups, rows, out.size // out.shape[0]), out.dtype)

    def add(chunk: int) -> None:
        for samples, lines in pieces[chunks[chunk]]:
            columns = _columns(xp, padded[samples], kernel_size, stride, dilation, size, lines, groups)
            part = grad_output[samples, :, lines].reshape(len(columns), groups, rows, -1)
            totals[chunk] += (part @ columns.swapaxes(-1, -2)).sum(axis=0)

    _for_each(xp, add, [(chunk,) for chunk in range(len(chunks))])
    out[...] = totals.sum(axis=0).reshape(out.shape)


def _pad(xp: Any, input: Any, padding: tuple[int, ...]) -> Any:
    return windows.pad(xp, input, padding, padding)


def _pieces(xp: Any, out: Any, length: int) -> Iterator[tuple[slice, slice]]:
    """Slices of samples and of the first spatial dimension of ``out`` whose columns of ``length`` fit into a piece."""
    limit = _HOST_PIECE if xp is np else _DEVICE_PIECE
    lines = out.shape[2]
    per_line = max(length * math.prod(out.shape[3:]), 1)
    step = max(min(limit // per_line, lines), 1)
    batch = max(limit // (per_line * lines), 1) if step == lines else 1
    for first in range(0, out.shape[0], batch):
        for start in range(0, lines, step):
            if cancellation.requested:
                cancellation.stop()
            yield slice(first, first + batch), slice(start, min(start + step, lines))


def _columns(
    xp: Any, padded: Any, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...],
    size: tuple[int, ...], lines: slice, groups: int,
) -> Any:  # fmt: skip
    """The windows of some lines of the output as matrices: (n, groups, c / groups * kernel, positions)."""
    every_window = windows.sliding_windows(xp, padded, kernel, stride, dilation, size)
    chosen = every_window[(slice(None),) * (2 + len(kernel)) + (lines,)]
    rows = padded.shape[1] // groups * math.prod(kernel)
    return chosen.reshape(len(padded), groups, rows, -1)


def _convolve(xp, input, weight, stride, padding, dilation, groups, out):
    """Convolve: (groups,o,ck) @ (n,groups,ck,p) -> (n,groups,o,p)"""
    padded, kernel, size = _pad(xp, input, padding), weight.shape[2:], out.shape[2:]
    matrices = weight.reshape(groups, weight.shape[0] // groups, -1)

    def convolve(samples: slice, lines: slice) -> None:
        columns = _columns(xp, padded[samples], kernel, stride, dilation, size, lines, groups)
        target = out[samples, :, lines]
        target[...] = xp.matmul(matrices, columns).reshape(target.shape)

    _for_each(xp, convolve, list(_pieces(xp, out, padded.shape[1] * math.prod(kernel))))


def _for_each(xp: Any, work: Callable[..., None], pieces: list[Any]) -> None:
    """Call ``work`` with every piece, on the host's threads if it is the host that computes."""
    if xp is np:
        threads.run(lambda number: work(*pieces[number]), len(pieces))
        return
    for piece in pieces:
        work(*piece)


def _transposed_weight(weight, groups):
    """The weight whose convolution with stride 1 is the transpose of that of ``weight``: (c,o,k) -> (o,c,-k)"""
    rows, columns, *kernel = weight.shape
    grouped = weight.reshape(groups, rows // groups, columns, *kernel).swapaxes(1, 2)
    flipped = grouped[(..., *(slice(None, None, -1) for _ in kernel))]
    return flipped.reshape(groups * columns, rows // groups, *kernel)


def _convolve_transposed(xp, input, weight, stride, padding, dilation, groups, out):
    """Convolve transposed: (groups,c,ok).T @ (n,groups,c,p) -> (n,groups,ok,p), summed up by ``_col2im``."""
    kernel, size = weight.shape[2:], input.shape[2:]
    transposed_padding = tuple(d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding, strict=True))
    spanned = windows.span(kernel, (1,) * len(kernel), dilation, size)
    is_exact = all(n == r - 2 * p for n, r, p in zip(out.shape[2:], spanned, padding, strict=True))
    if set(stride) == {1} and min(transposed_padding) >= 0 and is_exact:
        _convolve(xp, input, _transposed_weight(weight, groups), stride, transposed_padding, dilation, groups, out)
        return
    matrices = weight.reshape(groups, weight.shape[0] // groups, -1).swapaxes(-1, -2)

    def convolve(samples: slice, _: slice) -> None:
        part = input[samples]
        columns = xp.matmul(matrices, part.reshape(len(part), groups, part.shape[1] // groups, -1))
        columns = columns.reshape(len(part), out.shape[1], *kernel, *size)
        _col2im(xp, columns, kernel, stride, dilation, padding, out[samples])

    _for_each(xp, convolve, list(_pieces(xp, input[:, :, :1], out.shape[1] * math.prod(kernel) * size[0])))


def _col2im(xp, columns, kernel, stride, dilation, padding, out):
    """Sum columns (n, c, *kernel, *positions) up into the image, one position of the kernel at a time."""
    count = columns.shape[2 + len(kernel) :]
    padded = xp.zeros((*out.shape[:2], *(n + 2 * p for n, p in zip(out.shape[2:], padding, strict=True))), out.dtype)
    for position in windows.kernel_positions(kernel):
        target = windows.elements_at(padded, position, stride, dilation, count)
        target += columns[(slice(None), slice(None), *position)]
    out[...] = windows.crop(padded, padding, out.shape[2:])


def _batched(input: Value, dims: int) -> tuple[Value, bool]:
    """The input with a batch dimension, and whether it had one."""
    is_batched = input.ndim == dims + 2
    return (input if is_batched else F.unsqueeze(input, 0)), is_batched


def _dispatch_convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    dims = weight.ndim - 2
    batch, is_batched = _batched(input, dims)
    given = ("stride", stride), ("padding", padding), ("dilation", dilation), ("output padding", output_padding)
    stride, padding, dilation, rest = (ops.spread("convolution", what, numbers, dims) for what, numbers in given)
    output = dispatch(_CONVOLUTION, (batch, weight, bias, stride, padding, dilation, transposed, rest, groups))
    return output if is_batched else F.squeeze(output, 0)


def _convolve_named_padding(input, weight, bias, stride, padding, dilation, groups):
    dims = weight.ndim - 2
    stride, dilation = ops.spread("conv", "stride", stride, dims), ops.spread("conv", "dilation", dilation, dims)
    before, after = ops.same_padding("conv", padding, weight.shape[2:], stride, dilation)
    if before != after:
        rest = [amount for b, a in zip(before[::-1], after[::-1], strict=True) for amount in (0, a - b)]
        input = F.constant_pad_nd(input, tuple(rest), 0)
    return _dispatch_convolution(input, weight, bias, stride, before, dilation, False, (0,), groups)


def _convolve_forward(input, weight, bias, stride, padding, dilation, groups):
    return _dispatch_convolution(input, weight, bias, stride, padding, dilation, False, (0,), groups)


def _conv_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation):
    return _dispatch_convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


for _contract in (ops.conv1d, ops.conv2d, ops.conv3d):
    composite(_contract)(_convolve_forward)
for _contract in (ops.conv1d_padding, ops.conv2d_padding, ops.conv3d_padding):
    composite(_contract)(_convolve_named_padding)
for _contract in (ops.conv_transpose1d, ops.conv_transpose2d, ops.conv_transpose3d):
    composite(_contract)(_conv_transpose)


def _pairs(name: str, kernel_size, dilation, padding, stride):
    given = ("kernel_size", kernel_size), ("dilation", dilation), ("padding", padding), ("stride", stride)
    return [ops.spread(name, what, numbers, 2) for what, numbers in given]


def _output_size(size, kernel, dilation, padding, stride):
    rows = zip(size, kernel, dilation, padding, stride, strict=True)
    return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in rows)


@implements(
    ops.im2col,
    movement=True,
    input=lambda grad, input_meta, kernel_size, dilation, padding, stride: F.fold(
        grad, input_meta.shape[-2:], kernel_size, dilation, padding, stride
    ),
)
def im2col(xp, input, kernel_size, dilation, padding, stride, *, out):
    kernel, dilation, padding, stride = _pairs("unfold", kernel_size, dilation, padding, stride)
    batch = input.reshape(-1, *input.shape[-3:])
    size = _output_size(input.shape[-2:], kernel, dilation, padding, stride)
    columns = windows.sliding_windows(xp, _pad(xp, batch, padding), kernel, stride, dilation, size)
    out[...] = columns.reshape(out.shape)


@implements(
    ops.fold,
    input=lambda grad, kernel_size, dilation, padding, stride: F.im2col(grad, kernel_size, dilation, padding, stride),
)
def fold(xp, input, output_size, kernel_size, dilation, padding, stride, *, out):
    kernel, dilation, padding, stride = _pairs("fold", kernel_size, dilation, padding, stride)
    positions = _output_size(out.shape[-2:], kernel, dilation, padding, stride)
    batch = out.reshape(-1, *out.shape[-3:])
    columns = input.reshape(*batch.shape[:2], *kernel, *positions)
    _col2im(xp, columns, kernel, stride, dilation, padding, batch)
