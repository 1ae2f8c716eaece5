/* engine_exact_test.c - a request hears the same bits alone and in company, whatever the chunk, the
 * cache, the guesses, and however often it gave way. The model is a hash, which every wrong block
 * would change. */
#include "tests/runtime/serve/fake_grammar.h"
#include "tests/runtime/serve/mix.h"

enum {
    CONTEXT = 208,
    ONE_TEXT = CONTEXT / TERN_KV_BLOCK
};

static struct tern_grammar g_grammar;

static struct tern_engine *open_fake(struct mix *mix,
                                     const struct tern_engine_options *options,
                                     int64_t blocks)
{
    struct fake *fake = mix->context;
    *fake = (struct fake){0};
    return fake_engine(fake, options, blocks);
}

static void close_fake(struct mix *mix, struct tern_engine *engine)
{
    tern_engine_destroy(engine);
    fake_fini(mix->context);
    assert_int_equal(g_grammar.refs, 0);
}

static struct tern_engine_options options_of(int64_t seqs,
                                             int64_t chunk,
                                             bool cache,
                                             int64_t guesses)
{
    struct tern_engine_options options = {
        .max_seqs = seqs, .chunk = chunk, .prefix_cache = cache, .speculate = guesses};
    expect_ok(tern_engine_fill(&options, CONTEXT));
    return options;
}

static struct mix *mix(void)
{
    static struct fake fake;
    static struct mix mix = {
        .prompt_max = MIX_PROMPT_MAX,
        .grammar = &g_grammar,
        .open = open_fake,
        .close = close_fake,
        .context = &fake,
    };
    if (mix.alone[0].prompt_tokens == 0) {
        struct tern_engine_options options = options_of(4, 512, false, 0);
        mix_hear_alone(&mix, &options, 5 * ONE_TEXT);
    }
    return &mix;
}

static void test_alone_and_together(void **state)
{
    (void)state;
    static const int64_t chunks[] = {1, 5, 16, 100, 512};
    struct tern_engine_stats stats;
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        for (int cache = 0; cache < 2; cache++) {
            for (int64_t guesses = 0; guesses <= 15; guesses += 5) {
                struct tern_engine_options options = options_of(16, chunks[i], cache == 1, guesses);
                mix_together(mix(), &options, 30 * ONE_TEXT, &stats);
                assert_int_equal(stats.preemptions, 0);
                assert_true((stats.prefix_hits > 500) == (cache == 1));
                assert_true((stats.accepted_tokens > 50) == (guesses > 0));
            }
        }
    }
}

static void test_places(void **state)
{
    (void)state;
    struct tern_engine_stats stats;
    for (int64_t seqs = 1; seqs <= 24; seqs += seqs < 4 ? 1 : 5) {
        struct tern_engine_options options = options_of(seqs, 64, seqs % 2 == 0, 4);
        mix_together(mix(), &options, 30 * ONE_TEXT, &stats);
    }
}

/* So few blocks that texts give way all the time. */
static void test_preempted(void **state)
{
    (void)state;
    struct tern_engine_stats stats;
    uint64_t preemptions = 0;
    for (int64_t blocks = ONE_TEXT; blocks < 3 * ONE_TEXT; blocks += 3) {
        for (int cache = 0; cache < 2; cache++) {
            struct tern_engine_options options = options_of(16, 40, cache == 1, 3 * cache);
            mix_together(mix(), &options, blocks, &stats);
            preemptions += stats.preemptions;
        }
    }
    if (preemptions < 50) {
        fail_msg("%llu preemptions, expected many", (unsigned long long)preemptions);
    }
}

/* Greedy and sampled texts are those of the sampler over the model's logits, with nothing in
 * between. */
static void test_is_what_the_model_says(void **state)
{
    (void)state;
    struct tern_sampler *sampler;
    expect_ok(tern_sampler_create(FAKE_VOCAB, &sampler));
    for (int i = 0; i < 2; i++) { /* request 0: greedy; 1: sampled */
        static struct hearing unused;
        struct tern_engine_request request = mix_request(mix(), i, &unused);
        const struct heard_choice *heard = &mix()->alone[i].choices[0];
        int32_t ids[CONTEXT];
        uint64_t hash = 0;
        memcpy(ids, request.ids, (size_t)request.count * sizeof *ids);
        for (int64_t p = 0; p < request.count; p++) {
            hash = fake_hash(hash, ids[p]);
        }
        for (int64_t t = 0; t < heard->count; t++) {
            int64_t p = request.count + t;
            float logits[FAKE_VOCAB];
            fake_logits(hash, ids[p - 1], logits);
            ids[p] = tern_sampler_pick(sampler, logits, &request.sampling, t);
            assert_int_equal(ids[p], heard->tokens[t].id);
            hash = fake_hash(hash, ids[p]);
        }
        assert_true(heard->count > 5);
    }
    tern_sampler_destroy(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_is_what_the_model_says),
                                       CHECKED(test_alone_and_together), CHECKED(test_places),
                                       CHECKED(test_preempted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
