/* remote.c - one thread a rank that sends, and the words that make many shards one checkpoint in the
 * bucket. */
#include "runtime/train/remote.h"

#include "io/checkpoint_parts.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/train/owner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    WAIT_NS = 20000000 /* between two rounds of words at the end of a run */
};

enum phase {
    IDLE,
    SENDING,    /* this rank's thread sends its shard */
    SENT,       /* there (or failed), not all ranks known to be */
    COMMITTING, /* rank 0's thread puts the manifest */
    DONE        /* result not yet fetched by poll */
};

enum heard {
    NOTHING,
    GOOD,
    BAD
};

struct tern_mirror {
    const struct tern_config_checkpoint *config;
    struct tern_comm *comm;
    struct tern_store *store;
    char run_dir[TERN_PATH_BYTES];
    struct tern_step_word *words; /* (ranks + 1): finish exchanges them, the last is its own */
    /* the training thread's */
    int64_t offered; /* rank 0: newest step that is committed on disk; -1 none */
    int64_t begun;   /* newest step whose upload was begun; the same on all ranks; -1 none */
    int64_t there;   /* rank 0: newest step that the bucket has; -1 unknown */
    double started;
    bool is_told;
    bool is_claimed; /* rank 0: the bucket says that it is this run's; the thread's once it runs */
    unsigned char heard[TERN_LANES_MAX];
    char failure[TERN_STEP_NOTE_BYTES]; /* of the first rank whose shard failed */
    /* shared with the thread, under lock; step, status, reason and bytes are the thread's while it
     * works */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, is_stopping;
    enum phase phase;
    int64_t step;
    tern_status status;
    char reason[TERN_STEP_NOTE_BYTES];
    int64_t bytes;
};

int64_t tern_mirror_bytes(void)
{
    return tern_store_bytes(NULL);
}

/* ---- the thread ---- */

/* RUN/upload/step-N: links to the files of a checkpoint while they are under way. */
static tern_status staging_of(const struct tern_mirror *mirror,
                              int64_t step,
                              char out[TERN_PATH_BYTES])
{
    char name[64];
    snprintf(name, sizeof name, "upload/step-%08lld", (long long)step);
    return tern_path_join(out, mirror->run_dir, name);
}

/* Links a file of the checkpoint; path_out: the link, or the file where links cannot be made. */
static tern_status stage(const struct tern_mirror *mirror,
                         const char *staging,
                         const char *name,
                         char path_out[TERN_PATH_BYTES])
{
    char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_ckpt_folder(mirror->run_dir, mirror->step, folder));
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, name));
    TERN_RETURN_IF_ERR(tern_path_join(path_out, staging, name));
    if (link(path, path_out) == 0 || errno == EEXIST) {
        return TERN_OK;
    }
    memcpy(path_out, path, TERN_PATH_BYTES);
    return TERN_OK;
}

/* Sends the shards that are this rank's to send: of a checkpoint that more ranks have written (a
 * resumed run offers the one that it began from) every size-th. */
