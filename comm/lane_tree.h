/* lane_tree.h - the fixed-order sum of lanes, whatever the number of ranks.
 *
 * L lanes (a power of two) are the leaves of a complete binary tree; rank r of R (1 <= R <= L) owns lanes
 * [first(r), first(r+1)), first(r) = r*L/R rounded down. A node's value is left + right in fp32. The root is
 * therefore the same bits for every R. Inside a rank, lanes are folded into the largest subtrees that the rank owns
 * whole ("nodes"); between ranks the rest is added by the rank that owns the segment of the vector.
 *
 * R a power of two: recursive halving, nearest rank first (each rank ends with its own segment; as many bytes as a
 * ring). Otherwise: every rank sends each node's segment to the segment's owner, who adds in tree order. */
#ifndef TERN_COMM_LANE_TREE_H
#define TERN_COMM_LANE_TREE_H

#include "comm/comm.h"

enum {
    TERN_LANES_MAX = 64,
    TERN_LANE_NODES_MAX = 16,
    TERN_LANE_CHUNK_GPU = 8 << 20 /* 32 MiB: starting a message costs as much as moving some MiB */
};

/* A whole subtree owned by one rank: lanes [first, first + count), count a power of two, first a multiple of it. */
struct tern_lane_node {
    int first, count;
};

struct tern_lane_plan {
    int lanes, ranks, rank;
    int first_lane, lane_count; /* of this rank */
    int node_count;             /* nodes of this rank after folding, ascending */
    struct tern_lane_node nodes[TERN_LANE_NODES_MAX]; /* largest owned subtrees, in lane order */
    int buffers; /* gradient buffers needed at once while folding lanes in order */
    /* Floats of one message of a reduction: plan_make sets what stays in a processor's cache; for GPUs raise it to
     * TERN_LANE_CHUNK_GPU before the scratch is sized. The same on every rank. Bits do not depend on it. */
    int64_t chunk_floats;
};

/* Pure. TERN_ERR_CONFIG unless lanes is a power of two <= TERN_LANES_MAX and 1 <= ranks <= lanes. */
TERN_MUST_CHECK tern_status tern_lane_plan_make(int lanes,
                                                int ranks,
                                                int rank,
                                                struct tern_lane_plan *plan_out);
/* How a rank folds: for its lanes in ascending order, accumulate the lane into a fresh zeroed buffer and push it on a
 * stack; then tern_lane_fold_count(plan, lane) times: add the top buffer into the one below it (left += right) and pop
 * the top. At most plan->buffers are on the stack at once; after the last lane plan->node_count remain, bottom of the
 * stack = nodes[0], and plan->nodes says what each is. Pure. */
int tern_lane_fold_count(const struct tern_lane_plan *plan, int lane);
/* First lane of a rank; first_lane(ranks) == lanes. */
int tern_lane_first(int lanes, int ranks, int rank);

/* dst[i] += src[i], i < n, fp32 in host or device memory: given by the caller, since comm does not compute. */
typedef tern_status (*tern_lane_add)(void *context,
                                     struct tern_dptr dst,
                                     struct tern_dptr src,
                                     int64_t n);

/* One bucket's reduce-scatter. nodes[i] is the vector (n floats) of plan->nodes[i]; ranges (one a rank, in elements)
 * says which part of the root each rank gets, as tern_lane_ranges gave it. On return nodes[0] holds this rank's range
 * of the root in place; the rest of all nodes is scratch. scratch must hold tern_lane_scratch_floats() floats. */
struct tern_lane_reduce {
    const struct tern_lane_plan *plan;
    struct tern_dptr nodes[TERN_LANE_NODES_MAX];
    const struct tern_range *ranges;
    struct tern_dptr scratch;
    tern_lane_add add;
    void *add_context;
};
int64_t tern_lane_scratch_floats(const struct tern_lane_plan *plan,
                                 const struct tern_range *ranges);
/* A tern_comm_job: arg is a struct tern_lane_reduce that lives until the ticket is done. */
tern_status tern_lane_reduce_job(struct tern_comm *comm, void *arg);
/* The same sum in whatever order the backend likes, where it has one (comm.h, reduce_ranges): other bits for another
 * number of ranks, and fewer messages. */
tern_status tern_lane_sum_job(struct tern_comm *comm, void *arg);

/* Which part of a vector each rank gets, so that recursive halving ends there (ranks a power of two: halves of halves,
 * by the bits of the rank, lowest first; else even parts in rank order). Cuts only at `cuts` (cut_count ascending
 * element offsets, cuts[0] = 0, cuts[cut_count-1] = n), nearest to an even split. A range may be empty. */
void tern_lane_ranges(int ranks,
                      const int64_t *cuts,
                      int64_t cut_count,
                      struct tern_range *ranges_out);

#endif
