"""CUDA text for Hopper's own instructions: tiles copied by the copy engine, and products of groups of four warps.

PTX ISA, ``mbarrier``, ``cp.async.bulk.tensor`` and ``wgmma``; only for the target ``sm_90a``. Tiles lie in shared
memory as panels of 64 halves, in rows of 128 bytes, whose 16-byte parts are exchanged by the row's number modulo 8: no
eight rows meet in one bank. A panel begins at a multiple of 1,024 bytes. Knows nothing of what is computed.
"""

from __future__ import annotations

from functools import cache

HOPPER = "sm_90"
PANEL = 64
"""Halves in a row of a panel: 128 bytes."""

_TEXT = r"""
struct alignas(64) tile_map { u64 opaque[16]; };  // which tensor, how it lies and what a tile of it is: the driver's

__device__ __forceinline__ u32 address_of(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Barriers in shared memory. A phase ends when all have arrived and all announced bytes have; phases are even and odd.
__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barriers_are_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
}
__device__ __forceinline__ void announce(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive_at(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}
__device__ __forceinline__ void wait_for(u32 barrier, u32 phase) {
    u32 is_over;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
            : "=r"(is_over) : "r"(barrier), "r"(phase) : "memory");
    } while (!is_over);
}

// Turns of warpgroups: one goes on when another has called it
__device__ __forceinline__ void await_turn(int turn) { asm volatile("bar.sync %0, 256;" :: "r"(turn) : "memory"); }
__device__ __forceinline__ void give_turn(int turn) { asm volatile("bar.arrive %0, 256;" :: "r"(turn) : "memory"); }

// Tiles of (sample, head, row, column) by the copy engine. What is outside of the tensor is zero, and is not written;
// a tile that is written must not begin before it.
__device__ __forceinline__ void bring(
    u32 to, const tile_map& map, int column, int row, int head, int sample, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];"
        :: "r"(to), "l"(&map), "r"(column), "r"(row), "r"(head), "r"(sample), "r"(barrier) : "memory");
}
__device__ __forceinline__ void put_away(u32 from, const tile_map& map, int column, int row, int head, int sample) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];"
        :: "l"(&map), "r"(column), "r"(row), "r"(head), "r"(sample), "r"(from) : "memory");
}
__device__ __forceinline__ void wait_until_read() {  // what the copy engine is to write may be overwritten
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void show_to_copy_engine() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Factors in shared memory: by rows, whose columns are multiplied and summed; by columns, whose rows are
__device__ __forceinline__ u64 by_rows(u32 at) {
    return (u64)((at & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
template <int PANEL_BYTES> __device__ __forceinline__ u64 by_columns(u32 at) {
    return (u64)((at & 0x3ffff) >> 4) | (u64)(PANEL_BYTES / 16) << 16 | 64ull << 32 | 1ull << 62;
}
// The 16 columns from 16 * k on of factors by rows whose panels lie so many bytes apart
template <int PANEL_BYTES> __device__ __forceinline__ u64 columns_of(u64 factor, int k) {
    return factor + k / 4 * (PANEL_BYTES / 16) + k % 4 * 2;
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
"""


@cache
def text_of(ctype: str, columns: frozenset[int]) -> str:
    """The text, with products of halves of a C type and sums of so many columns."""
    packed = {"f16": "f16x2", "bf16": "bf16x2"}[ctype]
    pack = f"""
__device__ __forceinline__ u32 packed(float low, float high) {{
    u32 both;
    asm("cvt.rn.{packed}.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}}
"""
    return _TEXT + pack + "".join(_products(ctype, each) for each in sorted(columns))


def _products(ctype: str, columns: int) -> str:
    """Products of 64 rows of 16 halves by so many columns, and the wait for all but LEFT groups of them."""
    count = columns // 2
    sums = ", ".join(f'"+f"(sums[{i}])' for i in range(count))
    places, factor = ", ".join(f"%{i}" for i in range(count)), ", ".join(f"%{count + i}" for i in range(4))
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{ctype}.{ctype}"
    return f"""
__device__ __forceinline__ void multiply(float (&sums)[{count}], u64 a, u64 b, bool adds) {{
    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"
        "{name} {{{places}}}, %{count}, %{count + 1}, p, 1, 1, 0, 0;\\n}}"
        : {sums} : "l"(a), "l"(b), "r"((int)adds));
}}
__device__ __forceinline__ void multiply(float (&sums)[{count}], const u32* a, u64 b) {{
    asm volatile("{name} {{{places}}}, {{{factor}}}, %{count + 4}, 1, 1, 1, 1;"
        : {sums} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}}
template <int LEFT> __device__ __forceinline__ void wait_for_products(float (&sums)[{count}]) {{
    asm volatile("wgmma.wait_group.sync.aligned %{count};" : {sums} : "n"(LEFT) : "memory");
}}
"""
