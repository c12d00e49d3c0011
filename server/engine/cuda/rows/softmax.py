"""softmax and log_softmax with their backward passes: for rows in registers, long rows that are streamed, and columns.

Half precision is computed in float. A row that holds a NaN, or infinities of one sign only, gives NaN, as in PyTorch.
"""

from __future__ import annotations

from server.engine import keys
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.layers import softmax as ops

from .rowwise import ROWS, byte_offset, fits_grid, held_rows, row_major, split, streamed_threads, widest  # fmt: skip

TEXT = r"""
// An element rounded to the type of the result, in the type of the computation
template <class TO, class TI> __device__ __forceinline__ compute_t<TO> converted(TI x) { return widen(cast<TO>(x)); }

template <bool LOG, class TO, class TI, int N, int VEC, int ITEMS, bool SHIFTED>
__device__ __forceinline__ void softmax_held(TO* out, const TI* in, i64 rows, int length) {
    typedef compute_t<TO> A;
    __shared__ A scratch[2][32];
    i64 row = (i64)blockIdx.x * (blockDim.x / N) + threadIdx.x / N;
    in += row * length; out += row * length;
    VectorPositions<N, VEC, SHIFTED> positions(in, threadIdx.x % N, row < rows ? length : -VEC);
    vec<TI, VEC> held[ITEMS];
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) if (positions.has(positions.of(i))) held[i] = read<VEC>(in + positions.of(i));
    A top = -INFINITE;
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) if (positions.has(positions.of(i)))
        #pragma unroll
        for (int j = 0; j < VEC; ++j)
            if (positions.owns(positions.of(i) + j)) top = Max::of(top, converted<TO>(held[i].at[j]));
    top = row_reduce<Max, N>(top, scratch[0]);
    A sum = 0, values[ITEMS][VEC];
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) if (positions.has(positions.of(i)))
        #pragma unroll
        for (int j = 0; j < VEC; ++j) {
            A shifted = converted<TO>(held[i].at[j]) - top, e = row_exp<TO>(shifted);
            values[i][j] = LOG ? shifted : e;
            if (positions.owns(positions.of(i) + j)) sum += e;
        }
    sum = row_reduce<Sum, N>(sum, scratch[1]);
    A norm = LOG ? row_log(sum) : 1 / sum;
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        int k = positions.of(i);
        if (!positions.has(k)) continue;
        vec<TO, VEC> result;
        #pragma unroll
        for (int j = 0; j < VEC; ++j) result.at[j] = cast<TO>(LOG ? values[i][j] - norm : values[i][j] * norm);
        if (positions.is_whole(k)) write<VEC>(out + k, result);
        else
            #pragma unroll
            for (int j = 0; j < VEC; ++j) if (positions.owns(k + j)) out[k + j] = result.at[j];
    }
}

template <bool LOG, class TO, class TI, int N, int VEC>
__device__ __forceinline__ void softmax_streamed(TO* out, const TI* in, i64 length) {
    typedef compute_t<TO> A;
    __shared__ A scratch[2][32];
    in += (i64)blockIdx.x * length; out += (i64)blockIdx.x * length;
    Online<TO, A> online;
    stream<VEC>(in, length, threadIdx.x, N,
        [&](i64 k) { online.take(converted<TO>(in[k])); },
        [&](i64 k) {
            vec<TI, VEC> v = read<VEC>(in + k);
            A top = converted<TO>(v.at[0]);
            #pragma unroll
            for (int j = 1; j < VEC; ++j) top = Max::of(top, converted<TO>(v.at[j]));
            online.raise(top);
            #pragma unroll
            for (int j = 0; j < VEC; ++j) online.add(converted<TO>(v.at[j]));
        });
    A top = row_reduce<Max, N>(online.top, scratch[0]);
    online.merge(top);
    A sum = row_reduce<Sum, N>(online.sum, scratch[1]);
    A norm = LOG ? row_log(sum) : 1 / sum;
    auto one = [&](TI x) {
        A shifted = converted<TO>(x) - top;
        return cast<TO>(LOG ? shifted - norm : row_exp<TO>(shifted) * norm);
    };
    // the elements that were read last are still in the cache, so the second pass goes backwards
    bool aligned = ((u64)in / sizeof(TI)) % VEC == ((u64)out / sizeof(TO)) % VEC;
    if (aligned) stream<VEC>(in, length, N - 1 - threadIdx.x, N,
        [&](i64 k) { out[k] = one(in[k]); },
        [&](i64 k) {
            vec<TI, VEC> v = read<VEC>(in + k);
            vec<TO, VEC> result;
            #pragma unroll
            for (int j = 0; j < VEC; ++j) result.at[j] = one(v.at[j]);
            write<VEC>(out + k, result);
        });
    else for (i64 k = threadIdx.x; k < length; k += N) out[k] = one(in[k]);
}

// Columns: a block has 32 neighbouring columns, and blockDim.y threads along every column.
template <bool LOG, class TO, class TI>
__device__ __forceinline__ void softmax_columns(TO* out, const TI* in, i64 columns, i64 length, i64 inner) {
    typedef compute_t<TO> A;
    __shared__ A tops[32][33], sums[32][33];
    i64 column = (i64)blockIdx.x * 32 + threadIdx.x;
    bool is_valid = column < columns;
    i64 start = column / inner * inner * length + column % inner;
    Online<TO, A> online;
    if (is_valid)
        #pragma unroll 4
        for (i64 k = threadIdx.y; k < length; k += blockDim.y) online.take(converted<TO>(in[start + k * inner]));
    tops[threadIdx.y][threadIdx.x] = online.top;
    __syncthreads();
    A top = -INFINITE, sum = 0;
    for (int y = 0; y < blockDim.y; ++y) top = Max::of(top, tops[y][threadIdx.x]);
    online.merge(top);
    sums[threadIdx.y][threadIdx.x] = online.sum;
    __syncthreads();
    for (int y = 0; y < blockDim.y; ++y) sum += sums[y][threadIdx.x];
    A norm = LOG ? row_log(sum) : 1 / sum;
    if (is_valid)
        #pragma unroll 4
        for (i64 k = threadIdx.y; k < length; k += blockDim.y) {
            A shifted = converted<TO>(in[start + k * inner]) - top;
            out[start + k * inner] = cast<TO>(LOG ? shifted - norm : row_exp<TO>(shifted) * norm);
        }
}

template <bool LOG, class TY, class A> __device__ __forceinline__ A sum_term(A grad, A y) {
    return LOG ? grad : grad * y;
}
template <bool LOG, class TY, class A> __device__ __forceinline__ A gradient(A grad, A y, A sum) {
    return LOG ? grad - row_exp<TY>(y) * sum : (grad - sum) * y;
}

template <bool LOG, class TO, class TG, class TY, int N, int VEC, int ITEMS, bool SHIFTED>
__device__ __forceinline__ void softmax_backward_held(TO* out, const TG* grad, const TY* y, i64 rows, int length) {
    typedef compute_t<TY> A;
    __shared__ A scratch[32];
    i64 row = (i64)blockIdx.x * (blockDim.x / N) + threadIdx.x / N;
    grad += row * length; y += row * length; out += row * length;
    VectorPositions<N, VEC, SHIFTED> positions(grad, threadIdx.x % N, row < rows ? length : -VEC);
    vec<TG, VEC> grads[ITEMS];
    vec<TY, VEC> ys[ITEMS];
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        int k = positions.of(i);
        if (positions.has(k)) { grads[i] = read<VEC>(grad + k); ys[i] = read<VEC>(y + k); }
    }
    A sum = 0;
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) if (positions.has(positions.of(i)))
        #pragma unroll
        for (int j = 0; j < VEC; ++j) if (positions.owns(positions.of(i) + j))
            sum += sum_term<LOG, TY>((A)widen(grads[i].at[j]), (A)widen(ys[i].at[j]));
    sum = row_reduce<Sum, N>(sum, scratch);
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        int k = positions.of(i);
        if (!positions.has(k)) continue;
        vec<TO, VEC> result;
        #pragma unroll
        for (int j = 0; j < VEC; ++j)
            result.at[j] = cast<TO>(gradient<LOG, TY>((A)widen(grads[i].at[j]), (A)widen(ys[i].at[j]), sum));
        if (positions.is_whole(k)) write<VEC>(out + k, result);
        else
            #pragma unroll
            for (int j = 0; j < VEC; ++j) if (positions.owns(k + j)) out[k + j] = result.at[j];
    }
}

template <bool LOG, class TO, class TG, class TY, int N, int VEC>
__device__ __forceinline__ void softmax_backward_streamed(TO* out, const TG* grad, const TY* y, i64 length) {
    typedef compute_t<TY> A;
    __shared__ A scratch[32];
    grad += (i64)blockIdx.x * length; y += (i64)blockIdx.x * length; out += (i64)blockIdx.x * length;
    u64 phase = ((u64)grad / sizeof(TG)) % VEC;
    bool aligned = phase == ((u64)y / sizeof(TY)) % VEC && phase == ((u64)out / sizeof(TO)) % VEC;
    A sum = 0;
    auto add = [&](i64 k) { sum += sum_term<LOG, TY>((A)widen(grad[k]), (A)widen(y[k])); };
    auto put = [&](i64 k) { out[k] = cast<TO>(gradient<LOG, TY>((A)widen(grad[k]), (A)widen(y[k]), sum)); };
    if (aligned) stream<VEC>(grad, length, threadIdx.x, N, add, [&](i64 k) {
        vec<TG, VEC> g = read<VEC>(grad + k);
        vec<TY, VEC> v = read<VEC>(y + k);
        #pragma unroll
        for (int j = 0; j < VEC; ++j) sum += sum_term<LOG, TY>((A)widen(g.at[j]), (A)widen(v.at[j]));
    });
    else for (i64 k = threadIdx.x; k < length; k += N) add(k);
    sum = row_reduce<Sum, N>(sum, scratch);
    if (aligned) stream<VEC>(grad, length, threadIdx.x, N, put, [&](i64 k) {
        vec<TG, VEC> g = read<VEC>(grad + k);
        vec<TY, VEC> v = read<VEC>(y + k);
        vec<TO, VEC> result;
        #pragma unroll
        for (int j = 0; j < VEC; ++j)
            result.at[j] = cast<TO>(gradient<LOG, TY>((A)widen(g.at[j]), (A)widen(v.at[j]), sum));
        write<VEC>(out + k, result);
    });
    else for (i64 k = threadIdx.x; k < length; k += N) put(k);
}

template <bool LOG, class TO, class TG, class TY>
__device__ __forceinline__ void softmax_backward_columns(
    TO* out, const TG* grad, const TY* y, i64 columns, i64 length, i64 inner
) {
    typedef compute_t<TY> A;
    __shared__ A sums[32][33];
    i64 column = (i64)blockIdx.x * 32 + threadIdx.x;
    bool is_valid = column < columns;
    i64 start = column / inner * inner * length + column % inner;
    A partial = 0, sum = 0;
    if (is_valid)
        #pragma unroll 4
        for (i64 k = threadIdx.y; k < length; k += blockDim.y) {
            i64 at = start + k * inner;
            partial += sum_term<LOG, TY>((A)widen(grad[at]), (A)widen(y[at]));
        }
    sums[threadIdx.y][threadIdx.x] = partial;
    __syncthreads();
    for (int i = 0; i < blockDim.y; ++i) sum += sums[i][threadIdx.x];
    if (is_valid)
        #pragma unroll 4
        for (i64 k = threadIdx.y; k < length; k += blockDim.y) {
            i64 at = start + k * inner;
            out[at] = cast<TO>(gradient<LOG, TY>((A)widen(grad[at]), (A)widen(y[at]), sum));
        }
}
"""


