/* engine_impl.h - the inside of the progress engine, shared by its two files. */
#ifndef TERN_COMM_ENGINE_IMPL_H
#define TERN_COMM_ENGINE_IMPL_H

#include "comm/engine.h"

#include <pthread.h>

struct tern_comm_engine_job {
    tern_comm_job run;
    void *arg;
};

/* Messages under way. */
struct tern_comm_engine_slot {
    void *op;
    struct tern_transport_message *messages; /* (capacity) */
    size_t capacity;
    int count;
    bool is_under_way;
};

struct tern_comm_engine {
    struct tern_comm comm; /* first: a communicator is its engine */
    struct tern_transport *transport;
    bool owns_world; /* started the transport and stops it */
    int context;
    int *world_ranks; /* (size): rank here to rank of the world */
    uint64_t *hosts;  /* (size): which host each rank is on */
    int64_t limit_ns;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work; /* to the progress thread: a job, or closing */
    pthread_cond_t news; /* from it: a job is done, room in the queue, dead, started, ended */
    struct tern_comm_engine_job queue[TERN_COMM_QUEUE_MAX];
    uint64_t submitted;    /* tickets given out; lock */
    _Atomic uint64_t done; /* tickets up to this one are done and good */
    bool closing, started, ended;
    tern_status start_status;
    _Atomic bool is_dead; /* the two below are written before it, once */
    tern_status status;
    char detail[TERN_DETAIL_BYTES];

    /* The progress thread's own. */
    uint64_t exchange_of_job;           /* counts from 1 */
    struct tern_comm_engine_slot now;   /* of the exchange that is being waited for */
    struct tern_comm_engine_slot ahead; /* posted, to be settled later */
};

static inline struct tern_comm_engine *tern_comm_engine_of(struct tern_comm *comm)
{
    return (struct tern_comm_engine *)comm;
}

/* engine_exchange.c: the blocking primitives, on the progress thread only. */
tern_status tern_comm_engine_exchange(struct tern_comm *comm,
                                      const struct tern_comm_message *messages,
                                      int count);
tern_status tern_comm_engine_post(struct tern_comm *comm,
                                  const struct tern_comm_message *messages,
                                  int count,
                                  size_t piece_bytes);
tern_status tern_comm_engine_settle(struct tern_comm *comm);
tern_status tern_comm_engine_barrier(struct tern_comm *comm);
/* Lets go of the caller's memory after a failure. */
void tern_comm_engine_cancel(struct tern_comm_engine *engine);
/* Makes the death of the world known to all communicators on the transport; the first one counts. */
void tern_transport_die(struct tern_transport *transport, tern_status status, const char *detail);
bool tern_transport_is_dead(const struct tern_transport *transport);
int64_t tern_comm_engine_now_ns(void);

/* engine.c: a communicator over a transport that is already started; takes ownership of the two arrays
 * on success. */
tern_status tern_comm_engine_create(struct tern_transport *transport,
                                    int64_t limit_ns,
                                    int context,
                                    int rank,
                                    int size,
                                    int *world_ranks,
                                    uint64_t *hosts,
                                    struct tern_comm_engine **out);
/* engine_split.c */
tern_status tern_comm_engine_split(struct tern_comm *comm,
                                   int color,
                                   int key,
                                   struct tern_comm **out);
/* Sets local_rank and local_size from hosts. */
void tern_comm_engine_place(struct tern_comm_engine *engine);

#endif
