/* attention_bwd.cuh - causal attention backward on tensor cores: dq by one kernel, dk and dv by another.
 *
 * With weights p[t][s] = exp(scale * q[t] . k[s] - lse[t]) and delta[t] = dout[t] . out[t]:
 * ds[t][s] = p[t][s] (dout[t] . v[s] - delta[t]); dq[t] = scale * sum over s of ds[t][s] k[s];
 * dk[s] = scale * sum over t of ds[t][s] q[t]; dv[s] = sum over t of p[t][s] dout[t], t in all query heads of the group.
 * Scores, weights and sums are fp32 in registers; p and ds are rounded to bf16 for the products they enter.
 * Costs 6 D FLOPs a pair of query and key for dq, 8 D for dk and dv: 7 products. One kernel over blocks of keys has 5,
 * but then a row's dq is a sum over blocks: without atomics each leaves its part in memory, 8 D / 128 bytes a pair, and
 * another kernel adds them in order. By the assumptions of bench_roofline (products here at 210 TFLOP/s for D = 64 and
 * 280 for 128; 3.0 TB/s on an H100, 4.3 on an H200), microseconds a head, what two products less save and what the parts
 * cost on either:
 *   T      D = 64: saved  H100   H200     D = 128: saved  H100   H200
 *   1024            0.70  0.70   0.49               1.05  1.39   0.97
 *   2048            2.64  2.78   1.94               3.95  5.57   3.89
 *   4096           10.2   11.1   7.8               15.3   22.3   15.5
 * Nothing is won on an H100, and at D = 128 on neither; so both kernels stay. With dq's parts kept in the L2 by a block that
 * walks over all keys of a head it would pay (bench_roofline prints how much), where B H is some multiple of the number of
 * multiprocessors. */
#ifndef TERN_KERNELS_CUDA_ATTENTION_BWD_CUH
#define TERN_KERNELS_CUDA_ATTENTION_BWD_CUH

#include "kernels/cuda/attention.cuh"

/* ---- dq: a block of 4 warps owns 4 * WARP_ROWS query rows of one head, a warp WARP_ROWS of them, and walks over tiles
 * of N keys; k and v of the next tile are on their way meanwhile ---- */

/* Statistics of this lane's rows: lane / 4 + 8 r + 16 i. */
template <int TILES> struct tern_attention_row_stats {
    tern_attention_stat at[TILES][2];
};

/* x: scores to ds; y: dout . v. position: of the warp's first row. */
template <int TILES, int COLUMNS>
TERN_DEVICE void tern_attention_row_ds(const tern_attention_params &p,
                                       float (&x)[TILES][COLUMNS][4],
                                       const float (&y)[TILES][COLUMNS][4],
                                       const tern_attention_row_stats<TILES> &stats,
                                       int position,
                                       int key,
                                       bool is_open)
{
    int lane = (int)(threadIdx.x % 32);
    TERN_UNROLL
    for (int i = 0; i < TILES; i++) {
        TERN_UNROLL
        for (int j = 0; j < COLUMNS; j++) {
            TERN_UNROLL
            for (int e = 0; e < 4; e++) {
                tern_attention_stat stat = stats.at[i][e / 2];
                float weight = tern_exp2(fmaf(x[i][j][e], p.scale_log2, -stat.lse2));
                int row = 16 * i + lane / 4 + e / 2 * 8, column = j * 8 + lane % 4 * 2 + e % 2;
                bool is_seen = is_open || tern_attention_sees(p, position + row, key + column);
                x[i][j][e] = is_seen ? weight * (y[i][j][e] - stat.delta) : 0.0f;
            }
        }
    }
}

