"""The CUDA text of kernels that draw random numbers: Philox blocks, distributions, and what is made of each number.

A thread draws whole blocks and makes the values that the host makes of the same words; see ``server.engine.random``.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from server.engine.cuda.runtime.geometry import INDEXING
from server.engine.cuda.runtime.prelude import PRELUDE

THREADS = 256

PHILOX = r"""
struct words { u32 at[4]; };
__device__ __forceinline__ words philox(u64 seed, u64 block) {
    u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = 0, c3 = 0, k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 p0 = (u64)c0 * 0xD2511F53u, p1 = (u64)c2 * 0xCD9E8D57u;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c1 = (u32)p1;
        c3 = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {c0, c1, c2, c3};
}
__device__ __forceinline__ u64 pair(words w, int k) { return w.at[2 * k] | (u64)w.at[2 * k + 1] << 32; }
__device__ __forceinline__ double open_unit(u32 w) { return __dmul_rn((double)w + 0.5, 0x1p-32); }
__device__ __forceinline__ double open_unit(u64 w) { return __dmul_rn((double)(w >> 12) + 0.5, 0x1p-52); }
"""

NORMAL = r"""
// Box and Muller's numbers to about two bits less than float has: with the accuracy of the library's functions, or in
// double as on the host, the arithmetic would take longer than the memory.
// -2 log u, u the middle of interval w of 2**32: by a polynomial of u - 1 where that is between -1/2 and 0
__device__ __forceinline__ float squared_radius(u32 w) {
    const float u = fmaf((float)(i32)w, 0x1p-32f, 0x1p-33f);  // less 1 in the upper half
    float logarithm, sum = -3.0658898f;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(logarithm) : "f"(u));
    sum = fmaf(sum, u, -3.7573247f);
    sum = fmaf(sum, u, -2.8100364f);
    sum = fmaf(sum, u, -0.529905f);
    sum = fmaf(sum, u, -0.567216f);
    sum = fmaf(sum, u, 0.48224914f);
    sum = fmaf(sum, u, -0.6675816f);
    sum = fmaf(sum, u, 0.9999836f);
    sum = fmaf(sum, u, -2.0f);
    return (i32)w < 0 ? sum * u : -1.38629436f * logarithm;
}
// sine and cosine of w / 2**32 turns: of an eighth of a turn at most, and whole quarters
__device__ __forceinline__ void circle(u32 w, float& sine, float& cosine) {
    const u32 quarters = w + 0x20000000u;  // in its highest bits
    const float x = (float)(i32)(w << 2) * (1.57079632679f * 0x1p-32f), z = x * x;
    float odd = -0.00019667414f, even = -0.00135833991f;
    odd = fmaf(odd, z, 0.00833312236f);
    odd = fmaf(odd, z, -0.166666672f);
    odd = fmaf(odd * z, x, x);
    even = fmaf(even, z, 0.0416553617f);
    even = fmaf(even, z, -0.499998868f);
    even = fmaf(even, z, 1.0f);
    const bool is_odd = quarters & 0x40000000u;
    const u32 below = quarters & 0x80000000u, left = (quarters ^ quarters << 1) & 0x80000000u;
    sine = __uint_as_float(__float_as_uint(is_odd ? even : odd) ^ below);
    cosine = __uint_as_float(__float_as_uint(is_odd ? odd : even) ^ left);
}
"""

_EACH_WORD = "#pragma unroll\n    for (int j = 0; j < 4; ++j) value[j] = {};"
_EACH_PAIR = "#pragma unroll\n    for (int j = 0; j < 2; ++j) value[j] = {};"
_NORMALS = """
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
        float radius, sine, cosine;
        asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(radius) : "f"(squared_radius(w.at[j])));
        circle(w.at[j + 1], sine, cosine);
        value[j] = radius * cosine;
        value[j + 1] = radius * sine;
    }
"""
_NORMALS64 = """
    const double radius = sqrt(-2.0 * log(open_unit(pair(w, 0))));
    double sine, cosine;
    sincospi((double)pair(w, 1) * 0x1p-63, &sine, &cosine);
    value[0] = radius * cosine;
    value[1] = radius * sine;
