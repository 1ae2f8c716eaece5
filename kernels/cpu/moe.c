/* moe.c - experts: routing of rows, the outputs brought together; and the cap of logits.
 *
 * Routing: a row's top_k largest logits by as many scans (E and top_k are small), its softmax in f32; then one thread
 * numbers the pairs by counting. Bringing together: a row's sum over its experts in their order. */
#include "kernels/cpu/ops_level.h"
#include "kernels/cpu/vec.h"

#include <math.h>

enum {
    ROWS_TASK = 16
};

static float logit_at(const struct tern_moe_route_args *a, int64_t at)
{
    const void *logits = tern_cpu_ptr(a->logits);
    return a->dtype == TERN_BF16 ? tern_bf16_to_f32(((const tern_bf16 *)logits)[at])
                                 : ((const float *)logits)[at];
}

/* Of the experts not chosen yet the first of largest logit. */
static int32_t best_of(const float *logits, const bool *chosen, int64_t count)
{
    int32_t best = -1;
    for (int64_t e = 0; e < count; e++) {
        if (!chosen[e] && (best < 0 || logits[e] > logits[best])) {
            best = (int32_t)e;
        }
    }
    return best;
}

static void route_row(const struct tern_moe_route_args *a, int64_t row)
{
    int32_t *experts = (int32_t *)tern_cpu_ptr(a->experts) + row * a->top_k;
    float *weights = (float *)tern_cpu_ptr(a->weights) + row * a->top_k;
    float logits[TERN_EXPERTS_MAX + VF_LANES], sum = 0;
    bool chosen[TERN_EXPERTS_MAX] = {false};
    for (int64_t e = 0; e < a->expert_count; e++) {
        logits[e] = logit_at(a, row * a->expert_count + e);
    }
    for (int64_t j = 0; j < a->top_k; j++) {
        experts[j] = best_of(logits, chosen, a->expert_count);
        chosen[experts[j]] = true;
    }
    vf most = vf_set1(logits[experts[0]]);
#define STEP(i, n) vf_put_n(logits, i, vf_exp(vf_get_n(logits, i, n, false) - most), n, false)
    VF_EACH(a->expert_count, STEP);
#undef STEP
    for (int64_t e = 0; e < a->expert_count; e++) {
        sum += a->normalise && !chosen[e] ? 0.0f : logits[e];
    }
    for (int64_t j = 0; j < a->top_k; j++) {
        weights[j] = logits[experts[j]] / sum;
    }
}

static void route_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct tern_moe_route_args *a = arg;
    int64_t end = (task + 1) * ROWS_TASK < a->n ? (task + 1) * ROWS_TASK : a->n;
    for (int64_t row = task * ROWS_TASK; row < end; row++) {
        route_row(a, row);
    }
}

/* Pairs by expert, those of an expert in ascending order of rows. */
static void number_pairs(const struct tern_moe_route_args *a)
{
    const int32_t *experts = tern_cpu_ptr(a->experts);
    int32_t *pairs = tern_cpu_ptr(a->pairs), *rows = tern_cpu_ptr(a->rows);
    int32_t *starts = tern_cpu_ptr(a->starts), next[TERN_EXPERTS_MAX + 1] = {0};
    int64_t count = a->n * a->top_k;
    for (int64_t i = 0; i < count; i++) {
        next[experts[i] + 1]++;
    }
    for (int64_t e = 0; e < a->expert_count; e++) {
        next[e + 1] += next[e];
    }
    memcpy(starts, next, (size_t)(a->expert_count + 1) * sizeof *starts);
    for (int64_t i = 0; i < count; i++) {
        pairs[i] = next[experts[i]]++;
        rows[pairs[i]] = (int32_t)(i / a->top_k);
    }
}

tern_status TERN_CPU_LEVEL(moe_route)(struct tern_cpu_device *device,
                                      const struct tern_moe_route_args *args)
{
    struct tern_moe_route_args copy = *args;
    tern_cpu_parallel(device, (args->n + ROWS_TASK - 1) / ROWS_TASK, route_task, &copy);
    number_pairs(args);
    return TERN_OK;
}

VF_INLINE void combine_row(const struct tern_moe_combine_args *a, int64_t row, bool bf16)
{
    const float *weights = (const float *)tern_cpu_ptr(a->weights) + row * a->top_k;
    const int32_t *pairs = (const int32_t *)tern_cpu_ptr(a->pairs) + row * a->top_k;
    const void *x = tern_cpu_ptr(a->x);
    void *out = tern_cpu_ptr(a->out);
#define STEP(i, n) \
    do { \
        vf sum_ = vf_zero(); \
        for (int64_t j = 0; j < a->top_k; j++) { \
            sum_ = vf_fma(vf_set1(weights[j]), vf_get_n(x, pairs[j] * a->c + (i), n, bf16), sum_); \
        } \
        vf_put_n(out, row * a->c + (i), sum_, n, bf16); \
    } while (0)
    VF_EACH(a->c, STEP);
#undef STEP
}

static void combine_task(void *arg, int64_t row, int thread)
{
    (void)thread;
    const struct tern_moe_combine_args *a = arg;
    if (a->dtype == TERN_BF16) {
        combine_row(a, row, true);
    } else {
        combine_row(a, row, false);
    }
}

tern_status TERN_CPU_LEVEL(moe_combine)(struct tern_cpu_device *device,
                                        const struct tern_moe_combine_args *args)
{
    struct tern_moe_combine_args copy = *args;
    tern_cpu_parallel(device, args->n, combine_task, &copy);
    return TERN_OK;
}

VF_INLINE void cap_range(const struct tern_softcap_args *a, int64_t begin, int64_t count, bool bf16)
{
    const void *x = tern_cpu_ptr(a->x);
    void *y = tern_cpu_ptr(a->y);
    vf cap = vf_set1(a->cap), by_cap = vf_set1(1.0f / a->cap);
#define STEP(i, n) \
    vf_put_n(y, begin + (i), cap * vf_tanh(vf_get_n(x, begin + (i), n, bf16) * by_cap), n, bf16)
    VF_EACH(count, STEP);
#undef STEP
}

static void cap_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct tern_softcap_args *a = arg;
    int64_t begin = task * TERN_CPU_ELEMENTS;
    int64_t count = a->n - begin < TERN_CPU_ELEMENTS ? a->n - begin : TERN_CPU_ELEMENTS;
    if (a->dtype == TERN_BF16) {
        cap_range(a, begin, count, true);
    } else {
        cap_range(a, begin, count, false);
    }
}

tern_status TERN_CPU_LEVEL(softcap)(struct tern_cpu_device *device,
                                    const struct tern_softcap_args *args)
{
    struct tern_softcap_args copy = *args;
    int64_t tasks = (args->n + TERN_CPU_ELEMENTS - 1) / TERN_CPU_ELEMENTS;
    tern_cpu_parallel(device, tasks, cap_task, &copy);
    return TERN_OK;
}