def _kernel(body: str, parameters: str, arguments: str, threads: int) -> str:
    """The text of kernel ``run``: one instance of a template of ``TEXT``."""
    head = f'extern "C" __global__ void __launch_bounds__({threads}) run({parameters})'
    return assembled(PRELUDE, ROWS, TEXT, f"{head} {{ {body}({arguments}); }}\n")


_FORWARD = ("{out}* out, const {0}* in", "out, in")
_BACKWARD = ("{out}* out, const {0}* grad, const {1}* y", "out, grad, y")


def _prepare(
    request: Request, template: str, log: bool, inputs: tuple[Meta, ...], dim: int, held: int
) -> Launch | None:
    """The launch of one of the templates on row-major operands of one shape; ``held`` of them stay in registers."""
    out = request.outs[0]
    if not out.numel:
        return lambda args, outs: None
    outer, length, inner = split(out, dim)
    names = [CTYPES[meta.dtype] for meta in inputs]
    types = ", ".join([str(log).lower(), CTYPES[out.dtype], *names])
    declared, passed = _FORWARD if len(inputs) == 1 else _BACKWARD
    declared = declared.format(*names, out=CTYPES[out.dtype])
    if inner > 1:
        return _columns(
            request, inputs, f"{template}_columns<{types}>", declared, passed, (outer * inner, length, inner)
        )
    rows = held_rows(length, (out, *inputs), inputs[:held], shifts=True)
    if rows is not None:
        shifted = str(rows.shifted).lower()
        body = f"{template}_held<{types}, {rows.threads}, {rows.width}, {rows.items}, {shifted}>"
        text = _kernel(body, f"{declared}, i64 rows, int length", f"{passed}, rows, length", rows.block)
        constants, grid, block = [("i64", outer), ("int", length)], rows.grid(outer), rows.block
    else:
        width = widest(out, *inputs)
        block = streamed_threads(length, width)
        text = _kernel(
            f"{template}_streamed<{types}, {block}, {width}>", f"{declared}, i64 length", f"{passed}, length", block
        )
        constants, grid = [("i64", length)], outer
    return _launch(request, inputs, text, grid, block, constants) if fits_grid(grid) else None


