/* death_test.c - a rank that dies, stops, gives up or fails: the others end, in time and with a reason. */
#include "comm/inproc/inproc.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "tests/comm/cmocka_all.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANKS = 4,
    ROUNDS = 50,
    VICTIM = 2
};

struct outcome {
    tern_status status[RANKS];
    char detail[RANKS][TERN_DETAIL_BYTES];
    int rounds[RANKS];
    _Atomic int broken; /* rules of the interface that did not hold */
};

static tern_status round_job(struct tern_comm *comm, void *arg)
{
    int64_t value = comm->rank;
    (void)arg;
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(comm, &value, 1));
    return value == comm->size - 1 ? TERN_OK : tern_fail(TERN_ERR_STATE, "wrong maximum");
}

/* After a death every call says why, at once. */
static void check_dead(struct tern_comm *comm, struct outcome *o, uint64_t ticket)
{
    uint64_t more;
    tern_status first = o->status[comm->rank];
    o->broken += tern_comm_poll(comm, ticket) != first;
    o->broken += tern_comm_submit(comm, round_job, NULL, &more) != first;
    o->broken += strcmp(tern_detail(), o->detail[comm->rank]) != 0;
    o->broken += tern_comm_barrier(comm) != first;
}

static tern_status rounds_main(struct tern_comm *comm, void *arg)
{
    struct outcome *o = arg;
    int rank = comm->rank;
    uint64_t ticket = 0;
    tern_status status = TERN_OK;
    for (int i = 0; i < ROUNDS && status == TERN_OK; i++) {
        status = tern_comm_submit(comm, round_job, NULL, &ticket);
        if (status == TERN_OK) {
            status = tern_comm_wait(comm, ticket);
        }
        o->rounds[rank] += status == TERN_OK;
    }
    o->status[rank] = status;
    if (status != TERN_OK) {
        strcpy(o->detail[rank], tern_detail());
        check_dead(comm, o, ticket);
    }
    return status;
}

static struct outcome *run(enum tern_inproc_fate fate, int64_t exchange)
{
    static struct outcome o;
    memset(&o, 0, sizeof o);
    struct tern_inproc_options options = {.ranks = RANKS, .seed = (uint64_t)exchange};
    options.timeout_seconds = 0.3;
    options.delay_ns_max = 5000;
    options.fate = fate;
    options.fate_rank = VICTIM;
    options.fate_exchange = exchange;
    double begin = tern_clock_seconds();
    tern_status status = tern_inproc_run(&options, rounds_main, &o, NULL);
    double took = tern_clock_seconds() - begin;
    assert_true(took < 20); /* "ends", on a loaded machine; the limit is 0.3 s */
    assert_int_equal(o.broken, 0);
    assert_int_equal(tern_mem_stats().live_blocks, 0);
    assert_true((status == TERN_OK) == (fate == TERN_INPROC_LIVES));
    return &o;
}

static void test_all_live(void **state)
{
    (void)state;
    struct outcome *o = run(TERN_INPROC_LIVES, 0);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(o->rounds[r], ROUNDS);
    }
}

/* At every exchange of the first few rounds, the opening included. */
static void test_one_dies(void **state)
{
    (void)state;
    for (int64_t exchange = 1; exchange <= 8; exchange++) {
        struct outcome *o = run(TERN_INPROC_DIES, exchange);
        for (int r = 0; r < RANKS && exchange > 2; r++) {
            assert_int_equal(o->status[r], TERN_ERR_PEER_LOST);
            assert_true(o->rounds[r] < ROUNDS);
        }
        if (exchange > 2) {
            assert_non_null(strstr(o->detail[VICTIM - 1], "is gone"));
        }
    }
}

static void test_one_stops(void **state)
{
    (void)state;
    struct outcome *o = run(TERN_INPROC_STOPS, 9);
    /* Who waits for it times out and says on whom; the rest hear of one who left, or time out too. */
    bool is_named = false;
    for (int r = 0; r < RANKS; r++) {
        assert_true(o->status[r] == TERN_ERR_TIMEOUT || o->status[r] == TERN_ERR_PEER_LOST);
        is_named = is_named || (r != VICTIM && o->status[r] == TERN_ERR_TIMEOUT &&
                                strstr(o->detail[r], "for rank 2 to ") != NULL &&
                                strstr(o->detail[r], "8 bytes (operation ") != NULL);
    }
    assert_true(is_named);
}

static tern_status abort_main(struct tern_comm *comm, void *arg)
{
    (void)arg;
    if (comm->rank == 1) {
        tern_comm_abort(comm, 5);
        tern_comm_abort(comm, 6); /* the first counts */
    }
    return tern_comm_barrier(comm);
}

