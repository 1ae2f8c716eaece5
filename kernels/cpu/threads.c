/* threads.c - the pool: workers join an open loop, take task numbers, leave; they spin briefly,
 * then sleep.
 *
 * One 32-bit word holds the state: [generation:16 | open:1 | joined:15]. The caller fills the job,
 * then opens a new generation; a worker joins by adding 1 while the word is open, so the job cannot
 * change under it; the caller closes the word when the task numbers run out and waits until joined
 * is 0. A worker that wakes late finds the word closed and has missed nothing: nobody waits for a
 * thread that the scheduler has not run. That is what keeps eight ranks on two cores moving. */
#include "kernels/cpu/threads.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STATE_JOINED     0x00007fffu
#define STATE_OPEN       0x00008000u
#define STATE_GENERATION 0xffff0000u
#define GENERATION_ONE   0x00010000u

/* About 30 us on current x86 cores (a pause is 40 to 140 cycles): longer than the gap between two
 * loops of a layer, shorter than what a neighbour on an oversubscribed core would miss. */
enum {
    SPIN_PAUSES = 1000
};

struct worker {
    struct tern_cpu_pool *pool;
    pthread_t thread;
    int index;
};

struct tern_cpu_pool {
    _Alignas(64) atomic_uint state;
    atomic_int sleepers;      /* workers that are, or are about to be, in futex_wait */
    atomic_bool caller_waits; /* the caller sleeps until joined is 0 */
    atomic_bool stop;
    _Alignas(64) atomic_int_fast64_t next; /* first task number not yet taken */
    _Alignas(64) int64_t count;
    tern_cpu_task task;
    void *arg;
    int worker_count;
    struct worker workers[];
};

static void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void futex_wait(atomic_uint *word, unsigned expected)
{
    (void)syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake_all(atomic_uint *word)
{
    (void)syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

int tern_cpu_thread_count(int requested)
{
    if (requested > 0) {
        return requested < TERN_CPU_THREADS_MAX ? requested : TERN_CPU_THREADS_MAX;
    }
    /* The kernel's mask may be wider than cpu_set_t: grow until it fits. */
    for (size_t cpus = 1024; cpus <= 1u << 18; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == NULL) {
            break;
        }
        int rc = sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), set);
        int error = errno;
        int found = rc == 0 ? CPU_COUNT_S(CPU_ALLOC_SIZE(cpus), set) : 0;
        CPU_FREE(set);
        if (rc == 0) {
            return found < TERN_CPU_THREADS_MAX ? found : TERN_CPU_THREADS_MAX;
        }
        if (error != EINVAL) {
            break;
        }
    }
    return 1;
}

static void take_tasks(struct tern_cpu_pool *pool, int thread)
{
    int64_t count = pool->count;
    for (;;) {
        int64_t i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (i >= count) {
            return;
        }
        pool->task(pool->arg, i, thread);
    }
}

/* Joins the loop whose state was seen; false when it changed or is closed. */
static bool try_join(struct tern_cpu_pool *pool, unsigned seen)
{
    return (seen & STATE_OPEN) != 0 &&
           atomic_compare_exchange_strong_explicit(&pool->state, &seen, seen + 1,
                                                   memory_order_acquire, memory_order_relaxed);
}

static void leave(struct tern_cpu_pool *pool)
{
    unsigned before = atomic_fetch_sub(&pool->state, 1);
    if ((before & (STATE_JOINED | STATE_OPEN)) == 1 && atomic_load(&pool->caller_waits)) {
        futex_wake_all(&pool->state);
    }
}

