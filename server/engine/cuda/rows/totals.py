"""Sums over rows whose parts blocks have made: one small launch adds them up in a fixed order.

Each block leaves its sums of columns in a row of ``partial``. There are as many such matrices, one after the other, as
there are results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from telegrad_protocol.meta import Meta

MOST: Final = 3
"""Results of one launch."""
_COLUMNS: Final = 32
_TEXT = r"""
// 32 columns per block; blockIdx.y selects the result, which is not written where it is zero
template <class A, class B, class C, class S>
__device__ __forceinline__ void add_partials(A* first, B* second, C* third, const S* partial, int blocks, i64 length) {
    __shared__ S sums[32][33];
    i64 k = (i64)blockIdx.x * 32 + threadIdx.x;
    partial += (i64)blockIdx.y * blocks * length;
    S sum = 0;
    if (k < length)
        #pragma unroll 8
        for (int block = threadIdx.y; block < blocks; block += 32) sum += partial[block * length + k];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || k >= length) return;
    sum = 0;
    for (int y = 0; y < 32; ++y) sum += sums[y][threadIdx.x];
    if (blockIdx.y == 0) { if (first) first[k] = cast<A>(sum); }
    else if (blockIdx.y == 1) { if (second) second[k] = cast<B>(sum); }
    else if (third) third[k] = cast<C>(sum);
}
"""


def totals(results: Sequence[Meta], wide: str, partials: int, length: int) -> Any:
    """The launch that adds up so many partial sums, held as ``wide``, into results of so many elements.

    It takes three addresses of results, 0 where there is none, and that of the partial sums.
    """
    names = [CTYPES[meta.dtype] for meta in results]
    first, second, third = (names + names[-1:] * MOST)[:MOST]
    call = f"add_partials<{first}, {second}, {third}, {wide}>(first, second, third, partial, blocks, length)"
    parameters = f"{first}* first, {second}* second, {third}* third, const {wide}* partial, int blocks, i64 length"
    body = f'extern "C" __global__ void __launch_bounds__(1024) run({parameters}) {{ {call}; }}\n'
    kernel = load(assembled(PRELUDE, _TEXT, body), "run")
    grid = (-(-length // _COLUMNS), len(results))
    return kernel.prepare(grid, (_COLUMNS, 32), "PPPP", [("int", partials), ("i64", length)])
