/* progress.h - how far a long job is: a bar with an ETA on a terminal, a plain line every few
 * seconds elsewhere. */
#ifndef TERN_IO_PROGRESS_H
#define TERN_IO_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct tern_progress {
    const char *what; /* "tokenize" */
    int64_t total;    /* -1: unknown (a pipe) */
    bool is_bytes;    /* else a plain count */
    double start_seconds, shown_seconds;
};

void tern_progress_start(struct tern_progress *progress,
                         const char *what,
                         int64_t total,
                         bool is_bytes);
/* Cheap enough for every block; shows something at most ten times a second. */
void tern_progress_update(struct tern_progress *progress, int64_t done);

#endif
