/* cuda_ops_test.c - what the case table cannot ask of the CUDA kernels: ids that the host cannot see, masked logits, sums
 * whose order the addresses have no part in, and a device that was not prepared. */
#include "kernels/open.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h> /* needs the three above */
/* clang-format on */

enum {
    N = 70, /* rows: more than a chunk of the sorted ones */
    C = 12,
    V = 5
};

static const uint64_t SEED = 7;
static struct tern_device *g_cuda, *g_ref;

static struct tern_dptr put(const void *from, size_t bytes)
{
    struct tern_dptr p;
    assert_int_equal(g_cuda->ops->device->alloc(g_cuda, "test", bytes, &p), TERN_OK);
    assert_int_equal(g_cuda->ops->device->upload(g_cuda, p, from, bytes), TERN_OK);
    return p;
}

static void take(struct tern_dptr p, void *to, size_t bytes)
{
    assert_int_equal(g_cuda->ops->device->sync(g_cuda), TERN_OK);
    assert_int_equal(g_cuda->ops->device->download(g_cuda, to, p, bytes), TERN_OK);
}

static void drop(struct tern_dptr p)
{
    g_cuda->ops->device->free(g_cuda, p);
}

static float normal(uint64_t stream, int64_t i)
{
    uint64_t id = tern_random_stream_id(TERN_STREAM_TEST, (uint32_t)stream);
    return (float)tern_random_normal(SEED, id, (uint64_t)i);
}

static void prepare(int64_t rows, int64_t width)
{
    size_t bytes;
    struct tern_op_limits limits = {.rows = rows, .width = width};
    assert_int_equal(tern_device_prepare(g_cuda, &limits, &bytes), TERN_OK);
}

/* Every third row has an id that no table has. */
static void fill_ids(int32_t ids[N])
{
    static const int32_t bad[] = {-1, V, INT32_MAX, INT32_MIN};
    for (int i = 0; i < N; i++) {
        ids[i] = i % 3 == 1 ? bad[i % 4] : i % V;
    }
}

static void test_bad_ids_forward(void **state)
{
    (void)state;
    int32_t ids[N];
    float wte[V * C], out[N * C];
    fill_ids(ids);
    for (int i = 0; i < V * C; i++) {
        wte[i] = normal(1, i);
    }
    struct tern_embed_fwd_args args = {.ids = put(ids, sizeof ids),
                                       .wte = put(wte, sizeof wte),
                                       .out = put(out, sizeof out),
                                       .n = N,
                                       .t = N,
                                       .c = C,
                                       .v = V};
    assert_int_equal(tern_op_embed_fwd(g_cuda, &args), TERN_OK);
    take(args.out, out, sizeof out);
    for (int i = 0; i < N * C; i++) {
        int32_t id = ids[i / C];
        if (id < 0 || id >= V) {
            assert_true(isnan(out[i]));
        } else {
            assert_true(out[i] == wte[id * C + i % C]);
        }
    }
    drop(args.ids);
    drop(args.wte);
    drop(args.out);
}

/* Rows of such ids are left out; the gradients of the others are as without them. */
static void test_bad_ids_backward(void **state)
{
    (void)state;
    int32_t ids[N];
    float dout[N * C], dwte[V * C] = {0};
    double want[V * C] = {0};
    fill_ids(ids);
    for (int i = 0; i < N * C; i++) {
        dout[i] = normal(2, i);
        if (ids[i / C] >= 0 && ids[i / C] < V) {
            want[ids[i / C] * C + i % C] += (double)dout[i];
        }
    }
    prepare(N, C);
    struct tern_embed_bwd_args args = {.ids = put(ids, sizeof ids),
                                       .dout = put(dout, sizeof dout),
                                       .dwte = put(dwte, sizeof dwte),
                                       .n = N,
                                       .t = N,
                                       .c = C,
                                       .v = V};
    assert_int_equal(tern_op_embed_bwd(g_cuda, &args), TERN_OK);
    take(args.dwte, dwte, sizeof dwte);
    for (int i = 0; i < V * C; i++) {
        /* at most N terms near 1, each added with an error of half an epsilon of a sum below N */
        assert_true(fabs((double)dwte[i] - want[i]) <= N * 0x1p-24 * N);
    }
    drop(args.ids);
    drop(args.dout);
    drop(args.dwte);
}

