/* resume.h - where a run's state comes from: the seed, a MODEL, a checkpoint on disk, or a snapshot in memory that is
 * newer. */
#ifndef TERN_RUNTIME_TRAIN_RESUME_H
#define TERN_RUNTIME_TRAIN_RESUME_H

#include "runtime/train/job.h"

/* Collective. The newest good checkpoint (job->found), and a snapshot that is newer (job->memory_found). What else lies in
 * memory of this run goes. */
TERN_MUST_CHECK tern_status tern_job_find_state(struct tern_job *job, enum tern_resume resume);
/* Collective. The state as it was found, or begun. A snapshot that can't be read is warned of, and the checkpoint taken. */
TERN_MUST_CHECK tern_status tern_job_open_state(struct tern_job *job);

#endif
