/* nccl_judge_test.c - who is named, for every way in which a group can come to a halt. */
#include "comm/nccl/judge.h"
#include "tests/comm/cmocka_all.h"

#include <string.h>

enum {
    SIZE = 4
};

static const int64_t LIMIT_NS = (int64_t)30 * 1000000000;

static int64_t seconds(double s)
{
    return (int64_t)(s * 1e9);
}

/* All ranks in exchange 2 of operation 17, since `waited` seconds. */
static void all_in_it(struct tern_view *views, double waited)
{
    static const char *const hosts[SIZE] = {"a", "a", "b", "b"};
    for (int r = 0; r < SIZE; r++) {
        views[r] = (struct tern_view){
            .place = {.enqueued = 18,
                      .entered = 17,
                      .bytes = 1048576,
                      .waited_ns = seconds(waited),
                      .step = 2,
                      .kind = TERN_COLLECTIVE_EXCHANGE,
                      .peer = r ^ 1,
                      .opened = 1},
            .silent_ns = seconds(0.2),
            .lost_ns = -1,
            .error_ns = -1,
            .host = hosts[r],
            .error = "",
        };
    }
}

/* Not in it: the device is done with operation 16 and the program has enqueued `enqueued`. */
static void hold_back(struct tern_view *view, uint64_t enqueued)
{
    view->place.entered = 16;
    view->place.enqueued = enqueued;
    view->place.kind = TERN_COLLECTIVE_NONE;
    view->place.waited_ns = 0;
    view->place.peer = -1;
}

static void expect(const struct tern_view *views,
                   tern_status status,
                   const char *start,
                   const char *part)
{
    struct tern_verdict verdict;
    assert_true(tern_judge(views, SIZE, LIMIT_NS, &verdict));
    print_message("%s\n", verdict.sentence);
    assert_int_equal(verdict.status, status);
    if (strncmp(verdict.sentence, start, strlen(start)) != 0) {
        fail_msg("found '%s', expected '%s...'", verdict.sentence, start);
    }
    if (strstr(verdict.sentence, part) == NULL) {
        fail_msg("found '%s', expected '...%s...'", verdict.sentence, part);
    }
}

static void expect_none(const struct tern_view *views)
{
    struct tern_verdict verdict;
    if (tern_judge(views, SIZE, LIMIT_NS, &verdict)) {
        fail_msg("no reason for: %s", verdict.sentence);
    }
}

static void test_good(void **state)
{
    (void)state;
    struct tern_view views[SIZE];
    all_in_it(views, 1);
    expect_none(views);
    all_in_it(views, 25);
    hold_back(&views[2], 16);
    expect_none(views); /* late, but not yet */
    views[2].silent_ns = seconds(20);
    expect_none(views); /* silent, but not yet */
    for (int r = 0; r < SIZE; r++) {
        hold_back(&views[r], 16); /* a long computation on every rank: nobody waits */
        views[r].silent_ns = 0;
    }
    expect_none(views);
}

static void test_lost(void **state)
{
    (void)state;
    struct tern_view views[SIZE];
    all_in_it(views, 2);
    hold_back(&views[2], 16);
    views[2].lost_ns = seconds(0.1);
    expect_none(views); /* what else broke is still to be heard */
    views[2].lost_ns = seconds(2.1);
    for (int r = 0; r < SIZE; r++) {
        views[r].place.waited_ns = seconds(0.1);
    }
    expect_none(views); /* somebody just came to it: perhaps all others are still to come */
    for (int r = 0; r < SIZE; r++) {
        views[r].place.waited_ns = seconds(2);
    }
    expect(views, TERN_ERR_PEER_LOST, "rank 2 (host b) is gone",
           "operation 17, exchange 2 of rank 0 (1048576 bytes with rank 1), was entered by ranks "
           "0-1, 3, not yet by rank 2 when last heard; rank 0 waits");
    hold_back(&views[1], 16); /* alive: what it says is so */
    expect(views, TERN_ERR_PEER_LOST, "rank 2 (host b) is gone",
           "entered by ranks 0, 3, not by rank 1, not yet by rank 2 when last heard;");
    views[3].lost_ns = seconds(0.5); /* the host went: both are named */
    expect(views, TERN_ERR_PEER_LOST, "ranks 2-3 (the first on host b) are gone", "operation 17");
    views[2].has_left = views[3].has_left = true; /* the good end */
    expect_none(views);
}

