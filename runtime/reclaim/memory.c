/* memory.c - two blocks in turn, and one thread that seals them. */
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/reclaim/memory_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    TOUCH_BYTES = 64 << 20, /* between two looks at whether the run ends */
    NS_PER_SECOND = 1000000000,
    SETTLE_SECONDS_MAX = 1000000 /* longer is for ever */
};

/* ---- the thread ---- */

static void note_failure(struct tern_memory *memory, const char *what)
{
    snprintf(memory->stats.failure, sizeof memory->stats.failure, "%.*s",
             (int)sizeof memory->stats.failure - 1, what);
    memory->stats.failures++;
}

/* Behind the first steps, so that neither the start nor the first snapshot waits for pages. */
static void touch(struct tern_memory *memory)
{
    for (int i = 0; i < TERN_MEMORY_SLOTS; i++) {
        struct tern_segment *segment = &memory->slots[i].segment;
        int64_t bytes = segment->shm.data != NULL ? memory->layout.data_bytes : 0;
        for (int64_t at = 0; at < bytes; at += TOUCH_BYTES) {
            pthread_mutex_lock(&memory->lock);
            bool is_stopping = memory->is_stopping;
            pthread_mutex_unlock(&memory->lock);
            if (is_stopping) {
                return;
            }
            int64_t left = bytes - at;
            tern_shm_touch(tern_segment_data(segment) + at,
                           (size_t)(left < TOUCH_BYTES ? left : TOUCH_BYTES));
        }
    }
}

/* On the communicator's thread. */
static void on_copied(void *context, int64_t step, double seconds, const char *failure)
{
    struct tern_memory *memory = context;
    pthread_mutex_lock(&memory->lock);
    memory->done_step = step > memory->done_step ? step : memory->done_step;
    memory->stats.copy_seconds = seconds;
    if (failure != NULL) {
        note_failure(memory, failure);
    }
    pthread_cond_broadcast(&memory->changed);
    pthread_mutex_unlock(&memory->lock);
}

static tern_status fetch_data(struct tern_memory *memory, struct tern_memory_slot *slot)
{
    return memory->fetch != NULL && !memory->is_skipped
               ? memory->fetch(memory->context, tern_segment_data(&slot->segment))
               : TERN_OK;
}

static tern_status seal(struct tern_memory *memory, struct tern_memory_slot *slot)
{
    if (memory->is_skipped) {
        return tern_fail(TERN_ERR_IO, "there was no block for the snapshot of step %lld",
                         (long long)slot->step);
    }
    int error = tern_file_fault(TERN_FAULT_MEMORY_SEAL);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "the snapshot of step %lld cannot be sealed",
                               (long long)slot->step);
    }
    return tern_segment_seal(&slot->segment, slot->step, memory->state_json.data);
}

/* Outside the lock; the training thread begins nothing meanwhile. */
static tern_status fetch_and_seal(struct tern_memory *memory, struct tern_memory_slot *slot)
{
    tern_status status = fetch_data(memory, slot);
    pthread_mutex_lock(&memory->lock);
    memory->fetched = status;
    snprintf(memory->reason, sizeof memory->reason, "%s", status != TERN_OK ? tern_detail() : "");
    memory->phase = TERN_MEMORY_SEALING;
    pthread_cond_broadcast(&memory->changed);
    pthread_mutex_unlock(&memory->lock);
    return status == TERN_OK ? seal(memory, slot) : status;
}

/* One snapshot, whatever comes of it. */
static void work(struct tern_memory *memory)
{
    struct tern_memory_slot *slot = &memory->slots[memory->working];
    double started = tern_clock_seconds();
    tern_status status = fetch_and_seal(memory, slot);
    pthread_mutex_lock(&memory->lock);
    memory->stats.seal_seconds = tern_clock_seconds() - started;
    if (status == TERN_OK) {
        memory->kept_step = slot->step;
    } else if (!memory->is_skipped) {
        note_failure(memory, tern_detail());
    }
    pthread_mutex_unlock(&memory->lock);
    if (memory->peers != NULL) {
        tern_status copying =
            tern_memory_peers_copy(memory->peers, status == TERN_OK ? &slot->segment : NULL,
                                   memory->working, slot->step, on_copied, memory);
        if (copying == TERN_OK) {
            return;
        }
        status = copying; /* the group is gone: the training thread hears of that itself */
    }
    on_copied(memory, slot->step, 0, NULL);
}

