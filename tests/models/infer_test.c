/* infer_test.c - the inference pass over many sequences at once: small models of every family against Transformers'
 * logits, whatever the cut into runs and blocks; the same bits; what is refused. */
#include "models/infer.h"
#include "runtime/base/mem.h"
#include "tests/models/families.h"

#include <string.h>

/* What keys and values of 8 bits, or of bf16's 8, keep of the logits of weights that are large on purpose. */
#define RELATIVE_KEPT 0.1

enum {
    SEQUENCES = 5,
    SPARE = 3,   /* blocks that nobody has */
    SHUFFLE = 7, /* block i of all is number 7 i */
    ROWS = 40
};

/* Sequences that begin as the model's golden one does, each of a length of its own. */
struct group {
    struct tern_infer *infer;
    int64_t lengths[SEQUENCES], done[SEQUENCES], chunks[SEQUENCES];
    int64_t table; /* blocks of a sequence */
    int32_t *blocks;
    float *logits; /* (SEQUENCES, t, v) */
};

static void open_group(struct group *g, struct bench *b, enum tern_dtype kv_dtype)
{
    *g = (struct group){.table = (b->t + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK};
    int64_t blocks = SEQUENCES * g->table + SPARE;
    blocks += blocks % SHUFFLE == 0;
    struct tern_infer_options options = {.blocks = blocks,
                                         .rows = ROWS,
                                         .sequences = SEQUENCES,
                                         .context = b->t,
                                         .logit_rows = ROWS,
                                         .kv_dtype = kv_dtype};
    OK(tern_infer_create(&b->model, b->device, &b->placed, &options, &g->infer));
    g->blocks = tern_alloc("test", (size_t)(SEQUENCES * g->table) * sizeof *g->blocks);
    g->logits = tern_alloc("test", (size_t)(SEQUENCES * b->t * b->v) * sizeof *g->logits);
    assert_true(g->blocks != NULL && g->logits != NULL);
    for (int64_t i = 0; i < SEQUENCES * g->table; i++) {
        g->blocks[i] = (int32_t)((i + 1) * SHUFFLE % blocks);
    }
    static const int64_t chunks[SEQUENCES] = {1, 7, 16, 3, 100};
    for (int64_t s = 0; s < SEQUENCES; s++) {
        g->lengths[s] = b->t - 2 * s;
        g->chunks[s] = chunks[s];
    }
}

static void close_group(struct group *g)
{
    tern_infer_destroy(g->infer);
    tern_free(g->blocks);
    tern_free(g->logits);
}

/* One run: a chunk of each of sequences [first, end) that has tokens left, as far as rows are there. False: none has. */
static bool run_once(struct group *g, struct bench *b, int64_t first, int64_t end)
{
    struct tern_infer_part parts[SEQUENCES];
    int64_t owners[SEQUENCES], count = 0, rows = 0;
    for (int64_t s = first; s < end; s++) {
        int64_t n = g->lengths[s] - g->done[s];
        n = n < g->chunks[s] ? n : g->chunks[s];
        n = n < ROWS - rows ? n : ROWS - rows;
        if (n > 0) {
            owners[count] = s;
            parts[count++] = (struct tern_infer_part){.ids = b->ids + g->done[s],
                                                      .count = n,
                                                      .position = g->done[s],
                                                      .blocks = g->blocks + s * g->table,
                                                      .logits = n};
            rows += n;
        }
    }
    if (count == 0) {
        return false;
    }
    const float *logits;
    OK(tern_infer_run(g->infer, parts, count, &logits));
    for (int64_t i = 0; i < count; i++) {
        int64_t s = owners[i], values = parts[i].count * b->v;
        memcpy(g->logits + (s * b->t + g->done[s]) * b->v, logits, (size_t)values * sizeof *logits);
        logits += values;
        g->done[s] += parts[i].count;
    }
    return true;
}

static double worst_of(const struct group *g, const struct bench *b)
{
    double worst = 0;
    for (int64_t s = 0; s < SEQUENCES; s++) {
        for (int64_t at = 0; at < g->lengths[s]; at++) {
            double error =
                relative_error(g->logits + (s * b->t + at) * b->v, b->logits + at * b->v, b->v);
            worst = error > worst ? error : worst;
        }
    }
    return worst;
}

static void against_transformers(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    static const enum tern_dtype kept[] = {TERN_F32, TERN_BF16, TERN_I8};
    for (int m = 0; m < MODEL_COUNT; m++) {
        for (size_t i = 0; i < 6; i++) {
            struct bench b;
            struct group g;
            open_bench(&b, g_models[m], backends[i % 2], TERN_F32);
            open_group(&g, &b, kept[i / 2]);
            while (run_once(&g, &b, 0, SEQUENCES)) {
            }
            double worst = worst_of(&g, &b);
            bool is_routed = b.model.config.experts > 0; /* another expert is another answer */
            double bound = i < 2 ? RELATIVE : is_routed ? 1 : RELATIVE_KEPT;
            close_group(&g);
            close_bench(&b);
            print_message("%s on %s, kept as %s: %.2e\n", g_models[m], backends[i % 2],
                          tern_dtype_name(kept[i / 2]), worst);
            if (!(worst <= bound)) {
                fail_msg("%s: relative error %.3e, at most %.0e", g_models[m], worst, bound);
            }
        }
    }
}

/* Alone in chunks of 5, and among others in chunks of other sizes. */
static void compare_bits(struct bench *b, enum tern_dtype kv_dtype, const char *name)
{
    struct group together, alone;
    open_group(&together, b, kv_dtype);
    open_group(&alone, b, kv_dtype);
    while (run_once(&together, b, 0, SEQUENCES)) {
    }
    for (int64_t s = 0; s < SEQUENCES; s++) {
        alone.chunks[s] = 5;
        while (run_once(&alone, b, s, s + 1)) {
        }
        size_t bytes = (size_t)(together.lengths[s] * b->v) * sizeof(float);
        if (memcmp(together.logits + s * b->t * b->v, alone.logits + s * b->t * b->v, bytes) != 0) {
            fail_msg("%s: sequence %lld has other bits among others", name, (long long)s);
        }
    }
    close_group(&together);
    close_group(&alone);
}

/* Where products give a row the same bits whatever the others are: the reference's, and those of packed weights. */
static void same_bits_alone(void **state)
{
    (void)state;
    static const struct {
        const char *backend;
        enum tern_dtype dtype;
        enum tern_placed_mode mode;
        enum tern_dtype kv_dtype;
    } runs[] = {
        {"ref", TERN_F32, TERN_PLACED_STORED, TERN_BF16},
        {"cpu", TERN_F32, TERN_PLACED_EXACT, TERN_F32},
        {"cpu", TERN_F32, TERN_PLACED_AUTO, TERN_BF16},
        {"cpu", TERN_F32, TERN_PLACED_Q8, TERN_I8},
        {"cpu", TERN_F32, TERN_PLACED_Q4, TERN_BF16},
        {"cpu", TERN_BF16, TERN_PLACED_BF16, TERN_BF16},
    };
    for (int m = 0; m < MODEL_COUNT; m++) {
        for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
            struct bench b;
            open_bench_as(&b, g_models[m], runs[i].backend, runs[i].dtype, runs[i].mode);
            print_message("%s on %s, %s\n", g_models[m], runs[i].backend,
                          tern_placed_mode_names[runs[i].mode]);
            compare_bits(&b, runs[i].kv_dtype, g_models[m]);
            close_bench(&b);
        }
    }
}

