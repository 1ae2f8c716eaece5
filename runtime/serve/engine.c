/* engine.c - the engine thread, and what other threads ask of it. */
#include "runtime/serve/engine.h"

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/serve/engine_impl.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum {
    SEQS_DEFAULT = 16,
    SEQS_MAX = 4096,
    QUEUE_DEFAULT = 256,
    QUEUE_MAX = 1 << 20,
    CHUNK_DEFAULT = 256,
    CHUNK_MAX = 1 << 16,
    STALL_SECONDS_DEFAULT = 60,
    SLOT_BITS = 24 /* of a handle; the rest is the generation */
};

static tern_status fill(const char *name,
                        int64_t *value,
                        int64_t otherwise,
                        int64_t least,
                        int64_t most)
{
    *value = *value == 0 ? otherwise : *value;
    return *value >= least && *value <= most
               ? TERN_OK
               : tern_fail(TERN_ERR_USAGE, "%s is %lld, expected %lld to %lld", name,
                           (long long)*value, (long long)least, (long long)most);
}

tern_status tern_engine_fill(struct tern_engine_options *options, int64_t context_max)
{
    TERN_RETURN_IF_ERR(
        fill("the number of sequences", &options->max_seqs, SEQS_DEFAULT, 1, SEQS_MAX));
    TERN_RETURN_IF_ERR(
        fill("the length of the queue", &options->max_queue, QUEUE_DEFAULT, 1, QUEUE_MAX));
    TERN_RETURN_IF_ERR(fill("the chunk of prompts", &options->chunk, CHUNK_DEFAULT, 1, CHUNK_MAX));
    TERN_RETURN_IF_ERR(
        fill("the number of guesses", &options->speculate, 0, 0, TERN_ENGINE_EXTRA_ROWS - 1));
    TERN_RETURN_IF_ERR(fill("the context", &options->context, context_max, 2, INT32_MAX));
    if (options->context > context_max) {
        options->context = context_max;
    }
    if (options->stall_seconds == 0) {
        options->stall_seconds = STALL_SECONDS_DEFAULT;
    }
    return options->stall_seconds > 0
               ? TERN_OK
               : tern_fail(TERN_ERR_USAGE, "the time that a step may take is %g s, expected more",
                           options->stall_seconds);
}

/* --- the engine thread --- */

/* Takes what came; waits while there is nothing to do. False: the thread shall end. */
static bool take_work(struct tern_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    while (engine->inbox == NULL && engine->jobs == NULL && !engine->is_stopping) {
        atomic_store(&engine->is_busy, false);
        pthread_cond_wait(&engine->work, &engine->lock);
    }
    atomic_store(&engine->beat_ns, tern_clock_ns());
    atomic_store(&engine->is_busy, true);
    struct tern_job *job = engine->inbox;
    engine->inbox = engine->inbox_last = NULL;
    bool goes_on = job != NULL || engine->jobs != NULL || !engine->is_stopping;
    pthread_mutex_unlock(&engine->lock);
    while (job != NULL) {
        struct tern_job *next = job->next;
        job->before = engine->last_job;
        job->next = NULL;
        *(engine->last_job != NULL ? &engine->last_job->next : &engine->jobs) = job;
        engine->last_job = job;
        if (atomic_load(&job->is_cancelled)) { /* before the sweep could see it */
            atomic_store(&engine->has_cancels, true);
        }
        engine->unstarted++;
        engine->deadline_ns =
            job->deadline_ns < engine->deadline_ns ? job->deadline_ns : engine->deadline_ns;
        tern_schedule_wait(engine, &job->choices[0]);
        job = next;
    }
    return goes_on;
}

