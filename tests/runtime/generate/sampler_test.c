/* sampler_test.c - what may be drawn, how often it is, and that it is a pure function. */
#include "runtime/base/random.h"
#include "runtime/generate/sampler.h"
#include "runtime/generate/softmax.h"
#include "runtime/generate/softmax_level.h"
#include "tests/runtime/fixture.h"

#include <math.h>

enum {
    VOCAB_MAX = 1000
};

static const struct tern_sampling g_all = {.temperature = 1, .top_p = 1};

static void test_greedy(void **state)
{
    (void)state;
    static const struct {
        float logits[4];
        int32_t id;
    } rows[] = {
        {{0, 1, 2, 3}, 3},          {{5, 5, 5, 5}, 0},
        {{-1, 7, 7, 2}, 1},         {{NAN, 1, 2, NAN}, 2},
        {{NAN, NAN, NAN, -4}, 3},   {{-INFINITY, -INFINITY, -1e30F, -INFINITY}, 2},
        {{0, INFINITY, 3, NAN}, 1},
    };
    struct tern_sampler *sampler;
    expect_ok(tern_sampler_create(4, &sampler));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_sampling greedy = {.temperature = 0, .top_p = 1, .seed = i};
        assert_int_equal(tern_sampler_pick(sampler, rows[i].logits, &greedy, 3), rows[i].id);
        greedy.temperature = 1e-12; /* as good as greedy, but by lot among equals */
        int32_t id = tern_sampler_pick(sampler, rows[i].logits, &greedy, 3);
        assert_true(rows[i].logits[id] == rows[i].logits[rows[i].id]);
    }
    tern_sampler_destroy(sampler);
}

/* Broken logits give some id of the vocabulary, never a crash. */
static void test_no_numbers(void **state)
{
    (void)state;
    static const float rows[][3] = {{NAN, NAN, NAN},
                                    {-INFINITY, -INFINITY, -INFINITY},
                                    {INFINITY, INFINITY, 0},
                                    {NAN, INFINITY, -INFINITY}};
    static const struct tern_sampling settings[] = {
        {.temperature = 1, .top_p = 1},
        {.temperature = 1, .top_p = 0.5, .top_k = 2, .min_p = 0.5},
        {.temperature = 0, .top_p = 0},
    };
    struct tern_sampler *sampler;
    expect_ok(tern_sampler_create(3, &sampler));
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 3; k++) {
            int32_t id = tern_sampler_pick(sampler, rows[i], &settings[k], 0);
            assert_in_range(id, 0, 2);
        }
    }
    tern_sampler_destroy(sampler);
}

/* Draws at `draws` positions against probabilities p (n); those of probability 0 must never
 * come. */
static void check_distribution(const float *logits,
                               int n,
                               const struct tern_sampling *sampling,
                               const double *p)
{
    enum {
        DRAWS = 60000
    };
    int64_t counts[VOCAB_MAX] = {0};
    struct tern_sampler *sampler;
    expect_ok(tern_sampler_create(n, &sampler));
    for (int64_t position = 0; position < DRAWS; position++) {
        counts[tern_sampler_pick(sampler, logits, sampling, position)]++;
    }
    tern_sampler_destroy(sampler);
    double chi = 0;
    int free = -1;
    for (int i = 0; i < n; i++) {
        double expected = p[i] * DRAWS;
        if (p[i] == 0) {
            assert_int_equal(counts[i], 0);
            continue;
        }
        chi += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
        free++;
    }
    /* mean of the chi-square distribution plus five of its standard deviations */
    double limit = free + 5 * sqrt(2.0 * free);
    if (chi > limit) {
        fail_msg("seed %llu: chi-square %.2f of %d degrees of freedom, expected below %.2f",
                 (unsigned long long)sampling->seed, chi, free, limit);
    }
}

static void test_distribution(void **state)
{
    (void)state;
    static const double p[] = {0.4, 0.25, 0.15, 0.1, 0.06, 0.04};
    float logits[6];
    for (int i = 0; i < 6; i++) {
        logits[i] = (float)log(p[i]) + 7;
    }
    struct tern_sampling sampling = g_all;
    for (sampling.seed = 0; sampling.seed < 3; sampling.seed++) {
        check_distribution(logits, 6, &sampling, p);
    }
    /* temperature 1/2 squares the probabilities */
    double squares[6];
    double sum = 0;
    for (int i = 0; i < 6; i++) {
        sum += p[i] * p[i];
    }
    for (int i = 0; i < 6; i++) {
        squares[i] = p[i] * p[i] / sum;
    }
    sampling.temperature = 0.5;
    check_distribution(logits, 6, &sampling, squares);
}

