"""The CUDA text of products of few rows with what a program computes of the rows before and of the results after.

Each block normalizes the rows for itself, while the weights that it reads first are on their way.
"""

from __future__ import annotations

from typing import NamedTuple

from server.engine.cuda.rows.rowwise import ROWS
from server.engine.cuda.runtime.overlapping import OVERLAPPING
from server.engine.cuda.runtime.prelude import PRELUDE

from .few_rows_text import COLUMNS, WARPS

STAGING = r"""
// The sum over a block for each of M rows; all threads get them. ``parts`` must not be used again without a barrier.
template <int M> __device__ __forceinline__ void sum_over_block(float (&sum)[M], float (*parts)[M]) {
    #pragma unroll
    for (int m = 0; m < M; ++m) sum[m] = row_reduce<Sum, 32>(sum[m], (float*)0);
    if (threadIdx.x % 32 == 0)
        #pragma unroll
        for (int m = 0; m < M; ++m) parts[threadIdx.x / 32][m] = sum[m];
    __syncthreads();
    #pragma unroll
    for (int m = 0; m < M; ++m) {
        sum[m] = 0;
        #pragma unroll
        for (int warp = 0; warp < WARPS; ++warp) sum[m] += parts[warp][m];
    }
}

// The normalized rows in shared memory, rounded as a kernel that writes them rounds; ``scale`` and ``shift`` may be 0.
template <class T, class W, class B, int V, int M, int ITEMS, bool RMS> __device__ __forceinline__ void stage_rows(
    T* staged, const T* x, int apart, const W* scale, const B* shift, int rows, int depth, float eps
) {
    __shared__ float parts[2][WARPS][M];
    vec<T, V> held[M][ITEMS];
    float centre[M] = {}, square[M] = {};
    #pragma unroll
    for (int m = 0; m < M; ++m)
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int k = (i * WARPS * 32 + threadIdx.x) * V;
            if (k < depth) held[m][i] = read<V>(x + min(m, rows - 1) * apart + k);
        }
    vec<W, V> w[ITEMS];
    vec<B, V> b[ITEMS];
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int k = (i * WARPS * 32 + threadIdx.x) * V;
        if (scale && k < depth) w[i] = read<V>(scale + k);
        if (shift && k < depth) b[i] = read<V>(shift + k);
    }
    const auto each = [&](auto take) {
        #pragma unroll
        for (int m = 0; m < M; ++m)
            #pragma unroll
            for (int i = 0; i < ITEMS; ++i)
                if ((i * WARPS * 32 + threadIdx.x) * V < depth)
                    #pragma unroll
                    for (int e = 0; e < V; ++e) take(m, widen(held[m][i].at[e]));
    };
    if (!RMS) {
        each([&](int m, float v) { centre[m] += v; });
        sum_over_block(centre, parts[0]);
        #pragma unroll
        for (int m = 0; m < M; ++m) centre[m] /= depth;
    }
    each([&](int m, float v) { square[m] += (v - centre[m]) * (v - centre[m]); });
    sum_over_block(square, parts[1]);
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int k = (i * WARPS * 32 + threadIdx.x) * V;
        if (k >= depth) continue;
        #pragma unroll
        for (int m = 0; m < M; ++m) {
            const float factor = row_rsqrt(square[m] / depth + eps);
            vec<T, V> result;
            #pragma unroll
            for (int e = 0; e < V; ++e) {
                float v = (widen(held[m][i].at[e]) - centre[m]) * factor;
                if (scale) v *= (float)widen(w[i].at[e]);
                if (shift) v += (float)widen(b[i].at[e]);
                result.at[e] = cast<T>(v);
            }
            if (m < rows) write<V>(staged + m * depth + k, result);
        }
    }
    __syncthreads();
}
"""


class PartText(NamedTuple):
    """What the text of one part depends on.

    ``biases`` says of each product whether something is added to it. ``loads`` are the types of the kernel's operands,
    and the number of the product that each is, -1 for memory; ``stores`` are types. ``numbers`` are kinds of what the
    kernel takes besides; ``applying`` is the text of ``apply``.
    """

    biases: tuple[bool, ...]
    loads: tuple[tuple[str, int], ...]
    stores: tuple[str, ...]
    numbers: tuple[str, ...]
    applying: str


class ProductsText(NamedTuple):
    """All that the text of a kernel depends on; ``norm`` is "", "layer" or "rms", of ``items`` vectors per thread.

    ``scale`` and ``shift`` are the types of its parameters, empty where there are none.
    """

    kind: str
    vector: int
    rows: int
    split: int
    norm: str
    items: int
    scale: str
    shift: str
    library: str
    parts: tuple[PartText, ...]