/* Only the rows asked for come, in the order of the parts, with the same bits whether the last layer computes the others
 * or not; hidden rows are what the head read, of a run that was asked for them. */
static void rows_asked_for(void **state)
{
    (void)state;
    static const char *const models[] = {"gemma2", "gpt2_untied", "mixtral", "qwen3_biased"};
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        struct bench b;
        struct group g;
        open_bench_as(&b, models[m], "cpu", TERN_F32, TERN_PLACED_EXACT);
        open_group(&g, &b, TERN_F32);
        struct tern_infer_part parts[3];
        static const int64_t asked[3] = {1, 0, 4}, at[5] = {5, 4, 5, 6, 7};
        for (int i = 0; i < 3; i++) {
            parts[i] = (struct tern_infer_part){
                .ids = b.ids, .count = 6 + i, .blocks = g.blocks + i * g.table, .logits = asked[i]};
        }
        const float *logits, *hidden;
        size_t bytes = (size_t)(5 * b.v) * sizeof(float);
        OK(tern_infer_run(g.infer, parts, 3, &logits));
        for (int i = 0; i < 5; i++) {
            assert_true(relative_error(logits + i * b.v, b.logits + at[i] * b.v, b.v) <= RELATIVE);
        }
        memcpy(g.logits, logits, bytes);
        assert_int_equal(tern_infer_hidden(g.infer, &hidden), TERN_ERR_ARGUMENT);
        parts[1].hidden = true;
        OK(tern_infer_run(g.infer, parts, 3, &logits));
        assert_memory_equal(g.logits, logits, bytes);
        OK(tern_infer_hidden(g.infer, &hidden));
        /* the same token after the same tokens */
        size_t c = (size_t)b.model.config.width;
        assert_memory_equal(hidden + 5 * c, hidden + (6 + 5) * c, c * sizeof(float));
        assert_true(relative_error(hidden + 4 * c, hidden + 5 * c, (int64_t)c) > 1e-3);
        for (int i = 0; i < 3; i++) {
            parts[i].logits = 0;
            parts[i].hidden = false;
        }
        OK(tern_infer_run(g.infer, parts, 3, NULL));
        close_group(&g);
        close_bench(&b);
    }
}

