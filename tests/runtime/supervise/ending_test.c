/* ending_test.c - every ending that was seen, and what follows; the rule of starting again over whole histories. */
#include "runtime/supervise/ending.h"
#include "tests/runtime/fixture.h"

static void test_table(void **state)
{
    (void)state;
    static const struct {
        enum tern_launch_state state;
        int status;
        enum tern_verdict verdict;
        int exit_code;
    } rows[] = {
        /* a record with an end decides, whatever mpirun says: seen for a committed checkpoint */
        {TERN_LAUNCH_RECLAIMED, 33, TERN_VERDICT_RECLAIMED, 33},
        {TERN_LAUNCH_RECLAIMED, 1, TERN_VERDICT_RECLAIMED, 33}, /* SIGTERM to mpirun */
        {TERN_LAUNCH_RECLAIMED, 0, TERN_VERDICT_RECLAIMED, 33},
        {TERN_LAUNCH_RECLAIMED, 34, TERN_VERDICT_RECLAIMED, 33},
        {TERN_LAUNCH_RECLAIMED, 137, TERN_VERDICT_RECLAIMED, 33},
        {TERN_LAUNCH_RECLAIMED, 139, TERN_VERDICT_RECLAIMED, 33},
        {TERN_LAUNCH_RECLAIMED, 205, TERN_VERDICT_RECLAIMED, 33},
        {TERN_LAUNCH_FINISHED, 0, TERN_VERDICT_FINISHED, 0},
        {TERN_LAUNCH_FINISHED, 137, TERN_VERDICT_FINISHED, 0},
        {TERN_LAUNCH_FINISHED, 205, TERN_VERDICT_FINISHED, 0},
        {TERN_LAUNCH_PEER_LOST, 34, TERN_VERDICT_LOST, 34},
        {TERN_LAUNCH_PEER_LOST, 137, TERN_VERDICT_LOST, 34},
        {TERN_LAUNCH_PEER_LOST, 0, TERN_VERDICT_LOST, 34},
        {TERN_LAUNCH_FAILED, 1, TERN_VERDICT_FAILED, 1},
        {TERN_LAUNCH_FAILED, 34, TERN_VERDICT_FAILED, 1},
        {TERN_LAUNCH_FAILED, 0, TERN_VERDICT_FAILED, 1},
        {TERN_LAUNCH_FAILED, 2, TERN_VERDICT_REFUSED, 2},
        /* nobody could say how it ended */
        {TERN_LAUNCH_RUNNING, 137, TERN_VERDICT_LOST, 34},
        {TERN_LAUNCH_RUNNING, 205, TERN_VERDICT_LOST, 34},
        {TERN_LAUNCH_RUNNING, 33, TERN_VERDICT_LOST, 34},
        {TERN_LAUNCH_RUNNING, 1, TERN_VERDICT_LOST, 34},
        {TERN_LAUNCH_RUNNING, 0, TERN_VERDICT_LOST, 34}, /* no success without a record */
        /* it never came to a record */
        {TERN_LAUNCH_NO_RECORD, 0, TERN_VERDICT_FAILED, 1},
        {TERN_LAUNCH_NO_RECORD, 2, TERN_VERDICT_REFUSED, 2},
        {TERN_LAUNCH_NO_RECORD, 1, TERN_VERDICT_NOT_STARTED, 34},
        {TERN_LAUNCH_NO_RECORD, 33, TERN_VERDICT_NOT_STARTED, 34},
        {TERN_LAUNCH_NO_RECORD, 132, TERN_VERDICT_NOT_STARTED, 34},
        {TERN_LAUNCH_NO_RECORD, 139, TERN_VERDICT_NOT_STARTED, 34},
        {TERN_LAUNCH_NO_RECORD, 205, TERN_VERDICT_NOT_STARTED, 34},
        {TERN_LAUNCH_NO_RECORD, 255, TERN_VERDICT_NOT_STARTED, 34},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tern_ending ending = {rows[i].state, rows[i].status};
        enum tern_verdict verdict = tern_ending_judge(&ending);
        if (verdict != rows[i].verdict || tern_verdict_exit_code(verdict) != rows[i].exit_code) {
            fail_msg("record '%s', status %d: found %s (%d), expected %s (%d)",
                     tern_launch_state_name(rows[i].state), rows[i].status,
                     tern_verdict_name(verdict), tern_verdict_exit_code(verdict),
                     tern_verdict_name(rows[i].verdict), rows[i].exit_code);
        }
    }
}

