"""The CUDA text of attention's forward pass on Hopper, for halves and heads of 64 or 128: who does what, and copies.

J. Shah et al., FlashAttention-3 (2024). One block per multiprocessor goes from tile to tile of queries. One of its
warps fetches, one stores; two or three warpgroups compute 64 rows each, see ``hopper_attention_math``.
"""

from __future__ import annotations

from typing import NamedTuple

from server.engine.cuda.runtime import hopper_text
from server.engine.cuda.runtime.prelude import PRELUDE

from . import hopper_math_text as hopper_attention_math

GROUP_ROWS = 64
"""Queries of a warpgroup."""


class Tiling(NamedTuple):
    """Warpgroups; keys of a block; blocks of keys, and of values, in shared memory at once."""

    groups: int
    columns: int
    stages: int

    @property
    def rows(self) -> int:
        """Queries of a tile."""
        return GROUP_ROWS * self.groups

    @property
    def threads(self) -> int:
        """Of a block: its groups, and one that fetches and stores."""
        return 128 * (self.groups + 1)

    def shared_bytes(self, width: int) -> int:
        """Two tiles of queries, whose places results take, and the stages of keys and values."""
        return 2 * 2 * width * (self.rows + self.stages * self.columns)


TILINGS = {64: Tiling(3, 128, 4), 128: Tiling(2, 128, 2)}
"""By the width of heads."""
BLOCKS = 132
"""The most that a launch has: the largest of these devices have as many multiprocessors."""
CAPACITIES = (3840, 15360)
"""Tiles of one launch: their order and the operands' maps take 31 of the 32 KiB that CUDA allows for parameters."""
_REGISTERS = {2: (24, 240), 3: (32, 160)}
"""By warpgroups: registers of a thread that copies, and of one that computes."""

_TILES = r"""
// ``first_head``: of all samples' heads, the first that this launch computes. What tiles have too many rows is in front
// of the first row, where few columns are seen: groups of ``before`` rows that are none.
struct shape_t { int heads, group, rows, columns, row_tiles, before, first_head, causal; float scale_2; };
// The tiles that each block computes, one after the other: those from its place in ``begin`` on
struct order_t { u16 begin[BLOCKS + 1], tiles[CAPACITY]; };

// The tiles of a block, in turn
struct tiles_t {
    const shape_t& s;
    const order_t& order;
    int turn = 0, head, sample, first;
    __device__ __forceinline__ tiles_t(const shape_t& s, const order_t& order) : s(s), order(order) {}
    __device__ __forceinline__ bool next() {
        const int place = order.begin[blockIdx.x] + turn++;
        if (place >= order.begin[blockIdx.x + 1]) return false;
        const int tile = order.tiles[place], all_heads = s.first_head + tile / s.row_tiles;
        head = all_heads % s.heads; sample = all_heads / s.heads; first = tile % s.row_tiles * ROWS - s.before;
        return true;
    }
    // Of two places in shared memory the tile has one, for the first or second time in turn
    __device__ __forceinline__ int place() const { return (turn - 1) % 2; }
    __device__ __forceinline__ u32 phase() const { return (turn - 1) / 2 % 2; }
    __device__ __forceinline__ bool has(int row) const { return 0 <= row && row < s.rows; }
    // How many blocks of keys the rows before ``end`` see
    __device__ __forceinline__ int blocks(int end) const {
        return ((s.causal ? min(s.columns, end) : s.columns) + COLUMNS - 1) / COLUMNS;
    }
};

// Which stage of shared memory is next
struct stage_t {
    int at = 0;
    u32 phase = 0;
    __device__ __forceinline__ void next() { if (++at == STAGES) { at = 0; phase ^= 1; } }
};

// Where everything lies in shared memory; of barriers, those of stage or place 0
struct memory_t {
    u32 q, k, v, q_full, q_free, out_full, k_full, k_free, v_full, v_free;
    __device__ __forceinline__ memory_t(u32 data, u32 barriers) {
        q = data; k = q + 2 * QUERY_BYTES; v = k + STAGES * BLOCK_BYTES;
        q_full = barriers; q_free = q_full + 16; out_full = q_free + 16; k_full = out_full + 16;
        k_free = k_full + 8 * STAGES; v_full = k_free + 8 * STAGES; v_free = v_full + 8 * STAGES;
    }
    __device__ __forceinline__ void init() const {
        for (int i = 0; i < 2; ++i) {
            barrier_init(q_full + 8 * i, 1); barrier_init(q_free + 8 * i, 1); barrier_init(out_full + 8 * i, WARPS);
        }
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(k_full + 8 * i, 1); barrier_init(k_free + 8 * i, WARPS);
            barrier_init(v_full + 8 * i, 1); barrier_init(v_free + 8 * i, WARPS);
        }
    }
};
"""

