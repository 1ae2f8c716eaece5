/* comm.h - moving bytes between the ranks of a group.
 *
 * A communicator owns one progress thread (or, on a GPU, one stream): work is enqueued in order by tern_comm_submit
 * and gives a ticket; tern_comm_wait blocks until it is done. A job may itself be a small program over the blocking
 * primitives (exchange, all_gather, ...), which is how the lane tree runs under the backward pass.
 * Primitives called directly (outside a job) are submitted and waited for: same order, same thread.
 * All ranks must submit the same jobs in the same order. Errors: TERN_ERR_PEER_LOST when a rank is gone,
 * TERN_ERR_TIMEOUT when one is late by more than the limit (TERN_COMM_TIMEOUT seconds, default 600); after either the
 * communicator stays dead and says why. A job that fails for any other reason leaves the ranks out of step, so it ends
 * the communicator too: its ticket and all later ones answer its status.
 * The queue is bounded: submit waits for room. Inside a job call the blocking primitives of the same communicator;
 * submit and wait there are a bug, and so is wait for a ticket that was never given. */
#ifndef TERN_COMM_COMM_H
#define TERN_COMM_COMM_H

#include "runtime/base/device.h"

#include <stdatomic.h>

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
    const char *name; /* "self", "mpi", "inproc", "tcp", "nccl" */
    /* Messages are in the memory of a device: collectives over host memory are refused, and wait makes the
     * device wait, not the host. */
    bool is_device;
    void (*close)(struct tern_comm *);
    tern_status (*submit)(struct tern_comm *, tern_comm_job job, void *arg, uint64_t *ticket_out);
    tern_status (*wait)(struct tern_comm *, uint64_t ticket);
    /* Never blocks: TERN_OK alive and ticket done, TERN_ERR_AGAIN alive and not done, else why the group is dead; when a
     * watchdog is about to end the process for that, it waits for it. */
    tern_status (*poll)(struct tern_comm *, uint64_t ticket);
    /* Ends the whole job from any thread; does not return under MPI. What was written to stderr before is
     * then the last thing on the screen: mpirun adds nothing. */
    void (*abort)(struct tern_comm *, int exit_code);
    /* Blocking primitives, called from jobs or, through the wrappers, directly. */
    tern_status (*exchange)(struct tern_comm *,
                            const struct tern_comm_message *messages,
                            int count);
    /* Starts messages that stay under way during later exchanges, until settle: what is sent must not
     * change before. A message longer than piece_bytes travels as several, first pieces first, and the
     * peer takes them one by one: the k-th piece in its k-th exchange after its own post (every rank posts,
     * if only nothing). Inside a job only; one post at a time, settled before the job ends. */
    tern_status (*post)(struct tern_comm *,
                        const struct tern_comm_message *messages,
                        int count,
                        size_t piece_bytes);
    tern_status (*settle)(struct tern_comm *);
    tern_status (*barrier)(struct tern_comm *);
    tern_status (*split)(struct tern_comm *, int color, int key, struct tern_comm **out);
    /* What a backend does better than exchanges can; NULL if nothing. Inside a job only. */
    tern_status (*all_gatherv)(struct tern_comm *,
                               struct tern_dptr data,
                               const struct tern_range *ranges);
    tern_status (*reduce_ranges)(struct tern_comm *,
                                 struct tern_dptr data,
                                 const struct tern_range *ranges);
    tern_status (*adopt)(struct tern_comm *, struct tern_dptr block, size_t bytes);
};

/* Written by the progress thread, read by anyone; since the communicator was opened. */
struct tern_comm_counters {
    _Atomic int64_t bytes_sent, bytes_received; /* to and from other ranks */
    _Atomic int64_t exchanges;
    _Atomic int64_t busy_ns; /* wall time inside jobs */
    _Atomic int64_t cpu_ns;  /* processor time of the progress thread inside jobs */
};

struct tern_comm {
    const struct tern_comm_table *table;
    int rank, size;
    int local_rank, local_size; /* among the ranks of this host */
    struct tern_comm_counters counters;
};

/* Finds the launcher in the environment: mpirun or srun with PMIx (loads libtern_mpi.so from the folder of the binary, or
 * TERN_MPI_PLUGIN); srun without PMIx, MASTER_ADDR or TERN_RENDEZVOUS (TCP: comm/tcp/tcp.h); else one rank. Refuses in words: launcher says N ranks but MPI sees one, no plugin, no library. */
TERN_MUST_CHECK tern_status tern_comm_open(struct tern_comm **out);
/* What a program has to do before a watchdog ends its process for a peer's sake: called once, on the watchdog's thread,
 * before any rank leaves; the sentence names the peer. */
