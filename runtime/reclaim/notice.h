/* notice.h - who asks this process to stop: SIGTERM, SIGUSR2, SIGINT, or a file named "stop" in the
 * run directory. Any of them on any rank; the trainer carries the flag to all ranks with the next
 * step's reduction. */
#ifndef TERN_RUNTIME_RECLAIM_NOTICE_H
#define TERN_RUNTIME_RECLAIM_NOTICE_H

#include "runtime/base/status.h"

#include <stdbool.h>

enum tern_notice {
    TERN_NOTICE_NONE,
    TERN_NOTICE_FILE,
    TERN_NOTICE_SIGINT,
    TERN_NOTICE_SIGUSR2,
    TERN_NOTICE_SIGTERM,
    TERN_NOTICE_COUNT
};

/* From now on signals are notices; a second SIGINT ends the process at once. */
TERN_MUST_CHECK tern_status tern_notice_watch_signals(void);
/* From now on run_dir/stop is one. */
TERN_MUST_CHECK tern_status tern_notice_watch_file(const char *run_dir);
/* The strongest notice so far; looks for the stop file. Never blocks. */
enum tern_notice tern_notice_poll(void);
const char *tern_notice_name(enum tern_notice notice); /* "signal SIGUSR2", "stop file" */
/* From now on SIGTERM, SIGUSR2 and SIGINT are ignored: the commit is done, the exit is near. */
void tern_notice_ignore(void);
/* Removes the stop file: it has been obeyed. */
TERN_MUST_CHECK tern_status tern_notice_clear_file(const char *run_dir);

#endif