NAME = "products"


def text_of(kernel: ProductsText) -> str:
    """The whole source; its kernel is called ``products``."""
    parts = "".join([f"\nnamespace part{p} {{{part.applying}}}\n" for p, part in enumerate(kernel.parts)])
    functions = "".join([_part(kernel, p) for p in range(len(kernel.parts))])
    passed = ", ".join(_names(kernel))
    branches = [f"if (blockIdx.x < s.at[{_PART * p}]) part{p}_of({passed});" for p in range(len(kernel.parts) - 1)]
    last = f"part{len(kernel.parts) - 1}_of({passed});"
    steps = f"\nstruct steps_t {{ i64 at[{len(steps_of(kernel))}]; }};\n"
    library = f"{OVERLAPPING}{ROWS}{COLUMNS}{STAGING if kernel.norm else ''}{kernel.library}"
    bounds, parameters = f"{WARPS * 32}, {held_blocks(kernel)}", ", ".join(_parameters(kernel))
    return (
        f"{PRELUDE}{library}{parts}{steps}{functions}"
        f'\nextern "C" __global__ void __launch_bounds__({bounds}) {NAME}({parameters}) {{\n'
        f"    let_next_begin();\n    {' else '.join([*branches, last])}\n}}\n"
    )


def held_blocks(kernel: ProductsText) -> int:
    """How many blocks a multiprocessor is to hold at once, by the registers that they need."""
    return 4 if kernel.rows * max([len(part.biases) for part in kernel.parts]) == 1 and kernel.items < 4 else 2


_PART = 3
"""Numbers of each part at the beginning of ``steps_t``: the end of its blocks, how many these are, its columns."""


def steps_of(kernel: ProductsText) -> list[str]:
    """What the numbers in ``steps_t`` are, in order: names of pointers stand for their steps."""
    names = [f"{what} {p}" for p in range(len(kernel.parts)) for what in ("end", "blocks", "columns")]
    names += ["depth", "apart"]
    for p, part in enumerate(kernel.parts):
        names += [f"w{p}_{j}" for j in range(len(part.biases))]
        names += [f"b{p}_{j}" for j, is_added in enumerate(part.biases) if is_added]
        for pointer in [*_operands(p, part), *_outs(p, part)]:
            names += [f"{pointer} row", f"{pointer} column"]
    return names


def _operands(p: int, part: PartText) -> list[str]:
    return [f"in{p}_{k}" for k, (_, product) in enumerate(part.loads) if product < 0]


def _outs(p: int, part: PartText) -> list[str]:
    return [f"out{p}_{k}" for k in range(len(part.stores))]


def pointers_of(kernel: ProductsText) -> list[tuple[str, str]]:
    """Types and names of the addresses that the kernel takes, in order."""
    kind = kernel.kind
    pointers = [(f"const {kind}*", "x")]
    if kernel.norm:
        held = ((kernel.scale, "scale"), (kernel.shift, "shift"))
        pointers += [(f"const {of_type or kind}*", name) for of_type, name in held]
    for p, part in enumerate(kernel.parts):
        pointers += [(f"const {kind}*", f"w{p}_{j}") for j in range(len(part.biases))]
        pointers += [(f"const {kind}*", f"b{p}_{j}") for j, is_added in enumerate(part.biases) if is_added]
        pointers += [(f"const {held}*", f"in{p}_{k}") for k, (held, product) in enumerate(part.loads) if product < 0]
        pointers += [(f"{held}*", name) for held, name in zip(part.stores, _outs(p, part))]
    return pointers


def _numbers(kernel: ProductsText) -> list[tuple[str, str]]:
    return [(kind, f"n{p}_{k}") for p, part in enumerate(kernel.parts) for k, kind in enumerate(part.numbers)]


def _parameters(kernel: ProductsText) -> list[str]:
    numbers = [*_numbers(kernel), ("int", "rows"), ("float", "eps"), ("const steps_t", "s")]
    return [f"{kind} {name}" for kind, name in [*pointers_of(kernel), *numbers]]


def _names(kernel: ProductsText) -> list[str]:
    return [name for _, name in [*pointers_of(kernel), *_numbers(kernel)]] + ["rows", "eps", "s"]


