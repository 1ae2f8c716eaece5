/* mix.h - sixteen requests that between them use all that the engine can do, and what they must
 * hear in any company: what they hear alone. */
#ifndef TERN_TESTS_RUNTIME_SERVE_MIX_H
#define TERN_TESTS_RUNTIME_SERVE_MIX_H

#include "runtime/base/random.h"
#include "tests/runtime/serve/hearing.h"

enum {
    MIX_REQUESTS = 16,
    MIX_PROMPT_MAX = 130
};

struct mix {
    int64_t prompt_max;           /* tokens, up to MIX_PROMPT_MAX */
    struct tern_grammar *grammar; /* of one of them, NULL: none */
    /* An engine that has at least so many blocks, and its end. */
    struct tern_engine *(*open)(struct mix *mix,
                                const struct tern_engine_options *options,
                                int64_t blocks);
    void (*close)(struct mix *mix, struct tern_engine *engine);
    void *context;
    int32_t prompts[MIX_REQUESTS][MIX_PROMPT_MAX];
    struct heard alone[MIX_REQUESTS];
};

/* The i-th of the requests: every feature is in some of them, prompts often begin alike. */
static inline struct tern_engine_request mix_request(struct mix *mix,
                                                     int i,
                                                     struct hearing *hearing)
{
    static const char *const stops[] = {"zz", "qrs", "gg"};
    static const int32_t stop_ids[] = {17, 44};
    static const struct tern_logit_bias bias[] = {{5, 3}, {9, -100}, {40, 1.5F}};
    int64_t count = 1 + (i * 37) % mix->prompt_max;
    for (int64_t p = 0; p < count; p++) {
        bool is_common = p < 64 && i % 3 != 0;
        mix->prompts[i][p] =
            (int32_t)(tern_random_u64(is_common ? 1 : (uint64_t)i, TERN_STREAM_TEST, (uint64_t)p) %
                          9 +
                      20);
    }
    struct tern_engine_request request = plain_request(hearing, mix->prompts[i], count);
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
        request.max_tokens = 90; /* its tokens move to a larger block while they are counted */
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
        request.grammar = mix->grammar;
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

static inline void mix_check(const struct heard *a, const struct heard *b, int i, const char *when)
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

/* Each request by itself, in an engine of its own. */
static inline void mix_hear_alone(struct mix *mix,
                                  const struct tern_engine_options *options,
                                  int64_t blocks)
{
    static struct hearing hearing;
    for (int i = 0; i < MIX_REQUESTS; i++) {
        struct tern_engine *engine = mix->open(mix, options, blocks);
        memset(&hearing, 0, sizeof hearing);
        struct tern_engine_request request = mix_request(mix, i, &hearing);
        expect_ok(tern_engine_submit(engine, &request, &hearing.handle));
        wait_for(engine);
        mix->alone[i] = hearing.heard;
        assert_int_equal(hearing.heard.fail, TERN_OK);
        mix->close(mix, engine);
    }
}

/* All requests at once, twice, so that the second time much is in the cache. */
static inline void mix_together(struct mix *mix,
                                const struct tern_engine_options *options,
                                int64_t blocks,
                                struct tern_engine_stats *stats)
{
    static struct hearing hearings[2 * MIX_REQUESTS];
    char when[128];
    snprintf(when, sizeof when, "%lld at once, chunk %lld, cache %d, guesses %lld, %lld blocks",
             (long long)options->max_seqs, (long long)options->chunk, options->prefix_cache,
             (long long)options->speculate, (long long)blocks);
    struct tern_engine *engine = mix->open(mix, options, blocks);
    memset(hearings, 0, sizeof hearings);
    for (int i = 0; i < 2 * MIX_REQUESTS; i++) {
        struct tern_engine_request request = mix_request(mix, i % MIX_REQUESTS, &hearings[i]);
        expect_ok(tern_engine_submit(engine, &request, &hearings[i].handle));
        if (i == MIX_REQUESTS - 1) {
            wait_for(engine);
        }
    }
    wait_for(engine);
    for (int i = 0; i < 2 * MIX_REQUESTS; i++) {
        assert_int_equal(atomic_load(&hearings[i].releases), 1);
        assert_int_equal(hearings[i].events_late, 0);
        assert_int_equal(hearings[i].starts, 1);
        mix_check(&hearings[i].heard, &mix->alone[i % MIX_REQUESTS], i, when);
    }
    tern_engine_stats(engine, stats);
    assert_int_equal(stats->blocks_used, 0);
    assert_int_equal(stats->running + stats->waiting, 0);
    assert_int_equal(stats->requests, 2 * MIX_REQUESTS);
    mix->close(mix, engine);
}

#endif