static void *memory_run(void *arg)
{
    struct tern_memory *memory = arg;
    pthread_setname_np(pthread_self(), "tern-memory");
    touch(memory);
    pthread_mutex_lock(&memory->lock);
    memory->phase = TERN_MEMORY_IDLE;
    pthread_cond_broadcast(&memory->changed);
    for (;;) {
        while (memory->phase != TERN_MEMORY_FETCHING && !memory->is_stopping) {
            pthread_cond_wait(&memory->changed, &memory->lock);
        }
        if (memory->phase != TERN_MEMORY_FETCHING) {
            break;
        }
        pthread_mutex_unlock(&memory->lock);
        work(memory);
        pthread_mutex_lock(&memory->lock);
        memory->phase = TERN_MEMORY_IDLE;
        pthread_cond_broadcast(&memory->changed);
    }
    pthread_mutex_unlock(&memory->lock);
    return NULL;
}

/* ---- opening and closing ---- */

static tern_status open_slot(struct tern_memory *memory, int number)
{
    char name[TERN_SEGMENT_NAME_BYTES];
    struct tern_memory_slot *slot = &memory->slots[number];
    if (slot->segment.shm.data != NULL) {
        return TERN_OK;
    }
    tern_segment_name(&memory->key, memory->rank, number, false, name);
    return tern_segment_create(name, &memory->layout, &slot->segment);
}

/* The caller's slabs go away: the first block has them, and is what the second is made after. */
static tern_status keep_layout(struct tern_memory *memory)
{
    int64_t count = memory->layout.slab_count;
    struct tern_ckpt_slab *slabs = tern_alloc_zero("memory", (size_t)count + 1, sizeof *slabs);
    if (slabs == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a table of %lld slabs",
                         (long long)count);
    }
    const struct tern_segment *first = &memory->slots[0].segment;
    for (int64_t i = 0; i < count; i++) {
        tern_segment_slab_at(first, i, &slabs[i]);
    }
    memory->layout.slabs = slabs;
    memory->layout.base = first->data;
    return TERN_OK;
}

static tern_status take_blocks(struct tern_memory *memory,
                               const struct tern_memory_options *options)
{
    memory->layout = options->layout;
    memory->layout.key = &memory->key;
    tern_status status = open_slot(memory, 0);
    if (status != TERN_OK) {
        memory->layout.slabs = NULL; /* the caller's */
        return status;
    }
    memory->layout.slabs = NULL;
    TERN_RETURN_IF_ERR(keep_layout(memory));
    return options->is_late ? TERN_OK : open_slot(memory, 1);
}