static void test_words(void **state)
{
    (void)state;
    for (int i = TERN_LAUNCH_RUNNING; i < TERN_LAUNCH_STATE_COUNT; i++) {
        const char *name = tern_launch_state_name((enum tern_launch_state)i);
        assert_int_equal(tern_launch_state_of(name), i);
    }
    assert_int_equal(tern_launch_state_of("no record"), TERN_LAUNCH_NO_RECORD);
    assert_int_equal(tern_launch_state_of("finishe"), TERN_LAUNCH_NO_RECORD);
    assert_int_equal(tern_launch_state_of(NULL), TERN_LAUNCH_NO_RECORD);
}

static const struct tern_restart_limits g_any = {.restarts = -1,
                                                 .stalls = 4,
                                                 .delay_seconds_max = 5};

static struct tern_restart after(enum tern_verdict verdict,
                                 bool came_ahead,
                                 struct tern_restart_count *count)
{
    const struct tern_restart_facts facts = {.verdict = verdict, .came_ahead = came_ahead};
    return tern_restart_decide(&g_any, &facts, count);
}

static void test_stalls(void **state)
{
    (void)state;
    struct tern_restart_count count = {0};
    const double delays[] = {1, 2, 4};
    /* ahead: at once, for ever */
    for (int i = 0; i < 1000; i++) {
        struct tern_restart next =
            after(i % 2 ? TERN_VERDICT_LOST : TERN_VERDICT_RECLAIMED, true, &count);
        assert_true(next.starts && next.delay_seconds == 0);
    }
    assert_int_equal(count.restarts, 1000);
    /* three that are not, then one that is: the count of stalls begins anew */
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++) {
            struct tern_restart next = after(TERN_VERDICT_LOST, false, &count);
            assert_true(next.starts && next.delay_seconds == delays[i]);
        }
        assert_true(after(TERN_VERDICT_LOST, true, &count).delay_seconds == 0);
    }
    /* the fourth in a row is the last */
    for (int i = 0; i < 3; i++) {
        assert_true(after(TERN_VERDICT_NOT_STARTED, false, &count).starts);
    }
    struct tern_restart last = after(TERN_VERDICT_LOST, false, &count);
    assert_false(last.starts);
    assert_int_equal(last.exit_code, 1);
    assert_contains(last.reason, "no further");
}

static void test_delay_is_bounded(void **state)
{
    (void)state;
    const struct tern_restart_limits limits = {
        .restarts = -1, .stalls = 100000, .delay_seconds_max = 60};
    const struct tern_restart_facts facts = {.verdict = TERN_VERDICT_LOST};
    struct tern_restart_count count = {0};
    double before = 0;
    for (int i = 0; i < 5000; i++) {
        struct tern_restart next = tern_restart_decide(&limits, &facts, &count);
        assert_true(next.starts && next.delay_seconds >= before && next.delay_seconds <= 60);
        before = next.delay_seconds;
    }
    assert_true(before == 60);
}

