/* finish.h - the ends of a run: reclaimed, finished, nothing to do, failed. Each leaves a launch
 * record and sets the exit code. */
#ifndef TERN_RUNTIME_TRAIN_FINISH_H
#define TERN_RUNTIME_TRAIN_FINISH_H

#include "runtime/base/status.h"

struct tern_job;
struct tern_loop;

/* Collective. All steps are done (exit code 0), or the run was asked to stop (33): the last
 * checkpoint is committed, and in the bucket if there is one and time for it. */
TERN_MUST_CHECK tern_status tern_run_end(struct tern_loop *loop, int *exit_code);
/* Collective. The checkpoint found is at or beyond the last step: exit code 0. */
TERN_MUST_CHECK tern_status tern_run_end_at_once(struct tern_job *job, int *exit_code);
/* The run failed with status and tern_detail. Returns status with its sentence where this rank is
 * the one to say it, and TERN_OK where another does. */
TERN_MUST_CHECK tern_status tern_run_fail(struct tern_job *job, tern_status status, int *exit_code);

#endif
