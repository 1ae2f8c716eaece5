/* dates_test.c - dates of metadata services, and what is none. */
#include "runtime/base/clock.h"
#include "runtime/reclaim/dates.h"
#include "tests/runtime/fixture.h"

#include <math.h>
#include <time.h>

static void test_good(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double seconds;
    } cases[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2020-04-24T17:11:44Z", 1587748304},
        {"2020-04-24T17:11:44.987654Z", 1587748304},
        {"2020-04-24T19:11:44+02:00", 1587748304},
        {"2020-04-24 11:41:44-0530", 1587748304},
        {"2024-02-29t23:59:60z", 1709251200}, /* a leap second is the next one */
        {"Mon, 19 Sep 2016 18:29:47 GMT", 1474309787},
        {"19 Sep 2016 18:29:47 UTC", 1474309787},
        {"21 Jan 2019 09:00:43 GMT", 1548061243},
        {"1 Jan 2019 00:00:00 GMT", 1546300800},
        {"9999-12-31T23:59:59Z", 253402300799},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double found = -1;
        if (!tern_date_parse(cases[i].text, &found) || found != cases[i].seconds) {
            fail_msg("'%s': found %.0f, expected %.0f", cases[i].text, found, cases[i].seconds);
        }
    }
}

static void test_bad(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "now",
        "2020-04-24",
        "2020-04-24T17:11:44",
        "2020-04-24T17:11:44Zulu",
        "2020-04-24T17:11:44+25:00",
        "2020-13-24T17:11:44Z",
        "2020-00-24T17:11:44Z",
        "2020-04-31T17:11:44Z",
        "2023-02-29T17:11:44Z",
        "2020-04-24T24:00:00Z",
        "2020-04-24T17:60:00Z",
        "1969-12-31T23:59:59Z",
        "-020-04-24T17:11:44Z",
        "20200-04-24T17:11:44Z",
        "Mon, 19 Sep 2016 18:29:47",
        "Mon, 19 Sep 2016 18:29:47 CET",
        "Mon, 32 Sep 2016 18:29:47 GMT",
        "Mon, 31 Feb 2016 18:29:47 GMT",
        "Mon, 19 Spt 2016 18:29:47 GMT",
        "Mon,",
        ",,,",
        "1587748304",
    };
    double found;
    assert_false(tern_date_parse(NULL, &found));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (tern_date_parse(cases[i], &found)) {
            fail_msg("'%s': found %.0f, expected no date", cases[i], found);
        }
    }
}

/* Every cut of a date is no date and no overrun. */
static void test_cut(void **state)
{
    (void)state;
    static const char *const whole[] = {"2020-04-24T19:11:44+02:00",
                                        "Mon, 19 Sep 2016 18:29:47 GMT"};
    for (size_t i = 0; i < 2; i++) {
        for (size_t length = 0; length < strlen(whole[i]); length++) {
            double found;
            char *cut = tern_alloc("test", length + 1);
            memcpy(cut, whole[i], length);
            cut[length] = '\0';
            if (tern_date_parse(cut, &found)) {
                fail_msg("'%s' is taken for a date", cut);
            }
            tern_free(cut);
        }
    }
}

static int64_t at_hundred(void)
{
    return 100000000000;
}

static void test_clock(void **state)
{
    (void)state;
    tern_clock_fake(at_hundred);
    double now = (double)time(NULL);
    double moment = tern_date_to_clock(now + 30);
    assert_true(fabs(moment - 130) < 10);
    assert_true(tern_date_to_clock(now - 1e6) == 0);
    tern_clock_fake(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_good), CHECKED(test_bad), CHECKED(test_cut),
                                       CHECKED(test_clock)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