static void test_limits(void **state)
{
    (void)state;
    const struct tern_restart_limits two = {.restarts = 2, .stalls = 100, .delay_seconds_max = 1};
    const struct tern_restart_facts ahead = {.verdict = TERN_VERDICT_RECLAIMED, .came_ahead = true};
    const struct tern_restart_facts own = {
        .verdict = TERN_VERDICT_RECLAIMED, .came_ahead = true, .is_own = true};
    struct tern_restart_count count = {0};
    for (int i = 0; i < 2; i++) {
        assert_true(tern_restart_decide(&two, &ahead, &count).starts);
        for (int k = 0; k < 5; k++) { /* to grow is none of them */
            assert_true(tern_restart_decide(&two, &own, &count).starts);
        }
    }
    struct tern_restart end = tern_restart_decide(&two, &ahead, &count);
    assert_false(end.starts);
    assert_int_equal(end.exit_code, 33); /* whoever watches this one may go on */
    assert_contains(end.reason, "--max-restarts");
    const struct tern_restart_limits none = {.restarts = 0, .stalls = 100, .delay_seconds_max = 1};
    const struct tern_restart_facts lost = {.verdict = TERN_VERDICT_LOST, .came_ahead = true};
    count = (struct tern_restart_count){0};
    end = tern_restart_decide(&none, &lost, &count);
    assert_false(end.starts);
    assert_int_equal(end.exit_code, 34);
}

/* For a batch job: what is reclaimed goes back to the queue, ranks that are lost start again here. */
static void test_ends_reclaimed(void **state)
{
    (void)state;
    const struct tern_restart_limits batch = {
        .restarts = 5, .stalls = 4, .delay_seconds_max = 5, .ends_reclaimed = true};
    struct tern_restart_facts facts = {.verdict = TERN_VERDICT_LOST, .came_ahead = true};
    struct tern_restart_count count = {0};
    assert_true(tern_restart_decide(&batch, &facts, &count).starts);
    facts.verdict = TERN_VERDICT_RECLAIMED;
    struct tern_restart end = tern_restart_decide(&batch, &facts, &count);
    assert_false(end.starts);
    assert_int_equal(end.exit_code, 33);
    assert_contains(end.reason, "from outside");
}

/* Whoever is about to be taken away starts nothing more. */
static void test_leaving(void **state)
{
    (void)state;
    struct tern_restart_facts facts = {
        .verdict = TERN_VERDICT_RECLAIMED, .is_leaving = true, .is_own = true, .came_ahead = true};
    struct tern_restart_count count = {0};
    struct tern_restart end = tern_restart_decide(&g_any, &facts, &count);
    assert_false(end.starts);
    assert_int_equal(end.exit_code, 33);
    assert_contains(end.reason, "taken away");
}

/* Asked to end: never again, whatever came of it; so with what cannot get better. */
static void test_ends(void **state)
{
    (void)state;
    static const struct {
        enum tern_verdict verdict;
        int code;
    } rows[] = {
        {TERN_VERDICT_FINISHED, 0},     {TERN_VERDICT_RECLAIMED, 33}, {TERN_VERDICT_LOST, 34},
        {TERN_VERDICT_NOT_STARTED, 34}, {TERN_VERDICT_FAILED, 1},     {TERN_VERDICT_REFUSED, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int own = 0; own < 2; own++) {
            const struct tern_restart_facts facts = {
                .verdict = rows[i].verdict, .is_asked = true, .is_own = own, .came_ahead = true};
            struct tern_restart_count count = {0};
            struct tern_restart end = tern_restart_decide(&g_any, &facts, &count);
            assert_false(end.starts);
            assert_int_equal(end.exit_code, rows[i].code);
            assert_int_equal(count.restarts, 0);
        }
    }
    struct tern_restart_count count = {0};
    assert_false(after(TERN_VERDICT_FAILED, true, &count).starts);
    assert_false(after(TERN_VERDICT_REFUSED, true, &count).starts);
    assert_false(after(TERN_VERDICT_FINISHED, true, &count).starts);
    /* stopped to grow, and lost instead: as any that is lost */
    const struct tern_restart_facts facts = {.verdict = TERN_VERDICT_LOST, .is_own = true};
    assert_true(tern_restart_decide(&g_any, &facts, &count).starts);
    assert_int_equal(count.stalls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_table),   CHECKED(test_words),
        CHECKED(test_stalls),  CHECKED(test_delay_is_bounded),
        CHECKED(test_limits),  CHECKED(test_ends_reclaimed),
        CHECKED(test_leaving), CHECKED(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