/* What ends requests from outside, before each step. */
static void sweep(struct tern_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    bool is_aborting = engine->is_aborting || engine->is_stopping;
    bool is_draining = engine->is_draining;
    int64_t drain_ns = engine->drain_ns;
    pthread_mutex_unlock(&engine->lock);
    int64_t now = tern_clock_ns();
    if (!atomic_exchange(&engine->has_cancels, false) && !engine->is_broken && !is_aborting &&
        !is_draining && now < engine->deadline_ns) {
        return;
    }
    engine->deadline_ns = INT64_MAX;
    for (struct tern_job *job = engine->jobs; job != NULL;) {
        struct tern_job *next = job->next;
        if (atomic_load(&job->is_cancelled)) {
            tern_deliver_fail(engine, job, TERN_ENGINE_END_ABORT, TERN_ERR_CANCELLED, "");
        } else if (engine->is_broken) {
            tern_deliver_fail(engine, job, TERN_ENGINE_END_ERROR, TERN_ERR_DEVICE,
                              "the model's device is lost");
        } else if (is_aborting || (is_draining && (!job->is_started || now >= drain_ns))) {
            tern_deliver_fail(engine, job, TERN_ENGINE_END_ERROR, TERN_ERR_CANCELLED,
                              "the server is shutting down");
        } else if (now >= job->deadline_ns) {
            tern_deliver_fail(engine, job, TERN_ENGINE_END_TIMEOUT, TERN_ERR_TIMEOUT,
                              job->is_started ? "the deadline passed before the answer was whole"
                                              : "the deadline passed while the request waited");
        } else if (job->deadline_ns < engine->deadline_ns) {
            engine->deadline_ns = job->deadline_ns;
        }
        job = next;
    }
}

/* Makes counts readable, and lets go of requests that ended. */
static void publish(struct tern_engine *engine)
{
    struct tern_engine_stats *totals = &engine->totals;
    totals->running = engine->running_count;
    totals->waiting =
        engine->waiting_count - engine->unstarted; /* stats adds all that are queued */
    totals->blocks = tern_kv_blocks_count(engine->pool);
    totals->blocks_used = totals->blocks - tern_kv_blocks_free(engine->pool);
    totals->blocks_cached = tern_kv_blocks_cached(engine->pool);
    struct tern_job *ended = engine->retired;
    engine->retired = NULL;
    pthread_mutex_lock(&engine->lock);
    engine->queued -= engine->started_jobs;
    for (struct tern_job *job = ended; job != NULL; job = job->next) {
        engine->queued -= !job->is_started;
        engine->in_flight--;
        engine->slots[job->slot].job = NULL;
    }
    engine->published = *totals;
    engine->published_gap = engine->start_gap;
    if (engine->in_flight == 0) {
        pthread_cond_broadcast(&engine->idle);
    }
    pthread_mutex_unlock(&engine->lock);
    engine->started_jobs = 0;
    while (ended != NULL) {
        struct tern_job *next = ended->next;
        tern_job_destroy(ended);
        ended = next;
    }
}

/* From now on submit refuses; what came until now fails in the next round. */
static void die(struct tern_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    atomic_store(&engine->is_dead, true);
    engine->is_stopping = true;
    pthread_mutex_unlock(&engine->lock);
}

static void *engine_main(void *arg)
{
    struct tern_engine *engine = arg;
    while (take_work(engine)) {
        sweep(engine);
        if (engine->jobs != NULL) {
            tern_step_run(engine);
        }
        if (engine->is_broken) {
            die(engine);
        }
        publish(engine);
    }
    return NULL;
}

/* --- making and ending it --- */

static tern_status take_memory(struct tern_engine *engine, int64_t blocks)
{
    size_t seqs = (size_t)engine->options.max_seqs;
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) {
        return tern_fail(TERN_ERR_IO, "the system has no random numbers");
    }
    TERN_RETURN_IF_ERR(tern_kv_blocks_create(blocks, seed, &engine->pool));
    TERN_RETURN_IF_ERR(tern_sampler_create(engine->pass.vocab, &engine->sampler));
    engine->slot_count =
        (int)(engine->options.max_queue + 4 * engine->options.max_seqs); /* see has_room */
    engine->slots = tern_alloc_zero("engine", (size_t)engine->slot_count, sizeof *engine->slots);
    engine->mask =
        tern_alloc("engine", (size_t)((engine->pass.vocab + 31) / 32) * sizeof *engine->mask);
    engine->embedding =
        tern_alloc("engine", (size_t)engine->pass.width * sizeof *engine->embedding);
    engine->running = tern_alloc("engine", seqs * sizeof(struct tern_choice *));
    engine->planned = tern_alloc("engine", seqs * sizeof(struct tern_choice *));
    engine->parts = tern_alloc("engine", seqs * sizeof *engine->parts);
    engine->copies = tern_alloc("engine", seqs * sizeof *engine->copies);
    bool is_whole = engine->slots != NULL && engine->mask != NULL && engine->embedding != NULL &&
                    engine->running != NULL && engine->planned != NULL && engine->parts != NULL &&
                    engine->copies != NULL;
    return is_whole ? TERN_OK : tern_fail(TERN_ERR_MEMORY, "cannot allocate an engine");
}

