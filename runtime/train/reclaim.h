/* reclaim.h - the part of a run that listens for its end: the watcher of this rank, the planner, and
 * what all ranks agreed on. */
#ifndef TERN_RUNTIME_TRAIN_RECLAIM_H
#define TERN_RUNTIME_TRAIN_RECLAIM_H

#include "runtime/reclaim/notice.h"
#include "runtime/reclaim/planner.h"
#include "runtime/reclaim/watch.h"
#include "runtime/train/step.h"

struct tern_job;
struct tern_memory;

struct tern_reclaim {
    struct tern_watch *watch;             /* NULL: this rank watches nothing */
    _Atomic(struct tern_memory *) memory; /* of the job, for the watcher's thread; NULL: none */
    struct tern_planner planner;
    double end_unix; /* reclaim.end_time; 0 none */
    /* as agreed by all ranks with the last step's words */
    enum tern_notice stop;
    int stop_rank;
    double stop_deadline; /* clock seconds by which all must be gone; 0: nobody asked */
    bool is_safe;         /* at the end: what outlives the machine is where it should be */
};

/* After the run directory is open: on each rank, and each may fail alone. */
TERN_MUST_CHECK tern_status tern_reclaim_start(struct tern_job *job);
void tern_reclaim_stop(struct tern_reclaim *reclaim);
/* Rank 0, once the run is sure to go on: warns when a notice will not leave time for a commit. */
void tern_reclaim_warn(const struct tern_job *job);
/* Before a step's exchange and after it; nothing is allocated. */
void tern_reclaim_speak(const struct tern_job *job, struct tern_step_word *mine);
void tern_reclaim_listen(struct tern_job *job, const struct tern_step_word *words);
/* After a run that was asked to stop: waits for the copy of its newest snapshot as long as there is time. Where the run
 * ended well its snapshots are gone, and there is nothing to wait for. */
void tern_reclaim_settle(struct tern_job *job);
/* Seconds that are left for whatever the end still has to do; at least 0, and
 * reclaim.deadline_seconds when nobody asked to stop. For those who wait for an upload. */
double tern_reclaim_seconds_left(const struct tern_job *job);
/* Rank 0: the host that the agreed notice takes away, "*" for all of them, "" where nobody says. */
void tern_reclaim_leaving(const struct tern_job *job, char *out, size_t bytes);
/* Rank 0: what a commit or an upload took, and RUN/planner.json. */
void tern_reclaim_note(struct tern_job *job,
                       enum tern_planner_kind kind,
                       double seconds,
                       int64_t bytes);

#endif