_COPIES = r"""
__device__ __forceinline__ void bring_block(
    u32 to, const tile_map& map, int rows, int row, int head, int sample, u32 barrier) {
    announce(barrier, rows * WIDTH * 2);
    for (int p = 0; p < PANELS; ++p) bring(to + p * rows * 128, map, p * 64, row, head, sample, barrier);
}

__device__ __forceinline__ void fetch(const maps_t& maps, const tiles_t& all, const memory_t& at) {
    stage_t stage;
    for (tiles_t t = all; t.next();) {
        wait_for(at.q_free + 8 * t.place(), t.phase() ^ 1);
        bring_block(at.q + t.place() * QUERY_BYTES, maps.q, ROWS, t.first, t.head, t.sample, at.q_full + 8 * t.place());
        for (int n = t.blocks(t.first + ROWS) - 1; n >= 0; --n, stage.next()) {
            const int row = n * COLUMNS, head = t.head / t.s.group, here = 8 * stage.at;
            wait_for(at.k_free + here, stage.phase ^ 1);
            bring_block(at.k + stage.at * BLOCK_BYTES, maps.k, COLUMNS, row, head, t.sample, at.k_full + here);
            wait_for(at.v_free + here, stage.phase ^ 1);
            bring_block(at.v + stage.at * BLOCK_BYTES, maps.v, COLUMNS, row, head, t.sample, at.v_full + here);
        }
    }
}

__device__ __forceinline__ void put_results_away(const maps_t& maps, const tiles_t& all, const memory_t& at) {
    for (tiles_t t = all; t.next();) {
        const u32 from = at.q + t.place() * QUERY_BYTES;
        wait_for(at.out_full + 8 * t.place(), t.phase());
        for (int g = 0; g < GROUPS; ++g) {
            const int row = t.first + g * GROUP_ROWS;
            for (int p = 0; p < PANELS && t.has(row); ++p)
                put_away(from + (p * ROWS + g * GROUP_ROWS) * 128, maps.out, p * 64, row, t.head, t.sample);
        }
        wait_until_read();
        arrive_at(at.q_free + 8 * t.place());
    }
}
"""

_KERNEL = r"""
extern "C" __global__ void __launch_bounds__(128 * (GROUPS + 1), 1) hopper_attention(
    float* logsum, const __grid_constant__ maps_t maps, const __grid_constant__ shape_t s,
    const __grid_constant__ order_t order) {
    extern __shared__ __align__(1024) u8 data[];
    __shared__ u64 barriers[6 + 4 * STAGES];
    const memory_t at(address_of(data), address_of(barriers));
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // the compiler is to see that it is a warp's
    const tiles_t all(s, order);
    if (threadIdx.x == 0) at.init();
    barriers_are_ready();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 COPY_REGISTERS;");
        if (threadIdx.x == 0) fetch(maps, all, at);
        else if (threadIdx.x == 32) put_results_away(maps, all, at);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 COMPUTE_REGISTERS;");
        attend(all, at, group_t(group - 1), logsum);
    }
}
"""


def text_of(ctype: str, width: int, capacity: int) -> str:
    """The kernel for heads of 64 or 128 halves of a C type, and so many tiles at most."""
    tiling = TILINGS[width]
    copying, computing = _REGISTERS[tiling.groups]
    sizes = f"""
constexpr int GROUPS = {tiling.groups}, WARPS = 4 * GROUPS, GROUP_ROWS = {GROUP_ROWS}, ROWS = GROUP_ROWS * GROUPS;
constexpr int COLUMNS = {tiling.columns}, STAGES = {tiling.stages};
constexpr int WIDTH = {width}, PANELS = WIDTH / {hopper_text.PANEL};
constexpr int QUERY_BYTES = ROWS * WIDTH * 2, BLOCK_BYTES = COLUMNS * WIDTH * 2;
constexpr int BLOCKS = {BLOCKS}, CAPACITY = {capacity};
struct maps_t {{ tile_map q, k, v, out; }};
"""
    kernel = _KERNEL.replace("COPY_REGISTERS", str(copying)).replace("COMPUTE_REGISTERS", str(computing))
    primitives = hopper_text.text_of(ctype, frozenset((width, tiling.columns)))
    return PRELUDE + primitives + sizes + _TILES + _COPIES + hopper_attention_math.TEXT + kernel