/* A dead rank makes its peers' NCCL complain: the death is the reason. */
static void test_error(void **state)
{
    (void)state;
    struct tern_view views[SIZE];
    all_in_it(views, 2);
    views[3].error_ns = seconds(1);
    views[3].error = "NCCL: remote error";
    expect_none(views);
    views[3].error_ns = seconds(3);
    expect(views, TERN_ERR_PEER_LOST, "rank 3 (host b) reports: NCCL: remote error",
           "operation 17");
    views[1].error_ns = seconds(4); /* earlier */
    views[1].error = "an illegal memory access";
    expect(views, TERN_ERR_PEER_LOST, "rank 1 (host a) reports: an illegal", "operation 17");
    views[0].lost_ns = seconds(0.1);
    expect_none(views);
    views[0].lost_ns = seconds(2.5);
    expect(views, TERN_ERR_PEER_LOST, "rank 0 (host a) is gone", "operation 17");
}

static void test_silent(void **state)
{
    (void)state;
    struct tern_view views[SIZE];
    all_in_it(views, 29);
    views[1].silent_ns = seconds(29.5); /* stopped inside the collective */
    expect(views, TERN_ERR_TIMEOUT, "rank 1 (host a) is stopped or cut off",
           "entered by ranks 0-3; rank 0 waits");
    hold_back(&views[1], 16);
    expect(views, TERN_ERR_TIMEOUT, "rank 1 (host a) is stopped or cut off",
           "not yet by rank 1 when last heard");
    for (int r = 0; r < SIZE; r++) {
        hold_back(&views[r], 16);
    }
    expect(views, TERN_ERR_TIMEOUT, "rank 1 (host a) is stopped or cut off", "nobody waits");
}

static void test_late(void **state)
{
    (void)state;
    struct tern_view views[SIZE];
    all_in_it(views, 29);
    hold_back(&views[3], 16);
    expect(views, TERN_ERR_TIMEOUT, "rank 3 (host b) is late: the program has not come",
           "not by rank 3");
    views[3].place.enqueued = 17; /* it has come to it, and its GPU not */
    expect(views, TERN_ERR_TIMEOUT, "rank 3 (host b) is late: the GPU is still", "not by rank 3");
    views[3].place.enqueued = 19;
    expect(views, TERN_ERR_TIMEOUT, "rank 3 (host b) is late: the GPU is still", "not by rank 3");
    /* rank 2 is still in operation 16, where it waits for rank 3: rank 2 is not to blame */
    views[2].place.entered = 16;
    views[2].place.waited_ns = seconds(28);
    views[3].place.entered = 15;
    views[3].place.enqueued = 15;
    expect(views, TERN_ERR_TIMEOUT, "rank 3 (host b) is late",
           "operation 16, exchange 2 of rank 2");
}

static void test_idle(void **state)
{
    (void)state;
    struct tern_view views[SIZE];
    all_in_it(views, 29);
    views[0].place.kind = TERN_COLLECTIVE_NONE; /* between two exchanges of the operation */
    views[0].place.enqueued = 17;
    expect(views, TERN_ERR_TIMEOUT, "rank 0 (host a) is late: the program has not gone on inside",
           "entered by ranks 0-3");
}

static void test_stuck(void **state)
{
    (void)state;
    struct tern_view views[SIZE];
    all_in_it(views, 29);
    expect(views, TERN_ERR_TIMEOUT, "all ranks are in it", "operation 17");
}

static void test_opening(void **state)
{
    (void)state;
    struct tern_view views[SIZE];
    all_in_it(views, 29);
    for (int r = 0; r < SIZE; r++) {
        views[r].place =
            (struct tern_place){.kind = TERN_COLLECTIVE_OPEN, .peer = -1, .waited_ns = seconds(28)};
    }
    views[1].place = (struct tern_place){.peer = -1};
    expect(views, TERN_ERR_TIMEOUT, "rank 1 (host a) is late",
           "operation 0, opening, was entered by ranks 0, 2-3, not by rank 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),   cmocka_unit_test(test_lost),    cmocka_unit_test(test_error),
        cmocka_unit_test(test_silent), cmocka_unit_test(test_late),    cmocka_unit_test(test_idle),
        cmocka_unit_test(test_stuck),  cmocka_unit_test(test_opening),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
