/* rope.c - rotary positions in place, half split: the first R elements of heads x (N, heads, D), cos and sin
 * (P, R/2) f32. */
#include "kernels/cpu/ops_level.h"
#include "kernels/cpu/vec.h"

struct rope_run {
    const struct tern_rope_args *args;
    int64_t rows; /* of a task */
};

VF_INLINE void rotate(void *x,
                      int64_t low,
                      int64_t half,
                      const float *cos,
                      const float *sin,
                      int64_t i,
                      int n,
                      bool backward,
                      bool bf16)
{
    vf c = vf_get_n(cos, i, n, false), s = vf_get_n(sin, i, n, false);
    if (backward) {
        s = vf_zero() - s;
    }
    vf a = vf_get_n(x, low + i, n, bf16), b = vf_get_n(x, low + half + i, n, bf16);
    vf_put_n(x, low + i, vf_fma(a, c, vf_zero() - b * s), n, bf16);
    vf_put_n(x, low + half + i, vf_fma(b, c, a * s), n, bf16);
}

VF_INLINE void rope_row(const struct tern_rope_args *a, int64_t row, bool bf16)
{
    int64_t half = (a->rotary_d > 0 ? a->rotary_d : a->d) / 2;
    int64_t position = tern_cpu_position(a->positions, a->starts, a->first_position, a->t, row);
    const float *cos = (const float *)tern_cpu_ptr(a->cos) + position * half;
    const float *sin = (const float *)tern_cpu_ptr(a->sin) + position * half;
    void *x = tern_cpu_ptr(a->x);
    for (int64_t head = 0; head < a->heads; head++) {
        int64_t low = row * a->x_row + head * a->d;
#define STEP(i, n) rotate(x, low, half, cos, sin, i, n, a->backward, bf16)
        VF_EACH(half, STEP);
#undef STEP
    }
}

static void rope_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct rope_run *run = arg;
    const struct tern_rope_args *a = run->args;
    int64_t end = (task + 1) * run->rows < a->n ? (task + 1) * run->rows : a->n;
    for (int64_t row = task * run->rows; row < end; row++) {
        if (a->dtype == TERN_BF16) {
            rope_row(a, row, true);
        } else {
            rope_row(a, row, false);
        }
    }
}

tern_status TERN_CPU_LEVEL(rope)(struct tern_cpu_device *device, const struct tern_rope_args *args)
{
    struct rope_run run = {args, 1};
    int64_t width = args->heads * args->d;
    if (width > 0 && width < TERN_CPU_ELEMENTS) {
        run.rows = TERN_CPU_ELEMENTS / width;
    }
    tern_cpu_parallel(device, (args->n + run.rows - 1) / run.rows, rope_task, &run);
    return TERN_OK;
}
