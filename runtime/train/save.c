/* save.c - one thread a rank that writes, and the words that make many shards one checkpoint. */
#include "runtime/train/save.h"

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    PAGE_BYTES = 4096,
    TOUCH_BYTES = 64 << 20, /* between two looks at whether the run ends */
};

enum phase {
    PREPARING, /* the thread takes the pages of the staging memory */
    IDLE,
    WRITING,    /* this rank's thread writes its shard */
    WRITTEN,    /* durable (or failed), not all ranks known to be */
    COMMITTING, /* rank 0's thread commits */
    DONE,       /* result not yet fetched by poll */
};

/* What the words of a rank said about its shard of the save under way. */
enum heard {
    NOTHING,
    GOOD,
    BAD
};

struct tern_saver {
    const struct tern_train_config *config;
    const char *run_dir;
    struct tern_train_state *state;
    struct tern_memory *memory; /* borrowed; NULL: no snapshots in memory */
    float *staging;             /* pinned, 3 * shard_size; NULL: a block of the memory serves */
    struct tern_ckpt_slab *slabs;
    int64_t slab_count;
    struct tern_ckpt_file *files; /* (ranks) */
    struct tern_step_word *words; /* (ranks + 1): finish exchanges them, the last is its own */
    struct tern_text state_json;
    /* of the save under way: the training thread's, read by the other while it works */
    int64_t step;
    double started;
    bool is_told; /* WRITTEN has been said in a word */
    bool is_kept; /* news: all ranks have the newest snapshot in memory */
    unsigned char heard[TERN_LANES_MAX];
    char failure[TERN_STEP_NOTE_BYTES]; /* of the first rank whose shard failed */
    /* shared with the thread, under lock; status, reason and file are the thread's while it
     * works */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, is_stopping;
    enum phase phase;
    tern_status status;
    char reason[TERN_STEP_NOTE_BYTES];
    struct tern_ckpt_file file; /* this rank's */
};

int64_t tern_saver_bytes(const struct tern_train_state *state)
{
    return 12 * state->shard_size;
}

static tern_status write_own(struct tern_saver *saver)
{
    bool has_fetch = saver->memory != NULL && saver->staging != NULL;
    if (!has_fetch) { /* fetch passes it */
        tern_fault_pass(TERN_FAULT_CKPT_SETTLE);
    }
    TERN_RETURN_IF_ERR(saver->memory != NULL ? tern_memory_wait_fetched(saver->memory)
                                             : tern_train_state_settle_snapshot(saver->state));
    const struct tern_config_checkpoint *checkpoint = &saver->config->checkpoint;
    struct tern_ckpt_write write = {
        .run_dir = saver->run_dir,
        .step = saver->step,
        .rank = saver->state->comm->rank,
        .ranks = saver->state->comm->size,
        .slabs = saver->slabs,
        .slab_count = saver->slab_count,
        .state_json = saver->state->comm->rank == 0 ? saver->state_json.data : NULL,
        .compression = checkpoint->compression == TERN_COMPRESSION_NONE   ? TERN_CKPT_NONE
                       : checkpoint->compression == TERN_COMPRESSION_ZSTD ? TERN_CKPT_ZSTD
                                                                          : TERN_CKPT_AUTO,
        .level = (int)checkpoint->level,
        .threads = 1,
    };
    return tern_ckpt_write_shard(&write, &saver->file);
}

static tern_status commit(struct tern_saver *saver)
{
    return tern_ckpt_commit(saver->run_dir, saver->step, saver->files, saver->state->comm->size, "",
                            (int)saver->config->checkpoint.keep);
}

/* Takes the pages of the staging memory behind the first steps, so that neither the start nor the
 * first save waits. */
static void touch_staging(struct tern_saver *saver)
{
    volatile char *bytes = (volatile char *)saver->staging;
    int64_t count = saver->staging != NULL ? 12 * saver->state->shard_size : 0;
    for (int64_t i = 0; i < count; i += PAGE_BYTES) {
        if (i % TOUCH_BYTES == 0) {
            pthread_mutex_lock(&saver->lock);
            bool is_stopping = saver->is_stopping;
            pthread_mutex_unlock(&saver->lock);
            if (is_stopping) {
                return;
            }
        }
        bytes[i] = 0;
    }
}

