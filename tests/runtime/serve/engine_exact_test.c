/* engine_exact_test.c - a request hears the same bits alone and in company, whatever the chunk,
 * the cache, the guesses, and however often it gave way. */
#include "tests/runtime/serve/fake_grammar.h"
#include "tests/runtime/serve/hearing.h"

enum {
    REQUESTS = 16,
    CONTEXT = 208,
    ONE_TEXT = CONTEXT / TERN_KV_BLOCK,
    PROMPT_MAX = 130
};

static int32_t g_prompts[REQUESTS][PROMPT_MAX];
static struct tern_grammar g_grammar;

/* The i-th of the requests: every feature is in some of them, prompts often begin alike. */
static struct tern_engine_request make_request(int i, struct hearing *hearing)
{
    static const char *const stops[] = {"zz", "qrs", "gg"};
    static const int32_t stop_ids[] = {17, 44};
    static const struct tern_logit_bias bias[] = {{5, 3}, {9, -100}, {40, 1.5F}};
    int64_t count = 1 + (i * 37) % PROMPT_MAX;
    for (int64_t p = 0; p < count; p++) {
        bool is_common = p < 64 && i % 3 != 0;
        g_prompts[i][p] =
            (int32_t)(tern_random_u64(is_common ? 1 : (uint64_t)i, TERN_STREAM_TEST, (uint64_t)p) %
                          9 +
                      20);
    }
    struct tern_engine_request request = plain_request(hearing, g_prompts[i], count);
    request.max_tokens = 10 + 5 * i;
    request.sampling.seed = (uint64_t)i;
    request.sampling.temperature = i % 2 == 0 ? 0 : 0.6;
    request.sampling.top_k = i % 4 == 1 ? 10 : 0;
    request.logprobs = i % 3 == 0 ? 3 : -1;
    request.ignore_end = i % 5 == 0;
    switch (i) {
    case 2:
        request.stops = stops;
        request.stop_count = 3;
        break;
    case 3:
        request.n = 4;
        break;
    case 5:
        request.sampling.presence = 0.5;
        request.sampling.frequency = 0.25;
        request.sampling.repetition = 1.2;
        break;
    case 6:
        request.bias = bias;
        request.bias_count = 3;
        request.min_tokens = 25;
        break;
    case 7:
        request.prompt_logprobs = 3;
        break;
    case 8:
        request.is_embedding = true;
        break;
    case 9:
        request.grammar = &g_grammar;
        break;
    case 10:
        request.prompt_logprobs = 0;
        request.n = 3;
        break;
    case 11:
        request.stop_ids = stop_ids;
        request.stop_id_count = 2;
        break;
    case 12:
        request.max_tokens = 0;
        request.n = 2;
        break;
    default:
        break;
    }
    return request;
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

/* Each request by itself, in an engine of its own. */
static void hear_alone(struct heard heard[REQUESTS])
{
    static struct hearing hearing;
    struct tern_engine_options options = options_of(4, 512, false, 0);
    for (int i = 0; i < REQUESTS; i++) {
        struct fake fake = {0};
        struct tern_engine *engine = fake_engine(&fake, &options, 5 * ONE_TEXT);
        memset(&hearing, 0, sizeof hearing);
        struct tern_engine_request request = make_request(i, &hearing);
        expect_ok(tern_engine_submit(engine, &request, &hearing.handle));
        wait_for(engine);
        heard[i] = hearing.heard;
        assert_int_equal(heard[i].fail, TERN_OK);
        tern_engine_destroy(engine);
        fake_fini(&fake);
    }
}

static const struct heard *alone(void)
{
    static struct heard heard[REQUESTS];
    static bool is_known;
    if (!is_known) {
        hear_alone(heard);
        is_known = true;
    }
    return heard;
}

static void check_same(const struct heard *a, const struct heard *b, int i, const char *when)
{
    for (int c = 0; c < HEARING_CHOICES; c++) {
        const struct heard_choice *x = &a->choices[c];
        const struct heard_choice *y = &b->choices[c];
        if (memcmp(x, y, sizeof *x) != 0) {
            fail_msg("request %d, choice %d, %s: '%s' (%lld tokens, %s), alone '%s' (%lld, %s)", i,
                     c, when, x->text, (long long)x->count, x->finish, y->text, (long long)y->count,
                     y->finish);
        }
    }
    assert_memory_equal(a->prompt, b->prompt, sizeof a->prompt);
    assert_memory_equal(a, b, sizeof *a);
}

/* All requests at once, twice, so that the second time much is in the cache. */
static void check_together(const struct tern_engine_options *options,
                           int64_t blocks,
                           struct tern_engine_stats *stats)
{
    static struct hearing hearings[2 * REQUESTS];
    char when[128];
    struct fake fake = {0};
    snprintf(when, sizeof when, "%lld at once, chunk %lld, cache %d, guesses %lld, %lld blocks",
             (long long)options->max_seqs, (long long)options->chunk, options->prefix_cache,
             (long long)options->speculate, (long long)blocks);
    struct tern_engine *engine = fake_engine(&fake, options, blocks);
    memset(hearings, 0, sizeof hearings);
    for (int i = 0; i < 2 * REQUESTS; i++) {
        struct tern_engine_request request = make_request(i % REQUESTS, &hearings[i]);
        expect_ok(tern_engine_submit(engine, &request, &hearings[i].handle));
        if (i == REQUESTS - 1) {
            wait_for(engine);
        }
    }
    wait_for(engine);
    for (int i = 0; i < 2 * REQUESTS; i++) {
        assert_int_equal(atomic_load(&hearings[i].releases), 1);
        assert_int_equal(hearings[i].events_late, 0);
        assert_int_equal(hearings[i].starts, 1);
        check_same(&hearings[i].heard, &alone()[i % REQUESTS], i, when);
    }
    tern_engine_stats(engine, stats);
    assert_int_equal(stats->blocks_used, 0);
    assert_int_equal(stats->running + stats->waiting, 0);
    assert_int_equal(stats->requests, 2 * REQUESTS);
    tern_engine_destroy(engine);
    fake_fini(&fake);
    assert_int_equal(g_grammar.refs, 0);
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
                check_together(&options, 30 * ONE_TEXT, &stats);
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
        check_together(&options, 30 * ONE_TEXT, &stats);
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
            check_together(&options, blocks, &stats);
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
        struct tern_engine_request request = make_request(i, &unused);
        const struct heard_choice *heard = &alone()[i].choices[0];
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
