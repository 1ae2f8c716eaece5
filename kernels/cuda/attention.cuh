/* attention.cuh - what the attention kernels share: their argument, the order of blocks, tiles in shared memory, and the
 * two products on tensor cores that all of them are made of.
 *
 * Method: FlashAttention-2 (Dao 2023, "FlashAttention-2: Faster Attention with Better Parallelism and Work
 * Partitioning"): scores live only in registers, tile by tile; the forward keeps a running maximum and sum a row, the
 * backward recomputes the weights from the saved logarithm of the sum. Unlike there, dq has a kernel of its own: sums
 * have a fixed order without atomics, for one product of seven done twice. */
#ifndef TERN_KERNELS_CUDA_ATTENTION_CUH
#define TERN_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/mma.cuh"

extern "C" {
#include "kernels/cuda/attention_plan.h"
}

#define TERN_ATTENTION_THREADS (TERN_ATTENTION_WARPS * 32)

static const float TERN_LOG2_E = 1.442695040888963407f, TERN_LN_2 = 0.693147180559945309f;

/* Of one query row: log2 of the sum of exponentials, and sum over the width of dout * out. Rows that fill up a tile
 * have lse2 = +inf, so that their weights are 0. */
struct alignas(8) tern_attention_stat {
    float lse2, delta;
};

/* Layouts are those of struct tern_attention_args. */
struct tern_attention_params {
    const void *q, *k, *v, *dout;
    void *out; /* written forward, read backward */
    void *dq, *dk, *dv;
    float *lse;                        /* may be null forward */
    struct tern_attention_stat *stats; /* (B, H, stat_rows), backward */
    int64_t q_row, q_batch, kv_row, kv_batch, out_row, out_batch;
    int tq, tkv, d, heads, group; /* group: query heads of a key/value head */
    int window;                   /* keys that a query sees at most, [1, tkv] */
    int stat_rows;                /* tq, padded */
    int items, section, blocks;   /* see tern_attention_work_of */
    float scale, scale_log2;      /* scale_log2 = scale / ln 2 */
    bool is_bf16;
    /* the plain kernels' only */
    const int *starts;     /* (B, Tq): first keys of documents, or null */
    float softcap, by_cap; /* 0: none; scale / softcap */
};

/* What a block works on: an item (a head of a sequence), and the how-manieth longest block of it. */
struct tern_attention_work {
    int item, rank;
};

TERN_DEVICE struct tern_attention_work tern_attention_work_of(const tern_attention_params &p)
{
    int index = (int)blockIdx.x;
    int start = index / (p.section * p.blocks) * p.section;
    int count = p.section < p.items - start ? p.section : p.items - start;
    int within = index - start * p.blocks;
    return {start + within % count, within / count};
}

/* Whether no query at positions [first, last] sees any of `keys` keys from `key` on. */
TERN_DEVICE bool tern_attention_is_hidden(const tern_attention_params &p,
                                          int first,
                                          int last,
                                          int key,
                                          int keys)
{
    return key > last || key + keys - 1 <= first - p.window;
}

/* Whether every query at positions [first, last] sees all of them. */
TERN_DEVICE bool tern_attention_is_open(const tern_attention_params &p,
                                        int first,
                                        int last,
                                        int key,
                                        int keys)
{
    return key + keys - 1 <= first && key > last - p.window;
}

TERN_DEVICE bool tern_attention_sees(const tern_attention_params &p, int position, int key)
{
    return key <= position && key > position - p.window;
}

/* Query rows that see any of a block's keys: [first, last], perhaps none. */
struct tern_attention_rows {
    int first, last;
};

TERN_DEVICE tern_attention_rows tern_attention_rows_of(const tern_attention_params &p,
                                                       int key,
                                                       int keys)
{
    int shift = p.tkv - p.tq, newest = key + keys < p.tkv ? key + keys - 1 : p.tkv - 1;
    int first = key - shift, last = newest - shift + p.window - 1;
    return {first > 0 ? first : 0, last < p.tq - 1 ? last : p.tq - 1};
}

/* ---- tiles of bf16 rows in shared memory, D + TERN_ATTENTION_PAD apart ---- */

/* Starts copies of rows [first, first + ROWS) of one head, zeros from row `count` on. 16-byte aligned throughout. */
template <int D, int ROWS>
TERN_DEVICE void tern_attention_load(uint16_t *tile,
                                     const uint16_t *head,
                                     int64_t stride,
                                     int first,
                                     int count)
{
    /* a power of two of lanes a row, some idle, rather than divisions */
    constexpr int LANES = D <= 64 ? 8 : D <= 128 ? 16 : 32;
    constexpr int STEP = TERN_ATTENTION_THREADS / LANES;
    static_assert(ROWS % STEP == 0, "every thread copies as many rows");
    int row = (int)(threadIdx.x / LANES), column = (int)(threadIdx.x % LANES * 8);
    if (column >= D) {
        return;
    }
    uint16_t *to = tile + row * (D + TERN_ATTENTION_PAD) + column;
    const uint16_t *from = head + (int64_t)(first + row) * stride + column;
    TERN_UNROLL
    for (int i = 0; i < ROWS; i += STEP) {
        bool is_there = first + row + i < count;
        tern_cp_async16(to + i * (D + TERN_ATTENTION_PAD), from,
                        is_there ? 16 : 0); /* else not read */
        from += STEP * stride;
    }
}

/* Writes a warp's sums as bf16 rows [first, first + 16 * TILES) of one head, those below `count`, through rows of
 * shared memory that only this warp uses. */
