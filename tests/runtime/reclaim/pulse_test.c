/* pulse_test.c - tables of what ranks say, and whom the judge names. */
#include "runtime/reclaim/pulse.h"
#include "tests/base/check.h"

#include <stdio.h>
#include <string.h>

enum {
    RANKS = 4
};
static const int64_t second = 1000000000;
static struct tern_pulse_view g_views[RANKS];
static struct tern_pulse_verdict g_verdict;

/* All in step 7, three waiting for others, rank 2 computing, for that many seconds. */
static void make_group(double seconds)
{
    static const char *const hosts[RANKS] = {"a", "a", "b", "b"};
    for (int r = 0; r < RANKS; r++) {
        g_views[r] = (struct tern_pulse_view){
            .pulse = {.phase = r == 2 ? TERN_PHASE_COMPUTE : TERN_PHASE_REDUCE,
                      .step = 7,
                      .phase_ns = (int64_t)(seconds * 1e9),
                      .step_ns = (int64_t)(seconds * 1e9) + 1,
                      .exchanges = 40 + r,
                      .bytes = 1000},
            .is_watched = true,
            .lost_ns = -1,
            .host = hosts[r],
        };
    }
}

static bool judge(double usual)
{
    return tern_pulse_judge(g_views, RANKS, 20 * second, (int64_t)(usual * 1e9), &g_verdict);
}

static void expect_verdict(double usual, tern_status status, const char *beginning)
{
    if (!judge(usual)) {
        fail_msg("no verdict, expected '%s'", beginning);
    }
    if (strncmp(g_verdict.sentence, beginning, strlen(beginning)) != 0) {
        fail_msg("found    '%s'\nexpected '%s'", g_verdict.sentence, beginning);
    }
    assert_int_equal(g_verdict.status, status);
    assert_contains(g_verdict.sentence, "(limit 20.0 s: reclaim.hang_seconds)");
}

static void test_all_is_well(void **state)
{
    (void)state;
    make_group(3);
    assert_false(judge(2.9));
    make_group(19.9);
    assert_false(judge(0.1));
    make_group(500); /* not five times the usual */
    assert_false(judge(101));
    make_group(500); /* what is usual is not known yet */
    assert_false(judge(0));
}

static void test_late(void **state)
{
    (void)state;
    make_group(20.1);
    expect_verdict(
        0.5, TERN_ERR_TIMEOUT,
        "step 7 takes 20.1 s, usually 0.5 s: rank 2 (host b) is late; in step 7, forward "
        "and backward for 20.1 s, exchange 42 (1000 bytes so far); rank 0 is in step 7, "
        "waiting for the other ranks, for 20.1 s");
    /* a rank that has not come to the step is the one, wherever it is */
    make_group(21);
    g_views[2].pulse.phase = TERN_PHASE_REDUCE;
    g_views[3].pulse.phase = TERN_PHASE_CHECKPOINT;
    g_views[3].pulse.step = 6;
    g_views[3].pulse.step_ns = 0;
    expect_verdict(
        0.5, TERN_ERR_TIMEOUT,
        "step 7 takes 21.0 s, usually 0.5 s: rank 3 (host b) is late; in step 6, checkpoint");
    make_group(25);
    g_views[1].pulse.phase = TERN_PHASE_DATA;
    expect_verdict(
        1, TERN_ERR_TIMEOUT,
        "step 7 takes 25.0 s, usually 1 s: ranks 1, 2 (the first on host a) are late; in "
        "step 7, waiting for its batch");
    make_group(25);
    g_views[2].pulse.phase = TERN_PHASE_REDUCE;
    expect_verdict(
        1, TERN_ERR_TIMEOUT,
        "step 7 takes 25.0 s, usually 1 s: all ranks wait for each other, and it does not end");
    make_group(25);
    for (int r = 0; r < RANKS; r++) {
        g_views[r].pulse.phase = TERN_PHASE_DATA;
    }
    expect_verdict(1, TERN_ERR_TIMEOUT, "step 7 takes 25.0 s, usually 1 s: all ranks are late");
}

static void test_silent(void **state)
{
    (void)state;
    make_group(19);
    g_views[2].silent_ns = 19 * second;
    assert_false(judge(0.1));
    g_views[2].silent_ns = 20 * second + 1;
    expect_verdict(0.1, TERN_ERR_TIMEOUT,
                   "rank 2 (host b) is stopped or cut off: nothing was heard for 20.0 s; last "
                   "heard in step 7, forward and backward");
    /* the step is over its limit before the silence is: it waits for the better word */
    make_group(21);
    g_views[2].silent_ns = 15 * second;
    assert_false(judge(0.1));
    /* a host */
    make_group(21);
    g_views[2].silent_ns = g_views[3].silent_ns = 21 * second;
    expect_verdict(0.1, TERN_ERR_TIMEOUT,
                   "ranks 2, 3 (the first on host b) are stopped or cut off");
    /* one that never said anything is not watched, one that has left is not missed */
    g_views[2].is_watched = false;
    g_views[3].pulse.has_left = true;
    assert_false(judge(100));
}

