/* tcp.h - a transport over plain TCP, for machines without an MPI library: the ranks find each other at an address that all
 * know, or by a file that all see. */
#ifndef TERN_COMM_TCP_TCP_H
#define TERN_COMM_TCP_TCP_H

#include "comm/socket.h"
#include "comm/transport.h"

enum {
    TERN_TCP_HOST_BYTES = 256,
    TERN_TCP_PATH_BYTES = 4096
};

/* How the ranks meet. */
struct tern_tcp_meeting {
    int rank, size;
    char host
        [TERN_TCP_HOST_BYTES]; /* rank 0's, as its peers reach it, and the port that it listens on; or */
    int port;
    char file
        [TERN_TCP_PATH_BYTES]; /* where rank 0 writes its address, on a file system that all ranks see; "": not */
    /* The same on all ranks of a launch and different in another: what the launcher gives for that (job number, restart
     * count), hashed; 0 when it gives nothing. */
    uint64_t launch;
    int64_t limit_ns;
};

/* find.c: reads it from the environment, when that says how. *is_set_out: it does. In this order:
 *   TERN_RENDEZVOUS=file    ranks by RANK and WORLD_SIZE, by Slurm's or by mpirun's variables
 *   MASTER_ADDR             and MASTER_PORT, RANK, WORLD_SIZE (torchrun); ranks by Slurm's variables where those are missing
 *   srun                    (is_srun) rank 0 is on the first host of the step's list, its port follows from the job's
 *                           number */
TERN_MUST_CHECK tern_status tern_tcp_find(const char *(*get)(const char *name),
                                          bool is_srun,
                                          struct tern_tcp_meeting *out,
                                          bool *is_set_out);
/* "gpu[007-010,12],x" -> "gpu007". */
void tern_tcp_first_host(const char *list, char out[TERN_TCP_HOST_BYTES]);

/* Owned by whoever opens the engine on it. */
TERN_MUST_CHECK tern_status tern_tcp_create(const struct tern_tcp_meeting *meeting,
                                            struct tern_transport **out);
/* meet.c: connects every rank with every other. fds_out (size): a socket to each, which does not block; -1 at the own
 * place. */
TERN_MUST_CHECK tern_status tern_tcp_meet(const struct tern_tcp_meeting *meeting, int *fds_out);

#endif
