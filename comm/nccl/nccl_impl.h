/* nccl_impl.h - the inside of a communicator between GPUs.
 *
 * Three orders meet here. The program's thread enqueues; the GPU's queue runs what was enqueued, behind an event of the compute
 * queue and before an event that the compute queue waits for; the watchdog's thread looks how far the queue has come. What
 * NCCL itself must not see are two threads at once on one communicator: every call is made under `library_lock`, which is
 * never held while waiting. */
#ifndef TERN_COMM_NCCL_NCCL_IMPL_H
#define TERN_COMM_NCCL_NCCL_IMPL_H

#include "comm/nccl/library.h"
#include "comm/nccl/watch.h"

#include <pthread.h>

enum {
    TERN_NCCL_MARKS =
        1024, /* events on the queue that were not seen passed; submit waits for room */
    TERN_NCCL_TICKETS = 512,    /* operations under way: each has two marks at least */
    TERN_NCCL_POSTED_MAX = 128, /* messages of a post: comm/lane_tree.c's SENDS_MAX */
    /* Up to this many ranks a gather is one group of broadcasts; beyond, log2(ranks) exchanges. */
    TERN_NCCL_GATHER_RANKS_MAX = 64,
    TERN_NCCL_BLOCKS_MAX = 16, /* adopted */
};

/* A place on the queue. */
struct tern_mark {
    cudaEvent_t event;
    uint64_t ticket;
    uint64_t bytes;
    uint32_t step; /* which collective of the operation, from 1; 0: where the operation begins */
    int32_t kind; /* enum tern_collective that ends here; NONE: the operation begins or ends here */
    int32_t peer;
};

struct tern_nccl {
    struct tern_comm comm; /* first: a communicator is this */
    struct tern_nccl_options options;
    const struct tern_nccl_library *library; /* NULL: one rank */
    cudaStream_t stream, compute_stream;
    int ordinal;             /* of the GPU */
    struct tern_dptr tokens; /* two bytes, for barriers */
    char *host_names;        /* (size, TERN_JUDGE_HOST_BYTES) */
    const char **hosts;      /* (size): into host_names */
    struct tern_watch *watch;

    pthread_mutex_t library_lock;
    ncclComm_t handle;                  /* NULL: not open yet, aborted, or one rank */
    void *blocks[TERN_NCCL_BLOCKS_MAX]; /* ncclCommRegister's handles */
    int block_count;

    pthread_mutex_t submit_lock;                           /* one operation is enqueued at a time */
    struct tern_comm_message posted[TERN_NCCL_POSTED_MAX]; /* what is left of each */
    int posted_count;
    size_t piece_bytes; /* 0: nothing is posted */
    uint32_t step;      /* collectives of the operation so far */

    pthread_mutex_t lock; /* over what follows, up to the next lock */
    struct tern_mark marks[TERN_NCCL_MARKS];
    uint64_t first, next; /* marks [first, next), modulo their number, were not seen passed */
    uint64_t starts
        [TERN_NCCL_TICKETS]; /* the first mark of an operation, by ticket modulo their number */
    uint64_t ends[TERN_NCCL_TICKETS];  /* the last one */
    uint64_t submitted, entered, done; /* tickets */
    struct tern_mark calling; /* the collective that NCCL is being told of; kind NONE: none */
    bool is_open;
    char error[TERN_JUDGE_ERROR_BYTES]; /* of the GPU or of NCCL, for the watchdog */

    /* A lock of its own: a thread may hold the others for long inside a CUDA call whose queue is full. */
    pthread_mutex_t death_lock;
    pthread_cond_t news;  /* is_aborted */
    _Atomic bool is_dead; /* the two below are written before it, once */
    tern_status status;
    char detail[TERN_JUDGE_SENTENCE_BYTES];
    _Atomic bool is_judged;       /* the watchdog is about to end the process */
    bool is_aborting, is_aborted; /* a thread is in ncclCommAbort, came back */
};

static inline struct tern_nccl *tern_nccl_of(struct tern_comm *comm)
{
    return (struct tern_nccl *)comm;
}

/* marks.c: how far the queue has come. */
/* Records a mark behind what is enqueued; waits for room. */
TERN_MUST_CHECK tern_status tern_nccl_mark(struct tern_nccl *, const struct tern_mark *);
/* Takes note of the marks that the queue has passed; under `lock`. */
void tern_nccl_advance(struct tern_nccl *);
/* The watchdog's look: place_out stays as it was while another thread is at it. */
void tern_nccl_look(void *owner,
                    struct tern_place *place_out,
                    char error_out[TERN_JUDGE_ERROR_BYTES]);

/* death.c: the end by failure. */
void tern_nccl_die(struct tern_nccl *, tern_status status, const char *sentence);
/* This rank can't go on, for a reason of its own: the others are told. When the reason is the group's, waits for the
 * watchdog, which then ends all ranks with the same words. */
void tern_nccl_report(struct tern_nccl *, tern_status status, const char *sentence);
/* The recorded death; first waits for the watchdog to end the process, which then has the last word. */
tern_status tern_nccl_fail_dead(struct tern_nccl *);
/* The watchdog's stop and leave. */
void tern_nccl_stop(void *owner, const struct tern_verdict *verdict);
void tern_nccl_leave(void *owner);

/* calls.c: what NCCL answers. */
/* Turns a result into words; ncclInProgress is waited for, until it is over or the group is dead. `what` is the call. */
TERN_MUST_CHECK tern_status tern_nccl_result(struct tern_nccl *,
                                             ncclResult_t result,
                                             const char *what);
/* `text`: of TERN_JUDGE_ERROR_BYTES. What NCCL says of a result. Under library_lock. */
void tern_nccl_words(const struct tern_nccl *, ncclResult_t result, const char *what, char *text);

/* exchange.c: the collectives; inside a job, on the thread that submits. */
tern_status tern_nccl_exchange(struct tern_comm *, const struct tern_comm_message *, int count);
tern_status tern_nccl_post(struct tern_comm *,
                           const struct tern_comm_message *,
                           int count,
                           size_t piece_bytes);
tern_status tern_nccl_settle(struct tern_comm *);
tern_status tern_nccl_barrier(struct tern_comm *);
tern_status tern_nccl_all_gatherv(struct tern_comm *,
                                  struct tern_dptr data,
                                  const struct tern_range *);
tern_status tern_nccl_reduce_ranges(struct tern_comm *,
                                    struct tern_dptr data,
                                    const struct tern_range *);
tern_status tern_nccl_adopt(struct tern_comm *, struct tern_dptr block, size_t bytes);

/* queue.c: operations in order; the table. */
extern const struct tern_comm_table tern_nccl_table; /* up to TERN_NCCL_GATHER_RANKS_MAX ranks */
extern const struct tern_comm_table tern_nccl_wide_table; /* more */

/* open.c */
tern_status tern_nccl_comm_open(const struct tern_nccl_options *, struct tern_comm **out);
void tern_nccl_close(struct tern_comm *);

/* err.c of kernels/cuda does the same for kernels; comm/ has its own. */
TERN_MUST_CHECK tern_status tern_nccl_cuda(cudaError_t error, const char *what);

#endif
