/* compute.h - what this process computes with: TERN_BACKEND and TERN_THREADS, or else its share of
 * the cores. */
#ifndef TERN_RUNTIME_PLAN_COMPUTE_H
#define TERN_RUNTIME_PLAN_COMPUTE_H

#include "comm/comm.h"

struct tern_compute {
    const char *backend; /* of tern_device_open */
    int threads;
    int cores;   /* that this process may use */
    int sharers; /* ranks that may use the same ones, this one included */
};

/* Collective over comm; NULL: this process is alone. Without TERN_THREADS the cores that this
 * process may use (affinity mask, quota of the container) are divided among the ranks that may use
 * the same ones: bound ranks have theirs, unbound ones share. */
TERN_MUST_CHECK tern_status tern_compute_choose(struct tern_comm *comm, struct tern_compute *out);
/* Cores that a quota leaves of `cores`: text is a cgroup's cpu.max ("150000 100000", "max
 * 100000"). */
int tern_compute_quota(const char *text, int cores);

#endif
