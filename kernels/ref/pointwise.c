/* pointwise.c - activations, the gated MLP, addition, caps, conversion. */
#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

/* GELU in its tanh form (Hendrycks and Gimpel 2016): 0.5 x (1 + tanh(u)), u = ROOT (x + CUBE
 * x^3). */
static const double ROOT = 0.79788456080286535588; /* sqrt(2 / pi) */
static const double CUBE = 0.044715;

double tern_ref_act(enum tern_act act, double x)
{
    if (act == TERN_ACT_SILU) {
        return x / (1 + exp(-x));
    }
    return 0.5 * x * (1 + tanh(ROOT * (x + CUBE * x * x * x)));
}

double tern_ref_act_slope(enum tern_act act, double x)
{
    if (act == TERN_ACT_SILU) {
        double sigmoid = 1 / (1 + exp(-x));
        return sigmoid * (1 + x * (1 - sigmoid));
    }
    double t = tanh(ROOT * (x + CUBE * x * x * x));
    double slope = 0.5 * (1 + t);
    if (fabs(t) < 1) { /* else the second term is 0 times something that may overflow */
        slope += 0.5 * x * (1 - t * t) * ROOT * (1 + 3 * CUBE * x * x);
    }
    return slope;
}

tern_status tern_ref_act_fwd(struct tern_device *device, const struct tern_act_args *args)
{
    (void)device;
    for (int64_t i = 0; i < args->n; i++) {
        double x = tern_ref_get(args->x, args->dtype, i);
        tern_ref_put(args->y, args->dtype, i, tern_ref_act(args->act, x));
    }
    return TERN_OK;
}

tern_status tern_ref_act_bwd(struct tern_device *device, const struct tern_act_args *args)
{
    (void)device;
    for (int64_t i = 0; i < args->n; i++) {
        double slope = tern_ref_act_slope(args->act, tern_ref_get(args->x, args->dtype, i));
        tern_ref_put(args->dx, args->dtype, i, tern_ref_get(args->dy, args->dtype, i) * slope);
    }
    return TERN_OK;
}

tern_status tern_ref_glu_fwd(struct tern_device *device, const struct tern_glu_args *args)
{
    (void)device;
    for (int64_t n = 0; n < args->n; n++) {
        for (int64_t i = 0; i < args->f; i++) {
            int64_t at = 2 * n * args->f + i;
            double gate = tern_ref_get(args->gate_up, args->dtype, at);
            double up = tern_ref_get(args->gate_up, args->dtype, at + args->f);
            tern_ref_put(args->out, args->dtype, n * args->f + i,
                         tern_ref_act(args->act, gate) * up);
        }
    }
    return TERN_OK;
}

tern_status tern_ref_glu_bwd(struct tern_device *device, const struct tern_glu_args *args)
{
    (void)device;
    for (int64_t n = 0; n < args->n; n++) {
        for (int64_t i = 0; i < args->f; i++) {
            int64_t at = 2 * n * args->f + i;
            double gate = tern_ref_get(args->gate_up, args->dtype, at);
            double up = tern_ref_get(args->gate_up, args->dtype, at + args->f);
            double dout = tern_ref_get(args->dout, args->dtype, n * args->f + i);
            double dgate = dout * up * tern_ref_act_slope(args->act, gate);
            tern_ref_put(args->dgate_up, args->dtype, at, dgate);
            tern_ref_put(args->dgate_up, args->dtype, at + args->f,
                         dout * tern_ref_act(args->act, gate));
        }
    }
    return TERN_OK;
}

tern_status tern_ref_add(struct tern_device *device, const struct tern_add_args *args)
{
    (void)device;
    double scale = args->scale != 0 ? (double)args->scale : 1;
    for (int64_t i = 0; i < args->n; i++) {
        double sum = scale * tern_ref_get(args->b, args->dtype, i);
        sum += args->a.addr != 0 ? tern_ref_get(args->a, args->dtype, i) : 0;
        tern_ref_put(args->y, args->dtype, i, sum);
    }
    return TERN_OK;
}

tern_status tern_ref_softcap(struct tern_device *device, const struct tern_softcap_args *args)
{
    (void)device;
    double cap = (double)args->cap;
    for (int64_t i = 0; i < args->n; i++) {
        double x = tern_ref_get(args->x, args->dtype, i);
        tern_ref_put(args->y, args->dtype, i, cap * tanh(x / cap));
    }
    return TERN_OK;
}

tern_status tern_ref_cast(struct tern_device *device, const struct tern_cast_args *args)
{
    (void)device;
    if (args->src_dtype == args->dst_dtype) { /* every bit, those of a NaN too */
        memcpy(tern_ref_ptr(args->dst), tern_ref_ptr(args->src),
               (size_t)args->n * tern_dtype_bytes(args->src_dtype));
        return TERN_OK;
    }
    for (int64_t i = 0; i < args->n; i++) {
        tern_ref_put(args->dst, args->dst_dtype, i, tern_ref_get(args->src, args->src_dtype, i));
    }
    return TERN_OK;
}