/* Which of 0.5, 0.3, 0.15, 0.05 (in another order) stay. */
static void test_what_stays(void **state)
{
    (void)state;
    static const double p[] = {0.15, 0.5, 0.05, 0.3};
    static const struct {
        int64_t top_k;
        double top_p, min_p;
        double left[4]; /* 0: never */
    } rows[] = {
        {0, 1, 0, {0.15, 0.5, 0.05, 0.3}},
        {1, 1, 0, {0, 1, 0, 0}},
        {2, 1, 0, {0, 0.625, 0, 0.375}},
        {3, 1, 0, {0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95}},
        {4, 1, 0, {0.15, 0.5, 0.05, 0.3}},
        {99, 1, 0, {0.15, 0.5, 0.05, 0.3}},
        {0, 0, 0, {0, 1, 0, 0}},
        {0, 0.49, 0, {0, 1, 0, 0}},
        {0, 0.51, 0, {0, 0.625, 0, 0.375}},
        {0, 0.79, 0, {0, 0.625, 0, 0.375}},
        {0, 0.81, 0, {0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95}},
        {0, 0.96, 0, {0.15, 0.5, 0.05, 0.3}},
        /* top-p is a share of what top-k left: 0.5 of 0.8 is 0.625 */
        {2, 0.62, 0, {0, 1, 0, 0}},
        {2, 0.63, 0, {0, 0.625, 0, 0.375}},
        /* min-p is relative to the best: 0.3 is 0.6 of it, 0.15 is 0.3 */
        {0, 1, 0.61, {0, 1, 0, 0}},
        {0, 1, 0.59, {0, 0.625, 0, 0.375}},
        {0, 1, 0.31, {0, 0.625, 0, 0.375}},
        {0, 1, 0.29, {0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95}},
        {0, 1, 1, {0, 1, 0, 0}},
        {3, 0.99, 0.5, {0, 0.625, 0, 0.375}},
    };
    float logits[4];
    for (int i = 0; i < 4; i++) {
        logits[i] = (float)log(p[i]);
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_sampling sampling = {.temperature = 1,
                                         .top_k = rows[i].top_k,
                                         .top_p = rows[i].top_p,
                                         .min_p = rows[i].min_p,
                                         .seed = 100 + i};
        check_distribution(logits, 4, &sampling, rows[i].left);
    }
    /* equals: the lower ids stay */
    static const float equal[] = {1, 1, 1, 1};
    static const double first[] = {0.5, 0.5, 0, 0};
    check_distribution(equal, 4, &(struct tern_sampling){.temperature = 1, .top_k = 2, .top_p = 1},
                       first);
}

struct ranked {
    double weight;
    int32_t id;
};

static int by_weight(const void *a, const void *b)
{
    const struct ranked *x = a;
    const struct ranked *y = b;
    return x->weight != y->weight ? (x->weight < y->weight) - (x->weight > y->weight)
                                  : (x->id > y->id) - (x->id < y->id);
}

/* Marks what a plain sort says may be drawn. */
static void mark_allowed(const float *logits, int n, const struct tern_sampling *s, bool *allowed)
{
    struct ranked items[VOCAB_MAX];
    float best = -INFINITY;
    for (int i = 0; i < n; i++) {
        best = logits[i] > best ? logits[i] : best;
    }
    for (int i = 0; i < n; i++) {
        items[i] = (struct ranked){exp(((double)logits[i] - best) / s->temperature), i};
        allowed[i] = false;
    }
    qsort(items, (size_t)n, sizeof items[0], by_weight);
    int most = s->top_k > 0 && s->top_k < n ? (int)s->top_k : n;
    double total = 0;
    for (int i = 0; i < most; i++) {
        total += items[i].weight;
    }
    double sum = 0;
    for (int i = 0; i < most; i++) {
        bool is_beyond = i > 0 && (s->top_p < 1 && sum > s->top_p * total * (1 + 1e-9));
        if (is_beyond || (i > 0 && items[i].weight < s->min_p)) {
            break;
        }
        allowed[items[i].id] = true;
        sum += items[i].weight;
    }
}

