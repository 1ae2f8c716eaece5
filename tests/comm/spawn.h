/* spawn.h - starts the ranks of a job as processes of their own, without a launcher, and watches what becomes of them. They
 * meet by a file (TERN_RENDEZVOUS). */
#ifndef TERN_TESTS_COMM_SPAWN_H
#define TERN_TESTS_COMM_SPAWN_H

#include <stdbool.h>

enum {
    SPAWN_RANKS_MAX = 16,
    SPAWN_OUTPUT_BYTES = 32768
};

struct spawn_rank {
    int exit_code;    /* -1: it did not end in time and was killed */
    int signal;       /* that ended it; 0: none */
    bool was_stopped; /* by SIGSTOP; killed when all others had ended, as a launcher would */
    double seconds;   /* from the start to its end */
    char output[SPAWN_OUTPUT_BYTES];
};

struct spawn_job {
    const char *program, *check;
    int ranks;
    const char
        *environment[12]; /* "NAME=value", NULL at the end; "#R NAME=value" for rank R only */
    double seconds_max;
};

/* Runs it to its end. Returns whether all ranks ended by themselves, but for those that were stopped. The folder of the
 * job is removed; files_left_out: what ranks left there. Prints nothing. */
bool spawn_run(const struct spawn_job *job, struct spawn_rank *ranks_out, int *files_left_out);
/* Prints everything, for a test that is about to fail. */
void spawn_print(const struct spawn_job *job, const struct spawn_rank *ranks);

#endif
