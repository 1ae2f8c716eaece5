/* schedule_test.c - the learning rate: values by paper, and what must hold for every shape of
 * run. */
#include "runtime/train/schedule.h"
#include "tests/runtime/fixture.h"

#include <math.h>

static const char *const g_names[] = {"cosine", "linear", "constant", "wsd"};

static struct tern_config_optimizer optimizer(enum tern_schedule schedule, int64_t warmup)
{
    return (struct tern_config_optimizer){.lr = 1,
                                          .lr_min = 0.1,
                                          .schedule = schedule,
                                          .warmup_steps = warmup,
                                          .decay_fraction = 0.1};
}

static void test_by_paper(void **state)
{
    (void)state;
    static const struct {
        enum tern_schedule schedule;
        int64_t warmup, step, steps;
        double fraction, lr;
    } rows[] = {
        {TERN_SCHEDULE_COSINE, 0, 0, 100, 0.1, 1},
        {TERN_SCHEDULE_COSINE, 0, 50, 100, 0.1, 0.55},
        {TERN_SCHEDULE_COSINE, 0, 100, 100, 0.1, 0.1},
        {TERN_SCHEDULE_COSINE, 20, 60, 100, 0.1, 0.55},
        {TERN_SCHEDULE_LINEAR, 0, 25, 100, 0.1, 0.775},
        {TERN_SCHEDULE_LINEAR, 50, 75, 100, 0.1, 0.55},
        {TERN_SCHEDULE_CONSTANT, 0, 99, 100, 0.1, 1},
        {TERN_SCHEDULE_WSD, 0, 89, 100, 0.1, 1},
        {TERN_SCHEDULE_WSD, 0, 95, 100, 0.1, 0.55},
        {TERN_SCHEDULE_WSD, 0, 99, 100, 0, 1},
        {TERN_SCHEDULE_WSD, 0, 50, 100, 1, 0.55},
        {TERN_SCHEDULE_WSD, 50, 75, 100, 1, 0.55},
        /* warm-up: lr (step + 1) / (warmup + 1) */
        {TERN_SCHEDULE_COSINE, 9, 0, 100, 0.1, 0.1},
        {TERN_SCHEDULE_COSINE, 9, 8, 100, 0.1, 0.9},
        /* the shortest runs */
        {TERN_SCHEDULE_COSINE, 0, 0, 1, 0.1, 1},
        {TERN_SCHEDULE_LINEAR, 1, 0, 1, 0.1, 0.5},
        {TERN_SCHEDULE_WSD, 1, 0, 1, 0.1, 0.5},
        {TERN_SCHEDULE_WSD, 0, 0, 1, 0.1, 1},
        {TERN_SCHEDULE_COSINE, 10, 9, 10, 0.1, 10.0 / 11},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_config_optimizer o = optimizer(rows[i].schedule, rows[i].warmup);
        o.decay_fraction = rows[i].fraction;
        double found = tern_schedule_lr(&o, rows[i].step, rows[i].steps);
        if (!(fabs(found - rows[i].lr) < 1e-12)) {
            fail_msg("%s, warm-up %d, step %d of %d: found %.17g, expected %.17g",
                     g_names[rows[i].schedule], (int)rows[i].warmup, (int)rows[i].step,
                     (int)rows[i].steps, found, rows[i].lr);
        }
    }
}

/* Rises to the peak, then never rises again, never leaves [lr_min, lr]. */
static void check_run(const struct tern_config_optimizer *o, int64_t steps)
{
    double last = 0;
    for (int64_t step = 0; step < steps; step++) {
        double lr = tern_schedule_lr(o, step, steps);
        bool is_rising = step < o->warmup_steps;
        bool is_good = is_rising                 ? lr > last && lr < o->lr
                       : step == o->warmup_steps ? lr == o->lr
                                                 : lr <= last && lr >= o->lr_min;
        if (!is_good) {
            fail_msg("%s, warm-up %d, decay %g, step %d of %d: %.17g after %.17g",
                     g_names[o->schedule], (int)o->warmup_steps, o->decay_fraction, (int)step,
                     (int)steps, lr, last);
        }
        last = lr;
    }
}

static void test_every_shape(void **state)
{
    (void)state;
    static const double fractions[] = {0, 0.001, 0.1, 0.5, 1};
    for (int schedule = TERN_SCHEDULE_COSINE; schedule <= TERN_SCHEDULE_WSD; schedule++) {
        for (int64_t steps = 1; steps <= 60; steps += steps < 5 ? 1 : 11) {
            for (int64_t warmup = 0; warmup <= steps; warmup++) {
                for (size_t f = 0; f < sizeof fractions / sizeof fractions[0]; f++) {
                    struct tern_config_optimizer o =
                        optimizer((enum tern_schedule)schedule, warmup);
                    o.decay_fraction = fractions[f];
                    check_run(&o, steps);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_by_paper), CHECKED(test_every_shape)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
