/* remote.h - the bucket behind a run: checkpoints go there behind the steps, and come from there on
 * an empty machine.
 *
 * When a checkpoint is committed on disk and no upload is under way, all ranks begin one: each sends
 * its own shard from a thread of its own and tells the others with the words of the steps; when all
 * shards are there rank 0's thread puts the manifest, and removes what is too old. Of checkpoints
 * that come faster than they can be sent only the newest is. Files under way are hard links in
 * RUN/upload, so that the disk's own pruning does not take them away. */
#ifndef TERN_RUNTIME_TRAIN_REMOTE_H
#define TERN_RUNTIME_TRAIN_REMOTE_H

#include "comm/comm.h"
#include "io/remote.h"
#include "runtime/train/config.h"
#include "runtime/train/step.h"

struct tern_mirror;

struct tern_mirror_event {
    int64_t step;
    bool is_done; /* the bucket has it; else failed */
    double seconds;
    int64_t bytes;
    char reason[TERN_STEP_NOTE_BYTES]; /* why it failed */
};

/* Host memory that uploads take. */
int64_t tern_mirror_bytes(void);
/* Opens the store of checkpoint.remote; *out NULL when there is none. Asks nobody yet. Owned:
 * destroy. */
TERN_MUST_CHECK tern_status tern_mirror_create(const struct tern_config_checkpoint *config,
                                               struct tern_comm *comm,
                                               struct tern_mirror **out);
void tern_mirror_destroy(struct tern_mirror *mirror);
/* Rank 0, holding the run lock, before the run's id is made: an empty run directory becomes one of the
 * run that the bucket holds (owner.h). */
TERN_MUST_CHECK tern_status tern_mirror_adopt(struct tern_mirror *mirror, const char *run_dir);
/* Rank 0, holding the run lock, before the run's own checkpoints are looked for a last time: fetches
 * the bucket's newest good checkpoint into RUN/ckpt when that holds none that is newer and good.
 * `local`: what tern_ckpt_find said, `local_step`: of what it found. *pulled_out: the step fetched,
 * -1 none. Removes what dead launches left in the bucket. TERN_ERR_CONFIG: it is another run's. */
TERN_MUST_CHECK tern_status tern_mirror_pull(struct tern_mirror *mirror,
                                             const char *run_dir,
                                             tern_status local,
                                             int64_t local_step,
                                             int64_t *pulled_out);
/* Rank 0: TERN_ERR_CONFIG when the bucket holds checkpoints, or is another run's. */
TERN_MUST_CHECK tern_status tern_mirror_check_empty(struct tern_mirror *mirror,
                                                    const char *run_dir);
/* All ranks, before the first step: starts the thread. */
TERN_MUST_CHECK tern_status tern_mirror_start(struct tern_mirror *mirror, const char *run_dir);
/* Rank 0: this step is committed on disk. */
void tern_mirror_offer(struct tern_mirror *mirror, int64_t step);
/* As the saver's: before a step's exchange, and after it. */
void tern_mirror_speak(struct tern_mirror *mirror, struct tern_step_word *mine);
void tern_mirror_listen(struct tern_mirror *mirror, const struct tern_step_word *words);
/* An upload that ended since the last call. False if none. */
bool tern_mirror_poll(struct tern_mirror *mirror, struct tern_mirror_event *event_out);
/* Collective: waits until the bucket has the newest checkpoint that was offered, at most `seconds`
 * (0: as long as the store's own limits allow). *event_out: the upload that this waited for, step -1
 * if there was nothing to wait for; is_done: the bucket has the newest. An older upload that stands
 * in the way of the newest is given up. */
TERN_MUST_CHECK tern_status tern_mirror_finish(struct tern_mirror *mirror,
                                               double seconds,
                                               struct tern_mirror_event *event_out);

#endif
