"""The CUDA text of fused element-wise operations: a function for each, one that applies them all, and the kernel.

Threads walk over elements as in ``pointwise_text``: flat kernels over runs of elements, strided ones find each place by
division. Knows nothing of operations; expressions come in as text.
"""

from __future__ import annotations

from typing import NamedTuple

from server.engine.cuda.runtime.geometry import INDEXING
from server.engine.cuda.runtime.prelude import PRELUDE

from .pointwise_text import THREADS, Operand


class Function(NamedTuple):
    """One operation: its expression over the names of its operands and numbers, and the type it computes in.

    ``operands`` have the register that each name stands for, ``numbers`` the kernel's parameter; ``out`` is the type of
    the register that the result goes to.
    """

    name: str
    expression: str
    operands: tuple[tuple[Operand, int], ...]
    numbers: tuple[tuple[str, str, str], ...]
    computed: str
    out: str
    is_heavy: bool


class FusedText(NamedTuple):
    """All that the text of a kernel depends on; ``layout`` is empty for flat kernels.

    ``loads`` are the types of the operands in memory, and whether a thread's vector is all of one element; ``stores``
    the types of what is written, and the registers that go there. ``numbers`` are kinds and names of parameters.
    """

    functions: tuple[Function, ...]
    library: str
    loads: tuple[tuple[str, bool], ...]
    stores: tuple[tuple[str, int], ...]
    numbers: tuple[tuple[str, str], ...]
    layout: str
    width: int


def text_of(kernel: FusedText) -> str:
    """The whole source; its kernel is called ``fused``."""
    body = _strided(kernel) if kernel.layout else _flat(kernel)
    return f"{PRELUDE}{INDEXING if kernel.layout else ''}{functions_of(kernel)}{body}"


def functions_of(kernel: FusedText) -> str:
    """The functions of all operations, and ``apply``, which applies them to one element of each operand."""
    functions = "".join([_function(f, k) for k, f in enumerate(kernel.functions, len(kernel.loads))])
    return f"{kernel.library}{functions}{_apply(kernel)}"


def _function(function: Function, register: int) -> str:
    taken = [f"{operand.held} {operand.name}_" for operand, _ in function.operands]
    taken += [f"{kind} {name}" for kind, name, _ in function.numbers]
    read = [f"    {o.computed} {o.name} = cast<{o.computed}>({o.name}_);\n" for o, _ in function.operands]
    inlined = "__noinline__" if function.is_heavy else "__forceinline__"
    return f"""
__device__ {inlined} {function.out} {function.name}_{register}({", ".join(taken)}) {{
    typedef {function.computed} T;
    typedef {function.out} OUT;
{"".join(read)}    return cast<OUT>({function.expression});
}}
"""


def _apply(kernel: FusedText) -> str:
    """The function of one element of each operand."""
    first = len(kernel.loads)
    taken = [f"const {held} r{k}" for k, (held, _) in enumerate(kernel.loads)]
    taken += [f"const {kind} {name}" for kind, name in kernel.numbers]
    taken += [f"{kind}& o{k}" for k, (kind, _) in enumerate(kernel.stores)]
    lines = []
    for k, function in enumerate(kernel.functions, first):
        arguments = [f"r{register}" for _, register in function.operands] + [name for _, _, name in function.numbers]
        lines.append(f"    const {function.out} r{k} = {function.name}_{k}({', '.join(arguments)});\n")
    lines += [f"    o{k} = cast<{kind}>(r{register});\n" for k, (kind, register) in enumerate(kernel.stores)]
    return f"\n__device__ __forceinline__ void apply({', '.join(taken)}) {{\n{''.join(lines)}}}\n"


def signature(kernel: FusedText, rest: str, *before: str) -> str:
    """The kernel's head: addresses of results and operands, and the numbers, with what it takes besides."""
    outs = [f"{kind}* out{k}" for k, (kind, _) in enumerate(kernel.stores)]
    pointers = [f"const {held}* p{k}" for k, (held, _) in enumerate(kernel.loads)]
    numbers = [f"{kind} {name}" for kind, name in kernel.numbers]
    parameters = ", ".join([*before, *outs, *pointers, *numbers, rest])
    return f'extern "C" __global__ void __launch_bounds__({THREADS}) fused({parameters})'


def applied(kernel: FusedText, elements: list[str], targets: list[str]) -> str:
    """A call of ``apply``."""
    return f"apply({', '.join([*elements, *[name for _, name in kernel.numbers], *targets])});"


def _flat(kernel: FusedText) -> str:
    width, counted = kernel.width, range(len(kernel.stores))
    reads, elements, ends = [], [], []
    singles = []
    for k, (held, is_single) in enumerate(kernel.loads):
        if is_single:
            singles.append(f"    const {held} v{k} = *p{k};\n")
        else:
            reads.append(
                f"        const vec<{held}, {width}> v{k} = ((const vec<{held}, {width}>*)(p{k} + head))[i];\n"
            )
        elements.append(f"v{k}" if is_single else f"v{k}.at[j]")
        ends.append(f"v{k}" if is_single else f"p{k}[i]")
    made = [f"        vec<{kind}, {width}> made{k};\n" for k, (kind, _) in enumerate(kernel.stores)]
    writes = [
        f"        ((vec<{kind}, {width}>*)(out{k} + head))[i] = made{k};\n" for k, (kind, _) in enumerate(kernel.stores)
    ]
    return f"""
{signature(kernel, "i64 count, int head, int tail")} {{
    const i64 i = (i64)blockIdx.x * {THREADS} + threadIdx.x;
{"".join(singles)}    if (i < count) {{
{"".join(reads)}{"".join(made)}#pragma unroll
        for (int j = 0; j < {width}; ++j)
            {applied(kernel, elements, [f"made{k}.at[j]" for k in counted])}
{"".join(writes)}    }}
    if (blockIdx.x == 0 && threadIdx.x < head + tail) {{
        const i64 i = threadIdx.x < head ? threadIdx.x : count * {width} + threadIdx.x;
        {applied(kernel, ends, [f"out{k}[i]" for k in counted])}
    }}
}}
"""


def _strided(kernel: FusedText) -> str:
    width, outs = kernel.width, len(kernel.stores)
    reads, elements = [], []
    for k, (held, is_single) in enumerate(kernel.loads):
        kind = held if is_single else f"vec<{held}, {width}>"
        reads.append(f"    const {kind} v{k} = *(const {kind}*)(p{k} + at[{outs + k}]);\n")
        elements.append(f"v{k}" if is_single else f"v{k}.at[j]")
    made = [f"    vec<{kind}, {width}> made{k};\n" for k, (kind, _) in enumerate(kernel.stores)]
    writes = [
        f"    *(vec<{kind}, {width}>*)(out{k} + at[{k}]) = made{k};\n" for k, (kind, _) in enumerate(kernel.stores)
    ]
    return f"""
typedef {kernel.layout} layout;
{signature(kernel, "const layout places, layout::index count")} {{
    typedef layout::index index;
    const index i = (index)blockIdx.x * {THREADS} + threadIdx.x;
    if (i >= count) return;
    index at[{outs + len(kernel.loads)}];
    places.find(i, at);
{"".join(reads)}{"".join(made)}#pragma unroll
    for (int j = 0; j < {width}; ++j)
        {applied(kernel, elements, [f"made{k}.at[j]" for k in range(outs)])}
{"".join(writes)}}}
"""
