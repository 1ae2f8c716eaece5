/* job_parts.h - the parts that tern_job_open consists of, in the order of their opening. */
#ifndef TERN_RUNTIME_TRAIN_JOB_PARTS_H
#define TERN_RUNTIME_TRAIN_JOB_PARTS_H

#include "runtime/train/job.h"

/* Collective. The device of this rank and its queues; between GPUs a communicator too. */
TERN_MUST_CHECK tern_status tern_job_open_devices(struct tern_job *job);
/* For a dry run: the files are there; nothing is tokenised. */
TERN_MUST_CHECK tern_status tern_job_find_data(const struct tern_job *job);
/* Collective. job->train, job->val, job->data_id; text is tokenised into RUN/data. */
TERN_MUST_CHECK tern_status tern_job_open_data(struct tern_job *job);
/* Collective. What is trained, which part of it is this rank's, and the bills for it; print: say
 * them. What does not fit is refused. Only the workspace of kernels is taken. */
TERN_MUST_CHECK tern_status tern_job_plan(struct tern_job *job, bool print);
/* What was planned. Each rank may fail alone. */
TERN_MUST_CHECK tern_status tern_job_take_memory(struct tern_job *job);

#endif
