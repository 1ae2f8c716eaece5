/* norm.c - LayerNorm and RMSNorm over rows (N, C), or over the heads (N, heads, C) of wider rows, with the residual
 * sum in front and its gradient behind.
 *
 * A row (or head) is read from memory once (it fits the first-level cache for what follows): the sum, rounded
 * as stored; its mean; the mean of its squared deviations (two passes, no cancellation); the
 * output. Row sums run in four vectors of f32 in a fixed order. gamma is gamma_offset + what is stored. Backward, with
 * xhat = (x - mean) rstd and g = dy gamma:
 *   dx = dresidual + rstd (g - mean(g) - xhat mean(g xhat))         (rms: without mean(g))
 *   dgamma = sum over rows of dy xhat, dbeta = sum over rows of dy:
 * rows are cut into runs by the shape alone, each run is summed in order, then the runs are. */
#include "kernels/cpu/ops_level.h"
#include "kernels/cpu/vec.h"

#include <math.h>

enum {
    ROWS_TASK = 16,
    COLUMNS_TASK = 1024
};

/* Sum over a row of EXPRESSION(i, n), a vf whose lanes from n on are 0. */
#define ROW_SUM(result, count, EXPRESSION) \
    do { \
        vf s0_ = vf_zero(), s1_ = s0_, s2_ = s0_, s3_ = s0_; \
        int64_t i_ = 0, c_ = (count); \
        for (; i_ + 4 * VF_LANES <= c_; i_ += 4 * VF_LANES) { \
            s0_ = s0_ + EXPRESSION(i_, VF_LANES); \
            s1_ = s1_ + EXPRESSION(i_ + VF_LANES, VF_LANES); \
            s2_ = s2_ + EXPRESSION(i_ + 2 * VF_LANES, VF_LANES); \
            s3_ = s3_ + EXPRESSION(i_ + 3 * VF_LANES, VF_LANES); \
        } \
        for (; i_ + VF_LANES <= c_; i_ += VF_LANES) { \
            s0_ = s0_ + EXPRESSION(i_, VF_LANES); \
        } \
        if (i_ < c_) { \
            s1_ = s1_ + EXPRESSION(i_, (int)(c_ - i_)); \
        } \
        (result) = vf_sum((s0_ + s1_) + (s2_ + s3_)); \
    } while (0)

/* Lanes from n on become 0. */
VF_INLINE vf keep(vf v, int n)
{
    return n == VF_LANES ? v : vf_if_less(vf_iota(), vf_set1((float)n), v, vf_zero());
}

VF_INLINE vf square_off(const void *x, int64_t i, int n, vf mean, bool bf16)
{
    vf d = keep(vf_get_n(x, i, n, bf16) - mean, n);
    return d * d;
}

/* What a call adds up over: norms of c elements, `heads` of them in a row. */
static int64_t norm_count(int64_t n, int64_t heads)
{
    return n * (heads > 0 ? heads : 1);
}

/* Where norm number `norm` starts in rows of a stride (0: dense). */
static int64_t norm_start(int64_t norm, int64_t heads, int64_t c, int64_t row)
{
    if (heads <= 1) {
        return norm * (row > 0 ? row : c);
    }
    return norm / heads * (row > 0 ? row : heads * c) + norm % heads * c;
}

/* sum = x + residual, dense; copy = x. Returns where what is normalised lies, and from which element on. */
VF_INLINE const void *norm_source(const struct tern_norm_fwd_args *a,
                                  int64_t norm,
                                  int64_t *start_out,
                                  bool bf16)
{
    const void *x = tern_cpu_ptr(a->x);
    int64_t from = norm_start(norm, a->heads, a->c, a->x_row), to = norm * a->c;
    *start_out = from;
    if (!tern_dptr_is_null(a->residual)) {
        const void *residual = tern_cpu_ptr(a->residual);
        void *sum = tern_cpu_ptr(a->sum);
#define STEP(i, n) \
    vf_put_n(sum, to + (i), \
             vf_get_n(x, from + (i), n, bf16) + vf_get_n(residual, to + (i), n, bf16), n, bf16)
        VF_EACH(a->c, STEP);
#undef STEP
        x = sum;
        *start_out = to;
    }
    if (!tern_dptr_is_null(a->copy)) {
        size_t bytes = bf16 ? sizeof(tern_bf16) : sizeof(float);
        memcpy((char *)tern_cpu_ptr(a->copy) + (size_t)to * bytes,
               (const char *)x + (size_t)*start_out * bytes, (size_t)a->c * bytes);
    }
    return x;
}

