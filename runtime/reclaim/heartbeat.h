/* heartbeat.h - a thread on every rank that says, over sockets of its own, where the rank is: so that a rank that stops, a
 * host that is gone and a step that does not end are named in seconds, whatever the collectives wait for.
 *
 * All ranks tell rank 0 a few times a second, and rank 0 tells all. Rank 0 judges; when it is rank 0 that is silent, the others
 * do. The verdict is the same sentence everywhere: who, since when, in which step and phase, after how many exchanges. */
#ifndef TERN_RUNTIME_RECLAIM_HEARTBEAT_H
#define TERN_RUNTIME_RECLAIM_HEARTBEAT_H

#include "comm/comm.h"
#include "runtime/reclaim/pulse.h"

struct tern_heartbeat;

struct tern_heartbeat_options {
    struct tern_comm *comm; /* outlives it */
    int64_t limit_ns;       /* of silence, and at least of a step */
    /* On the heartbeat's thread, once, before any rank leaves: a record, the ledger. The process ends with 34 after it. */
    void (*farewell)(void *context, const char *sentence);
    void *context;
};

/* Collective; only the communicator can fail. What is missing for a heartbeat is warned of: ranks without are not watched. *out
 * NULL: none, as of one rank. Owned: close. */
TERN_MUST_CHECK tern_status tern_heartbeat_open(const struct tern_heartbeat_options *options,
                                                struct tern_heartbeat **out);
/* Where this rank is from now on. Costs a few stores. NULL is fine, here and below. */
void tern_heartbeat_mark(struct tern_heartbeat *heartbeat, enum tern_phase phase, int64_t step);
/* Of a rank; "" of NULL: not known. Lives as long as the heartbeat. */
const char *tern_heartbeat_host(const struct tern_heartbeat *heartbeat, int rank);
/* There is a verdict: all has been said, and the process is about to end. */
bool tern_heartbeat_is_over(const struct tern_heartbeat *heartbeat);
/* This rank has ended well, or says itself why it did not: from now on nobody misses it. */
void tern_heartbeat_rest(struct tern_heartbeat *heartbeat);
void tern_heartbeat_close(struct tern_heartbeat *heartbeat);

#endif
