/* product_test.c - large matrix products by multiplying with a random vector, and the reference
 * on paper.
 *
 * A (B x) is two products of O(n^2) in double; (A B) x uses what the backend computed.
 * Freivalds, "Probabilistic Machines Can Use Less Running Time", 1977; a wrong element stays
 * hidden only if its column's weight is 0. */
#include "kernels/tolerance.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "tests/kernels/runners.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h> /* needs the three above */
/* clang-format on */

/* Models have these: GPT-2 124M's layers at a few hundred tokens, odd neighbours, a long and
 * thin one. */
static const struct shape {
    int64_t m, n, k;
    bool ta, tb;
} g_shapes[] = {
    {256, 2304, 768, false, true},  {257, 769, 3073, false, false}, {768, 771, 255, true, false},
    {31, 5003, 768, false, true},   {1, 3072, 768, false, true},    {1021, 67, 1500, true, true},
    {128, 768, 5003, false, false}, {5, 768, 9001, false, true},
};

static struct tern_runners g_runners;

struct product {
    const struct shape *shape;
    enum tern_dtype dtype;
    double *a, *b, *d, *x, *y; /* as stored; x (n), y = B x (k) */
};

static double *doubles(int64_t count)
{
    double *block = tern_alloc("test", (size_t)count * sizeof(double));
    assert_non_null(block);
    return block;
}

static double stored(enum tern_dtype dtype, double x)
{
    return dtype == TERN_BF16 ? (double)tern_bf16_to_f32(tern_f32_to_bf16((float)x))
                              : (double)(float)x;
}

static double *randoms(enum tern_dtype dtype, int64_t count, uint64_t seed)
{
    double *block = doubles(count);
    for (int64_t i = 0; i < count; i++) {
        uint64_t stream = tern_random_stream_id(TERN_STREAM_TEST, 21);
        block[i] = stored(dtype, tern_random_normal(seed, stream, (uint64_t)i));
    }
    return block;
}

static double a_at(const struct product *p, int64_t i, int64_t q)
{
    return p->a[p->shape->ta ? q * p->shape->m + i : i * p->shape->k + q];
}

static double b_at(const struct product *p, int64_t q, int64_t j)
{
    return p->b[p->shape->tb ? j * p->shape->k + q : q * p->shape->n + j];
}

/* A device copy of doubles as `dtype`. */
static struct tern_dptr send(struct tern_device *device,
                             enum tern_dtype dtype,
                             const double *from,
                             int64_t count)
{
    size_t bytes = (size_t)count * tern_dtype_bytes(dtype);
    void *image = tern_alloc("test", bytes);
    struct tern_dptr p = {0};
    assert_non_null(image);
    for (int64_t i = 0; i < count; i++) {
        if (dtype == TERN_BF16) {
            ((tern_bf16 *)image)[i] = tern_f32_to_bf16((float)from[i]);
        } else {
            ((float *)image)[i] = (float)from[i];
        }
    }
    assert_int_equal(device->ops->device->alloc(device, "test", bytes, &p), TERN_OK);
    assert_int_equal(device->ops->device->upload(device, p, image, bytes), TERN_OK);
    tern_free(image);
    return p;
}

/* d = op(a) op(b) on the device, in f32. */
static void multiply(struct tern_device *device, struct product *p)
{
    const struct shape *s = p->shape;
    struct tern_gemm_args args = {.m = s->m,
                                  .n = s->n,
                                  .k = s->k,
                                  .lda = s->ta ? s->m : s->k,
                                  .ldb = s->tb ? s->k : s->n,
                                  .ldd = s->n,
                                  .trans_a = s->ta,
                                  .trans_b = s->tb,
                                  .a_dtype = p->dtype,
                                  .b_dtype = p->dtype,
                                  .d_dtype = TERN_F32,
                                  .compute = p->dtype};
    const struct tern_device_table *table = device->ops->device;
    int64_t count = s->m * s->n;
    float *image = tern_alloc("test", (size_t)count * sizeof(float));
    assert_non_null(image);
    for (int64_t i = 0; i < count; i++) {
        p->d[i] = NAN;
    }
    args.a = send(device, p->dtype, p->a, s->m * s->k);
    args.b = send(device, p->dtype, p->b, s->k * s->n);
    args.d = send(device, TERN_F32, p->d, count);
    if (tern_op_gemm(device, &args) != TERN_OK) {
        fail_msg("%s", tern_detail());
    }
    assert_int_equal(table->download(device, image, args.d, (size_t)count * sizeof(float)),
                     TERN_OK);
    for (int64_t i = 0; i < count; i++) {
        p->d[i] = (double)image[i];
    }
    table->free(device, args.a);
    table->free(device, args.b);
    table->free(device, args.d);
    tern_free(image);
}