static void init_locks(struct tern_engine *engine)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->work, NULL);
    pthread_cond_init(&engine->idle, &attributes);
    pthread_condattr_destroy(&attributes);
}

tern_status tern_engine_create_over(const struct tern_engine_pass *pass,
                                    const struct tern_engine_options *options,
                                    int64_t blocks,
                                    struct tern_engine **out)
{
    TERN_CHECK(blocks * TERN_KV_BLOCK >= options->context);
    struct tern_engine *engine = tern_alloc_zero("engine", 1, sizeof *engine);
    if (engine == NULL) {
        if (pass->destroy != NULL) {
            pass->destroy(pass->context);
        }
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate an engine");
    }
    engine->options = *options;
    engine->pass = *pass;
    engine->deadline_ns = INT64_MAX;
    init_locks(engine);
    tern_text_init(&engine->out);
    tern_engine_stats_init(&engine->totals);
    tern_status status = take_memory(engine, blocks);
    if (status == TERN_OK) {
        publish(engine);
        int error = tern_thread_start(&engine->thread, engine_main, engine);
        engine->has_thread = error == 0;
        status = error == 0 ? TERN_OK
                            : tern_fail_errno(TERN_ERR_IO, error, "cannot start the engine thread");
    }
    if (status != TERN_OK) {
        tern_engine_destroy(engine);
        return status;
    }
    *out = engine;
    return TERN_OK;
}

void tern_engine_destroy(struct tern_engine *engine)
{
    if (engine == NULL) {
        return;
    }
    if (engine->has_thread) {
        pthread_mutex_lock(&engine->lock);
        engine->is_stopping = true;
        pthread_cond_signal(&engine->work);
        pthread_mutex_unlock(&engine->lock);
        pthread_join(engine->thread, NULL);
    }
    if (engine->pass.destroy != NULL) {
        engine->pass.destroy(engine->pass.context);
    }
    tern_kv_blocks_destroy(engine->pool);
    tern_sampler_destroy(engine->sampler);
    tern_text_fini(&engine->out);
    tern_free(engine->slots);
    tern_free(engine->mask);
    tern_free(engine->embedding);
    tern_free((void *)engine->running);
    tern_free((void *)engine->planned);
    tern_free(engine->parts);
    tern_free(engine->copies);
    pthread_cond_destroy(&engine->work);
    pthread_cond_destroy(&engine->idle);
    pthread_mutex_destroy(&engine->lock);
    tern_free(engine);
}

const struct tern_engine_options *tern_engine_settings(const struct tern_engine *engine)
{
    return &engine->options;
}

/* --- asked by others --- */

/* Requests that one more would wait for; negative: places in the batch are free. Under the lock. */
static int64_t ahead(const struct tern_engine *engine)
{
    int64_t places = engine->options.max_seqs - engine->published.running;
    return engine->queued - (places > 0 ? places : 0);
}

static double expected_wait(const struct tern_engine *engine)
{
    int64_t before = ahead(engine);
    return before >= 0 ? (double)(before + 1) * engine->published_gap : 0;
}

/* Whether one more request may wait. Requests that were started are at most max_seqs and those that
 * gave way; there are slots for all. */
static bool has_room(const struct tern_engine *engine)
{
    double most = engine->options.max_wait_seconds;
    return ahead(engine) < engine->options.max_queue && engine->in_flight < engine->slot_count &&
           (ahead(engine) < 1 || most <= 0 || expected_wait(engine) <= most);
}

/* Under the lock. */
static tern_status may_submit(struct tern_engine *engine)
{
    if (atomic_load(&engine->is_dead)) {
        return tern_fail(TERN_ERR_DEVICE, "the engine is gone: the model's device is lost");
    }
    if (engine->is_draining || engine->is_aborting || engine->is_stopping) {
        return tern_fail(TERN_ERR_CANCELLED, "the server is shutting down");
    }
    if (!has_room(engine)) {
        engine->refused++;
        return tern_fail(TERN_ERR_BUSY, "the queue is full: %lld requests wait",
                         (long long)engine->queued);
    }
    return TERN_OK;
}

