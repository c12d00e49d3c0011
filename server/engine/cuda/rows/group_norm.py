"""Group normalization, forward and backward: a row is one group of a sample; parameters belong to channels."""

from __future__ import annotations

import math
from typing import Any

from server.engine import keys
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import normalization as ops

from .norm_text import MOMENTS
from .rowwise import ROWS, address, fits_grid, offset_of, row_major, streamed_threads, vector_width, widest

_THREADS = 256
"""Threads of a block of kernels over all elements."""
_PLANE = 128
"""Threads of a block that sums one channel of a sample."""

_TEXT = r"""
// One block per group of a sample: its mean and 1 / sqrt(variance + eps).
template <class T, class S, int N, int VEC>
__device__ __forceinline__ void moments(S* mean, S* rstd, const T* in, i64 length, S eps) {
    __shared__ S scratch[2][32];
    in += (i64)blockIdx.x * length;
    S centre, square;
    row_moments<N, VEC, false>(centre, square, in, length, scratch);
    if (threadIdx.x == 0) { mean[blockIdx.x] = centre; rstd[blockIdx.x] = row_rsqrt(square + eps); }
}

// A thread has VEC elements of one channel; a group has ``per_group`` channels.
template <class T, class W, class B, class S, int VEC>
__device__ __forceinline__ void normalize(
    T* out, const T* in, const S* mean, const S* rstd, const W* weight, const B* bias, i64 vectors, i64 channels,
    i64 inner, i64 per_group
) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    i64 plane = i / (inner / VEC), channel = plane % channels, row = plane / per_group;
    S centre = mean[row], scale = rstd[row], shift = bias ? (S)widen(bias[channel]) : (S)0;
    S gain = weight ? (S)widen(weight[channel]) : (S)1;
    vec<T, VEC> x = read<VEC>(in + i * VEC), result;
    #pragma unroll
    for (int j = 0; j < VEC; ++j) result.at[j] = cast<T>(((S)widen(x.at[j]) - centre) * scale * gain + shift);
    write<VEC>(out + i * VEC, result);
}

// One block per channel of a sample: the sums of gradients, and of gradients times standardized elements.
template <class T, class G, class S, int VEC>
__device__ __forceinline__ void sum_planes(
    S* sums, const G* grad, const T* in, const S* mean, const S* rstd, i64 planes, i64 inner, i64 per_group
) {
    __shared__ S scratch[2][32];
    i64 plane = blockIdx.x;
    S centre = mean[plane / per_group], scale = rstd[plane / per_group], a = 0, b = 0;
    #pragma unroll 4
    for (i64 k = (i64)threadIdx.x * VEC; k < inner; k += (i64)blockDim.x * VEC) {
        vec<T, VEC> x = read<VEC>(in + plane * inner + k);
        vec<G, VEC> g = read<VEC>(grad + plane * inner + k);
        #pragma unroll
        for (int j = 0; j < VEC; ++j) {
            S gradient = (S)widen(g.at[j]);
            a += gradient;
            b += gradient * (((S)widen(x.at[j]) - centre) * scale);
        }
    }
    a = row_reduce<Sum, 128>(a, scratch[0]);
    b = row_reduce<Sum, 128>(b, scratch[1]);
    if (threadIdx.x == 0) { sums[plane] = a; sums[planes + plane] = b; }
}

// One thread per group of a sample: the means of both sums, weighted by channel.
template <class W, class S>
__device__ __forceinline__ void by_group(
    S* means, const S* sums, const W* weight, i64 rows, i64 planes, i64 channels, i64 per_group, i64 length
) {
    i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    S a = 0, b = 0;
    for (i64 plane = row * per_group; plane < (row + 1) * per_group; ++plane) {
        S w = weight ? (S)widen(weight[plane % channels]) : (S)1;
        a += w * sums[plane];
        b += w * sums[planes + plane];
    }
    means[row] = a / length;
    means[rows + row] = b / length;
}

// One thread per channel: both sums over all samples, which are the gradients of bias and weight.
template <class P, class S>
__device__ __forceinline__ void by_channel(P* dw, P* db, const S* sums, i64 planes, i64 channels) {
    i64 channel = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    S a = 0, b = 0;
    #pragma unroll 4
    for (i64 plane = channel; plane < planes; plane += channels) { a += sums[plane]; b += sums[planes + plane]; }
    db[channel] = cast<P>(a);
    dw[channel] = cast<P>(b);
}

template <class T, class G, class W, class S, int VEC>
__device__ __forceinline__ void backward_elements(
    T* dx, const G* grad, const T* in, const S* mean, const S* rstd, const W* weight, const S* means, i64 vectors,
    i64 channels, i64 inner, i64 per_group, i64 rows
) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    i64 plane = i / (inner / VEC), row = plane / per_group;
    S centre = mean[row], scale = rstd[row], a = means[row], b = means[rows + row];
    S w = weight ? (S)widen(weight[plane % channels]) : (S)1;
    vec<T, VEC> x = read<VEC>(in + i * VEC), result;
    vec<G, VEC> g = read<VEC>(grad + i * VEC);
    #pragma unroll
    for (int j = 0; j < VEC; ++j) {
        S at = ((S)widen(x.at[j]) - centre) * scale;
        result.at[j] = cast<T>(((S)widen(g.at[j]) * w - a - at * b) * scale);
    }
    write<VEC>(dx + i * VEC, result);
}
"""


