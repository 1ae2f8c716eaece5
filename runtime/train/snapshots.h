/* snapshots.h - a run's snapshots in memory: the memory for them, how often one is made, and what is said about it. */
#ifndef TERN_RUNTIME_TRAIN_SNAPSHOTS_H
#define TERN_RUNTIME_TRAIN_SNAPSHOTS_H

#include "runtime/observe/step_log.h"
#include "runtime/reclaim/interval.h"
#include "runtime/train/job.h"

/* ---- memory ---- */

/* Bytes of one block of this rank; 0: checkpoint.snapshot_every_steps is 0. */
TERN_MUST_CHECK tern_status tern_job_block_bytes(const struct tern_job *job, int64_t *bytes_out);
/* Bytes of the saver's own copy: none where the blocks are it. */
int64_t tern_job_staging_bytes(const struct tern_job *job);
/* Collective: job->memory_plan. Says it once where there is no room. fits: this rank has the memory. */
TERN_MUST_CHECK tern_status tern_job_plan_memory(struct tern_job *job,
                                                 int64_t block_bytes,
                                                 bool fits);
/* Collective. The blocks, and the ways to those who keep copies of them; without them job->memory stays NULL, with a
 * warning. */
TERN_MUST_CHECK tern_status tern_job_open_memory(struct tern_job *job);
/* All ranks have a snapshot of this launch, or none can read the earlier one: that goes. */
void tern_job_drop_found(struct tern_job *job);
/* Collective. All that the run has is on disk: nothing of it stays in memory. */
void tern_job_forget_memory(struct tern_job *job);

/* ---- in the loop ---- */

struct tern_snapshots {
    struct tern_interval interval;
    double stall; /* of the newest, seconds */
    double stall_total;
    bool is_due;
    int64_t failures_next; /* so many are said again */
};

void tern_snapshots_init(struct tern_snapshots *snapshots, const struct tern_job *job);
/* Rank 0, before the words of the step that makes `next` steps. */
bool tern_snapshots_want(struct tern_snapshots *snapshots,
                         const struct tern_job *job,
                         int64_t next);
/* After a copy, for disk or not: it kept the step waiting so long. */
void tern_snapshots_began(struct tern_snapshots *snapshots,
                          const struct tern_job *job,
                          double stall);
/* After the words of a step: what has become of the newest one. log: rank 0's; NULL on others. */
void tern_snapshots_hear(struct tern_snapshots *snapshots,
                         struct tern_job *job,
                         struct tern_step_log *log);

#endif