/* Waits have an end by the monotonic clock. */
static void init_lock(struct tern_memory *memory)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&memory->lock, NULL);
    pthread_cond_init(&memory->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

tern_status tern_memory_create(const struct tern_memory_options *options, struct tern_memory **out)
{
    *out = NULL;
    struct tern_memory *memory = tern_alloc_zero("memory", 1, sizeof *memory);
    tern_status status =
        memory != NULL ? TERN_OK : tern_fail(TERN_ERR_MEMORY, "cannot allocate a memory");
    if (memory != NULL) {
        memory->key = *options->layout.key;
        memory->comm = options->comm;
        memory->rank = options->comm->rank;
        memory->ranks = options->comm->size;
        memory->newest = memory->saved = -1;
        memory->settled_step = memory->begun_step = memory->done_step = memory->kept_step = -1;
        memory->stats.step = -1;
        for (int i = 0; i < TERN_MEMORY_SLOTS; i++) {
            memory->slots[i].step = memory->slots[i].common_step = -1;
        }
        init_lock(memory);
        status = take_blocks(memory, options);
        memory->has_thread =
            status == TERN_OK && pthread_create(&memory->thread, NULL, memory_run, memory) == 0;
        if (status == TERN_OK && !memory->has_thread) {
            status = tern_fail(TERN_ERR_MEMORY, "cannot start the thread of the snapshots");
        }
    }
    *out = memory;
    return status;
}

void tern_memory_fetch_with(struct tern_memory *memory,
                            tern_status (*fetch)(void *context, void *dst),
                            void *context)
{
    memory->fetch = fetch;
    memory->context = context;
}

tern_status tern_memory_connect(struct tern_memory *memory, const struct tern_memory_plan *plan)
{
    return tern_memory_peers_create(memory->comm, &memory->key, plan->keeper, plan->block_bytes,
                                    &memory->is_hurried, &memory->peers);
}

static void stop_thread(struct tern_memory *memory)
{
    if (!memory->has_thread) {
        return;
    }
    pthread_mutex_lock(&memory->lock);
    memory->is_stopping = true;
    pthread_cond_broadcast(&memory->changed);
    pthread_mutex_unlock(&memory->lock);
    pthread_join(memory->thread, NULL);
    memory->has_thread = false;
}

static void release(struct tern_memory *memory, bool forget)
{
    if (memory->peers != NULL) {
        tern_memory_peers_stop(memory->peers, true);
    }
    stop_thread(memory);
    tern_memory_peers_destroy(memory->peers, forget);
    memory->peers = NULL;
    for (int i = 0; i < TERN_MEMORY_SLOTS; i++) {
        struct tern_segment *segment = &memory->slots[i].segment;
        if (forget && segment->shm.data != NULL && tern_file_remove(segment->shm.path) != TERN_OK) {
            tern_log_warn("a snapshot stays: %s", tern_detail());
        }
        tern_segment_close(segment);
    }
    pthread_mutex_lock(&memory->lock);
    memory->begun_step = memory->done_step; /* nothing is left to wait for */
    pthread_cond_broadcast(&memory->changed);
    pthread_mutex_unlock(&memory->lock);
}

void tern_memory_forget(struct tern_memory *memory)
{
    if (memory != NULL) {
        release(memory, true);
    }
}

void tern_memory_destroy(struct tern_memory *memory)
{
    if (memory == NULL) {
        return;
    }
    release(memory, false);
    pthread_cond_destroy(&memory->changed);
    pthread_mutex_destroy(&memory->lock);
    tern_text_fini(&memory->state_json);
    tern_free((void *)memory->layout.slabs);
    tern_free(memory);
}

/* ---- snapshots ---- */

/* The block that all ranks can spare, -1: none. With a checkpoint under way not the one it is written from. */
static int spare(const struct tern_memory *memory, bool is_saving)
{
    const struct tern_memory_slot *slots = memory->slots;
    int older = slots[0].common_step <= slots[1].common_step ? 0 : 1;
    if (!is_saving || memory->saved < 0) {
        return older;
    }
    int other = 1 - memory->saved;
    bool is_safe = slots[memory->saved].common_step >= 0 || slots[other].common_step < 0;
    return is_safe ? other : -1;
}

bool tern_memory_may_begin(const struct tern_memory *memory, bool is_saving)
{
    bool is_settled =
        memory->newest < 0 || memory->slots[memory->newest].step == memory->settled_step;
    return is_settled && spare(memory, is_saving) >= 0;
}

/* From now on there is a newer snapshot, which is not done. */
static void wait_idle(struct tern_memory *memory, int64_t step)
{
    pthread_mutex_lock(&memory->lock);
    while (memory->phase != TERN_MEMORY_IDLE) {
        pthread_cond_wait(&memory->changed, &memory->lock);
    }
    memory->begun_step = step;
    pthread_mutex_unlock(&memory->lock);
}

/* The block, ready to be written; a fault of the test's counts as one of the folder's. */
static tern_status ready_slot(struct tern_memory *memory, int number)
{
    int error = tern_file_fault(TERN_FAULT_MEMORY_COPY);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "there is no block for the snapshot");
    }
    TERN_RETURN_IF_ERR(open_slot(memory, number));
    tern_segment_unseal(&memory->slots[number].segment);
    return TERN_OK;
}

