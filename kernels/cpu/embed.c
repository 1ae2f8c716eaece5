/* embed.c - token and position embeddings: rows gathered forward, rows added in ascending order
 * backward. */
#include "kernels/blocks.h"
#include "kernels/cpu/ops_level.h"
#include "kernels/cpu/packed.h"
#include "kernels/cpu/vec.h"

enum {
    ROWS_TASK = 32,
    COLUMNS_MIN = 32,
    PIECE = 256 /* of a stored row: a block of any type */
};

static int64_t position_of(const struct tern_embed_fwd_args *a, int64_t row)
{
    return tern_cpu_position(a->positions, a->starts, a->first_position, a->t, row);
}

VF_INLINE void embed_row(const struct tern_embed_fwd_args *a, int64_t row, bool bf16)
{
    const int32_t *ids = tern_cpu_ptr(a->ids);
    const void *wte = tern_cpu_ptr(a->wte), *wpe = tern_cpu_ptr(a->wpe);
    void *out = tern_cpu_ptr(a->out);
    int64_t token = (int64_t)ids[row] * a->c, to = row * a->c;
    if (a->scale != 0 && a->scale != 1) {
        vf scale = vf_set1(a->scale);
        int64_t at = wpe == NULL ? 0 : position_of(a, row) * a->c;
#define STEP(i, n) \
    vf_put_n(out, to + (i), \
             vf_fma(scale, vf_get_n(wte, token + (i), n, bf16), \
                    wpe == NULL ? vf_zero() : vf_get_n(wpe, at + (i), n, bf16)), \
             n, bf16)
        VF_EACH(a->c, STEP);
#undef STEP
        return;
    }
    if (wpe == NULL) {
        size_t bytes = bf16 ? sizeof(tern_bf16) : sizeof(float);
        memcpy((char *)out + (size_t)to * bytes, (const char *)wte + (size_t)token * bytes,
               (size_t)a->c * bytes);
        return;
    }
    int64_t place = position_of(a, row) * a->c;
#define STEP(i, n) \
    vf_put_n(out, to + (i), \
             vf_get_n(wte, token + (i), n, bf16) + vf_get_n(wpe, place + (i), n, bf16), n, bf16)
    VF_EACH(a->c, STEP);
#undef STEP
}

/* A row of a table that is no activation: decoded a piece at a time, then scaled. */
static void stored_row(const struct tern_embed_fwd_args *a, int64_t row)
{
    const int32_t *ids = tern_cpu_ptr(a->ids);
    size_t bytes = tern_dtype_bytes(a->wte_dtype);
    int64_t block = tern_dtype_block_elements(a->wte_dtype), token = (int64_t)ids[row] * a->c;
    int64_t place = tern_dptr_is_null(a->wpe) ? 0 : position_of(a, row) * a->c;
    const char *wte = tern_cpu_ptr(a->wte);
    const void *wpe = tern_cpu_ptr(a->wpe);
    void *out = tern_cpu_ptr(a->out);
    bool bf16 = a->dtype == TERN_BF16;
    vf scale = vf_set1(a->scale == 0 ? 1.0f : a->scale);
    for (int64_t at = 0; at < a->c; at += PIECE) {
        float piece[PIECE];
        int64_t count = a->c - at < PIECE ? a->c - at : PIECE;
        if (a->wte_packed != TERN_PACKED_NONE) {
            tern_cpu_packed_row(a->wte_packed, wte, ids[row], a->c, at, count, piece);
        } else {
            tern_blocks_decode(a->wte_dtype, wte + (size_t)((token + at) / block) * bytes, count,
                               piece);
        }
#define STEP(i, n) \
    vf_put_n(out, row * a->c + at + (i), \
             vf_fma(scale, vf_get_n(piece, i, n, false), \
                    wpe == NULL ? vf_zero() : vf_get_n(wpe, place + at + (i), n, bf16)), \
             n, bf16)
        VF_EACH(count, STEP);
#undef STEP
    }
}

