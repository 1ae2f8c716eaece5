/* ops_level.h - the ops that are compiled once a level, and the shared memory each may use. */
#ifndef TERN_KERNELS_CPU_OPS_LEVEL_H
#define TERN_KERNELS_CPU_OPS_LEVEL_H

#include "kernels/cpu/cpu.h"

/* X(op, argument struct) */
#define TERN_CPU_LEVEL_OPS(X) \
    X(embed_fwd, tern_embed_fwd_args) \
    X(embed_bwd, tern_embed_bwd_args) \
    X(norm_fwd, tern_norm_fwd_args) \
    X(norm_bwd, tern_norm_bwd_args) \
    X(bias_bwd, tern_bias_bwd_args) \
    X(attention_fwd, tern_attention_args) \
    X(attention_bwd, tern_attention_args) \
    X(kv_write, tern_kv_write_args) \
    X(paged_attention, tern_paged_attention_args) \
    X(rope, tern_rope_args) \
    X(act_fwd, tern_act_args) \
    X(act_bwd, tern_act_args) \
    X(glu_fwd, tern_glu_args) \
    X(glu_bwd, tern_glu_args) \
    X(add, tern_add_args) \
    X(cross_entropy, tern_cross_entropy_args) \
    X(adamw, tern_adamw_args) \
    X(sumsq, tern_sumsq_args) \
    X(cast, tern_cast_args) \
    X(softcap, tern_softcap_args) \
    X(moe_route, tern_moe_route_args) \
    X(moe_combine, tern_moe_combine_args)

#define TERN_CPU_DECLARE_LEVEL(op, args) \
    tern_status tern_cpu_##op##_generic(struct tern_cpu_device *, const struct args *); \
    tern_status tern_cpu_##op##_avx2(struct tern_cpu_device *, const struct args *); \
    tern_status tern_cpu_##op##_avx512(struct tern_cpu_device *, const struct args *);
TERN_CPU_LEVEL_OPS(TERN_CPU_DECLARE_LEVEL)
#undef TERN_CPU_DECLARE_LEVEL

/* Rows of a for a product with stored weights: f32 (m, k), and the sums of each 32 of them. */
struct tern_stored_rows {
    const float *x, *sums;
    int64_t ld, ld_sums;
};

/* The block types that tern_cpu_stored_few takes. */
static inline bool tern_cpu_stored_has(enum tern_dtype dtype)
{
    return dtype == TERN_Q4_0 || dtype == TERN_Q4_1 || dtype == TERN_Q5_0 || dtype == TERN_Q5_1 ||
           dtype == TERN_Q8_0 || dtype == TERN_Q4_K || dtype == TERN_Q5_K || dtype == TERN_Q6_K;
}
/* c[r * ldc] = one row of k stored weights times row r of a, for r < m. False: not for this dtype. */
#define TERN_CPU_DECLARE_STORED(level) \
    bool tern_cpu_stored_few_##level(enum tern_dtype dtype, const void *row, int64_t k, \
                                     const struct tern_stored_rows *a, int64_t m, float *c, \
                                     int64_t ldc);
TERN_CPU_DECLARE_STORED(generic)
TERN_CPU_DECLARE_STORED(avx2)
TERN_CPU_DECLARE_STORED(avx512)
#undef TERN_CPU_DECLARE_STORED
/* The same at the device's level. */
bool tern_cpu_stored_few(const struct tern_cpu_device *cpu,
                         enum tern_dtype dtype,
                         const void *row,
                         int64_t k,
                         const struct tern_stored_rows *a,
                         int64_t m,
                         float *c,
                         int64_t ldc);

enum {
    TERN_CPU_STORED_GROUP = 32, /* weights that a sum of a serves */
    /* Elementwise ops: elements a task. */
    TERN_CPU_ELEMENTS = 32768,
    /* Sums over rows (norm_bwd, bias_bwd): rows are cut into at most this many runs, each summed
     * alone. */
    TERN_CPU_ROW_RUNS_MAX = 64,
    TERN_CPU_RUN_ROWS_MIN = 32,
    /* sumsq: elements a partial sum, partial sums a round. */
    TERN_CPU_SUMSQ_ELEMENTS = 65536,
    TERN_CPU_SUMSQ_PIECES = 4096,
    /* Attention: blocks of keys forward and backward, query rows of a task forward, the largest
     * padding of D. */
    TERN_CPU_ATTN_KEYS_FWD = 128,
    TERN_CPU_ATTN_KEYS_BWD = 64,
    TERN_CPU_ATTN_ROWS_FWD = 288,
    TERN_CPU_ATTN_ROWS_BWD = 96,
    TERN_CPU_ATTN_PANEL_MAX = 48,
    TERN_CPU_ATTN_PAD = 16,
    /* Decode (few query rows against many keys): rows of a task, keys of a split, splits * (B*K) at
     * most about. */
    TERN_CPU_ATTN_ROWS_DECODE = 8,
    TERN_CPU_ATTN_SPLIT_KEYS = 512,
    TERN_CPU_ATTN_SPLIT_TASKS = 256,
    /* Paged attention: rows of a task (a group, if it has more); rows of one whose segments are shared out (the same),
     * segments that are kept at a time, and such tasks at most. */
    TERN_CPU_PAGED_ROWS = 96,
    TERN_CPU_PAGED_SPLIT_ROWS = 16,
    TERN_CPU_PAGED_SLOTS = 128,
    TERN_CPU_PAGED_SPLIT_UNITS = 64,
    TERN_CPU_PAGED_SCORES = 8 * 128, /* of a few rows with a segment of keys */
};
/* Backward: a thread keeps dk and dv of one head whole when that takes at most this much. */
#define TERN_CPU_ATTN_WHOLE_BYTES ((size_t)8 << 20)

/* Rows of a run for sums over `rows` rows: a function of the shape alone. */
static inline int64_t tern_cpu_run_rows(int64_t rows)
{
    int64_t run = (rows + TERN_CPU_ROW_RUNS_MAX - 1) / TERN_CPU_ROW_RUNS_MAX;
    return run > TERN_CPU_RUN_ROWS_MIN ? run : TERN_CPU_RUN_ROWS_MIN;
}

static inline int64_t tern_cpu_round_up(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Bytes of scratch a thread, and of shared workspace, that attention takes for these shapes. */
size_t tern_cpu_attention_fwd_scratch(int64_t d);
size_t tern_cpu_attention_fwd_shared(int64_t b, int64_t kv_heads, int64_t d);
size_t tern_cpu_attention_bwd_scratch(int64_t tkv, int64_t d);

size_t tern_cpu_paged_scratch(int64_t group, int64_t d);
size_t tern_cpu_paged_shared(int64_t sequences, int64_t group, int64_t d);

/* Fails with a sentence when the device was prepared for smaller shapes than these. */
TERN_MUST_CHECK tern_status tern_cpu_need(const struct tern_cpu_device *device,
                                          const char *op,
                                          size_t shared_bytes,
                                          size_t scratch_bytes);

#endif
