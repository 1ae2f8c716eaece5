/* cpu_ops.c - the CPU backend's ops beyond the shared case table: what picks an algorithm (threads,
 * workspace, few or many rows, splits of the keys, rounds of partial sums) changes no bit, and each
 * of them agrees with the reference. */
#include "kernels/cpu/ops_level.h"
#include "kernels/open.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

enum {
    SEED = 20240611,
    ROW_PAD = 3, /* row strides are odd */
    RESULTS = 5
};

struct shape {
    int64_t b, tq, tkv, h, kv_heads, d, window;
};

/* Inputs and one set of results of a shape; every tensor starts `shift` elements into its block. */
struct tensors {
    struct tern_attention_args args;
    struct tern_dptr blocks[4 + RESULTS];
    int64_t elements[RESULTS]; /* out, lse, dq, dk, dv */
};

static struct tern_dptr make(int64_t elements, enum tern_dtype dtype, int64_t shift, int64_t stream)
{
    char *block = tern_alloc("test", (size_t)(elements + shift) * tern_dtype_bytes(dtype));
    assert_non_null(block);
    memset(block, 0xff, (size_t)(elements + shift) * tern_dtype_bytes(dtype)); /* NaN */
    for (int64_t i = 0; stream > 0 && i < elements; i++) {
        float x = (float)tern_random_normal(SEED, (uint64_t)stream, (uint64_t)i);
        if (dtype == TERN_BF16) {
            ((tern_bf16 *)(void *)block)[shift + i] = tern_f32_to_bf16(x);
        } else {
            ((float *)(void *)block)[shift + i] = x;
        }
    }
    return (struct tern_dptr){(uint64_t)(uintptr_t)block};
}

static struct tensors make_tensors(const struct shape *s, enum tern_dtype dtype, int64_t shift)
{
    int64_t q_row = s->h * s->d + ROW_PAD, kv_row = s->kv_heads * s->d + ROW_PAD;
    int64_t queries = s->b * s->tq * q_row, keys = s->b * s->tkv * kv_row;
    struct tensors t = {.elements = {queries, s->b * s->h * s->tq, queries, keys, keys}};
    struct tern_attention_args *a = &t.args;
    *a = (struct tern_attention_args){.b = s->b,
                                      .tq = s->tq,
                                      .tkv = s->tkv,
                                      .h = s->h,
                                      .kv_heads = s->kv_heads,
                                      .d = s->d,
                                      .q_row = q_row,
                                      .q_batch = s->tq * q_row,
                                      .kv_row = kv_row,
                                      .kv_batch = s->tkv * kv_row,
                                      .out_row = q_row,
                                      .out_batch = s->tq * q_row,
                                      .window = s->window,
                                      .scale = 1.0f / sqrtf((float)s->d),
                                      .dtype = dtype};
    struct tern_dptr *places[4 + RESULTS] = {&a->q,   &a->k,  &a->v,  &a->dout, &a->out,
                                             &a->lse, &a->dq, &a->dk, &a->dv};
    int64_t counts[4] = {queries, keys, keys, queries};
    for (int i = 0; i < 4 + RESULTS; i++) {
        enum tern_dtype kind = places[i] == &a->lse ? TERN_F32 : dtype;
        int64_t count = i < 4 ? counts[i] : t.elements[i - 4];
        t.blocks[i] = make(count, kind, shift, i < 4 ? i + 1 : 0);
        *places[i] = tern_dptr_at(t.blocks[i], shift, kind);
    }
    return t;
}

static void free_tensors(struct tensors *t)
{
    for (int i = 0; i < 4 + RESULTS; i++) {
        tern_free(tern_cpu_ptr(t->blocks[i]));
    }
}

static struct tern_dptr result(const struct tensors *t, int i)
{
    const struct tern_attention_args *a = &t->args;
    struct tern_dptr places[RESULTS] = {a->out, a->lse, a->dq, a->dk, a->dv};
    return places[i];
}

static enum tern_dtype result_dtype(const struct tensors *t, int i)
{
    return i == 1 ? TERN_F32 : t->args.dtype;
}

static double get(struct tern_dptr p, enum tern_dtype dtype, int64_t i)
{
    const void *at = tern_cpu_ptr(p);
    return dtype == TERN_BF16 ? tern_bf16_to_f32(((const tern_bf16 *)at)[i])
                              : ((const float *)at)[i];
}

static void attend(struct tern_device *device, struct tensors *t)
{
    if (tern_op_attention_fwd(device, &t->args) != TERN_OK ||
        tern_op_attention_bwd(device, &t->args) != TERN_OK) {
        fail_msg("%s", tern_detail());
    }
}

