/* inproc_test.c - the primitives over threads, with and without delays, and the world of one. */
#include "comm/engine.h"
#include "comm/inproc/inproc.h"
#include "runtime/base/mem.h"
#include "tests/comm/checks.h"
#include "tests/comm/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

static tern_status primitives_main(struct tern_comm *comm, void *arg)
{
    (void)arg;
    int failures = tern_check_primitives(comm);
    return failures == 0 ? TERN_OK : tern_fail(TERN_ERR_STATE, "%d checks failed", failures);
}

static void run(int ranks, int64_t delay_ns_max, uint64_t seed)
{
    struct tern_inproc_options options = {.ranks = ranks, .seed = seed};
    options.delay_ns_max = delay_ns_max;
    tern_status status = tern_inproc_run(&options, primitives_main, NULL, NULL);
    if (status != TERN_OK) {
        fail_msg("%d ranks, delay %lld ns, seed %llu: %s", ranks, (long long)delay_ns_max,
                 (unsigned long long)seed, tern_detail());
    }
    assert_int_equal(tern_mem_stats().live_blocks, 0);
}

static void test_primitives(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 3, 4, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run(sizes[i], 0, 1);
    }
}

static void test_primitives_with_delays(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        run(3, 20000, seed);
        run(4, 20000, seed);
    }
}

static void test_self(void **state)
{
    (void)state;
    struct tern_comm *comm;
    assert_int_equal(tern_self_open(&comm), TERN_OK);
    assert_string_equal(comm->table->name, "self");
    assert_int_equal(comm->local_size, 1);
    assert_int_equal(tern_check_primitives(comm), 0);
    assert_int_equal(tern_check_lanes(comm, 8, 1000, 10, 5), 0);
    tern_comm_close(comm);
    assert_int_equal(tern_mem_stats().live_blocks, 0);
}

/* Ranks that are out of step are told so. */
static tern_status mismatch_main(struct tern_comm *comm, void *arg)
{
    (void)arg;
    unsigned char data[64] = {0};
    size_t bytes = comm->rank == 0 ? 64 : 32;
    struct tern_comm_message message = {
        1 - comm->rank, comm->rank == 0, {(uint64_t)(uintptr_t)data}, bytes};
    return tern_comm_exchange(comm, &message, 1);
}

static void test_mismatch(void **state)
{
    (void)state;
    struct tern_inproc_options options = {.ranks = 2, .timeout_seconds = 5};
    tern_status statuses[2];
    assert_int_not_equal(tern_inproc_run(&options, mismatch_main, NULL, statuses), TERN_OK);
    assert_int_equal(statuses[1], TERN_ERR_STATE);
    assert_int_equal(statuses[0], TERN_ERR_PEER_LOST); /* rank 1 left */
    assert_int_equal(tern_mem_stats().live_blocks, 0);
}

static void test_refusals(void **state)
{
    (void)state;
    struct tern_comm *comm;
    assert_int_equal(tern_self_open(&comm), TERN_OK);
    struct tern_comm_message message = {3, true, {0}, 0};
    assert_int_equal(tern_comm_exchange(comm, &message, 1), TERN_ERR_ARGUMENT);
    assert_non_null(strstr(tern_detail(), "rank 3"));
    assert_int_equal(tern_comm_broadcast(comm, &message, 1, 1), TERN_ERR_ARGUMENT);
    assert_int_equal(tern_comm_barrier(comm), TERN_OK); /* it lives on */
    tern_comm_close(comm);
    tern_comm_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self),     cmocka_unit_test(test_primitives),
        cmocka_unit_test(test_mismatch), cmocka_unit_test(test_primitives_with_delays),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