def _columns(
    request: Request, inputs: tuple[Meta, ...], body: str, declared: str, passed: str, sizes: tuple[int, int, int]
) -> Launch | None:
    columns, length, _ = sizes
    along = min(max(1 << (length - 1).bit_length() >> 3, 1), 32)
    grid = -(-columns // 32)
    text = _kernel(body, f"{declared}, i64 columns, i64 length, i64 inner", f"{passed}, columns, length, inner", 1024)
    constants = [("i64", size) for size in sizes]
    return _launch(request, inputs, text, grid, (32, along), constants) if fits_grid(grid) else None


def _launch(
    request: Request, inputs: tuple[Meta, ...], text: str, grid: int, block: int | tuple[int, int],
    constants: list[tuple[str, int]],
) -> Launch:  # fmt: skip
    fire = load(text, "run").prepare(grid, block, "P" * (1 + len(inputs)), constants)
    backend, o, a = request.backend, byte_offset(request.outs[0]), byte_offset(inputs[0])
    if len(inputs) == 1:

        def forward(args, outs):  # type: ignore[no-untyped-def]
            fire(backend.stream, outs[0].storage.block.pointer + o, args[0].storage.block.pointer + a)

        return forward
    b = byte_offset(inputs[1])

    def backward(args, outs):  # type: ignore[no-untyped-def]
        fire(
            backend.stream, outs[0].storage.block.pointer + o, args[0].storage.block.pointer + a,
            args[1].storage.block.pointer + b,
        )  # fmt: skip

    return backward


def _register(contract: Op, template: str, log: bool) -> None:
    inputs = 2 if template.endswith("backward") else 1

    @prepares(contract, keys.CUDA, deferrable=True)
    @row_major
    def factory(request: Request) -> Launch | None:
        return _prepare(request, template, log, request.args[:inputs], request.args[inputs], inputs)


_register(ops.softmax, "softmax", False)
_register(ops.log_softmax, "softmax", True)
_register(ops._softmax_backward_data, "softmax_backward", False)
_register(ops._log_softmax_backward_data, "softmax_backward", True)