static void test_against_a_sort(void **state)
{
    (void)state;
    struct tern_sampler *sampler;
    expect_ok(tern_sampler_create(VOCAB_MAX, &sampler));
    for (uint64_t round = 0; round < 200; round++) {
        float logits[VOCAB_MAX];
        bool allowed[VOCAB_MAX];
        for (int i = 0; i < VOCAB_MAX; i++) { /* coarse: many are equal */
            logits[i] = (float)(int)(8 * tern_random_normal(round, 1, (uint64_t)i)) / 4;
        }
        struct tern_sampling s = {
            .temperature = 0.2 + 2 * tern_random_uniform(round, 2, 0),
            .top_k = round % 3 == 0 ? 0 : (int64_t)(tern_random_u64(round, 2, 1) % 60),
            .top_p = round % 4 == 0 ? 1 : tern_random_uniform(round, 2, 2),
            .min_p = round % 5 == 0 ? 0.2 * tern_random_uniform(round, 2, 3) : 0,
            .seed = round,
        };
        mark_allowed(logits, VOCAB_MAX, &s, allowed);
        for (int64_t position = 0; position < 100; position++) {
            int32_t id = tern_sampler_pick(sampler, logits, &s, position);
            if (!allowed[id]) {
                fail_msg("round %llu: drew %d, which top_k %lld, top_p %g, min_p %g exclude",
                         (unsigned long long)round, id, (long long)s.top_k, s.top_p, s.min_p);
            }
        }
    }
    tern_sampler_destroy(sampler);
}

static void test_pure(void **state)
{
    (void)state;
    float logits[50] = {0};
    struct tern_sampler *one;
    struct tern_sampler *other;
    expect_ok(tern_sampler_create(50, &one));
    expect_ok(tern_sampler_create(50, &other));
    struct tern_sampling sampling = {.temperature = 1, .top_p = 0.9, .seed = 5};
    struct tern_sampling reseeded = sampling;
    reseeded.seed = 6;
    int differ = 0;
    for (int64_t position = 0; position < 100; position++) {
        int32_t id = tern_sampler_pick(one, logits, &sampling, position);
        differ += tern_sampler_pick(one, logits, &reseeded, 99 - position) != id;
        assert_int_equal(tern_sampler_pick(other, logits, &sampling, position), id);
    }
    assert_true(differ > 80); /* another seed is another text */
    tern_sampler_destroy(one);
    tern_sampler_destroy(other);
}

/* Ids of a large vocabulary, the last ones and those at the edges of blocks too. */
static void test_every_id(void **state)
{
    (void)state;
    enum {
        LARGE = 9001
    };
    static float logits[LARGE];
    struct tern_sampler *sampler;
    expect_ok(tern_sampler_create(LARGE, &sampler));
    for (int i = 0; i < LARGE; i++) {
        logits[i] = (float)tern_random_normal(1, 1, (uint64_t)i);
    }
    for (int i = 0; i < LARGE; i += i % 64 < 60 ? 59 : 1) {
        float kept = logits[i];
        logits[i] = 60; /* nothing else weighs anything */
        for (int k = 0; k < 4; k++) {
            struct tern_sampling s = {.temperature = k == 0 ? 0 : 0.7,
                                      .top_k = k == 2 ? 50 : 0,
                                      .top_p = k == 3 ? 0.9 : 1,
                                      .seed = (uint64_t)i};
            assert_int_equal(tern_sampler_pick(sampler, logits, &s, i), i);
        }
        logits[i] = kept;
    }
    for (int i = 0; i < LARGE; i++) {
        logits[i] = -1;
    }
    int64_t sum = 0;
    for (int64_t position = 0; position < 4000; position++) {
        sum += tern_sampler_pick(sampler, logits, &g_all, position);
    }
    assert_in_range(sum / 4000, 4500 - 250, 4500 + 250); /* 6 sigma */
    tern_sampler_destroy(sampler);
}

#if defined(__x86_64__)
static void expect_same_bits(const struct tern_softmax_level *one,
                             const struct tern_softmax_level *other,
                             uint64_t seed)
{
    float logits[TERN_SOFTMAX_BLOCK + 3];
    float weights[2][TERN_SOFTMAX_BLOCK];
    float found[2][2];
    for (int i = 0; i < TERN_SOFTMAX_BLOCK + 3; i++) {
        logits[i] = (float)(20 * tern_random_normal(seed, 1, (uint64_t)i));
    }
    logits[seed % 100] = seed % 3 == 0 ? NAN : -INFINITY;
    for (int64_t n = 0; n < TERN_SOFTMAX_BLOCK + 3; n++) {
        assert_true(one->largest(logits, n) == other->largest(logits, n));
    }
    one->block(logits, 17, 1.25F, weights[0], &found[0][0], &found[0][1]);
    other->block(logits, 17, 1.25F, weights[1], &found[1][0], &found[1][1]);
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
    assert_memory_equal(found[0], found[1], sizeof found[0]);
}