static void test_abort(void **state)
{
    (void)state;
    struct tern_inproc_options options = {.ranks = 3};
    tern_status statuses[3];
    assert_int_equal(tern_inproc_run(&options, abort_main, NULL, statuses), TERN_ERR_PEER_LOST);
    assert_non_null(strstr(tern_detail(), "rank 1 ended the job with exit code 5"));
    for (int r = 0; r < 3; r++) {
        assert_int_equal(statuses[r], TERN_ERR_PEER_LOST);
    }
    assert_int_equal(tern_mem_stats().live_blocks, 0);
}

static tern_status failing_job(struct tern_comm *comm, void *arg)
{
    (void)arg;
    return comm->rank == 0 ? tern_fail(TERN_ERR_DEVICE, "the adder broke") : TERN_OK;
}

/* A job that fails for its own reason: that ticket and all later ones say so, earlier ones are good. */
static tern_status failing_main(struct tern_comm *comm, void *arg)
{
    _Atomic int *broken = arg;
    uint64_t tickets[3];
    tern_status expected = comm->rank == 0 ? TERN_ERR_DEVICE : TERN_ERR_PEER_LOST;
    *broken += tern_comm_submit(comm, round_job, NULL, &tickets[0]) != TERN_OK;
    *broken += tern_comm_submit(comm, failing_job, NULL, &tickets[1]) != TERN_OK;
    tern_status status = tern_comm_submit(comm, round_job, NULL, &tickets[2]);
    if (status == TERN_OK) {
        *broken += tern_comm_wait(comm, tickets[2]) != expected;
        *broken += comm->rank == 0 && strcmp(tern_detail(), "the adder broke") != 0;
    } else {
        *broken += comm->rank != 0 || status != TERN_ERR_DEVICE;
    }
    *broken += tern_comm_wait(comm, tickets[0]) != TERN_OK;
    *broken += tern_comm_poll(comm, tickets[0]) != expected;
    return TERN_OK;
}

static void test_job_fails(void **state)
{
    (void)state;
    struct tern_inproc_options options = {.ranks = 3, .timeout_seconds = 5};
    _Atomic int broken = 0;
    assert_int_equal(tern_inproc_run(&options, failing_main, &broken, NULL), TERN_OK);
    assert_int_equal(broken, 0);
    assert_int_equal(tern_mem_stats().live_blocks, 0);
}

struct gate {
    _Atomic bool is_open;
    _Atomic int polls;
};

static tern_status gate_job(struct tern_comm *comm, void *arg)
{
    struct gate *gate = arg;
    (void)comm;
    while (!gate->is_open) {
        tern_clock_sleep_ns(100000);
    }
    return TERN_OK;
}

/* While a job cannot end, poll still answers: the job waits for the polls. */
static void test_poll_never_blocks(void **state)
{
    (void)state;
    struct tern_comm *comm;
    struct tern_inproc_options options = {.ranks = 1};
    struct gate gate = {false, 0};
    uint64_t ticket;
    assert_int_equal(tern_inproc_open(&options, &comm), TERN_OK);
    assert_int_equal(tern_comm_submit(comm, gate_job, &gate, &ticket), TERN_OK);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(tern_comm_poll(comm, ticket), TERN_ERR_AGAIN);
    }
    gate.is_open = true;
    assert_int_equal(tern_comm_wait(comm, ticket), TERN_OK);
    assert_int_equal(tern_comm_poll(comm, ticket), TERN_OK);
    tern_comm_close(comm);
}

/* A death seen by one group ends the others on the same world. */
static tern_status groups_main(struct tern_comm *comm, void *arg)
{
    _Atomic int *broken = arg;
    struct tern_comm *half;
    TERN_RETURN_IF_ERR(tern_comm_split(comm, comm->rank / 2, 0, &half));
    if (comm->rank == 3) {
        tern_inproc_doom(comm, TERN_INPROC_DIES);
    }
    tern_status status = tern_comm_barrier(half);
    *broken += comm->rank >= 2 && status != TERN_ERR_PEER_LOST;
    *broken += comm->rank >= 2 && tern_comm_poll(comm, 0) != TERN_ERR_PEER_LOST;
    *broken += tern_comm_barrier(comm) != TERN_ERR_PEER_LOST;
    tern_comm_close(half);
    return TERN_OK;
}

static void test_groups_die_together(void **state)
{
    (void)state;
    struct tern_inproc_options options = {.ranks = 4, .timeout_seconds = 5};
    _Atomic int broken = 0;
    assert_int_equal(tern_inproc_run(&options, groups_main, &broken, NULL), TERN_OK);
    assert_int_equal(broken, 0);
    assert_int_equal(tern_mem_stats().live_blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_live),
        cmocka_unit_test(test_one_dies),
        cmocka_unit_test(test_one_stops),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_job_fails),
        cmocka_unit_test(test_poll_never_blocks),
        cmocka_unit_test(test_groups_die_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
