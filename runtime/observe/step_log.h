/* step_log.h - what training says while it runs: RUN/log.jsonl, one object a line; a line a step on
 * stderr; and above them a bar on a terminal. Rank 0 only. What is said every step does not
 * allocate. A log that cannot be written is a warning: it never ends a run. */
#ifndef TERN_RUNTIME_OBSERVE_STEP_LOG_H
#define TERN_RUNTIME_OBSERVE_STEP_LOG_H

#include "io/file.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct tern_step_log {
    char path[TERN_PATH_BYTES];
    int64_t steps;       /* of the whole run */
    int64_t first_step;  /* of this launch */
    bool is_torn;        /* the file does not end with a line end */
    int64_t lost;        /* records since the file could not be written */
    double started;      /* clock at the first step */
    double last_printed; /* lines are at most one in 0.1 s when steps are faster, but for the first
                            and the last */
};

struct tern_step_record {
    int64_t step; /* done, counted from 1 */
    double loss, grad_norm, lr;
    int64_t tokens; /* of this step */
    double step_seconds, data_seconds, comm_seconds, checkpoint_stall_seconds;
    double mfu; /* 0..1; negative: unknown */
    bool is_skipped;
};

/* Goes on behind what is there; a line that an earlier launch left half written is ended first. */
TERN_MUST_CHECK tern_status tern_step_log_open(struct tern_step_log *log,
                                               const char *run_dir,
                                               int64_t first_step,
                                               int64_t steps);
/* Appends the step's record and prints its line. */
void tern_step_log_step(struct tern_step_log *log, const struct tern_step_record *record);
/* Any other kind: {"kind":KIND,"time":...,FIELDS}; fields is the inside of a JSON object
 * ("\"step\":3,..."), escaped and shorter than 1900 bytes. */
void tern_step_log_event(struct tern_step_log *log, const char *kind, const char *fields, ...)
    TERN_PRINTF(3, 4);
/* {"kind":KIND,"time":...,"step":STEP,KEY:TEXT}, TEXT any bytes, cut at 300. Allocates. */
void tern_step_log_text(struct tern_step_log *log,
                        const char *kind,
                        int64_t step,
                        const char *key,
                        const char *text);
/* A number as JSON: 9 significant digits round-trip fp32; what JSON has no word for is null.
 * Returns out. */
enum {
    TERN_STEP_LOG_NUMBER_BYTES = 32
};
const char *tern_step_log_number(double value, char out[TERN_STEP_LOG_NUMBER_BYTES]);
/* Resident set of this process now, bytes; and its highest so far. */
int64_t tern_rss_bytes(void);
int64_t tern_rss_peak_bytes(void);

#endif
