/* compute.h - what this process computes with: TERN_BACKEND and TERN_THREADS, or else its share of
 * the cores; its device, and how that reaches those of the other ranks. */
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
/* A device, a queue of it for reductions, and the communicator between the devices of the ranks. */
struct tern_compute_devices {
    struct tern_compute compute;
    struct tern_device *device, *comm_device;
    struct tern_comm *data_comm; /* NULL: the host's carries everything */
};

/* Collective over comm; a failure is known to all ranks. Owned: close, also after a failure. farewell: comm.h. */
TERN_MUST_CHECK tern_status tern_compute_open(struct tern_comm *comm,
                                              const struct tern_comm_farewell *farewell,
                                              struct tern_compute_devices *out);
void tern_compute_close(struct tern_compute_devices *devices);
/* Whether its memory is not the host's: what lies there is on a bill of its own. *free_out (or NULL): bytes of it. */
bool tern_compute_has_memory(const struct tern_compute_devices *devices, int64_t *free_out);

/* Cores that a quota leaves of `cores`: text is a cgroup's cpu.max ("150000 100000", "max
 * 100000"). */
int tern_compute_quota(const char *text, int cores);

#endif
