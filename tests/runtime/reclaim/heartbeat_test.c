/* heartbeat_test.c - ranks as threads over real sockets: a good end, a rank that stays in a step, a line that breaks. */
#include "runtime/base/clock.h"
#include "runtime/reclaim/heartbeat.h"
#include "tests/runtime/fixture.h"

#include <pthread.h>

enum {
    RANKS = 4,
    STEPS = 12
};

/* What each rank's farewell said. */
struct words {
    pthread_mutex_t lock;
    int count[RANKS];
    char sentence[RANKS][TERN_PULSE_SENTENCE_BYTES];
    double limit_seconds;
};

struct seat {
    struct words *words;
    int rank;
};

static void farewell(void *context, const char *sentence)
{
    struct seat *seat = context;
    pthread_mutex_lock(&seat->words->lock);
    seat->words->count[seat->rank]++;
    snprintf(seat->words->sentence[seat->rank], TERN_PULSE_SENTENCE_BYTES, "%s", sentence);
    pthread_mutex_unlock(&seat->words->lock);
}

static int count_of(struct words *words, int rank)
{
    pthread_mutex_lock(&words->lock);
    int count = words->count[rank];
    pthread_mutex_unlock(&words->lock);
    return count;
}

static tern_status open_here(struct tern_comm *comm, struct seat *seat, struct tern_heartbeat **out)
{
    const struct tern_heartbeat_options options = {
        .comm = comm,
        .limit_ns = (int64_t)(seat->words->limit_seconds * 1e9),
        .farewell = farewell,
        .context = seat,
    };
    return tern_heartbeat_open(&options, out);
}

static tern_status take_steps(struct tern_comm *comm, struct tern_heartbeat *h)
{
    for (int64_t step = 1; step <= STEPS; step++) {
        tern_heartbeat_mark(h, TERN_PHASE_DATA, step);
        tern_heartbeat_mark(h, TERN_PHASE_COMPUTE, step);
        tern_clock_sleep_ns(2000000);
        tern_heartbeat_mark(h, TERN_PHASE_REDUCE, step);
        TERN_RETURN_IF_ERR(tern_comm_barrier(comm));
    }
    return TERN_OK;
}

static struct words make_words(double limit)
{
    struct words words = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit_seconds = limit};
    return words;
}

/* ---- a good end ---- */

static tern_status end_well(struct tern_comm *comm, void *arg)
{
    struct seat seat = {arg, comm->rank};
    struct tern_heartbeat *h;
    TERN_RETURN_IF_ERR(open_here(comm, &seat, &h));
    MUST(h != NULL, "no heartbeat between %d ranks", comm->size);
    tern_status status = take_steps(comm, h);
    MUST(strlen(tern_heartbeat_host(h, 0)) > 0, "rank 0 has no host");
    tern_heartbeat_rest(h);
    status = status == TERN_OK ? tern_comm_barrier(comm) : status;
    tern_heartbeat_close(h);
    return status;
}

static void test_good_end(void **state)
{
    (void)state;
    struct words words = make_words(20);
    run_ranks(RANKS, end_well, &words);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(words.count[r], 0);
    }
}

/* Rank 1 has ended well and is gone; the others go on for longer than it takes to miss a rank. */
static tern_status leave_early(struct tern_comm *comm, void *arg)
{
    struct seat seat = {arg, comm->rank};
    struct tern_heartbeat *h;
    TERN_RETURN_IF_ERR(open_here(comm, &seat, &h));
    tern_status status = take_steps(comm, h);
    if (comm->rank != 1) {
        tern_heartbeat_mark(h, TERN_PHASE_DRAIN, STEPS);
        tern_clock_sleep_ns((int64_t)(seat.words->limit_seconds / 2 * 1e9));
    }
    tern_heartbeat_rest(h);
    tern_heartbeat_close(h);
    return status == TERN_OK ? tern_comm_barrier(comm) : status;
}

static void test_one_leaves_early(void **state)
{
    (void)state;
    struct words words = make_words(4);
    run_ranks(RANKS, leave_early, &words);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(words.count[r], 0);
    }
}

