/* reduce.c - element by element (add, cast) and sums (bias_bwd over rows, sumsq over blocks), in a
 * fixed order. */
#include "kernels/cpu/ops_level.h"
#include "kernels/cpu/vec.h"

enum {
    COLUMNS_TASK = 1024
};

static void add_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct tern_add_args *args = arg;
    int64_t at = task * TERN_CPU_ELEMENTS;
    int64_t count = args->n - at < TERN_CPU_ELEMENTS ? args->n - at : TERN_CPU_ELEMENTS;
    const void *a = tern_cpu_ptr(args->a), *b = tern_cpu_ptr(args->b);
    void *y = tern_cpu_ptr(args->y);
    const vf scale = vf_set1(args->scale != 0 ? args->scale : 1.0F);
#define STEP(i, n, bf16) \
    vf_put_n(y, at + (i), \
             vf_fma(scale, vf_get_n(b, at + (i), n, bf16), \
                    args->a.addr != 0 ? vf_get_n(a, at + (i), n, bf16) : vf_set1(0.0F)), \
             n, bf16)
#define STEP_BF16(i, n) STEP(i, n, true)
#define STEP_F32(i, n)  STEP(i, n, false)
    if (args->dtype == TERN_BF16) {
        VF_EACH(count, STEP_BF16);
    } else {
        VF_EACH(count, STEP_F32);
    }
#undef STEP_F32
#undef STEP_BF16
#undef STEP
}

tern_status TERN_CPU_LEVEL(add)(struct tern_cpu_device *device, const struct tern_add_args *args)
{
    struct tern_add_args copy = *args;
    tern_cpu_parallel(device, (args->n + TERN_CPU_ELEMENTS - 1) / TERN_CPU_ELEMENTS, add_task,
                      &copy);
    return TERN_OK;
}

static void cast_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct tern_cast_args *a = arg;
    int64_t at = task * TERN_CPU_ELEMENTS;
    int64_t count = a->n - at < TERN_CPU_ELEMENTS ? a->n - at : TERN_CPU_ELEMENTS;
    const void *src = tern_cpu_ptr(a->src);
    void *dst = tern_cpu_ptr(a->dst);
    if (a->src_dtype == a->dst_dtype) {
        size_t bytes = tern_dtype_bytes(a->src_dtype);
        memmove((char *)dst + (size_t)at * bytes, (const char *)src + (size_t)at * bytes,
                (size_t)count * bytes);
    } else if (a->dst_dtype == TERN_BF16) {
#define STEP(i, n) vf_put_n(dst, at + (i), vf_get_n(src, at + (i), n, false), n, true)
        VF_EACH(count, STEP);
#undef STEP
    } else {
#define STEP(i, n) vf_put_n(dst, at + (i), vf_get_n(src, at + (i), n, true), n, false)
        VF_EACH(count, STEP);
#undef STEP
    }
}

tern_status TERN_CPU_LEVEL(cast)(struct tern_cpu_device *device, const struct tern_cast_args *args)
{
    struct tern_cast_args copy = *args;
    tern_cpu_parallel(device, (args->n + TERN_CPU_ELEMENTS - 1) / TERN_CPU_ELEMENTS, cast_task,
                      &copy);
    return TERN_OK;
}

struct bias_run {
    const struct tern_bias_bwd_args *args;
    int64_t run_rows, runs, strips;
    float *sums; /* (runs, n) */
};

/* Adds rows [row, row + count), count <= 4, to a strip of a run's sum, one after the other. */
VF_INLINE void add_rows(float *sum,
                        const void *dy,
                        int64_t at,
                        int64_t ldy,
                        int64_t columns,
                        int count,
                        bool bf16)
{
#define STEP(i, n) \
    do { \
        vf s_ = vf_get_n(sum, i, n, false); \
        for (int r_ = 0; r_ < count; r_++) { \
            s_ = s_ + vf_get_n(dy, at + r_ * ldy + (i), n, bf16); \
        } \
        vf_put_n(sum, i, s_, n, false); \
    } while (0)
    VF_EACH(columns, STEP);
#undef STEP
}

