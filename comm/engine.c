/* engine.c - the progress thread of a communicator: jobs in order, tickets, death, start and end. */
#include "comm/engine.h"

#include "comm/engine_impl.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <time.h>

/* How long close waits for the backend to take its leave after all ranks met. */
enum {
    STOP_SECONDS_MAX = 20,
    /* How late a short sleep of the progress thread may end; the usual 50 us are longer than the sleep. */
    TIMER_SLACK_NS = 1000
};

static void *tagged_alloc(const char *tag, size_t bytes)
{
    return tern_alloc(tag, bytes);
}

const struct tern_transport_host tern_comm_engine_host = {tagged_alloc, tern_free, tern_fail};

void tern_transport_init(struct tern_transport *transport, const struct tern_transport_table *table)
{
    memset(transport, 0, sizeof *transport);
    transport->table = table;
    transport->host = &tern_comm_engine_host;
    transport->context_max = INT32_MAX;
    atomic_init(&transport->context_next, 1);
}

static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The first death counts. Under the lock. */
static void engine_die(struct tern_comm_engine *engine, tern_status status, const char *detail)
{
    if (!atomic_load(&engine->is_dead)) {
        engine->status = status;
        snprintf(engine->detail, sizeof engine->detail, "%s", detail);
        atomic_store(&engine->is_dead, true);
    }
    pthread_cond_broadcast(&engine->news);
}

static tern_status run_job(struct tern_comm_engine *engine, const struct tern_comm_engine_job *job)
{
    int64_t wall = tern_comm_engine_now_ns();
    int64_t cpu = cpu_ns();
    engine->exchange_of_job = 0;
    tern_status status = job->run(&engine->comm, job->arg);
    if (status != TERN_OK) {
        tern_comm_engine_cancel(engine);
    }
    TERN_CHECK(!engine->ahead.is_under_way);
    struct tern_comm_counters *c = &engine->comm.counters;
    atomic_fetch_add_explicit(&c->busy_ns, tern_comm_engine_now_ns() - wall, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->cpu_ns, cpu_ns() - cpu, memory_order_relaxed);
    return status;
}