static tern_status send_own(struct tern_mirror *mirror)
{
    char folder[TERN_PATH_BYTES], staging[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    struct tern_ckpt_manifest manifest;
    TERN_RETURN_IF_ERR(staging_of(mirror, mirror->step, staging));
    TERN_RETURN_IF_ERR(tern_file_make_folder(staging));
    TERN_RETURN_IF_ERR(tern_ckpt_folder(mirror->run_dir, mirror->step, folder));
    TERN_RETURN_IF_ERR(tern_ckpt_manifest_read(folder, &manifest));
    tern_status status = TERN_OK;
    for (int i = mirror->comm->rank; i < manifest.ranks && status == TERN_OK;
         i += mirror->comm->size) {
        status = stage(mirror, staging, manifest.files[i].name, path);
    }
    for (int i = mirror->comm->rank; i < manifest.ranks && status == TERN_OK;
         i += mirror->comm->size) {
        status = stage(mirror, staging, manifest.files[i].name, path);
        if (status == TERN_OK) {
            status = tern_remote_push(mirror->store, mirror->step, path, &manifest.files[i], NULL);
        }
    }
    if (mirror->comm->rank == 0 && status == TERN_OK) {
        status = stage(mirror, staging, TERN_CKPT_VIEW, path);
    }
    if (mirror->comm->rank == 0 && status == TERN_OK) {
        status = stage(mirror, staging, TERN_CKPT_MANIFEST, path);
    }
    tern_ckpt_manifest_fini(&manifest);
    return status;
}

/* The bucket must be this run's before there is a checkpoint in it. */
static tern_status claim(struct tern_mirror *mirror)
{
    tern_status status =
        mirror->is_claimed ? TERN_OK : tern_owner_claim(mirror->store, mirror->run_dir);
    mirror->is_claimed = status == TERN_OK;
    return status;
}

static tern_status commit(struct tern_mirror *mirror)
{
    char staging[TERN_PATH_BYTES];
    int removed;
    TERN_RETURN_IF_ERR(claim(mirror));
    TERN_RETURN_IF_ERR(staging_of(mirror, mirror->step, staging));
    tern_status status = tern_remote_commit(mirror->store, mirror->step, staging, &mirror->bytes);
    if (status == TERN_ERR_BUSY) {
        tern_log_info("%s; it stays", tern_detail());
        status = TERN_OK; /* another launch of this run: the same state under other hashes */
    }
    TERN_RETURN_IF_ERR(status);
    /* what cannot be removed now is removed after a later commit */
    status = tern_remote_prune(mirror->store, (int)mirror->config->remote_keep, &removed);
    if (status == TERN_OK) {
        status = tern_remote_clean(mirror->store, mirror->step, &removed);
    }
    if (status != TERN_OK && status != TERN_ERR_CANCELLED) {
        tern_log_warn("old checkpoints stay in the bucket for now: %s", tern_detail());
    }
    return TERN_OK;
}

/* Removes the links of all uploads, or of the one that has ended. */
static void unstage(const struct tern_mirror *mirror, bool is_all)
{
    char staging[TERN_PATH_BYTES];
    tern_status status = is_all ? tern_path_join(staging, mirror->run_dir, "upload")
                                : staging_of(mirror, mirror->step, staging);
    if (status != TERN_OK || tern_file_remove_tree(staging) != TERN_OK) {
        tern_log_debug("links of an upload stay: %s", tern_detail());
    }
}

/* Those of uploads that failed: other ranks may be making this one's. */
static void unstage_others(const struct tern_mirror *mirror)
{
    char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    char **names;
    int count;
    if (tern_path_join(folder, mirror->run_dir, "upload") != TERN_OK ||
        tern_file_list(folder, &names, &count) != TERN_OK) {
        return;
    }
    for (int i = 0; i < count; i++) {
        if (tern_ckpt_step_of(names[i]) != mirror->step &&
            tern_path_join(path, folder, names[i]) == TERN_OK &&
            tern_file_remove_tree(path) != TERN_OK) {
            tern_log_debug("links of an upload stay: %s", tern_detail());
        }
    }
    tern_free(names);
}

static void *mirror_run(void *arg)
{
    struct tern_mirror *mirror = arg;
    pthread_setname_np(pthread_self(), "tern-upload");
    pthread_mutex_lock(&mirror->lock);
    for (;;) {
        while (mirror->phase != SENDING && mirror->phase != COMMITTING && !mirror->is_stopping) {
            pthread_cond_wait(&mirror->changed, &mirror->lock);
        }
        if (mirror->is_stopping) {
            break;
        }
        bool is_send = mirror->phase == SENDING;
        pthread_mutex_unlock(&mirror->lock);
        if (is_send && mirror->comm->rank == 0) {
            unstage_others(mirror);
        }
        mirror->status = is_send ? send_own(mirror) : commit(mirror);
        snprintf(mirror->reason, sizeof mirror->reason, "%.*s", (int)sizeof mirror->reason - 1,
                 mirror->status == TERN_OK ? "" : tern_detail());
        if (!is_send) {
            unstage(mirror, false);
        }
        pthread_mutex_lock(&mirror->lock);
        mirror->phase = is_send ? SENT : DONE;
        pthread_cond_broadcast(&mirror->changed);
    }
    pthread_mutex_unlock(&mirror->lock);
    return NULL;
}

/* ---- a mirror ---- */

tern_status tern_mirror_create(const struct tern_config_checkpoint *config,
                               struct tern_comm *comm,
                               struct tern_mirror **out)
{
    *out = NULL;
    if (config->remote == NULL) {
        return TERN_OK;
    }
    struct tern_mirror *mirror = tern_alloc_zero("mirror", 1, sizeof *mirror);
    if (mirror == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for uploads");
    }
    mirror->config = config;
    mirror->comm = comm;
    mirror->offered = mirror->begun = mirror->there = -1;
    pthread_mutex_init(&mirror->lock, NULL);
    pthread_cond_init(&mirror->changed, NULL);
    struct tern_store_options options = {.rate_bytes = config->remote_rate};
    tern_status status = tern_store_open(config->remote, &options, &mirror->store);
    mirror->words = tern_alloc_zero("mirror", (size_t)comm->size + 1, sizeof *mirror->words);
    if (status == TERN_OK && mirror->words == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "no memory for uploads");
    }
    if (status != TERN_OK) {
        tern_mirror_destroy(mirror);
        return tern_fail_prefix(status, "checkpoint.remote");
    }
    *out = mirror;
    return TERN_OK;
}