static void test_gone(void **state)
{
    (void)state;
    make_group(1);
    g_views[1].lost_ns = 4 * second;
    assert_false(judge(0.1)); /* its launcher may have more to say */
    g_views[1].lost_ns = 5 * second;
    expect_verdict(0.1, TERN_ERR_PEER_LOST,
                   "rank 1 (host a) is gone: the connection broke; last heard in step 7, waiting "
                   "for the other ranks");
    g_views[1].pulse.has_left = true;
    assert_false(judge(0.1));
}

static void test_warning(void **state)
{
    (void)state;
    char sentence[TERN_PULSE_SENTENCE_BYTES];
    make_group(2.6);
    assert_true(tern_pulse_is_late(g_views, RANKS, second / 2, sentence));
    assert_contains(sentence, "rank 2 (host b) is late");
    assert_false(tern_pulse_is_late(g_views, RANKS, second, sentence));
    make_group(0.9); /* too short to be worth a word */
    assert_false(tern_pulse_is_late(g_views, RANKS, second / 100, sentence));
}

/* Many ranks: the sentence stays within its bounds. */
static void test_many_ranks(void **state)
{
    (void)state;
    enum {
        MANY = 3000
    };
    static struct tern_pulse_view views[MANY];
    char host[200];
    memset(host, 'h', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    for (int r = 0; r < MANY; r++) {
        views[r] = (struct tern_pulse_view){.is_watched = true,
                                            .silent_ns = r > 0 ? 30 * second : 0,
                                            .lost_ns = -1,
                                            .host = host,
                                            .pulse = {.phase = 77, .step = INT64_MAX}};
    }
    assert_true(tern_pulse_judge(views, MANY, 20 * second, second, &g_verdict));
    assert_contains(g_verdict.sentence, "ranks 1, 2, 3, 4, 5, 6, 7, 8, ...");
    assert_true(strlen(g_verdict.sentence) < TERN_PULSE_SENTENCE_BYTES);
}

/* ---- stragglers ---- */

struct pace {
    double means[RANKS], sorted[RANKS];
    int slow[RANKS];
    struct tern_stragglers s;
    int named; /* times */
    int last;
    double factor;
    bool is_over; /* said with the last */
};

static void begin(struct pace *p, int size)
{
    memset(p, 0, sizeof *p);
    p->s = (struct tern_stragglers){p->means, p->sorted, p->slow, size, 0};
    p->last = -1;
}

static void run(struct pace *p, int steps, const double *seconds)
{
    for (int i = 0; i < steps; i++) {
        bool is_over;
        int rank = tern_stragglers_add(&p->s, seconds, &p->factor, &is_over);
        if (rank >= 0) {
            p->named++;
            p->last = rank;
            p->is_over = is_over;
        }
    }
}

static void test_straggler(void **state)
{
    (void)state;
    struct pace p;
    static const double even[RANKS] = {1, 1.1, 0.9, 1.2};
    static const double slow[RANKS] = {1, 1, 2.5, 1};
    static const double unknown[RANKS] = {1, 0, 9, 1};
    begin(&p, RANKS);
    run(&p, 500, even);
    assert_int_equal(p.named, 0);
    run(&p, 10, slow);
    assert_int_equal(p.named, 0); /* it may pass */
    run(&p, 200, slow);
    assert_int_equal(p.named, 1);
    assert_int_equal(p.last, 2);
    assert_false(p.is_over);
    assert_true(p.factor > 1.5 && p.factor <= 2.5);
    run(&p, 300, unknown);
    assert_int_equal(p.named, 1);
    run(&p, 1000, slow); /* it stays: said again */
    assert_int_equal(p.named, 2);
    run(&p, 200, even);
    assert_int_equal(p.named, 3);
    assert_true(p.is_over);
}

static void test_straggler_of_two(void **state)
{
    (void)state;
    struct pace p;
    static const double slow[2] = {2, 1};
    begin(&p, 2);
    run(&p, 60, slow);
    assert_int_equal(p.named, 1);
    assert_int_equal(p.last, 0);
    assert_true(p.factor > 1.99 && p.factor < 2.01);
    begin(&p, 1);
    run(&p, 60, slow);
    assert_int_equal(p.named, 0);
}

/* Two at once: both are named, one a step. */
static void test_two_stragglers(void **state)
{
    (void)state;
    struct pace p;
    static const double slow[RANKS] = {1, 3, 1, 4};
    begin(&p, RANKS);
    run(&p, 100, slow);
    assert_int_equal(p.named, 2);
    assert_int_equal(p.last, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_all_is_well),    CHECKED(test_late),
        CHECKED(test_silent),         CHECKED(test_gone),
        CHECKED(test_warning),        CHECKED(test_many_ranks),
        CHECKED(test_straggler),      CHECKED(test_straggler_of_two),
        CHECKED(test_two_stragglers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
