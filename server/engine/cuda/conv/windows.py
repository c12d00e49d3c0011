"""Windows of pictures as columns, and columns added up again: ``unfold`` and ``fold``, a thread per element of each.

``fold`` gathers: each element looks for the windows that it is in, so that sums are in a fixed order.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

from server.engine import keys
from server.engine.cuda.runtime.geometry import LARGEST_NARROW, blocks
from server.engine.cuda.runtime.launch import load, pointer
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Backend, Launch
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import convolution as ops

_THREADS = 256


class Slide(NamedTuple):
    """How windows slide over the two dimensions of a picture."""

    kernel: Size
    dilation: Size
    padding: Size
    stride: Size

    @classmethod
    def of(cls, name: str, *numbers: Any) -> Slide:
        """The numbers of an operation's arguments, each one for both dimensions or two."""
        return cls(*[ops.spread(name, "numbers", value, 2) for value in numbers])


TEXT = r"""
// sizes of the picture, how many windows there are, and how they slide: two of each
struct sliding { int size[2], count[2], kernel[2], dilation[2], padding[2], stride[2]; };

template <class T> __device__ __forceinline__ void unfold(T* out, const T* in, const sliding& s, INDEX total) {
    INDEX own = (INDEX)blockIdx.x * THREADS + threadIdx.x;
    if (own >= total) return;
    INDEX i = own;
    int ox = (int)(i % s.count[1]); i /= s.count[1];
    int oy = (int)(i % s.count[0]); i /= s.count[0];
    int kx = (int)(i % s.kernel[1]); i /= s.kernel[1];
    int ky = (int)(i % s.kernel[0]); i /= s.kernel[0];
    int y = oy * s.stride[0] - s.padding[0] + ky * s.dilation[0];
    int x = ox * s.stride[1] - s.padding[1] + kx * s.dilation[1];
    T value = {};
    if (y >= 0 && y < s.size[0] && x >= 0 && x < s.size[1]) value = in[(i * s.size[0] + y) * s.size[1] + x];
    out[own] = value;
}

template <class T> __device__ __forceinline__ void fold(T* out, const T* in, const sliding& s, INDEX total) {
    INDEX own = (INDEX)blockIdx.x * THREADS + threadIdx.x;
    if (own >= total) return;
    INDEX i = own;
    int x = (int)(i % s.size[1]); i /= s.size[1];
    int y = (int)(i % s.size[0]); i /= s.size[0];
    compute_t<T> sum = {};
    for (int ky = 0; ky < s.kernel[0]; ++ky) {
        int top = y + s.padding[0] - ky * s.dilation[0], oy = top / s.stride[0];
        if (top < 0 || oy * s.stride[0] != top || oy >= s.count[0]) continue;
        for (int kx = 0; kx < s.kernel[1]; ++kx) {
            int left = x + s.padding[1] - kx * s.dilation[1], ox = left / s.stride[1];
            if (left < 0 || ox * s.stride[1] != left || ox >= s.count[1]) continue;
            INDEX row = (i * s.kernel[0] + ky) * s.kernel[1] + kx;
            sum += widen(in[(row * s.count[0] + oy) * s.count[1] + ox]);
        }
    }
    out[own] = cast<T>(sum);
}
"""


def unfolding(backend: Backend, picture: Meta, columns: Meta, slide: Slide) -> Launch | None:
    """The launch that copies the windows of pictures (n, c, h, w) into columns (n, c * kh * kw, positions)."""
    return _launch("unfold", backend, picture, columns, picture, slide)


def folding(backend: Backend, columns: Meta, picture: Meta, slide: Slide) -> Launch | None:
    """The launch that adds columns (n, c * kh * kw, positions) up to pictures (n, c, h, w); of real numbers alone."""
    if not picture.dtype.is_floating_point:
        return None
    return _launch("fold", backend, columns, picture, picture, slide)


def _launch(name: str, backend: Any, taken: Meta, made: Meta, picture: Meta, slide: Slide) -> Launch | None:
    size = tuple(picture.shape[-2:])
    count = windows_in(size, slide)
    columns = made if picture is taken else taken
    if columns.shape[-1] != math.prod(count):
        return None
    total = max(taken.numel, made.numel)
    reach = [
        (n + 1) * s + (k + 1) * d + p + m
        for n, k, d, p, s, m in zip(count, *slide, size, strict=True)
    ]  # fmt: skip
    if not (taken.is_contiguous and made.is_contiguous and total) or max(reach) > LARGEST_NARROW:
        return None
    kind, index = ("unsigned", "u32") if total <= LARGEST_NARROW else ("i64", "i64")
    sliding = struct.pack("=12i", *size, *count, *(n for numbers in slide for n in numbers))
    kernel = load(_text(name, CTYPES[made.dtype], index), "run")
    fire = kernel.prepare(blocks(made.numel, _THREADS), _THREADS, "PP", [sliding, (kind, made.numel)])

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(backend.stream, pointer(outs[0]), pointer(args[0]))

    return launch


def windows_in(size: Size, slide: Slide) -> Size:
    """Return how many windows there are in each dimension of a picture."""
    rows = zip(size, *slide, strict=True)
    return tuple([(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in rows])


def _text(name: str, ctype: str, index: str) -> str:
    head = f'extern "C" __global__ void __launch_bounds__({_THREADS}) run'
    named = f"#define THREADS {_THREADS}\n#define INDEX {index}"
    parameters = f"({ctype}* out, const {ctype}* in, sliding s, INDEX total)"
    return assembled(PRELUDE, named, TEXT, f"{head}{parameters} {{ {name}<{ctype}>(out, in, s, total); }}")


@prepares(ops.im2col, keys.CUDA, deferrable=True)
def _unfold(request: Request) -> Launch | None:
    picture, *numbers = request.args
    return unfolding(request.backend, picture, request.outs[0], Slide.of("unfold", *numbers))


@prepares(ops.fold, keys.CUDA, deferrable=True)
def _fold(request: Request) -> Launch | None:
    columns, _, *numbers = request.args
    return folding(request.backend, columns, request.outs[0], Slide.of("fold", *numbers))