template <int D, int WARP_ROWS, int N, int BLOCKS>
__global__ __launch_bounds__(TERN_ATTENTION_THREADS,
                             BLOCKS) void tern_attention_dq_kernel(const tern_attention_params p)
{
    constexpr int TILES = WARP_ROWS / 16, LD = D + TERN_ATTENTION_PAD;
    constexpr int ROWS = TERN_ATTENTION_WARPS * WARP_ROWS;
    TERN_DYNAMIC_SHARED(uint16_t, q_tile);
    uint16_t *dout_tile = q_tile + ROWS * LD, *k_tiles = dout_tile + ROWS * LD;
    uint16_t *v_tiles = k_tiles + 2 * N * LD;
    tern_attention_work work = tern_attention_work_of(p);
    int b = work.item / p.heads, head = work.item % p.heads;
    int64_t q_at = b * p.q_batch + (int64_t)head * D, out_at = b * p.out_batch + (int64_t)head * D;
    int64_t kv_at = b * p.kv_batch + (int64_t)(head / p.group) * D;
    const uint16_t *k = (const uint16_t *)p.k + kv_at, *v = (const uint16_t *)p.v + kv_at;

    int shift = p.tkv - p.tq, block_row = (p.blocks - 1 - work.rank) * ROWS;
    int block_end = block_row + ROWS < p.tq ? block_row + ROWS : p.tq;
    int warp_row = (int)(threadIdx.x / 32) * WARP_ROWS, row = block_row + warp_row;
    int end = row + WARP_ROWS < p.tq ? row + WARP_ROWS : p.tq;

    int oldest = shift + block_row - p.window + 1;
    int first = oldest > 0 ? oldest / N : 0, last = (shift + block_end - 1) / N;
    tern_attention_load<D, ROWS>(q_tile, (const uint16_t *)p.q + q_at, p.q_row, block_row, p.tq);
    tern_attention_load<D, ROWS>(dout_tile, (const uint16_t *)p.dout + out_at, p.out_row, block_row,
                                 p.tq);
    tern_attention_load<D, N>(k_tiles, k, p.kv_row, last * N, p.tkv);
    tern_attention_load<D, N>(v_tiles, v, p.kv_row, last * N, p.tkv);
    tern_cp_async_commit();

    tern_attention_row_stats<TILES> stats;
    TERN_UNROLL
    for (int i = 0; i < TILES * 2; i++) {
        int t = row + i * 8 + (int)(threadIdx.x % 32 / 4);
        t = t < p.tq ? t : p.tq; /* p.stat_rows is more, or this row does not matter */
        t = t < p.stat_rows ? t : 0;
        stats.at[i / 2][i % 2] = p.stats[(int64_t)work.item * p.stat_rows + t];
    }
    float dq[TILES][D / 8][4] = {};
    for (int tile = last; tile >= first; tile--) {
        int stage = (last - tile) % 2 * N * LD, next = N * LD - stage;
        tern_cp_async_wait<0>(); /* this tile is here */
        __syncthreads();         /* for everyone, and everyone has done with the one before */
        if (tile > first) {
            tern_attention_load<D, N>(k_tiles + next, k, p.kv_row, (tile - 1) * N, p.tkv);
            tern_attention_load<D, N>(v_tiles + next, v, p.kv_row, (tile - 1) * N, p.tkv);
            tern_cp_async_commit();
        }
        if (row >= end || tern_attention_is_hidden(p, shift + row, shift + end - 1, tile * N, N)) {
            continue;
        }
        float x[TILES][N / 8][4], y[TILES][N / 8][4];
        tern_attention_dots<D>(x, q_tile + warp_row * LD, k_tiles + stage);
        tern_attention_dots<D>(y, dout_tile + warp_row * LD, v_tiles + stage);
        bool is_open = tern_attention_is_open(p, shift + row, shift + end - 1, tile * N, N);
        tern_attention_row_ds(p, x, y, stats, shift + row, tile * N, is_open);
        tern_attention_add<D>(dq, x, k_tiles + stage);
    }
    if (row < end) {
        TERN_UNROLL
        for (int i = 0; i < TILES * (D / 8) * 4; i++) {
            dq[i / 4 / (D / 8)][i / 4 % (D / 8)][i % 4] *= p.scale;
        }
        tern_attention_store<D, TILES>(q_tile + warp_row * LD, dq, (uint16_t *)p.dq + q_at, p.q_row,
                                       row, p.tq);
    }
}

