/* packed_test.c - packed weights: what a kind makes of stored values, and the promise that a product's bits depend on
 * one row and the weights alone. */
#include "kernels/blocks.h"
#include "kernels/packed.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "tests/kernels/runners.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h> /* needs the three above */
/* clang-format on */

static struct tern_runners g_runners;

static struct tern_dptr at(const void *p)
{
    return (struct tern_dptr){(uint64_t)(uintptr_t)p};
}

static float normal(uint64_t stream, int64_t index)
{
    double u = ((double)(tern_random_u64(7, stream, (uint64_t)index) >> 11) + 0.5) * 0x1p-53;
    double v = ((double)(tern_random_u64(8, stream, (uint64_t)index) >> 11) + 0.5) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

/* Rows as a file of this type would store them, encoded where that can be done, else bytes whose scales are made small.
 */
static char *stored_rows(enum tern_dtype dtype, int64_t n, int64_t k, size_t *row_bytes_out)
{
    TERN_CHECK(tern_dtype_row_bytes(dtype, k, row_bytes_out));
    char *rows = tern_alloc("test", *row_bytes_out * (size_t)n);
    float *values = tern_alloc("test", (size_t)(n * k) * sizeof *values);
    TERN_CHECK(rows != NULL && values != NULL);
    for (int64_t i = 0; i < n * k; i++) {
        values[i] = normal(dtype, i);
    }
    if (tern_blocks_can_encode(dtype)) {
        assert_int_equal(tern_blocks_encode(dtype, values, n, k, NULL, rows), TERN_OK);
    } else {
        for (size_t i = 0; i < *row_bytes_out * (size_t)n; i++) {
            rows[i] = (char)tern_random_u64(9, dtype, i);
        }
        for (int64_t i = 0; i < n * k; i += tern_dtype_block_elements(dtype)) {
            char *block =
                rows + (size_t)(i / tern_dtype_block_elements(dtype)) * tern_dtype_bytes(dtype);
            const tern_f16 d = tern_f32_to_f16(0.01F * (float)(1 + i % 7));
            size_t places[2] = {0, 2};
            places[0] = dtype == TERN_Q2_K ? 80 : dtype == TERN_Q3_K ? 108 : 0;
            places[1] = dtype == TERN_Q2_K ? 82 : places[0] > 0 ? places[0] : 2;
            bool has_two = dtype == TERN_Q4_1 || dtype == TERN_Q5_1 || dtype == TERN_Q2_K;
            for (int j = 0; j < (has_two ? 2 : 1) && dtype != TERN_MXFP4; j++) {
                memcpy(block + places[j], &d, sizeof d);
            }
            if (dtype == TERN_MXFP4) {
                block[0] = (char)(120 + i % 5);
            }
        }
    }
    tern_free(values);
    return rows;
}

/* What a file says and what its kind keeps differ by the rounding of scales to f16, if at all. */
static void test_values(void **state)
{
    enum {
        K = 512
    };
    (void)state;
    for (int type = 0; type < TERN_DTYPE_COUNT; type++) {
        enum tern_dtype dtype = (enum tern_dtype)type;
        enum tern_packed packed = tern_packed_for(dtype);
        if (tern_dtype_block_elements(dtype) == 1 || !tern_packed_is_codes(packed)) {
            continue;
        }
        size_t row_bytes;
        char *row = stored_rows(dtype, 1, K, &row_bytes);
        float values[K];
        struct tern_packed_group groups[TERN_PACKED_PIECE / TERN_PACKED_GROUP];
        const struct tern_pack_args args = {
            .n = 1, .k = K, .ld = K, .src_dtype = dtype, .packed = packed};
        bool has_products = tern_dtype_block_elements(dtype) > 32;
        double worst = 0;
        tern_blocks_decode(dtype, row, K, values);
        for (int64_t first = 0; first < K; first += TERN_PACKED_PIECE) {
            assert_int_equal(tern_packed_groups(&args, row, 0, first, TERN_PACKED_PIECE, groups),
                             TERN_OK);
            for (int i = 0; i < TERN_PACKED_PIECE; i++) {
                const struct tern_packed_group *g = &groups[i / 32];
                double code = g->q[i % 32] - tern_packed_zero(packed);
                double scaled = (double)g->scale[i % 32 / 16] * code;
                double size = fabs(scaled) + fabs((double)g->min) + 1e-6;
                double off = fabs(scaled + (double)g->min - (double)values[first + i]) / size;
                worst = off > worst ? off : worst;
            }
        }
        double bound = has_products ? 0x1p-11 + 1e-6 : 1e-6;
        if (!(worst <= bound)) {
            fail_msg("%s as %s: off by %g of its size, expected up to %g", tern_dtype_name(dtype),
                     tern_packed_name(packed), worst, bound);
        }
        tern_free(row);
    }
}

struct problem {
    struct tern_device *device;
    enum tern_packed packed;
    struct tern_dptr b;
    int64_t n, k, m;
    float *a;
};

static void problem_init(struct problem *p,
                         struct tern_runner *runner,
                         int threads,
                         enum tern_dtype dtype,
                         enum tern_packed packed)
{
    const struct tern_op_limits limits = {.rows = p->m,
                                          .sequence = 1,
                                          .width = p->k,
                                          .heads = 1,
                                          .kv_heads = 1,
                                          .head_width = 1,
                                          .batch = 1,
                                          .vocab = p->n};
    size_t row_bytes;
    p->packed = packed;
    assert_int_equal(tern_runner_prepare(runner, &limits), TERN_OK);
    p->device = runner->devices[threads];
    char *rows = stored_rows(dtype, p->n, p->k, &row_bytes);
    const struct tern_device_table *table = p->device->ops->device;
    size_t bytes = tern_packed_bytes(p->device, packed, p->n, p->k);
    assert_int_equal(table->alloc(p->device, "test", bytes, &p->b), TERN_OK);
    const struct tern_pack_args args = {.src = at(rows),
                                        .dst = p->b,
                                        .n = p->n,
                                        .k = p->k,
                                        .ld = p->k,
                                        .src_dtype = dtype,
                                        .packed = packed};
    assert_int_equal(tern_op_pack(p->device, &args), TERN_OK);
    p->a = tern_alloc("test", (size_t)(p->m * p->k) * sizeof *p->a);
    TERN_CHECK(p->a != NULL);
    for (int64_t i = 0; i < p->m * p->k; i++) {
        p->a[i] = normal(99, i);
    }
    tern_free(rows);
}

static void problem_fini(struct problem *p)
{
    p->device->ops->device->free(p->device, p->b);
    tern_free(p->a);
}

/* d (m, n) of rows [first, first + m). */
static void multiply(const struct problem *p, int64_t first, int64_t m, float *d)
{
    const struct tern_gemm_args args = {.a = at(p->a + first * p->k),
                                        .b = p->b,
                                        .d = at(d),
                                        .m = m,
                                        .n = p->n,
                                        .k = p->k,
                                        .lda = p->k,
                                        .ldd = p->n,
                                        .trans_b = true,
                                        .compute =
                                            tern_packed_is_codes(p->packed) ? TERN_I8 : TERN_F32,
                                        .b_packed = p->packed};
    assert_int_equal(tern_op_gemm(p->device, &args), TERN_OK);
}

/* Every row by itself, then in runs of random lengths, then all at once. */
static void check_promise(const struct problem *p, const char *name, float *alone, float *d)
{
    int64_t draw = 0;
    for (int round = 0; round < 6; round++) {
        for (int64_t first = 0, m; first < p->m; first += m) {
            m = round == 0   ? 1
                : round == 1 ? p->m
                             : 1 + (int64_t)(tern_random_u64(5, (uint64_t)round, (uint64_t)draw++) %
                                             (round < 4 ? 20 : 60));
            m = m < p->m - first ? m : p->m - first;
            multiply(p, first, m, d);
            if (round == 0) {
                memcpy(alone + first * p->n, d, (size_t)p->n * sizeof *d);
            } else if (memcmp(alone + first * p->n, d, (size_t)(m * p->n) * sizeof *d) != 0) {
                fail_msg("%s, %s: rows %lld to %lld together have other bits than alone", name,
                         tern_packed_name(p->packed), (long long)first, (long long)(first + m - 1));
            }
        }
    }
}

static const struct {
    enum tern_dtype dtype;
    enum tern_packed packed;
} g_kinds[] = {
    {TERN_Q4_0, TERN_PACKED_Q4},  {TERN_Q4_1, TERN_PACKED_Q4A}, {TERN_Q5_0, TERN_PACKED_Q5},
    {TERN_Q5_1, TERN_PACKED_Q5A}, {TERN_Q8_0, TERN_PACKED_Q8},  {TERN_Q6_K, TERN_PACKED_Q6},
    {TERN_F32, TERN_PACKED_F32},  {TERN_F32, TERN_PACKED_BF16},
};

static void test_promise(void **state)
{
    enum {
        M = 131,
        N = 77,
        K = 256
    };
    (void)state;
    float *first = tern_alloc("test", sizeof(float) * M * N),
          *alone = tern_alloc("test", sizeof(float) * M * N);
    float *d = tern_alloc("test", sizeof(float) * M * N);
    TERN_CHECK(first != NULL && alone != NULL && d != NULL);
    for (int i = 0; i < g_runners.count; i++) {
        struct tern_runner *runner = &g_runners.list[i];
        bool is_cpu = runner->devices[0] != NULL && strcmp(runner->backend, "cpu") == 0;
        for (size_t kind = 0; is_cpu && kind < sizeof g_kinds / sizeof g_kinds[0]; kind++) {
            for (int threads = 0; threads < TERN_RUNNER_THREADS; threads++) {
                struct problem p = {.m = M, .n = N, .k = K};
                problem_init(&p, runner, threads, g_kinds[kind].dtype, g_kinds[kind].packed);
                check_promise(&p, runner->name, threads == 0 ? first : alone, d);
                problem_fini(&p);
                if (threads > 0 && memcmp(first, alone, sizeof(float) * M * N) != 0) {
                    fail_msg("%s, %s: %d threads give other bits than one", runner->name,
                             tern_packed_name(g_kinds[kind].packed), threads + 1);
                }
            }
        }
    }
    tern_free(first);
    tern_free(alone);
    tern_free(d);
}

/* What is not finite shows in its own row, and in no other. */
static void test_not_finite(void **state)
{
    enum {
        N = 20,
        K = 64
    };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const int64_t counts[] = {3, 12, 40};
    (void)state;
    for (int i = 0; i < g_runners.count; i++) {
        struct tern_runner *runner = &g_runners.list[i];
        for (size_t b = 0; runner->devices[0] != NULL && b < 9; b++) {
            if ((runner->devices[0]->ops->lacks & TERN_LACKS_PACKED) != 0) {
                continue;
            }
            struct problem p = {.m = counts[b / 3], .n = N, .k = K};
            problem_init(&p, runner, 0, TERN_Q4_0, TERN_PACKED_Q4);
            float d[40 * N];
            p.a[K + 37] = bad[b % 3];
            multiply(&p, 0, p.m, d);
            for (int64_t j = 0; j < p.m * N; j++) {
                if ((j / N == 1) == (isfinite(d[j]) != 0)) {
                    fail_msg("%s: a[1] has %g, d[%lld] is %g", runner->name, (double)bad[b % 3],
                             (long long)(j / N), (double)d[j]);
                }
            }
            problem_fini(&p);
        }
    }
}

static int open_all(void **state)
{
    (void)state;
    return tern_runners_open(&g_runners) == TERN_OK ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    tern_runners_close(&g_runners);
    return tern_mem_stats().live_blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_promise),
        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests_name("kernels_packed", tests, open_all, close_all);
}
