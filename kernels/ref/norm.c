/* norm.c - LayerNorm and RMSNorm: the row's statistics by two passes in double. */
#include "kernels/ref/ref.h"

#include <math.h>

/* Norm number `norm` of a call: row norm / heads, head norm % heads; where it starts in rows of a stride. */
static int64_t start_of(int64_t norm, int64_t heads, int64_t c, int64_t row)
{
    heads = heads > 0 ? heads : 1;
    return norm / heads * (row > 0 ? row : heads * c) + norm % heads * c;
}

static int64_t norm_count(int64_t n, int64_t heads)
{
    return n * (heads > 0 ? heads : 1);
}

/* What is normalised: x + residual as stored in sum, or x when there is no residual. */
struct source {
    struct tern_dptr p;
    int64_t start;
};

static struct source source_of(const struct tern_norm_fwd_args *args, int64_t norm)
{
    int64_t x = start_of(norm, args->heads, args->c, args->x_row), dense = norm * args->c;
    if (tern_dptr_is_null(args->residual)) {
        return (struct source){args->x, x};
    }
    for (int64_t i = 0; i < args->c; i++) {
        double sum = tern_ref_get(args->x, args->dtype, x + i) +
                     tern_ref_get(args->residual, args->dtype, dense + i);
        tern_ref_put(args->sum, args->dtype, dense + i, sum);
    }
    return (struct source){args->sum, dense};
}

static void norm_one(const struct tern_norm_fwd_args *args, int64_t norm)
{
    enum tern_dtype side = tern_ref_side(args->dtype);
    struct source from = source_of(args, norm);
    int64_t out = start_of(norm, args->heads, args->c, args->out_row);
    double mean = 0, square = 0;
    for (int64_t i = 0; i < args->c; i++) {
        double x = tern_ref_get(from.p, args->dtype, from.start + i);
        mean += args->kind == TERN_NORM_LAYER ? x : 0;
        if (!tern_dptr_is_null(args->copy)) {
            tern_ref_put(args->copy, args->dtype, norm * args->c + i, x);
        }
    }
    mean /= (double)args->c;
    for (int64_t i = 0; i < args->c; i++) {
        double centred = tern_ref_get(from.p, args->dtype, from.start + i) - mean;
        square += centred * centred;
    }
    double rstd = 1 / sqrt(square / (double)args->c + (double)args->eps);
    for (int64_t i = 0; i < args->c; i++) {
        double x = (tern_ref_get(from.p, args->dtype, from.start + i) - mean) * rstd;
        x *= (double)args->gamma_offset + tern_ref_get(args->gamma, args->dtype, i);
        if (!tern_dptr_is_null(args->beta)) {
            x += tern_ref_get(args->beta, args->dtype, i);
        }
        tern_ref_put(args->out, args->dtype, out + i, x);
    }
    if (!tern_dptr_is_null(args->mean)) {
        tern_ref_put(args->mean, side, norm, mean);
    }
    if (!tern_dptr_is_null(args->rstd)) {
        tern_ref_put(args->rstd, side, norm, rstd);
    }
}

tern_status tern_ref_norm_fwd(struct tern_device *device, const struct tern_norm_fwd_args *args)
{
    (void)device;
    for (int64_t norm = 0; norm < norm_count(args->n, args->heads); norm++) {
        norm_one(args, norm);
    }
    return TERN_OK;
}

static double dy_of(const struct tern_norm_bwd_args *args, int64_t norm, int64_t i)
{
    int64_t start = start_of(norm, args->heads, args->c, args->dy_row);
    return tern_ref_get(args->dy, args->dtype, start + i);
}

/* dy * gamma */
static double g_of(const struct tern_norm_bwd_args *args, int64_t norm, int64_t i)
{
    double gamma = (double)args->gamma_offset + tern_ref_get(args->gamma, args->dtype, i);
    return dy_of(args, norm, i) * gamma;
}

/* (x - mean) * rstd with the statistics that the forward kept. */
static double hat(const struct tern_norm_bwd_args *args, int64_t norm, int64_t i)
{
    enum tern_dtype side = tern_ref_side(args->dtype);
    double mean = args->kind == TERN_NORM_LAYER ? tern_ref_get(args->mean, side, norm) : 0;
    int64_t start = start_of(norm, args->heads, args->c, args->x_row);
    double x = tern_ref_get(args->x, args->dtype, start + i);
    return (x - mean) * tern_ref_get(args->rstd, side, norm);
}

static void input_gradient(const struct tern_norm_bwd_args *args, int64_t norm)
{
    double sum_g = 0, sum_gh = 0; /* of g, and of g * hat */
    for (int64_t i = 0; i < args->c; i++) {
        sum_g += args->kind == TERN_NORM_RMS ? 0 : g_of(args, norm, i); /* rms takes no mean out */
        sum_gh += g_of(args, norm, i) * hat(args, norm, i);
    }
    double rstd = tern_ref_get(args->rstd, tern_ref_side(args->dtype), norm);
    double c = (double)args->c;
    int64_t start = start_of(norm, args->heads, args->c, args->dy_row);
    for (int64_t i = 0; i < args->c; i++) {
        double dx = rstd * (g_of(args, norm, i) - sum_g / c - hat(args, norm, i) * sum_gh / c);
        if (!tern_dptr_is_null(args->dresidual)) {
            dx += tern_ref_get(args->dresidual, args->dtype, start + i);
        }
        tern_ref_put(args->dx, args->dtype, start + i, dx);
    }
}

tern_status tern_ref_norm_bwd(struct tern_device *device, const struct tern_norm_bwd_args *args)
{
    (void)device;
    enum tern_dtype side = tern_ref_side(args->dtype);
    int64_t norms = norm_count(args->n, args->heads);
    bool has_beta = !tern_dptr_is_null(args->dbeta);
    for (int64_t i = 0; i < args->c; i++) { /* first: dx may be dy */
        double dgamma = args->accumulate ? tern_ref_get(args->dgamma, side, i) : 0;
        double dbeta = args->accumulate && has_beta ? tern_ref_get(args->dbeta, side, i) : 0;
        for (int64_t norm = 0; norm < norms; norm++) {
            dgamma += dy_of(args, norm, i) * hat(args, norm, i);
            dbeta += dy_of(args, norm, i);
        }
        tern_ref_put(args->dgamma, side, i, dgamma);
        if (has_beta) {
            tern_ref_put(args->dbeta, side, i, dbeta);
        }
    }
    for (int64_t norm = 0; norm < norms; norm++) {
        input_gradient(args, norm);
    }
    return TERN_OK;
}