/* Row i of (A B) x - A (B x) against what the roundings of a row can add up to. */
static bool row_is_good(const struct product *p, int64_t i, double *off_out, double *bound_out)
{
    const struct shape *s = p->shape;
    double got = 0, want = 0, size = 0, row_size = 0, bound = 0;
    for (int64_t q = 0; q < s->k; q++) {
        want += a_at(p, i, q) * p->y[q];
        row_size += fabs(a_at(p, i, q));
    }
    for (int64_t j = 0; j < s->n; j++) {
        double d = p->d[i * s->n + j];
        got += d * p->x[j];
        size += p->x[j] * p->x[j];
        /* |b| averages 0.8: the magnitude of an element is near 0.8 times that of its row of a. */
        struct tern_tolerance_element element = {.want = d, .magnitude = row_size};
        double one = tern_tolerance_bound(TERN_OP_GEMM, TERN_F32, s->k, &element);
        bound = one > bound ? one : bound;
    }
    /* Errors of different elements are independent: they add like the root of their number. */
    *off_out = fabs(got - want);
    *bound_out = bound * sqrt(size);
    return *off_out <= *bound_out;
}

static void check_product(struct tern_runner *runner, int threads, struct product *p)
{
    const struct shape *s = p->shape;
    multiply(runner->devices[threads - 1], p);
    for (int64_t i = 0; i < s->m; i++) {
        double off, bound;
        if (!row_is_good(p, i, &off, &bound)) {
            fail_msg("%s, %d threads, %s, m=%lld n=%lld k=%lld ta=%d tb=%d: row %lld is off by %g, "
                     "bound %g",
                     runner->name, threads, tern_dtype_name(p->dtype), (long long)s->m,
                     (long long)s->n, (long long)s->k, s->ta, s->tb, (long long)i, off, bound);
        }
    }
}

static void check_shape(const struct shape *s, enum tern_dtype dtype)
{
    struct product p = {.shape = s, .dtype = dtype};
    p.a = randoms(dtype, s->m * s->k, 1);
    p.b = randoms(dtype, s->k * s->n, 2);
    p.x = randoms(TERN_F32, s->n, 3);
    p.d = doubles(s->m * s->n);
    p.y = doubles(s->k);
    for (int64_t q = 0; q < s->k; q++) {
        p.y[q] = 0;
        for (int64_t j = 0; j < s->n; j++) {
            p.y[q] += b_at(&p, q, j) * p.x[j];
        }
    }
    struct tern_op_limits limits = {.rows = s->m > s->k ? s->m : s->k, .width = s->n};
    limits.width = s->k > limits.width ? s->k : limits.width;
    for (int i = 0; i < g_runners.count; i++) {
        struct tern_runner *runner = &g_runners.list[i];
        bool is_slow = runner->devices[0] != NULL && runner->devices[0]->ops == g_runners.ref->ops;
        if (runner->devices[0] != NULL && !is_slow) {
            assert_int_equal(tern_runner_prepare(runner, &limits), TERN_OK);
            check_product(runner, 1 + i % TERN_RUNNER_THREADS, &p);
        }
    }
    tern_free(p.a);
    tern_free(p.b);
    tern_free(p.x);
    tern_free(p.d);
    tern_free(p.y);
}

static void test_large_products(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof g_shapes / sizeof g_shapes[0]; i++) {
        check_shape(&g_shapes[i], TERN_F32);
        check_shape(&g_shapes[i], TERN_BF16);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_products)};
    return cmocka_run_group_tests_name("kernels_product", tests, open_all, close_all);
}
