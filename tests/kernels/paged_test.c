/* paged_test.c - attention over paged keys and values gives a row the same bits however its sequence was cut into calls,
 * wherever its blocks lie, whoever else is there, with any number of threads. */
#include "kernels/open.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "tests/base/check.h"
#include "tests/kernels/runners.h"

#include <stdio.h>
#include <string.h>

enum {
    H = 6,
    K = 2,
    SEQUENCES = 16,
    LENGTH_MAX = 700,
    BLOCKS = SEQUENCES * (LENGTH_MAX / TERN_KV_BLOCK + 1) + 5,
    TABLE = LENGTH_MAX / TERN_KV_BLOCK + 1
};

static const uint64_t SEED = 77;

/* Rows of q, k and v are a function of the sequence and the position. */
struct world {
    int64_t d;
    enum tern_dtype dtype, kv_dtype;
    int64_t window;
    float softcap;
};

/* A pool and everything of a call on one device; host memory. */
struct paged {
    struct tern_device *device;
    const struct world *world;
    struct tern_dptr pool;
    float *q, *k, *v, *out;
    int32_t tables[SEQUENCES * TABLE], slots[SEQUENCES * LENGTH_MAX];
    int32_t row_starts[SEQUENCES + 1], lengths[SEQUENCES];
    int64_t done[SEQUENCES]; /* tokens in the pool */
};

static struct tern_dptr dptr(const void *p)
{
    return (struct tern_dptr){(uint64_t)(uintptr_t)p};
}

static void fill(float *row, int64_t width, int what, int64_t s, int64_t position)
{
    for (int64_t i = 0; i < width; i++) {
        uint64_t index = (uint64_t)((s * LENGTH_MAX + position) * 4096 + i);
        row[i] = (float)tern_random_normal(
            SEED, tern_random_stream_id(TERN_STREAM_TEST, (uint32_t)what), index);
    }
}

/* Block i of sequence s: their order is turned by `shuffle`, which has no factor in common with their number. */
static int32_t block_of(int64_t s, int64_t i, int64_t shuffle)
{
    return (int32_t)((s * TABLE + i) * shuffle % BLOCKS);
}

static struct paged *paged_open(struct tern_device *device,
                                const struct world *world,
                                int64_t shuffle)
{
    struct paged *p = tern_alloc_zero("test", 1, sizeof *p);
    size_t row = (size_t)(H * world->d) * sizeof(float);
    assert_non_null(p);
    p->device = device;
    p->world = world;
    p->q = tern_alloc("test", SEQUENCES * LENGTH_MAX * row);
    p->k = tern_alloc("test", SEQUENCES * LENGTH_MAX * row);
    p->v = tern_alloc("test", SEQUENCES * LENGTH_MAX * row);
    p->out = tern_alloc("test", SEQUENCES * LENGTH_MAX * row);
    assert_true(p->q != NULL && p->k != NULL && p->v != NULL && p->out != NULL);
    size_t bytes = tern_kv_block_bytes(device, K, world->d, world->kv_dtype);
    assert_int_equal(device->ops->device->alloc(device, "test", BLOCKS * bytes, &p->pool), TERN_OK);
    memset(device->ops->device->host_view(device, p->pool), 0xff, BLOCKS * bytes); /* no numbers */
    for (int64_t i = 0; i < SEQUENCES * TABLE; i++) {
        p->tables[i] = block_of(i / TABLE, i % TABLE, shuffle);
    }
    return p;
}

static void paged_close(struct paged *p)
{
    p->device->ops->device->free(p->device, p->pool);
    tern_free(p->q);
    tern_free(p->k);
    tern_free(p->v);
    tern_free(p->out);
    tern_free(p);
}

/* Appends counts[s] tokens to each sequence at once; their rows of out go to answers (s, position, H D). */
static void step(struct paged *p, const int64_t counts[SEQUENCES], float *answers)
{
    const struct world *w = p->world;
    int64_t n = 0, longest = 1, width = H * w->d, kv = K * w->d;
    for (int64_t s = 0; s < SEQUENCES; s++) {
        p->row_starts[s] = (int32_t)n;
        for (int64_t i = 0; i < counts[s]; i++, n++) {
            int64_t at = p->done[s] + i;
            fill(p->q + n * width, width, 1, s, at);
            fill(p->k + n * kv, kv, 2, s, at);
            fill(p->v + n * kv, kv, 3, s, at);
            p->slots[n] = p->tables[s * TABLE + at / TERN_KV_BLOCK] * TERN_KV_BLOCK +
                          (int32_t)(at % TERN_KV_BLOCK);
        }
        p->lengths[s] = (int32_t)(p->done[s] + counts[s]);
        longest = p->lengths[s] > longest ? p->lengths[s] : longest;
    }
    p->row_starts[SEQUENCES] = (int32_t)n;
    const struct tern_op_limits limits = {.rows = SEQUENCES * LENGTH_MAX,
                                          .sequence = LENGTH_MAX,
                                          .width = H * w->d,
                                          .heads = H,
                                          .kv_heads = K,
                                          .head_width = w->d,
                                          .batch = SEQUENCES,
                                          .vocab = 1};
    size_t bytes;
    assert_int_equal(tern_device_prepare(p->device, &limits, &bytes), TERN_OK);
    const struct tern_kv_write_args write = {.k = dptr(p->k),
                                             .v = dptr(p->v),
                                             .slots = dptr(p->slots),
                                             .pool = p->pool,
                                             .n = n,
                                             .kv_heads = K,
                                             .d = w->d,
                                             .k_row = kv,
                                             .v_row = kv,
                                             .blocks = BLOCKS,
                                             .kv_dtype = w->kv_dtype};
    assert_int_equal(tern_op_kv_write(p->device, &write), TERN_OK);
    const struct tern_paged_attention_args attend = {.q = dptr(p->q),
                                                     .out = dptr(p->out),
                                                     .pool = p->pool,
                                                     .row_starts = dptr(p->row_starts),
                                                     .lengths = dptr(p->lengths),
                                                     .tables = dptr(p->tables),
                                                     .n = n,
                                                     .sequences = SEQUENCES,
                                                     .longest = longest,
                                                     .table_row = TABLE,
                                                     .blocks = BLOCKS,
                                                     .h = H,
                                                     .kv_heads = K,
                                                     .d = w->d,
                                                     .q_row = width,
                                                     .out_row = width,
                                                     .window = w->window,
                                                     .scale = 0.125F,
                                                     .softcap = w->softcap,
                                                     .kv_dtype = w->kv_dtype};
    assert_int_equal(tern_op_paged_attention(p->device, &attend), TERN_OK);
    for (int64_t s = 0; s < SEQUENCES; s++) {
        memcpy(answers + (s * LENGTH_MAX + p->done[s]) * width, p->out + p->row_starts[s] * width,
               (size_t)(counts[s] * width) * sizeof *answers);
        p->done[s] += counts[s];
    }
}

