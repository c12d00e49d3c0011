"""Operations on all gradients at once: total norm, clipping, unscaling, and the check for infinities and NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from server.engine import keys
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import amp, optim

from .multi_tensor import Kernel, Lists, address

_NORMS = {1.0: "magnitude", 2.0: "square", math.inf: "largest"}
_TERMS = r"""
// The accumulators of norms by order: take an element in, combine two partial results, and finish
struct sum_of_terms {
    static __device__ __forceinline__ double plus(double a, double b) { return a + b; }
};
struct magnitude : sum_of_terms {
    template <class C> static __device__ __forceinline__ C take(C sum, C x, C) { return sum + fabs(x); }
    static __device__ double finish(double sum, double) { return sum; }
};
struct square : sum_of_terms {
    template <class C> static __device__ __forceinline__ C take(C sum, C x, C) { return sum + x * x; }
    static __device__ double finish(double sum, double) { return sqrt(sum); }
};
struct power : sum_of_terms {
    template <class C> static __device__ __forceinline__ C take(C sum, C x, C p) { return sum + pow(fabs(x), p); }
    static __device__ double finish(double sum, double p) { return pow(sum, 1.0 / p); }
};
struct largest {
    template <class C> static __device__ __forceinline__ C take(C sum, C x, C) { return (C)plus(sum, fabs(x)); }
    static __device__ __forceinline__ double plus(double a, double b) { return b > a || b != b ? b : a; }
    static __device__ double finish(double sum, double) { return sum; }
};

template <class N> __device__ double over_block(double mine) {
    __shared__ double sums[256];
    sums[threadIdx.x] = mine;
    for (int half = 128; half; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] = N::plus(sums[threadIdx.x], sums[threadIdx.x + half]);
    }
    return sums[0];
}
"""


def _norm_body(norm: str, ctype: str, capacity: int) -> str:
    return f"""{_TERMS}
extern "C" __global__ void __launch_bounds__(256) norm_parts(
    const __grid_constant__ table<1, {capacity}> t, double* made, double order,
    const __grid_constant__ sizes<{capacity}> s
) {{
    typedef compute_t<{ctype}> C;
    C sum = 0;
    for_each<1, 0>(t, chunk_of<{ctype}>(s), [&](C (&x)[1]) {{ sum = {norm}::take(sum, x[0], (C)order); }});
    double total = over_block<{norm}>(sum);
    if (threadIdx.x == 0) made[s.blocks_before + blockIdx.x] = total;
}}"""


def _finish_body(norm: str, ctype: str) -> str:
    return f"""{PRELUDE}{_TERMS}
extern "C" __global__ void __launch_bounds__(256) norm_total(
    {ctype}* out, const double* made, double order, i64 count
) {{
    double sum = 0;
    for (i64 i = threadIdx.x; i < count; i += 256) sum = {norm}::plus(sum, made[i]);
    sum = over_block<{norm}>(sum);
    if (threadIdx.x == 0) *out = cast<{ctype}>({norm}::finish(sum, order));
}}"""


@prepares(optim._total_norm, keys.CUDA)
def total_norm(request: Request) -> Launch | None:
    """Two launches: a partial norm per block, and their combination; always in the same order."""
    tensors, order = request.args
    if any(not meta.dtype.is_floating_point for meta in tensors) or not order > 0:
        return None
    norm, backend, out = _NORMS.get(order, "power"), request.backend, request.outs[0]
    lists = Lists([tensors], [0], [])
    count = lists.blocks
    first = lists.prepare(Kernel("norm_parts", partial(_norm_body, norm), "Pd"))
    second = load(_finish_body(norm, CTYPES[out.dtype]), "norm_total").prepare(
        1, 256, "PP", [("double", order), ("i64", count)]
    )
    scratch = Meta.of((max(count, 1),), dtypes.float64, backend.device)

    def launch(args: Sequence[Any], outs: Any) -> None:
        made = backend.empty(scratch)
        at = made.storage.block.pointer
        first(backend.stream, args, at, order)
        second(backend.stream, address(outs[0]), at)

    return launch


def _clip_body(norm: str, ctype: str, capacity: int) -> str:
    return f"""
extern "C" __global__ void __launch_bounds__(256) clip(
    const __grid_constant__ table<1, {capacity}> t, const {norm}* norm, double most,
    const __grid_constant__ sizes<{capacity}> s
) {{
    typedef compute_t<{ctype}> C;
    typedef compute_t<{norm}> D;
    D factor = (D)most / (widen(*norm) + (D)1e-6);
    if (factor >= 1) return;
    for_each<1, 1>(t, chunk_of<{ctype}>(s), [&](C (&x)[1]) {{ x[0] *= (C)factor; }});
}}"""


@prepares(optim._clip_to_norm_, keys.CUDA)
def clip_to_norm(request: Request) -> Launch | None:
    tensors, norm, _ = request.args
    if any(not meta.dtype.is_floating_point for meta in (*tensors, norm)):
        return None
    run = Lists([tensors], [0], [0]).prepare(Kernel("clip", partial(_clip_body, CTYPES[norm.dtype]), "Pd"))
    backend = request.backend
    return lambda args, outs: run(backend.stream, args, address(args[1]), args[2])


def _unscale_body(scales: bool, ctype: str, capacity: int) -> str:
    scaling = "if (factor != 1) x[0] *= factor;" if scales else ""
    return f"""
extern "C" __global__ void __launch_bounds__(256) unscale(
    const __grid_constant__ table<1, {capacity}> t, float* found_inf, const float* scale,
    const __grid_constant__ sizes<{capacity}> s
) {{
    typedef compute_t<{ctype}> C;
    C factor = {"*scale" if scales else "1"};
    bool all_finite = true;
    for_each<1, {int(scales)}>(t, chunk_of<{ctype}>(s), [&](C (&x)[1]) {{
        all_finite = all_finite && isfinite(x[0]);
        {scaling}
    }});
    if (!all_finite) *found_inf = 1.0f;
}}"""


@prepares(amp._amp_foreach_non_finite_check_and_unscale_, keys.CUDA)
def check_and_unscale(request: Request) -> Launch | None:
    tensors, _, inv_scale = request.args
    scales, backend = inv_scale is not None, request.backend
    run = Lists([tensors], [0], [0] if scales else []).prepare(Kernel("unscale", partial(_unscale_body, scales), "PP"))
    return lambda args, outs: run(backend.stream, args, address(args[1]), address(args[2]))


_SCALE = r"""
extern "C" __global__ void update_scale(
    float* scale, int* tracker, const float* found_inf, double growth, double backoff, i64 interval
) {
    if (*found_inf != 0) {
        *scale = *scale * (float)backoff;
        *tracker = 0;
        return;
    }
    int counted = *tracker + 1;
    *tracker = counted == interval ? 0 : counted;
    if (counted != interval) return;
    float grown = *scale * (float)growth;
    if (isfinite(grown)) *scale = grown;
}"""


@prepares(amp._amp_update_scale_, keys.CUDA)
def update_scale(request: Request) -> Launch | None:
    backend, fire = request.backend, load(PRELUDE + _SCALE, "update_scale").prepare(1, 1, "PPPddq")

    def launch(args: Sequence[Any], _: Any) -> None:
        scale, tracker, found_inf, growth, backoff, interval = args
        fire(backend.stream, address(scale), address(tracker), address(found_inf), growth, backoff, interval)

    return launch
