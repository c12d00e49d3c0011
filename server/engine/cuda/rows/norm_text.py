"""The CUDA text of layer and RMS normalization: rows held in registers or streamed, gradients, and sums over rows.

``S`` is the type of statistics: float, or double for rows of doubles. With ``RMS`` the mean is taken as zero.
"""

from __future__ import annotations

MOMENTS = r"""
// The mean of a streamed row (zero with RMS) and the variance around it; all N threads of the row get them.
template <int N, int VEC, bool RMS, class T, class S>
__device__ __forceinline__ void row_moments(S& centre, S& square, const T* in, i64 length, S (*scratch)[32]) {
    centre = square = 0;
    if (!RMS) {
        stream<VEC>(in, length, threadIdx.x, N, [&](i64 k) { centre += (S)widen(in[k]); }, [&](i64 k) {
            vec<T, VEC> v = read<VEC>(in + k);
            S part = 0;
            #pragma unroll
            for (int j = 0; j < VEC; ++j) part += (S)widen(v.at[j]);
            centre += part;
        });
        centre = row_reduce<Sum, N>(centre, scratch[0]) / length;
    }
    auto squared = [&](T x) { S delta = (S)widen(x) - centre; return delta * delta; };
    stream<VEC>(in, length, threadIdx.x, N, [&](i64 k) { square += squared(in[k]); }, [&](i64 k) {
        vec<T, VEC> v = read<VEC>(in + k);
        S part = 0;
        #pragma unroll
        for (int j = 0; j < VEC; ++j) part += squared(v.at[j]);
        square += part;
    });
    square = row_reduce<Sum, N>(square, scratch[1]) / length;
}
"""