"""

DISTRIBUTIONS: dict[str, tuple[str, int, str]] = {
    "uniform": ("float", 4, _EACH_WORD.format("(float)(w.at[j] >> shift) * scale")),
    "uniform64": ("double", 2, _EACH_PAIR.format("(double)(pair(w, j) >> 11) * 0x1p-53")),
    "normal": ("float", 4, _NORMALS),
    "normal64": ("double", 2, _NORMALS64),
    "exponential": ("float", 4, _EACH_WORD.format("(float)(log(open_unit(w.at[j])) * factor)")),
    "exponential64": ("double", 2, _EACH_PAIR.format("log(open_unit(pair(w, j))) * factor")),
    "integers": ("i64", 4, _EACH_WORD.format("(i64)(w.at[j] % (u32)span) + low")),
    "integers64": ("i64", 2, _EACH_PAIR.format("(i64)((span ? pair(w, j) % (u64)span : pair(w, j)) + (u64)low)")),
    "words": ("u32", 4, _EACH_WORD.format("w.at[j]")),
}  # fmt: skip
"""By name: the type of a value, how many a Philox block makes, and the text that makes them of its words ``w``."""


class Drawing(NamedTuple):
    """All that the text of a kernel depends on.

    ``results`` are types of elements and expressions over the drawn ``value`` and ``input``, the element of the operand
    at the same place, if there is one. ``layout`` is empty where all are row-major.
    """

    distribution: str
    results: tuple[tuple[str, str], ...]
    operand: str
    numbers: tuple[tuple[str, str], ...]
    blocks_each: int
    layout: str


@functools.lru_cache(maxsize=1024)
def text_of(drawing: Drawing) -> str:
    """The whole source; its kernel is called ``drawing``."""
    kind, count, made = DISTRIBUTIONS[drawing.distribution]
    each = count * drawing.blocks_each
    outs = "".join([f"{held}* out{k}, " for k, (held, _) in enumerate(drawing.results)])
    source = f"const {drawing.operand}* in, " if drawing.operand else ""
    numbers = "".join([f"const {held} {name}, " for name, held in drawing.numbers])
    passed = "".join([f", const {held} {name}" for name, held in drawing.numbers])
    names = "".join([f", {name}" for name, _ in drawing.numbers])
    places = f", const {drawing.layout} places" if drawing.layout else ""
    library = PHILOX + (NORMAL if drawing.distribution == "normal" else "")
    return f"""{PRELUDE}{INDEXING}{library}
__device__ __forceinline__ void make(words w, {kind}* value{passed}) {{
{made}
}}
extern "C" __global__ void __launch_bounds__({THREADS}) drawing(
    u64 seed, u64 first, const u64* state, {outs}{source}{numbers}i64 count{places}) {{
    if (state) {{  // a graph: what is counted from changes between its launches
        seed = state[0];
        first += state[1];
    }}
    const i64 thread = (i64)blockIdx.x * {THREADS} + threadIdx.x, start = thread * {each};
    if (start >= count) return;
    {kind} drawn[{each}];
{_walk(drawing, each, count, names)}}}
"""


def _walk(drawing: Drawing, each: int, count: int, names: str) -> str:
    drawn = f"""#pragma unroll
    for (int b = 0; b < {drawing.blocks_each}; ++b)
        make(philox(seed, first + thread * {drawing.blocks_each} + b), drawn + b * {count}{names});
"""
    if drawing.layout:
        return drawn + _scattered(drawing, each)
    operand = f"vec<{drawing.operand}, {each}>" if drawing.operand else ""
    load = f"    if (start + {each} <= count) read = *(const {operand}*)(in + start);\n" if operand else ""
    held = f"    {operand} read;\n" if operand else ""
    return f"{held}{load}{drawn}{_rows(drawing, each)}"


def _results(drawing: Drawing, element: str) -> list[str]:
    """One expression per result, of the value ``drawn[j]`` and an element of the operand."""
    return [text.replace("value", "drawn[j]").replace("input", element) for _, text in drawing.results]


def _rows(drawing: Drawing, each: int) -> str:
    """Row-major results: a vector per thread, single elements at the end."""
    whole, ends = [], []
    singles = _results(drawing, "in[start + j]")
    for k, ((held, _), text) in enumerate(zip(drawing.results, _results(drawing, "read.at[j]"), strict=True)):
        whole.append(f"""
        vec<{held}, {each}> found{k};
#pragma unroll
        for (int j = 0; j < {each}; ++j) found{k}.at[j] = cast<{held}>({text});
        *(vec<{held}, {each}>*)(out{k} + start) = found{k};""")
        ends.append(f"                out{k}[start + j] = cast<{held}>({singles[k]});\n")
    return f"""
    if (start + {each} <= count) {{{"".join(whole)}
    }} else {{
#pragma unroll
        for (int j = 0; j < {each}; ++j)
            if (start + j < count) {{
{"".join(ends)}            }}
    }}
"""


def _scattered(drawing: Drawing, each: int) -> str:
    """Each element where its row-major number lies."""
    operands = len(drawing.results) + bool(drawing.operand)
    stores = "".join(
        [
            f"            out{k}[at[{k}]] = cast<{held}>({text});\n"
            for k, ((held, _), text) in enumerate(
                zip(drawing.results, _results(drawing, f"in[at[{operands - 1}]]"), strict=True)
            )
        ]
    )
    return f"""
#pragma unroll
    for (int j = 0; j < {each}; ++j)
        if (start + j < count) {{
            {drawing.layout}::index at[{operands}];
            places.find(start + j, at);
{stores}        }}
"""
