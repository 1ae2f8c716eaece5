/* attention_plain.cu - causal attention on fp32 units, for what the tensor-core kernels do not take: fp32 storage, other
 * head widths, rows that are not 16-byte aligned, scales that are not positive, capped scores, packed documents.
 *
 * A block of 4 warps owns 4 * ROWS rows (query rows; keys for dk and dv), a warp ROWS of them; it walks over tiles of 32
 * rows of the other kind. Lane l of a warp computes the products of its ROWS rows with row l of the tile, then adds the
 * tile's rows, weighted, to columns l, l + 32, ... of its sums. Everything is fp32; tiles lie in shared memory as fp32.
 * Costs as in attention_fwd.cuh and attention_bwd.cuh; not for speed. */
#include "kernels/cuda/attention_plain.cuh"

enum {
    TILE = TERN_WARP, /* rows */
    WARPS = TERN_ATTENTION_WARPS
};

/* Four values of a row. */
struct alignas(16) quad {
    float x[4];
};

/* Width in shared memory: whole quads, the rest zeros. Tile rows are one more apart: no bank conflicts. */
TERN_HOST_DEVICE int padded(int d)
{
    return (d + 3) / 4 * 4;
}

TERN_DEVICE float load(const tern_attention_params &p, const void *x, int64_t at)
{
    return p.is_bf16 ? tern_load_bf16(static_cast<const uint16_t *>(x)[at])
                     : static_cast<const float *>(x)[at];
}

TERN_DEVICE void store(const tern_attention_params &p, void *x, int64_t at, float value)
{
    if (p.is_bf16) {
        static_cast<uint16_t *>(x)[at] = tern_store_bf16(value);
    } else {
        static_cast<float *>(x)[at] = value;
    }
}

/* Rows [first, first + rows) of one head, which starts at element `at`; zeros from row `count` on. Barriers are the
 * caller's. */
TERN_DEVICE void load_rows(const tern_attention_params &p,
                           float *shared,
                           int shared_row,
                           const void *x,
                           int64_t at,
                           int64_t row,
                           int first,
                           int rows,
                           int count)
{
    int width = padded(p.d), lane = (int)(threadIdx.x % TERN_WARP);
    for (int i = (int)(threadIdx.x / TERN_WARP); i < rows; i += WARPS) {
        for (int c = lane; c < width; c += TERN_WARP) {
            bool is_there = first + i < count && c < p.d;
            shared[i * shared_row + c] =
                is_there ? load(p, x, at + (int64_t)(first + i) * row + c) : 0.0f;
        }
    }
}

/* A tile, between barriers: everyone has done with what was there, and everyone may read it. */
TERN_DEVICE void load_tile(const tern_attention_params &p,
                           float *tile,
                           const void *x,
                           int64_t at,
                           int64_t row,
                           int first,
                           int count)
{
    __syncthreads();
    load_rows(p, tile, padded(p.d) + 1, x, at, row, first, TILE, count);
    __syncthreads();
}

/* x[r] = row r of this warp times this lane's row of the tile */
template <int ROWS>
TERN_DEVICE void dots(const tern_attention_params &p,
                      float (&x)[ROWS],
                      const float *rows,
                      const float *tile)
{
    int width = padded(p.d);
    const float *mine = tile + (int)(threadIdx.x % TERN_WARP) * (width + 1);
    TERN_UNROLL
    for (int r = 0; r < ROWS; r++) {
        x[r] = 0;
    }
    for (int c = 0; c < width; c += 4) {
        float y[4] = {mine[c], mine[c + 1], mine[c + 2], mine[c + 3]};
        TERN_UNROLL
        for (int r = 0; r < ROWS; r++) {
            quad row = *reinterpret_cast<const quad *>(rows + r * width + c);
            x[r] = fmaf(row.x[0], y[0], x[r]);
            x[r] = fmaf(row.x[1], y[1], x[r]);
            x[r] = fmaf(row.x[2], y[2], x[r]);
            x[r] = fmaf(row.x[3], y[3], x[r]);
        }
    }
}

