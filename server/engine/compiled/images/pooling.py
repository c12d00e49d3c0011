"""Maxima of windows over images, their indices, and the gradients that go back to them.

Windows of a line are computed side by side, one tap of the kernel after the other. ``geometry`` is, of lines and then
of columns: the kernel's size, stride, padding and dilation. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arithmetic import EXACT, compiled, f32, i32, inlined

Array = Any
_IMAGES, _INDICES = "float32[:,:,::1]", "int64[:,:,::1]"


@inlined
def _improve(best: Array, places: Array, line: Array, stride: int, first: int) -> None:
    """Replace maxima by elements that are larger or NaN, the first of which has the index ``first``."""
    for i in range(best.size):
        number = line[stride * i]
        is_better = not number <= best[i]  # a NaN that was found before stays, except where another one follows
        is_better = is_better & ((best[i] == best[i]) | (number != number))
        best[i] = number if is_better else best[i]
        places[i] = i32(first + stride * i) if is_better else places[i]


@inlined
def _first_inside(start: int, dilation: int) -> int:
    """The first place of a window that begins at ``start`` and is not before the image."""
    return start if start >= 0 else start + -(start // dilation) * dilation


@compiled(_IMAGES, "int64[::1]", _IMAGES, _INDICES, flags=EXACT)
def max_pool(images: Array, geometry: Array, out: Array, indices: Array) -> None:
    """Write the largest element of every window, and its row-major index in its image.

    It is the first of those that are equal, or the last NaN, and the first of a window whose elements are all -inf.
    """
    kernel_y, stride_y, pad_y, dilation_y, kernel_x, stride_x, pad_x, dilation_x = geometry
    height, width, count = images.shape[1], images.shape[2], out.shape[2]
    places, firsts = np.empty(count, np.int32), np.empty(count, np.int32)
    for x in range(count):
        firsts[x] = i32(_first_inside(x * stride_x - pad_x, dilation_x))
    for n in range(images.shape[0]):
        for y in range(out.shape[1]):
            best, top = out[n, y], y * stride_y - pad_y
            first_line = i32(_first_inside(top, dilation_y) * width)
            for x in range(count):
                best[x] = f32(-np.inf)
                places[x] = first_line + firsts[x]
            for j in range(kernel_y):
                line_number = top + j * dilation_y
                if 0 <= line_number < height:
                    line = images[n, line_number]
                    for k in range(kernel_x):
                        shift = k * dilation_x - pad_x
                        begin = max(0, -(shift // stride_x))
                        end = max(begin, min(count, (width - 1 - shift) // stride_x + 1))
                        place = shift + begin * stride_x
                        some, theirs, elements = best[begin:end], places[begin:end], line[place:]
                        if stride_x == 1:
                            _improve(some, theirs, elements, 1, line_number * width + place)
                        elif stride_x == 2:
                            _improve(some, theirs, elements, 2, line_number * width + place)
                        else:
                            _improve(some, theirs, elements, stride_x, line_number * width + place)
            for x in range(count):
                indices[n, y, x] = places[x]


@compiled("float32[:,::1]", "int64[:,::1]", "float32[:,::1]", flags=EXACT)
def max_pool_backward(grad: Array, indices: Array, out: Array) -> None:
    """Write zeros, to which gradients are added at their indices; others than those of elements are left out."""
    for n in range(grad.shape[0]):
        target, gradients, places = out[n], grad[n], indices[n]
        for i in range(target.size):
            target[i] = f32(0.0)
        for i in range(gradients.size):
            place = places[i]
            if 0 <= place < target.size:
                target[place] += gradients[i]
