/* lane_plan.c - which lanes, subtrees and parts of a vector belong to which rank. Pure. */
#include "comm/lane_tree.h"
#include "runtime/base/check.h"

enum {
    CHUNK_FLOATS = 256 * 1024 /* 1 MiB: added while it is still in cache */
};

static bool is_power_of_two(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

int tern_lane_first(int lanes, int ranks, int rank)
{
    return (int)((int64_t)rank * lanes / ranks);
}

int tern_lane_fold_count(const struct tern_lane_plan *plan, int lane)
{
    int merges = 0;
    while ((lane >> merges & 1) == 1 && lane + 1 - (2 << merges) >= plan->first_lane) {
        merges++;
    }
    return merges;
}

tern_status tern_lane_plan_make(int lanes, int ranks, int rank, struct tern_lane_plan *plan_out)
{
    if (!is_power_of_two(lanes) || lanes > TERN_LANES_MAX) {
        return tern_fail(TERN_ERR_CONFIG, "lanes is %d, expected a power of two up to %d", lanes,
                         TERN_LANES_MAX);
    }
    if (ranks < 1 || ranks > lanes) {
        return tern_fail(TERN_ERR_CONFIG,
                         "%d ranks share %d lanes, expected 1 to %d ranks: start fewer ranks or "
                         "raise train.lanes",
                         ranks, lanes, lanes);
    }
    TERN_CHECK(rank >= 0 && rank < ranks);
    struct tern_lane_plan plan = {
        .lanes = lanes, .ranks = ranks, .rank = rank, .chunk_floats = CHUNK_FLOATS};
    plan.first_lane = tern_lane_first(lanes, ranks, rank);
    plan.lane_count = tern_lane_first(lanes, ranks, rank + 1) - plan.first_lane;
    for (int i = 0; i < plan.lane_count; i++) {
        int lane = plan.first_lane + i;
        TERN_CHECK(plan.node_count < TERN_LANE_NODES_MAX);
        plan.nodes[plan.node_count++] = (struct tern_lane_node){lane, 1};
        plan.buffers = plan.node_count > plan.buffers ? plan.node_count : plan.buffers;
        for (int merges = tern_lane_fold_count(&plan, lane); merges > 0; merges--) {
            plan.node_count--;
            plan.nodes[plan.node_count - 1].count *= 2;
        }
    }
    *plan_out = plan;
    return TERN_OK;
}

/* The cut nearest to x, the lower one of two equally near. */
static int64_t nearest_cut(const int64_t *cuts, int64_t cut_count, double x)
{
    int64_t low = 0;
    int64_t high = cut_count - 1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if ((double)cuts[middle] <= x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (double)cuts[high] - x < x - (double)cuts[low] ? cuts[high] : cuts[low];
}

/* Which rank has the i-th part, in the order of the vector. */
static int rank_of_part(int ranks, int part)
{
    if (!is_power_of_two(ranks)) {
        return part;
    }
    int rank = 0;
    for (int bit = 1; bit < ranks; bit *= 2) {
        rank = rank * 2 + (part / bit) % 2;
    }
    return rank;
}

void tern_lane_ranges(int ranks,
                      const int64_t *cuts,
                      int64_t cut_count,
                      struct tern_range *ranges_out)
{
    TERN_CHECK(cut_count >= 1 && cuts[0] == 0);
    int64_t n = cuts[cut_count - 1];
    int64_t begin = 0;
    for (int part = 0; part < ranks; part++) {
        double ideal = (double)n * (double)(part + 1) / (double)ranks;
        int64_t end = part == ranks - 1 ? n : nearest_cut(cuts, cut_count, ideal);
        ranges_out[rank_of_part(ranks, part)] = (struct tern_range){begin, end};
        begin = end;
    }
}
