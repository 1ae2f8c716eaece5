/* trainer.h - a whole training run, from its options to its exit code. */
#ifndef TERN_RUNTIME_TRAIN_TRAINER_H
#define TERN_RUNTIME_TRAIN_TRAINER_H

#include "runtime/base/status.h"

#include <stdbool.h>

enum tern_resume {
    TERN_RESUME_AUTO,
    TERN_RESUME_NEVER,
    TERN_RESUME_REQUIRED
};

struct tern_train_options {
    const char *model; /* to begin as (fine-tuning); NULL: from the seed */
    const char *config_path;
    const char *const *overrides; /* "section.key=value" */
    int override_count;
    const char *run_dir;
    const char *run_id;    /* by which hosts without the directory know the run; NULL: none */
    const char *launch_id; /* as a supervisor knows this launch; NULL or "": one is invented */
    enum tern_resume resume;
    const char *metrics_host; /* NULL: 127.0.0.1 */
    int metrics_port;         /* of rank 0; 0: any free one; -1: none */
    bool dry_run;             /* print the bill and end */
    bool profile;             /* print time per op at the end */
};

/* Runs on every rank. *exit_code: 0 done, 33 reclaimed with a committed checkpoint, 34 a peer was
 * lost, 1, 2. When this rank should not print the error (another does), returns TERN_OK with the
 * exit code set. */
TERN_MUST_CHECK tern_status tern_train_run(const struct tern_train_options *options,
                                           int *exit_code);

#endif
