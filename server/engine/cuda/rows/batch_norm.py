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
_BLOCKS_OF_ELEMENTS = 4224
"""The most blocks that have pixels: each of its threads has several, whose channels it looks up once."""

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

// Pixels (channels-last tensors): a block has TX * VEC channels, and rows of TX threads over slice blockIdx.y of them.
template <bool BACK, class T, class G, class S, int VEC, int TX>
__device__ __forceinline__ void sum_pixels(
    S* partial, const T* in, const G* grad, const S* mean, const S* rstd, i64 pixels, i64 channels
) {
    constexpr int ROWS = 256 / TX, COLUMNS = TX * VEC;
    __shared__ S sums[2][ROWS][COLUMNS];
    i64 first = ((i64)blockIdx.x * TX + threadIdx.x) * VEC;
    S a[VEC] = {}, b[VEC] = {}, centre[VEC], scale[VEC];
    if (first < channels) {
        #pragma unroll
        for (int j = 0; j < VEC; ++j) {
            centre[j] = BACK ? mean[first + j] : (S)widen(in[first + j]);
            scale[j] = BACK ? rstd[first + j] : (S)0;
        }
        #pragma unroll 4
        for (i64 row = (i64)blockIdx.y * ROWS + threadIdx.y; row < pixels; row += (i64)gridDim.y * ROWS) {
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
    for (int k = threadIdx.y * TX + threadIdx.x; k < 2 * COLUMNS; k += 256) {
        int half = k / COLUMNS, column = k % COLUMNS;
        i64 channel = (i64)blockIdx.x * COLUMNS + column;
        if (channel >= channels) continue;
        S sum = 0;
        for (int y = 0; y < ROWS; ++y) sum += sums[half][y][column];
        partial[((i64)half * gridDim.y + blockIdx.y) * channels + channel] = sum;
    }
}

// A block of 32 by 32 threads adds up the partial sums of all slices for 32 channels; the first row has the result.
template <class S>
__device__ __forceinline__ bool sum_partials(S& a, S& b, const S* partial, int slices, i64 channels, i64 channel) {
    __shared__ S sums[2][32][33];
    a = b = 0;
    if (channel < channels) {
        #pragma unroll 4
        for (int slice = threadIdx.y; slice < slices; slice += 32) {
            a += partial[slice * channels + channel];
            b += partial[((i64)slices + slice) * channels + channel];
        }
    }
    sums[0][threadIdx.y][threadIdx.x] = a;
    sums[1][threadIdx.y][threadIdx.x] = b;
    __syncthreads();
    if (threadIdx.y || channel >= channels) return false;
    for (int y = 1; y < 32; ++y) {
        a += sums[0][y][threadIdx.x];
        b += sums[1][y][threadIdx.x];
    }
    return true;
}
template <class T, class S> __device__ __forceinline__ void statistics(
    S* mean, S* var, S* rstd, const S* partial, const T* in, int slices, i64 channels, i64 inner, S count, S eps
) {
    i64 channel = (i64)blockIdx.x * 32 + threadIdx.x;
    S a, b;
    if (!sum_partials(a, b, partial, slices, channels, channel)) return;
    S delta = a / count, variance = b / count - delta * delta;
    variance = variance < 0 ? (S)0 : variance;
    mean[channel] = (S)widen(in[channel * inner]) + delta;
    var[channel] = variance;
    rstd[channel] = row_rsqrt(variance + eps);
}
template <class W, class S> __device__ __forceinline__ void parameters(
    W* dw, W* db, S* sums, const S* partial, int slices, i64 channels
) {
    i64 channel = (i64)blockIdx.x * 32 + threadIdx.x;
    S a, b;
    if (!sum_partials(a, b, partial, slices, channels, channel)) return;
    sums[channel] = a;
    sums[channels + channel] = b;
    db[channel] = cast<W>(a);
    dw[channel] = cast<W>(b);
}

// The elements. Planes: a thread has VEC elements of one channel.
template <class S, class W, class B> struct channel_of {
    S mean, rstd, weight, bias;
    __device__ __forceinline__ void load(const S* means, const S* rstds, const W* weights, const B* biases, i64 c) {
        mean = means[c];
        rstd = rstds[c];
        weight = weights ? (S)widen(weights[c]) : (S)1;
        bias = biases ? (S)widen(biases[c]) : (S)0;
    }
    __device__ __forceinline__ S operator()(S x) const { return (x - mean) * rstd * weight + bias; }
};
template <class T, class W, class B, class S, int VEC>
__device__ __forceinline__ void normalize_planes(
    T* out, const T* in, const S* mean, const S* rstd, const W* weight, const B* bias, i64 vectors, i64 channels,
    i64 inner
) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    vec<T, VEC> x = read<VEC>(in + i * VEC), result;
    channel_of<S, W, B> normal;
    normal.load(mean, rstd, weight, bias, i / (inner / VEC) % channels);
    #pragma unroll
    for (int j = 0; j < VEC; ++j) result.at[j] = cast<T>(normal((S)widen(x.at[j])));
    write<VEC>(out + i * VEC, result);
}

// Pixels: a thread has VEC neighbouring channels of every so many pixels.
template <class T, class W, class B, class S, int VEC, int TX>
__device__ __forceinline__ void normalize_pixels(
    T* out, const T* in, const S* mean, const S* rstd, const W* weight, const B* bias, i64 pixels, i64 channels
) {
    constexpr int ROWS = 256 / TX;
    i64 first = ((i64)blockIdx.x * TX + threadIdx.x) * VEC;
    if (first >= channels) return;
    channel_of<S, W, B> normal[VEC];
    #pragma unroll
    for (int j = 0; j < VEC; ++j) normal[j].load(mean, rstd, weight, bias, first + j);
    #pragma unroll 4
    for (i64 row = (i64)blockIdx.y * ROWS + threadIdx.y; row < pixels; row += (i64)gridDim.y * ROWS) {
        vec<T, VEC> x = read<VEC>(in + row * channels + first), result;
        #pragma unroll
        for (int j = 0; j < VEC; ++j) result.at[j] = cast<T>(normal[j]((S)widen(x.at[j])));
        write<VEC>(out + row * channels + first, result);
    }
}

template <class S, class W> struct gradient_of {
    S mean, rstd, scale, shift, slope;
    __device__ __forceinline__ void load(
        const S* means, const S* rstds, const W* weights, const S* sums, i64 channels, S count, i64 c
    ) {
        mean = means[c];
        rstd = rstds[c];
        scale = weights ? rstd * (S)widen(weights[c]) : rstd;
        shift = sums[c] / count;
        slope = sums[channels + c] / count;
    }
    __device__ __forceinline__ S operator()(S x, S g) const {
        return (g - shift - (x - mean) * rstd * slope) * scale;
    }
};
template <class T, class G, class W, class S, int VEC>
__device__ __forceinline__ void backward_planes(
    T* dx, const G* grad, const T* in, const S* mean, const S* rstd, const W* weight, const S* sums, S count,
    i64 vectors, i64 channels, i64 inner
) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    vec<T, VEC> x = read<VEC>(in + i * VEC), result;
    vec<G, VEC> g = read<VEC>(grad + i * VEC);
    gradient_of<S, W> gradient;
    gradient.load(mean, rstd, weight, sums, channels, count, i / (inner / VEC) % channels);
    #pragma unroll
    for (int j = 0; j < VEC; ++j) result.at[j] = cast<T>(gradient((S)widen(x.at[j]), (S)widen(g.at[j])));
    write<VEC>(dx + i * VEC, result);
}
template <class T, class G, class W, class S, int VEC, int TX>
__device__ __forceinline__ void backward_pixels(
    T* dx, const G* grad, const T* in, const S* mean, const S* rstd, const W* weight, const S* sums, S count,
    i64 pixels, i64 channels
) {
    constexpr int ROWS = 256 / TX;
    i64 first = ((i64)blockIdx.x * TX + threadIdx.x) * VEC;
    if (first >= channels) return;
    gradient_of<S, W> gradient[VEC];
    #pragma unroll
    for (int j = 0; j < VEC; ++j) gradient[j].load(mean, rstd, weight, sums, channels, count, first + j);
    #pragma unroll 2
    for (i64 row = (i64)blockIdx.y * ROWS + threadIdx.y; row < pixels; row += (i64)gridDim.y * ROWS) {
        vec<T, VEC> x = read<VEC>(in + row * channels + first), result;
        vec<G, VEC> g = read<VEC>(grad + row * channels + first);
        #pragma unroll
        for (int j = 0; j < VEC; ++j) result.at[j] = cast<T>(gradient[j]((S)widen(x.at[j]), (S)widen(g.at[j])));
        write<VEC>(dx + row * channels + first, result);
    }
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
        self.vectors = input.numel // self.width
        self.across = min(1 << (self.channels // self.width - 1).bit_length(), 32)
        """Threads of a block that have neighbouring channels of a pixel."""
        self.rows = _THREADS // self.across
        if self.planes:
            across, most = self.channels, -(-self.images * (self.inner // self.width) // _THREADS)
        else:
            across, most = -(-self.channels // (self.across * self.width)), -(-self.images // self.rows)
        self.most = max(min(most, _BLOCKS_OF_ELEMENTS // across, 65535), 1)
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
            call = f"sum_pixels<{kinds}, {self.across}>({passed}, pixels, channels)"
            kernel = _kernel(_THREADS, f"{declared}, i64 pixels, i64 channels", call)
            numbers, block = [self.images, self.channels], (self.across, self.rows)
        return kernel.prepare(self.grid, block, "PPPPP", [("i64", n) for n in numbers])

    def by_channel(self, parameters: str, call: str, varying: str, numbers: list[Any]) -> Any:
        """A launch with a block for 32 channels."""
        constants = [("int", self.slices), ("i64", self.channels), *numbers]
        kernel = _kernel(1024, f"{parameters}, int slices, i64 channels", call)
        return kernel.prepare(-(-self.channels // 32), (32, 32), varying, constants)

    def elements(self, name: str, kinds: str, parameters: str, passed: str, varying: str, numbers: list[Any]) -> Any:
        """A launch over all elements of the kernel of this name, for planes or for pixels."""
        if self.planes:
            call = f"{name}_planes<{kinds}, {self.width}>({passed}, vectors, channels, inner)"
            kernel = _kernel(_THREADS, f"{parameters}, i64 vectors, i64 channels, i64 inner", call)
            constants = [*numbers, ("i64", self.vectors), ("i64", self.channels), ("i64", self.inner)]
            return kernel.prepare(-(-self.vectors // _THREADS), _THREADS, varying, constants)
        call = f"{name}_pixels<{kinds}, {self.width}, {self.across}>({passed}, pixels, channels)"
        kernel = _kernel(_THREADS, f"{parameters}, i64 pixels, i64 channels", call)
        grid, block = (self.grid[0], self.most), (self.across, self.rows)
        return kernel.prepare(grid, block, varying, [*numbers, ("i64", self.images), ("i64", self.channels)])


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
    elements = plan.elements(
        "normalize", f"{name}, {w_type}, {b_type}, {wide}",
        f"{name}* out, const {name}* in, const {wide}* mean, const {wide}* rstd, const {w_type}* weight, "
        f"const {b_type}* bias", "out, in, mean, rstd, weight, bias", "PPPPPP", [],
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
    return _kernel(1024, parameters, call).prepare(-(-plan.channels // 32), (32, 32), "PPPPP", numbers)


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
    elements = plan.elements(
        "backward", f"{name}, {g_type}, {w_type}, {wide}",
        f"{name}* dx, const {g_type}* grad, const {name}* in, const {wide}* mean, const {wide}* rstd, "
        f"const {w_type}* weight, const {wide}* sums, {wide} count", "dx, grad, in, mean, rstd, weight, sums, count",
        "PPPPPPP", [(wide, plan.count)],
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
