"""Pooling, sliding and adaptive, forward and backward, on operands that lie in one memory format."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from server.engine import keys
from server.engine.cuda.reduce.layout import floor
from server.engine.cuda.runtime.geometry import LARGEST_NARROW, VECTOR_BYTES, divider
from server.engine.cuda.runtime.launch import load, pointer
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import FLOAT, DType
from telegrad_protocol.layout import Size
from telegrad_protocol.memory_format import channels_last, channels_last_3d, lies_in
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import pooling as ops

from .pooling_text import TEXT

_THREADS = 256
_WIDE_WINDOW = 8
_LANE_BYTES = 8
"""What a lane has of each row of a wide window."""


class _Slide(NamedTuple):
    """How windows slide; adaptive ones do not."""

    kernel: Size
    stride: Size
    padding: Size
    dilation: Size


def _geometry(size: Size, count: Size, slide: _Slide | None) -> bytes | None:
    """What ``geometry`` begins with: pictures of fewer than three dimensions have ones in front; None above 32 bits."""
    dims = len(size)
    rows = list(zip(size, count, *(slide or ((1,) * dims,) * 4), strict=True))
    padded = [(1, 1, 1, 1, 0, 1)] * (3 - dims) + rows
    if any(n > LARGEST_NARROW for row in padded for n in row):
        return None
    return b"".join([_dimension(row) for row in padded])


def _dimension(row: Sequence[int]) -> bytes:
    """The structure of that name."""
    dividers = [number for divisor in (row[0], row[1], row[3]) for number in divider(max(divisor, 1))]
    return struct.pack("=6i6I", *row, *dividers)


def _format_of(metas: Sequence[Meta], dims: int) -> bool | None:
    """Whether channels lie innermost in all of these, None where they do not lie alike or have gaps."""
    if all(m.is_contiguous for m in metas):
        return False
    formats = {4: channels_last, 5: channels_last_3d}
    if any(m.ndim != dims + 2 or m.ndim not in formats for m in metas):
        return None
    return True if all(lies_in(m.shape, m.strides, formats[m.ndim]) for m in metas) else None


def _width(metas: Sequence[Meta], last: bool) -> int:
    """Channels that a thread takes."""
    if not last:
        return 1
    width = VECTOR_BYTES // metas[0].dtype.itemsize
    while width > 1 and (metas[0].shape[1] % width or any(m.offset % width for m in metas)):
        width //= 2
    return width


def _lowest(dtype: DType) -> str:
    if dtype.category == FLOAT:
        return "-__longlong_as_double(0x7ff0000000000000ll)"
    return f"({np.iinfo(dtype.name).min + 1} - 1)" if dtype is not dtypes.uint8 else "0"


def _prepare(
    request: Request, body: str, operands: Sequence[Meta], threads_of: Meta, geometry: bytes | None, dims: int,
    template: str = "", extra: Sequence[tuple[str, int]] = (), window: int = 0,
) -> Launch | None:  # fmt: skip
    """The launch of a kernel with a thread per vector of ``threads_of``; ``template`` names further constants.

    ``window``: where it has several lanes per window, the length of one's rows.
    """
    metas = [*request.outs, *operands]
    last = _format_of(metas, dims)
    if geometry is None or last is None or not all(m.numel for m in metas):
        return None
    dtype = request.outs[0].dtype
    width = _width(metas, last)
    total = threads_of.numel // width
    reach = [(n + 1) * (m + 1) for n, m in zip(_sizes(operands[0], dims), _sizes(request.outs[0], dims), strict=True)]
    index = "u32" if max(*reach, *(m.numel for m in metas)) <= LARGEST_NARROW else "i64"
    lanes = _lanes(window, dtype.itemsize) if not last else 1
    constants_of = [CTYPES[dtype], str(width), str(last).lower(), template, str(lanes) if window else ""]
    arguments = ", ".join([constant for constant in constants_of if constant])
    text = _text(body, arguments, dtype, index, operands, request.outs, extra)
    grid = -(-total // (_THREADS // lanes))
    channels = operands[0].shape[-dims - 1]
    shared = struct.pack("=q2I", channels, *divider(channels // width))
    constants: list[Any] = [geometry + shared, ("unsigned" if index == "u32" else "i64", total), *extra]
    fire = load(text, "run").prepare(grid, _THREADS, "P" * len(metas), constants)
    backend, count = request.backend, len(operands)

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(backend.stream, *[pointer(value) for value in (*outs, *args[:count])])

    return launch


def _text(
    body: str, arguments: str, dtype: DType, index: str, operands: Sequence[Meta], outs: Sequence[Meta],
    extra: Sequence[tuple[str, int]],
) -> str:  # fmt: skip
    pointers = [f"{CTYPES[m.dtype]}* o{i}" for i, m in enumerate(outs)]
    pointers += [f"const {CTYPES[m.dtype]}* a{i}" for i, m in enumerate(operands)]
    names = [*(f"o{i}" for i in range(len(outs))), *(f"a{i}" for i in range(len(operands)))]
    numbers = [f"{kind} e{i}" for i, (kind, _) in enumerate(extra)]
    declared = ", ".join([*pointers, "geometry g", "INDEX total", *numbers])
    passed = ", ".join([*names, "g", "total", *(f"e{i}" for i in range(len(extra)))])
    head = f'extern "C" __global__ void __launch_bounds__({_THREADS}) run'
    named = f"#define THREADS {_THREADS}\n#define INDEX {index}\n#define LOWEST {_lowest(dtype)}\n"
    return f"{PRELUDE}{named}{TEXT}{head}({declared}) {{ {body}<{arguments}>({passed}); }}\n"


def _lanes(window: int, itemsize: int) -> int:
    """Lanes that share a window whose rows are so long."""
    return min(floor(window * itemsize // _LANE_BYTES), 32) if window >= _WIDE_WINDOW else 1


def _sizes(meta: Meta, dims: int) -> Size:
    return meta.shape[-dims:]


@prepares(ops._max_pool, keys.CUDA, deferrable=True)
def _prepare_max(request: Request) -> Launch | None:
    input, *numbers, _ = request.args
    dims, out = len(numbers[0]), request.outs[0]
    geometry = _geometry(_sizes(input, dims), _sizes(out, dims), _Slide(*numbers))
    return _prepare(request, "pool_max", [input], out, geometry, dims, "false")


@prepares(ops._max_pool_backward, keys.CUDA, deferrable=True)
def _prepare_max_backward(request: Request) -> Launch | None:
    grad, indices, size, *numbers = request.args
    geometry = _geometry(size, _sizes(grad, len(size)), _Slide(*numbers))
    return _prepare(request, "pool_max_backward", [grad, indices], request.outs[0], geometry, len(size))


@prepares(ops._adaptive_max_pool, keys.CUDA, deferrable=True)
def _prepare_adaptive_max(request: Request) -> Launch | None:
    input, count = request.args
    geometry = _geometry(_sizes(input, len(count)), count, None)
    return _prepare(request, "pool_max", [input], request.outs[0], geometry, len(count), "true")


def _divisor(includes: bool, override: int | None) -> list[tuple[str, int]]:
    return [("int", int(includes)), ("i64", override or 0)]


@prepares(ops._avg_pool, keys.CUDA, deferrable=True)
def _prepare_mean(request: Request) -> Launch | None:
    input, kernel, stride, padding, _, includes, override = request.args
    dims, out = len(kernel), request.outs[0]
    slide = _Slide(kernel, stride, padding, (1,) * dims)
    geometry = _geometry(_sizes(input, dims), _sizes(out, dims), slide)
    extra = _divisor(includes, override)
    return _prepare(request, "pool_mean", [input], out, geometry, dims, "false", extra, kernel[-1])


@prepares(ops._avg_pool_backward, keys.CUDA, deferrable=True)
def _prepare_mean_backward(request: Request) -> Launch | None:
    grad, size, kernel, stride, padding, _, includes, override = request.args
    slide = _Slide(kernel, stride, padding, (1,) * len(size))
    geometry = _geometry(size, _sizes(grad, len(size)), slide)
    extra = _divisor(includes, override)
    return _prepare(request, "pool_mean_backward", [grad], request.outs[0], geometry, len(size), "false", extra)


@prepares(ops._adaptive_avg_pool, keys.CUDA, deferrable=True)
def _prepare_adaptive_mean(request: Request) -> Launch | None:
    input, count = request.args
    geometry = _geometry(_sizes(input, len(count)), count, None)
    window = max(_sizes(input, 1)[0] // max(count[-1], 1), 1)
    extra = _divisor(False, None)
    return _prepare(request, "pool_mean", [input], request.outs[0], geometry, len(count), "true", extra, window)


@prepares(ops._adaptive_avg_pool_backward, keys.CUDA, deferrable=True)
def _prepare_adaptive_mean_backward(request: Request) -> Launch | None:
    grad, size = request.args
    geometry = _geometry(size, _sizes(grad, len(size)), None)
    extra = _divisor(False, None)
    return _prepare(request, "pool_mean_backward", [grad], request.outs[0], geometry, len(size), "true", extra)