/* Takes jobs until the engine dies, or is closing with none left. */
static void run_jobs(struct tern_comm_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    while (!atomic_load(&engine->is_dead)) {
        uint64_t ticket = atomic_load(&engine->done) + 1;
        if (ticket > engine->submitted) {
            if (engine->closing) {
                break;
            }
            pthread_cond_wait(&engine->work, &engine->lock);
            continue;
        }
        struct tern_comm_engine_job job = engine->queue[ticket % TERN_COMM_QUEUE_MAX];
        pthread_mutex_unlock(&engine->lock);
        tern_status status = run_job(engine, &job);
        pthread_mutex_lock(&engine->lock);
        if (status == TERN_OK) {
            atomic_store(&engine->done, ticket);
            pthread_cond_broadcast(&engine->news);
        } else {
            engine_die(engine, status, tern_detail());
        }
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Under MPI a rank must not leave while another still waits for it; and none may start to leave if one
 * is gone, since leaving has no time limit of its own. */
static void stop_world(struct tern_comm_engine *engine)
{
    struct tern_transport *t = engine->transport;
    bool clean = !atomic_load(&engine->is_dead) && !tern_transport_is_dead(t);
    if (clean && t->table->leaves_together && tern_comm_engine_barrier(&engine->comm) != TERN_OK) {
        clean = false;
        tern_log_warn("leaving the group: %s", tern_detail());
    }
    t->table->stop(t, clean);
}

static tern_status open_slots(struct tern_comm_engine *engine)
{
    struct tern_transport *t = engine->transport;
    TERN_RETURN_IF_ERR(t->table->op_open(t, &engine->now.op));
    tern_status status = t->table->op_open(t, &engine->ahead.op);
    if (status != TERN_OK) {
        t->table->op_close(t, engine->now.op);
    }
    return status;
}

static void *progress_main(void *arg)
{
    struct tern_comm_engine *engine = arg;
    struct tern_transport *t = engine->transport;
    tern_comm_enter(&engine->comm);
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    tern_status status = engine->owns_world ? t->table->start(t) : TERN_OK;
    if (status == TERN_OK) {
        status = open_slots(engine);
        if (status != TERN_OK && engine->owns_world) {
            t->table->stop(t, false);
        }
    }
    pthread_mutex_lock(&engine->lock);
    engine->started = true;
    engine->start_status = status;
    if (status != TERN_OK) {
        engine_die(engine, status, tern_detail());
    }
    pthread_cond_broadcast(&engine->news);
    pthread_mutex_unlock(&engine->lock);
    if (status == TERN_OK) {
        run_jobs(engine);
        /* A dead engine stays until close, so that its memory and its transport do too. */
        pthread_mutex_lock(&engine->lock);
        while (!engine->closing) {
            pthread_cond_wait(&engine->work, &engine->lock);
        }
        pthread_mutex_unlock(&engine->lock);
        if (engine->owns_world) {
            stop_world(engine);
        }
        t->table->op_close(t, engine->now.op);
        t->table->op_close(t, engine->ahead.op);
    }
    pthread_mutex_lock(&engine->lock);
    engine->ended = true;
    pthread_cond_broadcast(&engine->news);
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

static void cond_init_monotonic(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

static struct tern_comm_engine *engine_new(struct tern_transport *transport, int64_t limit_ns)
{
    struct tern_comm_engine *engine = tern_alloc_zero("comm engine", 1, sizeof *engine);
    if (engine == NULL) {
        tern_fail(TERN_ERR_MEMORY, "communicator: no memory for %zu bytes", sizeof *engine);
        return NULL;
    }
    engine->transport = transport;
    engine->limit_ns = limit_ns;
    pthread_mutex_init(&engine->lock, NULL);
    cond_init_monotonic(&engine->work);
    cond_init_monotonic(&engine->news);
    return engine;
}

static void engine_free(struct tern_comm_engine *engine)
{
    pthread_mutex_destroy(&engine->lock);
    pthread_cond_destroy(&engine->work);
    pthread_cond_destroy(&engine->news);
    tern_free(engine->world_ranks);
    tern_free(engine->hosts);
    tern_free(engine->now.messages);
    tern_free(engine->ahead.messages);
    tern_free(engine);
}

/* Waits for a flag of the progress thread; false when the limit passed first. */
static bool wait_flag(struct tern_comm_engine *engine, const bool *flag, int64_t limit_ns)
{
    int64_t at = tern_comm_engine_now_ns() + limit_ns;
    struct timespec until = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
    int error = 0;
    pthread_mutex_lock(&engine->lock);
    while (!*flag && error != ETIMEDOUT) {
        error = pthread_cond_timedwait(&engine->news, &engine->lock, &until);
    }
    bool is_set = *flag;
    pthread_mutex_unlock(&engine->lock);
    return is_set;
}

static tern_status engine_submit(struct tern_comm *comm,
                                 tern_comm_job job,
                                 void *arg,
                                 uint64_t *ticket_out)
{
    struct tern_comm_engine *engine = tern_comm_engine_of(comm);
    pthread_mutex_lock(&engine->lock);
    while (!atomic_load(&engine->is_dead) &&
           engine->submitted - atomic_load(&engine->done) == TERN_COMM_QUEUE_MAX) {
        pthread_cond_wait(&engine->news, &engine->lock);
    }
    bool is_dead = atomic_load(&engine->is_dead);
    if (!is_dead) {
        engine->submitted++;
        engine->queue[engine->submitted % TERN_COMM_QUEUE_MAX] =
            (struct tern_comm_engine_job){job, arg};
        *ticket_out = engine->submitted;
        pthread_cond_signal(&engine->work);
    }
    pthread_mutex_unlock(&engine->lock);
    return is_dead ? tern_fail(engine->status, "%s", engine->detail) : TERN_OK;
}

static tern_status engine_wait(struct tern_comm *comm, uint64_t ticket)
{
    struct tern_comm_engine *engine = tern_comm_engine_of(comm);
    if (atomic_load(&engine->done) >= ticket) {
        return TERN_OK;
    }
    pthread_mutex_lock(&engine->lock);
    TERN_CHECK(ticket <= engine->submitted);
    while (atomic_load(&engine->done) < ticket && !atomic_load(&engine->is_dead)) {
        pthread_cond_wait(&engine->news, &engine->lock);
    }
    bool is_done = atomic_load(&engine->done) >= ticket;
    pthread_mutex_unlock(&engine->lock);
    return is_done ? TERN_OK : tern_fail(engine->status, "%s", engine->detail);
}

static tern_status engine_poll(struct tern_comm *comm, uint64_t ticket)
{
    struct tern_comm_engine *engine = tern_comm_engine_of(comm);
    if (atomic_load(&engine->is_dead)) {
        return tern_fail(engine->status, "%s", engine->detail);
    }
    if (tern_transport_is_dead(engine->transport)) {
        return tern_fail(engine->transport->death_status, "%s", engine->transport->death_detail);
    }
    return atomic_load(&engine->done) >= ticket ? TERN_OK : TERN_ERR_AGAIN;
}

static void engine_abort(struct tern_comm *comm, int exit_code)
{
    struct tern_comm_engine *engine = tern_comm_engine_of(comm);
    char sentence[128];
    snprintf(sentence, sizeof sentence, "rank %d ended the job with exit code %d", comm->rank,
             exit_code);
    tern_transport_die(engine->transport, TERN_ERR_PEER_LOST, sentence);
    engine->transport->table->abort(engine->transport, exit_code);
}

static void engine_close(struct tern_comm *comm)
{
    struct tern_comm_engine *engine = tern_comm_engine_of(comm);
    struct tern_transport *transport = engine->transport;
    TERN_CHECK(!tern_comm_is_inside(comm));
    /* Groups are closed before the world they came from. */
    TERN_CHECK(!engine->owns_world || atomic_load(&transport->users) == 1);
    pthread_mutex_lock(&engine->lock);
    engine->closing = true;
    pthread_cond_signal(&engine->work);
    /* What was submitted ends by itself: every wait inside has its limit. */
    while (atomic_load(&engine->done) < engine->submitted && !atomic_load(&engine->is_dead)) {
        pthread_cond_wait(&engine->news, &engine->lock);
    }
    pthread_mutex_unlock(&engine->lock);
    int64_t patience_ns = engine->limit_ns + (int64_t)STOP_SECONDS_MAX * 1000000000;
    if (!wait_flag(engine, &engine->ended, patience_ns)) {
        tern_log_warn(
            "rank %d: %s did not end within %d s after the last message; leaving it behind",
            comm->rank, transport->table->name, STOP_SECONDS_MAX);
        pthread_detach(engine->thread);
        return;
    }
    pthread_join(engine->thread, NULL);
    atomic_fetch_sub(&transport->users, 1);
    if (engine->owns_world) {
        transport->table->destroy(transport);
    }
    engine_free(engine);
}

#define ENGINE_TABLE(backend) \
    { \
        .name = (backend), .close = engine_close, .submit = engine_submit, .wait = engine_wait, \
        .poll = engine_poll, .abort = engine_abort, .exchange = tern_comm_engine_exchange, \
        .post = tern_comm_engine_post, .settle = tern_comm_engine_settle, \
        .barrier = tern_comm_engine_barrier, .split = tern_comm_engine_split \
    }
static const struct tern_comm_table g_tables[] = {
    ENGINE_TABLE("self"),
    ENGINE_TABLE("inproc"),
    ENGINE_TABLE("mpi"),
    ENGINE_TABLE("tcp"),
};

static const struct tern_comm_table *table_of(const struct tern_transport *transport)
{
    size_t i = 0;
    while (strcmp(g_tables[i].name, transport->table->name) != 0) {
        i++;
        TERN_CHECK(i < sizeof g_tables / sizeof g_tables[0]);
    }
    return &g_tables[i];
}

/* Starts the thread and waits for its first word. On failure the engine is gone, unless the thread
 * never spoke: then it may still use both, and they stay. */
static tern_status engine_start(struct tern_comm_engine *engine, bool *is_left_behind_out)
{
    *is_left_behind_out = false;
    int error = tern_thread_start(&engine->thread, progress_main, engine);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_MEMORY, error, "communicator: no progress thread");
    }
    if (!wait_flag(engine, &engine->started, engine->limit_ns)) {
        *is_left_behind_out = true;
        pthread_detach(engine->thread);
        return tern_fail(TERN_ERR_TIMEOUT,
                         "%s: not all ranks came up within %.1f s (limit: TERN_COMM_TIMEOUT)",
                         engine->transport->table->name, (double)engine->limit_ns * 1e-9);
    }
    if (engine->start_status != TERN_OK) {
        pthread_join(engine->thread, NULL);
        return tern_fail(engine->start_status, "%s", engine->detail);
    }
    return TERN_OK;
}

tern_status tern_comm_engine_create(struct tern_transport *transport,
                                    int64_t limit_ns,
                                    int context,
                                    int rank,
                                    int size,
                                    int *world_ranks,
                                    uint64_t *hosts,
                                    struct tern_comm_engine **out)
{
    struct tern_comm_engine *engine = engine_new(transport, limit_ns);
    if (engine == NULL) {
        return TERN_ERR_MEMORY;
    }
    engine->comm = (struct tern_comm){.table = table_of(transport), .rank = rank, .size = size};
    engine->context = context;
    engine->world_ranks = world_ranks;
    engine->hosts = hosts;
    bool is_left_behind;
    tern_status status = engine_start(engine, &is_left_behind);
    if (status != TERN_OK) {
        if (!is_left_behind) {
            engine->world_ranks = NULL; /* still the caller's */
            engine->hosts = NULL;
            engine_free(engine);
        }
        return status;
    }
    tern_comm_engine_place(engine);
    atomic_fetch_add(&transport->users, 1);
    *out = engine;
    return TERN_OK;
}

/* A number for this machine: its name and the identity of its running kernel. */
static uint64_t host_id(void)
{
    struct utsname name;
    char boot[64] = "";
    uname(&name);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL) {
        if (fgets(boot, sizeof boot, file) == NULL) {
            boot[0] = '\0';
        }
        fclose(file);
    }
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    const char *const parts[] = {name.nodename, boot};
    for (int i = 0; i < 2; i++) {
        for (const char *c = parts[i]; *c != '\0'; c++) {
            hash = (hash ^ (unsigned char)*c) * 1099511628211u;
        }
    }
    return hash;
}

/* The world's ranks are themselves; which share a host is asked around. */
static tern_status fill_world(struct tern_comm_engine *engine)
{
    struct tern_comm *comm = &engine->comm;
    comm->rank = engine->transport->rank;
    comm->size = engine->transport->size;
    engine->world_ranks = tern_alloc("comm ranks", (size_t)comm->size * sizeof(int));
    engine->hosts = tern_alloc("comm hosts", (size_t)comm->size * sizeof(uint64_t));
    if (engine->world_ranks == NULL || engine->hosts == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "communicator: no memory for %d ranks", comm->size);
    }
    for (int r = 0; r < comm->size; r++) {
        engine->world_ranks[r] = r;
    }
    return TERN_OK;
}

