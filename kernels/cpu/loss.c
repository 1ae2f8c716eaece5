/* loss.c - softmax cross-entropy of rows of f32 logits (R, V), in place or to bf16 gradients.
 *
 * A task is a row: its maximum, then exp(x - max) and its sum, then (backward) the scaling. A row
 * of 50,257 logits is 201 KB and stays in the second-level cache, so memory sees it once in and
 * once out. With a cap the second pass leaves the capped logits, and backward takes the exponentials once more: the slope of
 * the cap is in the logits alone. Sums are f32 over SUM_RUN elements in four vectors, and double over the runs. */
#include "kernels/cpu/ops_level.h"
#include "kernels/cpu/vec.h"

#include <math.h>

enum {
    SUM_RUN = 1024
};

static float row_max(const float *x, int64_t n)
{
    vf m0 = vf_set1(-INFINITY), m1 = m0, m2 = m0, m3 = m0;
    int64_t i = 0;
    for (; i + 4 * VF_LANES <= n; i += 4 * VF_LANES) {
        m0 = vf_max(vf_load(x + i), m0);
        m1 = vf_max(vf_load(x + i + VF_LANES), m1);
        m2 = vf_max(vf_load(x + i + 2 * VF_LANES), m2);
        m3 = vf_max(vf_load(x + i + 3 * VF_LANES), m3);
    }
    float m = vf_reduce_max(vf_max(vf_max(m0, m1), vf_max(m2, m3)));
    for (; i < n; i++) {
        m = x[i] > m ? x[i] : m;
    }
    return m;
}

/* cap tanh(x / cap) */
VF_INLINE vf capped(vf x, float cap)
{
    return vf_set1(cap) * vf_tanh(x * vf_set1(1.0f / cap));
}

/* The maximum of what exponentials are taken of, the cap of logits (0: none), and whether x becomes the exponentials,
 * or, with a cap, the capped logits. */
struct exp_pass {
    vf max;
    float cap;
    bool store;
};

VF_INLINE vf exp_step(float *x, int64_t i, int n, struct exp_pass pass)
{
    vf logit = vf_get_n(x, i, n, false);
    if (pass.cap > 0) {
        logit = capped(logit, pass.cap);
    }
    vf e = vf_exp(logit - pass.max);
    if (n < VF_LANES) {
        e = vf_if_less(vf_iota(), vf_set1((float)n), e, vf_zero());
    }
    if (pass.store) {
        vf_put_n(x, i, pass.cap > 0 ? logit : e, n, false);
    }
    return e;
}

/* Sum of exp(x - max) over one run. */
VF_INLINE double exp_run(float *x, int64_t n, struct exp_pass pass)
{
    vf s0 = vf_zero(), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + 4 * VF_LANES <= n; i += 4 * VF_LANES) {
        s0 = s0 + exp_step(x, i, VF_LANES, pass);
        s1 = s1 + exp_step(x, i + VF_LANES, VF_LANES, pass);
        s2 = s2 + exp_step(x, i + 2 * VF_LANES, VF_LANES, pass);
        s3 = s3 + exp_step(x, i + 3 * VF_LANES, VF_LANES, pass);
    }
    for (; i + VF_LANES <= n; i += VF_LANES) {
        s0 = s0 + exp_step(x, i, VF_LANES, pass);
    }
    if (i < n) {
        s0 = s0 + exp_step(x, i, (int)(n - i), pass);
    }
    return (double)vf_sum((s0 + s1) + (s2 + s3));
}

static double exp_row(float *x, int64_t n, float max, float cap, bool store)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i += SUM_RUN) {
        int64_t run = n - i < SUM_RUN ? n - i : SUM_RUN;
        if (cap > 0) {
            sum += exp_run(x + i, run, (struct exp_pass){vf_set1(max), cap, store});
        } else if (store) {
            sum += exp_run(x + i, run, (struct exp_pass){vf_set1(max), 0, true});
        } else {
            sum += exp_run(x + i, run, (struct exp_pass){vf_set1(max), 0, false});
        }
    }
    return sum;
}

static void scale_row(float *x, int64_t n, float factor)
{
    vf f = vf_set1(factor);
#define STEP(i, n_) vf_put_n(x, i, vf_get_n(x, i, n_, false) * f, n_, false)
    VF_EACH(n, STEP);
#undef STEP
}