VF_INLINE void bias_strip(const struct tern_bias_bwd_args *a,
                          float *sum,
                          int64_t begin,
                          int64_t end,
                          int64_t column,
                          int64_t columns,
                          bool bf16)
{
    const void *dy = tern_cpu_ptr(a->dy);
    int64_t row = begin;
    for (; row + 4 <= end; row += 4) {
        add_rows(sum, dy, row * a->ldy + column, a->ldy, columns, 4, bf16);
    }
    for (; row < end; row++) {
        add_rows(sum, dy, row * a->ldy + column, a->ldy, columns, 1, bf16);
    }
}

static void bias_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct bias_run *run = arg;
    const struct tern_bias_bwd_args *a = run->args;
    int64_t part = task / run->strips, column = task % run->strips * COLUMNS_TASK;
    int64_t columns = a->n - column < COLUMNS_TASK ? a->n - column : COLUMNS_TASK;
    int64_t begin = part * run->run_rows;
    int64_t end = begin + run->run_rows < a->rows ? begin + run->run_rows : a->rows;
    float *sum = run->sums + part * a->n + column;
    memset(sum, 0, (size_t)columns * sizeof *sum);
    if (a->dtype == TERN_BF16) {
        bias_strip(a, sum, begin, end, column, columns, true);
    } else {
        bias_strip(a, sum, begin, end, column, columns, false);
    }
}

static void bias_fold_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct bias_run *run = arg;
    const struct tern_bias_bwd_args *a = run->args;
    int64_t column = task * COLUMNS_TASK;
    int64_t columns = a->n - column < COLUMNS_TASK ? a->n - column : COLUMNS_TASK;
    float *dbias = (float *)tern_cpu_ptr(a->dbias) + column;
    vf_add_rows(dbias, run->sums + column, columns, run->runs, a->n, a->accumulate);
}

tern_status TERN_CPU_LEVEL(bias_bwd)(struct tern_cpu_device *device,
                                     const struct tern_bias_bwd_args *args)
{
    int64_t run_rows = tern_cpu_run_rows(args->rows);
    int64_t runs = (args->rows + run_rows - 1) / run_rows;
    int64_t strips = (args->n + COLUMNS_TASK - 1) / COLUMNS_TASK;
    size_t bytes = (size_t)(runs * args->n) * sizeof(float);
    TERN_RETURN_IF_ERR(tern_cpu_need(device, "bias_bwd", bytes, 0));
    struct bias_run run = {args, run_rows, runs, strips, device->shared};
    tern_cpu_parallel(device, runs * strips, bias_task, &run);
    tern_cpu_parallel(device, strips, bias_fold_task, &run);
    return TERN_OK;
}

/* A piece of a block of sumsq: where it starts, how long it is, which block it belongs to, what it
 * sums to. */
struct piece {
    int64_t start, count, block;
    double sum;
};

struct sumsq_run {
    const float *x;
    struct piece *pieces;
};