void tern_memory_begin(struct tern_memory *memory,
                       int64_t step,
                       bool is_saving,
                       bool is_save,
                       float **base_out)
{
    wait_idle(memory, step);
    int number = spare(memory, is_saving);
    TERN_CHECK(number >= 0);
    if (memory->peers != NULL) {
        tern_memory_peers_stop(memory->peers, false);
    }
    tern_status status = ready_slot(memory, number);
    if (status != TERN_OK && is_save) { /* it goes to disk: better than nowhere */
        number = memory->slots[number].segment.shm.data != NULL ? number : 1 - number;
        tern_segment_unseal(&memory->slots[number].segment);
        status = TERN_OK;
    }
    struct tern_memory_slot *slot = &memory->slots[number];
    slot->step = step;
    slot->common_step = -1;
    memory->newest = number;
    memory->saved = is_save ? number : memory->saved;
    memory->count++;
    memory->is_skipped = status != TERN_OK;
    *base_out = NULL;
    if (status == TERN_OK) {
        *base_out = (float *)(void *)tern_segment_data(&slot->segment);
        return;
    }
    pthread_mutex_lock(&memory->lock);
    note_failure(memory, tern_detail());
    pthread_mutex_unlock(&memory->lock);
}

tern_status tern_memory_commit(struct tern_memory *memory, const char *state_json)
{
    tern_text_fini(&memory->state_json);
    tern_text_init(&memory->state_json);
    TERN_RETURN_IF_ERR(tern_text_append(&memory->state_json, state_json, strlen(state_json)));
    pthread_mutex_lock(&memory->lock);
    memory->working = memory->newest;
    memory->phase = TERN_MEMORY_FETCHING;
    pthread_cond_broadcast(&memory->changed);
    pthread_mutex_unlock(&memory->lock);
    return TERN_OK;
}

tern_status tern_memory_wait_fetched(struct tern_memory *memory)
{
    pthread_mutex_lock(&memory->lock);
    while (memory->phase == TERN_MEMORY_FETCHING) {
        pthread_cond_wait(&memory->changed, &memory->lock);
    }
    tern_status status = memory->fetched;
    if (status != TERN_OK) {
        tern_detail_set(memory->reason);
    }
    pthread_mutex_unlock(&memory->lock);
    return status;
}

void tern_memory_hurry(struct tern_memory *memory)
{
    if (memory != NULL) {
        atomic_store(&memory->is_hurried, true);
    }
}

bool tern_memory_settle(struct tern_memory *memory, double seconds)
{
    struct timespec until;
    if (memory == NULL) {
        return true;
    }
    tern_memory_hurry(memory);
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = (int64_t)until.tv_nsec +
                 (int64_t)(fmin(fmax(seconds, 0), SETTLE_SECONDS_MAX) * NS_PER_SECOND);
    until.tv_sec += (time_t)(ns / NS_PER_SECOND);
    until.tv_nsec = (long)(ns % NS_PER_SECOND);
    int error = 0;
    pthread_mutex_lock(&memory->lock);
    while (memory->done_step < memory->begun_step && error == 0) {
        error = pthread_cond_timedwait(&memory->changed, &memory->lock, &until);
    }
    bool is_settled = memory->done_step >= memory->begun_step;
    pthread_mutex_unlock(&memory->lock);
    return is_settled;
}

void tern_memory_speak(struct tern_memory *memory, struct tern_memory_word *mine)
{
    pthread_mutex_lock(&memory->lock);
    *mine = (struct tern_memory_word){memory->done_step, memory->kept_step};
    pthread_mutex_unlock(&memory->lock);
}

bool tern_memory_listen(struct tern_memory *memory,
                        const struct tern_memory_word *words,
                        size_t stride)
{
    if (memory->newest < 0) {
        return false;
    }
    struct tern_memory_slot *slot = &memory->slots[memory->newest];
    if (slot->step == memory->settled_step) {
        return false;
    }
    bool is_kept = true;
    for (int rank = 0; rank < memory->ranks; rank++) {
        const struct tern_memory_word *word =
            (const void *)((const uint8_t *)words + (size_t)rank * stride);
        if (word->done_step != slot->step) {
            return false;
        }
        is_kept = is_kept && word->kept_step == slot->step;
    }
    memory->settled_step = slot->step;
    slot->common_step = is_kept ? slot->step : -1;
    return is_kept;
}

struct tern_memory_stats tern_memory_stats(struct tern_memory *memory)
{
    pthread_mutex_lock(&memory->lock);
    struct tern_memory_stats stats = memory->stats;
    pthread_mutex_unlock(&memory->lock);
    stats.count = memory->count;
    for (int i = 0; i < TERN_MEMORY_SLOTS; i++) {
        int64_t step = memory->slots[i].common_step;
        stats.step = step > stats.step ? step : stats.step;
    }
    return stats;
}