/* Sequences [first, end) to their lengths, up to `chunk` tokens of each a call. */
static void grow(struct paged *p,
                 const int64_t lengths[SEQUENCES],
                 int64_t first,
                 int64_t end,
                 int64_t chunk,
                 float *answers)
{
    for (bool is_done = false; !is_done;) {
        int64_t counts[SEQUENCES] = {0};
        is_done = true;
        for (int64_t s = first; s < end; s++) {
            int64_t left = lengths[s] - p->done[s];
            counts[s] = left < chunk ? left : chunk;
            is_done = is_done && counts[s] == 0;
        }
        if (!is_done) {
            step(p, counts, answers);
        }
    }
}

static float *answers_of(struct tern_device *device,
                         const struct world *world,
                         const int64_t lengths[SEQUENCES],
                         int64_t shuffle,
                         int64_t chunk,
                         bool is_alone)
{
    struct paged *p = paged_open(device, world, shuffle);
    size_t count = (size_t)(SEQUENCES * LENGTH_MAX * H * world->d);
    float *answers = tern_alloc_zero("test", count, sizeof *answers);
    assert_non_null(answers);
    for (int64_t s = 0; s < SEQUENCES && is_alone; s++) {
        grow(p, lengths, s, s + 1, chunk, answers);
    }
    if (!is_alone) {
        grow(p, lengths, 0, SEQUENCES, chunk, answers);
    }
    paged_close(p);
    return answers;
}

static void compare(const float *want,
                    const float *got,
                    const struct world *world,
                    const char *what)
{
    size_t row = (size_t)(H * world->d);
    for (int64_t i = 0; i < (int64_t)SEQUENCES * LENGTH_MAX; i++) {
        if (memcmp(want + (size_t)i * row, got + (size_t)i * row, row * sizeof *want) != 0) {
            fail_msg("%s: sequence %lld, position %lld has other bits (d %lld, kept as %s)", what,
                     (long long)(i / LENGTH_MAX), (long long)(i % LENGTH_MAX), (long long)world->d,
                     tern_dtype_name(world->kv_dtype));
        }
    }
}

static void same_bits_on(struct tern_runner *runner, const struct world *world)
{
    static const int64_t chunks[] = {1, 7, 16, 100};
    /* one long, one at each edge of a segment, some short */
    const int64_t lengths[SEQUENCES] = {world->d > 64 ? 300 : LENGTH_MAX,
                                        128,
                                        129,
                                        127,
                                        1,
                                        2,
                                        16,
                                        17,
                                        33,
                                        5,
                                        9,
                                        64,
                                        100,
                                        3,
                                        50,
                                        70};
    float *want = answers_of(runner->devices[0], world, lengths, 1, LENGTH_MAX, true);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        struct tern_device *device = runner->devices[i % (size_t)tern_runner_threads()];
        float *got = answers_of(device, world, lengths, 11 + 2 * (int64_t)i, chunks[i], false);
        char what[64];
        snprintf(what, sizeof what, "%s, all at once by %lld", runner->name, (long long)chunks[i]);
        compare(want, got, world, what);
        tern_free(got);
    }
    float *alone =
        answers_of(runner->devices[tern_runner_threads() - 1], world, lengths, 3, 1, true);
    compare(want, alone, world, "alone by 1");
    tern_free(alone);
    tern_free(want);
}

static struct tern_runners g_runners;

static void same_bits(void **state)
{
    (void)state;
    static const struct world worlds[] = {
        {.d = 64, .kv_dtype = TERN_F32},
        {.d = 64, .kv_dtype = TERN_BF16},
        {.d = 64, .kv_dtype = TERN_I8},
        {.d = 20, .kv_dtype = TERN_BF16, .window = 40, .softcap = 5},
        {.d = 128, .kv_dtype = TERN_I8, .window = 130},
    };
    for (int i = 0; i < g_runners.count; i++) {
        struct tern_runner *runner = &g_runners.list[i];
        bool is_own = strcmp(runner->name, "cpu/generic") == 0 ||
                      strcmp(runner->name, "cpu/avx2") == 0 ||
                      strcmp(runner->name, "cpu/avx512") == 0; /* the others run these */
        for (size_t w = 0; w < sizeof worlds / sizeof worlds[0] && is_own; w++) {
            if (runner->devices[0] != NULL) {
                same_bits_on(runner, &worlds[w]);
            }
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
