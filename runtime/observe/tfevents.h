/* tfevents.h - scalars as TensorBoard reads them: RUN/events.out.tfevents.*, one file a launch.
 *
 * A file is a sequence of records (length, masked CRC-32C of the length, bytes, masked CRC-32C of them: TensorFlow's
 * lib/io/record_writer), each an Event message of event.proto, encoded by hand. The first says "brain.Event:2", the second that
 * the session started at this step, so that TensorBoard drops what an earlier launch wrote beyond it. Records are
 * gathered in memory and appended at most once a second. Nothing is allocated after open. A file that cannot be written
 * any more is followed by another one. */
#ifndef TERN_RUNTIME_OBSERVE_TFEVENTS_H
#define TERN_RUNTIME_OBSERVE_TFEVENTS_H

#include "runtime/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct tern_tfevents;

struct tern_tfevents_scalar {
    const char *tag; /* "train/loss" */
    double value;    /* stored as a float */
};

enum {
    TERN_TFEVENTS_SCALARS_MAX = 16,
    TERN_TFEVENTS_TAG_BYTES_MAX = 64
};

/* step: that the launch goes on from. Owned: close, which writes what is left. */
TERN_MUST_CHECK tern_status tern_tfevents_open(const char *run_dir,
                                               int64_t step,
                                               struct tern_tfevents **out);
void tern_tfevents_close(struct tern_tfevents *events);
/* One event. NULL is fine. */
void tern_tfevents_add(struct tern_tfevents *events,
                       int64_t step,
                       const struct tern_tfevents_scalar *scalars,
                       int count);

/* Appends what is there, now. NULL is fine. */
void tern_tfevents_flush(struct tern_tfevents *events);

/* CRC-32C (Castagnoli), and as records mask it. */
uint32_t tern_crc32c(const void *data, size_t bytes);
uint32_t tern_crc32c_masked(const void *data, size_t bytes);

#endif
