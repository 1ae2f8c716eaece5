/* run_dir.h - the run directory: one writer, the resolved config, and how each launch ended.
 *
 *   RUN/config.yaml         the resolved configuration
 *   RUN/tokenizer.json      a copy, so that the run can be served without the original
 *   RUN/log.jsonl           one object a line
 *   RUN/launches/ID.json    state running | finished | reclaimed | peer_lost | failed, step, ranks,
 *                           reason, time; leaving: a host that is taken away, "*" all, if any
 *   RUN/ckpt/               io/checkpoint.h
 *   RUN/lock                held by the launch that writes */
#ifndef TERN_RUNTIME_TRAIN_RUN_DIR_H
#define TERN_RUNTIME_TRAIN_RUN_DIR_H

#include "io/checkpoint.h"
#include "io/file.h"
#include "runtime/base/status.h"

enum {
    TERN_LAUNCH_ID_BYTES = 48,
    TERN_LAUNCH_HOST_BYTES = 256
};

struct tern_run_dir {
    char path[TERN_PATH_BYTES];
    char launch_id[TERN_LAUNCH_ID_BYTES];
    int ranks;
    struct tern_lock lock;
    bool is_locked;
    char leaving
        [TERN_LAUNCH_HOST_BYTES]; /* the host that is taken away, "*": all; goes into the record; "": none */
};

/* Rank 0: makes the directory, takes the lock, invents a launch id. TERN_ERR_BUSY names who holds
 * it. */
TERN_MUST_CHECK tern_status tern_run_dir_open(struct tern_run_dir *run,
                                              const char *path,
                                              int ranks);
/* The launch has this id, not the invented one: letters, digits, '.', '_' and '-'. TERN_ERR_USAGE for any other, and for
 * one that the run has a record of. */
TERN_MUST_CHECK tern_status tern_run_dir_name(struct tern_run_dir *run, const char *id);
void tern_run_dir_close(struct tern_run_dir *run);
/* Durable before it returns. state: see above. Any rank may write it; the last word counts. */
TERN_MUST_CHECK tern_status tern_run_dir_record(const struct tern_run_dir *run,
                                                int rank,
                                                const char *state,
                                                int64_t step,
                                                const char *reason);
/* False once a record says how this launch ended: whoever only lost a peer has nothing to add
 * then. */
bool tern_run_dir_is_running(const struct tern_run_dir *run);

#endif
