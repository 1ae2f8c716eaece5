/* checks.h - checks that run on every rank of a group, whatever carries it. */
#ifndef TERN_TESTS_COMM_CHECKS_H
#define TERN_TESTS_COMM_CHECKS_H

#include "comm/comm.h"

/* All collectives against direct computation. Returns how many checks failed and says which. */
int tern_check_primitives(struct tern_comm *comm);
/* One message of `bytes` from rank 0 to rank 1 of two. */
int tern_check_long_message(struct tern_comm *comm, size_t bytes);
/* Lane sums of `n` floats over comm's ranks against a serial tree: the same bits; bytes sent within the
 * bound for powers of two. `cuts_step`: distance of the cuts. */
int tern_check_lanes(struct tern_comm *comm,
                     int lanes,
                     int64_t n,
                     int64_t cuts_step,
                     uint64_t seed);

#endif