def _kernel(threads: int, parameters: str, call: str) -> Any:
    body = f'extern "C" __global__ void __launch_bounds__({threads}) run({parameters}) {{ {call}; }}\n'
    return load(assembled(PRELUDE, ROWS, MOMENTS, _TEXT, body), "run")


class _Groups:
    """The sizes of (N, C, ...) in groups, and the names of the C types."""

    def __init__(self, input: Meta, groups: int, out: Meta, *others: Meta) -> None:
        self.channels, self.inner = input.shape[1], math.prod(input.shape[2:])
        self.rows, self.planes = input.shape[0] * groups, input.shape[0] * self.channels
        self.per_group = self.channels // groups
        self.length = self.per_group * self.inner
        self.width = vector_width(self.inner, (input, out, *others))
        self.vectors = input.numel // self.width
        self.type, self.wide = CTYPES[input.dtype], "double" if input.dtype is dtypes.float64 else "float"

    @property
    def fits(self) -> bool:
        """Whether the grid is large enough."""
        return fits_grid(-(-self.vectors // _THREADS)) and fits_grid(self.planes)

    def accumulates_in(self, *statistics: Meta) -> bool:
        """Whether statistics have the accumulate type."""
        return all(CTYPES[meta.dtype] == self.wide for meta in statistics)


def _numbers(*numbers: int) -> list[Any]:
    return [("i64", number) for number in numbers]


@prepares(ops._group_norm, keys.CUDA, deferrable=True)
@row_major
def group_norm(request: Request) -> Launch | None:
    input, groups, weight, bias, eps = request.args
    plan = _Groups(input, groups, request.outs[0])
    if not input.numel or not plan.fits:
        return None
    wide, name = plan.wide, plan.type
    w_type, b_type = (name if meta is None else CTYPES[meta.dtype] for meta in (weight, bias))
    width = widest(input)
    block = streamed_threads(plan.length, width)
    moments = _kernel(
        block, f"{wide}* mean, {wide}* rstd, const {name}* in, i64 length, {wide} eps",
        f"moments<{name}, {wide}, {block}, {width}>(mean, rstd, in, length, eps)",
    ).prepare(plan.rows, block, "PPP", [*_numbers(plan.length), (wide, eps)])  # fmt: skip
    elements = _kernel(
        _THREADS,
        f"{name}* out, const {name}* in, const {wide}* mean, const {wide}* rstd, const {w_type}* weight, "
        f"const {b_type}* bias, i64 vectors, i64 channels, i64 inner, i64 per_group",
        f"normalize<{name}, {w_type}, {b_type}, {wide}, {plan.width}>"
        "(out, in, mean, rstd, weight, bias, vectors, channels, inner, per_group)",
    ).prepare(
        -(-plan.vectors // _THREADS), _THREADS, "PPPPPP",
        _numbers(plan.vectors, plan.channels, plan.inner, plan.per_group),
    )  # fmt: skip
    backend, (o, m, r) = request.backend, map(offset_of, request.outs)
    x, w, b = offset_of(input), offset_of(weight), offset_of(bias)

    def launch(args: Any, outs: Any) -> None:
        stream, data, mean, rstd = backend.stream, address(args[0], x), address(outs[1], m), address(outs[2], r)
        moments(stream, mean, rstd, data)
        elements(stream, address(outs[0], o), data, mean, rstd, address(args[2], w), address(args[3], b))

    return launch


@prepares(ops._group_norm_gradients, keys.CUDA, deferrable=True)
@row_major
def group_norm_gradients(request: Request) -> Launch | None:
    grad, input, mean, rstd, weight, groups = request.args
    plan = _Groups(input, groups, request.outs[0], grad)
    if not input.numel or not plan.fits or not plan.accumulates_in(mean, rstd):
        return None
    sums, by_group, by_channel, elements = _backward(plan, grad, weight, request.outs[1])
    backend, (o, dw, db) = request.backend, map(offset_of, request.outs)
    dtype = dtypes.float64 if plan.wide == "double" else dtypes.float32
    scratch = Meta.of((2 * (plan.planes + plan.rows),), dtype, backend.device)
    means_offset = 2 * plan.planes * dtype.itemsize
    g, x, m, r, w = (offset_of(meta) for meta in (grad, input, mean, rstd, weight))

    def launch(args: Any, outs: Any) -> None:
        stream, held, scale = backend.stream, backend.empty(scratch), address(args[4], w)
        operands = address(args[0], g), address(args[1], x), address(args[2], m), address(args[3], r)
        partial = address(held, 0)
        sums(stream, partial, *operands)
        by_group(stream, partial + means_offset, partial, scale)
        by_channel(stream, address(outs[1], dw), address(outs[2], db), partial)
        elements(stream, address(outs[0], o), *operands, scale, partial + means_offset)

    return launch


def _backward(plan: _Groups, grad: Meta, weight: Meta | None, parameter: Meta) -> tuple[Any, Any, Any, Any]:
    """The launches of the backward pass: sums of planes, means of groups, sums of channels, elements."""
    wide, name, g_type, p_type = plan.wide, plan.type, CTYPES[grad.dtype], CTYPES[parameter.dtype]
    w_type = name if weight is None else CTYPES[weight.dtype]
    operands = f"const {g_type}* grad, const {name}* in, const {wide}* mean, const {wide}* rstd"
    sums = _kernel(
        _PLANE, f"{wide}* sums, {operands}, i64 planes, i64 inner, i64 per_group",
        f"sum_planes<{name}, {g_type}, {wide}, {plan.width}>(sums, grad, in, mean, rstd, planes, inner, per_group)",
    ).prepare(plan.planes, _PLANE, "PPPPP", _numbers(plan.planes, plan.inner, plan.per_group))  # fmt: skip
    by_group = _kernel(
        128,
        f"{wide}* means, const {wide}* sums, const {w_type}* weight, i64 rows, i64 planes, i64 channels, "
        "i64 per_group, i64 length",
        f"by_group<{w_type}, {wide}>(means, sums, weight, rows, planes, channels, per_group, length)",
    ).prepare(
        -(-plan.rows // 128), 128, "PPP",
        _numbers(plan.rows, plan.planes, plan.channels, plan.per_group, plan.length),
    )  # fmt: skip
    by_channel = _kernel(
        128, f"{p_type}* dw, {p_type}* db, const {wide}* sums, i64 planes, i64 channels",
        f"by_channel<{p_type}, {wide}>(dw, db, sums, planes, channels)",
    ).prepare(-(-plan.channels // 128), 128, "PPP", _numbers(plan.planes, plan.channels))  # fmt: skip
    elements = _kernel(
        _THREADS,
        f"{name}* dx, {operands}, const {w_type}* weight, const {wide}* means, i64 vectors, i64 channels, i64 inner, "
        "i64 per_group, i64 rows",
        f"backward_elements<{name}, {g_type}, {w_type}, {wide}, {plan.width}>"
        "(dx, grad, in, mean, rstd, weight, means, vectors, channels, inner, per_group, rows)",
    ).prepare(
        -(-plan.vectors // _THREADS), _THREADS, "PPPPPPP",
        _numbers(plan.vectors, plan.channels, plan.inner, plan.per_group, plan.rows),
    )  # fmt: skip
    return sums, by_group, by_channel, elements
