"""Adam and AdamW for a whole parameter list: one small launch for the step counts, and one over all elements.

The first launch computes, for every tensor, the bias-corrected learning rate, the root of the second bias correction,
and the decay; nothing is read by the host. If few blocks do all the work, one launch does both: every block computes
these numbers for its own tensor, and the last block increments the step counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from server.engine import keys
from server.engine.cuda.reduce.launch import counters
from server.engine.cuda.rows.rowwise import byte_offset
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import PRELUDE
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import optim as ops

from .multi_tensor import CAPACITIES, THREADS, Kernel, Lists, address, capacity_of

_RATES = (dtypes.float32, dtypes.float64)
_MOST_MERGED = 512
"""The most blocks for which every block computes the bias corrections itself."""
_COUNTING = r"""
// made: the learning rate over the first bias correction, the root of the second one, and the decay
__device__ __forceinline__ void decide(
    double* made, float number, const void* lr_at, double lr, double beta1, double beta2, double decay, int lr_is_double
) {
    double step = number;
    if (lr_at) lr = lr_is_double ? *(const double*)lr_at : *(const float*)lr_at;
    made[0] = lr / (1.0 - pow(beta1, step));
    made[1] = sqrt(1.0 - pow(beta2, step));
    made[2] = lr * decay;
}
"""
_STEPS = r"""
template <int N> struct counts { float* counted[N]; const float* read[N]; };

template <int N> __device__ void count(
    const counts<N>& t, double* made, const void* lr_at, double lr, double beta1, double beta2, double decay,
    const float* found_inf, int lr_is_double, int tensors
) {
    if (found_inf && *found_inf != 0) return;
    for (int i = threadIdx.x; i < tensors; i += blockDim.x)
        if (t.counted[i]) *t.counted[i] += 1.0f;
    __syncthreads();
    for (int i = threadIdx.x; i < tensors; i += blockDim.x)
        decide(made + 3 * i, *t.read[i], lr_at, lr, beta1, beta2, decay, lr_is_double);
}
"""

_UPDATE = r"""
template <class T, int L, int N, bool MAXIMIZE, bool DECOUPLED, bool SCALED>
__device__ __forceinline__ void adapt(
    const table<L, N>& t, const chunk_t<T>& p, const double* made, double beta1_, double beta2_, double decay_,
    double eps_, const float* grad_scale
) {
    typedef compute_t<T> C;
    C rate = made[0], root = made[1], shrink = made[2], beta2 = beta2_, decay = decay_, eps = eps_;
    C taken1 = 1.0 - beta1_, taken2 = 1.0 - beta2_, scale = SCALED ? *grad_scale : 1.0f;
    for_each<L == 5 ? 31 : 15, (L == 5 ? 29 : 13) | (SCALED ? 2 : 0)>(t, p, [&](C (&x)[L]) {
        if (SCALED) x[1] /= scale;
        C grad = MAXIMIZE ? -x[1] : x[1];
        if (decay != 0) {
            if (DECOUPLED) x[0] -= shrink * x[0];
            else grad += decay * x[0];
        }
        x[2] += taken1 * (grad - x[2]);
        x[3] = beta2 * x[3] + taken2 * grad * grad;
        C square = x[3];
        if (L == 5) square = x[L - 1] = (square > x[L - 1] || square != square) ? square : x[L - 1];
        x[0] -= rate * x[2] / (sqrt(square) / root + eps);
    });
}
"""
_MERGED = r"""
template <int L, int N> struct stepped { table<L, N> tensors; const float* read[N]; float* counted[N]; };

// The last block increments the step counts, when no block reads them any more; the ticket is 0 before and after.
template <int L, int N> __device__ void count_last(const stepped<L, N>& t, u32* ticket, int tensors) {
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(ticket, 1) + 1 == gridDim.x;
        if (is_last) *ticket = 0;
    }
    __syncthreads();
    if (is_last && threadIdx.x < tensors && t.counted[threadIdx.x]) *t.counted[threadIdx.x] += 1.0f;
}
"""


def _body(lists: int, flags: str, ctype: str, capacity: int) -> str:
    return f"""{_UPDATE}
extern "C" __global__ void __launch_bounds__(256) adapt(
    const __grid_constant__ table<{lists}, {capacity}> t, const double* made, double beta1, double beta2, double decay,
    double eps, const float* grad_scale, const float* found_inf, const __grid_constant__ sizes<{capacity}> s
) {{
    if (found_inf && *found_inf != 0) return;
    chunk_t<{ctype}> p = chunk_of<{ctype}>(s);
    made += 3 * (s.tensors_before + p.tensor);
    adapt<{ctype}, {lists}, {capacity}, {flags}>(t, p, made, beta1, beta2, decay, eps, grad_scale);
}}"""


def _merged_body(lists: int, flags: str, advances: bool, ctype: str, capacity: int) -> str:
    counting = "count_last(t, ticket, s.count);" if advances else ""
    return f"""{_UPDATE}{_COUNTING}{_MERGED}
extern "C" __global__ void __launch_bounds__(256) adapt(
    const __grid_constant__ stepped<{lists}, {capacity}> t, const void* lr_at, double lr, int lr_is_double,
    double beta1, double beta2, double decay, double eps, const float* grad_scale, const float* found_inf, u32* ticket,
    const __grid_constant__ sizes<{capacity}> s
) {{
    if (found_inf && *found_inf != 0) return;
    chunk_t<{ctype}> p = chunk_of<{ctype}>(s);
    __shared__ double made[3];
    if (threadIdx.x == 0)
        decide(made, *t.read[p.tensor] + {int(advances)}.0f, lr_at, lr, beta1, beta2, decay, lr_is_double);
    __syncthreads();
    adapt<{ctype}, {lists}, {capacity}, {flags}>(t.tensors, p, made, beta1, beta2, decay, eps, grad_scale);
    {counting}
}}"""


def _counting(capacity: int) -> Callable[..., None]:
    text = f"""{_COUNTING}{_STEPS}