/* Under the lock. */
static uint64_t enqueue(struct tern_engine *engine, struct tern_job *job)
{
    while (engine->slots[engine->next_slot].job != NULL) {
        engine->next_slot = (engine->next_slot + 1) % engine->slot_count;
    }
    struct tern_handle_slot *slot = &engine->slots[engine->next_slot];
    slot->job = job;
    slot->generation++;
    job->slot = engine->next_slot;
    job->number = ++engine->last_number;
    engine->next_slot = (engine->next_slot + 1) % engine->slot_count;
    if (engine->inbox_last != NULL) {
        engine->inbox_last->next = job;
    } else {
        engine->inbox = job;
    }
    engine->inbox_last = job;
    engine->queued++;
    engine->in_flight++;
    engine->accepted++;
    return slot->generation << SLOT_BITS | (uint64_t)job->slot;
}

tern_status tern_engine_submit(struct tern_engine *engine,
                               const struct tern_engine_request *request,
                               uint64_t *handle_out)
{
    struct tern_job *job;
    TERN_RETURN_IF_ERR(tern_job_create(engine, request, &job));
    pthread_mutex_lock(&engine->lock);
    tern_status status = may_submit(engine);
    if (status == TERN_OK) {
        *handle_out = enqueue(engine, job);
        pthread_cond_signal(&engine->work);
    }
    pthread_mutex_unlock(&engine->lock);
    if (status != TERN_OK) {
        tern_job_destroy(job);
    }
    return status;
}

void tern_engine_cancel(struct tern_engine *engine, uint64_t handle)
{
    uint64_t index = handle & (((uint64_t)1 << SLOT_BITS) - 1);
    pthread_mutex_lock(&engine->lock);
    if (index < (uint64_t)engine->slot_count) {
        struct tern_handle_slot *slot = &engine->slots[index];
        if (slot->job != NULL && slot->generation == handle >> SLOT_BITS) {
            atomic_store(&slot->job->is_cancelled, true);
            atomic_store(&engine->has_cancels, true);
        }
    }
    pthread_mutex_unlock(&engine->lock);
}

bool tern_engine_is_alive(struct tern_engine *engine)
{
    int64_t age = tern_clock_ns() - atomic_load(&engine->beat_ns);
    return !atomic_load(&engine->is_dead) &&
           (!atomic_load(&engine->is_busy) || (double)age * 1e-9 < engine->options.stall_seconds);
}

void tern_engine_stats(struct tern_engine *engine, struct tern_engine_stats *out)
{
    pthread_mutex_lock(&engine->lock);
    *out = engine->published;
    out->requests = engine->accepted;
    out->refused = engine->refused;
    out->waiting += engine->queued;
    out->wait_seconds = expected_wait(engine);
    out->is_draining = engine->is_draining || engine->is_aborting || engine->is_stopping;
    pthread_mutex_unlock(&engine->lock);
    out->is_alive = tern_engine_is_alive(engine);
    int64_t age = tern_clock_ns() - atomic_load(&engine->beat_ns);
    out->beat_age_seconds = atomic_load(&engine->is_busy) && age > 0 ? (double)age * 1e-9 : 0;
}

void tern_engine_drain(struct tern_engine *engine, double seconds)
{
    pthread_mutex_lock(&engine->lock);
    int64_t now = tern_clock_ns();
    engine->is_draining = true;
    engine->drain_ns = seconds < 1e9 ? now + (int64_t)(seconds * 1e9) : INT64_MAX;
    pthread_mutex_unlock(&engine->lock);
}

void tern_engine_abort(struct tern_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->is_aborting = true;
    pthread_mutex_unlock(&engine->lock);
}

bool tern_engine_wait_idle(struct tern_engine *engine, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double whole = floor(seconds);
    until.tv_sec += (time_t)whole;
    until.tv_nsec += (long)((seconds - whole) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&engine->lock);
    int error = 0;
    while (engine->in_flight > 0 && error == 0) {
        error = pthread_cond_timedwait(&engine->idle, &engine->lock, &until);
    }
    bool is_idle = engine->in_flight == 0;
    pthread_mutex_unlock(&engine->lock);
    return is_idle;
}