static void test_levels(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        if (__builtin_cpu_supports("avx2")) {
            expect_same_bits(&tern_softmax_generic, &tern_softmax_avx2, seed);
        }
        if (__builtin_cpu_supports("avx512f")) {
            expect_same_bits(&tern_softmax_generic, &tern_softmax_avx512, seed);
        }
    }
}
#else
static void test_levels(void **state)
{
    (void)state; /* there is one */
}
#endif

static void test_log_sum(void **state)
{
    (void)state;
    float logits[VOCAB_MAX];
    struct tern_sampler *sampler;
    expect_ok(tern_sampler_create(VOCAB_MAX, &sampler));
    for (uint64_t round = 0; round < 50; round++) {
        double sum = 0;
        for (int i = 0; i < VOCAB_MAX; i++) {
            double spread = 1 + (double)round;
            logits[i] = (float)(spread * tern_random_normal(round, 1, (uint64_t)i) - 30);
            sum += exp(logits[i]);
        }
        double found = tern_sampler_log_sum(sampler, logits);
        if (fabs(found - log(sum)) > 1e-6) {
            fail_msg("round %llu: %.9f, expected %.9f", (unsigned long long)round, found, log(sum));
        }
    }
    logits[7] = INFINITY;
    assert_true(isnan(tern_sampler_log_sum(sampler, logits)));
    tern_sampler_destroy(sampler);
}

static void expect_logits(const float *found, const float *expected, int n)
{
    for (int i = 0; i < n; i++) {
        if (found[i] != expected[i]) {
            fail_msg("logit %d is %g, expected %g", i, found[i], expected[i]);
        }
    }
}

static void test_rules(void **state)
{
    (void)state;
    static const float logits[] = {4, -4, 1, 2, 0};
    static const int32_t ids[] = {0, 1, 3, 3, 4, 3}; /* four of the prompt, two of the text */
    static const struct tern_logit_bias bias[] = {{2, 7}, {0, -1}, {2, 1}};
    static const int32_t banned[] = {2, 0};
    struct tern_sampler *sampler;
    expect_ok(tern_sampler_create(5, &sampler));
    struct tern_sampling none = {.top_p = 1, .repetition = 1};
    struct tern_logit_rules rules = {.ids = ids, .prompt_count = 4, .text_count = 2};
    assert_ptr_equal(tern_sampler_adjust(sampler, logits, &none, &rules), logits);
    struct tern_sampling repetition = {.repetition = 2};
    expect_logits(tern_sampler_adjust(sampler, logits, &repetition, &rules),
                  (const float[]){2, -8, 1, 1, 0}, 5);
    rules.prompt_count = 1; /* a token counts as often as the text has it */
    rules.text_count = 5;
    struct tern_sampling counts = {.presence = 10, .frequency = 1};
    expect_logits(tern_sampler_adjust(sampler, logits, &counts, &rules),
                  (const float[]){4, -15, 1, -11, -11}, 5);
    expect_logits(
        tern_sampler_adjust(sampler, logits, &counts, &rules), /* nothing is left behind */
        (const float[]){4, -15, 1, -11, -11}, 5);
    rules = (struct tern_logit_rules){.bias = bias, .bias_count = 3};
    expect_logits(tern_sampler_adjust(sampler, logits, &none, &rules),
                  (const float[]){3, -4, 9, 2, 0}, 5);
    rules = (struct tern_logit_rules){.banned = banned, .banned_count = 2};
    expect_logits(tern_sampler_adjust(sampler, logits, &none, &rules),
                  (const float[]){-INFINITY, -4, -INFINITY, 2, 0}, 5);
    rules.allowed = &(uint32_t){1U << 0 | 1U << 2}; /* there is no other: the ban is off */
    expect_logits(tern_sampler_adjust(sampler, logits, &none, &rules),
                  (const float[]){4, -INFINITY, 1, -INFINITY, -INFINITY}, 5);
    tern_sampler_destroy(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_levels),       CHECKED(test_every_id),   CHECKED(test_log_sum),
        CHECKED(test_rules),        CHECKED(test_greedy),     CHECKED(test_no_numbers),
        CHECKED(test_distribution), CHECKED(test_what_stays), CHECKED(test_against_a_sort),
        CHECKED(test_pure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
