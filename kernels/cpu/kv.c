/* kv.c - keys and values of new tokens into their blocks, as kv.h lays them out. */
#include "kernels/cpu/kv.h"

#include "kernels/cpu/vec.h"

enum {
    ROWS_TASK = 8
};

/* Below it all codes are 0 (kernels/ops.h). */
#define LEAST_MAX 0x1p-100f

/* A head's row, D padded to whole vectors. */
struct row {
    _Alignas(64) float x[TERN_HEAD_WIDTH_MAX];
};

VF_INLINE void load(struct row *row, const void *from, int64_t at, int64_t d, int64_t dp, bool bf16)
{
#define STEP(i, n) vf_store(row->x + (i), vf_get_n(from, at + (i), n, bf16))
    VF_EACH(d, STEP);
#undef STEP
    for (int64_t i = tern_cpu_round_up(d, VF_LANES); i < dp; i += VF_LANES) {
        vf_store(row->x + i, vf_zero());
    }
}

/* The row becomes its codes; returns their scale. */
static float quantise(struct row *row, int64_t dp)
{
    vf most = vf_zero();
    for (int64_t i = 0; i < dp; i += VF_LANES) {
        vf x = vf_load(row->x + i);
        most = vf_max(vf_max(x, vf_zero() - x), most);
    }
    float max = vf_reduce_max(most);
    bool is_zero = !(max >= LEAST_MAX);
    vf factor = vf_set1(is_zero ? 0 : 127.0f / max);
    for (int64_t i = 0; i < dp; i += VF_LANES) {
        vf code = vf_round(vf_load(row->x + i) * factor);
        code = vf_min(vf_max(code, vf_set1(-127.0f)), vf_set1(127.0f)); /* no number: -127 */
        vf_store(row->x + i, code);
    }
    return is_zero ? 0 : max / 127.0f;
}

/* Element i of a row to to[i * stride]. */
VF_INLINE void put(void *to,
                   int64_t at,
                   int64_t stride,
                   const struct row *row,
                   int64_t count,
                   enum tern_dtype dtype)
{
    if (dtype == TERN_F32) {
        float *p = (float *)to + at;
        for (int64_t i = 0; i < count; i++) {
            p[i * stride] = row->x[i];
        }
    } else if (dtype == TERN_BF16) {
        _Alignas(64) tern_bf16 bits[TERN_HEAD_WIDTH_MAX];
        for (int64_t i = 0; i < count; i += VF_LANES) {
            vf_store_bf16(bits + i, vf_load(row->x + i));
        }
        tern_bf16 *p = (tern_bf16 *)to + at;
        for (int64_t i = 0; i < count; i++) {
            p[i * stride] = bits[i];
        }
    } else {
        int8_t *p = (int8_t *)to + at;
        for (int64_t i = 0; i < count; i++) {
            p[i * stride] = (int8_t)row->x[i];
        }
    }
}

VF_INLINE void write_head(const struct tern_kv_write_args *a,
                          const struct tern_cpu_kv *kv,
                          int64_t n,
                          int64_t head,
                          char *to,
                          int64_t place,
                          enum tern_dtype kept)
{
    struct row row;
    float *scales = (float *)(void *)(to + kv->scale_bytes);
    bool bf16 = a->dtype == TERN_BF16;
    for (int part = 0; part < 2; part++) {
        bool is_value = part == 1;
        const void *from = tern_cpu_ptr(is_value ? a->v : a->k);
        int64_t at = n * (is_value ? a->v_row : a->k_row) + head * a->d;
        if (bf16) {
            load(&row, from, at, kv->d, kv->dp, true);
        } else {
            load(&row, from, at, kv->d, kv->dp, false);
        }
        if (kept == TERN_I8) {
            scales[part * TERN_KV_BLOCK + place] = quantise(&row, kv->dp);
        }
        if (is_value) {
            put(to + kv->value_bytes, place * kv->dp, 1, &row, kv->dp, kept);
        } else {
            put(to, place, TERN_KV_BLOCK, &row, kv->d, kept);
        }
    }
}

static void write_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct tern_kv_write_args *a = arg;
    const int32_t *slots = tern_cpu_ptr(a->slots);
    struct tern_cpu_kv kv = tern_cpu_kv_layout(a->kv_heads, a->d, a->kv_dtype);
    int64_t end = (task + 1) * ROWS_TASK < a->n ? (task + 1) * ROWS_TASK : a->n;
    for (int64_t n = task * ROWS_TASK; n < end; n++) {
        if (slots[n] < 0) {
            continue;
        }
        char *block =
            (char *)tern_cpu_ptr(a->pool) + (size_t)(slots[n] / TERN_KV_BLOCK) * kv.block_bytes;
        int64_t place = slots[n] % TERN_KV_BLOCK;
        for (int64_t head = 0; head < a->kv_heads; head++) {
            char *to = block + (size_t)head * kv.head_bytes;
            if (a->kv_dtype == TERN_F32) {
                write_head(a, &kv, n, head, to, place, TERN_F32);
            } else if (a->kv_dtype == TERN_BF16) {
                write_head(a, &kv, n, head, to, place, TERN_BF16);
            } else {
                write_head(a, &kv, n, head, to, place, TERN_I8);
            }
        }
    }
}

tern_status TERN_CPU_LEVEL(kv_write)(struct tern_cpu_device *device,
                                     const struct tern_kv_write_args *args)
{
    struct tern_kv_write_args copy = *args;
    tern_cpu_parallel(device, (args->n + ROWS_TASK - 1) / ROWS_TASK, write_task, &copy);
    return TERN_OK;
}
