/* norm.c - LayerNorm and RMSNorm: the row's statistics by two passes in double. */
#include "kernels/ref/ref.h"

#include <math.h>

/* x + residual as stored in sum, or x when there is no residual. */
static double normalised_input(const struct tern_norm_fwd_args *args, int64_t index)
{
    bool has_residual = !tern_dptr_is_null(args->residual);
    return tern_ref_get(has_residual ? args->sum : args->x, args->dtype, index);
}

static void write_sum(const struct tern_norm_fwd_args *args, int64_t row)
{
    for (int64_t i = row * args->c; i < (row + 1) * args->c; i++) {
        double x = tern_ref_get(args->x, args->dtype, i);
        tern_ref_put(args->sum, args->dtype, i, x + tern_ref_get(args->residual, args->dtype, i));
    }
}

tern_status tern_ref_norm_fwd(struct tern_device *device, const struct tern_norm_fwd_args *args)
{
    (void)device;
    enum tern_dtype side = tern_ref_side(args->dtype);
    for (int64_t n = 0; n < args->n; n++) {
        int64_t row = n * args->c;
        if (!tern_dptr_is_null(args->residual)) {
            write_sum(args, n);
        }
        double mean = 0, square = 0;
        for (int64_t c = 0; c < args->c && args->kind == TERN_NORM_LAYER; c++) {
            mean += normalised_input(args, row + c);
        }
        mean /= (double)args->c;
        for (int64_t c = 0; c < args->c; c++) {
            double centred = normalised_input(args, row + c) - mean;
            square += centred * centred;
        }
        double rstd = 1 / sqrt(square / (double)args->c + (double)args->eps);
        for (int64_t c = 0; c < args->c; c++) {
            double x = (normalised_input(args, row + c) - mean) * rstd;
            x *= tern_ref_get(args->gamma, args->dtype, c);
            if (!tern_dptr_is_null(args->beta)) {
                x += tern_ref_get(args->beta, args->dtype, c);
            }
            tern_ref_put(args->out, args->dtype, row + c, x);
        }
        if (!tern_dptr_is_null(args->mean)) {
            tern_ref_put(args->mean, side, n, mean);
        }
        if (!tern_dptr_is_null(args->rstd)) {
            tern_ref_put(args->rstd, side, n, rstd);
        }
    }
    return TERN_OK;
}

/* (x - mean) * rstd with the statistics that the forward kept. */
static double hat(const struct tern_norm_bwd_args *args, int64_t n, int64_t c)
{
    enum tern_dtype side = tern_ref_side(args->dtype);
    double mean = args->kind == TERN_NORM_LAYER ? tern_ref_get(args->mean, side, n) : 0;
    double x = tern_ref_get(args->x, args->dtype, n * args->c + c);
    return (x - mean) * tern_ref_get(args->rstd, side, n);
}

static void input_gradient(const struct tern_norm_bwd_args *args, int64_t n)
{
    double sum_g = 0, sum_gh = 0; /* of g = dy * gamma, and of g * hat */
    for (int64_t c = 0; c < args->c; c++) {
        double g = tern_ref_get(args->dy, args->dtype, n * args->c + c) *
                   tern_ref_get(args->gamma, args->dtype, c);
        sum_g += g;
        sum_gh += g * hat(args, n, c);
    }
    if (args->kind == TERN_NORM_RMS) {
        sum_g = 0; /* no mean was taken out */
    }
    double rstd = tern_ref_get(args->rstd, tern_ref_side(args->dtype), n);
    for (int64_t c = 0; c < args->c; c++) {
        int64_t i = n * args->c + c;
        double g =
            tern_ref_get(args->dy, args->dtype, i) * tern_ref_get(args->gamma, args->dtype, c);
        double dx =
            rstd * (g - sum_g / (double)args->c - hat(args, n, c) * sum_gh / (double)args->c);
        if (!tern_dptr_is_null(args->dresidual)) {
            dx += tern_ref_get(args->dresidual, args->dtype, i);
        }
        tern_ref_put(args->dx, args->dtype, i, dx);
    }
}

tern_status tern_ref_norm_bwd(struct tern_device *device, const struct tern_norm_bwd_args *args)
{
    (void)device;
    enum tern_dtype side = tern_ref_side(args->dtype);
    for (int64_t n = 0; n < args->n; n++) {
        input_gradient(args, n);
    }
    for (int64_t c = 0; c < args->c; c++) {
        double dgamma = args->accumulate ? tern_ref_get(args->dgamma, side, c) : 0;
        for (int64_t n = 0; n < args->n; n++) {
            dgamma += tern_ref_get(args->dy, args->dtype, n * args->c + c) * hat(args, n, c);
        }
        tern_ref_put(args->dgamma, side, c, dgamma);
        if (tern_dptr_is_null(args->dbeta)) {
            continue;
        }
        double dbeta = args->accumulate ? tern_ref_get(args->dbeta, side, c) : 0;
        for (int64_t n = 0; n < args->n; n++) {
            dbeta += tern_ref_get(args->dy, args->dtype, n * args->c + c);
        }
        tern_ref_put(args->dbeta, side, c, dbeta);
    }
    return TERN_OK;
}