/* A score by the natural logarithm's base, and what its derivative is times scale. */
struct score {
    float value, slope;
};

TERN_DEVICE score score_of(const tern_attention_params &p, float product)
{
    if (p.softcap == 0) {
        return {product * p.scale, 1.0f};
    }
    float bent = tanhf(product * p.by_cap);
    return {p.softcap * bent, 1.0f - bent * bent};
}

/* Whether row t of sequence b sees a key; rows from tq on see nothing of a document. */
TERN_DEVICE bool sees(const tern_attention_params &p, int b, int t, int key)
{
    bool is_seen = tern_attention_sees(p, p.tkv - p.tq + t, key);
    if (p.starts != NULL && is_seen) {
        is_seen = t < p.tq && key >= p.starts[(int64_t)b * p.tq + t];
    }
    return is_seen;
}

/* The weights of one row of a tile, for the rows of a warp. */
template <int ROWS> struct alignas(ROWS < 4 ? 4 * ROWS : 16) weights {
    float x[ROWS];
};

/* sum[r] (columns lane, lane + 32, ...) += x[r] of lane i, times row i of the tile; `exchange` is this warp's */
template <int ROWS, int COLUMNS>
TERN_DEVICE void spread(const tern_attention_params &p,
                        float (&sum)[ROWS][COLUMNS],
                        const float (&x)[ROWS],
                        const float *tile,
                        weights<ROWS> *exchange)
{
    int lane = (int)(threadIdx.x % TERN_WARP);
    weights<ROWS> mine;
    TERN_UNROLL
    for (int r = 0; r < ROWS; r++) {
        mine.x[r] = x[r];
    }
    __syncwarp(); /* the last call's are read */
    exchange[lane] = mine;
    __syncwarp();
    for (int i = 0; i < TILE; i++) {
        weights<ROWS> weight = exchange[i];
        TERN_UNROLL
        for (int c = 0; c < COLUMNS; c++) {
            int column = lane + c * TERN_WARP;
            float y = column < p.d ? tile[i * (padded(p.d) + 1) + column] : 0.0f;
            TERN_UNROLL
            for (int r = 0; r < ROWS; r++) {
                sum[r][c] = fmaf(weight.x[r], y, sum[r][c]);
            }
        }
    }
}

/* Rows [first, first + ROWS) below `count`, each times its factor. */
template <int ROWS, int COLUMNS>
TERN_DEVICE void store_rows(const tern_attention_params &p,
                            void *x,
                            int64_t at,
                            int64_t row,
                            int first,
                            int count,
                            const float (&sum)[ROWS][COLUMNS],
                            const float (&factor)[ROWS])
{
    int lane = (int)(threadIdx.x % TERN_WARP);
    TERN_UNROLL
    for (int r = 0; r < ROWS; r++) {
        TERN_UNROLL
        for (int c = 0; c < COLUMNS; c++) {
            int column = lane + c * TERN_WARP;
            if (first + r < count && column < p.d) {
                store(p, x, at + (int64_t)(first + r) * row + column, sum[r][c] * factor[r]);
            }
        }
    }
}

/* Where a block's queries start, and tiles of keys that they see. */
struct query_block {
    int64_t q, kv, out;
    int item, row, first_tile, last_tile;
};

TERN_DEVICE query_block query_block_of(const tern_attention_params &p, int rows)
{
    tern_attention_work work = tern_attention_work_of(p);
    int b = work.item / p.heads, head = work.item % p.heads, shift = p.tkv - p.tq;
    int row = (p.blocks - 1 - work.rank) * rows;
    int end = row + rows < p.tq ? row + rows : p.tq, oldest = shift + row - p.window + 1;
    return {b * p.q_batch + (int64_t)head * p.d,
            b * p.kv_batch + (int64_t)(head / p.group) * p.d,
            b * p.out_batch + (int64_t)head * p.d,
            work.item,
            row,
            oldest > 0 ? oldest / TILE : 0,
            (shift + end - 1) / TILE};
}

