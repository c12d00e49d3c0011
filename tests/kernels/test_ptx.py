"""Which parameters a PTX text shows to be written to, and what types they have."""

from __future__ import annotations

import pytest

from server.engine.cuda.runtime.user_text import compile_text
from server.engine.user_kernels.interface import Text
from telegrad_protocol.ptx import Entry, entries

TEXT = r"""
extern "C" {
__device__ int counter;
struct pair { float x, y; int z; };
__global__ void kernel_const(const float* a, float* b, int n, double d, unsigned char f, float g) {
    b[n] = a[0] * d + f + g;
}
__global__ void kernel_atomic(const float* a, int* c, float* unused) {
    extern __shared__ float s[];
    s[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    atomicAdd(c, (int)s[0]);
}
__global__ void kernel_far(const float* a, float** q) { q[0][1] = a[0]; }
__global__ void kernel_struct(pair p, float* o) { o[0] = p.x + p.z; }
__global__ void kernel_own(const float* a) { counter = a[0]; }
__global__ void kernel_either(float* a, float* b, int n, const float* c) { (n > c[0] ? a : b)[n] = 2; }
__global__ void kernel_local(float* o, int n) {
    float t[100];
    for (int i = 0; i < n; ++i) t[i * 7 % 100] = t[(i + 3) % 100] + i;
    o[0] = t[n];
}
__global__ void kernel_prints(const float* a) { printf("%f", a[0]); }
__global__ void kernel_walks(float* a, const float* b, int n) { for (float* p = a; p < a + n; p += 3) *p = *b; }
__global__ void kernel_loads(float* a, const int* places) { a[places[3]] = 1; }
}
"""


@pytest.fixture(scope="module")
def known() -> dict[str, Entry]:
    return entries(compile_text(Text(TEXT, "k.cu", 1, (), {}, ()), "sm_90").ptx)


@pytest.mark.parametrize(
    ("name", "types", "written"),
    [
        ("const", "u64 u64 u32 f64 u8 f32", {1}), ("atomic", "u64 u64 u64", {1}), ("far", "u64 u64", None),
        ("struct", "b8 u64", {1}), ("own", "u64", set()), ("either", "u64 u64 u32 u64", {0, 1}),
        ("local", "u64 u32", {0}),
        ("prints", "u64", set()), ("walks", "u64 u64 u32", {0}), ("loads", "u64 u64", {0}),
    ],
)  # fmt: skip
def test_what_is_written_is_followed_back_to_the_parameters(
    known: dict[str, Entry], name: str, types: str, written: set[int] | None
) -> None:
    entry = known[f"kernel_{name}"]
    assert " ".join(parameter.type for parameter in entry.parameters) == types
    if written is None:
        assert entry.written is None
    else:
        assert entry.written is not None
        pointers = {place for place, parameter in enumerate(entry.parameters) if parameter.type == "u64"}
        assert entry.written & pointers == written


def test_sizes_are_those_of_structures(known: dict[str, Entry]) -> None:
    assert [parameter.nbytes for parameter in known["kernel_struct"].parameters] == [12, 8]
