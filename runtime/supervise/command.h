/* command.h - the command that starts a run, as the user wrote it: what is the launcher, where the run directory, the ranks
 * and the hosts are, and the same command for other ranks and hosts. */
#ifndef TERN_RUNTIME_SUPERVISE_COMMAND_H
#define TERN_RUNTIME_SUPERVISE_COMMAND_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum tern_launcher {
    TERN_LAUNCHER_NONE,   /* tern itself, or a script of the user's: started as it is */
    TERN_LAUNCHER_MPIRUN, /* Open MPI's */
    TERN_LAUNCHER_SRUN
};

/* Borrows argv. Indices are -1 where there is none. */
struct tern_launch_command {
    const char *const *argv;
    int argc;
    enum tern_launcher launcher;
    int launcher_at;
    int program_at;    /* of the word before "train" or "finetune"; argc if there is none */
    int ranks_at;      /* of the number after -np */
    int64_t ranks;     /* that number, 0 if there is none */
    int hosts_at;      /* of the word after --hostfile or --host */
    bool is_host_list; /* of --host */
    const char
        *run_dir; /* of --run-dir; tern's default where it is not given; NULL without a program */
    const char *shell;      /* what mpirun reaches hosts with (plm_rsh_agent); NULL: not given */
    const char *shell_args; /* plm_rsh_args; NULL: not given */
    bool has_keepalive;     /* says itself when a connection between hosts is dead */
};

/* TERN_ERR_USAGE: no words, a number of ranks that is none, more than one program. */
TERN_MUST_CHECK tern_status tern_launch_command_read(int argc,
                                                     const char *const *argv,
                                                     struct tern_launch_command *out);

/* How it is to be started this time. */
struct tern_launch_shape {
    int64_t ranks; /* 0: as the user wrote */
    const char *
        hosts; /* path of a hostfile, or a list where the user gave a list; NULL: as the user wrote */
};
/* NULL-terminated, one block of pointers and the texts made here, freed by one tern_free. Under mpirun TERN_LAUNCH_ID goes
 * to all ranks and dead connections are noticed within seconds. */
TERN_MUST_CHECK tern_status tern_launch_command_write(const struct tern_launch_command *command,
                                                      const struct tern_launch_shape *shape,
                                                      const char ***argv_out);

#endif
