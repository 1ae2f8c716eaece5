/* lane_tree.c - one bucket's reduce-scatter down the fixed tree, in chunks that stay in cache.
 *
 * x + y and y + x are the same bits (but for the payload of a NaN), so a sum may be kept in either of
 * its two operands; what the tree fixes is which sums are made. */
#include "comm/lane_tree.h"

#include "runtime/base/check.h"

enum {
    CHUNK_FLOATS_MIN = 16 * 1024,
    /* Sum over the other ranks of their nodes, and (ranks - 1) * own nodes, are both below these. */
    FOREIGN_MAX = TERN_LANES_MAX,
    SENDS_MAX = 2 * TERN_LANES_MAX,
};

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t length(struct tern_range range)
{
    return range.end - range.begin;
}

static struct tern_dptr at(struct tern_dptr base, int64_t index)
{
    return tern_dptr_at(base, index, TERN_F32);
}

/* What is left of the vector for a rank after the first `bits` halvings: the parts of all ranks that
 * agree with it in the low bits. They lie side by side. */
static struct tern_range part_after(const struct tern_range *ranges, int ranks, int rank, int bits)
{
    int stride = 1 << bits;
    struct tern_range part = ranges[rank];
    for (int r = rank % stride; r < ranks; r += stride) {
        part.begin = min_i64(part.begin, ranges[r].begin);
        part.end = ranges[r].end > part.end ? ranges[r].end : part.end;
    }
    return part;
}

static bool halves(const struct tern_lane_plan *plan)
{
    return (plan->ranks & (plan->ranks - 1)) == 0;
}

/* Nodes of all other ranks. */
static int foreign_nodes(const struct tern_lane_plan *plan)
{
    int count = 0;
    for (int r = 0; r < plan->ranks; r++) {
        struct tern_lane_plan other;
        tern_status status = tern_lane_plan_make(plan->lanes, plan->ranks, r, &other);
        TERN_CHECK(status == TERN_OK);
        count += r != plan->rank ? other.node_count : 0;
    }
    return count;
}

/* Floats of one message. All ranks must come to the same number, so it depends on the plan's sizes only
 * and not on the rank's own nodes. */
static int64_t chunk_floats(const struct tern_lane_plan *plan)
{
    if (halves(plan)) {
        return plan->chunk_floats;
    }
    int64_t each = 4 * plan->chunk_floats / plan->lanes;
    return each < CHUNK_FLOATS_MIN ? CHUNK_FLOATS_MIN : each;
}

int64_t tern_lane_scratch_floats(const struct tern_lane_plan *plan, const struct tern_range *ranges)
{
    if (plan->ranks == 1) {
        return 0;
    }
    if (halves(plan)) {
        int64_t most = length(part_after(ranges, plan->ranks, plan->rank, 1));
        return min_i64(most, chunk_floats(plan));
    }
    return foreign_nodes(plan) * min_i64(length(ranges[plan->rank]), chunk_floats(plan));
}

static struct tern_comm_message message(int peer,
                                        bool is_send,
                                        struct tern_dptr data,
                                        int64_t floats)
{
    return (struct tern_comm_message){peer, is_send, data, (size_t)floats * sizeof(float)};
}

/* Gives one part to the peer and adds the peer's version of the kept one. All of the given part is posted
 * at once, so that the peer can take its chunks without waiting for this thread each time: while ranks
 * compute on the same processors, a thread may wait milliseconds to run. */
static tern_status halve(struct tern_comm *comm,
                         const struct tern_lane_reduce *reduce,
                         int peer,
                         struct tern_range give,
                         struct tern_range keep)
{
    int64_t floats = chunk_floats(reduce->plan);
    struct tern_dptr node = reduce->nodes[0];
    struct tern_comm_message out = message(peer, true, at(node, give.begin), length(give));
    TERN_RETURN_IF_ERR(comm->table->post(comm, &out, 1, (size_t)floats * sizeof(float)));
    for (int64_t begin = keep.begin; begin < keep.end; begin += floats) {
        int64_t n = min_i64(floats, keep.end - begin);
        struct tern_comm_message in = message(peer, false, reduce->scratch, n);
        TERN_RETURN_IF_ERR(comm->table->exchange(comm, &in, 1));
        TERN_RETURN_IF_ERR(reduce->add(reduce->add_context, at(node, begin), reduce->scratch, n));
    }
    return comm->table->settle(comm);
}

/* After the step with bit b, each rank holds its part of the subtree over 2^(b+1) neighbouring ranks. */
static tern_status reduce_by_halving(struct tern_comm *comm, const struct tern_lane_reduce *reduce)
{
    const struct tern_lane_plan *plan = reduce->plan;
    for (int bit = 0; 1 << bit < plan->ranks; bit++) {
        int peer = plan->rank ^ 1 << bit;
        struct tern_range keep = part_after(reduce->ranges, plan->ranks, plan->rank, bit + 1);
        struct tern_range give = part_after(reduce->ranges, plan->ranks, peer, bit + 1);
        TERN_RETURN_IF_ERR(halve(comm, reduce, peer, give, keep));
    }
    return TERN_OK;
}

/* A subtree whose sum is at `data`. */
struct subtree {
    struct tern_lane_node node;
    struct tern_dptr data;
    bool is_home; /* in this rank's nodes[0]: sums stay there */
};

