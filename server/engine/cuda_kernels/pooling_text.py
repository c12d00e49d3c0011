"""The CUDA text of pooling: one thread per element of the result, or per 16 bytes of them where channels lie innermost.

Backward passes gather: each element of the input's gradient looks for the windows that it is in, so that sums are in a
fixed order. ``ADAPT`` windows are equal parts, all others slide.
"""

from __future__ import annotations

TEXT = r"""
// one spatial dimension: sizes of input and result, and how windows slide
// INDEX holds every offset, and products of two sizes of one dimension
struct dimension { int in, out, kernel, stride, pad, dilation; };
struct geometry { dimension d[3]; i64 channels, planes; };

struct span { int begin, end, step; };

// the elements of the input that window o sees; for adaptive windows, those of part o
template <bool ADAPT> __device__ __forceinline__ span seen(const dimension& d, int o) {
    if (ADAPT) {
        INDEX n = d.in, m = d.out;
        return {(int)((INDEX)o * n / m), (int)(((INDEX)(o + 1) * n + m - 1) / m), 1};
    }
    int begin = o * d.stride - d.pad, end = min(begin + (d.kernel - 1) * d.dilation + 1, d.in);
    if (begin < 0) begin += (-begin + d.dilation - 1) / d.dilation * d.dilation;
    return {begin, end, d.dilation};
}

// the windows that may see element i
template <bool ADAPT> __device__ __forceinline__ span seeing(const dimension& d, int i) {
    if (ADAPT) {
        INDEX n = d.in, m = d.out;
        return {(int)((INDEX)i * m / n), (int)(((INDEX)(i + 1) * m + n - 1) / n), 1};
    }
    int far = (d.kernel - 1) * d.dilation + 1;
    int begin = i + d.pad < far ? 0 : (i + d.pad - far) / d.stride + 1;
    return {begin, min((i + d.pad) / d.stride + 1, d.out), 1};
}

// how many elements window o counts
template <bool ADAPT> __device__ __forceinline__ int counted(const dimension& d, int o, bool padding) {
    if (ADAPT) { span s = seen<true>(d, o); return s.end - s.begin; }
    int begin = o * d.stride - d.pad, end = min(begin + d.kernel, d.in + d.pad);
    return padding ? end - begin : min(end, d.in) - max(begin, 0);
}

// where a thread's elements lie: plane (of one channel, or of all with the first of the channels) and position
struct place { INDEX plane, channel; int z, y, x; };

template <bool LAST, int VEC> __device__ __forceinline__ place locate(INDEX i, const geometry& g, int z, int y, int x) {
    place p;
    if (LAST) { INDEX c = (INDEX)g.channels / VEC; p.channel = i % c * VEC; i /= c; } else p.channel = 0;
    p.x = i % x; i /= x; p.y = i % y; i /= y; p.z = i % z;
    p.plane = i / z;
    return p;
}

// element (z, y, x) of a picture of y by x lines
template <bool LAST>
__device__ __forceinline__ INDEX offset(const place& p, const geometry& g, INDEX size, INDEX position) {
    return LAST ? (p.plane * size + position) * (INDEX)g.channels + p.channel : p.plane * size + position;
}

// what each kernel begins with: the place of this thread's elements among those of one side, ``in`` or ``out``
#define ENTER(side) \
    INDEX i = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; \
    if (i >= total) return; \
    typedef compute_t<T> A; \
    const dimension &dz = g.d[0], &dy = g.d[1], &dx = g.d[2]; \
    place p = locate<LAST, VEC>(i, g, dz.side, dy.side, dx.side)
// elements of a picture of one side, and the number of one of them
#define COUNT(side) ((INDEX)dz.side * dy.side * dx.side)
#define AT(side, z, y, x) (((INDEX)(z) * dy.side + (y)) * dx.side + (x))

template <class T> struct lowest { static __device__ __forceinline__ T of() { return (T)(LOWEST); } };

template <class T, int VEC, bool LAST, bool ADAPT>
__device__ __forceinline__ void pool_max(T* out, i64* where, const T* in, const geometry& g, INDEX total) {
    ENTER(out);
    span sz = seen<ADAPT>(dz, p.z), sy = seen<ADAPT>(dy, p.y), sx = seen<ADAPT>(dx, p.x);
    INDEX size = COUNT(in);
    A best[VEC];
    INDEX at[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        best[j] = lowest<A>::of();
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
                    if (a > best[j] || a != a) { best[j] = a; at[j] = position; }
                }
            }
    INDEX count = COUNT(out);
    INDEX to = offset<LAST>(p, g, count, AT(out, p.z, p.y, p.x));
    vec<T, VEC> result;
#pragma unroll
    for (int j = 0; j < VEC; ++j) { result.at[j] = cast<T>(best[j]); where[to + j] = at[j]; }
    *(vec<T, VEC>*)(out + to) = result;
}

template <class T, int VEC, bool LAST>
__device__ __forceinline__ void pool_max_backward(
    T* out, const T* grad, const i64* where, const geometry& g, INDEX total
) {
    ENTER(in);
    span sz = seeing<false>(dz, p.z), sy = seeing<false>(dy, p.y), sx = seeing<false>(dx, p.x);
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

template <class T, int VEC, bool LAST, bool ADAPT>
__device__ __forceinline__ void pool_mean(
    T* out, const T* in, const geometry& g, INDEX total, int padding, i64 divisor
) {
    ENTER(out);
    span sz = seen<ADAPT>(dz, p.z), sy = seen<ADAPT>(dy, p.y), sx = seen<ADAPT>(dx, p.x);
    INDEX size = COUNT(in);
    A sum[VEC] = {};
    for (int z = sz.begin; z < sz.end; z += sz.step)
        for (int y = sy.begin; y < sy.end; y += sy.step)
            for (int x = sx.begin; x < sx.end; x += sx.step) {
                INDEX from = offset<LAST>(p, g, size, AT(in, z, y, x));
                vec<T, VEC> v = *(const vec<T, VEC>*)(in + from);
#pragma unroll
                for (int j = 0; j < VEC; ++j) sum[j] += widen(v.at[j]);
            }
    if (!divisor) {
        divisor = (i64)counted<ADAPT>(dz, p.z, padding) * counted<ADAPT>(dy, p.y, padding);
        divisor *= counted<ADAPT>(dx, p.x, padding);
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
    ENTER(in);
    span sz = seeing<ADAPT>(dz, p.z), sy = seeing<ADAPT>(dy, p.y), sx = seeing<ADAPT>(dx, p.x);
    INDEX count = COUNT(out);
    A sum[VEC] = {};
    for (int z = sz.begin; z < sz.end; ++z)
        for (int y = sy.begin; y < sy.end; ++y) {
            INDEX lines = (INDEX)counted<ADAPT>(dz, z, padding) * counted<ADAPT>(dy, y, padding);
            for (int x = sx.begin; x < sx.end; ++x) {
                INDEX from = offset<LAST>(p, g, count, AT(out, z, y, x));
                vec<T, VEC> v = *(const vec<T, VEC>*)(grad + from);
                A length = divisor ? (A)divisor : (A)(i64)(lines * counted<ADAPT>(dx, x, padding));
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
