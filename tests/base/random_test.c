/* random_test.c - Philox against its published answers, and what is drawn from it. */
#include "runtime/base/random.h"
#include "tests/base/check.h"

#include <math.h>
#include <string.h>

enum {
    DRAWS = 200000
};

/* Known answers of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds). */
static void test_known_answers(void **state)
{
    (void)state;
    const struct {
        uint64_t seed, stream, index;
        uint32_t expected[4];
    } rows[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        /* key a4093822 299f31d0, counter 243f6a88 85a308d3 13198a2e 03707344 */
        {0x299f31d0a4093822,
         0x0370734413198a2e,
         0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t out[4];
        tern_philox4x32(rows[i].seed, rows[i].stream, rows[i].index, out);
        assert_memory_equal(out, rows[i].expected, sizeof out);
    }
}

static void test_uniform(void **state)
{
    (void)state;
    double sum = 0;
    double squares = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = tern_random_uniform(7, TERN_STREAM_TEST, i);
        assert_true(x >= 0 && x < 1);
        sum += x;
        squares += x * x;
    }
    double mean = sum / DRAWS;
    double variance = squares / DRAWS - mean * mean;
    double sigma = sqrt(1.0 / 12 / DRAWS);
    print_message("uniform: mean %.6f variance %.6f\n", mean, variance);
    assert_true(fabs(mean - 0.5) < 5 * sigma);
    assert_true(fabs(variance - 1.0 / 12) < 5 * sigma);
}

static void test_normal(void **state)
{
    (void)state;
    double sum[5] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = tern_random_normal(11, TERN_STREAM_TEST, i);
        assert_true(isfinite(x));
        double power = 1;
        for (int k = 1; k <= 4; k++) {
            power *= x;
            sum[k] += power;
        }
    }
    print_message("normal: moments %.4f %.4f %.4f %.4f\n", sum[1] / DRAWS, sum[2] / DRAWS,
                  sum[3] / DRAWS, sum[4] / DRAWS);
    double sigma = 1 / sqrt(DRAWS); /* var(x^k) = (2k-1)!! - E(x^k)^2: 1, 2, 15, 96 */
    assert_true(fabs(sum[1] / DRAWS) < 5 * sigma);
    assert_true(fabs(sum[2] / DRAWS - 1) < 5 * sqrt(2) * sigma);
    assert_true(fabs(sum[3] / DRAWS) < 5 * sqrt(15) * sigma);
    assert_true(fabs(sum[4] / DRAWS - 3) < 5 * sqrt(96) * sigma);
}

static void test_streams_differ(void **state)
{
    (void)state;
    uint64_t one = tern_random_stream_id(TERN_STREAM_INIT, 1);
    uint64_t two = tern_random_stream_id(TERN_STREAM_INIT, 2);
    uint64_t other = tern_random_stream_id(TERN_STREAM_SHUFFLE, 1);
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t x = tern_random_u64(1, one, i);
        assert_true(x == tern_random_u64(1, one, i));
        assert_true(x != tern_random_u64(1, two, i));
        assert_true(x != tern_random_u64(1, other, i));
        assert_true(x != tern_random_u64(2, one, i));
        assert_true(x != tern_random_u64(1, one, i + 1));
    }
}

/* Every n up to 600, and some around powers of two: each value is taken exactly once. */
static void test_permute_is_a_bijection(void **state)
{
    (void)state;
    enum {
        MOST = 70000
    };
    static uint8_t seen[MOST];
    const uint64_t large[] = {1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537, 69999};
    for (uint64_t k = 1; k <= 600 + sizeof large / sizeof large[0]; k++) {
        uint64_t n = k <= 600 ? k : large[k - 601];
        for (uint64_t seed = 0; seed < 2; seed++) {
            memset(seen, 0, n);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t to = tern_random_permute(seed, TERN_STREAM_SHUFFLE, n, i);
                if (to >= n || seen[to] != 0) {
                    fail_msg("n %llu seed %llu: %llu goes to %llu, which is %s",
                             (unsigned long long)n, (unsigned long long)seed, (unsigned long long)i,
                             (unsigned long long)to, to >= n ? "outside" : "taken");
                }
                seen[to] = 1;
            }
        }
    }
}

/* Beyond what a table could hold: in range, distinct, and not the identity. */
static void test_permute_large(void **state)
{
    (void)state;
    const uint64_t n = ((uint64_t)1 << 62) - 5;
    uint64_t before = 0;
    int fixed = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t to = tern_random_permute(3, TERN_STREAM_SHUFFLE, n, n - 1 - i);
        assert_true(to < n);
        assert_true(i == 0 || to != before);
        fixed += to == n - 1 - i;
        before = to;
    }
    assert_int_equal(fixed, 0);
    int moved = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        moved += tern_random_permute(1, TERN_STREAM_SHUFFLE, 1000, i) !=
                 tern_random_permute(2, TERN_STREAM_SHUFFLE, 1000, i);
    }
    print_message("another seed moves %d of 1000\n", moved);
    assert_true(moved > 980);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_known_answers),
        CHECKED(test_uniform),
        CHECKED(test_normal),
        CHECKED(test_streams_differ),
        CHECKED(test_permute_is_a_bijection),
        CHECKED(test_permute_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
