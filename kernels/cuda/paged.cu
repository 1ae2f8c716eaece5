/* paged.cu - keys and values of new tokens into blocks, and attention of many sequences over them.
 *
 * A block of the pool: keys (K, TERN_KV_BLOCK, D), values the same, then of i8 the scales of keys f32 (K, TERN_KV_BLOCK),
 * and of values.
 *
 * Writing: a warp a row and head, of keys and then of values. Attention: a warp a row and query head walks over tiles of
 * 32 keys at fixed positions: lane l scores key l of the tile by its D products in order, the warp weighs the tile by its
 * maximum, then lane l adds the values' elements l, l + 32, ... by weight, in f32. A row is one warp's work whoever else is there. */
#include "kernels/cuda/vec.cuh"

#include <float.h>
#include <math.h>

enum {
    WARPS = 4,
    THREADS = WARPS * TERN_WARP,
    WIDTH_MAX = TERN_HEAD_WIDTH_MAX / TERN_WARP /* elements of D that a lane has */
};

#define LEAST_MAX 0x1p-100F
#define LOG2_E    1.4426950408889634F

/* Where things lie in a pool. */
struct pool {
    char *bytes;
    int64_t block_bytes, cells; /* cells: of keys, and of values, in a block */
    int kv_heads, d;
};

static struct pool pool_of(struct tern_dptr p,
                           int64_t kv_heads,
                           int64_t d,
                           enum tern_dtype kv_dtype)
{
    return {tern_ptr<char>(p), (int64_t)tern_cuda_kv_block_bytes(kv_heads, d, kv_dtype),
            kv_heads * TERN_KV_BLOCK * d, (int)kv_heads, (int)d};
}

/* The row of a head: keys, or values. */
template <typename KV>
TERN_DEVICE KV *row_of(const pool &pool, int64_t block, int place, int head, bool is_value)
{
    KV *cells = reinterpret_cast<KV *>(pool.bytes + block * pool.block_bytes);
    return cells + (is_value ? pool.cells : 0) + (int64_t)(head * TERN_KV_BLOCK + place) * pool.d;
}

TERN_DEVICE float *scale_of(const pool &pool, int64_t block, int place, int head, bool is_value)
{
    float *scales =
        reinterpret_cast<float *>(pool.bytes + block * pool.block_bytes + 2 * pool.cells);
    return scales + ((is_value ? pool.kv_heads : 0) + head) * TERN_KV_BLOCK + place;
}

size_t tern_cuda_kv_block_bytes(int64_t kv_heads, int64_t d, enum tern_dtype kv_dtype)
{
    size_t rows = 2 * (size_t)kv_heads * TERN_KV_BLOCK;
    size_t scales = kv_dtype == TERN_I8 ? sizeof(float) : 0;
    return rows * ((size_t)d * tern_dtype_bytes(kv_dtype) + scales);
}

template <typename T> struct kv_write {
    const T *x[2];        /* keys, values: (N, K, D), row strides below */
    const int32_t *slots; /* (N) */
    struct pool pool;
    int64_t n, row[2];
};

TERN_DEVICE void write_row(float *to, const float (&x)[WIDTH_MAX], int d, int lane, float *scale)
{
    (void)scale;
    TERN_UNROLL
    for (int i = 0; i < WIDTH_MAX; i++) {
        if (lane + i * TERN_WARP < d) {
            to[lane + i * TERN_WARP] = x[i];
        }
    }
}

TERN_DEVICE void write_row(tern_bf16 *to,
                           const float (&x)[WIDTH_MAX],
                           int d,
                           int lane,
                           float *scale)
{
    (void)scale;
    TERN_UNROLL
    for (int i = 0; i < WIDTH_MAX; i++) {
        if (lane + i * TERN_WARP < d) {
            to[lane + i * TERN_WARP] = tern_store_bf16(x[i]);
        }
    }
}

TERN_DEVICE void write_row(int8_t *to, const float (&x)[WIDTH_MAX], int d, int lane, float *scale)
{
    float max = 0;
    TERN_UNROLL
    for (int i = 0; i < WIDTH_MAX; i++) {
        max = fmaxf(max, fabsf(x[i]));
    }
    max = tern_warp_max(max);
    bool is_zero = !(max >= LEAST_MAX);
    float factor = is_zero ? 0.0F : 127.0F / max;
    TERN_UNROLL
    for (int i = 0; i < WIDTH_MAX; i++) {
        float code = rintf(x[i] * factor);
        if (lane + i * TERN_WARP < d) {
            to[lane + i * TERN_WARP] = (int8_t)(fabsf(code) <= 127 ? code : 0.0F);
        }
    }
    if (lane == 0) {
        *scale = is_zero ? 0.0F : max / 127.0F;
    }
}