/* Relative Frobenius distance; padding between rows must be as it was in both. */
static void assert_close(const struct tensors *got, const struct tensors *want, const char *what)
{
    static const char *const names[RESULTS] = {"out", "lse", "dq", "dk", "dv"};
    for (int i = 0; i < RESULTS; i++) {
        enum tern_dtype dtype = result_dtype(got, i);
        double off = 0, size = 0;
        for (int64_t j = 0; j < got->elements[i]; j++) {
            double x = get(result(got, i), dtype, j), y = get(result(want, i), dtype, j);
            if (isnan(x) != isnan(y)) {
                fail_msg("%s: %s[%lld] is %g, reference %g", what, names[i], (long long)j, x, y);
            }
            off += isnan(x) ? 0 : (x - y) * (x - y);
            size += isnan(x) ? 0 : y * y;
        }
        /* Storage rounds both once; fp32 sums wander with the square root of their terms: keys for
         * out and dq, the group's queries for dk and dv. */
        const struct tern_attention_args *a = &got->args;
        double terms = (double)(a->tkv + a->h / a->kv_heads * a->tq);
        double bound = tern_dtype_epsilon(TERN_F32) * sqrt(terms + 64.0);
        bound += dtype == TERN_BF16 ? tern_dtype_epsilon(TERN_BF16) : 0;
        if (!(sqrt(off) <= bound * sqrt(size))) {
            fail_msg("%s: %s is off by %g of its size, bound %g, seed %d", what, names[i],
                     sqrt(off / size), bound, SEED);
        }
    }
}

static void assert_same(const struct tensors *x, const struct tensors *y, const char *what)
{
    for (int i = 0; i < RESULTS; i++) {
        size_t bytes = (size_t)x->elements[i] * tern_dtype_bytes(result_dtype(x, i));
        if (memcmp(tern_cpu_ptr(result(x, i)), tern_cpu_ptr(result(y, i)), bytes) != 0) {
            fail_msg("%s: result %d has other bits", what, i);
        }
    }
}

static struct tern_device *open_device(int threads, enum tern_cpu_level level)
{
    struct tern_device *device = NULL;
    assert_int_equal(tern_cpu_open(threads, &device), TERN_OK);
    tern_cpu_device_of(device)->level = level;
    struct tern_op_limits limits = {.rows = 4096,
                                    .sequence = 4096,
                                    .width = 4096,
                                    .heads = 512,
                                    .kv_heads = 16,
                                    .head_width = 128,
                                    .batch = 8,
                                    .vocab = 1024};
    size_t bytes = 0;
    assert_int_equal(tern_device_prepare(device, &limits, &bytes), TERN_OK);
    return device;
}

static const enum tern_cpu_level g_levels[] = {TERN_CPU_GENERIC, TERN_CPU_AVX2, TERN_CPU_AVX512};

/* Each row is there for a decision: whole heads or split (B*K against threads), runs of positions,
 * decode with one and with several splits of the keys, uneven groups, windows across blocks. */
static const struct shape g_shapes[] = {
    {2, 200, 200, 6, 3, 40, 0}, {1, 150, 333, 2, 1, 33, 0}, {1, 130, 130, 5, 5, 64, 70},
    {1, 1, 1700, 4, 2, 64, 0},  {2, 3, 1100, 2, 1, 80, 0},  {1, 2, 1300, 4, 1, 16, 600},
    {1, 33, 40, 300, 1, 4, 0},  {8, 20, 20, 2, 2, 8, 0},
};

static void attention_of(const struct shape *s, enum tern_dtype dtype)
{
    static const int threads[] = {1, 2, 5, 16};
    struct tern_device *ref = NULL;
    assert_int_equal(tern_device_open("ref", 1, &ref), TERN_OK);
    struct tensors want = make_tensors(s, dtype, 0);
    attend(ref, &want);
    for (size_t l = 0; l < sizeof g_levels / sizeof g_levels[0]; l++) {
        struct tensors first;
        for (size_t i = 0; g_levels[l] <= tern_cpu_level_found() && i < 4; i++) {
            char what[128];
            (void)snprintf(what, sizeof what,
                           "b%lld tq%lld tkv%lld h%lld d%lld, %s, %s, %d threads", (long long)s->b,
                           (long long)s->tq, (long long)s->tkv, (long long)s->h, (long long)s->d,
                           tern_dtype_name(dtype), tern_cpu_level_name(g_levels[l]), threads[i]);
            struct tern_device *device = open_device(threads[i], g_levels[l]);
            struct tensors got = make_tensors(s, dtype, (int64_t)i); /* alignment differs too */
            attend(device, &got);
            tern_device_close(device);
            if (i == 0) {
                first = got;
                assert_close(&got, &want, what);
            } else {
                assert_same(&got, &first, what);
                free_tensors(&got);
            }
        }
        if (g_levels[l] <= tern_cpu_level_found()) {
            free_tensors(&first);
        }
    }
    free_tensors(&want);
    tern_device_close(ref);
}

