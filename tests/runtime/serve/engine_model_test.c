/* engine_model_test.c - the engine over real passes of every family: the same bits alone and in
 * company, and greedy texts as one sequence by itself writes them.
 *
 *   serve_engine_model_test [all]      each family in every kind of weights, not in one of them */
#include "models/infer.h"
#include "models/sequence.h"
#include "runtime/generate/loaded.h"
#include "runtime/generate/softmax.h"
#include "tests/runtime/serve/mix.h"

enum {
    SEQS = 16
};

struct family {
    const char *name;
    int64_t prompt_max;
};

static const struct family g_families[] = {
    {"gpt2_untied", 40}, {"llama_biased", 70},   {"llama_yarn_mscale", 70},
    {"mistral", 70},     {"qwen2_windowed", 70}, {"qwen3_biased", 70},
    {"gemma", 70},       {"gemma2", 70},         {"gemma3_pattern", 70},
    {"mixtral", 70},     {"qwen3_moe_raw", 70},  {"phi3_longrope_long", 70},
};

static struct tern_engine *open_engine(struct mix *mix,
                                       const struct tern_engine_options *options,
                                       int64_t blocks)
{
    struct tern_loaded *loaded = mix->context;
    struct tern_engine_options filled = *options;
    struct tern_engine *engine;
    filled.kv_bytes =
        (size_t)blocks * tern_infer_block_bytes(&loaded->model, loaded->device, filled.kv_dtype);
    expect_ok(tern_engine_create(loaded, &filled, &engine));
    return engine;
}

static void close_engine(struct mix *mix, struct tern_engine *engine)
{
    (void)mix;
    tern_engine_destroy(engine);
}

static bool g_is_whole; /* each family in each of its kinds */

/* How its weights and its keys and values are kept. */
struct kind {
    const char *backend;
    enum tern_placed_mode mode;
    enum tern_dtype kv;
};

static const struct kind g_kinds[] = {
    {"cpu", TERN_PLACED_EXACT, TERN_F32}, {"cpu", TERN_PLACED_BF16, TERN_BF16},
    {"cpu", TERN_PLACED_Q8, TERN_I8},     {"ref", TERN_PLACED_EXACT, TERN_F32},
    {"cpu", TERN_PLACED_AUTO, TERN_BF16}, {"cpu", TERN_PLACED_Q4, TERN_BF16},
};

static void open_family(const struct family *family,
                        const struct kind *kind,
                        struct tern_loaded *out)
{
    char path[512];
    setenv("TERN_BACKEND", kind->backend, 1);
    setenv("TERN_THREADS", "2", 1);
    snprintf(path, sizeof path, "%s/families/%s", TERN_GOLDEN, family->name);
    expect_ok(tern_loaded_open(path, TERN_LOADED_AUTO, kind->mode, out));
}

/* Request 0, which is greedy, by a pass of its own. */
static void check_greedy(struct mix *mix, const struct tern_loaded *loaded)
{
    static struct hearing unused;
    struct tern_sequence_options options = {.positions = loaded->model.config.context, .chunk = 64};
    const struct heard_choice *heard = &mix->alone[0].choices[0];
    struct tern_engine_request request = mix_request(mix, 0, &unused);
    struct tern_sequence *sequence;
    float logits[256];
    expect_ok(
        tern_sequence_create(&loaded->model, loaded->device, &loaded->placed, &options, &sequence));
    tern_sequence_expect(sequence, loaded->model.config.context);
    expect_ok(tern_sequence_append(sequence, request.ids, request.count, false, logits));
    for (int64_t t = 0; t < heard->count; t++) {
        assert_int_equal(tern_softmax_best(logits, loaded->model.config.vocab_size),
                         heard->tokens[t].id);
        expect_ok(tern_sequence_append(sequence, &heard->tokens[t].id, 1, false, logits));
    }
    assert_true(heard->count > 5);
    tern_sequence_destroy(sequence);
}

/* Returns how often a request gave way. */
static uint64_t check_family(const struct family *family, const struct kind *kind)
{
    static struct mix mix;
    struct tern_loaded loaded;
    struct tern_engine_stats stats;
    open_family(family, kind, &loaded);
    memset(&mix, 0, sizeof mix);
    mix.prompt_max = family->prompt_max;
    mix.open = open_engine;
    mix.close = close_engine;
    mix.context = &loaded;
    int64_t text = (loaded.model.config.context + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
    struct tern_engine_options alone = {.max_seqs = 4, .chunk = 256, .kv_dtype = kind->kv};
    mix_hear_alone(&mix, &alone, 5 * text);
    if (kind->kv == TERN_F32) {
        check_greedy(&mix, &loaded);
    }
    const struct {
        struct tern_engine_options options;
        int64_t blocks;
    } rows[] = {
        {{.max_seqs = SEQS, .chunk = 256}, 20 * text},
        {{.max_seqs = SEQS, .chunk = 7, .prefix_cache = true}, 20 * text},
        {{.max_seqs = SEQS, .chunk = 33, .prefix_cache = true, .speculate = 5}, 20 * text},
        {{.max_seqs = SEQS, .chunk = 40, .prefix_cache = true, .speculate = 3}, text + 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_engine_options options = rows[i].options;
        options.kv_dtype = kind->kv;
        mix_together(&mix, &options, rows[i].blocks, &stats);
    }
    print_message("%s on %s, weights %d, %s: %llu preemptions, %llu cached, %llu of %llu guesses\n",
                  family->name, kind->backend, (int)kind->mode, tern_dtype_name(kind->kv),
                  (unsigned long long)stats.preemptions, (unsigned long long)stats.prefix_hits,
                  (unsigned long long)stats.accepted_tokens,
                  (unsigned long long)stats.draft_tokens);
    assert_true(stats.prefix_hits > 0);
    tern_loaded_close(&loaded);
    return stats.preemptions;
}

static void test_same_bits(void **state)
{
    (void)state;
    uint64_t preemptions = 0;
    size_t kinds = sizeof g_kinds / sizeof g_kinds[0];
    for (size_t i = 0; i < sizeof g_families / sizeof g_families[0]; i++) {
        for (size_t k = 0; k < kinds; k++) {
            if (g_is_whole || k == i % kinds) {
                preemptions += check_family(&g_families[i], &g_kinds[k]);
            }
        }
    }
    assert_true(preemptions > 20);
}

int main(int argc, char **argv)
{
    g_is_whole = argc > 1 && strcmp(argv[1], "all") == 0;
    const struct CMUnitTest tests[] = {CHECKED(test_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