NORMS = r"""
// A sum that is rounded by itself, whatever comes before and after it
__device__ __forceinline__ float row_add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double row_add(double a, double b) { return __dadd_rn(a, b); }

// Rows of ``in``, or of in + other, which goes to ``total``; the result goes to ``out`` and ``copy``. Where there is no
// ``other``, ``total``, ``out`` or ``copy``, it is zero.
template <class T, class W, class B, class S, class A, class C, int N, int VEC, int ITEMS, bool RMS>
__device__ __forceinline__ void norm_held(
    T* out, S* mean, S* rstd, const T* in, const W* weight, const B* bias, i64 rows, int length, S eps,
    const A* other, T* total, C* copy
) {
    __shared__ S scratch[2][32];
    i64 row = (i64)blockIdx.x * (blockDim.x / N) + threadIdx.x / N;
    int lane = threadIdx.x % N;
    bool is_valid = row < rows;
    const i64 begin = row * length;
    vec<T, VEC> held[ITEMS];
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        int k = (i * N + lane) * VEC;
        if (is_valid && k < length) held[i] = read<VEC>(in + begin + k);
    }
    if (other)
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            int k = (i * N + lane) * VEC;
            if (!is_valid || k >= length) continue;
            vec<A, VEC> more = read<VEC>(other + begin + k);
            #pragma unroll
            for (int j = 0; j < VEC; ++j)
                held[i].at[j] = cast<T>(row_add((S)widen(held[i].at[j]), (S)widen(more.at[j])));
            if (total) write<VEC>(total + begin + k, held[i]);
        }
    S centre = 0, sum = 0;
    if (!RMS) {
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i) if (is_valid && (i * N + lane) * VEC < length)
            #pragma unroll
            for (int j = 0; j < VEC; ++j) centre += (S)widen(held[i].at[j]);
        centre = row_reduce<Sum, N>(centre, scratch[0]) / length;
    }
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) if (is_valid && (i * N + lane) * VEC < length)
        #pragma unroll
        for (int j = 0; j < VEC; ++j) { S delta = (S)widen(held[i].at[j]) - centre; sum += delta * delta; }
    S scale = row_rsqrt(row_reduce<Sum, N>(sum, scratch[1]) / length + eps);
    if (is_valid && lane == 0) { if (!RMS) mean[row] = centre; rstd[row] = scale; }
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        int k = (i * N + lane) * VEC;
        if (!is_valid || k >= length) continue;
        vec<T, VEC> result;
        vec<W, VEC> w;
        vec<B, VEC> b;
        if (weight) w = read<VEC>(weight + k);
        if (bias) b = read<VEC>(bias + k);
        #pragma unroll
        for (int j = 0; j < VEC; ++j) {
            S x = ((S)widen(held[i].at[j]) - centre) * scale;
            if (weight) x *= (S)widen(w.at[j]);
            if (bias) x += (S)widen(b.at[j]);
            result.at[j] = cast<T>(x);
        }
        if (out) write<VEC>(out + begin + k, result);
        if (copy) {
            vec<C, VEC> narrow;
            #pragma unroll
            for (int j = 0; j < VEC; ++j) narrow.at[j] = cast<C>(result.at[j]);
            write<VEC>(copy + begin + k, narrow);
        }
    }
}

template <class T, class W, class B, class S, int N, int VEC, bool RMS>
__device__ __forceinline__ void norm_streamed(
    T* out, S* mean, S* rstd, const T* in, const W* weight, const B* bias, i64 length, S eps
) {
    __shared__ S scratch[2][32];
    i64 row = blockIdx.x;
    in += row * length; out += row * length;
    S centre, square;
    row_moments<N, VEC, RMS>(centre, square, in, length, scratch);
    S scale = row_rsqrt(square + eps);
    if (threadIdx.x == 0) { if (!RMS) mean[row] = centre; rstd[row] = scale; }
    auto one = [&](T v, i64 k) {
        S x = ((S)widen(v) - centre) * scale;
        if (weight) x *= (S)widen(weight[k]);
        if (bias) x += (S)widen(bias[k]);
        return cast<T>(x);
    };
    bool aligned = (u64)in % (VEC * sizeof(T)) == (u64)out % (VEC * sizeof(T));
    if (aligned) stream<VEC>(in, length, N - 1 - threadIdx.x, N, [&](i64 k) { out[k] = one(in[k], k); }, [&](i64 k) {
        vec<T, VEC> v = read<VEC>(in + k);
        vec<T, VEC> result;
        #pragma unroll
        for (int j = 0; j < VEC; ++j) result.at[j] = one(v.at[j], k + j);
        write<VEC>(out + k, result);
    });
    else for (i64 k = threadIdx.x; k < length; k += N) out[k] = one(in[k], k);
}

// The sums of two values over the N threads of a row, with one barrier; the next call must use another ``scratch``.
template <int N, class S> __device__ __forceinline__ void row_reduce_pair(S& a, S& b, S (*scratch)[32]) {
    a = row_reduce<Sum, (N < 32 ? N : 32)>(a, scratch[0]);
    b = row_reduce<Sum, (N < 32 ? N : 32)>(b, scratch[1]);
    if (N <= 32) return;
    if (threadIdx.x % 32 == 0) { scratch[0][threadIdx.x / 32] = a; scratch[1][threadIdx.x / 32] = b; }
    __syncthreads();
    constexpr int WARPS = N > 32 ? N / 32 : 1;
    a = scratch[0][threadIdx.x % WARPS];
    b = scratch[1][threadIdx.x % WARPS];
    #pragma unroll
    for (int step = WARPS / 2; step; step /= 2) {
        a += __shfl_xor_sync(0xffffffffu, a, step);
        b += __shfl_xor_sync(0xffffffffu, b, step);
    }
}

// Gradients: those of rows, with ``other`` added, go to dx and ``copy`` (if DX), each of them zero if it is not there;
// this block's contributions to the gradients of the parameters go to ``partial`` (if DW), column by column, those of
// the weight before those of the bias, and after these (if SUMS) the sums of ``copy``, or of dx if there is none.
template <
    class T, class G, class W, class S, class A, class C, int N, int VEC, int ITEMS, bool RMS, bool DX, bool DW,
    bool SUMS, int THREADS
>
__device__ __forceinline__ void norm_backward(
    T* dx, S* partial, const G* grad, const T* in, const S* mean, const S* rstd, const W* weight, i64 rows, int length,
    const A* other, C* copy
) {
    __shared__ S scratch[2][2][32];
    int lane = threadIdx.x % N, per_block = THREADS / N, parity = 0;
    vec<W, VEC> w[ITEMS];
    S dw[ITEMS][VEC], db[ITEMS][VEC], made[ITEMS][VEC];
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        int k = (i * N + lane) * VEC;
        if (weight && k < length) w[i] = read<VEC>(weight + k);
        #pragma unroll
        for (int j = 0; j < VEC; ++j) dw[i][j] = db[i][j] = made[i][j] = 0;
    }
    for (i64 first = (i64)blockIdx.x * per_block; first < rows; first += (i64)gridDim.x * per_block, parity ^= 1) {
        i64 row = first + threadIdx.x / N;
        bool is_valid = row < rows;
        vec<G, VEC> g[ITEMS];
        vec<T, VEC> x[ITEMS];
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            int k = (i * N + lane) * VEC;
            if (is_valid && k < length) {
                g[i] = read<VEC>(grad + row * length + k);
                x[i] = read<VEC>(in + row * length + k);
            }
        }
        S centre = is_valid && !RMS ? mean[row] : (S)0, scale = is_valid ? rstd[row] : (S)0, a = 0, b = 0;
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i) if (is_valid && (i * N + lane) * VEC < length)
            #pragma unroll
            for (int j = 0; j < VEC; ++j) {
                S own = (S)widen(g[i].at[j]), at = ((S)widen(x[i].at[j]) - centre) * scale;
                if (DW) { dw[i][j] += own * at; db[i][j] += own; }
                if (DX) {
                    if (weight) own *= (S)widen(w[i].at[j]);
                    a += own;
                    b += own * at;
                }
            }
        if (!DX) continue;
        row_reduce_pair<N>(a, b, scratch[parity]);
        a = RMS ? (S)0 : a / length;
        b /= length;
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            int k = (i * N + lane) * VEC;
            if (!is_valid || k >= length) continue;
            vec<T, VEC> result;
            vec<A, VEC> more;
            if (other) more = read<VEC>(other + row * length + k);
            #pragma unroll
            for (int j = 0; j < VEC; ++j) {
                S own = (S)widen(g[i].at[j]), at = ((S)widen(x[i].at[j]) - centre) * scale;
                if (weight) own *= (S)widen(w[i].at[j]);
                result.at[j] = cast<T>((own - a - at * b) * scale);
                if (other)
                    result.at[j] = cast<T>(row_add((S)widen(result.at[j]), (S)widen(more.at[j])));
            }
            if (dx) write<VEC>(dx + row * length + k, result);
            if (copy) {
                vec<C, VEC> narrow;
                #pragma unroll
                for (int j = 0; j < VEC; ++j) {
                    narrow.at[j] = cast<C>(result.at[j]);
                    if (SUMS) made[i][j] += (S)widen(narrow.at[j]);
                }
                write<VEC>(copy + row * length + k, narrow);
            } else if (SUMS)
                #pragma unroll
                for (int j = 0; j < VEC; ++j) made[i][j] += (S)widen(result.at[j]);
        }
    }
    if (!DW) return;
    constexpr int HELD = ITEMS * VEC, OWN = RMS ? 1 : 2;
    __shared__ S shared[N < THREADS ? THREADS * HELD : 1];
    auto part = [&](int number, int h) {
        return number >= OWN ? made[h / VEC][h % VEC] : number ? db[h / VEC][h % VEC] : dw[h / VEC][h % VEC];
    };
    #pragma unroll
    for (int number = 0; number < OWN + SUMS; ++number) {
        S* into = partial + ((i64)number * gridDim.x + blockIdx.x) * length;
        if (N < THREADS) {
            __syncthreads();
            #pragma unroll
            for (int h = 0; h < HELD; ++h)
                shared[h * THREADS + threadIdx.x] = part(number, h);
            __syncthreads();
            if (threadIdx.x >= N) continue;
        }
        #pragma unroll
        for (int h = 0; h < HELD; ++h) {
            int k = (h / VEC * N + lane) * VEC + h % VEC;
            S sum = part(number, h);
            if (N < THREADS) for (int r = 1; r < per_block; ++r) sum += shared[h * THREADS + r * N + lane];
            if (k < length) into[k] = sum;
        }
    }
}

template <class T, class G, class W, class S, int N, int VEC, bool RMS>
__device__ __forceinline__ void norm_backward_streamed(
    T* dx, const G* grad, const T* in, const S* mean, const S* rstd, const W* weight, i64 length
) {
    __shared__ S scratch[2][32];
    i64 row = blockIdx.x;
    in += row * length; grad += row * length; dx += row * length;
    S centre = RMS ? (S)0 : mean[row], scale = rstd[row], a = 0, b = 0;
    auto own = [&](G g, i64 k) { return weight ? (S)widen(g) * (S)widen(weight[k]) : (S)widen(g); };
    auto add = [&](G g, T x, i64 k) { S o = own(g, k); a += o; b += o * (((S)widen(x) - centre) * scale); };
    u64 phase = ((u64)in / sizeof(T)) % VEC;
    bool aligned = phase == ((u64)grad / sizeof(G)) % VEC && phase == ((u64)dx / sizeof(T)) % VEC;
    if (aligned) stream<VEC>(in, length, threadIdx.x, N, [&](i64 k) { add(grad[k], in[k], k); }, [&](i64 k) {
        vec<T, VEC> x = read<VEC>(in + k);
        vec<G, VEC> g = read<VEC>(grad + k);
        #pragma unroll
        for (int j = 0; j < VEC; ++j) add(g.at[j], x.at[j], k + j);
    });
    else for (i64 k = threadIdx.x; k < length; k += N) add(grad[k], in[k], k);
    row_reduce_pair<N>(a, b, scratch);
    a = RMS ? (S)0 : a / length;
    b /= length;
    auto one = [&](G g, T x, i64 k) {
        return cast<T>((own(g, k) - a - ((S)widen(x) - centre) * scale * b) * scale);
    };
    if (aligned) stream<VEC>(in, length, threadIdx.x, N, [&](i64 k) { dx[k] = one(grad[k], in[k], k); }, [&](i64 k) {
        vec<T, VEC> x = read<VEC>(in + k);
        vec<G, VEC> g = read<VEC>(grad + k);
        vec<T, VEC> result;
        #pragma unroll
        for (int j = 0; j < VEC; ++j) result.at[j] = one(g.at[j], x.at[j], k + j);
        write<VEC>(dx + k, result);
    });
    else for (i64 k = threadIdx.x; k < length; k += N) dx[k] = one(grad[k], in[k], k);
}

// The contributions of rows blockIdx.y, + gridDim.y, ... to the gradients of the parameters; one column per thread
template <class T, class G, class S, bool RMS>
__device__ __forceinline__ void norm_columns(
    S* partial, const G* grad, const T* in, const S* mean, const S* rstd, i64 rows, i64 length
) {
    i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= length) return;
    S dw = 0, db = 0;
    #pragma unroll 4
    for (i64 row = blockIdx.y; row < rows; row += gridDim.y) {
        S own = (S)widen(grad[row * length + k]);
        dw += own * (((S)widen(in[row * length + k]) - (RMS ? (S)0 : mean[row])) * rstd[row]);
        db += own;
    }
    partial[blockIdx.y * length + k] = dw;
    if (!RMS) partial[((i64)gridDim.y + blockIdx.y) * length + k] = db;
}
"""