struct tern_comm_farewell {
    void (*call)(void *context, const char *sentence); /* NULL: nothing */
    void *context;                                     /* outlives the communicator */
};

/* Between the GPUs of the same ranks (comm/nccl, in the CUDA plugin): what is submitted starts after what `compute` has
 * enqueued, runs on `queue`, and a wait holds back what `compute` enqueues from then on, not the caller. `table` is that of
 * both queues. host outlives it. A job runs at once, on the thread that submits it: it enqueues. After a result was read, a
 * poll says whether the group was alive for it. Collective: when one rank can't, none can, for the same reason.
 * A watchdog names the rank that keeps the others waiting in a collective for TERN_COMM_TIMEOUT seconds, 30 by default, and
 * ends the job with exit code 34. */
TERN_MUST_CHECK tern_status tern_comm_open_device(struct tern_comm *host,
                                                  struct tern_device *compute,
                                                  struct tern_device *queue,
                                                  const struct tern_device_table *table,
                                                  const struct tern_comm_farewell *farewell,
                                                  struct tern_comm **out);
/* The good end: every rank calls it, after the communicators split from this one were closed. It waits for what was
 * submitted and for the other ranks (within the time limit). A rank that gives up alone calls tern_comm_abort. NULL is
 * fine. */
void tern_comm_close(struct tern_comm *comm);

TERN_MUST_CHECK tern_status tern_comm_submit(struct tern_comm *,
                                             tern_comm_job job,
                                             void *arg,
                                             uint64_t *ticket_out);
TERN_MUST_CHECK tern_status tern_comm_wait(struct tern_comm *, uint64_t ticket);
tern_status tern_comm_poll(struct tern_comm *, uint64_t ticket);
void tern_comm_abort(struct tern_comm *, int exit_code);
TERN_MUST_CHECK tern_status tern_comm_exchange(struct tern_comm *,
                                               const struct tern_comm_message *,
                                               int count);
TERN_MUST_CHECK tern_status tern_comm_barrier(struct tern_comm *);
/* out (size, bytes): every rank's in (bytes), in rank order. in may be its own place in out. */
TERN_MUST_CHECK tern_status tern_comm_all_gather(struct tern_comm *,
                                                 const void *in,
                                                 size_t bytes,
                                                 void *out);
/* In place: rank r owns bytes [ranges[r].begin, ranges[r].end) of data; afterwards every rank has all of them.
 * The ranges (size of them) do not overlap and may be empty. */
TERN_MUST_CHECK tern_status tern_comm_all_gatherv(struct tern_comm *,
                                                  struct tern_dptr data,
                                                  const struct tern_range *ranges);
/* In place, fp32: rank r owns elements [ranges[r].begin, ranges[r].end) of data; afterwards they hold the sum over all
 * ranks, in whatever order the backend likes (the lane tree has a fixed one); the rest of data is undefined. Waited for as
 * all primitives. TERN_ERR_UNSUPPORTED where there is no such sum (all but NCCL). */
TERN_MUST_CHECK tern_status tern_comm_reduce_ranges(struct tern_comm *,
                                                    struct tern_dptr data,
                                                    const struct tern_range *ranges);
/* Tells the backend that messages will often lie in this block, which lives as long as the communicator: it may make it
 * known to the network. Every rank calls it, in the same order. */
TERN_MUST_CHECK tern_status tern_comm_adopt(struct tern_comm *,
                                            struct tern_dptr block,
                                            size_t bytes);
TERN_MUST_CHECK tern_status tern_comm_broadcast(struct tern_comm *,
                                                void *data,
                                                size_t bytes,
                                                int root);
TERN_MUST_CHECK tern_status tern_comm_all_reduce_max_i64(struct tern_comm *,
                                                         int64_t *values,
                                                         int count);
TERN_MUST_CHECK tern_status tern_comm_all_to_all(struct tern_comm *,
                                                 const void *in,
                                                 void *out,
                                                 size_t bytes_each);
/* One new communicator a color, ranks by (key, old rank); a negative color gets NULL. It has its own progress thread,
 * so the two need no common order. Every rank of comm calls it; a process makes one split at a time. */
TERN_MUST_CHECK tern_status tern_comm_split(struct tern_comm *,
                                            int color,
                                            int key,
                                            struct tern_comm **out);
/* All ranks give a digest of `what` ("binary", "config"). TERN_ERR_CONFIG on every rank, naming the first one that
 * differs from rank 0, unless they are all equal; the communicator lives on. */
TERN_MUST_CHECK tern_status tern_comm_check_equal(struct tern_comm *,
                                                  const char *what,
                                                  uint64_t digest);

#endif