/* Logits of -inf are impossible, wherever they lie in the row: the rest is a softmax of its own. */
static void test_masked_logits(void **state)
{
    (void)state;
    enum {
        WIDTH = 603
    };
    static float logits[2][WIDTH], gradient[2][WIDTH];
    int32_t targets[2] = {WIDTH - 1, 300};
    float nll[2];
    for (int i = 0; i < WIDTH; i++) {
        logits[0][i] = i < 500 ? -INFINITY : normal(3, i);
        logits[1][i] = i % 3 != 0 ? -INFINITY : normal(4, i);
    }
    struct tern_cross_entropy_args args = {.logits = put(logits, sizeof logits),
                                           .targets = put(targets, sizeof targets),
                                           .nll = put(nll, sizeof nll),
                                           .rows = 2,
                                           .v = WIDTH,
                                           .ld = WIDTH,
                                           .backward = true};
    assert_int_equal(tern_op_cross_entropy(g_cuda, &args), TERN_OK);
    take(args.nll, nll, sizeof nll);
    take(args.logits, gradient, sizeof gradient);
    for (int row = 0; row < 2; row++) {
        double total = 0;
        for (int i = 0; i < WIDTH; i++) {
            total += exp((double)logits[row][i]);
        }
        double loss = log(total) - (double)logits[row][targets[row]];
        assert_true(fabs((double)nll[row] - loss) <= 1e-5); /* false of a NaN */
        for (int i = 0; i < WIDTH; i++) {
            double p = exp((double)logits[row][i]) / total;
            double want = i == targets[row] ? p - 1 : p;
            assert_true(fabs((double)gradient[row][i] - want) <= 1e-6);
        }
    }
    drop(args.logits);
    drop(args.targets);
    drop(args.nll);
}

/* Sums of squares that decide about a clip must not depend on where a rank keeps the block. */
static void test_sumsq_of_shifted(void **state)
{
    (void)state;
    enum {
        COUNT = 9001
    };
    static float x[4 + COUNT];
    double sums[4];
    for (int shift = 0; shift < 4; shift++) {
        for (int i = 0; i < COUNT; i++) {
            x[shift + i] = normal(5, i);
        }
        int64_t starts[2] = {shift, shift + COUNT};
        struct tern_sumsq_args args = {.x = put(x, sizeof x),
                                       .starts = put(starts, sizeof starts),
                                       .sums = put(&sums[shift], sizeof sums[shift]),
                                       .blocks = 1};
        assert_int_equal(tern_op_sumsq(g_cuda, &args), TERN_OK);
        take(args.sums, &sums[shift], sizeof sums[shift]);
        assert_memory_equal(&sums[shift], &sums[0], sizeof sums[0]);
        drop(args.x);
        drop(args.starts);
        drop(args.sums);
    }
    assert_true(sums[0] > COUNT / 2 && sums[0] < 2 * COUNT);
}

/* The numbers of a step are the same bits on every backend, whatever is added to whatever, and a bad one skips it. */
static void test_clip_as_host(void **state)
{
    (void)state;
    enum {
        BLOCKS = 5003, /* several tiles */
        LOSSES = 9
    };
    static double values[BLOCKS + LOSSES];
    static int64_t order[BLOCKS + LOSSES];
    for (int i = 0; i < BLOCKS + LOSSES; i++) {
        values[i] = exp((double)normal(6, i) * 9); /* hardly a sum that is exact */
        order[i] = (i * 11 + 3) % (BLOCKS + LOSSES); /* each once: no common factor */
    }
    for (int bad = 0; bad < 3; bad++) {
        values[order[17]] = bad == 1 ? NAN : 1;
        values[order[BLOCKS + LOSSES - 1]] = bad == 2 ? INFINITY : 1;
        double total[2] = {0};
        float scale[2] = {0};
        struct tern_clip_args args = {
            .n = BLOCKS + LOSSES, .blocks = BLOCKS, .losses = LOSSES, .count = 77, .max_norm = 3};
        struct tern_clip_args host = args;
        host.values.addr = (uint64_t)(uintptr_t)values;
        host.order.addr = (uint64_t)(uintptr_t)order;
        host.total.addr = (uint64_t)(uintptr_t)&total[0];
        host.scale.addr = (uint64_t)(uintptr_t)&scale[0];
        assert_int_equal(tern_op_clip(g_ref, &host), TERN_OK);
        args.values = put(values, sizeof values);
        args.order = put(order, sizeof order);
        args.total = put(&total[1], sizeof total[1]);
        args.scale = put(&scale[1], sizeof scale[1]);
        assert_int_equal(tern_op_clip(g_cuda, &args), TERN_OK);
        take(args.total, &total[1], sizeof total[1]);
        take(args.scale, &scale[1], sizeof scale[1]);
        assert_true(bad == 1 || memcmp(&total[0], &total[1], sizeof total[0]) == 0);
        assert_true(bad != 0 ? isnan(scale[0]) && isnan(scale[1])
                             : memcmp(&scale[0], &scale[1], sizeof scale[0]) == 0);
        drop(args.values);
        drop(args.order);
        drop(args.total);
        drop(args.scale);
    }
}