def _part(kernel: ProductsText, p: int) -> str:
    """The function of the blocks of one part."""
    part, at = kernel.parts[p], {name: f"s.at[{number}]" for number, name in enumerate(steps_of(kernel))}
    kind, count = kernel.kind, len(part.biases)
    place = "".join([f"    weights.w[{j}] = w{p}_{j} + column * {at[f'w{p}_{j}']};\n" for j in range(count)])
    begin = f"{place}    weights.begin(column < columns ? depth : 0);\n"
    read = "    weights.read();\n"
    rows = f"    const {kind}* rows_of = x;\n    const int apart = (int){at['apart']};\n"
    if kernel.norm:
        scale, shift = kernel.scale or kind, kernel.shift or kind
        types = f"{kind}, {scale}, {shift}, {kernel.vector}, {kernel.rows}, {kernel.items}"
        rows = f"""    extern __shared__ __align__(16) unsigned char shared_bytes[];
    {kind}* rows_of = ({kind}*)shared_bytes;
    const int apart = depth;
    stage_rows<{types}, {"true" if kernel.norm == "rms" else "false"}>(
        rows_of, x, (int){at["apart"]}, {"scale" if kernel.scale else f"(const {kind}*)0"},
        {"shift" if kernel.shift else f"(const {kind}*)0"}, rows, depth, eps
    );
"""
    first = f"(blockIdx.x - {at[f'end {p - 1}']})" if p else "blockIdx.x"
    return f"""
__device__ __forceinline__ void part{p}_of({", ".join(_parameters(kernel))}) {{
    constexpr int SHARED_BY = {kernel.split}, EACH = WARPS / SHARED_BY;
    __shared__ float parts[2][WARPS][{count * kernel.rows}];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int columns = (int){at[f"columns {p}"]}, depth = (int){at["depth"]}, step = (int){at[f"blocks {p}"]} * EACH;
    int column = (int){first} * EACH + warp / SHARED_BY;
    columns_t<{kind}, {kernel.vector}, {count}, SHARED_BY> weights;
{begin}    weights.fetch_first();
    wait_for_earlier();
{read}{rows}    for (int turn = 0;; turn ^= 1) {{
        const int done = column;
        const bool finishes = done < columns && warp % SHARED_BY == 0 && lane < rows;
{_reads(kernel, p, at)}        float sum[{count}][{kernel.rows}];
        weights.multiply(sum, rows_of, apart, rows);
        column += step;
        const bool is_last = column - warp / SHARED_BY >= columns;
        if (!is_last) {{
{_indented(begin + read)}        }}
        weights.combine(sum, parts[turn]);
{_finish(kernel, p, at)}        if (is_last) break;
    }}
}}
"""


def _indented(lines: str) -> str:
    return "".join([f"        {line}\n" for line in lines.splitlines()])


def _reads(kernel: ProductsText, p: int, at: dict[str, str]) -> str:
    """What is read of memory for the result of a lane, before the sums that it waits for."""
    part, lines = kernel.parts[p], []
    for j, is_added in enumerate(part.biases):
        if is_added:
            lines.append(
                f"        const float added{j} = finishes ? (float)widen(b{p}_{j}[done * {at[f'b{p}_{j}']}]) : 0.0f;\n"
            )
    for k, (held, product) in enumerate(part.loads):
        if product < 0:
            name = f"in{p}_{k}"
            place = f"{name}[lane * {at[f'{name} row']} + done * {at[f'{name} column']}]"
            lines.append(f"        {held} r{k};\n        if (finishes) r{k} = {place};\n")
    return "".join(lines)


def _finish(kernel: ProductsText, p: int, at: dict[str, str]) -> str:
    """The result of a lane, and where it goes: each lane has a row."""
    part, lines = kernel.parts[p], []
    for k, (held, j) in enumerate(part.loads):
        if j >= 0:
            added = f" + added{j}" if part.biases[j] else ""
            lines.append(f"        const {held} r{k} = cast<{held}>(row_of_lane(sum[{j}], lane){added});\n")
    outs = "".join([f"            {held} o{k};\n" for k, held in enumerate(part.stores)])
    passed = [f"r{k}" for k in range(len(part.loads))] + [f"n{p}_{k}" for k in range(len(part.numbers))]
    passed += [f"o{k}" for k in range(len(part.stores))]
    writes = [
        f"            {name}[lane * {at[f'{name} row']} + done * {at[f'{name} column']}] = o{k};\n"
        for k, name in enumerate(_outs(p, part))
    ]
    return f"""{"".join(lines)}        if (finishes) {{
{outs}            part{p}::apply({", ".join(passed)});
{"".join(writes)}        }}
"""
