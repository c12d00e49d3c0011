"""QR factorizations of small matrices, a block per matrix, by Householder reflections in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from server.engine import keys
from server.engine.cuda.runtime.launch import load, pointer
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.cuda.texts import Call, call, tensor
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.dtypes import DType
from telegrad_protocol.ops.linear_algebra import factorizations as ops

from .arithmetic import ARITHMETIC
from .batches import Batch, batch_of, is_packed
from .libraries import PREFIXES

_LARGEST = 64
"""Most rows and columns: a lane of a warp holds two elements of a column."""
_THREADS = 128

FACTORIZE = r"""
// The length of a column below its diagonal, whose square may be too small or too large for its type.
template <class T> __device__ __forceinline__ real_t<T> length_below(const T* column, int from, int rows) {
    typedef real_t<T> R;
    const int lane = threadIdx.x % 32;
    R largest = 0;
    for (int i = from + lane; i < rows; i += 32) {
        const R size = magnitude(column[i]);
        largest = size > largest || size != size ? size : largest;
    }
    for (int distance = 16; distance; distance /= 2) {
        const R other = from_lane(largest, distance);
        largest = other > largest || other != other ? other : largest;
    }
    if (largest == 0) return 0;
    R sum = 0;
    for (int i = from + lane; i < rows; i += 32) {
        const R share = magnitude(column[i]) / largest;
        sum += share * share;
    }
    return largest * sqrt(sum_of_warp(sum));
}

__device__ __forceinline__ float real_part(float a) { return a; }
__device__ __forceinline__ double real_part(double a) { return a; }
template <class R> __device__ __forceinline__ R real_part(complex_t<R> a) { return a.re; }
template <class R> __device__ __forceinline__ R inverse(R a) { return 1 / a; }
template <class R> __device__ __forceinline__ complex_t<R> inverse(complex_t<R> a) {
    const R size = magnitude(a), re = a.re / size, im = a.im / size;
    return {re / size, -im / size};
}

// One warp: the reflector of a column, H^H x = beta e, where H = I - tau v v^H, as LAPACK's larfg makes it.
template <class T> __device__ __forceinline__ void reflector(
    const T* column, int j, int rows, T* tau, T* scale, T* beta
) {
    typedef real_t<T> R;
    const R below = length_below(column, j + 1, rows);
    const T alpha = column[j];
    if (threadIdx.x % 32) return;
    const R size = magnitude(alpha), real = real_part(alpha), other = size != (real < 0 ? -real : real) ? 1 : 0;
    if (below == 0 && other == 0) {
        *tau = cast<T>(0), *scale = cast<T>(0), *beta = alpha;
        return;
    }
    const R whole = size > below ? size * sqrt(1 + below / size * (below / size))
                                 : below * sqrt(1 + size / below * (size / below));
    const R signed_length = real >= 0 ? -whole : whole;
    *beta = cast<T>(signed_length);
    *tau = scaled(minus(*beta, alpha), 1 / signed_length);
    *scale = inverse(minus(alpha, *beta));
}

