/* supervise.h - starts a run, again and again, until it is done: on the hosts that answer, after the last processes of the
 * launch before are gone, as its launch records say. */
#ifndef TERN_RUNTIME_SUPERVISE_SUPERVISE_H
#define TERN_RUNTIME_SUPERVISE_SUPERVISE_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct tern_supervise_options {
    const char *const *argv; /* the command */
    int argc;
    const char *run_dir;  /* NULL: as the command says */
    const char *hostfile; /* NULL: as the command says, if it does */
    const char *shell;    /* to reach hosts with; NULL: as mpirun does */
    bool
        ends_reclaimed; /* a launch that was reclaimed is the last: somebody else starts it again */
    int64_t restarts_max; /* negative: any number */
    int64_t stalls_max;
    int64_t hosts_min;
    double probe_seconds; /* between questions to hosts */
    double stop_seconds;  /* a launch that was asked to stop may take */
    double hang_seconds;  /* a launch may log nothing; 0: for ever */
    double wait_seconds;  /* for hosts_min hosts */
};

/* *exit_code: 0 the run is done, 33, 34, 1, 2 as `tern train`. SIGTERM, SIGINT and SIGUSR2 ask the launch for a checkpoint
 * and end this. */
TERN_MUST_CHECK tern_status tern_supervise_run(const struct tern_supervise_options *options,
                                               int *exit_code);

#endif
