/* batch.h - a step's ids and targets on their way to the device.
 *
 * With a queue of their own they travel ahead: begin copies them into pinned memory and starts the upload while the device is
 * still at the step before; fetch then moves a micro-batch within the device. Without one (a host's memory) begin only
 * notes where they are and fetch copies. */
#ifndef TERN_RUNTIME_TRAIN_BATCH_H
#define TERN_RUNTIME_TRAIN_BATCH_H

#include "runtime/base/device.h"

struct tern_batch;

struct tern_batch_options {
    struct tern_device *device;    /* computes */
    struct tern_device *uploader;  /* another queue of it; NULL: fetch uploads */
    struct tern_dptr ids, targets; /* i32 (micro_tokens): where fetch puts them */
    struct tern_dptr starts;       /* the same, of packed documents; null: none */
    int64_t tokens;                /* of a step, this rank's */
    int64_t micro_tokens;
};

/* Owned: destroy, when the device is done with what was fetched. */
TERN_MUST_CHECK tern_status tern_batch_create(const struct tern_batch_options *options,
                                              struct tern_batch **out);
void tern_batch_destroy(struct tern_batch *batch);
/* Bytes that create takes, of the device's memory and, pinned, of the host's; 0 without an uploader. */
int64_t tern_batch_bytes(int64_t tokens, bool is_packed);

/* inputs, targets, and starts if options have them: (tokens), valid until the last fetch of the step. With an uploader the host must have seen the end of the
 * step before last: its buffers are used again. */
TERN_MUST_CHECK tern_status tern_batch_begin(struct tern_batch *batch,
                                             const int32_t *inputs,
                                             const int32_t *targets,
                                             const int32_t *starts);
/* Enqueues: tokens [at, at + micro_tokens) of the step lie in ids, targets and starts. */
TERN_MUST_CHECK tern_status tern_batch_fetch(struct tern_batch *batch, int64_t at);

#endif
