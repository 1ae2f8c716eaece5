/* comm.h - moving bytes between the ranks of a group.
 *
 * A communicator owns one progress thread (or, on a GPU, one stream): work is enqueued in order by tern_comm_submit
 * and gives a ticket; tern_comm_wait blocks until it is done. A job may itself be a small program over the blocking
 * primitives (exchange, all_gather, ...), which is how the lane tree runs under the backward pass.
 * Primitives called directly (outside a job) are submitted and waited for: same order, same thread.
 * All ranks must submit the same jobs in the same order. Errors: TERN_ERR_PEER_LOST when a rank is gone,
 * TERN_ERR_TIMEOUT when one is late by more than the limit; after either the communicator stays dead and says why. */
#ifndef TERN_COMM_COMM_H
#define TERN_COMM_COMM_H

#include "runtime/base/device.h"

struct tern_comm;

struct tern_range {
    int64_t begin, end;
};

struct tern_comm_message {
    int peer;
    bool is_send;
    struct tern_dptr data;
    size_t bytes;
};

/* Runs in order with everything else of the communicator. */
typedef tern_status (*tern_comm_job)(struct tern_comm *comm, void *arg);

struct tern_comm_table {
    const char *name; /* "self", "mpi", "inproc", "nccl" */
    void (*close)(struct tern_comm *);
    tern_status (*submit)(struct tern_comm *, tern_comm_job job, void *arg, uint64_t *ticket_out);
    tern_status (*wait)(struct tern_comm *, uint64_t ticket);
    /* Never blocks: TERN_OK alive and ticket done, TERN_ERR_AGAIN alive and not done, else why the group is dead. */
    tern_status (*poll)(struct tern_comm *, uint64_t ticket);
    /* Ends the whole job from any thread; does not return under MPI. */
    void (*abort)(struct tern_comm *, int exit_code);
    /* Blocking primitives, called from jobs or, through the wrappers, directly. */
    tern_status (*exchange)(struct tern_comm *, const struct tern_comm_message *messages, int count);
    tern_status (*barrier)(struct tern_comm *);
    tern_status (*split)(struct tern_comm *, int color, int key, struct tern_comm **out);
};

struct tern_comm {
    const struct tern_comm_table *table;
    int rank, size;
    int local_rank, local_size; /* among the ranks of this host */
};

/* Finds the launcher in the environment: mpirun or srun (loads libtern_mpi.so from the folder of the binary, or
 * TERN_MPI_PLUGIN), else one rank. Refuses in words: launcher says N ranks but MPI sees one, no plugin, no library. */
TERN_MUST_CHECK tern_status tern_comm_open(struct tern_comm **out);
void tern_comm_close(struct tern_comm *comm);

TERN_MUST_CHECK tern_status tern_comm_submit(struct tern_comm *, tern_comm_job job, void *arg, uint64_t *ticket_out);
TERN_MUST_CHECK tern_status tern_comm_wait(struct tern_comm *, uint64_t ticket);
tern_status tern_comm_poll(struct tern_comm *, uint64_t ticket);
void tern_comm_abort(struct tern_comm *, int exit_code);
TERN_MUST_CHECK tern_status tern_comm_exchange(struct tern_comm *, const struct tern_comm_message *, int count);
TERN_MUST_CHECK tern_status tern_comm_barrier(struct tern_comm *);
/* out (size, bytes): every rank's in (bytes), in rank order. in may be its own place in out. */
TERN_MUST_CHECK tern_status tern_comm_all_gather(struct tern_comm *, const void *in, size_t bytes, void *out);
/* In place: rank r owns bytes [ranges[r].begin, ranges[r].end) of data; afterwards every rank has all of them.
 * The ranges (size of them) do not overlap and may be empty. */
TERN_MUST_CHECK tern_status tern_comm_all_gatherv(struct tern_comm *, struct tern_dptr data, const struct tern_range *ranges);
TERN_MUST_CHECK tern_status tern_comm_broadcast(struct tern_comm *, void *data, size_t bytes, int root);
TERN_MUST_CHECK tern_status tern_comm_all_reduce_max_i64(struct tern_comm *, int64_t *values, int count);
TERN_MUST_CHECK tern_status tern_comm_all_to_all(struct tern_comm *, const void *in, void *out, size_t bytes_each);
TERN_MUST_CHECK tern_status tern_comm_split(struct tern_comm *, int color, int key, struct tern_comm **out);

#endif