static void embed_fwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct tern_embed_fwd_args *a = arg;
    int64_t end = (task + 1) * ROWS_TASK < a->n ? (task + 1) * ROWS_TASK : a->n;
    bool is_stored =
        a->wte_packed != TERN_PACKED_NONE || (a->wte_dtype != TERN_F32 && a->wte_dtype != a->dtype);
    for (int64_t row = task * ROWS_TASK; row < end; row++) {
        if (is_stored) {
            stored_row(a, row);
        } else if (a->dtype == TERN_BF16) {
            embed_row(a, row, true);
        } else {
            embed_row(a, row, false);
        }
    }
}

tern_status TERN_CPU_LEVEL(embed_fwd)(struct tern_cpu_device *device,
                                      const struct tern_embed_fwd_args *args)
{
    struct tern_embed_fwd_args copy = *args;
    tern_cpu_parallel(device, (args->n + ROWS_TASK - 1) / ROWS_TASK, embed_fwd_task, &copy);
    return TERN_OK;
}

struct embed_bwd_run {
    const struct tern_embed_bwd_args *args;
    int64_t columns; /* of a task */
};

/* Columns [begin, begin + count) of every row, in order. No two tasks touch the same number, so
 * nothing has to be sorted and the sums have one order whatever the split. */
VF_INLINE void embed_bwd_columns(const struct tern_embed_bwd_args *a,
                                 int64_t begin,
                                 int64_t count,
                                 bool bf16)
{
    const int32_t *ids = tern_cpu_ptr(a->ids);
    const void *dout = tern_cpu_ptr(a->dout);
    float *dwte = tern_cpu_ptr(a->dwte), *dwpe = tern_cpu_ptr(a->dwpe);
    vf scale = vf_set1(a->scale == 0 ? 1.0f : a->scale); /* times 1 changes no bit */
    for (int64_t row = 0; row < a->n; row++) {
        int64_t from = row * a->c + begin;
        int64_t token = (int64_t)ids[row] * a->c + begin;
        int64_t place = (row % a->t - tern_cpu_start(a->starts, row)) * a->c + begin;
        if (row + 4 < a->n) {
            /* The rows of dwte are scattered over far more memory than any cache. */
            const char *next = (const char *)(dwte + (int64_t)ids[row + 4] * a->c + begin);
            for (int64_t line = 0; line < count * (int64_t)sizeof(float); line += 64) {
                __builtin_prefetch(next + line, 1);
            }
        }
#define STEP(i, n) \
    do { \
        vf d_ = vf_get_n(dout, from + (i), n, bf16); \
        vf w_ = vf_get_n(dwte, token + (i), n, false) + d_ * scale; \
        vf_put_n(dwte, token + (i), w_, n, false); \
        if (dwpe != NULL) { \
            vf_put_n(dwpe, place + (i), vf_get_n(dwpe, place + (i), n, false) + d_, n, false); \
        } \
    } while (0)
        VF_EACH(count, STEP);
#undef STEP
    }
}

static void embed_bwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct embed_bwd_run *run = arg;
    const struct tern_embed_bwd_args *a = run->args;
    int64_t begin = task * run->columns;
    int64_t count = a->c - begin < run->columns ? a->c - begin : run->columns;
    if (a->dtype == TERN_BF16) {
        embed_bwd_columns(a, begin, count, true);
    } else {
        embed_bwd_columns(a, begin, count, false);
    }
}

tern_status TERN_CPU_LEVEL(embed_bwd)(struct tern_cpu_device *device,
                                      const struct tern_embed_bwd_args *args)
{
    int64_t columns = tern_cpu_round_up((args->c + device->threads - 1) / device->threads, 16);
    struct embed_bwd_run run = {args, columns > COLUMNS_MIN ? columns : COLUMNS_MIN};
    tern_cpu_parallel(device, (args->c + run.columns - 1) / run.columns, embed_bwd_task, &run);
    return TERN_OK;
}