extern "C" __global__ void __launch_bounds__(256) count_steps(
    const __grid_constant__ counts<{capacity}> t, double* made, const void* lr_at, double lr, double beta1,
    double beta2, double decay, const float* found_inf, int lr_is_double, int tensors
) {{ count(t, made, lr_at, lr, beta1, beta2, decay, found_inf, lr_is_double, tensors); }}"""
    return load(PRELUDE + text, "count_steps").prepare(1, 256, "PPddddPii", table=2 * capacity)


def reads(rate: Any, *flags: Meta | None) -> bool:
    """Whether tensors of one element are of the types that the kernels read."""
    known = isinstance(rate, (int, float)) or (isinstance(rate, Meta) and rate.dtype in _RATES)
    return known and all(flag is None or flag.dtype is dtypes.float32 for flag in flags)


def rate_of(lr: Any) -> tuple[int, float, int]:
    """A rate as the kernels take it: the address of a tensor, or the number; whether the tensor is double."""
    if isinstance(lr, (int, float)):
        return 0, float(lr), 0
    return address(lr), 0.0, int(lr.meta.dtype is dtypes.float64)


class _Steps:
    """Counts steps up, where asked to, and works out what depends on them; in the order of the lists' parts."""

    def __init__(self, request: Request, lists: Lists) -> None:
        self._backend = request.backend
        self._advances: bool = request.args[15]
        order = [index for part in lists.parts for index in part.indices]
        left = set(range(len(request.args[5]))).difference(order)
        self._order = [*order, *sorted(left)] if self._advances else order
        self._offsets = [byte_offset(meta) for meta in request.args[5]]
        starts = range(0, len(self._order), CAPACITIES[-1])
        counts = [min(len(self._order) - start, CAPACITIES[-1]) for start in starts]
        self._chunks = [
            (start, count, capacity_of(count), _counting(capacity_of(count)))
            for start, count in zip(starts, counts, strict=True)
        ]
        self._made = Meta.of((3 * max(len(self._order), 1),), dtypes.float64, self._backend.device)

    def __call__(self, args: Sequence[Any], found_inf: int) -> Any:
        made = self._backend.empty(self._made)
        at, steps, offsets = made.storage.block.pointer, args[5], self._offsets
        read = [steps[i].storage.block.pointer + offsets[i] for i in self._order]
        counted = _once(read) if self._advances else [0] * len(read)
        lr_at, lr, lr_is_double = rate_of(args[6])
        for start, count, capacity, fire in self._chunks:
            padding, end = [0] * (capacity - count), start + count
            fire(
                self._backend.stream, *counted[start:end], *padding, *read[start:end], *padding, at + 24 * start,
                lr_at, lr, args[7], args[8], args[9], found_inf, lr_is_double, count,
            )  # fmt: skip
        return made


def _once(addresses: list[int]) -> list[int]:
    """The addresses, with 0 in place of a repeated one: a step count that parameters share is incremented once."""
    if len(set(addresses)) == len(addresses):
        return addresses
    seen: set[int] = set()
    return [0 if address in seen or seen.add(address) else address for address in addresses]  # type: ignore[func-returns-value]


def _adam(decoupled: bool, request: Request) -> Launch | None:
    amsgrad, maximize, grad_scale, found_inf = request.args[11:15]
    if not reads(request.args[6], grad_scale, found_inf):
        return None
    at = range(5 if amsgrad else 4)
    lists = Lists([request.args[i] for i in at], at, [i for i in at if i != 1 or grad_scale is not None])
    flags = ", ".join("true" if flag else "false" for flag in (maximize, decoupled, grad_scale is not None))
    if _is_small(lists, request.args[5]):
        return _merged(request, lists, flags)
    update = lists.prepare(Kernel("adapt", partial(_body, len(at), flags), "PddddPP"))
    steps, backend = _Steps(request, lists), request.backend

    def launch(args: Sequence[Any], _: Any) -> None:
        _, beta1, beta2, decay, eps = args[6:11]
        found_inf = address(args[14])
        made = steps(args, found_inf)
        update(
            backend.stream, args, made.storage.block.pointer, beta1, beta2, decay, eps, address(args[13]), found_inf
        )  # fmt: skip

    return launch


def _is_small(lists: Lists, steps: Sequence[Meta]) -> bool:
    """Whether one launch may update the elements and the step counts."""
    is_small = lists.is_plain and lists.blocks <= _MOST_MERGED and len(steps) <= THREADS
    return is_small and not any([byte_offset(meta) for meta in steps])


def _merged(request: Request, lists: Lists, flags: str) -> Launch:
    advances, count = request.args[15], 5 if request.args[11] else 4
    body = partial(_merged_body, count, flags, advances)
    update, backend = lists.prepare(Kernel("adapt", body, "PdiddddPPP"), extra=2), request.backend
    uncounted = [0] * len(request.args[5])

    def launch(args: Sequence[Any], _: Any) -> None:
        lr, beta1, beta2, decay, eps = args[6:11]
        read = [step.storage.block.pointer for step in args[5]]
        counted = _once(read) if advances else uncounted
        update(
            backend.stream, args, *rate_of(lr), beta1, beta2, decay, eps, address(args[13]), address(args[14]),
            counters(backend), extra=(read, counted),
        )  # fmt: skip

    return launch


prepares(ops._fused_adam_, keys.CUDA)(partial(_adam, False))
prepares(ops._fused_adamw_, keys.CUDA)(partial(_adam, True))