/* ---- dk and dv: a block of 4 warps owns 2 * WARP_ROWS keys of one key/value head and walks over tiles of M query rows
 * of all query heads of the group. Warps 0 and 1 sum dv, warps 2 and 3 dk, each of WARP_ROWS keys whole, so that
 * everyone does two of the four products and holds one sum: first keys . queries, or values . douts; then the weights,
 * which the first half hands to the second through shared memory; then weights . douts, or ds . queries. ---- */

/* Four weights of one lane. */
struct alignas(16) tern_attention_quad {
    float x[4];
};

/* One step of the walk: a tile of M rows of one query head. */
struct tern_attention_step {
    int head, row;
};

/* Shared memory of a block, stage by stage. */
template <int D, int KEYS, int M> struct tern_attention_dkv_shared {
    uint16_t owned[2][KEYS][D + TERN_ATTENTION_PAD];  /* k, v */
    uint16_t walked[2][2][M][D + TERN_ATTENTION_PAD]; /* of each stage: q, dout */
    tern_attention_stat stats[2][M];
    tern_attention_quad weights[KEYS * M / 4];
};

template <int D, int KEYS, int M>
TERN_DEVICE void tern_attention_load_step(const tern_attention_params &p,
                                          tern_attention_dkv_shared<D, KEYS, M> *shared,
                                          int stage,
                                          int b,
                                          tern_attention_step step)
{
    const uint16_t *q = (const uint16_t *)p.q + b * p.q_batch + (int64_t)step.head * D;
    const uint16_t *dout = (const uint16_t *)p.dout + b * p.out_batch + (int64_t)step.head * D;
    tern_attention_load<D, M>(&shared->walked[stage][0][0][0], q, p.q_row, step.row, p.tq);
    tern_attention_load<D, M>(&shared->walked[stage][1][0][0], dout, p.out_row, step.row, p.tq);
    const tern_attention_stat *stats =
        p.stats + ((int64_t)b * p.heads + step.head) * p.stat_rows + step.row;
    int i = (int)threadIdx.x * 2; /* two statistics are 16 bytes */
    if (i < M) {
        tern_cp_async16(&shared->stats[stage][i], stats + i, 16);
    }
    tern_cp_async_commit();
}

/* x (keys, query rows): scores to weights, which are left in `weights` for the other half of the block. */
template <int TILES, int COLUMNS>
TERN_DEVICE void tern_attention_weigh(const tern_attention_params &p,
                                      float (&x)[TILES][COLUMNS][4],
                                      const tern_attention_stat *stats,
                                      tern_attention_quad *weights,
                                      int position,
                                      int key,
                                      bool is_open)
{
    int lane = (int)(threadIdx.x % 32);
    TERN_UNROLL
    for (int j = 0; j < COLUMNS; j++) {
        int column = j * 8 + lane % 4 * 2;
        float lse2[2] = {stats[column].lse2, stats[column + 1].lse2};
        TERN_UNROLL
        for (int i = 0; i < TILES; i++) {
            tern_attention_quad quad;
            TERN_UNROLL
            for (int e = 0; e < 4; e++) {
                int row = 16 * i + lane / 4 + e / 2 * 8;
                float weight = tern_exp2(fmaf(x[i][j][e], p.scale_log2, -lse2[e % 2]));
                bool is_seen =
                    is_open || tern_attention_sees(p, position + column + e % 2, key + row);
                x[i][j][e] = is_seen ? weight : 0.0f;
                quad.x[e] = x[i][j][e];
            }
            weights[(i * COLUMNS + j) * 32 + lane] = quad;
        }
    }
}

/* x (keys, query rows): values . douts to ds. */
template <int TILES, int COLUMNS>
TERN_DEVICE void tern_attention_column_ds(float (&x)[TILES][COLUMNS][4],
                                          const tern_attention_stat *stats,
                                          const tern_attention_quad *weights)
{
    int lane = (int)(threadIdx.x % 32);
    TERN_UNROLL
    for (int j = 0; j < COLUMNS; j++) {
        int column = j * 8 + lane % 4 * 2;
        float delta[2] = {stats[column].delta, stats[column + 1].delta};
        TERN_UNROLL
        for (int i = 0; i < TILES; i++) {
            tern_attention_quad quad = weights[(i * COLUMNS + j) * 32 + lane];
            TERN_UNROLL
            for (int e = 0; e < 4; e++) {
                x[i][j][e] = quad.x[e] * (x[i][j][e] - delta[e % 2]);
            }
        }
    }
}

