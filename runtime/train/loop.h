/* loop.h - what the loop of a run carries from step to step, and how it saves: for trainer.c, which
 * goes round, and finish.c, which ends. */
#ifndef TERN_RUNTIME_TRAIN_LOOP_H
#define TERN_RUNTIME_TRAIN_LOOP_H

#include "runtime/observe/step_log.h"
#include "runtime/train/job.h"
#include "runtime/train/snapshots.h"

/* What is to be logged of a step when its result is there. */
struct tern_loop_step {
    int64_t step;
    double lr, started, data_seconds;
};

struct tern_loop {
    struct tern_job *job;
    struct tern_step_log log;
    struct tern_step_word mine;
    const struct tern_step_word *words;
    struct tern_step_result result;
    int64_t last_saved; /* step of the newest checkpoint, written or under way, that has not failed;
                           -1 none */
    double last_save_time;
    bool is_save_due;
    char save_failure[TERN_STEP_NOTE_BYTES]; /* why the last failed save failed, as far as this rank
                                                knows */
    double data_seconds, stall_seconds;
    struct tern_snapshots snapshots; /* in memory */
    struct tern_loop_step launched;  /* the newest step that was ended */
    double settled;                  /* when the newest result was read */
};

bool tern_loop_is_first_rank(const struct tern_loop *loop);

/* ---- checkpoints ---- */

/* Rank 0: the state after the step that is under way should be a checkpoint. */
bool tern_loop_save_is_due(const struct tern_loop *loop);
/* Copies the state as it is, and lets it be written behind training. */
TERN_MUST_CHECK tern_status tern_loop_begin_save(struct tern_loop *loop);
/* Copies the state as it is, to stay in memory. */
TERN_MUST_CHECK tern_status tern_loop_snapshot(struct tern_loop *loop);
/* Fetches what the saver, the uploader and those who keep snapshots have to say, if anything. A
 * step whose save failed is not saved. */
void tern_loop_hear(struct tern_loop *loop);
/* Rank 0 says what became of an upload. */
void tern_loop_report_upload(struct tern_loop *loop, const struct tern_mirror_event *event);
/* Makes the state as it is now a committed checkpoint; waits for it. Collective. A failure is known
 * to all ranks. */
TERN_MUST_CHECK tern_status tern_loop_save_now(struct tern_loop *loop);

#endif