/* A sequence goes on from a copy of its last block as from the block itself. */
static void copied_blocks(void **state)
{
    (void)state;
    struct bench b;
    struct group g;
    open_bench(&b, "mistral", "cpu", TERN_F32);
    open_group(&g, &b, TERN_BF16);
    int32_t blocks[2] = {g.blocks[0], g.blocks[1]};
    struct tern_infer_part part = {.ids = b.ids, .count = 20, .blocks = blocks};
    OK(tern_infer_run(g.infer, &part, 1, NULL));
    OK(tern_infer_copy_block(g.infer, blocks[1], g.blocks[2]));
    part = (struct tern_infer_part){
        .ids = b.ids + 20, .count = 1, .position = 20, .blocks = blocks, .logits = 1};
    const float *logits;
    OK(tern_infer_run(g.infer, &part, 1, &logits));
    float first[256];
    assert_true(b.v <= 256);
    memcpy(first, logits, (size_t)b.v * sizeof *first);
    blocks[1] = g.blocks[2];
    OK(tern_infer_run(g.infer, &part, 1, &logits));
    assert_memory_equal(first, logits, (size_t)b.v * sizeof *first);
    assert_int_equal(tern_infer_copy_block(g.infer, 0, 1 << 20), TERN_ERR_ARGUMENT);
    assert_int_equal(tern_infer_copy_block(g.infer, -1, 0), TERN_ERR_ARGUMENT);
    close_group(&g);
    close_bench(&b);
}

static void refused(struct group *g,
                    const struct tern_infer_part *parts,
                    int64_t count,
                    const char *why)
{
    const float *logits;
    assert_int_equal(tern_infer_run(g->infer, parts, count, &logits), TERN_ERR_ARGUMENT);
    if (strstr(tern_detail(), why) == NULL) {
        fail_msg("said '%s', expected '%s'", tern_detail(), why);
    }
}

static void refuses(void **state)
{
    (void)state;
    struct bench b;
    struct group g;
    open_bench(&b, "mistral", "cpu", TERN_F32);
    open_group(&g, &b, TERN_F32);
    int32_t ids[3] = {1, 2, 3}, wrong_ids[3] = {1, (int32_t)b.v, 3}, blocks[4] = {0, 1, 2, 3};
    int32_t wrong_blocks[2] = {0, 4096};
    const struct tern_infer_part fine = {.ids = ids, .count = 3, .blocks = blocks, .logits = 1};
    struct tern_infer_part parts[SEQUENCES + 1];
    for (int i = 0; i <= SEQUENCES; i++) {
        parts[i] = fine;
    }
    refused(&g, parts, 0, "0 parts, expected 1 to 5");
    refused(&g, parts, SEQUENCES + 1, "6 parts, expected 1 to 5");
    parts[1].count = 0;
    refused(&g, parts, 2, "part 1: count is 0");
    parts[1].count = ROWS + 1;
    refused(&g, parts, 2, "part 1: count is 41");
    parts[1] = fine;
    parts[1].position = b.t - 2;
    refused(&g, parts, 2, "part 1: position is");
    parts[1].position = -1;
    refused(&g, parts, 2, "part 1: position is -1");
    parts[1] = fine;
    parts[1].logits = 4;
    refused(&g, parts, 2, "part 1: logits is 4, expected 0 to 3");
    parts[1] = fine;
    parts[1].ids = wrong_ids;
    refused(&g, parts, 2, "part 1: a token is");
    parts[1] = fine;
    parts[1].blocks = wrong_blocks;
    parts[1].position = 15;
    refused(&g, parts, 2, "part 1: a block is 4096");
    const float *logits;
    OK(tern_infer_run(g.infer, &fine, 1, &logits));
    assert_true(relative_error(logits, logits, b.v) == 0);
    close_group(&g);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(against_transformers), CHECKED(same_bits_alone), CHECKED(rows_asked_for),
        CHECKED(copied_blocks),        CHECKED(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
