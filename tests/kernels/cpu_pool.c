/* cpu_pool.c - the thread pool runs every task once, sleeps and wakes, and comes and goes. */
#include "kernels/cpu/threads.h"
#include "runtime/base/mem.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

enum {
    TASKS_MAX = 1000
};

struct count_job {
    int hits[TASKS_MAX]; /* not atomic: the pool's own barrier must order them */
    atomic_int bad_thread;
    int threads;
};

static void count_task(void *arg, int64_t task, int thread)
{
    struct count_job *job = arg;
    job->hits[task]++;
    if (thread < 0 || thread >= job->threads) {
        atomic_fetch_add(&job->bad_thread, 1);
    }
}

static void check_run(struct tern_cpu_pool *pool, int threads, int64_t count)
{
    struct count_job job = {.threads = threads};
    tern_cpu_pool_run(pool, count, count_task, &job);
    assert_int_equal(atomic_load(&job.bad_thread), 0);
    for (int64_t i = 0; i < TASKS_MAX; i++) {
        assert_int_equal(job.hits[i], i < count ? 1 : 0);
    }
}

static void test_every_task_runs_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 9; threads++) {
        struct tern_cpu_pool *pool;
        assert_int_equal(tern_cpu_pool_create(threads, &pool), TERN_OK);
        for (int64_t count = 0; count <= 40; count++) {
            check_run(pool, threads, count);
        }
        check_run(pool, threads, TASKS_MAX);
        tern_cpu_pool_destroy(pool);
    }
}

/* Enough loops in a row that the 16-bit generation wraps around. */
static void test_many_loops(void **state)
{
    (void)state;
    struct tern_cpu_pool *pool;
    assert_int_equal(tern_cpu_pool_create(3, &pool), TERN_OK);
    for (int i = 0; i < 70000; i++) {
        struct count_job job = {.threads = 3};
        tern_cpu_pool_run(pool, 3, count_task, &job);
        assert_int_equal(job.hits[0] + job.hits[1] + job.hits[2], 3);
    }
    tern_cpu_pool_destroy(pool);
}

struct meeting {
    atomic_int arrived;
    int expected;
};

static void meet_task(void *arg, int64_t task, int thread)
{
    struct meeting *meeting = arg;
    (void)task;
    (void)thread;
    atomic_fetch_add(&meeting->arrived, 1);
    while (atomic_load(&meeting->arrived) < meeting->expected) {
        sched_yield();
    }
}

/* Tasks that wait for each other end only when as many threads run them, sleeping ones included:
 * between the loops the caller is away for longer than a worker spins. */
static void test_sleepers_wake(void **state)
{
    (void)state;
    enum {
        THREADS = 4
    };
    struct tern_cpu_pool *pool;
    assert_int_equal(tern_cpu_pool_create(THREADS, &pool), TERN_OK);
    for (int i = 0; i < 200; i++) {
        struct meeting meeting = {.expected = THREADS};
        atomic_init(&meeting.arrived, 0);
        tern_cpu_pool_run(pool, THREADS, meet_task, &meeting);
        assert_int_equal(atomic_load(&meeting.arrived), THREADS);
        for (int j = 0; j < i % 8; j++) {
            sched_yield();
        }
    }
    tern_cpu_pool_destroy(pool);
}

static void test_comes_and_goes(void **state)
{
    (void)state;
    int64_t live = tern_mem_stats().live_blocks;
    for (int i = 0; i < 300; i++) {
        struct tern_cpu_pool *pool;
        int threads = 1 + i % 5;
        assert_int_equal(tern_cpu_pool_create(threads, &pool), TERN_OK);
        if (i % 3 != 0) {
            check_run(pool, threads, i % 17);
        }
        tern_cpu_pool_destroy(pool);
    }
    assert_int_equal(tern_mem_stats().live_blocks, live);
}

static void *own_pool_main(void *arg)
{
    intptr_t wrong = 0;
    struct tern_cpu_pool *pool;
    (void)arg;
    if (tern_cpu_pool_create(2, &pool) != TERN_OK) {
        return (void *)1; /* NOLINT */
    }
    for (int i = 0; i < 2000; i++) {
        struct count_job job = {.threads = 2};
        tern_cpu_pool_run(pool, 8, count_task, &job);
        for (int t = 0; t < 8; t++) {
            wrong += job.hits[t] != 1;
        }
    }
    tern_cpu_pool_destroy(pool);
    return (void *)wrong; /* NOLINT */
}

/* Eight pools of two threads, as eight ranks on a small machine would have. */
static void test_oversubscribed_pools(void **state)
{
    (void)state;
    enum {
        RANKS = 8
    };
    pthread_t ranks[RANKS];
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(pthread_create(&ranks[i], NULL, own_pool_main, NULL), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        void *wrong;
        assert_int_equal(pthread_join(ranks[i], &wrong), 0);
        assert_null(wrong);
    }
}

static void name_task(void *arg, int64_t task, int thread)
{
    char(*names)[16] = arg;
    (void)task;
    pthread_getname_np(pthread_self(), names[thread], sizeof names[thread]);
}

static void meet_and_name(void *arg, int64_t task, int thread)
{
    struct {
        struct meeting *meeting;
        char (*names)[16];
    } *both = arg;
    name_task(both->names, task, thread);
    meet_task(both->meeting, task, thread);
}

static void test_threads_are_named(void **state)
{
    (void)state;
    char names[3][16] = {{0}};
    struct meeting meeting = {.expected = 3};
    struct {
        struct meeting *meeting;
        char (*names)[16];
    } both = {&meeting, names};
    struct tern_cpu_pool *pool;
    atomic_init(&meeting.arrived, 0);
    assert_int_equal(tern_cpu_pool_create(3, &pool), TERN_OK);
    tern_cpu_pool_run(pool, 3, meet_and_name, &both);
    tern_cpu_pool_destroy(pool);
    assert_string_equal(names[1], "tern-cpu-1");
    assert_string_equal(names[2], "tern-cpu-2");
}

static void test_thread_count_follows_affinity(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(tern_cpu_thread_count(0), CPU_COUNT(&before));
    assert_int_equal(tern_cpu_thread_count(7), 7);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &before)) {
            CPU_SET(i, &one);
            break;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(tern_cpu_thread_count(0), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void test_refuses_bad_counts(void **state)
{
    (void)state;
    struct tern_cpu_pool *pool;
    assert_int_equal(tern_cpu_pool_create(0, &pool), TERN_ERR_ARGUMENT);
    assert_int_equal(tern_cpu_pool_create(TERN_CPU_THREADS_MAX + 1, &pool), TERN_ERR_ARGUMENT);
    assert_non_null(strstr(tern_detail(), "1025"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_task_runs_once),
        cmocka_unit_test(test_many_loops),
        cmocka_unit_test(test_sleepers_wake),
        cmocka_unit_test(test_comes_and_goes),
        cmocka_unit_test(test_oversubscribed_pools),
        cmocka_unit_test(test_threads_are_named),
        cmocka_unit_test(test_thread_count_follows_affinity),
        cmocka_unit_test(test_refuses_bad_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