/* gamma_offset 0 adds nothing: not one bit of gamma changes. */
VF_INLINE vf gamma_of(const void *gamma, float offset, int64_t i, int n, bool bf16)
{
    return vf_get_n(gamma, i, n, bf16) + vf_set1(offset);
}

VF_INLINE void norm_row(const struct tern_norm_fwd_args *a, int64_t norm, bool rms, bool bf16)
{
    int64_t at, to = norm_start(norm, a->heads, a->c, a->out_row);
    const void *x = norm_source(a, norm, &at, bf16);
    void *out = tern_cpu_ptr(a->out);
    const void *gamma = tern_cpu_ptr(a->gamma), *beta = tern_cpu_ptr(a->beta);
    float mean = 0, total;
    if (!rms) {
#define TERM(i, n) vf_get_n(x, at + (i), n, bf16)
        ROW_SUM(total, a->c, TERM);
#undef TERM
        mean = total / (float)a->c;
    }
    vf m = vf_set1(mean);
#define TERM(i, n) square_off(x, at + (i), n, m, bf16)
    ROW_SUM(total, a->c, TERM);
#undef TERM
    float rstd = 1.0f / sqrtf(total / (float)a->c + a->eps);
    vf r = vf_set1(rstd);
#define STEP(i, n) \
    do { \
        vf y_ = (vf_get_n(x, at + (i), n, bf16) - m) * r; \
        vf g_ = gamma_of(gamma, a->gamma_offset, i, n, bf16); \
        vf b_ = beta == NULL ? vf_zero() : vf_get_n(beta, i, n, bf16); \
        vf_put_n(out, to + (i), vf_fma(y_, g_, b_), n, bf16); \
    } while (0)
    VF_EACH(a->c, STEP);
#undef STEP
    if (!tern_dptr_is_null(a->mean)) {
        ((float *)tern_cpu_ptr(a->mean))[norm] = mean;
    }
    if (!tern_dptr_is_null(a->rstd)) {
        ((float *)tern_cpu_ptr(a->rstd))[norm] = rstd;
    }
}

static void norm_fwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct tern_norm_fwd_args *a = arg;
    bool rms = a->kind == TERN_NORM_RMS, bf16 = a->dtype == TERN_BF16;
    int64_t norms = norm_count(a->n, a->heads);
    int64_t end = (task + 1) * ROWS_TASK < norms ? (task + 1) * ROWS_TASK : norms;
    for (int64_t row = task * ROWS_TASK; row < end; row++) {
        if (rms && bf16) {
            norm_row(a, row, true, true);
        } else if (rms) {
            norm_row(a, row, true, false);
        } else if (bf16) {
            norm_row(a, row, false, true);
        } else {
            norm_row(a, row, false, false);
        }
    }
}

tern_status TERN_CPU_LEVEL(norm_fwd)(struct tern_cpu_device *device,
                                     const struct tern_norm_fwd_args *args)
{
    struct tern_norm_fwd_args copy = *args;
    int64_t tasks = (norm_count(args->n, args->heads) + ROWS_TASK - 1) / ROWS_TASK;
    tern_cpu_parallel(device, tasks, norm_fwd_task, &copy);
    return TERN_OK;
}

struct norm_bwd_run {
    const struct tern_norm_bwd_args *args;
    int64_t run_rows, runs;
    float *sums; /* (runs, 2, C): dgamma and dbeta of each run */
};