template <int D, int TILES>
TERN_DEVICE void tern_attention_store(uint16_t *rows,
                                      const float (&x)[TILES][D / 8][4],
                                      uint16_t *head,
                                      int64_t stride,
                                      int first,
                                      int count)
{
    constexpr int LD = D + TERN_ATTENTION_PAD, LANES = D <= 64 ? 8 : D <= 128 ? 16 : 32;
    int lane = (int)(threadIdx.x % 32);
    __syncwarp();
    TERN_UNROLL
    for (int i = 0; i < TILES; i++) {
        uint16_t *at = rows + (i * 16 + lane / 4) * LD + lane % 4 * 2;
        TERN_UNROLL
        for (int j = 0; j < D / 8; j++) {
            *reinterpret_cast<uint32_t *>(at + j * 8) = tern_pack_bf16(x[i][j][0], x[i][j][1]);
            *reinterpret_cast<uint32_t *>(at + 8 * LD + j * 8) =
                tern_pack_bf16(x[i][j][2], x[i][j][3]);
        }
    }
    __syncwarp();
    int row = lane / LANES, column = lane % LANES * 8;
    for (int i = row; i < TILES * 16 && column < D; i += 32 / LANES) {
        if (first + i < count) {
            *reinterpret_cast<tern_vec16 *>(head + (int64_t)(first + i) * stride + column) =
                *reinterpret_cast<const tern_vec16 *>(rows + i * LD + column);
        }
    }
}

/* ---- products; fragments as in mma.cuh: value e of x[i][j] is row 16 i + lane / 4 + 8 (e / 2), column
 * 8 j + lane % 4 * 2 + e % 2 ---- */

/* x (16 TILES, 8 COLUMNS) = a (16 TILES, D) * b (8 COLUMNS, D)^T */
template <int D, int TILES, int COLUMNS>
TERN_DEVICE void tern_attention_dots(float (&x)[TILES][COLUMNS][4],
                                     const uint16_t *a,
                                     const uint16_t *b)
{
    constexpr int LD = D + TERN_ATTENTION_PAD;
    int lane = (int)(threadIdx.x % 32);
    const uint16_t *a_at = a + lane % 16 * LD + lane / 16 * 8;
    const uint16_t *b_at = b + lane % 16 * LD + lane / 16 * 8;
    TERN_UNROLL
    for (int i = 0; i < TILES * COLUMNS * 4; i++) {
        x[i / 4 / COLUMNS][i / 4 % COLUMNS][i % 4] = 0;
    }
    TERN_UNROLL
    for (int k = 0; k < D; k += 16) {
        uint32_t left[TILES][4];
        TERN_UNROLL
        for (int i = 0; i < TILES; i++) {
            tern_ldmatrix_x4(left[i], a_at + i * 16 * LD + k);
        }
        TERN_UNROLL
        for (int j = 0; j < COLUMNS; j += 2) {
            uint32_t right[4];
            tern_ldmatrix_x4(right, b_at + j * 8 * LD + k);
            const uint32_t even[2] = {right[0], right[2]}, odd[2] = {right[1], right[3]};
            TERN_UNROLL
            for (int i = 0; i < TILES; i++) {
                tern_mma_bf16(x[i][j], left[i], even);
                tern_mma_bf16(x[i][j + 1], left[i], odd);
            }
        }
    }
}

/* sum (16 TILES, D) += x (16 TILES, 8 COLUMNS), rounded to bf16, * b (8 COLUMNS, D) */
template <int D, int TILES, int COLUMNS>
TERN_DEVICE void tern_attention_add(float (&sum)[TILES][D / 8][4],
                                    const float (&x)[TILES][COLUMNS][4],
                                    const uint16_t *b)
{
    constexpr int LD = D + TERN_ATTENTION_PAD;
    int lane = (int)(threadIdx.x % 32);
    const uint16_t *b_at = b + lane % 16 * LD + lane / 16 * 8;
    uint32_t left[COLUMNS / 2][TILES][4];
    TERN_UNROLL
    for (int i = 0; i < TILES; i++) {
        TERN_UNROLL
        for (int j = 0; j < COLUMNS; j++) {
            left[j / 2][i][j % 2 * 2] = tern_pack_bf16(x[i][j][0], x[i][j][1]);
            left[j / 2][i][j % 2 * 2 + 1] = tern_pack_bf16(x[i][j][2], x[i][j][3]);
        }
    }
    TERN_UNROLL
    for (int k = 0; k < COLUMNS; k += 2) {
        TERN_UNROLL
        for (int j = 0; j < D / 8; j += 2) {
            uint32_t right[4];
            tern_ldmatrix_x4_trans(right, b_at + k * 8 * LD + j * 8);
            const uint32_t even[2] = {right[0], right[1]}, odd[2] = {right[2], right[3]};
            TERN_UNROLL
            for (int i = 0; i < TILES; i++) {
                tern_mma_bf16(sum[i][j], left[k / 2][i], even);
                tern_mma_bf16(sum[i][j + 1], left[k / 2][i], odd);
            }
        }
    }
}

/* ---- launching ---- */

/* Enqueues one instance of one width (attention_w*.cu). */
typedef tern_status tern_attention_launch(const struct tern_attention_tile *tile,
                                          const tern_attention_params &p,
                                          cudaStream_t stream);
tern_attention_launch tern_attention_launch_64, tern_attention_launch_80, tern_attention_launch_96,
    tern_attention_launch_128, tern_attention_launch_256;

#endif
