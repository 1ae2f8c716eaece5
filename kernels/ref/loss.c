/* loss.c - cross-entropy, AdamW, and the sums of squares behind the gradient norm. */
#include "kernels/ref/ref.h"

#include <math.h>

/* What is stored at `at`, capped. */
static double logit(const struct tern_cross_entropy_args *args, int64_t at)
{
    double x = tern_ref_get(args->logits, args->dtype, at), cap = (double)args->softcap;
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* d logit / d what is stored. */
static double logit_slope(const struct tern_cross_entropy_args *args, int64_t at)
{
    double cap = (double)args->softcap;
    return cap > 0 ? 1 - pow(logit(args, at) / cap, 2) : 1;
}

static void row_loss(const struct tern_cross_entropy_args *args, int64_t r)
{
    enum tern_dtype dtype = args->dtype;
    int64_t target = tern_ref_i32(args->targets, r), row = r * args->ld;
    bool counts = target >= 0 && target < args->v;
    double max = -INFINITY, total = 0;
    for (int64_t i = 0; i < args->v; i++) {
        max = fmax(max, logit(args, row + i));
    }
    for (int64_t i = 0; i < args->v; i++) {
        total += exp(logit(args, row + i) - max);
    }
    double lse = max + log(total);
    double nll = counts ? lse - logit(args, row + target) : 0;
    tern_ref_put(args->nll, dtype, r, nll);
    for (int64_t i = 0; i < args->v && args->backward; i++) {
        double p = exp(logit(args, row + i) - max) / total;
        double gradient = counts ? p - (i == target ? 1 : 0) : 0;
        gradient *= logit_slope(args, row + i);
        if (tern_dptr_is_null(args->dlogits)) {
            tern_ref_put(args->logits, dtype, row + i, gradient);
        } else {
            tern_ref_put(args->dlogits, TERN_BF16, r * args->ldd + i, gradient);
        }
    }
}

tern_status tern_ref_cross_entropy(struct tern_device *device,
                                   const struct tern_cross_entropy_args *args)
{
    (void)device;
    for (int64_t r = 0; r < args->rows; r++) {
        row_loss(args, r);
    }
    return TERN_OK;
}

tern_status tern_ref_adamw(struct tern_device *device, const struct tern_adamw_args *args)
{
    (void)device;
    double b1 = (double)args->beta1, b2 = (double)args->beta2;
    double scale = tern_ref_get(args->grad_scale, TERN_F32, 0);
    for (int64_t i = 0; isfinite(scale) && i < args->n; i++) {
        double g = tern_ref_get(args->grad, TERN_F32, i) * scale;
        double m = b1 * tern_ref_get(args->exp_avg, TERN_F32, i) + (1 - b1) * g;
        double v = b2 * tern_ref_get(args->exp_avg_sq, TERN_F32, i) + (1 - b2) * g * g;
        double w = tern_ref_get(args->weight, TERN_F32, i);
        double step = m / (double)args->bias1 / (sqrt(v / (double)args->bias2) + (double)args->eps);
        w -= (double)args->lr * (step + (double)args->weight_decay * w);
        tern_ref_put(args->exp_avg, TERN_F32, i, m);
        tern_ref_put(args->exp_avg_sq, TERN_F32, i, v);
        tern_ref_put(args->weight, TERN_F32, i, w);
        if (!tern_dptr_is_null(args->copy)) {
            tern_ref_put(args->copy, args->copy_dtype, i, tern_ref_get(args->weight, TERN_F32, i));
        }
    }
    return TERN_OK;
}

tern_status tern_ref_sumsq(struct tern_device *device, const struct tern_sumsq_args *args)
{
    (void)device;
    const int64_t *starts = tern_ref_ptr(args->starts);
    double *sums = tern_ref_ptr(args->sums);
    for (int64_t i = 0; i < args->blocks; i++) {
        double sum = 0;
        for (int64_t j = starts[i]; j < starts[i + 1]; j++) {
            double x = tern_ref_get(args->x, TERN_F32, j);
            sum += args->is_plain ? x : x * x;
        }
        sums[i] = sum;
    }
    return TERN_OK;
}