void tern_mirror_destroy(struct tern_mirror *mirror)
{
    if (mirror == NULL) {
        return;
    }
    if (mirror->has_thread) {
        tern_store_cancel(mirror->store, true);
        pthread_mutex_lock(&mirror->lock);
        mirror->is_stopping = true;
        pthread_cond_broadcast(&mirror->changed);
        pthread_mutex_unlock(&mirror->lock);
        pthread_join(mirror->thread, NULL);
        if (mirror->comm->rank == 0) {
            unstage(mirror, true);
        }
    }
    pthread_cond_destroy(&mirror->changed);
    pthread_mutex_destroy(&mirror->lock);
    tern_store_close(mirror->store);
    tern_free(mirror->words);
    tern_free(mirror);
}

tern_status tern_mirror_start(struct tern_mirror *mirror, const char *run_dir)
{
    if (mirror == NULL) {
        return TERN_OK;
    }
    snprintf(mirror->run_dir, sizeof mirror->run_dir, "%s", run_dir);
    if (tern_thread_start(&mirror->thread, mirror_run, mirror) != 0) {
        return tern_fail(TERN_ERR_MEMORY, "cannot start the upload thread");
    }
    mirror->has_thread = true;
    return TERN_OK;
}

tern_status tern_mirror_adopt(struct tern_mirror *mirror, const char *run_dir)
{
    return mirror != NULL ? tern_owner_adopt(mirror->store, run_dir) : TERN_OK;
}

/* A bucket that can't be written to now is claimed with the first checkpoint. */
static tern_status claim_early(struct tern_mirror *mirror, const char *run_dir)
{
    snprintf(mirror->run_dir, sizeof mirror->run_dir, "%s", run_dir);
    tern_status status = claim(mirror);
    if (status == TERN_ERR_IO || status == TERN_ERR_NO_SPACE) {
        tern_log_warn("%s; the run goes on, uploads will be tried", tern_detail());
        return TERN_OK;
    }
    return status;
}

tern_status tern_mirror_check_empty(struct tern_mirror *mirror, const char *run_dir)
{
    int count = 0;
    if (mirror == NULL) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_remote_list(mirror->store, NULL, 0, &count));
    return count == 0 ? claim_early(mirror, run_dir)
                      : tern_fail(TERN_ERR_CONFIG,
                                  "--resume never: %s holds %d checkpoint%s of an earlier run; "
                                  "choose another checkpoint.remote",
                                  tern_store_url(mirror->store), count, count == 1 ? "" : "s");
}

