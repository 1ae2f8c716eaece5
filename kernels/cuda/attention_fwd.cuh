/* attention_fwd.cuh - causal attention forward on tensor cores.
 *
 * out[t] = sum over keys s that t sees of softmax(scale * q[t] . k[s]) v[s]; lse[t] = log of the sum of exponentials.
 * A block of 4 warps owns 4 * WARP_ROWS query rows of one head, a warp WARP_ROWS of them whole; it walks over tiles of N
 * keys from the diagonal down. Scores, running maximum and sum and the output are fp32 in registers; the weights are
 * rounded to bf16 for the second product, not for the sum. k of the next tile is on its way while the softmax and the
 * second product run, v while the first one does.
 * Costs 4 D FLOPs a pair of query and key, 2 (2 Tq H + 2 Tkv K) D bytes a sequence from memory; a block reads its keys
 * from the L2 cache, 4 * WARP_ROWS FLOPs a byte. */
#ifndef TERN_KERNELS_CUDA_ATTENTION_FWD_CUH
#define TERN_KERNELS_CUDA_ATTENTION_FWD_CUH

#include "kernels/cuda/attention.cuh"

/* The running maximum (of unscaled scores) and this lane's part of the running sum, of rows lane / 4 + 8 r + 16 i. */
template <int TILES> struct tern_attention_running {
    float most[TILES][2], sum[TILES][2];
};

/* The logarithm, to base 2, of what weights are divided by before they are summed: the scaled maximum. */
TERN_DEVICE float tern_attention_base(const tern_attention_params &p, float most)
{
    return most == -INFINITY ? 0.0f : most * p.scale_log2; /* rows that have seen no key yet */
}

/* Scores to weights in place; sum and out so far are rescaled to the new maximum. */
template <int D, int TILES, int COLUMNS>
TERN_DEVICE void tern_attention_softmax(const tern_attention_params &p,
                                        float (&x)[TILES][COLUMNS][4],
                                        tern_attention_running<TILES> &running,
                                        float (&out)[TILES][D / 8][4])
{
    TERN_UNROLL
    for (int row = 0; row < TILES * 2; row++) {
        int i = row / 2, r = row % 2;
        float most = running.most[i][r];
        TERN_UNROLL
        for (int j = 0; j < COLUMNS; j++) {
            most = fmaxf(most, fmaxf(x[i][j][2 * r], x[i][j][2 * r + 1]));
        }
        most = fmaxf(most, __shfl_xor_sync(TERN_WARP_ALL, most, 1));
        most = fmaxf(most, __shfl_xor_sync(TERN_WARP_ALL, most, 2));
        float base = tern_attention_base(p, most);
        float shrink = tern_exp2(running.most[i][r] * p.scale_log2 - base);
        running.most[i][r] = most;
        running.sum[i][r] *= shrink;
        TERN_UNROLL
        for (int j = 0; j < D / 8; j++) {
            out[i][j][2 * r] *= shrink;
            out[i][j][2 * r + 1] *= shrink;
        }
    }
    TERN_UNROLL
    for (int i = 0; i < TILES; i++) {
        TERN_UNROLL
        for (int j = 0; j < COLUMNS * 4; j++) {
            int r = j % 4 / 2;
            float &value = x[i][j / 4][j % 4], base = tern_attention_base(p, running.most[i][r]);
            value = tern_exp2(fmaf(value, p.scale_log2, -base));
            running.sum[i][r] += value;
        }
    }
}

/* Scores of keys that a row does not see become -inf. position: of the warp's first row. */
template <int TILES, int COLUMNS>
TERN_DEVICE void tern_attention_mask(const tern_attention_params &p,
                                     float (&x)[TILES][COLUMNS][4],
                                     int position,
                                     int key)
{
    int lane = (int)(threadIdx.x % 32);
    TERN_UNROLL
    for (int i = 0; i < TILES * 2; i++) {
        /* the newest key that this row sees, counted from this lane's first */
        int newest = position + i * 8 + lane / 4 - key - lane % 4 * 2,
            oldest = newest - p.window + 1;
        TERN_UNROLL
        for (int j = 0; j < COLUMNS * 2; j++) {
            int column = j / 2 * 8 + j % 2;
            float &value = x[i / 2][j / 2][i % 2 * 2 + j % 2];
            value = column <= newest && column >= oldest ? value : -INFINITY;
        }
    }
}

