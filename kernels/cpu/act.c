/* act.c - GELU (tanh form) and SiLU, alone and as the gate of an MLP, forward and backward.
 *
 * Both are x * s(z) with s the logistic function: silu has z = x, and gelu(x) = x/2 (1 + tanh(u)) =
 * x * s(2u) with u = sqrt(2/pi) (x + 0.044715 x^3). Written so, no digit is lost where 1 + tanh(u)
 * is small. With e = exp(-z): s = 1/(1+e), s' = s * (e * s). e is capped at exp(87), where s is
 * 2e-38 already, so that e * s stays finite. */
#include "kernels/cpu/ops_level.h"
#include "kernels/cpu/vec.h"

#define GELU_TWICE 1.5957691216057308f /* 2 sqrt(2/pi) */
#define GELU_CUBIC 0.044715f

/* -z, capped; for the derivative also dz/dx. */
VF_INLINE vf exponent(vf x, enum tern_act act, vf *slope)
{
    vf z = x;
    *slope = vf_set1(1.0f);
    if (act == TERN_ACT_GELU_TANH) {
        vf x2 = x * x;
        vf a = vf_set1(GELU_TWICE), b = vf_set1(GELU_TWICE * GELU_CUBIC);
        z = x * vf_fma(b, x2, a);
        *slope = vf_fma(vf_set1(3.0f * GELU_TWICE * GELU_CUBIC), x2, a);
    }
    return vf_min(vf_set1(87.0f), vf_zero() - z);
}

VF_INLINE vf act_value(vf x, enum tern_act act)
{
    vf slope;
    vf e = vf_exp(exponent(x, act, &slope));
    return x / (vf_set1(1.0f) + e);
}

/* act'(x) = s + x s (1-s) dz/dx; *value_out = act(x). */
VF_INLINE vf act_slope(vf x, enum tern_act act, vf *value_out)
{
    vf slope;
    vf e = vf_exp(exponent(x, act, &slope));
    vf s = vf_set1(1.0f) / (vf_set1(1.0f) + e);
    vf value = x * s;
    *value_out = value;
    /* Where s rounds to nothing x may be infinite: the slope there is 0, not 0 * infinity. */
    vf bend = value * (e * s) * slope;
    return vf_if_less(x, vf_set1(-1e6f), vf_zero(), vf_if_less(vf_set1(1e6f), x, s, s + bend));
}

struct act_run {
    const struct tern_act_args *args;
    bool backward;
};

VF_INLINE void act_range(const struct tern_act_args *a,
                         int64_t begin,
                         int64_t count,
                         bool backward,
                         enum tern_act act,
                         bool bf16)
{
    const void *x = tern_cpu_ptr(a->x);
    if (backward) {
        const void *dy = tern_cpu_ptr(a->dy);
        void *dx = tern_cpu_ptr(a->dx);
        vf value;
#define STEP(i, n) \
    vf_put_n(dx, begin + (i), \
             vf_get_n(dy, begin + (i), n, bf16) * \
                 act_slope(vf_get_n(x, begin + (i), n, bf16), act, &value), \
             n, bf16)
        VF_EACH(count, STEP);
#undef STEP
    } else {
        void *y = tern_cpu_ptr(a->y);
#define STEP(i, n) \
    vf_put_n(y, begin + (i), act_value(vf_get_n(x, begin + (i), n, bf16), act), n, bf16)
        VF_EACH(count, STEP);
#undef STEP
    }
}

static void act_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct act_run *run = arg;
    const struct tern_act_args *a = run->args;
    int64_t begin = task * TERN_CPU_ELEMENTS;
    int64_t count = a->n - begin < TERN_CPU_ELEMENTS ? a->n - begin : TERN_CPU_ELEMENTS;
    bool bf16 = a->dtype == TERN_BF16;
    bool gelu = a->act == TERN_ACT_GELU_TANH;
    if (gelu && bf16) {
        act_range(a, begin, count, run->backward, TERN_ACT_GELU_TANH, true);
    } else if (gelu) {
        act_range(a, begin, count, run->backward, TERN_ACT_GELU_TANH, false);
    } else if (bf16) {
        act_range(a, begin, count, run->backward, TERN_ACT_SILU, true);
    } else {
        act_range(a, begin, count, run->backward, TERN_ACT_SILU, false);
    }
}

