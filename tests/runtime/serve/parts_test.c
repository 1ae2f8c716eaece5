/* parts_test.c - guesses, log-probabilities and histograms by themselves. */
#include "runtime/generate/generate.h"
#include "runtime/serve/logprobs.h"
#include "runtime/serve/speculate.h"
#include "runtime/serve/stats.h"
#include "tests/runtime/fixture.h"

#include <math.h>

static void expect_guess(const int32_t *ids, int64_t count, const int32_t *expected, int64_t most)
{
    int32_t guess[8];
    int64_t guessed = tern_speculate_lookup(ids, count, most, guess);
    assert_int_equal(guessed, expected != NULL ? most : 0);
    if (expected != NULL) {
        assert_memory_equal(guess, expected, (size_t)most * sizeof *guess);
    }
}

static void test_lookup(void **state)
{
    (void)state;
    static const int32_t none[] = {1, 2, 3, 4, 5, 6};
    static const int32_t once[] = {7, 1, 2, 3, 9, 8, 4, 1, 2, 3};
    static const int32_t latest[] = {1, 2, 5, 6, 1, 2, 7, 8, 1, 2};
    static const int32_t longer[] = {0, 1, 2, 5, 9, 1, 2, 7, 0, 1, 2};
    static const int32_t round[] = {4, 5, 6, 4, 5, 6, 4, 5};
    static const int32_t same[] = {3, 3, 3};
    expect_guess(none, 6, NULL, 4);
    expect_guess(none, 1, NULL, 4);
    expect_guess(none, 2, NULL, 4);
    expect_guess(once, 10, (const int32_t[]){9, 8, 4}, 3);
    expect_guess(latest, 10, (const int32_t[]){7, 8}, 2);
    expect_guess(longer, 11, (const int32_t[]){5, 9, 1}, 3); /* three tokens say more than two */
    expect_guess(round, 8, (const int32_t[]){6, 4, 5, 6, 4, 5, 6, 4}, 8);
    expect_guess(same, 3, (const int32_t[]){3, 3, 3}, 3);
}

/* Good guesses grow, bad ones rest, longer each time. */
static void test_speculator(void **state)
{
    (void)state;
    struct tern_speculator speculator = {0};
    int64_t first = tern_speculator_next(&speculator, 8);
    assert_in_range(first, 1, 8);
    tern_speculator_learn(&speculator, first, first);
    assert_int_equal(tern_speculator_next(&speculator, 8), 2 * first);
    tern_speculator_learn(&speculator, 6, 2);
    assert_int_equal(tern_speculator_next(&speculator, 8), 3);
    assert_int_equal(tern_speculator_next(&speculator, 2), 2);
    int64_t longest = 0;
    for (int i = 0; i < 10; i++) {
        tern_speculator_learn(&speculator, 3, 0);
        int64_t rest = 0;
        while (tern_speculator_next(&speculator, 8) == 0) {
            rest++;
        }
        assert_true(rest >= longest && rest >= 1 && rest <= 32);
        longest = rest;
    }
    assert_int_equal(longest, 32);
    tern_speculator_learn(&speculator, 1, 1);
    assert_int_equal(tern_speculator_next(&speculator, 8), 2);
}

static void test_logprobs(void **state)
{
    (void)state;
    static const float logits[] = {1, 5, 0, 5, -INFINITY, 7, -3, 2};
    static const float broken[] = {1, 5, NAN, 5, -INFINITY, 7, -3, 2};
    static const int32_t order[] = {5, 1, 3, 7};
    struct tern_sampler *sampler;
    struct tern_logprobs found;
    expect_ok(tern_sampler_create(8, &sampler));
    double sum = tern_log_sum_exp(logits, 8);
    tern_logprobs_of(sampler, logits, 8, 3, 4, &found);
    assert_true(fabs(found.logprob - (5 - sum)) < 2e-6);
    assert_int_equal(found.top_count, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(found.tops[i].id, order[i]);
        assert_true(fabs(found.tops[i].logprob - (logits[order[i]] - sum)) < 2e-6);
    }
    tern_logprobs_of(sampler, logits, 8, 0, 0, &found);
    assert_int_equal(found.top_count, 0);
    tern_logprobs_of(sampler, broken, 8, 0, 20, &found); /* NaN is none of them */
    assert_int_equal(found.top_count, 7);
    assert_int_equal(found.tops[6].id, 4);
    tern_sampler_destroy(sampler);
}

static void test_histogram(void **state)
{
    (void)state;
    struct tern_engine_stats stats;
    tern_engine_stats_init(&stats);
    struct tern_engine_histogram *histogram = &stats.ttft;
    for (int i = 1; i < histogram->bound_count; i++) {
        assert_true(histogram->bounds[i] > histogram->bounds[i - 1]);
    }
    tern_engine_observe(histogram, 0);
    tern_engine_observe(histogram, histogram->bounds[2]); /* its own bound is within */
    tern_engine_observe(histogram, 1e9);
    assert_int_equal(histogram->counts[0], 1);
    assert_int_equal(histogram->counts[2], 1);
    assert_int_equal(histogram->counts[histogram->bound_count], 1);
    assert_int_equal(histogram->count, 3);
    for (int i = 0; i < TERN_ENGINE_END_COUNT; i++) {
        assert_non_null(tern_engine_end_name((enum tern_engine_end)i));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_lookup), CHECKED(test_speculator),
                                       CHECKED(test_logprobs), CHECKED(test_histogram)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
