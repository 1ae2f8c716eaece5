/* adamw.c - one AdamW step over a run of elements: reads w, m, v, g, writes w, m, v and a copy (30
 * bytes an element with a bf16 copy), so memory is what it costs; the square root and the two
 * divisions hide behind it. */
#include "kernels/cpu/ops_level.h"
#include "kernels/cpu/vec.h"

#include <math.h>

struct constants {
    vf scale, beta1, one_less_beta1, beta2, one_less_beta2, by_bias1, by_bias2, eps, lr, decay;
};

VF_INLINE void step(const struct constants *k,
                    float *w,
                    float *m,
                    float *v,
                    const float *g,
                    void *copy,
                    int64_t i,
                    int n,
                    bool copy_bf16)
{
    vf grad = vf_get_n(g, i, n, false) * k->scale;
    vf mean = vf_fma(k->beta1, vf_get_n(m, i, n, false), k->one_less_beta1 * grad);
    vf square = vf_fma(k->beta2, vf_get_n(v, i, n, false), k->one_less_beta2 * grad * grad);
    vf_put_n(m, i, mean, n, false);
    vf_put_n(v, i, square, n, false);
    vf weight = vf_get_n(w, i, n, false);
    vf root = vf_sqrt(square * k->by_bias2) + k->eps;
    vf change = vf_fma(k->decay, weight, (mean * k->by_bias1) / root);
    weight = weight - k->lr * change;
    vf_put_n(w, i, weight, n, false);
    if (copy != NULL) {
        vf_put_n(copy, i, weight, n, copy_bf16);
    }
}

static void adamw_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct tern_adamw_args *a = arg;
    struct constants k = {
        .scale = vf_set1(*(const float *)tern_cpu_ptr(a->grad_scale)),
        .beta1 = vf_set1(a->beta1),
        .one_less_beta1 = vf_set1(1.0f - a->beta1),
        .beta2 = vf_set1(a->beta2),
        .one_less_beta2 = vf_set1(1.0f - a->beta2),
        .by_bias1 = vf_set1(1.0f / a->bias1),
        .by_bias2 = vf_set1(1.0f / a->bias2),
        .eps = vf_set1(a->eps),
        .lr = vf_set1(a->lr),
        .decay = vf_set1(a->weight_decay),
    };
    int64_t begin = task * TERN_CPU_ELEMENTS;
    int64_t count = a->n - begin < TERN_CPU_ELEMENTS ? a->n - begin : TERN_CPU_ELEMENTS;
    float *w = (float *)tern_cpu_ptr(a->weight) + begin;
    float *m = (float *)tern_cpu_ptr(a->exp_avg) + begin;
    float *v = (float *)tern_cpu_ptr(a->exp_avg_sq) + begin;
    const float *g = (const float *)tern_cpu_ptr(a->grad) + begin;
    if (tern_dptr_is_null(a->copy)) {
#define STEP(i, n) step(&k, w, m, v, g, NULL, i, n, false)
        VF_EACH(count, STEP);
#undef STEP
    } else if (a->copy_dtype == TERN_BF16) {
        tern_bf16 *copy = (tern_bf16 *)tern_cpu_ptr(a->copy) + begin;
#define STEP(i, n) step(&k, w, m, v, g, copy, i, n, true)
        VF_EACH(count, STEP);
#undef STEP
    } else {
        float *copy = (float *)tern_cpu_ptr(a->copy) + begin;
#define STEP(i, n) step(&k, w, m, v, g, copy, i, n, false)
        VF_EACH(count, STEP);
#undef STEP
    }
}

tern_status TERN_CPU_LEVEL(adamw)(struct tern_cpu_device *device,
                                  const struct tern_adamw_args *args)
{
    if (!isfinite(*(const float *)tern_cpu_ptr(args->grad_scale))) {
        return TERN_OK;
    }
    struct tern_adamw_args copy = *args;
    tern_cpu_parallel(device, (args->n + TERN_CPU_ELEMENTS - 1) / TERN_CPU_ELEMENTS, adamw_task,
                      &copy);
    return TERN_OK;
}