template <typename T, typename KV>
__global__ void __launch_bounds__(THREADS) kv_write_kernel(struct kv_write<T> a)
{
    int lane = (int)(threadIdx.x % TERN_WARP);
    int64_t total = a.n * a.pool.kv_heads * 2;
    int64_t stride = (int64_t)gridDim.x * WARPS;
    for (int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / TERN_WARP; i < total;
         i += stride) {
        int part = (int)(i % 2), head = (int)(i / 2 % a.pool.kv_heads);
        int64_t n = i / 2 / a.pool.kv_heads;
        int32_t slot = a.slots[n];
        if (slot < 0) {
            continue;
        }
        int64_t block = slot / TERN_KV_BLOCK;
        int place = slot % TERN_KV_BLOCK;
        const T *from =
            (part == 0 ? a.x[0] + n * a.row[0] : a.x[1] + n * a.row[1]) + /* in registers */
            (int64_t)head * a.pool.d;
        float x[WIDTH_MAX];
        TERN_UNROLL
        for (int j = 0; j < WIDTH_MAX; j++) {
            int at = lane + j * TERN_WARP;
            x[j] = at < a.pool.d ? tern_get(from + at) : 0.0F;
        }
        write_row(row_of<KV>(a.pool, block, place, head, part == 1), x, a.pool.d, lane,
                  scale_of(a.pool, block, place, head, part == 1));
    }
}

template <typename T>
static tern_status write_any(struct tern_device *device, const struct tern_kv_write_args *args)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    kv_write<T> a = {{tern_ptr<const T>(args->k), tern_ptr<const T>(args->v)},
                     tern_ptr<const int32_t>(args->slots),
                     pool_of(args->pool, args->kv_heads, args->d, args->kv_dtype),
                     args->n,
                     {args->k_row, args->v_row}};
    unsigned blocks = tern_blocks(cuda, args->n * args->kv_heads * 2 * TERN_WARP, THREADS);
    switch (args->kv_dtype) {
    case TERN_F32:
        tern_launch(kv_write_kernel<T, float>, blocks, THREADS, 0, cuda->stream, a);
        break;
    case TERN_BF16:
        tern_launch(kv_write_kernel<T, tern_bf16>, blocks, THREADS, 0, cuda->stream, a);
        break;
    default:
        tern_launch(kv_write_kernel<T, int8_t>, blocks, THREADS, 0, cuda->stream, a);
    }
    return tern_cuda_launched("kv_write");
}

tern_status tern_cuda_kv_write(struct tern_device *device, const struct tern_kv_write_args *args)
{
    return args->dtype == TERN_BF16 ? write_any<tern_bf16>(device, args)
                                    : write_any<float>(device, args);
}

template <typename T> struct paged {
    const T *q;
    T *out;
    struct pool pool;
    const int32_t *row_starts, *lengths, *tables;
    int64_t n, sequences, table_row, q_row, out_row;
    int64_t window;
    int heads;
    float scale, softcap;
};

TERN_DEVICE float kept_get(const float *p)
{
    return *p;
}

TERN_DEVICE float kept_get(const tern_bf16 *p)
{
    return tern_load_bf16(*p);
}

TERN_DEVICE float kept_get(const int8_t *p)
{
    return (float)*p;
}