static tern_status act_all(struct tern_cpu_device *device,
                           const struct tern_act_args *args,
                           bool backward)
{
    struct act_run run = {args, backward};
    int64_t tasks = (args->n + TERN_CPU_ELEMENTS - 1) / TERN_CPU_ELEMENTS;
    tern_cpu_parallel(device, tasks, act_task, &run);
    return TERN_OK;
}

tern_status TERN_CPU_LEVEL(act_fwd)(struct tern_cpu_device *device,
                                    const struct tern_act_args *args)
{
    return act_all(device, args, false);
}

tern_status TERN_CPU_LEVEL(act_bwd)(struct tern_cpu_device *device,
                                    const struct tern_act_args *args)
{
    return act_all(device, args, true);
}

struct glu_run {
    const struct tern_glu_args *args;
    bool backward;
    int64_t rows; /* of a task */
};

/* One row: gate_up (2F) = [gate | up], out (F), or dgate_up (2F) from dout (F). */
VF_INLINE void glu_row(const struct tern_glu_args *a,
                       int64_t row,
                       bool backward,
                       enum tern_act act,
                       bool bf16)
{
    const void *gate_up = tern_cpu_ptr(a->gate_up);
    int64_t gate = row * 2 * a->f, up = gate + a->f, at = row * a->f;
    if (backward) {
        const void *dout = tern_cpu_ptr(a->dout);
        void *d = tern_cpu_ptr(a->dgate_up);
#define STEP(i, n) \
    do { \
        vf dy_ = vf_get_n(dout, at + (i), n, bf16), value_; \
        vf slope_ = act_slope(vf_get_n(gate_up, gate + (i), n, bf16), act, &value_); \
        vf up_ = vf_get_n(gate_up, up + (i), n, bf16); \
        vf_put_n(d, gate + (i), dy_ * up_ * slope_, n, bf16); \
        vf_put_n(d, up + (i), dy_ * value_, n, bf16); \
    } while (0)
        VF_EACH(a->f, STEP);
#undef STEP
    } else {
        void *out = tern_cpu_ptr(a->out);
#define STEP(i, n) \
    vf_put_n(out, at + (i), \
             act_value(vf_get_n(gate_up, gate + (i), n, bf16), act) * \
                 vf_get_n(gate_up, up + (i), n, bf16), \
             n, bf16)
        VF_EACH(a->f, STEP);
#undef STEP
    }
}

static void glu_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct glu_run *run = arg;
    const struct tern_glu_args *a = run->args;
    int64_t end = (task + 1) * run->rows < a->n ? (task + 1) * run->rows : a->n;
    bool bf16 = a->dtype == TERN_BF16;
    bool gelu = a->act == TERN_ACT_GELU_TANH;
    for (int64_t row = task * run->rows; row < end; row++) {
        if (gelu && bf16) {
            glu_row(a, row, run->backward, TERN_ACT_GELU_TANH, true);
        } else if (gelu) {
            glu_row(a, row, run->backward, TERN_ACT_GELU_TANH, false);
        } else if (bf16) {
            glu_row(a, row, run->backward, TERN_ACT_SILU, true);
        } else {
            glu_row(a, row, run->backward, TERN_ACT_SILU, false);
        }
    }
}

static tern_status glu_all(struct tern_cpu_device *device,
                           const struct tern_glu_args *args,
                           bool backward)
{
    struct glu_run run = {args, backward, 1};
    if (args->f > 0 && args->f < TERN_CPU_ELEMENTS) {
        run.rows = TERN_CPU_ELEMENTS / args->f;
    }
    tern_cpu_parallel(device, (args->n + run.rows - 1) / run.rows, glu_task, &run);
    return TERN_OK;
}

tern_status TERN_CPU_LEVEL(glu_fwd)(struct tern_cpu_device *device,
                                    const struct tern_glu_args *args)
{
    return glu_all(device, args, false);
}

tern_status TERN_CPU_LEVEL(glu_bwd)(struct tern_cpu_device *device,
                                    const struct tern_glu_args *args)
{
    return glu_all(device, args, true);
}
