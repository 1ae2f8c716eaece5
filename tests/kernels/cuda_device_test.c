/* cuda_device_test.c - queues of the CUDA backend on the simulated CUDA: edges between them, uploads through the ring of
 * pinned blocks, downloads, cleared memory, graphs. The simulator ends the process where an edge is missing, and with
 * another exit code where something is not given back. */
#include "kernels/open.h"
#include "runtime/base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h> /* needs the three above */
/* clang-format on */

enum {
    N = 5000, /* elements of a small vector */
    LONG_BYTES =
        (10 << 20) + 12, /* of an upload that needs every block of the ring more than once */
    THREADS = 4,
    ROUNDS = 12,
};

static struct tern_device *g_device;
static const struct tern_device_table *g_table;

static void require(tern_status status)
{
    if (status != TERN_OK) {
        fail_msg("%s", tern_detail());
    }
}

static struct tern_dptr take(size_t bytes)
{
    struct tern_dptr p;
    require(g_table->alloc(g_device, "test", bytes, &p));
    return p;
}

/* y = a + b, f32 (N) */
static void add(struct tern_device *device,
                struct tern_dptr a,
                struct tern_dptr b,
                struct tern_dptr y)
{
    require(tern_op_add(
        device, &(struct tern_add_args){.a = a, .b = b, .y = y, .n = N, .dtype = TERN_F32}));
}

static void expect_all(const float *x, float value)
{
    for (int i = 0; i < N; i++) {
        if (x[i] != value) {
            fail_msg("element %d is %g, expected %g", i, (double)x[i], (double)value);
        }
    }
}

/* One vector that two queues write in turn: `after` orders the second behind the first, both ways. */
static void test_edges(void **state)
{
    (void)state;
    float x[N];
    struct tern_device *other;
    require(g_table->queue(g_device, "other", &other));
    struct tern_dptr sum = take(sizeof x);
    struct tern_dptr one = take(sizeof x);
    for (int i = 0; i < N; i++) {
        x[i] = 1;
    }
    require(g_table->upload(g_device, one, x, sizeof x));
    for (int i = 0; i < ROUNDS; i++) {
        add(g_device, sum, one, sum);
        require(g_table->after(other, g_device));
        add(other, sum, one, sum);
        require(g_table->after(g_device, other));
    }
    require(g_table->download(g_device, x, sum, sizeof x));
    expect_all(x, 2 * ROUNDS);
    g_table->free(g_device, sum);
    g_table->free(g_device, one);
    g_table->close(other);
}

/* A block is cleared for whichever queue uses it first. */
static void test_cleared(void **state)
{
    (void)state;
    float x[N];
    struct tern_device *other;
    require(g_table->queue(g_device, "other", &other));
    struct tern_dptr p = take(sizeof x);
    add(other, p, p, p);
    require(g_table->download(other, x, p, sizeof x));
    expect_all(x, 0);
    g_table->free(g_device, p);
    g_table->close(other);
}

static unsigned char pattern(size_t i, unsigned seed)
{
    return (unsigned char)(i * 7 + i / 4093 + (size_t)seed * 31);
}

static void expect_pattern(const unsigned char *x, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) {
        if (x[i] != pattern(i, seed)) {
            fail_msg("byte %zu of %zu is %d, expected %d", i, bytes, x[i], pattern(i, seed));
        }
    }
}

/* The source may be changed as soon as upload returns; a vector longer than the ring arrives whole. */
static void test_long_upload(void **state)
{
    (void)state;
    unsigned char *host = tern_alloc("test", LONG_BYTES);
    assert_non_null(host);
    struct tern_dptr p = take(LONG_BYTES);
    for (unsigned seed = 0; seed < 2; seed++) {
        for (size_t i = 0; i < LONG_BYTES; i++) {
            host[i] = pattern(i, seed);
        }
        require(g_table->upload(g_device, p, host, LONG_BYTES));
        memset(host, 0xee, LONG_BYTES);
        require(g_table->download(g_device, host, p, LONG_BYTES));
        expect_pattern(host, LONG_BYTES, seed);
    }
    g_table->free(g_device, p);
    tern_free(host);
}

struct uploader {
    pthread_t thread;
    unsigned seed;
    struct tern_dptr to[ROUNDS];
    tern_status status;
};

enum {
    UPLOAD_BYTES = 200000
};

static void *upload_many(void *arg)
{
    struct uploader *it = arg;
    unsigned char *host = malloc(UPLOAD_BYTES);
    for (int k = 0; k < ROUNDS && host != NULL && it->status == TERN_OK; k++) {
        for (size_t i = 0; i < UPLOAD_BYTES; i++) {
            host[i] = pattern(i, it->seed + (unsigned)k);
        }
        it->status = g_table->upload(g_device, it->to[k], host, UPLOAD_BYTES);
    }
    free(host);
    return NULL;
}

