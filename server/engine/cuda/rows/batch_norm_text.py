"""The CUDA text of batch normalization: sums by channel, statistics from these, and the elements."""

from __future__ import annotations

BATCH_NORM = r"""
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

// A thread moves the running statistics of one channel; those that are not kept are null.
template <class S, class R, class T> __device__ __forceinline__ void update_running(
    R* running_mean, R* running_var, const T* mean, const T* var, S keep, S momentum, S factor, i64 channels
) {
    i64 channel = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    if (running_mean)
        running_mean[channel] = cast<R>(keep * (S)widen(running_mean[channel]) + momentum * (S)widen(mean[channel]));
    if (running_var)
        running_var[channel] = cast<R>(keep * (S)widen(running_var[channel]) + factor * (S)widen(var[channel]));
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
