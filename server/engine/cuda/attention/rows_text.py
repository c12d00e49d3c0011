"""The CUDA text that attention's kernels share: exponentials, and what the four threads of a row have together."""

from __future__ import annotations

TEXT = r"""
#define HIDDEN __int_as_float(0xff800000)
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

// Results below 2^-126 are zero
__device__ __forceinline__ float power_of_two(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// Of a row whose largest score is ``top``: its sum's logarithm, and what a weight is to be multiplied by. Where all
// scores are -inf, all weights are zero; that logarithm makes them zero in the backward pass, too.
__device__ __forceinline__ float logarithm(float top, float sum) {
    return sum == 0 ? -HIDDEN : (top + log2f(sum)) * LN_2;
}
__device__ __forceinline__ float share(float sum) { return sum == 0 ? 0.0f : 1.0f / sum; }

// Over the four threads that share a row
__device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
"""
