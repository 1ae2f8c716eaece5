/* lane_tree_test.c - the same bits as a serial tree for every number of lanes and ranks. */
#include "comm/inproc/inproc.h"
#include "runtime/base/mem.h"
#include "tests/comm/checks.h"
#include "tests/comm/cmocka_all.h"

#include <stdlib.h>

struct size {
    int lanes;
    int64_t n, cuts_step;
};

static tern_status lanes_main(struct tern_comm *comm, void *arg)
{
    const struct size *size = arg;
    int failures = tern_check_lanes(comm, size->lanes, size->n, size->cuts_step, 11);
    return failures == 0 ? TERN_OK : tern_fail(TERN_ERR_STATE, "%d checks failed", failures);
}

static void run(int ranks, int lanes, int64_t n, int64_t cuts_step, int64_t delay_ns_max)
{
    struct size size = {lanes, n, cuts_step};
    struct tern_inproc_options options = {.ranks = ranks, .seed = (uint64_t)n};
    options.delay_ns_max = delay_ns_max;
    tern_status status = tern_inproc_run(&options, lanes_main, &size, NULL);
    if (status != TERN_OK) {
        fail_msg("%d ranks, %d lanes, %lld floats: %s", ranks, lanes, (long long)n, tern_detail());
    }
    assert_int_equal(tern_mem_stats().live_blocks, 0);
}

static void test_every_shape(void **state)
{
    (void)state;
    for (int lanes = 1; lanes <= 16; lanes *= 2) {
        for (int ranks = 1; ranks <= lanes; ranks++) {
            run(ranks, lanes, 1003, 17, 0);
        }
    }
}

/* Vectors of several chunks, of fewer elements than ranks, and of none. */
static void test_lengths(void **state)
{
    (void)state;
    const int ranks[] = {2, 3, 4, 7, 8};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        run(ranks[i], 8, 600001, 1000, 0);
        run(ranks[i], 8, 3, 1, 0);
        run(ranks[i], 8, 0, 1, 0);
        run(ranks[i], 8, 5000, 5000, 0); /* one rank has all */
    }
    run(64, 64, 2000, 1, 0);
    run(43, 64, 2000, 1, 0);
}

static void test_delays(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks++) {
        run(ranks, 8, 2000, 1, 300000);
    }
}

/* A rank is lost while chunks are posted ahead: everyone ends, and frees its vectors at once, which no
 * peer may read any more (the address sanitizer looks). */
static void test_loss(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++) {
        for (int64_t exchange = 4; exchange <= 10; exchange++) {
            struct size size = {8, 600001, 1000};
            struct tern_inproc_options options = {.ranks = ranks, .seed = 5, .delay_ns_max = 50000};
            tern_status statuses[4];
            options.timeout_seconds = 0.2;
            options.fate = exchange % 2 == 0 ? TERN_INPROC_DIES : TERN_INPROC_STOPS;
            options.fate_rank = 1;
            options.fate_exchange = exchange / 2;
            assert_int_not_equal(tern_inproc_run(&options, lanes_main, &size, statuses), TERN_OK);
            for (int r = 0; r < ranks; r++) {
                assert_int_not_equal(statuses[r], TERN_OK);
            }
            assert_int_equal(tern_mem_stats().live_blocks, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_shape),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_delays),
        cmocka_unit_test(test_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