/* dx may be dy: an element is read before it is written, and the sums come first. */
VF_INLINE void norm_bwd_row(const struct tern_norm_bwd_args *a,
                            int64_t norm,
                            float *dgamma,
                            float *dbeta,
                            bool rms,
                            bool bf16)
{
    int64_t at = norm_start(norm, a->heads, a->c, a->x_row);
    int64_t to = norm_start(norm, a->heads, a->c, a->dy_row);
    const void *dy = tern_cpu_ptr(a->dy), *x = tern_cpu_ptr(a->x), *gamma = tern_cpu_ptr(a->gamma);
    const void *dresidual = tern_cpu_ptr(a->dresidual);
    void *dx = tern_cpu_ptr(a->dx);
    float rstd = ((const float *)tern_cpu_ptr(a->rstd))[norm], g_sum = 0, gx_sum;
    float offset = a->gamma_offset;
    vf m = vf_set1(rms ? 0.0f : ((const float *)tern_cpu_ptr(a->mean))[norm]), r = vf_set1(rstd);
    if (!rms) {
#define TERM(i, n) (vf_get_n(dy, to + (i), n, bf16) * gamma_of(gamma, offset, i, n, bf16))
        ROW_SUM(g_sum, a->c, TERM);
#undef TERM
    }
#define TERM(i, n) \
    (vf_get_n(dy, to + (i), n, bf16) * gamma_of(gamma, offset, i, n, bf16) * \
     ((vf_get_n(x, at + (i), n, bf16) - m) * r))
    ROW_SUM(gx_sum, a->c, TERM);
#undef TERM
    vf g_mean = vf_set1(g_sum / (float)a->c), gx_mean = vf_set1(gx_sum / (float)a->c);
#define STEP(i, n) \
    do { \
        vf dy_ = vf_get_n(dy, to + (i), n, bf16); \
        vf xhat_ = (vf_get_n(x, at + (i), n, bf16) - m) * r; \
        vf g_ = dy_ * gamma_of(gamma, offset, i, n, bf16) - g_mean - xhat_ * gx_mean; \
        vf d_ = g_ * r; \
        if (dresidual != NULL) { \
            d_ = d_ + vf_get_n(dresidual, to + (i), n, bf16); \
        } \
        vf_put_n(dx, to + (i), d_, n, bf16); \
        vf_put_n(dgamma, i, vf_fma(dy_, xhat_, vf_get_n(dgamma, i, n, false)), n, false); \
        if (!rms) { \
            vf_put_n(dbeta, i, vf_get_n(dbeta, i, n, false) + dy_, n, false); \
        } \
    } while (0)
    VF_EACH(a->c, STEP);
#undef STEP
}

static void norm_bwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct norm_bwd_run *run = arg;
    const struct tern_norm_bwd_args *a = run->args;
    float *dgamma = run->sums + task * 2 * a->c, *dbeta = dgamma + a->c;
    memset(dgamma, 0, (size_t)(2 * a->c) * sizeof *dgamma);
    bool rms = a->kind == TERN_NORM_RMS, bf16 = a->dtype == TERN_BF16;
    int64_t norms = norm_count(a->n, a->heads);
    int64_t end = (task + 1) * run->run_rows < norms ? (task + 1) * run->run_rows : norms;
    for (int64_t row = task * run->run_rows; row < end; row++) {
        if (rms && bf16) {
            norm_bwd_row(a, row, dgamma, dbeta, true, true);
        } else if (rms) {
            norm_bwd_row(a, row, dgamma, dbeta, true, false);
        } else if (bf16) {
            norm_bwd_row(a, row, dgamma, dbeta, false, true);
        } else {
            norm_bwd_row(a, row, dgamma, dbeta, false, false);
        }
    }
}

static void norm_fold_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct norm_bwd_run *run = arg;
    const struct tern_norm_bwd_args *a = run->args;
    int64_t begin = task * COLUMNS_TASK;
    int64_t count = a->c - begin < COLUMNS_TASK ? a->c - begin : COLUMNS_TASK;
    float *dgamma = (float *)tern_cpu_ptr(a->dgamma) + begin;
    vf_add_rows(dgamma, run->sums + begin, count, run->runs, 2 * a->c, a->accumulate);
    if (!tern_dptr_is_null(a->dbeta)) {
        float *dbeta = (float *)tern_cpu_ptr(a->dbeta) + begin;
        vf_add_rows(dbeta, run->sums + a->c + begin, count, run->runs, 2 * a->c, a->accumulate);
    }
}

tern_status TERN_CPU_LEVEL(norm_bwd)(struct tern_cpu_device *device,
                                     const struct tern_norm_bwd_args *args)
{
    int64_t norms = norm_count(args->n, args->heads);
    int64_t run_rows = tern_cpu_run_rows(norms);
    int64_t runs = (norms + run_rows - 1) / run_rows;
    size_t bytes = (size_t)(runs * 2 * args->c) * sizeof(float);
    TERN_RETURN_IF_ERR(tern_cpu_need(device, "norm_bwd", bytes, 0));
    struct norm_bwd_run run = {args, run_rows, runs, device->shared};
    tern_cpu_parallel(device, runs, norm_bwd_task, &run);
    tern_cpu_parallel(device, (args->c + COLUMNS_TASK - 1) / COLUMNS_TASK, norm_fold_task, &run);
    return TERN_OK;
}