template <int D, int WARP_ROWS, int M, int BLOCKS>
__global__ __launch_bounds__(TERN_ATTENTION_THREADS,
                             BLOCKS) void tern_attention_dkv_kernel(const tern_attention_params p)
{
    constexpr int TILES = WARP_ROWS / 16, HALF = TERN_ATTENTION_WARPS / 2;
    constexpr int KEYS = HALF * WARP_ROWS;
    typedef tern_attention_dkv_shared<D, KEYS, M> block_shared;
    TERN_DYNAMIC_SHARED(block_shared, shared);
    tern_attention_work work = tern_attention_work_of(p);
    int kv_heads = p.heads / p.group, b = work.item / kv_heads, kv_head = work.item % kv_heads;
    int64_t kv_at = b * p.kv_batch + (int64_t)kv_head * D;
    int block_key = work.rank * KEYS, warp = (int)(threadIdx.x / 32), part = warp % HALF;
    int is_dk = warp / HALF, key = block_key + part * WARP_ROWS;

    int shift = p.tkv - p.tq; /* position of a query row, less the row */
    tern_attention_rows rows = tern_attention_rows_of(p, block_key, KEYS);
    int first = rows.first / M * M, last = rows.last < rows.first ? -1 : rows.last / M * M;
    int steps = last < 0 ? 0 : ((last - first) / M + 1) * p.group;

    tern_attention_load<D, KEYS>(&shared->owned[0][0][0], (const uint16_t *)p.k + kv_at, p.kv_row,
                                 block_key, p.tkv);
    tern_attention_load<D, KEYS>(&shared->owned[1][0][0], (const uint16_t *)p.v + kv_at, p.kv_row,
                                 block_key, p.tkv);
    tern_cp_async_commit();
    tern_attention_step step = {kv_head * p.group, first};
    if (steps > 0) {
        tern_attention_load_step(p, shared, 0, b, step);
    }
    uint16_t *owned = &shared->owned[is_dk][part * WARP_ROWS][0];
    tern_attention_quad *weights = shared->weights + part * WARP_ROWS * M / 4;
    float sum[TILES][D / 8][4] = {};
    for (int i = 0; i < steps; i++) {
        int position = shift + step.row, stage = i % 2;
        bool is_idle = tern_attention_is_hidden(p, position, position + M - 1, key, WARP_ROWS);
        bool is_open = tern_attention_is_open(p, position, position + M - 1, key, WARP_ROWS);
        float x[TILES][M / 8][4];
        tern_cp_async_wait<0>(); /* this tile is here */
        __syncthreads();         /* for everyone, and everyone has done with the one before */
        if (i + 1 < steps) {
            bool is_end = step.row == last;
            step.head += is_end ? 1 : 0;
            step.row = is_end ? first : step.row + M;
            tern_attention_load_step(p, shared, 1 - stage, b, step);
        }
        if (!is_idle) {
            tern_attention_dots<D>(x, owned, &shared->walked[stage][is_dk][0][0]);
            if (is_dk == 0) {
                tern_attention_weigh(p, x, shared->stats[stage], weights, position, key, is_open);
            }
        }
        __syncthreads(); /* the weights are there */
        if (!is_idle) {
            if (is_dk != 0) {
                tern_attention_column_ds(x, shared->stats[stage], weights);
            }
            tern_attention_add<D>(sum, x, &shared->walked[stage][1 - is_dk][0][0]);
        }
    }
    tern_cp_async_wait<0>(); /* of k and v, when there was no step */
    __syncthreads();
    float scale = is_dk != 0 ? p.scale : 1.0f;
    TERN_UNROLL
    for (int i = 0; i < TILES * (D / 8) * 4; i++) {
        sum[i / 4 / (D / 8)][i / 4 % (D / 8)][i % 4] *= scale;
    }
    uint16_t *to = (uint16_t *)(is_dk != 0 ? p.dk : p.dv) + kv_at;
    tern_attention_store<D, TILES>(owned, sum, to, p.kv_row, key, p.tkv);
}

#endif
