/* paged.c - keys and values in blocks, and attention over them, by their definitions.
 *
 * A block: keys (K, TERN_KV_BLOCK, D), values the same, then of i8 the scales of keys f32 (K, TERN_KV_BLOCK), and of
 * values. */
#include "kernels/ref/ref.h"

#include <math.h>

static const float LEAST_MAX = 0x1p-100F; /* below it all codes are 0 */

size_t tern_ref_kv_block_bytes(int64_t kv_heads, int64_t d, enum tern_dtype kv_dtype)
{
    size_t rows = 2 * (size_t)kv_heads * TERN_KV_BLOCK;
    size_t scales = kv_dtype == TERN_I8 ? sizeof(float) : 0;
    return rows * ((size_t)d * tern_dtype_bytes(kv_dtype) + scales);
}

/* Where a head's row of a token lies. */
struct place {
    struct tern_dptr block;
    int64_t cells; /* of keys, and of values, in a block */
    int64_t row;   /* number of the row among the keys, or the values */
    bool is_value;
};

static struct place place_of(struct tern_dptr pool,
                             int64_t slot,
                             int64_t head,
                             bool is_value,
                             int64_t kv_heads,
                             int64_t d,
                             enum tern_dtype kv_dtype)
{
    uint64_t block_bytes = tern_ref_kv_block_bytes(kv_heads, d, kv_dtype);
    return (struct place){
        .block = {pool.addr + (uint64_t)(slot / TERN_KV_BLOCK) * block_bytes},
        .cells = kv_heads * TERN_KV_BLOCK * d,
        .row = head * TERN_KV_BLOCK + slot % TERN_KV_BLOCK,
        .is_value = is_value,
    };
}

static int8_t *codes_of(struct place at, int64_t d)
{
    return (int8_t *)tern_ref_ptr(at.block) + (at.is_value ? at.cells : 0) + at.row * d;
}

static float *scale_of(struct place at, int64_t d)
{
    float *scales =
        (float *)tern_ref_ptr((struct tern_dptr){at.block.addr + 2 * (uint64_t)at.cells});
    return scales + (at.is_value ? at.cells / d : 0) + at.row;
}

static void put_codes(struct place at,
                      int64_t d,
                      struct tern_dptr x,
                      enum tern_dtype dtype,
                      int64_t from)
{
    int8_t *codes = codes_of(at, d);
    float max = 0;
    for (int64_t i = 0; i < d; i++) {
        max = fmaxf(max, fabsf((float)tern_ref_get(x, dtype, from + i)));
    }
    bool is_zero = !(max >= LEAST_MAX);
    float factor = is_zero ? 0 : 127.0F / max;
    for (int64_t i = 0; i < d; i++) {
        float code = rintf((float)tern_ref_get(x, dtype, from + i) * factor);
        codes[i] = (int8_t)(fabsf(code) <= 127 ? code : 0);
    }
    *scale_of(at, d) = is_zero ? 0 : max / 127.0F;
}

static void put_row(const struct tern_kv_write_args *args, int64_t n, int64_t head, bool is_value)
{
    struct tern_dptr x = is_value ? args->v : args->k;
    int64_t from = n * (is_value ? args->v_row : args->k_row) + head * args->d;
    struct place at = place_of(args->pool, tern_ref_i32(args->slots, n), head, is_value,
                               args->kv_heads, args->d, args->kv_dtype);
    if (args->kv_dtype == TERN_I8) {
        put_codes(at, args->d, x, args->dtype, from);
        return;
    }
    int64_t to = (is_value ? at.cells : 0) + at.row * args->d;
    for (int64_t i = 0; i < args->d; i++) {
        tern_ref_put(at.block, args->kv_dtype, to + i, tern_ref_get(x, args->dtype, from + i));
    }
}

tern_status tern_ref_kv_write(struct tern_device *device, const struct tern_kv_write_args *args)
{
    (void)device;
    for (int64_t n = 0; n < args->n; n++) {
        for (int64_t head = 0; head < args->kv_heads && tern_ref_i32(args->slots, n) >= 0; head++) {
            put_row(args, n, head, false);
            put_row(args, n, head, true);
        }
    }
    return TERN_OK;
}

/* Element i of a head's row of the token at position `key` of sequence s. */
static double kept(const struct tern_paged_attention_args *args,
                   int64_t s,
                   int64_t key,
                   int64_t head,
                   bool is_value,
                   int64_t i)
{
    int64_t block = tern_ref_i32(args->tables, s * args->table_row + key / TERN_KV_BLOCK);
    struct place at = place_of(args->pool, block * TERN_KV_BLOCK + key % TERN_KV_BLOCK, head,
                               is_value, args->kv_heads, args->d, args->kv_dtype);
    if (args->kv_dtype == TERN_I8) {
        return (double)((float)codes_of(at, args->d)[i] * *scale_of(at, args->d));
    }
    return tern_ref_get(at.block, args->kv_dtype, (is_value ? at.cells : 0) + at.row * args->d + i);
}

static double score(const struct tern_paged_attention_args *args,
                    int64_t s,
                    int64_t row,
                    int64_t head,
                    int64_t key)
{
    int64_t kv_head = head / (args->h / args->kv_heads);
    double sum = 0, cap = (double)args->softcap;
    for (int64_t i = 0; i < args->d; i++) {
        sum += tern_ref_get(args->q, args->dtype, row * args->q_row + head * args->d + i) *
               kept(args, s, key, kv_head, false, i);
    }
    sum *= (double)args->scale;
    return cap > 0 ? cap * tanh(sum / cap) : sum;
}

static void attend(const struct tern_paged_attention_args *args,
                   int64_t s,
                   int64_t row,
                   int64_t position,
                   int64_t head)
{
    int64_t kv_head = head / (args->h / args->kv_heads);
    int64_t first = args->window > 0 && position >= args->window ? position - args->window + 1 : 0;
    double max = -INFINITY, total = 0, sum[TERN_HEAD_WIDTH_MAX] = {0};
    for (int64_t key = first; key <= position; key++) {
        max = fmax(max, score(args, s, row, head, key));
    }
    for (int64_t key = first; key <= position; key++) {
        double weight = exp(score(args, s, row, head, key) - max);
        total += weight;
        for (int64_t i = 0; i < args->d; i++) {
            sum[i] += weight * kept(args, s, key, kv_head, true, i);
        }
    }
    for (int64_t i = 0; i < args->d; i++) {
        tern_ref_put(args->out, args->dtype, row * args->out_row + head * args->d + i,
                     sum[i] / total);
    }
}

tern_status tern_ref_paged_attention(struct tern_device *device,
                                     const struct tern_paged_attention_args *args)
{
    (void)device;
    for (int64_t s = 0; s < args->sequences; s++) {
        int64_t begin = tern_ref_i32(args->row_starts, s),
                end = tern_ref_i32(args->row_starts, s + 1);
        for (int64_t row = begin; row < end; row++) {
            int64_t position = tern_ref_i32(args->lengths, s) - end + row;
            for (int64_t head = 0; head < args->h; head++) {
                attend(args, s, row, position, head);
            }
        }
    }
    return TERN_OK;
}
