/* process.h - processes that are started, watched and ended: never waited for without a deadline. */
#ifndef TERN_RUNTIME_SUPERVISE_PROCESS_H
#define TERN_RUNTIME_SUPERVISE_PROCESS_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <sys/types.h>

struct tern_process_options {
    const char *const *argv;  /* NULL-terminated; the program is looked for in PATH */
    const char *name, *value; /* one more variable of its environment; NULL: none */
    int death_signal;         /* that it gets when this process dies; 0: none */
    bool is_quiet;            /* its output goes nowhere */
};

/* In a process group of its own, with nothing on stdin. TERN_ERR_NOT_FOUND or TERN_ERR_IO when the program cannot be
 * started, with its name and the reason. */
TERN_MUST_CHECK tern_status tern_process_start(const struct tern_process_options *options,
                                               pid_t *pid_out);
/* True once it has ended, and only once; *code_out: its exit status, or 128 + the signal. Never blocks. */
bool tern_process_poll(pid_t pid, int *code_out);
/* To the process alone: what it starts is its own to tell. */
void tern_process_signal(pid_t pid, int signal);
/* SIGKILL to its group. It must still be polled. */
void tern_process_kill(pid_t pid);

#endif
