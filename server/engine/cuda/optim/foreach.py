"""The ``_foreach_`` family, one launch per dtype: an expression over lists of tensors, and a scalar per tensor."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any

from server.engine import keys
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.ops import foreach as ops
from telegrad_protocol.ops import optim

from .multi_tensor import Kernel, Lists

EXPRESSIONS = {
    "abs": "fabs(a)", "neg": "-a", "sqrt": "sqrt(a)", "rsqrt": "(C)1 / sqrt(a)", "exp": "exp(a)", "log": "log(a)",
    "reciprocal": "(C)1 / a", "tanh": "tanh(a)", "copy_": "a", "add_number": "a + s", "sub_number": "a - s",
    "mul_number": "a * s", "div_number": "a / s", "add": "a + s * b", "sub": "a - s * b", "mul": "a * b",
    "div": "a / b", "maximum": "(a > b || a != a) ? a : b", "minimum": "(a < b || a != a) ? a : b",
    "addcmul": "a + s * b * c", "addcdiv": "a + s * (b / c)",
    "lerp_number": "s < (C)0.5 ? a + s * (b - a) : b - ((C)1 - s) * (b - a)",
}  # fmt: skip


def _body(expression: str, ctype: str, capacity: int) -> str:
    """The kernel: the first list receives the results, and the scalars lie where another list's addresses would be."""
    count = ops.EXPRESSIONS[expression] + 1
    names = "".join(f"C {name} = x[{i}]; " for i, name in enumerate("abc"[: count - 1], 1))
    return f"""
struct tables {{ table<{count}, {capacity}> t; double numbers[{capacity}]; }};
extern "C" __global__ void __launch_bounds__(256) apply(
    const __grid_constant__ tables t, const __grid_constant__ sizes<{capacity}> sizes
) {{
    typedef compute_t<{ctype}> C;
    chunk_t<{ctype}> p = chunk_of<{ctype}>(sizes);
    C s = (C)t.numbers[p.tensor];
    for_each<{(1 << count) - 2}, 1>(t.t, p, [&](C (&x)[{count}]) {{ {names}x[0] = {EXPRESSIONS[expression]}; }});
}}"""


@prepares(ops._foreach_apply_, keys.CUDA)
def apply(request: Request) -> Launch | None:
    targets, expression, *operands, _ = request.args
    count = ops.EXPRESSIONS[expression]
    at = (0, *range(2, 2 + count))
    lists = Lists([targets, *operands[:count]], at, [0])
    run = lists.prepare(Kernel("apply", partial(_body, expression)), extra=1)
    backend = request.backend

    def launch(args: Sequence[Any], _: Any) -> None:
        numbers = struct.unpack(f"{len(args[5])}Q", struct.pack(f"{len(args[5])}d", *args[5]))
        run(backend.stream, args, extra=[numbers])

    return launch


def _zero_body(ctype: str, capacity: int) -> str:
    return f"""
extern "C" __global__ void __launch_bounds__(256) zero(
    const __grid_constant__ table<1, {capacity}> t, const __grid_constant__ sizes<{capacity}> s
) {{ for_each<0, 1>(t, chunk_of<{ctype}>(s), [&](compute_t<{ctype}> (&x)[1]) {{ x[0] = 0; }}); }}"""


@prepares(optim._foreach_zero_, keys.CUDA)
def zero(request: Request) -> Launch | None:
    (tensors,) = request.args
    if any(not meta.dtype.is_floating_point for meta in tensors):
        return None
    run, backend = Lists([tensors], [0], [0]).prepare(Kernel("zero", _zero_body)), request.backend
    return lambda args, outs: run(backend.stream, args)


def _clamp_body(ctype: str, capacity: int) -> str:
    return f"""
extern "C" __global__ void __launch_bounds__(256) clamp(
    const __grid_constant__ table<1, {capacity}> t, double low, double high, const __grid_constant__ sizes<{capacity}> s
) {{
    typedef compute_t<{ctype}> C;
    C least = (C)low, most = (C)high;
    for_each<1, 1>(t, chunk_of<{ctype}>(s), [&](C (&x)[1]) {{
        C raised = x[0] < least || least != least ? least : x[0];
        x[0] = raised > most || most != most ? most : raised;
    }});
}}"""


@prepares(optim._foreach_clamp_, keys.CUDA)
def clamp(request: Request) -> Launch | None:
    tensors, _, _ = request.args
    if any(not meta.dtype.is_floating_point for meta in tensors):
        return None
    run, backend = Lists([tensors], [0], [0]).prepare(Kernel("clamp", _clamp_body, "dd")), request.backend
    return lambda args, outs: run(backend.stream, args, args[1], args[2])
