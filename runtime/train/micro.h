/* micro.h - one micro-batch through the model, op by op the first time and as recorded graphs afterwards.
 *
 * A pass is the same hundreds of small launches every time, with the same addresses. Where the device can record them
 * (a CUDA graph), the stretches between two hand-overs to the communicator are recorded once and then replayed, so that
 * the host has a handful of calls a micro-batch to make; the hand-overs themselves stay calls. */
#ifndef TERN_RUNTIME_TRAIN_MICRO_H
#define TERN_RUNTIME_TRAIN_MICRO_H

#include "models/transformer.h"

struct tern_micro;

/* The buffers that never change. kinds: how many different (gradient buffer, accumulate, hooks) there will be, as
 * numbered by the caller. Owned: destroy. */
struct tern_micro_options {
    struct tern_pass *pass;
    struct tern_device *device;
    struct tern_dptr weights, ids, targets, nll;
    int buckets;
    int kinds;
};
TERN_MUST_CHECK tern_status tern_micro_create(const struct tern_micro_options *options,
                                              struct tern_micro **out);
void tern_micro_destroy(struct tern_micro *micro);

/* tern_pass_train on those buffers. All calls of one kind (0 to kinds - 1) give the same grads, accumulate, and the same
 * hooks or none of each sort. */
TERN_MUST_CHECK tern_status tern_micro_run(struct tern_micro *micro,
                                           int kind,
                                           struct tern_dptr grads,
                                           bool accumulate,
                                           const struct tern_pass_hooks *hooks);

#endif