tern_status tern_comm_engine_open(struct tern_transport *transport,
                                  int64_t limit_ns,
                                  struct tern_comm **out)
{
    *out = NULL;
    struct tern_comm_engine *engine = engine_new(transport, limit_ns);
    if (engine == NULL) {
        transport->table->destroy(transport);
        return TERN_ERR_MEMORY;
    }
    engine->comm.table = table_of(transport);
    engine->owns_world = true;
    bool is_left_behind;
    tern_status status = engine_start(engine, &is_left_behind);
    if (status != TERN_OK) {
        if (!is_left_behind) {
            engine_free(engine);
            transport->table->destroy(transport);
        }
        return status;
    }
    atomic_fetch_add(&transport->users, 1);
    uint64_t host = host_id();
    status = fill_world(engine);
    if (status == TERN_OK) {
        status = tern_comm_all_gather(&engine->comm, &host, sizeof host, engine->hosts);
    }
    if (status != TERN_OK) {
        char detail[TERN_DETAIL_BYTES];
        snprintf(detail, sizeof detail, "%s", tern_detail());
        pthread_mutex_lock(&engine->lock);
        engine_die(engine, status, detail);
        pthread_mutex_unlock(&engine->lock);
        engine_close(&engine->comm);
        return tern_fail(status, "%s", detail);
    }
    tern_comm_engine_place(engine);
    *out = &engine->comm;
    return TERN_OK;
}