/* The thread: does what the phase says, outside the lock. */
static void *saver_run(void *arg)
{
    struct tern_saver *saver = arg;
    pthread_setname_np(pthread_self(), "tern-save");
    touch_staging(saver);
    pthread_mutex_lock(&saver->lock);
    saver->phase = IDLE;
    pthread_cond_broadcast(&saver->changed);
    for (;;) {
        while (saver->phase != WRITING && saver->phase != COMMITTING && !saver->is_stopping) {
            pthread_cond_wait(&saver->changed, &saver->lock);
        }
        if (saver->phase != WRITING && saver->phase != COMMITTING) {
            break;
        }
        bool is_write = saver->phase == WRITING;
        pthread_mutex_unlock(&saver->lock);
        tern_status status = is_write ? write_own(saver) : commit(saver);
        pthread_mutex_lock(&saver->lock);
        saver->status = status;
        if (status != TERN_OK) {
            snprintf(saver->reason, sizeof saver->reason, "%s", tern_detail());
        }
        saver->phase = is_write ? WRITTEN : DONE;
        pthread_cond_broadcast(&saver->changed);
    }
    pthread_mutex_unlock(&saver->lock);
    return NULL;
}

/* On the memory's thread: from the device's copy to the block. */
static tern_status fetch(void *context, void *dst)
{
    const struct tern_saver *saver = context;
    tern_fault_pass(TERN_FAULT_CKPT_SETTLE);
    TERN_RETURN_IF_ERR(tern_train_state_settle_snapshot(saver->state));
    memcpy(dst, saver->staging, 12 * (size_t)saver->state->shard_size);
    return TERN_OK;
}

/* Host memory that the device copies to: a block of the memory where that is the host's anyway. */
static tern_status take_staging(struct tern_saver *saver)
{
    const struct tern_train_state *state = saver->state;
    size_t bytes = 12 * (size_t)state->shard_size;
    if (saver->memory != NULL && state->copier == NULL) {
        return TERN_OK;
    }
    saver->staging = state->device->ops->device->pin(state->device, "checkpoint staging", bytes);
    if (saver->staging == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes to stage checkpoints", bytes);
    }
    if (saver->memory != NULL) {
        tern_memory_fetch_with(saver->memory, fetch, saver);
    }
    return TERN_OK;
}

tern_status tern_saver_create(const struct tern_train_config *config,
                              const char *run_dir,
                              struct tern_train_state *state,
                              struct tern_memory *memory,
                              struct tern_saver **out)
{
    struct tern_saver *saver = tern_alloc_zero("save", 1, sizeof *saver);
    if (saver == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a saver");
    }
    saver->config = config;
    saver->run_dir = run_dir;
    saver->state = state;
    saver->memory = memory;
    pthread_mutex_init(&saver->lock, NULL);
    pthread_cond_init(&saver->changed, NULL);
    saver->slab_count = tern_train_state_slab_count(state);
    saver->slabs = tern_alloc_zero("save", (size_t)saver->slab_count + 1, sizeof *saver->slabs);
    saver->files = tern_alloc_zero("save", (size_t)state->comm->size, sizeof *saver->files);
    saver->words = tern_alloc_zero("save", (size_t)state->comm->size + 1, sizeof *saver->words);
    tern_status status = TERN_OK;
    if (saver->slabs == NULL || saver->files == NULL || saver->words == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate the tables of checkpoints");
        goto fail;
    }
    TERN_GOTO_IF_ERR(status, take_staging(saver), fail);
    if (pthread_create(&saver->thread, NULL, saver_run, saver) != 0) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot start the checkpoint thread");
        goto fail;
    }
    saver->has_thread = true;
    *out = saver;
    return TERN_OK;
