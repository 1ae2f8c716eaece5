/* ledger_fixture.h - what the tests of the ledger share: a folder, a clock of their own, a ledger that runs by it. */
#ifndef TERN_TESTS_RUNTIME_OBSERVE_LEDGER_FIXTURE_H
#define TERN_TESTS_RUNTIME_OBSERVE_LEDGER_FIXTURE_H

#include "runtime/base/clock.h"
#include "runtime/observe/ledger.h"
#include "tests/runtime/fixture.h"

#include <math.h>
#include <stdatomic.h>

static char g_root[TERN_PATH_BYTES];
static _Atomic int64_t g_now_ns = 1000000000;

static inline int64_t fake_now(void)
{
    return atomic_load(&g_now_ns);
}

static inline int set_up(void **state)
{
    (void)state;
    make_folder(g_root);
    tern_clock_fake(fake_now);
    return 0;
}

static inline int tear_down(void **state)
{
    tern_clock_fake(NULL);
    arm(NULL);
    remove_folder(g_root);
    return check_no_live_blocks(state);
}

static inline const char *ledger_path(void)
{
    static char path[TERN_PATH_BYTES];
    expect_ok(tern_path_join(path, g_root, "ledger.csv"));
    return path;
}

#define assert_near(a, b, most) \
    do { \
        double a_ = (a), b_ = (b); \
        if (!(fabs(a_ - b_) <= (most))) { \
            fail_msg("%s is %.9g, expected %.9g within %g", #a, a_, b_, (double)(most)); \
        } \
    } while (0)

static inline void advance(double seconds)
{
    atomic_fetch_add(&g_now_ns, (int64_t)(seconds * 1e9));
}

/* A ledger whose wall clock is the fake one. */
static inline void start_at(struct tern_ledger *ledger, const char *launch, int machines)
{
    struct tern_ledger_options options = {.run_dir = g_root,
                                          .launch = launch,
                                          .machines = machines,
                                          .ranks = 4,
                                          .price = 1.5,
                                          .currency = "USD"};
    tern_ledger_start(ledger);
    int64_t now = 1000000000000 + fake_now() / 1000;
    ledger->began_us = ledger->counted_us = ledger->cut_us = now;
    ledger->open.from_us = ledger->open.to_us = now;
    advance(1);
    expect_ok(tern_ledger_open(ledger, &options));
}

/* Plain sums of the columns, without knowing what they mean. */
static inline void sum_columns(double seconds[TERN_LEDGER_KIND_COUNT])
{
    char *text;
    size_t bytes;
    char *line_end = NULL;
    expect_ok(tern_file_read(ledger_path(), 1 << 30, &text, &bytes));
    memset(seconds, 0, TERN_LEDGER_KIND_COUNT * sizeof seconds[0]);
    for (char *line = strtok_r(text, "\n", &line_end); line != NULL;
         line = strtok_r(NULL, "\n", &line_end)) {
        double machines = 0;
        for (int column = 0; strncmp(line, "launch,", 7) != 0; column++) {
            char *comma = strchr(line, ',');
            double value = strtod(line, NULL);
            machines = column == 4 ? value : machines;
            if (column >= 11 && column < 11 + TERN_LEDGER_KIND_COUNT) {
                seconds[column - 11] += value * machines;
            }
            if (comma == NULL) {
                break;
            }
            line = comma + 1;
        }
    }
    tern_free(text);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
