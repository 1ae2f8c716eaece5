/* ending.h - what the end of a launch means, and what follows from it. Pure: no clock, no file, no process.
 *
 * The launch record decides, the launcher's status is only a hint: mpirun was seen to end with 1, 33, 34, 137, 139 and 205
 * for the same committed checkpoint. */
#ifndef TERN_RUNTIME_SUPERVISE_ENDING_H
#define TERN_RUNTIME_SUPERVISE_ENDING_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* As a launch record says. */
enum tern_launch_state {
    TERN_LAUNCH_NO_RECORD,
    TERN_LAUNCH_RUNNING,
    TERN_LAUNCH_FINISHED,
    TERN_LAUNCH_RECLAIMED,
    TERN_LAUNCH_PEER_LOST,
    TERN_LAUNCH_FAILED,
    TERN_LAUNCH_STATE_COUNT
};

enum tern_verdict {
    TERN_VERDICT_FINISHED,    /* all steps done */
    TERN_VERDICT_RECLAIMED,   /* a checkpoint was committed on request */
    TERN_VERDICT_LOST,        /* ranks ended without a word, or with one about a peer */
    TERN_VERDICT_NOT_STARTED, /* the launcher ended before the run directory was taken */
    TERN_VERDICT_FAILED,      /* the run itself says that it failed */
    TERN_VERDICT_REFUSED,     /* bad usage, configuration or input */
    TERN_VERDICT_COUNT
};

/* How a launch ended. */
struct tern_ending {
    enum tern_launch_state state; /* of its record; TERN_LAUNCH_NO_RECORD: there is none */
    int code;                     /* exit status, or 128 + the signal that ended the launcher */
};

enum tern_verdict tern_ending_judge(const struct tern_ending *ending);
/* The code of the interface (0, 1, 2, 33, 34) that a verdict stands for. */
int tern_verdict_exit_code(enum tern_verdict verdict);
const char *tern_verdict_name(enum tern_verdict verdict); /* "peer lost" */
/* From a record's word; TERN_LAUNCH_NO_RECORD for one that is not known. */
enum tern_launch_state tern_launch_state_of(const char *word);
const char *tern_launch_state_name(enum tern_launch_state state);

/* What may be tried, and what was. */
struct tern_restart_limits {
    int64_t restarts; /* negative: any number */
    int64_t stalls;   /* launches in a row that came no further */
    double delay_seconds_max;
    bool ends_reclaimed; /* what was reclaimed is for somebody else to start again */
};
struct tern_restart_count {
    int64_t restarts, stalls;
};
/* What happened since the launch began. */
struct tern_restart_facts {
    enum tern_verdict verdict;
    bool is_asked;   /* the supervisor itself was asked to end */
    bool is_own;     /* it was stopped to be started again with more hosts */
    bool is_leaving; /* this machine is about to be taken away, or all are */
    bool came_ahead; /* some step was done, or committed, that never was before */
};
struct tern_restart {
    bool starts;
    double delay_seconds; /* before it does: doubled with each stall from one second on */
    int exit_code;        /* when it does not */
    const char *reason;   /* why it does not; static */
};
/* Counts, and decides. */
struct tern_restart tern_restart_decide(const struct tern_restart_limits *limits,
                                        const struct tern_restart_facts *facts,
                                        struct tern_restart_count *count);

#endif