static void sleep_until_changed(struct tern_cpu_pool *pool, unsigned seen)
{
    atomic_fetch_add(&pool->sleepers, 1);
    /* stop is read after sleepers is raised, as the caller writes it before it reads sleepers. */
    if (!atomic_load(&pool->stop)) {
        futex_wait(&pool->state, seen);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void *worker_main(void *arg)
{
    struct worker *self = arg;
    struct tern_cpu_pool *pool = self->pool;
    unsigned done = 0; /* the generation in which this worker has found no more tasks */
    bool has_done = false;
    int spins = 0;
    while (!atomic_load(&pool->stop)) {
        unsigned seen = atomic_load(&pool->state);
        bool fresh = !has_done || (seen & STATE_GENERATION) != done;
        if (fresh && try_join(pool, seen)) {
            take_tasks(pool, self->index);
            done = seen & STATE_GENERATION;
            has_done = true;
            leave(pool);
            spins = 0;
        } else if (spins < SPIN_PAUSES) {
            spins++;
            cpu_pause();
        } else if (!(fresh && (seen & STATE_OPEN) != 0)) {
            sleep_until_changed(pool, seen);
        }
    }
    return NULL;
}

static int start_worker(struct worker *worker)
{
    int error = tern_thread_start(&worker->thread, worker_main, worker);
    if (error == 0) {
        char name[16];
        (void)snprintf(name, sizeof name, "tern-cpu-%d", worker->index);
        (void)pthread_setname_np(worker->thread, name);
    }
    return error;
}

tern_status tern_cpu_pool_create(int threads, struct tern_cpu_pool **out)
{
    if (threads < 1 || threads > TERN_CPU_THREADS_MAX) {
        return tern_fail(TERN_ERR_ARGUMENT, "cpu pool: %d threads, expected 1 to %d", threads,
                         TERN_CPU_THREADS_MAX);
    }
    size_t workers = (size_t)threads - 1;
    struct tern_cpu_pool *pool =
        tern_alloc_zero("cpu pool", 1, sizeof *pool + workers * sizeof(struct worker));
    if (pool == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cpu pool: no memory for %d threads", threads);
    }
    atomic_init(&pool->state, 0);
    atomic_init(&pool->sleepers, 0);
    atomic_init(&pool->caller_waits, false);
    atomic_init(&pool->stop, false);
    atomic_init(&pool->next, 0);
    for (size_t i = 0; i < workers; i++) {
        struct worker *worker = &pool->workers[i];
        worker->pool = pool;
        worker->index = (int)i + 1;
        int error = start_worker(worker);
        if (error != 0) {
            tern_status status =
                tern_fail_errno(TERN_ERR_MEMORY, error, "cpu pool: cannot start thread %d of %d",
                                (int)i + 2, threads);
            tern_cpu_pool_destroy(pool);
            return status;
        }
        pool->worker_count++;
    }
    *out = pool;
    return TERN_OK;
}

void tern_cpu_pool_destroy(struct tern_cpu_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    atomic_store(&pool->stop, true);
    /* A new, closed generation: whoever is between its check of stop and futex_wait does not fall
     * asleep. */
    atomic_fetch_add(&pool->state, GENERATION_ONE);
    futex_wake_all(&pool->state);
    for (int i = 0; i < pool->worker_count; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
    tern_free(pool);
}

/* Waits until every worker that joined has left. */
static void wait_for_joined(struct tern_cpu_pool *pool)
{
    for (int spins = 0; spins < SPIN_PAUSES; spins++) {
        if ((atomic_load_explicit(&pool->state, memory_order_acquire) & STATE_JOINED) == 0) {
            return;
        }
        cpu_pause();
    }
    atomic_store(&pool->caller_waits, true);
    for (;;) {
        unsigned seen = atomic_load(&pool->state);
        if ((seen & STATE_JOINED) == 0) {
            break;
        }
        futex_wait(&pool->state, seen);
    }
    atomic_store(&pool->caller_waits, false);
}

void tern_cpu_pool_run(struct tern_cpu_pool *pool, int64_t count, tern_cpu_task task, void *arg)
{
    if (count <= 0) {
        return;
    }
    if (pool->worker_count == 0 || count == 1) {
        for (int64_t i = 0; i < count; i++) {
            task(arg, i, 0);
        }
        return;
    }
    unsigned before = atomic_load_explicit(&pool->state, memory_order_relaxed);
    TERN_CHECK((before & (STATE_OPEN | STATE_JOINED)) == 0); /* nested or concurrent call */
    pool->count = count;
    pool->task = task;
    pool->arg = arg;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store(&pool->state, ((before & STATE_GENERATION) + GENERATION_ONE) | STATE_OPEN);
    if (atomic_load(&pool->sleepers) > 0) {
        futex_wake_all(&pool->state);
    }
    take_tasks(pool, 0);
    atomic_fetch_and(&pool->state, ~STATE_OPEN);
    wait_for_joined(pool);
}
