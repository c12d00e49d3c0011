"""The CUDA text of an element-wise kernel: what is computed of one element, and how threads walk over all of them.

Flat kernels walk over runs of elements, strided ones find each place by division. Both move vectors where they can, and
start all loads of a thread before its first store. Knows nothing of operations; expressions come in as text.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from server.engine.cuda.runtime.geometry import INDEXING
from server.engine.cuda.runtime.prelude import PRELUDE

THREADS = 256


class Operand(NamedTuple):
    """A tensor that is read: its parameter's name, its elements' type, and the type that it is computed in.

    ``is_single`` says that a thread's vectors are all of one element: it is broadcast along the innermost dimension.
    """

    name: str
    held: str
    computed: str
    is_single: bool


class Kernel(NamedTuple):
    """All that the text of a kernel depends on; ``layout`` is empty for flat kernels."""

    expression: str
    library: str
    operands: tuple[Operand, ...]
    numbers: tuple[tuple[str, str], ...]
    computed: str
    out: str
    layout: str
    width: int
    unroll: int
    is_heavy: bool


@functools.lru_cache(maxsize=4096)
def text_of(kernel: Kernel) -> str:
    """The whole source; its kernel is called ``pointwise``."""
    body = _strided(kernel) if kernel.layout else _flat(kernel)
    indexing = INDEXING if kernel.layout else ""
    return f"{PRELUDE}{indexing}{kernel.library}{_apply(kernel)}{body}"


def _apply(kernel: Kernel) -> str:
    """The function of one element."""
    taken = [f"{o.held} {o.name}_" for o in kernel.operands] + [f"{kind} {name}" for name, kind in kernel.numbers]
    read = "".join([f"    {o.computed} {o.name} = cast<{o.computed}>({o.name}_);\n" for o in kernel.operands])
    inlined = "__noinline__" if kernel.is_heavy else "__forceinline__"
    parameters = ", ".join([*taken, "i64 index"])
    return f"""
typedef {kernel.computed} T;
typedef {kernel.out} OUT;
__device__ {inlined} OUT apply({parameters}) {{
{read}    return cast<OUT>({kernel.expression});
}}
"""


def _signature(kernel: Kernel, rest: str) -> str:
    pointers = "".join([f"const {o.held}* p{k}, " for k, o in enumerate(kernel.operands)])
    numbers = "".join([f"{kind} n{k}, " for k, (_, kind) in enumerate(kernel.numbers)])
    bounds = f"__launch_bounds__({THREADS})"
    return f'extern "C" __global__ void {bounds} pointwise(OUT* out, {pointers}{numbers}{rest})'


def _applied(kernel: Kernel, elements: list[str], index: str) -> str:
    numbers = [f"n{k}" for k in range(len(kernel.numbers))]
    return f"apply({', '.join([*elements, *numbers, index])})"


def _flat(kernel: Kernel) -> str:
    width = kernel.width
    singles = [f"    const {o.held} v{k} = *p{k};\n" for k, o in enumerate(kernel.operands) if o.is_single]
    arrays = [
        f"    vec<{o.held}, {width}> v{k}[{kernel.unroll}];\n" for k, o in enumerate(kernel.operands) if not o.is_single
    ]
    loads = [
        f"            v{k}[u] = ((const vec<{o.held}, {width}>*)(p{k} + head))[i];\n"
        for k, o in enumerate(kernel.operands)
        if not o.is_single
    ]
    of_vectors = [f"v{k}" if o.is_single else f"v{k}[u].at[j]" for k, o in enumerate(kernel.operands)]
    of_ends = [f"v{k}" if o.is_single else f"p{k}[i]" for k, o in enumerate(kernel.operands)]
    return f"""
{_signature(kernel, "i64 count, int head, int tail")} {{
    const i64 first = (i64)blockIdx.x * {THREADS * kernel.unroll} + threadIdx.x;
{"".join(singles)}{"".join(arrays)}#pragma unroll
    for (int u = 0; u < {kernel.unroll}; ++u) {{
        const i64 i = first + u * {THREADS};
        if (i < count) {{
{"".join(loads)}        }}
    }}
#pragma unroll
    for (int u = 0; u < {kernel.unroll}; ++u) {{
        const i64 i = first + u * {THREADS};
        if (i < count) {{
            vec<OUT, {width}> found;
#pragma unroll
            for (int j = 0; j < {width}; ++j)
                found.at[j] = {_applied(kernel, of_vectors, f"head + i * {width} + j")};
            ((vec<OUT, {width}>*)(out + head))[i] = found;
        }}
    }}
    if (blockIdx.x == 0 && threadIdx.x < head + tail) {{
        const i64 i = threadIdx.x < head ? threadIdx.x : count * {width} + threadIdx.x;
        out[i] = {_applied(kernel, of_ends, "i")};
    }}
}}
"""


def _strided(kernel: Kernel) -> str:
    width, unroll, count = kernel.width, kernel.unroll, len(kernel.operands) + 1
    arrays, loads, elements = [], [], []
    for k, o in enumerate(kernel.operands):
        kind = o.held if o.is_single else f"vec<{o.held}, {width}>"
        arrays.append(f"    {kind} v{k}[{unroll}];\n")
        loads.append(f"            v{k}[u] = *(const {kind}*)(p{k} + at[u][{k + 1}]);\n")
        elements.append(f"v{k}[u]" if o.is_single else f"v{k}[u].at[j]")
    return f"""
typedef {kernel.layout} layout;
{_signature(kernel, "const layout places, layout::index count")} {{
    typedef layout::index index;
    const index first = (index)blockIdx.x * {THREADS * unroll} + threadIdx.x;
    index at[{unroll}][{count}];
{"".join(arrays)}#pragma unroll
    for (int u = 0; u < {unroll}; ++u) {{
        const index i = first + u * {THREADS};
        if (i < count) {{
            places.find(i, at[u]);
{"".join(loads)}        }}
    }}
#pragma unroll
    for (int u = 0; u < {unroll}; ++u) {{
        const index i = first + u * {THREADS};
        if (i < count) {{
            vec<OUT, {width}> found;
#pragma unroll
            for (int j = 0; j < {width}; ++j)
                found.at[j] = {_applied(kernel, elements, f"(i64)i * {width} + j")};
            *(vec<OUT, {width}>*)(out + at[u][0]) = found;
        }}
    }}
}}
"""
