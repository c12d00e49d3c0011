"""CUDA kernels executed by the host: their text is compiled as C++, and threads take turns between barriers.

What is tested so is what a text computes, and that launches pass what it declares; not that a GPU's compiler takes it.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from server.engine.cuda.runtime.launch import FORMS, _three
from server.engine.extensions.commands import host_compiler

_BEFORE = r"""
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __shared__ static
using std::exp; using std::sqrt; using std::fabs; using std::tanh; using std::erf; using std::log1p; using std::expm1;
using std::pow; using std::floor; using std::ceil; using std::trunc; using std::fmod; using std::copysign;
using std::rint; using std::log; using std::isnan; using std::isinf; using std::isfinite; using std::signbit;
static unsigned char shared_bytes[1 << 18] __attribute__((aligned(128)));
struct three { unsigned x, y, z; };
static three threadIdx, blockIdx, blockDim, gridDim;
static ucontext_t contexts[1024], home;
static char* stacks[1024];
static bool runs[1024];
static int now, count;
struct barrier {
    int there = 0, turn = 0;
    void wait(int wanted) {
        const int mine = turn;
        if (++there == wanted) { there = 0; ++turn; }
        while (mine == turn) swapcontext(&contexts[now], &home);
    }
};
static barrier whole, warps[32];
static double shown[1024];
static void __syncthreads() { whole.wait(count); }
template <class T> static T __shfl_xor_sync(unsigned, T v, int apart) {
    memcpy(&shown[now], &v, sizeof(T));
    warps[now / 32].wait(32);
    memcpy(&v, &shown[now ^ apart], sizeof(T));
    warps[now / 32].wait(32);
    return v;
}
template <class To, class From> static To as(From v) { To made; memcpy(&made, &v, sizeof(To)); return made; }
#define __uint_as_float as<float>
#define __int_as_float as<float>
#define __longlong_as_double as<double>
#define __umulhi(a, b) (unsigned)(((unsigned long long)(a) * (b)) >> 32)
static float rsqrt(float v) { return 1 / sqrtf(v); }
static double rsqrt(double v) { return 1 / sqrt(v); }
#define __fadd_rn(a, b) ((a) + (b))
#define __dadd_rn(a, b) ((a) + (b))
static long long min(long long a, long long b) { return a < b ? a : b; }
static unsigned short bf16_of(float v) {
    const unsigned bits = as<unsigned>(v);
    return v != v ? 0x7fff : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
"""
_AFTER = r"""
static void** given;
static void thread() { CALL; runs[now] = false; swapcontext(&contexts[now], &home); }
extern "C" void launch(int gx, int gy, int gz, int threads, void** parameters) {
    given = parameters; count = threads;
    blockDim = {(unsigned)threads, 1, 1}; gridDim = {(unsigned)gx, (unsigned)gy, (unsigned)gz};
    for (int block = 0; block < gx * gy * gz; ++block) {
        blockIdx = {(unsigned)(block % gx), (unsigned)(block / gx % gy), (unsigned)(block / gx / gy)};
        for (now = 0; now < threads; ++now) {
            if (!stacks[now]) stacks[now] = (char*)malloc(1 << 16);
            getcontext(&contexts[now]);
            contexts[now].uc_stack.ss_sp = stacks[now];
            contexts[now].uc_stack.ss_size = 1 << 16;
            makecontext(&contexts[now], thread, 0);
            runs[now] = true;
        }
        for (bool more = true; more;) {
            more = false;
            for (now = 0; now < threads; ++now) if (runs[now]) {
                more = true;
                threadIdx = {(unsigned)now, 0, 0};
                swapcontext(&home, &contexts[now]);
            }
        }
    }
}
"""
_INSTRUCTIONS = (
    (r'asm\("cvt\.f32\.f16 %0, %1;" : "=f"\((\w+)\) : "h"\(([\w.]+)\)\);', r"\1 = (float)as<_Float16>(\2);"),
    (
        r'asm\("cvt\.rn\.f16\.f32 %0, %1;" : "=h"\(([\w.]+)\) : "f"\((\w+)\)\);',
        r"\1 = as<u16>((_Float16)\2);",
    ),
    (r'asm\("cvt\.rn\.bf16\.f32 %0, %1;" : "=h"\(([\w.]+)\) : "f"\((\w+)\)\);', r"\1 = bf16_of(\2);"),
    (r'asm\("ex2\.approx\.ftz\.f32 %0, %1;" : "=f"\((\w+)\) : "f"\((.*?)\)\);', r"\1 = exp2f(\2);"),
    (r'asm\("rcp\.approx(?:\.ftz)?\.f32 %0, %1;" : "=f"\((\w+)\) : "f"\((.*)\)\);', r"\1 = 1 / (\2);"),
    (r"extern __shared__ __align__\(16\) unsigned char shared_bytes\[\];", ""),
    (r"\b__expf\(", "expf("),
)
"""What is written in a GPU's instructions, and the same in C++."""


_DECLARED = r'extern "C" __global__ void __launch_bounds__\([\d, ]+\) {}\((.*?)\)\s*\{{'
_COMMA = re.compile(r",(?![^<]*>)")
"""Between parameters, not between what templates are given."""


class HostKernel:
    """A kernel of a text, compiled into a folder."""

    def __init__(self, text: str, name: str, folder: Path) -> None:
        declared = re.search(_DECLARED.format(name), text, re.DOTALL)
        assert declared is not None, text[-400:]
        self._types = [" ".join(one.split()).rpartition(" ")[0] for one in _COMMA.split(declared.group(1))]
        arguments = ", ".join([f"*({kind}*)given[{k}]" for k, kind in enumerate(self._types)])
        for pattern, other in _INSTRUCTIONS:
            text = re.sub(pattern, other, text)
        self._library = _compiled(f"{_BEFORE}{text}{_AFTER.replace('CALL', f'{name}({arguments})')}", folder)

    def prepare(
        self, grid: Any, block: int, varying: str, constants: Sequence[Any] = (), shared: int = 0,
        overlaps: bool = False, table: int = 0,
    ) -> Callable[..., None]:  # fmt: skip
        """What is called with the stream and addresses."""
        packed = [one if isinstance(one, bytes) else struct.pack(f"={FORMS[one[0]]}", one[1]) for one in constants]
        assert len(self._types) == bool(table) + len(varying) + len(packed)

        def fire(stream: int, *addresses: int) -> None:
            assert len(addresses) == table + len(varying)
            listed = [struct.pack(f"={table}Q", *addresses[:table])] if table else []
            items = [*listed, *[struct.pack("=Q", address) for address in addresses[table:]], *packed]
            held = [ctypes.create_string_buffer(item) for item in items]
            array = (ctypes.c_void_p * len(held))(*[ctypes.addressof(item) for item in held])
            self._library.launch(*_three(grid), block, array)

        return fire


def _compiled(source: str, folder: Path) -> ctypes.CDLL:
    path = folder / hashlib.sha256(source.encode()).hexdigest()[:16]
    library = path.with_suffix(".so")
    if not library.exists():
        path.with_suffix(".cpp").write_text(source)
        options = ("-O1", "-std=c++20", "-ffp-contract=off", "-w", "-shared", "-fPIC")
        subprocess.run([host_compiler(), *options, path.with_suffix(".cpp"), "-o", library], check=True)
    return ctypes.CDLL(str(library))