/* Adds the right one of two siblings to the left one, or the other way round to end at home. */
static tern_status merge(const struct tern_lane_reduce *reduce,
                         struct subtree *left,
                         const struct subtree *right,
                         int64_t n)
{
    struct tern_dptr into = right->is_home ? right->data : left->data;
    struct tern_dptr from = right->is_home ? left->data : right->data;
    left->node.count *= 2;
    left->data = into;
    left->is_home = left->is_home || right->is_home;
    return reduce->add(reduce->add_context, into, from, n);
}

/* Folds the leaves, in lane order, up the tree: n floats each. */
static tern_status fold(const struct tern_lane_reduce *reduce,
                        const struct subtree *leaves,
                        int count,
                        int64_t n)
{
    struct subtree stack[TERN_LANES_MAX];
    int depth = 0;
    for (int i = 0; i < count; i++) {
        stack[depth++] = leaves[i];
        while (depth >= 2) {
            struct subtree *left = &stack[depth - 2];
            const struct subtree *right = &stack[depth - 1];
            bool siblings = left->node.count == right->node.count &&
                            left->node.first % (2 * left->node.count) == 0;
            if (!siblings) {
                break;
            }
            TERN_RETURN_IF_ERR(merge(reduce, left, right, n));
            depth--;
        }
    }
    TERN_CHECK(depth == 1 && stack[0].is_home && stack[0].node.count == reduce->plan->lanes);
    return TERN_OK;
}

/* Posts what this rank has of the others' segments. */
static tern_status post_nodes(struct tern_comm *comm, const struct tern_lane_reduce *reduce)
{
    const struct tern_lane_plan *plan = reduce->plan;
    struct tern_comm_message messages[SENDS_MAX];
    int count = 0;
    for (int r = 0; r < plan->ranks; r++) {
        struct tern_range theirs = reduce->ranges[r];
        for (int i = 0; r != plan->rank && i < plan->node_count; i++) {
            TERN_CHECK(count < SENDS_MAX);
            messages[count++] =
                message(r, true, at(reduce->nodes[i], theirs.begin), length(theirs));
        }
    }
    return comm->table->post(comm, messages, count, (size_t)chunk_floats(plan) * sizeof(float));
}

/* Takes the same chunk [begin, begin + n) of all other ranks' nodes and adds it up with one's own. */
static tern_status reduce_chunk(struct tern_comm *comm,
                                const struct tern_lane_reduce *reduce,
                                const struct tern_lane_plan *plans,
                                int64_t begin,
                                int64_t n)
{
    const struct tern_lane_plan *plan = reduce->plan;
    struct tern_comm_message messages[FOREIGN_MAX];
    struct subtree leaves[TERN_LANES_MAX];
    int message_count = 0;
    int leaf_count = 0;
    for (int r = 0; r < plan->ranks; r++) {
        for (int i = 0; i < plans[r].node_count; i++) {
            TERN_CHECK(leaf_count < TERN_LANES_MAX);
            struct subtree *leaf = &leaves[leaf_count++];
            *leaf = (struct subtree){.node = plans[r].nodes[i]};
            if (r == plan->rank) {
                leaf->data = at(reduce->nodes[i], begin);
                leaf->is_home = i == 0;
            } else {
                leaf->data = at(reduce->scratch, message_count * n);
                messages[message_count++] = message(r, false, leaf->data, n);
            }
        }
    }
    TERN_RETURN_IF_ERR(comm->table->exchange(comm, messages, message_count));
    return fold(reduce, leaves, leaf_count, n);
}

static tern_status reduce_by_owner(struct tern_comm *comm, const struct tern_lane_reduce *reduce)
{
    const struct tern_lane_plan *plan = reduce->plan;
    struct tern_lane_plan plans[TERN_LANES_MAX];
    for (int r = 0; r < plan->ranks; r++) {
        TERN_RETURN_IF_ERR(tern_lane_plan_make(plan->lanes, plan->ranks, r, &plans[r]));
    }
    TERN_RETURN_IF_ERR(post_nodes(comm, reduce));
    int64_t floats = chunk_floats(plan);
    struct tern_range own = reduce->ranges[plan->rank];
    for (int64_t begin = own.begin; begin < own.end; begin += floats) {
        int64_t n = min_i64(floats, own.end - begin);
        TERN_RETURN_IF_ERR(reduce_chunk(comm, reduce, plans, begin, n));
    }
    return comm->table->settle(comm);
}

tern_status tern_lane_reduce_job(struct tern_comm *comm, void *arg)
{
    const struct tern_lane_reduce *reduce = arg;
    TERN_CHECK(reduce->plan->ranks == comm->size && reduce->plan->rank == comm->rank);
    if (comm->size == 1) {
        return TERN_OK; /* lanes is a power of two: the rank's only node is the root */
    }
    return halves(reduce->plan) ? reduce_by_halving(comm, reduce) : reduce_by_owner(comm, reduce);
}

tern_status tern_lane_sum_job(struct tern_comm *comm, void *arg)
{
    const struct tern_lane_reduce *reduce = arg;
    int64_t n = 0;
    for (int r = 0; r < comm->size; r++) {
        n = reduce->ranges[r].end > n ? reduce->ranges[r].end : n;
    }
    for (int i = 1; i < reduce->plan->node_count; i++) {
        TERN_RETURN_IF_ERR(reduce->add(reduce->add_context, reduce->nodes[0], reduce->nodes[i], n));
    }
    return tern_comm_reduce_ranges(comm, reduce->nodes[0], reduce->ranges);
}