/* Scores of this lane's key to weights; sum and out so far are rescaled to the new maximum. */
template <int ROWS, int COLUMNS>
TERN_DEVICE void softmax(const tern_attention_params &p,
                         float (&x)[ROWS],
                         float (&most)[ROWS],
                         float (&sum)[ROWS],
                         float (&out)[ROWS][COLUMNS],
                         int b,
                         int row,
                         int key)
{
    TERN_UNROLL
    for (int r = 0; r < ROWS; r++) {
        float score = sees(p, b, row + r, key) ? score_of(p, x[r]).value : -INFINITY;
        float top = fmaxf(most[r], tern_warp_max(score));
        float base = top == -INFINITY ? 0.0f : top; /* has seen no key yet */
        float shrink = expf(most[r] - base);
        x[r] = expf(score - base);
        most[r] = top;
        sum[r] = sum[r] * shrink + tern_warp_sum(x[r]);
        TERN_UNROLL
        for (int c = 0; c < COLUMNS; c++) {
            out[r][c] *= shrink;
        }
    }
}

template <int ROWS, int COLUMNS>
__global__ __launch_bounds__(TERN_ATTENTION_THREADS,
                             2) void tern_attention_plain_fwd_kernel(const tern_attention_params p)
{
    TERN_DYNAMIC_SHARED(float, shared);
    TERN_SHARED(weights<ROWS>, exchanges, [WARPS][TILE]);
    weights<ROWS> *exchange = exchanges[threadIdx.x / TERN_WARP];
    int width = padded(p.d), warp_row = (int)(threadIdx.x / TERN_WARP) * ROWS;
    int lane = (int)(threadIdx.x % TERN_WARP);
    float *tile = shared + WARPS * ROWS * width, *mine = shared + warp_row * width;
    query_block at = query_block_of(p, WARPS * ROWS);
    int row = at.row + warp_row;
    load_rows(p, shared, width, p.q, at.q, p.q_row, at.row, WARPS * ROWS, p.tq);
    float out[ROWS][COLUMNS] = {}, most[ROWS], sum[ROWS] = {};
    TERN_UNROLL
    for (int r = 0; r < ROWS; r++) {
        most[r] = -INFINITY;
    }
    for (int i = at.first_tile; i <= at.last_tile; i++) {
        float x[ROWS];
        load_tile(p, tile, p.k, at.kv, p.kv_row, i * TILE, p.tkv);
        dots(p, x, mine, tile);
        softmax(p, x, most, sum, out, at.item / p.heads, row, i * TILE + lane);
        load_tile(p, tile, p.v, at.kv, p.kv_row, i * TILE, p.tkv);
        spread(p, out, x, tile, exchange);
    }
    float factor[ROWS];
    TERN_UNROLL
    for (int r = 0; r < ROWS; r++) {
        factor[r] = 1 / sum[r];
        if (p.lse != NULL && lane == 0 && row + r < p.tq) {
            p.lse[(int64_t)at.item * p.tq + row + r] = most[r] + logf(sum[r]);
        }
    }
    store_rows(p, p.out, at.out, p.out_row, row, p.tq, out, factor);
}

