"""The CUDA text of what a warpgroup computes in attention's forward pass on Hopper: scores, weights, sums of values.

While a group makes weights of its scores, the tensor cores multiply for another: groups take turns. They add up the
values of its last block meanwhile. Blocks of keys are taken from the last one on, so that only the first that a group
sees has columns to hide. Sums are made in a fixed order. Exponentials are powers of two: ``scale_2`` is the scale times
log2(e), and is positive.
"""

from __future__ import annotations

from . import rows_text as attention_rows

_SOFTMAX = r"""
// Of a thread's two rows: the largest score so far, the sum of all weights, and by how much both shrank last.
// Element 4 * j + 2 * i + e of scores is column 8 * j + e, from the thread's first on, of row i.
struct softmax_t {
    float top[2] = {HIDDEN, HIDDEN}, total[2] = {}, shrink[2];

    // Take note of new scores; whether earlier weights of any row in the warp were too large
    __device__ __forceinline__ bool rise(const float (&scores)[COLUMNS / 2], float scale_2) {
        float high[2];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            float x = fmaxf(scores[2 * i], scores[2 * i + 1]);
            #pragma unroll
            for (int j = 1; j < COLUMNS / 8; ++j) x = fmaxf(x, fmaxf(scores[4 * j + 2 * i], scores[4 * j + 2 * i + 1]));
            high[i] = fmaxf(top[i], row_max(x) * scale_2);
        }
        const bool grows = __any_sync(~0u, high[0] > top[0] || high[1] > top[1]);
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            shrink[i] = high[i] == HIDDEN ? 1.0f : power_of_two(top[i] - high[i]);
            total[i] *= shrink[i];
            top[i] = high[i];
        }
        return grows;
    }
    // Scores to weights, which are added to the total
    __device__ __forceinline__ void weigh(float (&scores)[COLUMNS / 2], float scale_2) {
        float part[2][2] = {};
        const float from[2] = {top[0] == HIDDEN ? 0.0f : top[0], top[1] == HIDDEN ? 0.0f : top[1]};
        #pragma unroll
        for (int j = 0; j < COLUMNS / 8; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                float& x = scores[4 * j + e];
                x = power_of_two(fmaf(x, scale_2, -from[e / 2]));
                part[e / 2][e % 2] += x;
            }
        #pragma unroll
        for (int i = 0; i < 2; ++i) total[i] += part[i][0] + part[i][1];
    }
    __device__ __forceinline__ void finish() {
        #pragma unroll
        for (int i = 0; i < 2; ++i) total[i] = row_sum(total[i]);
    }
};
"""