tern_status tern_mirror_pull(struct tern_mirror *mirror,
                             const char *run_dir,
                             tern_status local,
                             int64_t local_step,
                             int64_t *pulled_out)
{
    int64_t step, bytes;
    int removed;
    char size[TERN_TEXT_BYTES_BYTES];
    *pulled_out = -1;
    TERN_RETURN_IF_ERR(claim_early(mirror, run_dir));
    unstage(mirror, true);
    TERN_RETURN_IF_ERR(tern_remote_clean(mirror->store, INT64_MAX, &removed));
    if (removed > 0) {
        tern_log_info("%s: removed %d leftovers of launches that died",
                      tern_store_url(mirror->store), removed);
    }
    tern_status status = tern_remote_find(mirror->store, &step);
    if (status == TERN_ERR_NOT_FOUND) {
        return TERN_OK;
    }
    if (status == TERN_ERR_CORRUPT && local != TERN_ERR_CORRUPT) {
        tern_log_warn("%s; the run goes on with what is on disk", tern_detail());
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(status);
    mirror->there = step;
    if (local == TERN_OK && local_step >= step) {
        return TERN_OK;
    }
    double started = tern_clock_seconds();
    TERN_RETURN_IF_ERR(tern_remote_pull(mirror->store, step, run_dir, &bytes));
    tern_log_info("checkpoint step %lld fetched from %s: %s in %.2f s", (long long)step,
                  tern_store_url(mirror->store), tern_text_bytes(bytes, size),
                  tern_clock_seconds() - started);
    *pulled_out = step;
    return TERN_OK;
}

void tern_mirror_offer(struct tern_mirror *mirror, int64_t step)
{
    if (mirror != NULL && step > mirror->offered) {
        mirror->offered = step;
    }
}

/* ---- words ---- */

static enum phase phase_of(struct tern_mirror *mirror)
{
    pthread_mutex_lock(&mirror->lock);
    enum phase phase = mirror->phase;
    pthread_mutex_unlock(&mirror->lock);
    return phase;
}

static void set_phase(struct tern_mirror *mirror, enum phase phase)
{
    pthread_mutex_lock(&mirror->lock);
    mirror->phase = phase;
    pthread_cond_broadcast(&mirror->changed);
    pthread_mutex_unlock(&mirror->lock);
}

static void begin(struct tern_mirror *mirror, int64_t step)
{
    TERN_CHECK(phase_of(mirror) == IDLE);
    mirror->step = mirror->begun = step;
    mirror->started = tern_clock_seconds();
    mirror->is_told = false;
    mirror->failure[0] = '\0';
    mirror->bytes = 0;
    memset(mirror->heard, NOTHING, sizeof mirror->heard);
    set_phase(mirror, SENDING);
}

void tern_mirror_speak(struct tern_mirror *mirror, struct tern_step_word *mine)
{
    if (mirror == NULL) {
        return;
    }
    enum phase phase = phase_of(mirror);
    mine->sent = 0;
    mine->is_sending = phase != IDLE;
    /* the step that is to go to the bucket next; 0 none */
    mine->send_step =
        mirror->offered > mirror->begun && mirror->offered != mirror->there ? mirror->offered : 0;
    if (phase != SENT || mirror->is_told) {
        return;
    }
    mirror->is_told = true;
    mine->sent = mirror->status == TERN_OK ? 1 : 2;
    snprintf(mine->send_note, sizeof mine->send_note, "%.*s", (int)sizeof mine->send_note - 1,
             mirror->status == TERN_OK ? "" : mirror->reason);
}

/* All ranks have told: on to the manifest, or the end. */
static void conclude(struct tern_mirror *mirror)
{
    bool has_failed = false;
    for (int rank = 0; rank < mirror->comm->size; rank++) {
        if (mirror->heard[rank] == NOTHING) {
            return;
        }
        has_failed |= mirror->heard[rank] == BAD;
    }
    if (has_failed) {
        set_phase(mirror, DONE);
    } else {
        set_phase(mirror, mirror->comm->rank == 0 ? COMMITTING : IDLE);
    }
}

void tern_mirror_listen(struct tern_mirror *mirror, const struct tern_step_word *words)
{
    if (mirror == NULL) {
        return;
    }
    bool is_anybody_busy = false;
    for (int rank = 0; rank < mirror->comm->size; rank++) {
        const struct tern_step_word *word = &words[rank];
        is_anybody_busy |= word->is_sending != 0;
        if (word->sent != 0) {
            mirror->heard[rank] = word->sent == 1 ? GOOD : BAD;
            if (word->sent != 1 && mirror->failure[0] == '\0') {
                snprintf(mirror->failure, sizeof mirror->failure, "%.*s", TERN_STEP_NOTE_BYTES - 1,
                         word->send_note);
            }
        }
    }
    if (mirror->is_told && phase_of(mirror) == SENT) {
        conclude(mirror);
    }
    if (!is_anybody_busy && words[0].send_step > 0 && words[0].send_step > mirror->begun) {
        begin(mirror, words[0].send_step);
    }
}

bool tern_mirror_poll(struct tern_mirror *mirror, struct tern_mirror_event *event_out)
{
    if (mirror == NULL || phase_of(mirror) != DONE) {
        return false;
    }
    if (mirror->status != TERN_OK && mirror->failure[0] == '\0') {
        snprintf(mirror->failure, sizeof mirror->failure, "%s", mirror->reason);
    }
    *event_out = (struct tern_mirror_event){
        .step = mirror->step,
        .is_done = mirror->status == TERN_OK && mirror->failure[0] == '\0',
        .seconds = tern_clock_seconds() - mirror->started,
        .bytes = mirror->bytes,
    };
    snprintf(event_out->reason, sizeof event_out->reason, "%s", mirror->failure);
    if (event_out->is_done) {
        mirror->there = mirror->step;
    }
    set_phase(mirror, IDLE);
    return true;
}

/* ---- the end of a run ---- */

/* Exchanges words until no rank sends or commits; *event_out: of the upload that ended. From `until` on (clock seconds, 0:
 * never) what this rank has under way is given up, though it may be waiting for its turn at a limited rate. */
static tern_status settle(struct tern_mirror *mirror,
                          double until,
                          struct tern_mirror_event *event_out)
{
    struct tern_comm *comm = mirror->comm;
    struct tern_step_word *mine = &mirror->words[comm->size];
    for (;;) {
        bool is_busy = false;
        *mine = (struct tern_step_word){0};
        tern_mirror_speak(mirror, mine);
        mine->send_step = 0; /* nothing new is begun here */
        TERN_RETURN_IF_ERR(tern_comm_all_gather(comm, mine, sizeof *mine, mirror->words));
        tern_mirror_listen(mirror, mirror->words);
        (void)tern_mirror_poll(mirror, event_out);
        for (int rank = 0; rank < comm->size; rank++) {
            is_busy |= mirror->words[rank].is_sending != 0;
        }
        if (!is_busy) {
            return TERN_OK;
        }
        if (until > 0 && tern_clock_seconds() >= until) {
            tern_store_cancel(mirror->store, true);
        }
        tern_clock_sleep_ns(WAIT_NS);
    }
}

/* What rank 0 decides about the end. Plain data. */
struct ending {
    int64_t step;     /* to be in the bucket; -1 none was ever committed */
    int32_t is_there; /* it is */
    int32_t gives_up; /* what is under way is older */
};

static tern_status decide(struct tern_mirror *mirror, struct ending *out)
{
    bool is_busy = phase_of(mirror) != IDLE;
    *out = (struct ending){
        .step = mirror->offered,
        .is_there = mirror->offered <= mirror->there,
        .gives_up = is_busy && mirror->step < mirror->offered,
    };
    return tern_comm_broadcast(mirror->comm, out, sizeof *out, 0);
}

tern_status tern_mirror_finish(struct tern_mirror *mirror,
                               double seconds,
                               struct tern_mirror_event *event_out)
{
    struct ending ending;
    *event_out = (struct tern_mirror_event){.step = -1, .is_done = true};
    if (mirror == NULL) {
        return TERN_OK;
    }
    double until = seconds > 0 ? tern_clock_seconds() + seconds : 0;
    if (until > 0) {
        tern_store_set_deadline(mirror->store, until);
    }
    TERN_RETURN_IF_ERR(decide(mirror, &ending));
    if (ending.gives_up) {
        tern_store_cancel(mirror->store, true);
    }
    TERN_RETURN_IF_ERR(settle(mirror, until, event_out));
    tern_store_cancel(mirror->store, false);
    TERN_RETURN_IF_ERR(decide(mirror, &ending));
    if (!ending.is_there) {
        begin(mirror, ending.step);
        TERN_RETURN_IF_ERR(settle(mirror, until, event_out));
        TERN_RETURN_IF_ERR(decide(mirror, &ending));
    }
    if (!ending.is_there) {
        event_out->is_done = false;
        event_out->step = ending.step;
    }
    return TERN_OK;
}