static tern_status be_alone(struct tern_comm *comm, void *arg)
{
    struct seat seat = {arg, comm->rank};
    struct tern_heartbeat *h;
    TERN_RETURN_IF_ERR(open_here(comm, &seat, &h));
    MUST(h == NULL, "a heartbeat of one rank");
    tern_heartbeat_mark(h, TERN_PHASE_DATA, 1);
    tern_heartbeat_rest(h);
    tern_heartbeat_close(h);
    return TERN_OK;
}

static void test_one_rank(void **state)
{
    (void)state;
    struct words words = make_words(20);
    run_ranks(1, be_alone, &words);
}

/* ---- a step that does not end ---- */

/* Waits for this rank's own farewell: the test's time limit is the limit. */
static void wait_for_word(struct seat *seat)
{
    while (count_of(seat->words, seat->rank) == 0) {
        tern_clock_sleep_ns(1000000);
    }
}

static tern_status stay_in_step(struct tern_comm *comm, void *arg)
{
    struct seat seat = {arg, comm->rank};
    struct tern_heartbeat *h;
    TERN_RETURN_IF_ERR(open_here(comm, &seat, &h));
    TERN_RETURN_IF_ERR(take_steps(comm, h));
    tern_heartbeat_mark(h, TERN_PHASE_DATA, STEPS + 1);
    tern_heartbeat_mark(h, TERN_PHASE_COMPUTE, STEPS + 1);
    if (comm->rank != 2) {
        tern_heartbeat_mark(h, TERN_PHASE_REDUCE, STEPS + 1);
        MUST(tern_comm_barrier(comm) != TERN_OK, "the barrier was passed without rank 2");
    }
    wait_for_word(&seat);
    tern_heartbeat_close(h);
    return TERN_OK;
}

/* Ranks end by abort, so the world's end is no good one: only what was said counts. */
static void run_to_the_end(int ranks,
                           tern_status (*rank_main)(struct tern_comm *comm, void *arg),
                           struct words *words)
{
    const struct tern_inproc_options options = {.ranks = ranks, .timeout_seconds = 100};
    tern_status statuses[RANKS];
    (void)!tern_inproc_run(&options, rank_main, words, statuses);
    for (int r = 0; r < ranks; r++) {
        if (statuses[r] != TERN_OK) {
            fail_msg("rank %d: %s", r, tern_detail());
        }
        assert_int_equal(words->count[r], 1);
        assert_string_equal(words->sentence[r], words->sentence[0]);
    }
}

static void test_long_step(void **state)
{
    (void)state;
    struct words words = make_words(2);
    run_to_the_end(RANKS, stay_in_step, &words);
    assert_contains(words.sentence[0], "step 13 takes 2.0 s, usually 0.0");
    assert_contains(words.sentence[0], "rank 2 (host ");
    assert_contains(words.sentence[0], ") is late; in step 13, forward and backward for ");
    assert_contains(words.sentence[0], "exchange ");
}

/* ---- a line that breaks ---- */

static tern_status break_line(struct tern_comm *comm, void *arg)
{
    struct seat seat = {arg, comm->rank};
    struct tern_heartbeat *h;
    TERN_RETURN_IF_ERR(open_here(comm, &seat, &h));
    TERN_RETURN_IF_ERR(take_steps(comm, h));
    if (comm->rank == 1) { /* without a word */
        tern_heartbeat_close(h);
        MUST(tern_comm_barrier(comm) != TERN_OK, "the barrier was passed");
        farewell(&seat, "");
        return TERN_OK;
    }
    wait_for_word(&seat);
    tern_heartbeat_close(h);
    return TERN_OK;
}

static void test_broken_line(void **state)
{
    (void)state;
    struct words words = make_words(2);
    const struct tern_inproc_options options = {.ranks = RANKS, .timeout_seconds = 100};
    tern_status statuses[RANKS];
    (void)!tern_inproc_run(&options, break_line, &words, statuses);
    for (int r = 0; r < RANKS; r++) {
        if (r != 1) {
            assert_contains(words.sentence[r], "rank 1 (host ");
            assert_contains(words.sentence[r],
                            ") is gone: the connection broke; last heard in step ");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_good_end),  CHECKED(test_one_leaves_early), CHECKED(test_one_rank),
        CHECKED(test_long_step), CHECKED(test_broken_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
