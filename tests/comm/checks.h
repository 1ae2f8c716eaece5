/* checks.h - checks that run on every rank of a group, whatever carries it. */
#ifndef TERN_TESTS_COMM_CHECKS_H
#define TERN_TESTS_COMM_CHECKS_H

#include "comm/lane_tree.h"

/* All collectives against direct computation. Returns how many checks failed and says which. */
int tern_check_primitives(struct tern_comm *comm);
/* One message of `bytes` from rank 0 to rank 1 of two. */
int tern_check_long_message(struct tern_comm *comm, size_t bytes);
/* Where the vectors of a check lie: in the memory of a device, behind its queue. */
struct tern_check_memory {
    const struct tern_device_table *table;
    struct tern_device *compute; /* fills and reads */
    struct tern_device *queue;   /* the communicator's: adds */
    tern_lane_add add;           /* on `queue` */
    void *add_context;
};

/* Lane sums of `n` floats over comm's ranks against a serial tree: the same bits; bytes sent within the
 * bound for powers of two. `cuts_step`: distance of the cuts. */
int tern_check_lanes(struct tern_comm *comm,
                     int lanes,
                     int64_t n,
                     int64_t cuts_step,
                     uint64_t seed);
/* The same with vectors in device memory. chunk_floats: of a message; 0: as planned. */
int tern_check_lanes_in(struct tern_comm *comm,
                        const struct tern_check_memory *memory,
                        int lanes,
                        int64_t n,
                        int64_t cuts_step,
                        int64_t chunk_floats,
                        uint64_t seed);

#endif