/* Divides by the sum, writes lse and out. */
template <int D, int TILES>
TERN_DEVICE void tern_attention_finish(const tern_attention_params &p,
                                       tern_attention_running<TILES> &running,
                                       float (&out)[TILES][D / 8][4],
                                       int item,
                                       int row,
                                       uint16_t *rows)
{
    int lane = (int)(threadIdx.x % 32);
    TERN_UNROLL
    for (int i = 0; i < TILES; i++) {
        TERN_UNROLL
        for (int r = 0; r < 2; r++) {
            float sum = running.sum[i][r];
            sum += __shfl_xor_sync(TERN_WARP_ALL, sum, 1);
            sum += __shfl_xor_sync(TERN_WARP_ALL, sum, 2);
            int t = row + 16 * i + 8 * r + lane / 4;
            if (p.lse != NULL && lane % 4 == 0 && t < p.tq) {
                float base = tern_attention_base(p, running.most[i][r]);
                p.lse[(int64_t)item * p.tq + t] = (base + log2f(sum)) * TERN_LN_2;
            }
            float part = 1 / sum;
            TERN_UNROLL
            for (int j = 0; j < D / 8; j++) {
                out[i][j][2 * r] *= part;
                out[i][j][2 * r + 1] *= part;
            }
        }
    }
    int b = item / p.heads, head = item % p.heads;
    uint16_t *to = (uint16_t *)p.out + b * p.out_batch + (int64_t)head * D;
    tern_attention_store<D, TILES>(rows, out, to, p.out_row, row, p.tq);
}

template <int D, int WARP_ROWS, int N, int BLOCKS>
__global__ __launch_bounds__(TERN_ATTENTION_THREADS,
                             BLOCKS) void tern_attention_fwd_kernel(const tern_attention_params p)
{
    constexpr int TILES = WARP_ROWS / 16, LD = D + TERN_ATTENTION_PAD;
    constexpr int ROWS = TERN_ATTENTION_WARPS * WARP_ROWS;
    TERN_DYNAMIC_SHARED(uint16_t, q_tile);
    uint16_t *k_tile = q_tile + ROWS * LD, *v_tile = k_tile + N * LD;
    tern_attention_work work = tern_attention_work_of(p);
    int b = work.item / p.heads, head = work.item % p.heads;
    const uint16_t *q = (const uint16_t *)p.q + b * p.q_batch + (int64_t)head * D;
    int64_t kv_at = b * p.kv_batch + (int64_t)(head / p.group) * D;

    int shift = p.tkv - p.tq; /* position of a row, less the row */
    int block_row = (p.blocks - 1 - work.rank) * ROWS;
    int block_end = block_row + ROWS < p.tq ? block_row + ROWS : p.tq;
    int row = block_row + (int)(threadIdx.x / 32) * WARP_ROWS;
    int end = row + WARP_ROWS < p.tq ? row + WARP_ROWS : p.tq;
    int start = shift + row, last = row < p.tq ? shift + end - 1 : -1; /* positions of the warp */
    uint16_t *rows = q_tile + (row - block_row) * LD;                  /* this warp's */

    int oldest = shift + block_row - p.window + 1;
    int first = oldest > 0 ? oldest / N : 0, tile = (shift + block_end - 1) / N;
    float out[TILES][D / 8][4] = {};
    tern_attention_running<TILES> running;
    TERN_UNROLL
    for (int i = 0; i < TILES * 2; i++) {
        running.most[i / 2][i % 2] = -INFINITY;
        running.sum[i / 2][i % 2] = 0;
    }
    tern_attention_load<D, ROWS>(q_tile, q, p.q_row, block_row, p.tq);
    tern_attention_load<D, N>(k_tile, (const uint16_t *)p.k + kv_at, p.kv_row, tile * N, p.tkv);
    tern_cp_async_commit();
    for (; tile >= first; tile--) {
        bool is_idle = tern_attention_is_hidden(p, start, last, tile * N, N);
        float x[TILES][N / 8][4];
        tern_cp_async_wait<0>(); /* k is here */
        __syncthreads();         /* for everyone, and everyone has done with v */
        tern_attention_load<D, N>(v_tile, (const uint16_t *)p.v + kv_at, p.kv_row, tile * N, p.tkv);
        tern_cp_async_commit();
        if (!is_idle) {
            tern_attention_dots<D>(x, rows, k_tile);
            if (!tern_attention_is_open(p, start, last, tile * N, N)) {
                tern_attention_mask(p, x, start, tile * N);
            }
        }
        tern_cp_async_wait<0>(); /* v is here, and everyone has done with k */
        __syncthreads();
        if (tile > first) {
            tern_attention_load<D, N>(k_tile, (const uint16_t *)p.k + kv_at, p.kv_row,
                                      (tile - 1) * N, p.tkv);
            tern_cp_async_commit();
        }
        if (!is_idle) {
            tern_attention_softmax<D>(p, x, running, out);
            tern_attention_add<D>(out, x, v_tile);
        }
    }
    if (last >= 0) {
        tern_attention_finish<D>(p, running, out, work.item, row, rows);
    }
}

#endif