fail:
    tern_saver_destroy(saver);
    return status;
}

void tern_saver_destroy(struct tern_saver *saver)
{
    if (saver == NULL) {
        return;
    }
    if (saver->has_thread) {
        pthread_mutex_lock(&saver->lock);
        saver->is_stopping = true;
        pthread_cond_broadcast(&saver->changed);
        pthread_mutex_unlock(&saver->lock);
        pthread_join(saver->thread, NULL);
    }
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->lock);
    if (saver->staging != NULL) {
        saver->state->device->ops->device->unpin(saver->state->device, saver->staging);
    }
    tern_free(saver->slabs);
    tern_free(saver->files);
    tern_free(saver->words);
    tern_text_fini(&saver->state_json);
    tern_free(saver);
}

static enum phase phase_of(struct tern_saver *saver)
{
    pthread_mutex_lock(&saver->lock);
    enum phase phase = saver->phase;
    pthread_mutex_unlock(&saver->lock);
    return phase;
}

static void set_phase(struct tern_saver *saver, enum phase phase)
{
    pthread_mutex_lock(&saver->lock);
    saver->phase = phase;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->lock);
}

static void wait_while(struct tern_saver *saver, enum phase phase)
{
    pthread_mutex_lock(&saver->lock);
    while (saver->phase == phase) {
        pthread_cond_wait(&saver->changed, &saver->lock);
    }
    pthread_mutex_unlock(&saver->lock);
}

static bool is_any_saving(const struct tern_saver *saver, const struct tern_step_word *words)
{
    bool is_saving = false;
    for (int rank = 0; rank < saver->state->comm->size; rank++) {
        is_saving = is_saving || words[rank].is_saving;
    }
    return is_saving;
}

bool tern_saver_should_begin(const struct tern_saver *saver, const struct tern_step_word *words)
{
    bool is_wanted = false;
    for (int rank = 0; rank < saver->state->comm->size; rank++) {
        is_wanted = is_wanted || words[rank].wants_save != 0;
    }
    return is_wanted && !is_any_saving(saver, words);
}

bool tern_saver_should_snapshot(const struct tern_saver *saver, const struct tern_step_word *words)
{
    return words[0].wants_snapshot != 0 &&
           tern_memory_may_begin(saver->memory, is_any_saving(saver, words));
}

/* Copies the state to where it is kept and written from: *base_out, NULL: nowhere, this time. */
static tern_status copy_state(struct tern_saver *saver,
                              const char *state_json,
                              bool is_saving,
                              bool is_save,
                              float **base_out)
{
    *base_out = saver->staging;
    if (saver->memory != NULL) {
        tern_memory_begin(saver->memory, saver->state->step, is_saving, is_save, base_out);
    }
    if (*base_out != NULL) {
        float *dst = saver->staging != NULL ? saver->staging : *base_out;
        TERN_RETURN_IF_ERR(tern_train_state_snapshot(saver->state, dst));
    }
    return saver->memory != NULL ? tern_memory_commit(saver->memory, state_json) : TERN_OK;
}

tern_status tern_saver_begin(struct tern_saver *saver, struct tern_text *state_json)
{
    float *base;
    wait_while(saver, PREPARING);
    TERN_CHECK(phase_of(saver) == IDLE);
    tern_fault_pass(TERN_FAULT_SNAPSHOT);
    saver->started = tern_clock_seconds();
    saver->step = saver->state->step;
    saver->is_told = false;
    memset(saver->heard, NOTHING, sizeof saver->heard);
    saver->failure[0] = '\0';
    tern_text_fini(&saver->state_json);
    saver->state_json = *state_json;
    tern_text_init(state_json);
    TERN_RETURN_IF_ERR(copy_state(saver, saver->state_json.data, false, true, &base));
    tern_train_state_slabs(saver->state, base, saver->slabs);
    set_phase(saver, WRITING);
    return TERN_OK;
}