/* out = bf16 of x * factor, and less one at the target. */
static void scale_row_bf16(const float *x, tern_bf16 *out, int64_t n, float factor, int64_t target)
{
    vf f = vf_set1(factor);
#define STEP(i, n_) vf_put_n(out, i, vf_get_n(x, i, n_, false) * f, n_, true)
    VF_EACH(n, STEP);
#undef STEP
    out[target] = tern_f32_to_bf16(x[target] * factor - 1.0f);
}

/* The cap of one logit: the bits that the row's vectors have. */
static float capped_one(float x, float cap)
{
    float lanes[VF_LANES];
    vf_store(lanes, capped(vf_set1(x), cap));
    return lanes[0];
}

/* The gradient of capped logits x: the softmax's times the slope of the cap, 1 - (x / cap)^2. */
VF_INLINE vf capped_gradient(vf x, vf max, vf factor, float cap)
{
    vf t = x * vf_set1(1.0f / cap);
    return vf_exp(x - max) * factor * (vf_set1(1.0f) - t * t);
}

/* In place, or as bf16 to out (not null). */
static void capped_backward(float *x,
                            tern_bf16 *out,
                            const struct tern_cross_entropy_args *a,
                            float max,
                            float factor,
                            int64_t target)
{
    vf m = vf_set1(max), f = vf_set1(factor);
    float t = x[target] / a->softcap, at_target = expf(x[target] - max) * factor - 1.0f;
    at_target *= 1.0f - t * t;
#define STEP_F32(i, n) \
    vf_put_n(x, i, capped_gradient(vf_get_n(x, i, n, false), m, f, a->softcap), n, false)
#define STEP_BF16(i, n) \
    vf_put_n(out, i, capped_gradient(vf_get_n(x, i, n, false), m, f, a->softcap), n, true)
    if (out == NULL) {
        VF_EACH(a->v, STEP_F32);
        x[target] = at_target;
    } else {
        VF_EACH(a->v, STEP_BF16);
        out[target] = tern_f32_to_bf16(at_target);
    }
#undef STEP_BF16
#undef STEP_F32
}

static void loss_task(void *arg, int64_t row, int thread)
{
    (void)thread;
    const struct tern_cross_entropy_args *a = arg;
    float *x = (float *)tern_cpu_ptr(a->logits) + row * a->ld;
    int32_t target = ((const int32_t *)tern_cpu_ptr(a->targets))[row];
    float *nll = (float *)tern_cpu_ptr(a->nll) + row;
    tern_bf16 *dlogits =
        tern_dptr_is_null(a->dlogits) ? NULL : (tern_bf16 *)tern_cpu_ptr(a->dlogits) + row * a->ldd;
    if (target < 0 || target >= a->v) {
        *nll = 0;
        if (dlogits != NULL) {
            memset(dlogits, 0, (size_t)a->v * sizeof *dlogits);
        } else if (a->backward) {
            memset(x, 0, (size_t)a->v * sizeof *x);
        }
        return;
    }
    bool is_capped = a->softcap > 0;
    float max = row_max(x, a->v), target_logit = x[target];
    if (is_capped) {
        max = capped_one(max, a->softcap);
        target_logit = capped_one(target_logit, a->softcap);
    }
    double at_target = target_logit;
    double sum = exp_row(x, a->v, max, a->softcap, a->backward);
    *nll = (float)((double)max + log(sum) - at_target);
    if (is_capped && a->backward) {
        capped_backward(x, dlogits, a, max, (float)(1.0 / sum), target);
    } else if (dlogits != NULL) {
        scale_row_bf16(x, dlogits, a->v, (float)(1.0 / sum), target);
    } else if (a->backward) {
        scale_row(x, a->v, (float)(1.0 / sum));
        x[target] -= 1.0f;
    }
}

tern_status TERN_CPU_LEVEL(cross_entropy)(struct tern_cpu_device *device,
                                          const struct tern_cross_entropy_args *args)
{
    struct tern_cross_entropy_args copy = *args;
    tern_cpu_parallel(device, args->rows, loss_task, &copy);
    return TERN_OK;
}
