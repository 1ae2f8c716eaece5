/* supervisor.h - what the parts of the supervisor share; for supervise*.c only. */
#ifndef TERN_RUNTIME_SUPERVISE_SUPERVISOR_H
#define TERN_RUNTIME_SUPERVISE_SUPERVISOR_H

#include "runtime/supervise/command.h"
#include "runtime/supervise/reach.h"
#include "runtime/supervise/run_record.h"
#include "runtime/supervise/supervise.h"

enum {
    TERN_SHELL_BYTES = 1024
};

struct tern_supervisor {
    const struct tern_supervise_options *options;
    struct tern_launch_command command;
    char run_dir[TERN_PATH_BYTES];
    struct tern_lock lock;
    bool is_locked;
    struct tern_hosts hosts; /* none: the command runs where it likes */
    struct tern_reach reach;
    char shell[TERN_SHELL_BYTES];
    struct tern_journal journal;
    struct tern_journal_launch *launch; /* the one that runs, or ran last */
    int64_t best_step;                  /* any launch ever came to */
};

/* How the watch over one launch ended. */
struct tern_watch_end {
    int code;
    bool is_own; /* it was asked to stop, so that more hosts can take part */
    char reason[TERN_LAUNCH_REASON_BYTES]; /* why it was ended, or ""  */
};

/* It was announced that this host is about to be taken away, and it has not been since: it answers, and is not to be used. */
bool tern_host_is_leaving(const struct tern_host *host);
/* Watches a launch until its process has ended, and makes it end when it must. */
void tern_supervise_watch(struct tern_supervisor *supervisor,
                          pid_t pid,
                          struct tern_watch_end *out);

/* Reads the hostfile again, asks all hosts and fences them, until hosts_min are up. TERN_ERR_TIMEOUT when they never are,
 * TERN_ERR_CANCELLED when asked to stop meanwhile. */
TERN_MUST_CHECK tern_status tern_supervise_gather(struct tern_supervisor *supervisor);
/* At the end of it all: ends what is left of the last launch, where hosts answer; says where they do not. */
void tern_supervise_clear(struct tern_supervisor *supervisor);
/* Writes the account. One that cannot be written is a warning: it ends no run. */
void tern_supervise_note(const struct tern_supervisor *supervisor);
/* This supervisor was asked to end. */
bool tern_supervise_is_asked(void);
/* Returns early when it is. */
void tern_supervise_sleep(double seconds);

#endif