tern_status tern_saver_snapshot(struct tern_saver *saver,
                                const struct tern_text *state_json,
                                const struct tern_step_word *words)
{
    float *base;
    return copy_state(saver, state_json->data, is_any_saving(saver, words), false, &base);
}

bool tern_saver_take_kept(struct tern_saver *saver)
{
    bool is_kept = saver->is_kept;
    saver->is_kept = false;
    return is_kept;
}

void tern_saver_speak(struct tern_saver *saver, struct tern_step_word *mine)
{
    enum phase phase = phase_of(saver);
    if (saver->memory != NULL) {
        tern_memory_speak(saver->memory, &mine->memory);
    }
    mine->saved = 0;
    mine->is_saving = phase != IDLE;
    if (phase != WRITTEN || saver->is_told) {
        return;
    }
    saver->is_told = true;
    mine->saved = saver->status == TERN_OK ? 1 : 2;
    mine->save_step = saver->step;
    mine->file = saver->file;
    snprintf(mine->note, sizeof mine->note, "%s", saver->status == TERN_OK ? "" : saver->reason);
}

/* A rank's news about the save under way. */
static void take_word(struct tern_saver *saver, int rank, const struct tern_step_word *word)
{
    if (word->saved == 0) {
        return;
    }
    TERN_CHECK(word->save_step == saver->step); /* all begin together */
    saver->heard[rank] = word->saved == 1 ? GOOD : BAD;
    saver->files[rank] = word->file;
    if (word->saved != 1 && saver->failure[0] == '\0') { /* it names the rank */
        snprintf(saver->failure, sizeof saver->failure, "%.*s", TERN_STEP_NOTE_BYTES - 1,
                 word->note);
    }
}

void tern_saver_listen(struct tern_saver *saver, const struct tern_step_word *words)
{
    int ranks = saver->state->comm->size;
    saver->is_kept |=
        saver->memory != NULL && tern_memory_listen(saver->memory, &words[0].memory, sizeof *words);
    for (int rank = 0; rank < ranks; rank++) {
        take_word(saver, rank, &words[rank]);
    }
    if (!saver->is_told || phase_of(saver) != WRITTEN) {
        return;
    }
    bool has_failed = false;
    for (int rank = 0; rank < ranks; rank++) {
        if (saver->heard[rank] == NOTHING) {
            return;
        }
        has_failed |= saver->heard[rank] == BAD;
    }
    if (has_failed) {
        set_phase(saver, DONE);
    } else {
        set_phase(saver, saver->state->comm->rank == 0 ? COMMITTING : IDLE);
    }
}

bool tern_saver_poll(struct tern_saver *saver, struct tern_saver_event *event_out)
{
    if (phase_of(saver) != DONE) {
        return false;
    }
    if (saver->status != TERN_OK && saver->failure[0] == '\0') { /* the commit */
        snprintf(saver->failure, sizeof saver->failure, "%s", saver->reason);
    }
    *event_out = (struct tern_saver_event){
        .step = saver->step,
        .is_done = saver->status == TERN_OK && saver->failure[0] == '\0',
        .seconds = tern_clock_seconds() - saver->started,
    };
    for (int rank = 0; rank < saver->state->comm->size; rank++) {
        event_out->bytes += saver->files[rank].bytes;
        event_out->raw_bytes += saver->files[rank].raw_bytes;
    }
    snprintf(event_out->reason, sizeof event_out->reason, "%s", saver->failure);
    set_phase(saver, IDLE);
    return true;
}

tern_status tern_saver_finish(struct tern_saver *saver)
{
    struct tern_comm *comm = saver->state->comm;
    struct tern_step_word *mine = &saver->words[comm->size];
    wait_while(saver, PREPARING);
    wait_while(saver, WRITING);
    tern_saver_speak(saver, mine);
    TERN_RETURN_IF_ERR(tern_comm_all_gather(comm, mine, sizeof *mine, saver->words));
    tern_saver_listen(saver, saver->words);
    wait_while(saver, COMMITTING);
    return tern_comm_barrier(comm);
}
