/* memory_run.h - which memory is a run's own: a random id that its directory keeps, and the launches whose snapshots count.
 *
 *   RUN/id       16 hexadecimal digits, made once. With the file's inode they are the run: a copy of the directory is
 *                another one.
 *   RUN/memory   the launch that goes on now, and below it the one whose snapshot it began from, if it did: what any
 *                other launch left in memory is of a past that the run did not take. */
#ifndef TERN_RUNTIME_RECLAIM_MEMORY_RUN_H
#define TERN_RUNTIME_RECLAIM_MEMORY_RUN_H

#include "runtime/reclaim/segment.h"

enum {
    TERN_MEMORY_TRUSTED_MAX = 2
};

/* Plain data: rank 0 tells the others. */
struct tern_memory_run {
    struct tern_segment_key key;
    char trusted[TERN_MEMORY_TRUSTED_MAX][TERN_SEGMENT_LAUNCH_BYTES]; /* "": none */
};

/* The hash that stands for a run directory. TERN_ERR_NOT_FOUND: it has no id. */
TERN_MUST_CHECK tern_status tern_memory_run_key(const char *run_dir, uint64_t *out);
/* Rank 0, who holds the lock of the directory: makes the id if there is none, reads whom to trust. */
TERN_MUST_CHECK tern_status tern_memory_run_open(const char *run_dir,
                                                 const char *launch,
                                                 struct tern_memory_run *out);
/* Rank 0, before the first step: from now on this launch is trusted, and `source`, whose snapshot it goes on from (NULL:
 * it began from elsewhere, and no other is). Durable. */
TERN_MUST_CHECK tern_status tern_memory_run_begin(const char *run_dir,
                                                  const char *launch,
                                                  const char *source);
bool tern_memory_run_trusts(const struct tern_memory_run *run, const char *launch);

#endif