template <class T> __device__ __forceinline__ void factorize(
    T* q, T* r, const T* in, int rows, int columns, int q_columns, int r_rows, i64 step, i64 row_step, i64 column_step
) {
    extern __shared__ __align__(16) unsigned char memory[];
    T* const a = (T*)memory;
    const int count = rows < columns ? rows : columns, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warps = blockDim.x / 32;
    T* const taus = a + rows * columns;
    T* const scale = taus + count;
    T* const beta = scale + 1;
    in += blockIdx.x * step;
    for (int i = threadIdx.x; i < rows * columns; i += blockDim.x)
        a[i] = in[(i % rows) * row_step + (i / rows) * column_step];
    __syncthreads();
    for (int j = 0; j < count; ++j) {
        T* const v = a + j * rows;
        if (warp == 0) reflector(v, j, rows, taus + j, scale, beta);
        __syncthreads();
        for (int i = j + 1 + threadIdx.x; i < rows; i += blockDim.x) v[i] = times(v[i], *scale);
        if (threadIdx.x == 0) v[j] = *beta;
        __syncthreads();
        const T factor = conjugate(taus[j]);
        for (int column = j + 1 + warp; column < columns; column += warps) {
            T* const x = a + column * rows;
            T sum = cast<T>(0);
            for (int i = j + lane; i < rows; i += 32) sum = plus(sum, i == j ? x[i] : times(conjugate(v[i]), x[i]));
            sum = times(factor, sum_of_warp(sum));
            for (int i = j + lane; i < rows; i += 32) x[i] = minus(x[i], i == j ? sum : times(sum, v[i]));
        }
        __syncthreads();
    }
    r += (i64)blockIdx.x * r_rows * columns;
    for (int i = threadIdx.x; i < r_rows * columns; i += blockDim.x) {
        const int row = i % r_rows, column = i / r_rows;
        r[i] = row <= column && row < count ? a[column * rows + row] : cast<T>(0);
    }
    q += (i64)blockIdx.x * rows * q_columns;
    for (int column = warp; column < q_columns; column += warps) {
        T x[2];
        for (int k = 0; k < 2; ++k) x[k] = cast<T>(lane + 32 * k == column ? 1 : 0);
        for (int j = count - 1; j >= 0; --j) {
            const T* const v = a + j * rows;
            T sum = cast<T>(0);
            for (int k = 0; k < 2; ++k) {
                const int i = lane + 32 * k;
                if (i >= j && i < rows) sum = plus(sum, i == j ? x[k] : times(conjugate(v[i]), x[k]));
            }
            sum = times(taus[j], sum_of_warp(sum));
            for (int k = 0; k < 2; ++k) {
                const int i = lane + 32 * k;
                if (i >= j && i < rows) x[k] = minus(x[k], i == j ? sum : times(sum, v[i]));
            }
        }
        for (int k = 0; k < 2; ++k)
            if (lane + 32 * k < rows) q[(i64)column * rows + lane + 32 * k] = x[k];
    }
}
"""


def _factorizer(dtype: DType, source: Batch, q_columns: int, r_rows: int) -> Callable[..., None]:
    """What factorizes a batch; called with the stream and the addresses of Q, R and the matrices."""
    ctype, (count, rows, columns) = CTYPES[dtype], source[:3]
    entry = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) run(
    {ctype}* q, {ctype}* r, const {ctype}* in, int rows, int columns, int q_columns, int r_rows, i64 step, i64 row_step,
    i64 column_step
) {{
    factorize(q, r, in, rows, columns, q_columns, r_rows, step, row_step, column_step);
}}"""
    kernel = load(f"{PRELUDE}{ARITHMETIC}{FACTORIZE}{entry}", "run")
    sizes = [("int", number) for number in (rows, columns, q_columns, r_rows)]
    shared = (rows * columns + min(rows, columns) + 2) * dtype.itemsize
    return kernel.prepare(count, _THREADS, "PPP", [*sizes, *[("i64", step) for step in source[3:]]], shared)


@prepares(ops.qr, keys.CUDA, deferrable=True)
def qr(request: Request) -> Launch | None:
    A, mode = request.args
    (Q, R), source, backend = request.outs, batch_of(A), request.backend
    if A.dtype not in PREFIXES or source is None or max(source.rows, source.columns) > _LARGEST or not is_packed(R):
        return None
    if mode != "r" and not is_packed(Q):
        return None
    factorize = _factorizer(A.dtype, source, 0 if mode == "r" else Q.shape[-1], R.shape[-2])

    def launch(args: Any, outs: Any) -> None:
        factorize(backend.stream, pointer(outs[0]), pointer(outs[1]), pointer(args[0]))

    return launch


def check_calls(dtype: DType) -> Iterator[Call]:
    if dtype in PREFIXES:
        yield call("linalg_qr", tensor(dtype, 4, 4))
