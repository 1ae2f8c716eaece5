/* notice.h - who asks this process to stop or to save: SIGTERM, SIGUSR2, SIGINT, files named "stop"
 * and "save" in the run directory, and what the watcher (watch.h) finds out about the machine. Any
 * of them on any rank; the trainer carries the flag to all ranks with the next step's reduction.
 *
 * Signals set flags, the watcher posts from its thread, the training thread polls: nothing here
 * blocks or allocates. */
#ifndef TERN_RUNTIME_RECLAIM_NOTICE_H
#define TERN_RUNTIME_RECLAIM_NOTICE_H

#include "runtime/base/status.h"

#include <stdbool.h>

/* From the one that has time to the one that has none: of several the last counts. */
enum tern_notice {
    TERN_NOTICE_NONE,
    /* asks for a checkpoint and lets the run go on */
    TERN_NOTICE_AWS_REBALANCE,
    TERN_NOTICE_AZURE_FREEZE,
    TERN_NOTICE_GCP_MIGRATE,
    /* asks to stop */
    TERN_NOTICE_FILE,
    TERN_NOTICE_SIGINT,
    TERN_NOTICE_END_TIME, /* reclaim.end_time */
    TERN_NOTICE_SLURM_END,
    TERN_NOTICE_AWS_MAINTENANCE,
    TERN_NOTICE_AZURE_REBOOT, /* and Redeploy */
    TERN_NOTICE_AZURE_TERMINATE,
    TERN_NOTICE_GCP_MAINTENANCE,
    TERN_NOTICE_SIGUSR2,
    TERN_NOTICE_AWS_SCALING,
    TERN_NOTICE_AWS_SPOT,
    TERN_NOTICE_AZURE_PREEMPT,
    TERN_NOTICE_GCP_PREEMPTED,
    TERN_NOTICE_SIGTERM,
    TERN_NOTICE_COUNT
};

/* What is gone some time after a notice. */
enum tern_notice_takes {
    TERN_TAKES_NOTHING, /* as far as it says */
    TERN_TAKES_HOST,    /* the machine that heard it */
    TERN_TAKES_ALL      /* every machine of the run */
};

enum {
    TERN_NOTICE_ID_BYTES = 64,
    TERN_NOTICE_TEXT_BYTES = 160
};

/* What a source says about this machine. */
struct tern_notice_info {
    enum tern_notice kind;
    double deadline;                   /* clock seconds; negative: not known */
    char id[TERN_NOTICE_ID_BYTES];     /* the same for the same event of the same source */
    char text[TERN_NOTICE_TEXT_BYTES]; /* what the source said, printable */
};

/* From now on signals are notices; a second SIGINT ends the process at once. */
TERN_MUST_CHECK tern_status tern_notice_watch_signals(void);
/* From now on run_dir/stop and run_dir/save are looked for. */
TERN_MUST_CHECK tern_status tern_notice_watch_file(const char *run_dir);
/* The strongest notice to stop so far; looks for the stop file. Never blocks. */
enum tern_notice tern_notice_poll(void);
/* Whether a checkpoint was asked for since the last clear_save; looks for the save file. */
bool tern_notice_is_save_asked(void);
/* It is being made: what was asked so far is obeyed, and the save file, if any, removed. */
void tern_notice_clear_save(void);
/* Seconds until this process must be gone, by what was heard so far: a source's own deadline, or
 * `deadline_seconds` after the signal, the stop file or a source that knows none. At least 0;
 * INFINITY without a notice. */
double tern_notice_seconds_left(double deadline_seconds);
/* Of the watcher, from any thread: the time to stop has come, and a checkpoint is asked for. */
void tern_notice_post(const struct tern_notice_info *info);
void tern_notice_ask_save(void);
/* Forgets what was heard: signals, posts, files looked for. A run begins. */
void tern_notice_reset(void);

const char *tern_notice_name(enum tern_notice notice); /* "signal SIGUSR2", "stop file" */
enum tern_notice_takes tern_notice_takes(enum tern_notice notice);
/* Asks for a checkpoint only. */
bool tern_notice_is_advice(enum tern_notice notice);
/* How long before an announced deadline the end begins at the latest, the time of a commit apart:
 * INFINITY is at once. */
double tern_notice_lead_seconds(enum tern_notice notice);
/* From now on SIGTERM, SIGUSR2 and SIGINT are ignored: the commit is done, the exit is near. */
void tern_notice_ignore(void);
/* Removes the stop file and the save file: they have been obeyed. */
TERN_MUST_CHECK tern_status tern_notice_clear_file(const char *run_dir);

#endif
