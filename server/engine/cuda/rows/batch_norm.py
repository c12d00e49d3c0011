"""Batch normalization with the batch's own statistics, forward and backward, for row-major and channels-last tensors.

It takes three launches: partial sums per channel, the statistics from these in a fixed order, and the elements.
Variances are computed around a channel's first element, so that a large mean does not cancel digits.
"""

from __future__ import annotations

import math
from typing import Any

from server.engine import functional as F
from server.engine import keys
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.memory_format import channels_last_strides
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import normalization as ops

from .rowwise import ROWS, address, dense, fits_grid, offset_of, vector_width

_THREADS = 256
_BLOCKS = 1056
"""The most blocks that share the elements: eight per multiprocessor of a device with 132."""

_TEXT = r"""
// Accumulate an element into the two sums of its channel: forward, its difference from ``centre`` and the square of
// that; backward, its gradient and the gradient times the standardized element.
template <bool BACK, class S> __device__ __forceinline__ void accumulate(S& a, S& b, S x, S g, S centre, S scale) {
    if (BACK) { a += g; b += g * ((x - centre) * scale); }
    else { S delta = x - centre; a += delta; b += delta * delta; }
}

// Planes (row-major tensors): blockIdx.x is a channel, blockIdx.y one of the slices of its elements.
template <bool BACK, class T, class G, class S, int VEC>
__device__ __forceinline__ void sum_planes(
    S* partial, const T* in, const G* grad, const S* mean, const S* rstd, i64 images, i64 channels, i64 inner
) {
    __shared__ S scratch[2][32];
    i64 channel = blockIdx.x, vectors = inner / VEC, total = images * vectors;
    S centre = BACK ? mean[channel] : (S)widen(in[channel * inner]), scale = BACK ? rstd[channel] : (S)0, a = 0, b = 0;
    #pragma unroll 4
    for (i64 i = (i64)blockIdx.y * blockDim.x + threadIdx.x; i < total; i += (i64)gridDim.y * blockDim.x) {
        i64 at = (i / vectors * channels + channel) * inner + i % vectors * VEC;
        vec<T, VEC> x = read<VEC>(in + at);
        vec<G, VEC> g;
        if (BACK) g = read<VEC>(grad + at);
        #pragma unroll
        for (int j = 0; j < VEC; ++j)
            accumulate<BACK, S>(a, b, (S)widen(x.at[j]), BACK ? (S)widen(g.at[j]) : (S)0, centre, scale);
    }
    a = row_reduce<Sum, 256>(a, scratch[0]);
    b = row_reduce<Sum, 256>(b, scratch[1]);
    if (threadIdx.x) return;
    partial[blockIdx.y * channels + channel] = a;
    partial[((i64)gridDim.y + blockIdx.y) * channels + channel] = b;
}

// Pixels (channels-last tensors): a block has 32 * VEC channels, and 8 rows of threads over slice blockIdx.y of pixels.
template <bool BACK, class T, class G, class S, int VEC>
__device__ __forceinline__ void sum_pixels(
    S* partial, const T* in, const G* grad, const S* mean, const S* rstd, i64 pixels, i64 channels
) {
    __shared__ S sums[2][8][32 * VEC];
    i64 first = ((i64)blockIdx.x * 32 + threadIdx.x) * VEC;
    S a[VEC] = {}, b[VEC] = {}, centre[VEC], scale[VEC];
    if (first < channels) {
        #pragma unroll
        for (int j = 0; j < VEC; ++j) {
            centre[j] = BACK ? mean[first + j] : (S)widen(in[first + j]);
            scale[j] = BACK ? rstd[first + j] : (S)0;
        }
        #pragma unroll 4
        for (i64 row = (i64)blockIdx.y * 8 + threadIdx.y; row < pixels; row += (i64)gridDim.y * 8) {
            vec<T, VEC> x = read<VEC>(in + row * channels + first);
            vec<G, VEC> g;
            if (BACK) g = read<VEC>(grad + row * channels + first);
            #pragma unroll
            for (int j = 0; j < VEC; ++j)
                accumulate<BACK, S>(
                    a[j], b[j], (S)widen(x.at[j]), BACK ? (S)widen(g.at[j]) : (S)0, centre[j], scale[j]);
        }
    }
    #pragma unroll
    for (int j = 0; j < VEC; ++j) {
        sums[0][threadIdx.y][threadIdx.x * VEC + j] = a[j];
        sums[1][threadIdx.y][threadIdx.x * VEC + j] = b[j];
    }
    __syncthreads();
    for (int k = threadIdx.y * 32 + threadIdx.x; k < 2 * 32 * VEC; k += 256) {
        int half = k / (32 * VEC), column = k % (32 * VEC);
        i64 channel = (i64)blockIdx.x * 32 * VEC + column;
        if (channel >= channels) continue;
        S sum = 0;
        for (int y = 0; y < 8; ++y) sum += sums[half][y][column];
        partial[((i64)half * gridDim.y + blockIdx.y) * channels + channel] = sum;
    }
}

// One thread per channel adds up the partial sums of all slices.
template <class S>
__device__ __forceinline__ void sum_partials(S& a, S& b, const S* partial, int slices, i64 channels, i64 channel) {
    a = b = 0;
    #pragma unroll 4
    for (int slice = 0; slice < slices; ++slice) {
        a += partial[slice * channels + channel];
        b += partial[((i64)slices + slice) * channels + channel];
    }
}
template <class T, class S> __device__ __forceinline__ void statistics(
    S* mean, S* var, S* rstd, const S* partial, const T* in, int slices, i64 channels, i64 inner, S count, S eps
) {
    i64 channel = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    S a, b;
    sum_partials(a, b, partial, slices, channels, channel);
    S delta = a / count, variance = b / count - delta * delta;
    variance = variance < 0 ? (S)0 : variance;
    mean[channel] = (S)widen(in[channel * inner]) + delta;
    var[channel] = variance;
    rstd[channel] = row_rsqrt(variance + eps);
}
template <class W, class S> __device__ __forceinline__ void parameters(
    W* dw, W* db, S* sums, const S* partial, int slices, i64 channels
) {
    i64 channel = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    S a, b;
    sum_partials(a, b, partial, slices, channels, channel);
    sums[channel] = a;
    sums[channels + channel] = b;
    db[channel] = cast<W>(a);
    dw[channel] = cast<W>(b);
}

// The elements: a thread has VEC elements of one channel (PLANES), or of VEC neighbouring channels.
template <bool PLANES, class T, class W, class B, class S, int VEC>
__device__ __forceinline__ void normalize(
    T* out, const T* in, const S* mean, const S* rstd, const W* weight, const B* bias, i64 vectors, i64 channels,
    i64 inner
) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    vec<T, VEC> x = read<VEC>(in + i * VEC), result;
    i64 channel = PLANES ? i / (inner / VEC) % channels : i * VEC % channels;
    #pragma unroll
    for (int j = 0; j < VEC; ++j) {
        i64 c = PLANES ? channel : channel + j;
        S y = ((S)widen(x.at[j]) - mean[c]) * rstd[c];
        if (weight) y *= (S)widen(weight[c]);
        if (bias) y += (S)widen(bias[c]);
        result.at[j] = cast<T>(y);
    }
    write<VEC>(out + i * VEC, result);
}
template <bool PLANES, class T, class G, class W, class S, int VEC>
__device__ __forceinline__ void backward_elements(
    T* dx, const G* grad, const T* in, const S* mean, const S* rstd, const W* weight, const S* sums, i64 vectors,
    i64 channels, i64 inner, S count
) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    vec<T, VEC> x = read<VEC>(in + i * VEC), result;
    vec<G, VEC> g = read<VEC>(grad + i * VEC);
    i64 channel = PLANES ? i / (inner / VEC) % channels : i * VEC % channels;
    #pragma unroll
    for (int j = 0; j < VEC; ++j) {
        i64 c = PLANES ? channel : channel + j;
        S scale = rstd[c], y = ((S)widen(x.at[j]) - mean[c]) * scale;
        S d = (S)widen(g.at[j]) - sums[c] / count - y * (sums[channels + c] / count);
        if (weight) scale *= (S)widen(weight[c]);
        result.at[j] = cast<T>(d * scale);
    }
    write<VEC>(dx + i * VEC, result);
}
"""