template <int ROWS, int COLUMNS>
__global__ __launch_bounds__(TERN_ATTENTION_THREADS,
                             2) void tern_attention_plain_dq_kernel(const tern_attention_params p)
{
    TERN_DYNAMIC_SHARED(float, shared);
    TERN_SHARED(weights<ROWS>, exchanges, [WARPS][TILE]);
    weights<ROWS> *exchange = exchanges[threadIdx.x / TERN_WARP];
    int width = padded(p.d), warp_row = (int)(threadIdx.x / TERN_WARP) * ROWS;
    int lane = (int)(threadIdx.x % TERN_WARP);
    float *dout = shared + WARPS * ROWS * width, *tile = dout + WARPS * ROWS * width;
    query_block at = query_block_of(p, WARPS * ROWS);
    int row = at.row + warp_row;
    load_rows(p, shared, width, p.q, at.q, p.q_row, at.row, WARPS * ROWS, p.tq);
    load_rows(p, dout, width, p.dout, at.out, p.out_row, at.row, WARPS * ROWS, p.tq);
    tern_attention_stat stats[ROWS];
    float dq[ROWS][COLUMNS] = {}, factor[ROWS];
    TERN_UNROLL
    for (int r = 0; r < ROWS; r++) { /* p.stat_rows is a multiple of every ROWS */
        int t = row + r < p.stat_rows ? row + r : 0;
        stats[r] = p.stats[(int64_t)at.item * p.stat_rows + t];
        factor[r] = p.scale;
    }
    for (int i = at.first_tile; i <= at.last_tile; i++) {
        float x[ROWS], y[ROWS];
        load_tile(p, tile, p.v, at.kv, p.kv_row, i * TILE, p.tkv);
        dots(p, y, dout + warp_row * width, tile);
        load_tile(p, tile, p.k, at.kv, p.kv_row, i * TILE, p.tkv);
        dots(p, x, shared + warp_row * width, tile);
        TERN_UNROLL
        for (int r = 0; r < ROWS; r++) {
            score s = score_of(p, x[r]);
            float weight = exp2f(fmaf(s.value, TERN_LOG2_E, -stats[r].lse2));
            bool is_seen = sees(p, at.item / p.heads, row + r, i * TILE + lane);
            x[r] = is_seen ? weight * (y[r] - stats[r].delta) * s.slope : 0.0f;
        }
        spread(p, dq, x, tile, exchange);
    }
    store_rows(p, p.dq, at.q, p.q_row, row, p.tq, dq, factor);
}

/* One tile of query rows of one head, for this warp's keys: adds to dk and dv. */
template <int ROWS, int COLUMNS>
TERN_DEVICE void add_tile(const tern_attention_params &p,
                          float (&dk)[ROWS][COLUMNS],
                          float (&dv)[ROWS][COLUMNS],
                          const float *k,
                          const float *v,
                          float *tile,
                          weights<ROWS> *exchange,
                          int b,
                          int head,
                          int first,
                          int key)
{
    int64_t q = b * p.q_batch + (int64_t)head * p.d, out = b * p.out_batch + (int64_t)head * p.d;
    int row = first + (int)(threadIdx.x % TERN_WARP);
    tern_attention_stat stat = p.stats[((int64_t)b * p.heads + head) * p.stat_rows + row];
    float x[ROWS], y[ROWS], slope[ROWS];
    load_tile(p, tile, p.q, q, p.q_row, first, p.tq);
    dots(p, x, k, tile);
    TERN_UNROLL
    for (int r = 0; r < ROWS; r++) {
        score s = score_of(p, x[r]);
        float weight = exp2f(fmaf(s.value, TERN_LOG2_E, -stat.lse2));
        x[r] = sees(p, b, row, key + r) ? weight : 0.0f;
        slope[r] = s.slope;
    }
    load_tile(p, tile, p.dout, out, p.out_row, first, p.tq);
    dots(p, y, v, tile);
    spread(p, dv, x, tile, exchange);
    TERN_UNROLL
    for (int r = 0; r < ROWS; r++) {
        x[r] *= (y[r] - stat.delta) * slope[r];
    }
    load_tile(p, tile, p.q, q, p.q_row, first, p.tq);
    spread(p, dk, x, tile, exchange);
}

