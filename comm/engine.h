/* engine.h - the progress thread: a communicator over any transport. */
#ifndef TERN_COMM_ENGINE_H
#define TERN_COMM_ENGINE_H

#include "comm/comm.h"
#include "comm/transport.h"

enum {
    TERN_COMM_QUEUE_MAX = 1024
}; /* jobs submitted and not done */

/* The services that plugins get. */
extern const struct tern_transport_host tern_comm_engine_host;

/* Fills in the common part of a transport; the backend sets rank and size in start. */
void tern_transport_init(struct tern_transport *transport,
                         const struct tern_transport_table *table);

/* Starts the transport on a new progress thread and gives the world communicator, which owns both.
 * limit_ns: how long a message may take, and the start. On failure the transport is destroyed, unless
 * its start never returned. */
TERN_MUST_CHECK tern_status tern_comm_engine_open(struct tern_transport *transport,
                                                  int64_t limit_ns,
                                                  struct tern_comm **out);
/* A world of one. */
TERN_MUST_CHECK tern_status tern_self_open(struct tern_comm **out);

/* Runs job(comm, arg) in order with everything else and waits; directly if already inside a job. */
TERN_MUST_CHECK tern_status tern_comm_run(struct tern_comm *comm, tern_comm_job job, void *arg);
/* Whether this thread is running a job of comm; the engine says so by entering with the communicator. */
bool tern_comm_is_inside(const struct tern_comm *comm);
void tern_comm_enter(const struct tern_comm *comm);

#endif
