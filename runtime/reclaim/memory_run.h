/* memory_run.h - which memory is a run's own: an id that its directory keeps, or the name that its user gave it, and the
 * launches whose snapshots count.
 *
 *   RUN/id       16 hexadecimal digits, made once. With the file's inode they are the run: a copy of the directory is
 *                another one.
 *   RUN/memory   the launch that goes on now, and below it the one whose snapshot it began from, if it did: what any
 *                other launch left in memory is of a past that the run did not take.
 *   RUN/name     of a run that was given one when it began (--run-id): name and path of the directory are the run, so that
 *                hosts that have nothing of the directory know it too. When the directory was lost, and RUN/memory with it,
 *                snapshots of the same run and the same configuration count, whichever launch made them: a run that is not
 *                changed comes by the same states whatever way it takes. */
#ifndef TERN_RUNTIME_RECLAIM_MEMORY_RUN_H
#define TERN_RUNTIME_RECLAIM_MEMORY_RUN_H

#include "runtime/reclaim/segment.h"

enum {
    TERN_MEMORY_TRUSTED_MAX = 2,
    TERN_MEMORY_ID_BYTES = 17 /* 16 digits and a NUL */
};

/* What the user says of the run. */
struct tern_memory_name {
    const char *name; /* NULL: none */
    uint64_t config;  /* digest of the configuration, not 0 */
};

/* Plain data: rank 0 tells the others. */
struct tern_memory_run {
    struct tern_segment_key key;
    bool is_lost; /* a run with a name, and nothing of its directory */
    char trusted[TERN_MEMORY_TRUSTED_MAX][TERN_SEGMENT_LAUNCH_BYTES]; /* "": none */
};

/* What RUN/id says. TERN_ERR_NOT_FOUND: nothing; TERN_ERR_CORRUPT: no id. */
TERN_MUST_CHECK tern_status tern_memory_run_id(const char *run_dir, char out[TERN_MEMORY_ID_BYTES]);
/* Rank 0, who holds the lock of the directory, before it opens the run: from now on the directory is of the run of this
 * id, 16 hexadecimal digits, that goes on from elsewhere. Durable. */
TERN_MUST_CHECK tern_status tern_memory_run_adopt(const char *run_dir, const char *id);
/* The hash that stands for a run directory. TERN_ERR_NOT_FOUND: it has neither id nor name. */
TERN_MUST_CHECK tern_status tern_memory_run_key(const char *run_dir, uint64_t *out);
/* Rank 0, who holds the lock of the directory: makes the id if there is none, reads whom to trust. A name has 1 to 64
 * letters, digits, '.', '_' or '-'; a run that began without one or with another is refused: TERN_ERR_USAGE. */
TERN_MUST_CHECK tern_status tern_memory_run_open(const char *run_dir,
                                                 const char *launch,
                                                 const struct tern_memory_name *name,
                                                 struct tern_memory_run *out);
/* Rank 0, before the first step: from now on this launch is trusted, and `source`, whose snapshot it goes on from (NULL:
 * it began from elsewhere, and no other is). Durable. */
TERN_MUST_CHECK tern_status tern_memory_run_begin(const char *run_dir,
                                                  const char *launch,
                                                  const char *source);
bool tern_memory_run_trusts(const struct tern_memory_run *run,
                            const struct tern_segment_head *head);

#endif