/* The sequence that row n belongs to. */
template <typename T> TERN_DEVICE int64_t sequence_of(const paged<T> &a, int64_t n)
{
    int64_t low = 0, high = a.sequences;
    while (high - low > 1) { /* the last that begins at or before it */
        int64_t middle = (low + high) / 2;
        if (a.row_starts[middle] <= n) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The score of one key, in base 2. */
template <typename T, typename KV>
TERN_DEVICE float score_of(const paged<T> &a, const T *q, int64_t block, int place, int kv_head)
{
    const KV *key = row_of<KV>(a.pool, block, place, kv_head, false);
    float sum = 0;
    for (int i = 0; i < a.pool.d; i++) {
        sum = fmaf(tern_get(q + i), kept_get(key + i), sum);
    }
    if (sizeof(KV) == 1) {
        sum *= *scale_of(a.pool, block, place, kv_head, false);
    }
    sum *= a.scale;
    return (a.softcap > 0 ? a.softcap * tanhf(sum / a.softcap) : sum) * LOG2_E;
}

/* One row and query head, by a warp. */
template <typename T, typename KV> TERN_DEVICE void attend(const paged<T> &a, int64_t n, int head)
{
    int lane = (int)(threadIdx.x % TERN_WARP), d = a.pool.d;
    int kv_head = head / (a.heads / a.pool.kv_heads);
    int64_t s = sequence_of(a, n);
    int64_t position = (int64_t)a.lengths[s] - (a.row_starts[s + 1] - n);
    int64_t first = a.window > 0 ? tern_max(0, position - a.window + 1) : 0;
    const int32_t *table = a.tables + s * a.table_row;
    const T *q = a.q + n * a.q_row + (int64_t)head * d;
    float max = -FLT_MAX, total = 0, out[WIDTH_MAX];
    TERN_UNROLL
    for (int i = 0; i < WIDTH_MAX; i++) {
        out[i] = 0;
    }
    for (int64_t tile = first / TERN_WARP * TERN_WARP; tile <= position; tile += TERN_WARP) {
        int64_t key = tile + lane;
        bool is_seen = key >= first && key <= position;
        int64_t block = is_seen ? table[key / TERN_KV_BLOCK] : 0;
        int place = (int)(key % TERN_KV_BLOCK);
        float x = is_seen ? score_of<T, KV>(a, q, block, place, kv_head) : -INFINITY;
        float new_max = fmaxf(max, tern_warp_max(x)), shrink = exp2f(max - new_max);
        float weight = exp2f(x - new_max);
        total = total * shrink + tern_warp_sum(weight);
        max = new_max;
        if (sizeof(KV) == 1 && is_seen) {
            weight *= *scale_of(a.pool, block, place, kv_head, true);
        }
        TERN_UNROLL
        for (int i = 0; i < WIDTH_MAX; i++) {
            out[i] *= shrink;
        }
        int begin = (int)tern_max(0, first - tile),
            end = (int)tern_min(TERN_WARP, position + 1 - tile);
        for (int j = begin; j < end; j++) {
            float by = __shfl_sync(TERN_WARP_ALL, weight, j);
            const KV *value = row_of<KV>(a.pool, table[(tile + j) / TERN_KV_BLOCK],
                                         (int)((tile + j) % TERN_KV_BLOCK), kv_head, true);
            TERN_UNROLL
            for (int i = 0; i < WIDTH_MAX; i++) {
                if (lane + i * TERN_WARP < d) {
                    out[i] = fmaf(by, kept_get(value + lane + i * TERN_WARP), out[i]);
                }
            }
        }
    }
    T *to = a.out + n * a.out_row + (int64_t)head * d;
    TERN_UNROLL
    for (int i = 0; i < WIDTH_MAX; i++) {
        if (lane + i * TERN_WARP < d) {
            tern_put(to + lane + i * TERN_WARP, out[i] / total);
        }
    }
}

template <typename T, typename KV>
__global__ void __launch_bounds__(THREADS) paged_kernel(struct paged<T> a)
{
    int64_t total = a.n * a.heads, stride = (int64_t)gridDim.x * WARPS;
    for (int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / TERN_WARP; i < total;
         i += stride) {
        attend<T, KV>(a, i / a.heads, (int)(i % a.heads));
    }
}

template <typename T>
static tern_status attend_any(struct tern_device *device,
                              const struct tern_paged_attention_args *args)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    paged<T> a = {tern_ptr<const T>(args->q),
                  tern_ptr<T>(args->out),
                  pool_of(args->pool, args->kv_heads, args->d, args->kv_dtype),
                  tern_ptr<const int32_t>(args->row_starts),
                  tern_ptr<const int32_t>(args->lengths),
                  tern_ptr<const int32_t>(args->tables),
                  args->n,
                  args->sequences,
                  args->table_row,
                  args->q_row,
                  args->out_row,
                  args->window,
                  (int)args->h,
                  args->scale,
                  args->softcap};
    unsigned blocks = tern_blocks(cuda, args->n * args->h * TERN_WARP, THREADS);
    switch (args->kv_dtype) {
    case TERN_F32:
        tern_launch(paged_kernel<T, float>, blocks, THREADS, 0, cuda->stream, a);
        break;
    case TERN_BF16:
        tern_launch(paged_kernel<T, tern_bf16>, blocks, THREADS, 0, cuda->stream, a);
        break;
    default:
        tern_launch(paged_kernel<T, int8_t>, blocks, THREADS, 0, cuda->stream, a);
    }
    return tern_cuda_launched("paged_attention");
}

tern_status tern_cuda_paged_attention(struct tern_device *device,
                                      const struct tern_paged_attention_args *args)
{
    return args->dtype == TERN_BF16 ? attend_any<tern_bf16>(device, args)
                                    : attend_any<float>(device, args);
}