_ATTEND = r"""
// A warpgroup, and of its threads: the lane, the warp, the first row and first column in a tile that it has sums of
struct group_t {
    int number, warp, lane, row, column;
    __device__ __forceinline__ group_t(int number)
        : number(number), warp(threadIdx.x / 32 % 4), lane(threadIdx.x % 32),
          row(GROUP_ROWS * number + 16 * warp + lane / 4), column(lane % 4 * 2) {}
    __device__ __forceinline__ void await() const { await_turn(1 + number); }
    __device__ __forceinline__ void call_next() const { give_turn(1 + (number + 1) % GROUPS); }
    __device__ __forceinline__ void release(u32 barrier, int by = 0) const { if (lane == by) arrive_at(barrier); }
};

__device__ __forceinline__ void score(float (&scores)[COLUMNS / 2], u64 queries, u32 keys) {
    #pragma unroll
    for (int k = 0; k < WIDTH / 16; ++k)
        multiply(scores, columns_of<ROWS * 128>(queries, k), columns_of<COLUMNS * 128>(by_rows(keys), k), k > 0);
    end_products();
}

__device__ __forceinline__ void add_values(float (&sums)[WIDTH / 2], const u32 (&weights)[COLUMNS / 4], u32 values) {
    #pragma unroll
    for (int k = 0; k < COLUMNS / 16; ++k)
        multiply(sums, weights + 4 * k, by_columns<COLUMNS * 128>(values) + 128 * k);
    end_products();
}

__device__ __forceinline__ void pack(u32 (&weights)[COLUMNS / 4], const float (&scores)[COLUMNS / 2]) {
    #pragma unroll
    for (int j = 0; j < COLUMNS / 4; ++j) weights[j] = packed(scores[2 * j], scores[2 * j + 1]);
}

__device__ __forceinline__ void hide(
    float (&scores)[COLUMNS / 2], const shape_t& s, const group_t& me, int first_row, int first_column) {
    const int seen = s.causal ? min(s.columns, first_row + GROUP_ROWS * me.number + 1) : s.columns;
    if (first_column + COLUMNS <= seen) return;
    #pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int row = first_row + me.row + e / 2 * 8, column = first_column + me.column + 8 * j + e % 2;
            if (column >= s.columns || (s.causal && column > row)) scores[4 * j + e] = HIDDEN;
        }
}

// Sums over totals, as halves, in the place in shared memory that queries had
__device__ __forceinline__ void lay_down(
    u32 to, const float (&sums)[WIDTH / 2], const float (&total)[2], const group_t& me) {
    const float over[2] = {share(total[0]), share(total[1])};
    const int row = GROUP_ROWS * me.number + 16 * me.warp + me.lane % 16;
    #pragma unroll
    for (int j = 0; j < WIDTH / 8; j += 2) {
        const int part = (j + me.lane / 16) % 8 ^ row % 8;
        u32 halves[4];
        #pragma unroll
        for (int e = 0; e < 4; ++e)
            halves[e] = packed(sums[4 * j + 2 * e] * over[e % 2], sums[4 * j + 2 * e + 1] * over[e % 2]);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};"
            :: "r"(to + j / 8 * (ROWS * 128) + row * 128 + part * 16),
            "r"(halves[0]), "r"(halves[1]), "r"(halves[2]), "r"(halves[3]) : "memory");
    }
}

__device__ __forceinline__ void attend(const tiles_t& all, const memory_t& at, const group_t& me, float* logsum) {
    const shape_t& s = all.s;
    if (me.number == GROUPS - 1) me.call_next();
    stage_t stage;
    for (tiles_t t = all; t.next();) {
        const int here = t.first + GROUP_ROWS * me.number;
        const int seen = t.has(here) ? t.blocks(here + GROUP_ROWS) : 1;
        const u32 queries = at.q + t.place() * QUERY_BYTES;
        const u64 my_queries = by_rows(queries + me.number * GROUP_ROWS * 128);
        float sums[WIDTH / 2] = {}, scores[COLUMNS / 2];
        u32 weights[COLUMNS / 4];
        softmax_t softmax;
        for (int n = t.blocks(t.first + ROWS); n > seen; --n, stage.next()) {  // only later groups see these
            wait_for(at.k_full + 8 * stage.at, stage.phase);
            wait_for(at.v_full + 8 * stage.at, stage.phase);
            __syncwarp();  // a lane that is late would wait for the next phase
            me.release(at.k_free + 8 * stage.at);
            me.release(at.v_free + 8 * stage.at);
            me.await();
            me.call_next();
        }
        wait_for(at.q_full + 8 * t.place(), t.phase());
        wait_for(at.k_full + 8 * stage.at, stage.phase);
        begin_products();
        score(scores, my_queries, at.k + stage.at * BLOCK_BYTES);
        wait_for_products<0>(scores);
        me.release(at.k_free + 8 * stage.at);
        hide(scores, s, me, t.first, (seen - 1) * COLUMNS);
        softmax.rise(scores, s.scale_2);
        softmax.weigh(scores, s.scale_2);
        pack(weights, scores);
        for (int n = seen - 1; n > 0; --n) {
            const stage_t last = stage;
            stage.next();
            wait_for(at.k_full + 8 * stage.at, stage.phase);
            me.await();
            begin_products();
            score(scores, my_queries, at.k + stage.at * BLOCK_BYTES);
            wait_for(at.v_full + 8 * last.at, last.phase);
            add_values(sums, weights, at.v + last.at * BLOCK_BYTES);
            me.call_next();
            wait_for_products<1>(scores);
            const bool grows = softmax.rise(scores, s.scale_2);
            // Which lane tells the fetching warp depends on the largest score: the compiler would wait for all products
            // before it looks for that one if it could.
            me.release(at.k_free + 8 * stage.at, grows);
            wait_for_products<0>(sums);
            if (grows) {
                #pragma unroll
                for (int j = 0; j < WIDTH / 2; ++j) sums[j] *= softmax.shrink[j / 2 % 2];
            }
            me.release(at.v_free + 8 * last.at);
            softmax.weigh(scores, s.scale_2);
            pack(weights, scores);
        }
        wait_for(at.v_full + 8 * stage.at, stage.phase);
        begin_products();
        add_values(sums, weights, at.v + stage.at * BLOCK_BYTES);
        softmax.finish();
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = t.first + me.row + 8 * i;
            const i64 head = (i64)t.sample * s.heads + t.head;
            if (logsum && me.column == 0 && t.has(row))
                logsum[head * s.rows + row] = logarithm(softmax.top[i], softmax.total[i]);
        }
        wait_for_products<0>(sums);
        me.release(at.v_free + 8 * stage.at);
        stage.next();
        lay_down(queries, sums, softmax.total, me);
        show_to_copy_engine();
        __syncwarp();
        me.release(at.out_full + 8 * t.place());
    }
    if (me.number == 0) me.await();  // nobody is left waiting to be called
}
"""

TEXT = attention_rows.TEXT + _SOFTMAX + _ATTEND