static void test_attention_choices(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof g_shapes / sizeof g_shapes[0]; i++) {
        attention_of(&g_shapes[i], TERN_F32);
        attention_of(&g_shapes[i], TERN_BF16);
    }
}

/* Past a length a thread no longer keeps whole heads; what prepare asks for covers both sides. */
static void test_attention_long(void **state)
{
    (void)state;
    /* 2 * 8256 * 128 floats is more than a thread may keep, 2 * 8128 * 128 is not. */
    size_t most = tern_cpu_attention_bwd_scratch(8128, 128);
    assert_true(tern_cpu_attention_bwd_scratch(8256, 128) < most);
    assert_true(tern_cpu_attention_bwd_scratch(1 << 20, 128) < most);
    struct tern_op_limits limits = {.sequence = 1 << 20, .head_width = 128};
    size_t shared, scratch;
    tern_cpu_ops_needs(&limits, 1, &shared, &scratch);
    /* Prepared for a long sequence, a device still runs every shorter one. */
    for (int64_t t = 1; t <= 1 << 20; t = t * 5 / 4 + 1) {
        assert_true(tern_cpu_attention_bwd_scratch(t, 128) <= scratch);
    }
}

/* More blocks than partial sums of a round, empty ones, and one of several pieces. */
static void test_sumsq_rounds(void **state)
{
    (void)state;
    enum {
        BLOCKS = TERN_CPU_SUMSQ_PIECES + 905,
        LARGE = 2 * TERN_CPU_SUMSQ_ELEMENTS + 77
    };
    int64_t *starts = tern_alloc("test", (BLOCKS + 1) * sizeof *starts);
    double *sums = tern_alloc("test", BLOCKS * sizeof *sums);
    assert_non_null(starts);
    assert_non_null(sums);
    starts[0] = 5;
    for (int64_t i = 0; i < BLOCKS; i++) {
        starts[i + 1] = starts[i] + (i == BLOCKS - 3 || i == 7 ? LARGE : i % 11);
    }
    struct tern_dptr x = make(starts[BLOCKS], TERN_F32, 0, 1);
    struct tern_sumsq_args args = {.x = x,
                                   .starts = {(uint64_t)(uintptr_t)starts},
                                   .sums = {(uint64_t)(uintptr_t)sums},
                                   .blocks = BLOCKS};
    for (size_t l = 0; l < sizeof g_levels / sizeof g_levels[0]; l++) {
        if (g_levels[l] > tern_cpu_level_found()) {
            continue;
        }
        struct tern_device *device = open_device(3, g_levels[l]);
        assert_int_equal(tern_op_sumsq(device, &args), TERN_OK);
        tern_device_close(device);
        for (int64_t i = 0; i < BLOCKS; i++) {
            double want = 0;
            for (int64_t j = starts[i]; j < starts[i + 1]; j++) {
                double v = get(x, TERN_F32, j);
                want += v * v;
            }
            double terms = (double)(starts[i + 1] - starts[i]);
            if (!(fabs(sums[i] - want) <= terms * tern_dtype_epsilon(TERN_F64) * want)) {
                fail_msg("block %lld: %.17g, expected %.17g", (long long)i, sums[i], want);
            }
        }
    }
    tern_free(tern_cpu_ptr(x));
    tern_free(starts);
    tern_free(sums);
}

static void test_refuses_larger_than_prepared(void **state)
{
    (void)state;
    struct tern_device *device = NULL;
    assert_int_equal(tern_cpu_open(1, &device), TERN_OK);
    struct shape s = {1, 64, 64, 4, 4, 128, 0};
    struct tensors t = make_tensors(&s, TERN_F32, 0);
    struct tern_cpu_device *cpu = tern_cpu_device_of(device);
    size_t had = cpu->scratch_bytes;
    cpu->scratch_bytes = 64;
    assert_int_equal(tern_op_attention_fwd(device, &t.args), TERN_ERR_ARGUMENT);
    assert_non_null(strstr(tern_detail(), "tern_device_prepare"));
    cpu->scratch_bytes = had;
    free_tensors(&t);
    tern_device_close(device);
}

static int no_leaks(void **state)
{
    (void)state;
    assert_int_equal(tern_mem_stats().live_blocks, 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_attention_choices, no_leaks),
        cmocka_unit_test_teardown(test_attention_long, no_leaks),
        cmocka_unit_test_teardown(test_sumsq_rounds, no_leaks),
        cmocka_unit_test_teardown(test_refuses_larger_than_prepared, no_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
