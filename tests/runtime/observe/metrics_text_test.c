/* metrics_text_test.c - what a scraper reads: comments, labels, numbers that are none, buckets that add up. */
#include "runtime/observe/metrics_text.h"
#include "tests/runtime/fixture.h"

#include <math.h>

static struct tern_text g_out;

static int set_up(void **state)
{
    (void)state;
    tern_text_init(&g_out);
    return 0;
}

static int tear_down(void **state)
{
    tern_text_fini(&g_out);
    return check_no_live_blocks(state);
}

static void test_numbers(void **state)
{
    (void)state;
    struct tern_metrics_text text = {.out = &g_out, .labels = ""};
    const struct tern_metric metrics[] = {
        {TERN_METRIC_GAUGE, "share", "Of all.", 0.5},
        {TERN_METRIC_COUNTER, "tokens_total", "So many.", 123456789012.0},
        {TERN_METRIC_GAUGE, "loss", "None yet.", NAN},
        {TERN_METRIC_GAUGE, "above", "All.", INFINITY},
        {TERN_METRIC_GAUGE, "below", "All.", -INFINITY},
    };
    tern_metrics_add(&text, metrics, 5);
    expect_ok(text.status);
    assert_string_equal(g_out.data, "# HELP share Of all.\n# TYPE share gauge\nshare 0.5\n"
                                    "# HELP tokens_total So many.\n# TYPE tokens_total counter\n"
                                    "tokens_total 123456789012\n"
                                    "# HELP loss None yet.\n# TYPE loss gauge\nloss NaN\n"
                                    "# HELP above All.\n# TYPE above gauge\nabove +Inf\n"
                                    "# HELP below All.\n# TYPE below gauge\nbelow -Inf\n");
}

static void test_labels(void **state)
{
    (void)state;
    struct tern_metrics_text text = {.out = &g_out, .labels = "model=\"a \\\"b\\\" %s\""};
    const struct tern_metric metrics[] = {{TERN_METRIC_GAUGE, "ready", "Is it?", 1}};
    tern_metrics_add(&text, metrics, 1);
    expect_ok(text.status);
    assert_string_equal(g_out.data, "# HELP ready Is it?\n# TYPE ready gauge\n"
                                    "ready{model=\"a \\\"b\\\" %s\"} 1\n");
}

static void test_histogram(void **state)
{
    (void)state;
    static const double bounds[] = {0.25, 1};
    static const uint64_t counts[] = {2, 3, 4};
    struct tern_metrics_text text = {.out = &g_out, .labels = ""};
    tern_metrics_histogram(&text, "step", "Time.", bounds, counts, 2, 12.5);
    text.labels = "a=\"b\"";
    tern_metrics_histogram(&text, "wait", "Time.", bounds, counts, 0, 1);
    expect_ok(text.status);
    assert_string_equal(g_out.data, "# HELP step Time.\n# TYPE step histogram\n"
                                    "step_bucket{le=\"0.25\"} 2\nstep_bucket{le=\"1\"} 5\n"
                                    "step_bucket{le=\"+Inf\"} 9\nstep_sum 12.5\nstep_count 9\n"
                                    "# HELP wait Time.\n# TYPE wait histogram\n"
                                    "wait_bucket{a=\"b\",le=\"+Inf\"} 2\n"
                                    "wait_sum{a=\"b\"} 1\nwait_count{a=\"b\"} 2\n");
}

/* A line that has no room is refused as a whole, and nothing follows it. */
static void test_too_long(void **state)
{
    (void)state;
    char name[5000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    struct tern_metrics_text text = {.out = &g_out, .labels = ""};
    tern_metrics_print(&text, "first 1\n");
    tern_metrics_print(&text, "%s 1\n", name);
    assert_int_equal(text.status, TERN_ERR_ARGUMENT);
    tern_metrics_print(&text, "last 1\n");
    assert_int_equal(text.status, TERN_ERR_ARGUMENT);
    assert_string_equal(g_out.data, "first 1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_numbers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_labels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_histogram, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_too_long, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