/* Initial weights come from several threads at once. */
static void test_many_uploads(void **state)
{
    (void)state;
    static struct uploader uploaders[THREADS];
    static unsigned char host[UPLOAD_BYTES];
    for (unsigned i = 0; i < THREADS; i++) {
        uploaders[i] = (struct uploader){.seed = 100 * i};
        for (int k = 0; k < ROUNDS; k++) {
            uploaders[i].to[k] = take(UPLOAD_BYTES);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&uploaders[i].thread, NULL, upload_many, &uploaders[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(uploaders[i].thread, NULL);
        assert_int_equal(uploaders[i].status, TERN_OK);
    }
    for (int i = 0; i < THREADS; i++) {
        for (int k = 0; k < ROUNDS; k++) {
            require(g_table->download(g_device, host, uploaders[i].to[k], sizeof host));
            expect_pattern(host, sizeof host, uploaders[i].seed + (unsigned)k);
            g_table->free(g_device, uploaders[i].to[k]);
        }
    }
}

/* Pinned blocks: what comes and goes without waiting is there after sync. */
static void test_begun_copies(void **state)
{
    (void)state;
    float *from = g_table->pin(g_device, "test", N * sizeof *from);
    float *to = g_table->pin(g_device, "test", N * sizeof *to);
    assert_true(from != NULL && to != NULL);
    expect_all(to, 0);
    struct tern_dptr p = take(N * sizeof *from);
    for (int k = 1; k <= ROUNDS; k++) {
        for (int i = 0; i < N; i++) {
            from[i] = (float)k;
        }
        require(g_table->upload_begin(g_device, p, from, N * sizeof *from));
        add(g_device, p, p, p);
        require(g_table->download_begin(g_device, to, p, N * sizeof *to));
        require(g_table->sync(g_device));
        expect_all(to, (float)(2 * k));
        add(g_device, p, p, p);
        require(
            g_table->download(g_device, to, p, N * sizeof *to)); /* waits for pinned memory, too */
        expect_all(to, (float)(4 * k));
    }
    g_table->free(g_device, p);
    g_table->unpin(g_device, from);
    g_table->unpin(g_device, to);
}

/* A copy to itself is none; one inside the device keeps its order. */
static void test_copies(void **state)
{
    (void)state;
    float x[N];
    struct tern_dptr a = take(sizeof x);
    struct tern_dptr b = take(sizeof x);
    for (int i = 0; i < N; i++) {
        x[i] = 3;
    }
    require(g_table->upload(g_device, a, x, sizeof x));
    require(g_table->copy(g_device, a, a, sizeof x));
    require(g_table->copy(g_device, b, a, sizeof x));
    require(g_table->zero(g_device, a, sizeof x));
    add(g_device, a, b, a);
    require(g_table->download(g_device, x, a, sizeof x));
    expect_all(x, 3);
    g_table->free(g_device, a);
    g_table->free(g_device, b);
}

/* Recording runs nothing; each replay runs all of it, in the queue's order. */
static void test_graph(void **state)
{
    (void)state;
    float x[N];
    void *graph = NULL;
    struct tern_dptr sum = take(sizeof x);
    struct tern_dptr one = take(sizeof x);
    for (int i = 0; i < N; i++) {
        x[i] = 1;
    }
    require(g_table->upload(g_device, one, x, sizeof x));
    require(g_table->record_begin(g_device));
    add(g_device, sum, one, sum);
    add(g_device, sum, one, sum);
    require(g_table->record_end(g_device, &graph));
    require(g_table->download(g_device, x, sum, sizeof x));
    expect_all(x, 0);
    for (int k = 0; k < ROUNDS; k++) {
        require(g_table->replay(g_device, graph));
        add(g_device, sum, one, sum);
    }
    require(g_table->download(g_device, x, sum, sizeof x));
    expect_all(x, 3 * ROUNDS);
    g_table->forget(g_device, graph);
    g_table->free(g_device, sum);
    g_table->free(g_device, one);
}

/* d (16, 16) = a (16, k) b (k, 16), a shape that was not seen before. */
static void multiply(int64_t k)
{
    struct tern_dptr p = take((size_t)(16 * k) * sizeof(float));
    struct tern_dptr d = take(16 * 16 * sizeof(float));
    require(tern_op_gemm(g_device, &(struct tern_gemm_args){.m = 16,
                                                            .n = 16,
                                                            .k = k,
                                                            .a = p,
                                                            .b = p,
                                                            .d = d,
                                                            .lda = k,
                                                            .ldb = 16,
                                                            .ldd = 16,
                                                            .a_dtype = TERN_F32,
                                                            .b_dtype = TERN_F32,
                                                            .d_dtype = TERN_F32,
                                                            .compute = TERN_F32}));
    require(g_table->sync(g_device));
    g_table->free(g_device, p);
    g_table->free(g_device, d);
}

/* While recording no new shape may come; afterwards it may. */
static void test_after_graph(void **state)
{
    (void)state;
    void *graph = NULL;
    multiply(16);
    require(g_table->record_begin(g_device));
    require(g_table->record_end(g_device, &graph));
    multiply(24);
    g_table->forget(g_device, graph);
}

static int open_device(void **state)
{
    (void)state;
    const struct tern_op_limits limits = {.rows = 64, .width = 64};
    size_t bytes;
    if (tern_device_open("cuda", 1, &g_device) != TERN_OK ||
        tern_device_prepare(g_device, &limits, &bytes) != TERN_OK) {
        print_error("%s\n", tern_detail());
        return -1;
    }
    g_table = g_device->ops->device;
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    tern_device_close(g_device);
    int64_t live = tern_mem_stats().live_blocks;
    if (live != 0) {
        print_error("%lld blocks are still allocated\n", (long long)live);
    }
    return live == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),        cmocka_unit_test(test_cleared),
        cmocka_unit_test(test_long_upload),  cmocka_unit_test(test_many_uploads),
        cmocka_unit_test(test_begun_copies), cmocka_unit_test(test_copies),
        cmocka_unit_test(test_graph),        cmocka_unit_test(test_after_graph),
    };
    return cmocka_run_group_tests_name("kernels_cuda_device", tests, open_device, close_device);
}