#if VF_AVX512
static double sum_squares(const float *x, int64_t n)
{
    __m512d s0 = _mm512_setzero_pd(), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m512d a = _mm512_cvtps_pd(_mm256_loadu_ps(x + i));
        __m512d b = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8));
        __m512d c = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 16));
        __m512d d = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 24));
        s0 = _mm512_fmadd_pd(a, a, s0);
        s1 = _mm512_fmadd_pd(b, b, s1);
        s2 = _mm512_fmadd_pd(c, c, s2);
        s3 = _mm512_fmadd_pd(d, d, s3);
    }
    double lanes[8], sum = 0;
    _mm512_storeu_pd(lanes, (s0 + s1) + (s2 + s3));
    for (; i < n; i++) {
        sum += (double)x[i] * x[i];
    }
    return sum + (((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                  ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7])));
}
#elif VF_AVX2
static double sum_squares(const float *x, int64_t n)
{
    __m256d s0 = _mm256_setzero_pd(), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256d a = _mm256_cvtps_pd(_mm_loadu_ps(x + i));
        __m256d b = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4));
        __m256d c = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 8));
        __m256d d = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 12));
        s0 = _mm256_fmadd_pd(a, a, s0);
        s1 = _mm256_fmadd_pd(b, b, s1);
        s2 = _mm256_fmadd_pd(c, c, s2);
        s3 = _mm256_fmadd_pd(d, d, s3);
    }
    double lanes[4], sum = 0;
    _mm256_storeu_pd(lanes, (s0 + s1) + (s2 + s3));
    for (; i < n; i++) {
        sum += (double)x[i] * x[i];
    }
    return sum + ((lanes[0] + lanes[2]) + (lanes[1] + lanes[3]));
}
#else
static double sum_squares(const float *x, int64_t n)
{
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        s0 += (double)x[i] * x[i];
        s1 += (double)x[i + 1] * x[i + 1];
        s2 += (double)x[i + 2] * x[i + 2];
        s3 += (double)x[i + 3] * x[i + 3];
    }
    for (; i < n; i++) {
        s0 += (double)x[i] * x[i];
    }
    return (s0 + s2) + (s1 + s3);
}
#endif

static void sumsq_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    struct sumsq_run *run = arg;
    struct piece *p = &run->pieces[task];
    p->sum = sum_squares(run->x + p->start, p->count);
}

/* In ascending order: the losses of a lane, few beside what it took to compute them. */
static void plain_sums(const struct tern_sumsq_args *args)
{
    const float *x = tern_cpu_ptr(args->x);
    const int64_t *starts = tern_cpu_ptr(args->starts);
    double *sums = tern_cpu_ptr(args->sums);
    for (int64_t i = 0; i < args->blocks; i++) {
        double sum = 0;
        for (int64_t j = starts[i]; j < starts[i + 1]; j++) {
            sum += (double)x[j];
        }
        sums[i] = sum;
    }
}

/* Blocks are cut into pieces of a fixed size; a round sums as many pieces as fit the workspace,
 * whichever blocks they come from, and adds them to their blocks in order. */
tern_status TERN_CPU_LEVEL(sumsq)(struct tern_cpu_device *device,
                                  const struct tern_sumsq_args *args)
{
    if (args->is_plain) {
        plain_sums(args);
        return TERN_OK;
    }
    struct sumsq_run run = {tern_cpu_ptr(args->x), device->shared};
    TERN_RETURN_IF_ERR(
        tern_cpu_need(device, "sumsq", TERN_CPU_SUMSQ_PIECES * sizeof(struct piece), 0));
    const int64_t *starts = tern_cpu_ptr(args->starts);
    double *sums = tern_cpu_ptr(args->sums);
    int64_t block = 0, at = args->blocks > 0 ? starts[0] : 0;
    for (int64_t i = 0; i < args->blocks; i++) {
        sums[i] = 0;
    }
    while (block < args->blocks) {
        int64_t count = 0;
        while (block < args->blocks && count < TERN_CPU_SUMSQ_PIECES) {
            int64_t left = starts[block + 1] - at;
            if (left <= 0) {
                at = starts[++block];
                continue;
            }
            int64_t take = left < TERN_CPU_SUMSQ_ELEMENTS ? left : TERN_CPU_SUMSQ_ELEMENTS;
            run.pieces[count++] = (struct piece){at, take, block, 0};
            at += take;
        }
        tern_cpu_parallel(device, count, sumsq_task, &run);
        for (int64_t i = 0; i < count; i++) {
            sums[run.pieces[i].block] += run.pieces[i].sum;
        }
    }
    return TERN_OK;
}
