"""Stochastic gradient descent for a whole parameter list, one launch per dtype."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from server.engine import keys
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.ops import optim as ops

from .adam import rate_of, reads
from .multi_tensor import Kernel, Lists, address

_UPDATE = r"""
template <class T, int L, int N, bool MAXIMIZE, bool NESTEROV, bool FIRST, bool SCALED>
__device__ __forceinline__ void descend(
    const table<L, N>& t, const sizes<N>& s, const void* lr_at, double lr_, int lr_is_double, double decay_,
    double momentum_, double dampening, const float* grad_scale, const float* found_inf
) {
    typedef compute_t<T> C;
    if (found_inf && *found_inf != 0) return;
    if (lr_at) lr_ = lr_is_double ? *(const double*)lr_at : *(const float*)lr_at;
    C lr = lr_, decay = decay_, momentum = momentum_, taken = 1.0 - dampening, scale = SCALED ? *grad_scale : 1.0f;
    const u32 READ = L == 3 && !FIRST ? 7 : 3, WRITTEN = (L == 3 ? 5 : 1) | (SCALED ? 2 : 0);
    for_each<READ, WRITTEN>(t, chunk_of<T>(s), [&](C (&x)[L]) {
        if (SCALED) x[1] /= scale;
        C step = MAXIMIZE ? -x[1] : x[1];
        if (decay != 0) step += decay * x[0];
        if (L == 3) {
            C& buffer = x[L - 1];
            buffer = FIRST ? step : momentum * buffer + taken * step;
            step = NESTEROV ? step + momentum * buffer : buffer;
        }
        x[0] -= lr * step;
    });
}
"""


def _body(lists: int, flags: str, ctype: str, capacity: int) -> str:
    return f"""{_UPDATE}
extern "C" __global__ void __launch_bounds__(256) descend(
    const __grid_constant__ table<{lists}, {capacity}> t, const void* lr_at, double lr, int lr_is_double, double decay,
    double momentum, double dampening, const float* grad_scale, const float* found_inf,
    const __grid_constant__ sizes<{capacity}> s
) {{
    descend<{ctype}, {lists}, {capacity}, {flags}>(
        t, s, lr_at, lr, lr_is_double, decay, momentum, dampening, grad_scale, found_inf);
}}"""


@prepares(ops._fused_sgd_, keys.CUDA)
def sgd(request: Request) -> Launch | None:
    (_, _, _, _, momentum, lr, _, nesterov, maximize, is_first_step, grad_scale, found_inf) = request.args
    if not reads(lr, grad_scale, found_inf):
        return None
    at = range(3 if momentum else 2)
    lists = Lists([request.args[i] for i in at], at, [i for i in at if i != 1 or grad_scale is not None])
    choices = maximize, nesterov, is_first_step, grad_scale is not None
    flags = ", ".join("true" if flag else "false" for flag in choices)
    update = lists.prepare(Kernel("descend", partial(_body, len(at), flags), "PdidddPP"))
    backend = request.backend

    def launch(args: Sequence[Any], _: Any) -> None:
        decay, momentum, lr, dampening = args[3:7]
        update(
            backend.stream, args, *rate_of(lr), decay, momentum, dampening, address(args[10]), address(args[11])
        )  # fmt: skip

    return launch
