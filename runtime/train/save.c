/* save.c - one thread a rank that writes, and the words that make many shards one checkpoint. */
#include "runtime/train/save.h"

#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    STATE_JSON_BYTES = 64 << 10
};

enum phase {
    IDLE,
    WRITING,    /* this rank's thread writes its shard */
    WRITTEN,    /* durable (or failed), not all ranks known to be */
    COMMITTING, /* rank 0's thread commits */
    DONE,       /* result not yet fetched by poll */
};

struct tern_saver {
    const struct tern_train_config *config;
    const char *run_dir;
    struct tern_train_state *state;
    float *staging; /* 3 * shard_size */
    struct tern_ckpt_slab *slabs;
    int64_t slab_count;
    struct tern_ckpt_file *files; /* (ranks) */
    char *state_json;
    int64_t step;
    double started;
    /* shared with the thread, under lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, is_stopping;
    enum phase phase;
    tern_status status;
    char reason[TERN_STEP_NOTE_BYTES];
    struct tern_ckpt_file file; /* this rank's */
    bool is_told;               /* WRITTEN has been said in a word */
};

int64_t tern_saver_bytes(const struct tern_train_state *state)
{
    return 12 * state->shard_size + STATE_JSON_BYTES;
}

static tern_status write_own(struct tern_saver *saver)
{
    const struct tern_config_checkpoint *checkpoint = &saver->config->checkpoint;
    struct tern_ckpt_write write = {
        .run_dir = saver->run_dir,
        .step = saver->step,
        .rank = saver->state->comm->rank,
        .ranks = saver->state->comm->size,
        .slabs = saver->slabs,
        .slab_count = saver->slab_count,
        .state_json = saver->state->comm->rank == 0 ? saver->state_json : NULL,
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

/* The thread: does what the phase says, outside the lock. */
static void *saver_run(void *arg)
{
    struct tern_saver *saver = arg;
    pthread_setname_np(pthread_self(), "tern-save");
    pthread_mutex_lock(&saver->lock);
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

tern_status tern_saver_create(const struct tern_train_config *config,
                              const char *run_dir,
                              struct tern_train_state *state,
                              struct tern_saver **out)
{
    struct tern_saver *saver = tern_alloc_zero("save", 1, sizeof *saver);
    if (saver == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a saver");
    }
    saver->config = config;
    saver->run_dir = run_dir;
    saver->state = state;
    pthread_mutex_init(&saver->lock, NULL);
    pthread_cond_init(&saver->changed, NULL);
    saver->slab_count = tern_train_state_slab_count(state);
    size_t staging_bytes = 12 * (size_t)state->shard_size;
    saver->staging = tern_alloc("checkpoint staging", staging_bytes);
    saver->slabs = tern_alloc_zero("save", (size_t)saver->slab_count + 1, sizeof *saver->slabs);
    saver->files = tern_alloc_zero("save", (size_t)state->comm->size, sizeof *saver->files);
    saver->state_json = tern_alloc("save", STATE_JSON_BYTES);
    tern_status status = TERN_OK;
    if (saver->staging == NULL || saver->slabs == NULL || saver->files == NULL ||
        saver->state_json == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes to stage checkpoints",
                           staging_bytes);
        goto fail;
    }
    memset(saver->staging, 0,
           staging_bytes); /* touched now, so that the first save does not fault pages in */
    tern_train_state_slabs(state, saver->staging, saver->slabs);
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
    tern_free(saver->staging);
    tern_free(saver->slabs);
    tern_free(saver->files);
    tern_free(saver->state_json);
    tern_free(saver);
}

static enum phase phase_of(const struct tern_saver *saver)
{
    struct tern_saver *writable = (struct tern_saver *)saver; /* the lock only */
    pthread_mutex_lock(&writable->lock);
    enum phase phase = saver->phase;
    pthread_mutex_unlock(&writable->lock);
    return phase;
}

static void set_phase(struct tern_saver *saver, enum phase phase)
{
    pthread_mutex_lock(&saver->lock);
    saver->phase = phase;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->lock);
}

bool tern_saver_should_begin(const struct tern_saver *saver, const struct tern_step_word *words)
{
    for (int rank = 0; rank < saver->state->comm->size; rank++) {
        if (words[rank].is_saving) {
            return false;
        }
    }
    return words[0].wants_save != 0;
}

tern_status tern_saver_begin(struct tern_saver *saver, const char *state_json)
{
    if (strlen(state_json) >= STATE_JSON_BYTES) {
        return tern_fail(TERN_ERR_STATE, "the state text of a checkpoint is longer than %d bytes",
                         STATE_JSON_BYTES);
    }
    tern_fault_pass(TERN_FAULT_SNAPSHOT);
    saver->started = tern_clock_seconds();
    saver->step = saver->state->step;
    saver->is_told = false;
    strcpy(saver->state_json, state_json);
    TERN_RETURN_IF_ERR(tern_train_state_snapshot(saver->state, saver->staging));
    set_phase(saver, WRITING);
    return TERN_OK;
}

void tern_saver_speak(struct tern_saver *saver, struct tern_step_word *mine)
{
    mine->saved = 0;
    mine->is_saving = phase_of(saver) != IDLE;
    if (phase_of(saver) != WRITTEN || saver->is_told) {
        return;
    }
    saver->is_told = true;
    mine->saved = saver->status == TERN_OK ? 1 : 2;
    mine->save_step = saver->step;
    mine->file = saver->file;
    memcpy(mine->note, saver->reason, sizeof mine->note);
}

void tern_saver_listen(struct tern_saver *saver, const struct tern_step_word *words)
{
    int ranks = saver->state->comm->size;
    for (int rank = 0; rank < ranks; rank++) {
        if (words[rank].saved == 1 && words[rank].save_step == saver->step) {
            saver->files[rank] = words[rank].file;
        } else if (words[rank].saved == 2 && words[rank].save_step == saver->step) {
            snprintf(saver->files[rank].name, sizeof saver->files[rank].name, "!");
            snprintf(saver->reason, sizeof saver->reason, "rank %d: %.200s", rank,
                     words[rank].note);
        }
    }
    if (!saver->is_told || phase_of(saver) != WRITTEN) {
        return;
    }
    int failed = -1;
    for (int rank = 0; rank < ranks; rank++) {
        if (saver->files[rank].name[0] == '\0') {
            return; /* not heard from yet */
        }
        failed = saver->files[rank].name[0] == '!' ? rank : failed;
    }
    if (failed >= 0) {
        char reason[TERN_STEP_NOTE_BYTES];
        memcpy(reason, saver->reason, sizeof reason);
        memset(saver->files, 0, (size_t)ranks * sizeof *saver->files);
        saver->status = TERN_ERR_IO;
        memcpy(saver->reason, reason, sizeof reason);
        set_phase(saver, DONE);
        return;
    }
    if (saver->state->comm->rank == 0) {
        set_phase(saver, COMMITTING);
        return;
    }
    memset(saver->files, 0, (size_t)ranks * sizeof *saver->files);
    set_phase(saver, IDLE);
}

bool tern_saver_poll(struct tern_saver *saver, struct tern_saver_event *event_out)
{
    if (phase_of(saver) != DONE) {
        return false;
    }
    *event_out = (struct tern_saver_event){
        .step = saver->step,
        .is_done = saver->status == TERN_OK,
        .seconds = tern_clock_seconds() - saver->started,
    };
    for (int rank = 0; rank < saver->state->comm->size; rank++) {
        event_out->bytes += saver->files[rank].bytes;
        event_out->raw_bytes += saver->files[rank].raw_bytes;
    }
    memcpy(event_out->reason, saver->reason, sizeof event_out->reason);
    memset(saver->files, 0, (size_t)saver->state->comm->size * sizeof *saver->files);
    saver->reason[0] = '\0';
    set_phase(saver, IDLE);
    return true;
}

static void wait_while(struct tern_saver *saver, enum phase phase)
{
    pthread_mutex_lock(&saver->lock);
    while (saver->phase == phase) {
        pthread_cond_wait(&saver->changed, &saver->lock);
    }
    pthread_mutex_unlock(&saver->lock);
}

tern_status tern_saver_finish(struct tern_saver *saver)
{
    struct tern_comm *comm = saver->state->comm;
    wait_while(saver, WRITING);
    struct tern_step_word *words = tern_alloc_zero("save", (size_t)comm->size + 1, sizeof *words);
    if (words == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the words of %d ranks", comm->size);
    }
    struct tern_step_word *mine = &words[comm->size];
    tern_saver_speak(saver, mine);
    tern_status status = tern_comm_all_gather(comm, mine, sizeof *mine, words);
    if (status == TERN_OK) {
        tern_saver_listen(saver, words);
        wait_while(saver, COMMITTING);
        status = tern_comm_barrier(comm);
    }
    tern_free(words);
    return status;
}
