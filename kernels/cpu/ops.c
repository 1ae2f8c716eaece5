/* ops.c - picks the compiled level of each op, and says how much workspace they need. */
#include "kernels/cpu/kv.h"

#if defined(__x86_64__)
#    define LEVELS(op) \
        if (cpu->level >= TERN_CPU_AVX512) { \
            return tern_cpu_##op##_avx512(cpu, args); \
        } \
        if (cpu->level >= TERN_CPU_AVX2) { \
            return tern_cpu_##op##_avx2(cpu, args); \
        } \
        return tern_cpu_##op##_generic(cpu, args);
#else
#    define LEVELS(op) return tern_cpu_##op##_generic(cpu, args);
#endif

#define DISPATCH(op, args_struct) \
    tern_status tern_cpu_##op(struct tern_device *device, const struct args_struct *args) \
    { \
        struct tern_cpu_device *cpu = tern_cpu_device_of(device); \
        LEVELS(op) \
    }
TERN_CPU_LEVEL_OPS(DISPATCH)

bool tern_cpu_stored_few(const struct tern_cpu_device *cpu,
                         enum tern_dtype dtype,
                         const void *row,
                         int64_t k,
                         const struct tern_stored_rows *a,
                         int64_t m,
                         float *c,
                         int64_t ldc)
{
#if defined(__x86_64__)
    if (cpu->level >= TERN_CPU_AVX512) {
        return tern_cpu_stored_few_avx512(dtype, row, k, a, m, c, ldc);
    }
    if (cpu->level >= TERN_CPU_AVX2) {
        return tern_cpu_stored_few_avx2(dtype, row, k, a, m, c, ldc);
    }
#else
    (void)cpu;
#endif
    return tern_cpu_stored_few_generic(dtype, row, k, a, m, c, ldc);
}

static int64_t padded_width(int64_t d)
{
    return tern_cpu_round_up(d, TERN_CPU_ATTN_PAD);
}

size_t tern_cpu_attention_fwd_scratch(int64_t d)
{
    int64_t dp = padded_width(d);
    int64_t floats = 2 * TERN_CPU_ATTN_ROWS_FWD * dp + 2 * TERN_CPU_ATTN_KEYS_FWD * dp;
    floats += TERN_CPU_ATTN_KEYS_FWD * TERN_CPU_ATTN_PANEL_MAX + 4 * TERN_CPU_ATTN_ROWS_FWD;
    floats += TERN_CPU_ATTN_PANEL_MAX * dp;
    return (size_t)floats * sizeof(float);
}

size_t tern_cpu_attention_fwd_shared(int64_t b, int64_t kv_heads, int64_t d)
{
    int64_t tasks = b * kv_heads + TERN_CPU_ATTN_SPLIT_TASKS;
    return (size_t)(tasks * TERN_CPU_ATTN_ROWS_DECODE * (padded_width(d) + 2)) * sizeof(float);
}

/* A row's sums, its maximum, and its output so far. */
static int64_t paged_row_floats(int64_t d)
{
    return padded_width(d) + TERN_KV_BLOCK + 1;
}

size_t tern_cpu_paged_scratch(int64_t group, int64_t d)
{
    int64_t rows = group > TERN_CPU_PAGED_ROWS ? group : TERN_CPU_PAGED_ROWS;
    int64_t floats = rows * (padded_width(d) + paged_row_floats(d));
    floats += TERN_CPU_PAGED_SCORES;
    return (size_t)floats * sizeof(float);
}

size_t tern_cpu_paged_shared(int64_t sequences, int64_t group, int64_t d)
{
    int64_t rows = group > TERN_CPU_PAGED_SPLIT_ROWS ? group : TERN_CPU_PAGED_SPLIT_ROWS;
    int64_t states = TERN_CPU_PAGED_SLOTS + TERN_CPU_PAGED_SPLIT_UNITS;
    return (size_t)(sequences + 1) * sizeof(int64_t) +
           (size_t)(states * rows * paged_row_floats(d)) * sizeof(float);
}

size_t tern_cpu_kv_block_bytes(int64_t kv_heads, int64_t d, enum tern_dtype kv_dtype)
{
    return tern_cpu_kv_layout(kv_heads, d, kv_dtype).block_bytes;
}

size_t tern_cpu_attention_bwd_scratch(int64_t tkv, int64_t d)
{
    int64_t dp = padded_width(d);
    int64_t rows = TERN_CPU_ATTN_ROWS_BWD, keys = TERN_CPU_ATTN_KEYS_BWD;
    int64_t floats = 5 * rows * dp + 4 * keys * dp + 2 * keys * rows + 4 * rows;
    size_t whole = (size_t)(2 * tern_cpu_round_up(tkv, keys) * dp) * sizeof(float);
    return (size_t)floats * sizeof(float) + (whole <= TERN_CPU_ATTN_WHOLE_BYTES ? whole : 0);
}

static size_t at_least(size_t a, size_t b)
{
    return a > b ? a : b;
}

void tern_cpu_ops_needs(const struct tern_op_limits *limits,
                        int threads,
                        size_t *shared,
                        size_t *scratch)
{
    (void)threads;
    size_t sums = (size_t)(2 * TERN_CPU_ROW_RUNS_MAX * limits->width) * sizeof(float);
    size_t pieces = (size_t)TERN_CPU_SUMSQ_PIECES * 4 * sizeof(int64_t);
    size_t splits =
        tern_cpu_attention_fwd_shared(limits->batch, limits->kv_heads, limits->head_width);
    int64_t group = limits->heads / (limits->kv_heads > 0 ? limits->kv_heads : 1);
    size_t paged = tern_cpu_paged_shared(limits->batch, group, limits->head_width);
    *shared = at_least(at_least(sums, pieces), at_least(splits, paged));
    /* The whole-head backward is what a long sequence falls back from: the largest T that still has
     * it counts. */
    int64_t t = limits->sequence, d = limits->head_width;
    int64_t fits = (int64_t)(TERN_CPU_ATTN_WHOLE_BYTES / (2 * sizeof(float))) /
                   (padded_width(d) > 0 ? padded_width(d) : TERN_CPU_ATTN_PAD);
    fits = fits / TERN_CPU_ATTN_KEYS_BWD * TERN_CPU_ATTN_KEYS_BWD;
    *scratch = at_least(tern_cpu_attention_fwd_scratch(d),
                        tern_cpu_attention_bwd_scratch(t < fits ? t : fits, d));
    *scratch = at_least(*scratch, tern_cpu_paged_scratch(group, d));
}

tern_status tern_cpu_need(const struct tern_cpu_device *device,
                          const char *op,
                          size_t shared_bytes,
                          size_t scratch_bytes)
{
    if (device->shared_bytes >= shared_bytes && device->scratch_bytes >= scratch_bytes) {
        return TERN_OK;
    }
    return tern_fail(TERN_ERR_ARGUMENT,
                     "cpu %s: needs %zu bytes of shared workspace and %zu a thread, the device was "
                     "prepared with %zu and %zu: call tern_device_prepare with this shape",
                     op, shared_bytes, scratch_bytes, device->shared_bytes, device->scratch_bytes);
}