def _kernel(threads: int, parameters: str, call: str) -> Any:
    body = f'extern "C" __global__ void __launch_bounds__({threads}) run({parameters}) {{ {call}; }}\n'
    return load(f"{PRELUDE}{ROWS}{_TEXT}\n{body}", "run")


class _Channels:
    """The launch geometry of (N, C, ...): planes of one channel, or pixels with all channels."""

    def __init__(self, input: Meta, out: Meta, *others: Meta) -> None:
        self.channels, self.count = input.shape[1], input.numel // input.shape[1]
        self.inner = math.prod(input.shape[2:]) if out.is_contiguous else 1
        self.images = self.count // self.inner
        self.planes = self.inner > 1
        self.width = vector_width(self.inner if self.planes else self.channels, (input, out, *others))
        self.type, self.wide = CTYPES[input.dtype], "double" if input.dtype is dtypes.float64 else "float"
        self.flag = str(self.planes).lower()
        self.vectors = input.numel // self.width
        across = self.channels if self.planes else -(-self.channels // (32 * self.width))
        most = -(-self.images * (self.inner // self.width) // _THREADS) if self.planes else -(-self.images // 8)
        self.slices = max(min(_BLOCKS // across, most, 65535), 1)
        self.grid = (across, self.slices)

    @property
    def fits(self) -> bool:
        """Whether the grid is large enough for all elements."""
        return fits_grid(-(-self.vectors // _THREADS)) and fits_grid(self.channels)

    @property
    def scratch(self) -> dtypes.DType:
        """The dtype of the partial sums."""
        return dtypes.float64 if self.wide == "double" else dtypes.float32

    def sums(self, grad: str, back: bool) -> Any:
        """The launch over all elements that leaves partial sums by slice and channel."""
        kinds = f"{str(back).lower()}, {self.type}, {grad}, {self.wide}, {self.width}"
        declared = (
            f"{self.wide}* partial, const {self.type}* in, const {grad}* grad, const {self.wide}* mean, "
            f"const {self.wide}* rstd"
        )
        passed = "partial, in, grad, mean, rstd"
        if self.planes:
            call = f"sum_planes<{kinds}>({passed}, images, channels, inner)"
            kernel = _kernel(_THREADS, f"{declared}, i64 images, i64 channels, i64 inner", call)
            numbers, block = [self.images, self.channels, self.inner], (_THREADS, 1)
        else:
            call = f"sum_pixels<{kinds}>({passed}, pixels, channels)"
            kernel = _kernel(_THREADS, f"{declared}, i64 pixels, i64 channels", call)
            numbers, block = [self.images, self.channels], (32, 8)
        return kernel.prepare(self.grid, block, "PPPPP", [("i64", n) for n in numbers])

    def by_channel(self, parameters: str, call: str, varying: str, numbers: list[Any]) -> Any:
        """A launch with one thread per channel."""
        grid = -(-self.channels // 128)
        constants = [("int", self.slices), ("i64", self.channels), *numbers]
        return _kernel(128, f"{parameters}, int slices, i64 channels", call).prepare(grid, 128, varying, constants)

    def elements(self, parameters: str, call: str, varying: str, numbers: list[Any]) -> Any:
        """A launch with one thread per vector of elements."""
        constants = [("i64", self.vectors), ("i64", self.channels), ("i64", self.inner), *numbers]
        return _kernel(_THREADS, parameters, call).prepare(-(-self.vectors // _THREADS), _THREADS, varying, constants)


def _like_result(value: Value, out: Meta) -> Value:
    """The value, or a copy of it in the layout of the result."""
    if value.meta.strides == out.strides:
        return value
    copy: Value = dense(value) if out.is_contiguous else F._in_layout(value.alias(), out.strides)
    return copy


def _in_layout_of(meta: Meta, out: Meta) -> Meta:
    return meta if meta.strides == out.strides else meta.like(strides=out.strides)


def _is_supported(out: Meta) -> bool:
    return out.is_contiguous or (out.ndim in (4, 5) and out.strides == channels_last_strides(out.shape))


@prepares(ops._batch_norm, keys.CUDA, deferrable=True)
def batch_norm(request: Request) -> Launch | None:
    input, weight, bias, eps = request.args
    out = request.outs[0]
    given = _in_layout_of(input, out)
    plan = _Channels(given, out)
    if not _is_supported(out) or not plan.fits or any(m is not None and not m.is_contiguous for m in (weight, bias)):
        return None
    wide, name = plan.wide, plan.type
    w_type, b_type = (name if meta is None else CTYPES[meta.dtype] for meta in (weight, bias))
    sums = plan.sums(name, False)
    statistics = _statistics(plan, eps)
    call = f"normalize<{plan.flag}, {name}, {w_type}, {b_type}, {wide}, {plan.width}>"
    elements = plan.elements(
        f"{name}* out, const {name}* in, const {wide}* mean, const {wide}* rstd, const {w_type}* weight, "
        f"const {b_type}* bias, i64 vectors, i64 channels, i64 inner",
        f"{call}(out, in, mean, rstd, weight, bias, vectors, channels, inner)", "PPPPPP", [],
    )  # fmt: skip
    backend = request.backend
    scratch = Meta.of((2 * plan.slices * plan.channels,), plan.scratch, backend.device)
    x, w, b = offset_of(given), offset_of(weight), offset_of(bias)
    o, m, v, r = map(offset_of, request.outs)

    def launch(args: Any, outs: Any) -> None:
        stream, source, held = backend.stream, _like_result(args[0], out), backend.empty(scratch)
        partial, data, mean, rstd = address(held, 0), address(source, x), address(outs[1], m), address(outs[3], r)
        sums(stream, partial, data, 0, 0, 0)
        statistics(stream, mean, address(outs[2], v), rstd, partial, data)
        elements(stream, address(outs[0], o), data, mean, rstd, address(args[1], w), address(args[2], b))

    return launch


def _statistics(plan: _Channels, eps: float) -> Any:
    wide, name = plan.wide, plan.type
    call = f"statistics<{name}, {wide}>(mean, var, rstd, partial, in, slices, channels, inner, count, eps)"
    parameters = (
        f"{wide}* mean, {wide}* var, {wide}* rstd, const {wide}* partial, const {name}* in, int slices, i64 channels, "
        f"i64 inner, {wide} count, {wide} eps"
    )
    numbers = [("int", plan.slices), ("i64", plan.channels), ("i64", plan.inner), (wide, plan.count), (wide, eps)]
    return _kernel(128, parameters, call).prepare(-(-plan.channels // 128), 128, "PPPPP", numbers)


@prepares(ops._batch_norm_gradients, keys.CUDA, deferrable=True)
def batch_norm_gradients(request: Request) -> Launch | None:
    grad, input, mean, rstd, weight = request.args
    out = request.outs[0]
    if not input.numel or not _is_supported(out):
        return None
    given, given_grad = _in_layout_of(input, out), _in_layout_of(grad, out)
    plan = _Channels(given, out, given_grad)
    vectors = (mean, rstd, *([weight] if weight is not None else []))
    if (
        not plan.fits
        or any(not m.is_contiguous for m in vectors)
        or any(CTYPES[m.dtype] != plan.wide for m in (mean, rstd))
    ):
        return None
    wide, name, g_type = plan.wide, plan.type, CTYPES[grad.dtype]
    w_type, p_type = name if weight is None else CTYPES[weight.dtype], CTYPES[request.outs[1].dtype]
    sums = plan.sums(g_type, True)
    finish = plan.by_channel(
        f"{p_type}* dw, {p_type}* db, {wide}* sums, const {wide}* partial",
        f"parameters<{p_type}, {wide}>(dw, db, sums, partial, slices, channels)", "PPPP", [],
    )  # fmt: skip
    call = f"backward_elements<{plan.flag}, {name}, {g_type}, {w_type}, {wide}, {plan.width}>"
    elements = plan.elements(
        f"{name}* dx, const {g_type}* grad, const {name}* in, const {wide}* mean, const {wide}* rstd, "
        f"const {w_type}* weight, const {wide}* sums, i64 vectors, i64 channels, i64 inner, {wide} count",
        f"{call}(dx, grad, in, mean, rstd, weight, sums, vectors, channels, inner, count)", "PPPPPPP",
        [(wide, plan.count)],
    )  # fmt: skip
    backend = request.backend
    scratch = Meta.of((2 * (plan.slices + 1) * plan.channels,), plan.scratch, backend.device)
    totals_at = 2 * plan.slices * plan.channels * plan.scratch.itemsize
    g, x, m, r, w = (offset_of(meta) for meta in (given_grad, given, mean, rstd, weight))
    o, dw, db = map(offset_of, request.outs)

    def launch(args: Any, outs: Any) -> None:
        stream, held = backend.stream, backend.empty(scratch)
        source, grad_value = _like_result(args[1], out), _like_result(args[0], out)
        partial, data, gradient, mean_at, rstd_at = (
            address(held, 0), address(source, x), address(grad_value, g), address(args[2], m), address(args[3], r),
        )  # fmt: skip
        sums(stream, partial, data, gradient, mean_at, rstd_at)
        finish(stream, address(outs[1], dw), address(outs[2], db), partial + totals_at, partial)
        elements(
            stream, address(outs[0], o), gradient, data, mean_at, rstd_at, address(args[4], w), partial + totals_at
        )

    return launch