template <int ROWS, int COLUMNS>
__global__ __launch_bounds__(TERN_ATTENTION_THREADS,
                             2) void tern_attention_plain_dkv_kernel(const tern_attention_params p)
{
    TERN_DYNAMIC_SHARED(float, shared);
    TERN_SHARED(weights<ROWS>, exchanges, [WARPS][TILE]);
    weights<ROWS> *exchange = exchanges[threadIdx.x / TERN_WARP];
    int width = padded(p.d), warp_row = (int)(threadIdx.x / TERN_WARP) * ROWS;
    float *v = shared + WARPS * ROWS * width, *tile = v + WARPS * ROWS * width;
    tern_attention_work work = tern_attention_work_of(p);
    int kv_heads = p.heads / p.group, b = work.item / kv_heads, kv_head = work.item % kv_heads;
    int64_t at = b * p.kv_batch + (int64_t)kv_head * p.d;
    int block_key = work.rank * WARPS * ROWS, key = block_key + warp_row;
    load_rows(p, shared, width, p.k, at, p.kv_row, block_key, WARPS * ROWS, p.tkv);
    load_rows(p, v, width, p.v, at, p.kv_row, block_key, WARPS * ROWS, p.tkv);
    tern_attention_rows rows = tern_attention_rows_of(p, block_key, WARPS * ROWS);
    float dk[ROWS][COLUMNS] = {}, dv[ROWS][COLUMNS] = {}, factor[ROWS], one[ROWS];
    for (int head = kv_head * p.group; head < (kv_head + 1) * p.group; head++) {
        for (int row = rows.first / TILE * TILE; row <= rows.last; row += TILE) {
            add_tile(p, dk, dv, shared + warp_row * width, v + warp_row * width, tile, exchange, b,
                     head, row, key);
        }
    }
    TERN_UNROLL
    for (int r = 0; r < ROWS; r++) {
        factor[r] = p.scale;
        one[r] = 1;
    }
    store_rows(p, p.dk, at, p.kv_row, key, p.tkv, dk, factor);
    store_rows(p, p.dv, at, p.kv_row, key, p.tkv, dv, one);
}

/* ---- launching: what is held in registers and shared memory is bounded by taking fewer rows of wide heads ---- */

struct plain_instance {
    int width; /* at most */
    int rows;  /* of a warp */
    void (*kernel)(const tern_attention_params);
};

#define INSTANCES(pass, wide) \
    { \
        {64, 8, tern_attention_plain_##pass##_kernel<8, 2>}, \
            {128, 8, tern_attention_plain_##pass##_kernel<8, 4>}, \
        { \
            TERN_HEAD_WIDTH_MAX, wide, tern_attention_plain_##pass##_kernel<wide, 16> \
        } \
    }
static const plain_instance g_instances[][3] = {INSTANCES(fwd, 4), INSTANCES(dq, 2),
                                                INSTANCES(dkv, 2)};

static const plain_instance *instance_of(enum tern_attention_pass pass, int width)
{
    const plain_instance *instance = g_instances[pass];
    while (width > instance->width) {
        instance++;
    }
    return instance;
}

int tern_attention_plain_rows(enum tern_attention_pass pass, int width)
{
    return WARPS * instance_of(pass, width)->rows;
}

tern_status tern_attention_launch_plain(enum tern_attention_pass pass,
                                        const tern_attention_params &p,
                                        cudaStream_t stream)
{
    const plain_instance *instance = instance_of(pass, p.d);
    size_t owned = (size_t)tern_attention_plain_rows(pass, p.d) * (size_t)padded(p.d);
    size_t values =
        (pass == TERN_ATTENTION_FWD ? 1 : 2) * owned + (size_t)TILE * (size_t)(padded(p.d) + 1);
    const char *what = pass == TERN_ATTENTION_FWD ? "attention_fwd" : "attention_bwd";
    TERN_RETURN_IF_ERR(
        tern_cuda_status(tern_allow_shared(instance->kernel, values * sizeof(float)), what));
    tern_launch(instance->kernel, dim3((unsigned)p.items * (unsigned)p.blocks),
                dim3(TERN_ATTENTION_THREADS), values * sizeof(float), stream, p);
    return tern_cuda_launched(what);
}
