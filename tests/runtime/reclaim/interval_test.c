/* interval_test.c - Young's interval, and when a snapshot is due. */
#include "runtime/reclaim/interval.h"
#include "tests/base/check.h"

#include <math.h>

static void test_steps(void **state)
{
    (void)state;
    static const struct {
        double cost, step, mtbf;
        int64_t expected;
    } rows[] = {
        {0.2, 1, 28440, 107}, /* the published example: 7.9 h, 0.2 s */
        {0.5, 1, 28440, 169},
        {6.3, 1, 28440, 630}, /* 599 by Young; a hundredth of the time is more */
        {0.2, 0.5, 28440, 213},
        {1, 100, 3600, 1}, /* never less than every step */
        {1, 1000, 1e9, 45},
        {1e9, 1e-9, 1e9, (int64_t)1 << 40},
        {0, 1, 3600, 1}, /* nothing known */
        {1, 0, 3600, 1},
        {NAN, 1, 3600, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t steps = tern_interval_steps(rows[i].cost, rows[i].step, rows[i].mtbf);
        if (steps != rows[i].expected) {
            fail_msg("row %zu: %lld steps, expected %lld", i, (long long)steps,
                     (long long)rows[i].expected);
        }
    }
}

static void test_given(void **state)
{
    (void)state;
    const struct tern_interval never = {.every = 0};
    const struct tern_interval third = {.every = 3, .last = 7};
    for (int64_t next = 1; next < 20; next++) {
        assert_false(tern_interval_is_due(&never, next));
        assert_int_equal(tern_interval_is_due(&third, next), next % 3 == 0);
    }
}

/* The first one soon, to know what it costs; later ones by that. */
static void test_auto(void **state)
{
    (void)state;
    struct tern_interval interval = {.every = -1, .mtbf = 20000, .last = 10};
    assert_false(tern_interval_is_due(&interval, 11));
    assert_true(tern_interval_is_due(&interval, 12));
    tern_interval_note_step(&interval, 1);
    tern_interval_note_snapshot(&interval, 12, 0); /* begun: not known yet */
    assert_int_equal(interval.last, 12);
    assert_true(interval.cost == 0);
    tern_interval_note_snapshot(&interval, 12, 0.01); /* sqrt(2 * 0.01 * 20000) = 20 */
    assert_false(tern_interval_is_due(&interval, 31));
    assert_true(tern_interval_is_due(&interval, 32));
    for (int i = 0; i < 100; i++) {
        tern_interval_note_step(&interval, 2);
    }
    assert_true(tern_interval_is_due(&interval, 22));
    assert_false(tern_interval_is_due(&interval, 21));
    tern_interval_note_snapshot(&interval, 5, 0.01); /* an older one changes nothing */
    assert_int_equal(interval.last, 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_steps), CHECKED(test_given),
                                       CHECKED(test_auto)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
