"""The CUDA text of pooling: one thread per element of the result, or per 16 bytes of them where channels lie innermost.

Where windows are wide, several lanes share a mean's. Divisors are known beforehand, so that divisions are products.

Backward passes gather: each element of the input's gradient looks for the windows that it is in, so that sums are in a
fixed order. ``ADAPT`` windows are equal parts, all others slide.
"""

from __future__ import annotations

TEXT = r"""
// one spatial dimension: sizes of input and result, and how windows slide
// INDEX holds every offset, and products of two sizes of one dimension
struct fast_divisor { u32 factor, shift; };
struct dimension { int in, out, kernel, stride, pad, dilation; fast_divisor by_in, by_out, by_stride; };
struct geometry { dimension d[3]; i64 channels; fast_divisor by_channels; };  // by the threads that share a position

__device__ __forceinline__ u32 divide(u32 n, u32, fast_divisor by) { return (__umulhi(n, by.factor) + n) >> by.shift; }
__device__ __forceinline__ i64 divide(i64 n, i64 divisor, fast_divisor) { return n / divisor; }

struct span { int begin, end, step; };

// The elements of the input in window o; for adaptive windows, those of part o
template <bool ADAPT> __device__ __forceinline__ span window_span(const dimension& d, int o) {
    if (ADAPT) {
        INDEX n = d.in, m = d.out;
        return {(int)divide((INDEX)o * n, m, d.by_out), (int)divide((INDEX)(o + 1) * n + m - 1, m, d.by_out), 1};
    }
    int begin = o * d.stride - d.pad, end = min(begin + (d.kernel - 1) * d.dilation + 1, d.in);
    if (begin < 0) begin += (-begin + d.dilation - 1) / d.dilation * d.dilation;
    return {begin, end, d.dilation};
}

// The windows that may contain element i
template <bool ADAPT> __device__ __forceinline__ span windows_of(const dimension& d, int i) {
    if (ADAPT) {
        INDEX n = d.in, m = d.out;
        return {(int)divide((INDEX)i * m, n, d.by_in), (int)divide((INDEX)(i + 1) * m + n - 1, n, d.by_in), 1};
    }
    u32 far = (d.kernel - 1) * d.dilation + 1, at = i + d.pad, stride = d.stride;
    int begin = at < far ? 0 : (int)divide(at - far, stride, d.by_stride) + 1;
    return {begin, min((int)divide(at, stride, d.by_stride) + 1, d.out), 1};
}

// The number of elements by which the mean of window o is divided
template <bool ADAPT> __device__ __forceinline__ int window_size(const dimension& d, int o, bool padding) {
    if (ADAPT) { span s = window_span<true>(d, o); return s.end - s.begin; }
    int begin = o * d.stride - d.pad, end = min(begin + d.kernel, d.in + d.pad);
    return padding ? end - begin : min(end, d.in) - max(begin, 0);
}

// The location of a thread's elements: plane (of one channel, or of all with the first of the channels) and position
struct location { INDEX plane, channel; int z, y, x; };

// divides i and returns what is left divide
__device__ __forceinline__ int split_index(INDEX& i, INDEX size, fast_divisor by) {
    INDEX whole = divide(i, size, by), rest = i - whole * size;
    i = whole;
    return (int)rest;
}
template <bool LAST, int VEC> __device__ __forceinline__ location locate(
    INDEX i, const geometry& g, int z, int y, int x, fast_divisor by_z, fast_divisor by_y, fast_divisor by_x
) {
    location p;
    p.channel = LAST ? (INDEX)split_index(i, (INDEX)g.channels / VEC, g.by_channels) * VEC : 0;
    p.x = split_index(i, x, by_x); p.y = split_index(i, y, by_y); p.z = split_index(i, z, by_z);
    p.plane = i;
    return p;
}

// element (z, y, x) of a picture of y by x lines
template <bool LAST>
__device__ __forceinline__ INDEX offset(const location& p, const geometry& g, INDEX size, INDEX position) {
    return LAST ? (p.plane * size + position) * (INDEX)g.channels + p.channel : p.plane * size + position;
}

// The beginning of every kernel: the location of the elements of a thread, or of G threads, on one side (in or out)
#define ENTER(side, G) \
    INDEX i = (INDEX)blockIdx.x * (THREADS / G) + threadIdx.x / G; \
    if (i >= total) return; \
    typedef compute_t<T> A; \
    const dimension &dz = g.d[0], &dy = g.d[1], &dx = g.d[2]; \
    location p = locate<LAST, VEC>(i, g, dz.side, dy.side, dx.side, dz.by_##side, dy.by_##side, dx.by_##side)
// elements of a picture of one side, and the number of one of them
#define COUNT(side) ((INDEX)dz.side * dy.side * dx.side)
#define AT(side, z, y, x) (((INDEX)(z) * dy.side + (y)) * dx.side + (x))

template <class T> struct lowest { static __device__ __forceinline__ T of() { return (T)(LOWEST); } };

template <class T, int VEC, bool LAST, bool ADAPT>
__device__ __forceinline__ void pool_max(T* out, i64* where, const T* in, const geometry& g, INDEX total) {
    ENTER(out, 1);
    span sz = window_span<ADAPT>(dz, p.z), sy = window_span<ADAPT>(dy, p.y), sx = window_span<ADAPT>(dx, p.x);
    INDEX size = COUNT(in);
    A maximum[VEC];
    INDEX at[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        maximum[j] = lowest<A>::of();
        at[j] = AT(in, sz.begin, sy.begin, sx.begin);
    }
    for (int z = sz.begin; z < sz.end; z += sz.step)
        for (int y = sy.begin; y < sy.end; y += sy.step)
            for (int x = sx.begin; x < sx.end; x += sx.step) {
                INDEX position = AT(in, z, y, x);
                vec<T, VEC> v = *(const vec<T, VEC>*)(in + offset<LAST>(p, g, size, position));
#pragma unroll
                for (int j = 0; j < VEC; ++j) {
                    A a = widen(v.at[j]);
                    if (a > maximum[j] || a != a) { maximum[j] = a; at[j] = position; }
                }
            }
    INDEX count = COUNT(out);
    INDEX to = offset<LAST>(p, g, count, AT(out, p.z, p.y, p.x));
    vec<T, VEC> result;
#pragma unroll
    for (int j = 0; j < VEC; ++j) { result.at[j] = cast<T>(maximum[j]); where[to + j] = at[j]; }
    *(vec<T, VEC>*)(out + to) = result;
}

template <class T, int VEC, bool LAST>
__device__ __forceinline__ void pool_max_backward(
    T* out, const T* grad, const i64* where, const geometry& g, INDEX total
) {
    ENTER(in, 1);
    span sz = windows_of<false>(dz, p.z), sy = windows_of<false>(dy, p.y), sx = windows_of<false>(dx, p.x);
    INDEX own = AT(in, p.z, p.y, p.x), count = COUNT(out);
    A sum[VEC] = {};
    for (int z = sz.begin; z < sz.end; ++z)
        for (int y = sy.begin; y < sy.end; ++y)
            for (int x = sx.begin; x < sx.end; ++x) {
                INDEX from = offset<LAST>(p, g, count, AT(out, z, y, x));
                vec<T, VEC> v = *(const vec<T, VEC>*)(grad + from);
#pragma unroll
                for (int j = 0; j < VEC; ++j) if ((INDEX)where[from + j] == own) sum[j] += widen(v.at[j]);
            }
    vec<T, VEC> result;
#pragma unroll
    for (int j = 0; j < VEC; ++j) result.at[j] = cast<T>(sum[j]);
    *(vec<T, VEC>*)(out + offset<LAST>(p, g, COUNT(in), own)) = result;
}

// G lanes share a window
template <class T, int VEC, bool LAST, bool ADAPT, int G>
__device__ __forceinline__ void pool_mean(
    T* out, const T* in, const geometry& g, INDEX total, int padding, i64 divisor
) {
    ENTER(out, G);
    int lane = threadIdx.x % G;
    span sz = window_span<ADAPT>(dz, p.z), sy = window_span<ADAPT>(dy, p.y), sx = window_span<ADAPT>(dx, p.x);
    INDEX size = COUNT(in);
    A sum[VEC] = {};
    auto take = [&](int z, int y, int x) {
        vec<T, VEC> v = *(const vec<T, VEC>*)(in + offset<LAST>(p, g, size, AT(in, z, y, x)));
#pragma unroll
        for (int j = 0; j < VEC; ++j) sum[j] += widen(v.at[j]);
    };
    for (int z = sz.begin; z < sz.end; z += sz.step)
        if (G > 1)  // a lane has few columns: it goes down them to have several reads under way
            for (int x = sx.begin + lane * sx.step; x < sx.end; x += G * sx.step)
#pragma unroll 8
                for (int y = sy.begin; y < sy.end; y += sy.step) take(z, y, x);
        else
            for (int y = sy.begin; y < sy.end; y += sy.step)
                for (int x = sx.begin; x < sx.end; x += sx.step) take(z, y, x);
    u32 sharing = (G < 32 ? (1u << G % 32) - 1 : ~0u) << threadIdx.x % 32 / G * G;
#pragma unroll
    for (int d = G / 2; d; d /= 2)
#pragma unroll
        for (int j = 0; j < VEC; ++j) sum[j] += __shfl_xor_sync(sharing, sum[j], d);
    if (lane) return;
    if (!divisor) {
        divisor = (i64)window_size<ADAPT>(dz, p.z, padding) * window_size<ADAPT>(dy, p.y, padding);
        divisor *= window_size<ADAPT>(dx, p.x, padding);
    }
    vec<T, VEC> result;
#pragma unroll
    for (int j = 0; j < VEC; ++j) result.at[j] = cast<T>(sum[j] / (A)divisor);
    INDEX own = AT(out, p.z, p.y, p.x);
    *(vec<T, VEC>*)(out + offset<LAST>(p, g, COUNT(out), own)) = result;
}

template <class T, int VEC, bool LAST, bool ADAPT>
__device__ __forceinline__ void pool_mean_backward(
    T* out, const T* grad, const geometry& g, INDEX total, int padding, i64 divisor
) {
    ENTER(in, 1);
    span sz = windows_of<ADAPT>(dz, p.z), sy = windows_of<ADAPT>(dy, p.y), sx = windows_of<ADAPT>(dx, p.x);
    INDEX count = COUNT(out);
    A sum[VEC] = {};
    for (int z = sz.begin; z < sz.end; ++z)
        for (int y = sy.begin; y < sy.end; ++y) {
            INDEX lines = (INDEX)window_size<ADAPT>(dz, z, padding) * window_size<ADAPT>(dy, y, padding);
            for (int x = sx.begin; x < sx.end; ++x) {
                INDEX from = offset<LAST>(p, g, count, AT(out, z, y, x));
                vec<T, VEC> v = *(const vec<T, VEC>*)(grad + from);
                A length = divisor ? (A)divisor : (A)(i64)(lines * window_size<ADAPT>(dx, x, padding));
#pragma unroll
                for (int j = 0; j < VEC; ++j) sum[j] += widen(v.at[j]) / length;
            }
        }
    vec<T, VEC> result;
#pragma unroll
    for (int j = 0; j < VEC; ++j) result.at[j] = cast<T>(sum[j]);
    INDEX own = AT(in, p.z, p.y, p.x);
    *(vec<T, VEC>*)(out + offset<LAST>(p, g, COUNT(in), own)) = result;
}
"""