static void test_adamw_skips(void **state)
{
    (void)state;
    float weight[N], other[N], scale = NAN;
    for (int i = 0; i < N; i++) {
        weight[i] = normal(8, i);
    }
    struct tern_adamw_args args = {.weight = put(weight, sizeof weight),
                                   .grad = put(weight, sizeof weight),
                                   .exp_avg = put(weight, sizeof weight),
                                   .exp_avg_sq = put(weight, sizeof weight),
                                   .copy = put(weight, sizeof weight),
                                   .grad_scale = put(&scale, sizeof scale),
                                   .n = N,
                                   .lr = 1,
                                   .bias1 = 1,
                                   .bias2 = 1};
    const struct tern_dptr written[] = {args.weight, args.exp_avg, args.exp_avg_sq, args.copy};
    assert_int_equal(tern_op_adamw(g_cuda, &args), TERN_OK);
    for (int i = 0; i < 4; i++) {
        take(written[i], other, sizeof other);
        assert_memory_equal(weight, other, sizeof weight);
        drop(written[i]);
    }
    drop(args.grad);
    drop(args.grad_scale);
}

static void test_bias_of_shifted(void **state)
{
    (void)state;
    enum {
        ROWS = 130,
        COLUMNS = 24
    };
    static float dy[ROWS * (COLUMNS + 1)];
    float dbias[2][COLUMNS];
    for (int pad = 0; pad < 2; pad++) { /* rows that wide accesses fit, and that they do not */
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            dy[i / COLUMNS * (COLUMNS + pad) + i % COLUMNS] = normal(6, i);
        }
        prepare(ROWS, COLUMNS);
        struct tern_bias_bwd_args args = {.dy = put(dy, sizeof dy),
                                          .dbias = put(dbias[pad], sizeof dbias[pad]),
                                          .rows = ROWS,
                                          .n = COLUMNS,
                                          .ldy = COLUMNS + pad};
        assert_int_equal(tern_op_bias_bwd(g_cuda, &args), TERN_OK);
        take(args.dbias, dbias[pad], sizeof dbias[pad]);
        drop(args.dy);
        drop(args.dbias);
    }
    assert_memory_equal(dbias[1], dbias[0], sizeof dbias[0]);
    assert_true(dbias[0][0] != dbias[0][1]);
}

/* A shape that nobody announced is refused in words, before anything is enqueued. */
static void test_unprepared(void **state)
{
    (void)state;
    enum {
        ROWS = 1 << 20
    };
    struct tern_device *fresh;
    int32_t none[1] = {0};
    struct tern_dptr p = put(none, sizeof none);
    assert_int_equal(tern_device_open("cuda", 1, &fresh), TERN_OK);
    struct tern_embed_bwd_args args = {.ids = p,
                                       .dout = {p.addr + (1ull << 40)},
                                       .dwte = {p.addr + (2ull << 40)},
                                       .n = ROWS,
                                       .t = ROWS,
                                       .c = C,
                                       .v = V};
    assert_int_equal(tern_op_embed_bwd(fresh, &args), TERN_ERR_ARGUMENT);
    assert_non_null(strstr(tern_detail(), "embed_bwd"));
    assert_non_null(strstr(tern_detail(), "tern_device_prepare"));
    tern_device_close(fresh);
    drop(p);
}

static int open_all(void **state)
{
    (void)state;
    return tern_device_open("cuda", 1, &g_cuda) == TERN_OK &&
                   tern_device_open("ref", 1, &g_ref) == TERN_OK
               ? 0
               : -1;
}

static int close_all(void **state)
{
    (void)state;
    tern_device_close(g_ref);
    tern_device_close(g_cuda);
    return tern_mem_stats().live_blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_ids_forward), cmocka_unit_test(test_bad_ids_backward),
        cmocka_unit_test(test_masked_logits),   cmocka_unit_test(test_sumsq_of_shifted),
        cmocka_unit_test(test_bias_of_shifted), cmocka_unit_test(test_clip_as_host),
        cmocka_unit_test(test_adamw_skips),     cmocka_unit_test(test_unprepared),
    };
    return cmocka_run_group_tests_name("kernels_cuda_ops", tests, open_all, close_all);
}
