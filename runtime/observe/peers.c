/* peers.c - measures: all-reduce over message sizes, then pairs. */
#include "runtime/observe/peers.h"

#include "comm/lane_tree.h"
#include "kernels/ops.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ITERATIONS_MIN = 3,
    ITERATIONS_MAX = 50,
    CUTS_MAX = 1024,
    PING_ROUNDS = 50,
    STREAM_ROUNDS = 4,
    TRIES = 3 /* of a pair; the best counts */
};

/* About how long one message size is measured. */
static const int64_t g_size_ns = 200 * 1000 * 1000;

/* ---- all-reduce ---- */

/* The trainer's: reduce-scatter in the fixed order of the lane tree, then all-gather. */
struct all_reduce {
    struct tern_lane_plan plan;
    struct tern_range ranges[TERN_LANES_MAX]; /* elements */
    struct tern_range byte_ranges[TERN_LANES_MAX];
    struct tern_lane_reduce reduce;
};

static tern_status add(void *context, struct tern_dptr dst, struct tern_dptr src, int64_t n)
{
    struct tern_device *queue = context;
    const struct tern_add_args args = {.a = dst, .b = src, .y = dst, .n = n, .dtype = TERN_F32};
    return n == 0 ? TERN_OK : tern_op_add(queue, &args);
}

static tern_status all_reduce_job(struct tern_comm *comm, void *arg)
{
    struct all_reduce *work = arg;
    TERN_RETURN_IF_ERR(tern_lane_reduce_job(comm, &work->reduce));
    return tern_comm_all_gatherv(comm, work->reduce.nodes[0], work->byte_ranges);
}

static tern_status plan_lanes(const struct tern_peers_group *group, struct tern_lane_plan *out)
{
    const struct tern_comm *comm = group->data;
    int lanes = 1;
    while (lanes < comm->size) {
        lanes *= 2;
    }
    TERN_RETURN_IF_ERR(tern_lane_plan_make(lanes, comm->size, comm->rank, out));
    /* a communicator of its own is one between GPUs: the trainer's messages there */
    out->chunk_floats = group->data != group->host ? TERN_LANE_CHUNK_GPU : out->chunk_floats;
    return TERN_OK;
}

/* Cuts a vector of n floats among the ranks. */
static void cut(struct all_reduce *work, int64_t n)
{
    int64_t cuts[CUTS_MAX + 1];
    int64_t parts = n < CUTS_MAX ? n : CUTS_MAX;
    for (int64_t i = 0; i <= parts; i++) {
        cuts[i] = n * i / parts;
    }
    tern_lane_ranges(work->plan.ranks, cuts, parts + 1, work->ranges);
    for (int r = 0; r < work->plan.ranks; r++) {
        work->byte_ranges[r].begin = work->ranges[r].begin * 4;
        work->byte_ranges[r].end = work->ranges[r].end * 4;
    }
}

/* Bytes of device memory that an all-reduce of `bytes` takes on this rank. */
static int64_t memory_needed(struct all_reduce *work, int64_t bytes)
{
    cut(work, bytes / 4);
    return work->plan.node_count * bytes + 4 * tern_lane_scratch_floats(&work->plan, work->ranges);
}

static tern_status run_once(const struct tern_peers_group *group,
                            struct all_reduce *work,
                            int64_t *ns_out)
{
    uint64_t ticket;
    TERN_RETURN_IF_ERR(tern_comm_barrier(group->host));
    int64_t begin = tern_clock_ns();
    TERN_RETURN_IF_ERR(tern_comm_submit(group->data, all_reduce_job, work, &ticket));
    TERN_RETURN_IF_ERR(tern_comm_wait(group->data, ticket));
    TERN_RETURN_IF_ERR(group->device->ops->device->sync(group->device));
    *ns_out = tern_clock_ns() - begin;
    return TERN_OK;
}

static int by_value(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static tern_status measure_size(const struct tern_peers_group *group,
                                struct all_reduce *work,
                                struct tern_peers_size *size)
{
    int64_t ns[ITERATIONS_MAX];
    cut(work, size->bytes / 4);
    TERN_RETURN_IF_ERR(run_once(group, work, &ns[0])); /* the first makes connections */
    TERN_RETURN_IF_ERR(run_once(group, work, &ns[0]));
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(group->host, ns, 1));
    int64_t count = g_size_ns / (ns[0] > 0 ? ns[0] : 1);
    count = count < ITERATIONS_MIN ? ITERATIONS_MIN : count;
    size->iterations = count > ITERATIONS_MAX ? ITERATIONS_MAX : (int)count;
    for (int i = 0; i < size->iterations; i++) {
        TERN_RETURN_IF_ERR(run_once(group, work, &ns[i]));
    }
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(group->host, ns, size->iterations));
    qsort(ns, (size_t)size->iterations, sizeof ns[0], by_value);
    size->seconds = (double)ns[size->iterations / 2] * 1e-9;
    return TERN_OK;
}

/* Powers of 8, then bytes_max, as far as every rank has the memory. */
static tern_status choose_sizes(const struct tern_peers_group *group,
                                const struct tern_peers_options *options,
                                struct all_reduce *work,
                                struct tern_peers *out)
{
    int64_t lack[TERN_PEERS_SIZES_MAX]; /* 1: does not fit here */
    int64_t last = options->bytes_max / 4 * 4;
    int count = 0;
    for (int64_t bytes = 8; bytes < last && count < TERN_PEERS_SIZES_MAX - 1; bytes *= 8) {
        out->sizes[count++].bytes = bytes;
    }
    out->sizes[count++].bytes = last;
    for (int i = 0; i < count; i++) {
        lack[i] = memory_needed(work, out->sizes[i].bytes) > options->memory_bytes;
    }
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(group->host, lack, count));
    while (out->size_count < count && lack[out->size_count] == 0) {
        out->size_count++;
    }
    return out->size_count > 0 ? TERN_OK
                               : tern_fail(TERN_ERR_MEMORY, "a rank has no memory to measure with");
}

static tern_status measure_all_reduce(const struct tern_peers_group *group,
                                      const struct tern_peers_options *options,
                                      struct tern_peers *out)
{
    const struct tern_device_table *table = group->device->ops->device;
    struct all_reduce work = {0};
    tern_status status = TERN_OK;
    TERN_RETURN_IF_ERR(plan_lanes(group, &work.plan));
    TERN_RETURN_IF_ERR(choose_sizes(group, options, &work, out));
    int64_t bytes = out->sizes[out->size_count - 1].bytes;
    int64_t scratch = memory_needed(&work, bytes) - work.plan.node_count * bytes;
    work.reduce = (struct tern_lane_reduce){
        .plan = &work.plan, .ranges = work.ranges, .add = add, .add_context = group->queue};
    for (int i = 0; i < work.plan.node_count; i++) {
        TERN_GOTO_IF_ERR(
            status, table->alloc(group->device, "peer check", (size_t)bytes, &work.reduce.nodes[i]),
            done);
    }
    TERN_GOTO_IF_ERR(
        status,
        table->alloc(group->device, "peer check", (size_t)scratch + 4, &work.reduce.scratch), done);
    for (int i = 0; i < out->size_count; i++) {
        TERN_GOTO_IF_ERR(status, measure_size(group, &work, &out->sizes[i]), done);
    }
done:
    for (int i = 0; i < work.plan.node_count; i++) {
        table->free(group->device, work.reduce.nodes[i]);
    }
    table->free(group->device, work.reduce.scratch);
    return status;
}

/* ---- pairs ---- */

struct pair {
    int peer;
    bool is_first; /* of the two */
    struct tern_dptr out, in;
    size_t bytes;
    int rounds;
};

/* 8 bytes there and back, one at a time. */
static tern_status ping_job(struct tern_comm *comm, void *arg)
{
    const struct pair *pair = arg;
    const struct tern_comm_message send = {pair->peer, true, pair->out, pair->bytes};
    const struct tern_comm_message take = {pair->peer, false, pair->in, pair->bytes};
    for (int i = 0; pair->peer >= 0 && i < pair->rounds; i++) {
        TERN_RETURN_IF_ERR(comm->table->exchange(comm, pair->is_first ? &send : &take, 1));
        TERN_RETURN_IF_ERR(comm->table->exchange(comm, pair->is_first ? &take : &send, 1));
    }
    return TERN_OK;
}

/* Both ways at once. */
static tern_status stream_job(struct tern_comm *comm, void *arg)
{
    const struct pair *pair = arg;
    const struct tern_comm_message both[] = {{pair->peer, true, pair->out, pair->bytes},
                                             {pair->peer, false, pair->in, pair->bytes}};
    for (int i = 0; pair->peer >= 0 && i < pair->rounds; i++) {
        TERN_RETURN_IF_ERR(comm->table->exchange(comm, both, 2));
    }
    return TERN_OK;
}

/* Best time of TRIES, seconds. Every rank calls it, also one without a partner. */
static tern_status time_pair(const struct tern_peers_group *group,
                             tern_comm_job job,
                             struct pair *pair,
                             double *seconds_out)
{
    *seconds_out = INFINITY;
    for (int i = 0; i < TRIES; i++) {
        uint64_t ticket;
        TERN_RETURN_IF_ERR(tern_comm_barrier(group->host));
        int64_t begin = tern_clock_ns();
        TERN_RETURN_IF_ERR(tern_comm_submit(group->data, job, pair, &ticket));
        TERN_RETURN_IF_ERR(tern_comm_wait(group->data, ticket));
        TERN_RETURN_IF_ERR(group->device->ops->device->sync(group->device));
        double seconds = (double)(tern_clock_ns() - begin) * 1e-9;
        *seconds_out = seconds < *seconds_out ? seconds : *seconds_out;
    }
    return TERN_OK;
}

static tern_status measure_rounds(const struct tern_peers_group *group,
                                  struct pair *pair,
                                  int64_t bytes,
                                  double *latency,
                                  double *bandwidth)
{
    int ranks = group->host->size;
    int rank = group->host->rank;
    for (int round = 0; round < tern_peers_rounds(ranks); round++) {
        double seconds;
        pair->peer = tern_peers_partner(ranks, round, rank);
        pair->is_first = rank < pair->peer;
        pair->bytes = 8;
        pair->rounds = PING_ROUNDS;
        TERN_RETURN_IF_ERR(time_pair(group, ping_job, pair, &seconds));
        if (pair->peer >= 0) {
            latency[pair->peer] = seconds / (2 * PING_ROUNDS);
        }
        pair->bytes = (size_t)bytes;
        pair->rounds = STREAM_ROUNDS;
        TERN_RETURN_IF_ERR(time_pair(group, stream_job, pair, &seconds));
        if (pair->peer >= 0) {
            bandwidth[pair->peer] = (double)bytes * STREAM_ROUNDS / seconds;
        }
    }
    return TERN_OK;
}

/* Two ranks saw the same pair: the slower one's figure is the pair's. */
static void make_symmetric(double *matrix, int ranks, bool takes_larger)
{
    for (int a = 0; a < ranks; a++) {
        for (int b = 0; b < a; b++) {
            double *one = &matrix[(size_t)a * (size_t)ranks + (size_t)b];
            double *other = &matrix[(size_t)b * (size_t)ranks + (size_t)a];
            double value = (*one > *other) == takes_larger ? *one : *other;
            *one = value;
            *other = value;
        }
    }
}

static tern_status measure_pairs(const struct tern_peers_group *group,
                                 const struct tern_peers_options *options,
                                 struct tern_peers *out)
{
    const struct tern_device_table *table = group->device->ops->device;
    size_t ranks = (size_t)group->host->size;
    struct pair pair = {0};
    int64_t largest = out->sizes[out->size_count - 1].bytes; /* what fits on every rank */
    int64_t bytes = options->pair_bytes < largest ? options->pair_bytes : largest;
    tern_status status;
    out->pair_bytes = bytes;
    double *row = tern_alloc_zero("peer check", 2 * ranks, sizeof *row);
    out->latency = tern_alloc_zero("peer check", ranks * ranks, sizeof *out->latency);
    out->bandwidth = tern_alloc_zero("peer check", ranks * ranks, sizeof *out->bandwidth);
    if (row == NULL || out->latency == NULL || out->bandwidth == NULL) {
        tern_free(row);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the table of %zu ranks", ranks);
    }
    TERN_GOTO_IF_ERR(status, table->alloc(group->device, "peer check", (size_t)bytes, &pair.out),
                     done);
    TERN_GOTO_IF_ERR(status, table->alloc(group->device, "peer check", (size_t)bytes, &pair.in),
                     done);
    TERN_GOTO_IF_ERR(status, measure_rounds(group, &pair, bytes, row, row + ranks), done);
    TERN_GOTO_IF_ERR(
        status, tern_comm_all_gather(group->host, row, ranks * sizeof *row, out->latency), done);
    TERN_GOTO_IF_ERR(
        status, tern_comm_all_gather(group->host, row + ranks, ranks * sizeof *row, out->bandwidth),
        done);
    make_symmetric(out->latency, (int)ranks, true);
    make_symmetric(out->bandwidth, (int)ranks, false);
done:
    table->free(group->device, pair.out);
    table->free(group->device, pair.in);
    tern_free(row);
    return status;
}

tern_status tern_peers_measure(const struct tern_peers_group *group,
                               const struct tern_peers_options *options,
                               struct tern_peers *out)
{
    memset(out, 0, sizeof *out);
    out->ranks = group->host->size;
    tern_status status = measure_all_reduce(group, options, out);
    if (status == TERN_OK) {
        status = measure_pairs(group, options, out);
    }
    if (status != TERN_OK) {
        tern_peers_fini(out);
    }
    return status;
}

void tern_peers_fini(struct tern_peers *peers)
{
    tern_free(peers->latency);
    tern_free(peers->bandwidth);
    memset(peers, 0, sizeof *peers);
}

double tern_peers_algorithm_bandwidth(const struct tern_peers_size *size)
{
    return size->seconds > 0 ? (double)size->bytes / size->seconds : 0;
}

double tern_peers_bus_bandwidth(const struct tern_peers_size *size, int ranks)
{
    return tern_peers_algorithm_bandwidth(size) * 2 * (ranks - 1) / ranks;
}

/* ---- who meets whom ---- */

int tern_peers_rounds(int ranks)
{
    if (ranks <= TERN_PEERS_ALONE_MAX) {
        return ranks * (ranks - 1) / 2;
    }
    return ranks % 2 == 0 ? ranks - 1 : ranks;
}

/* The pair (a, b), a < b, of a round in which no other meets. */
static int partner_alone(int ranks, int round, int rank)
{
    int a = 0;
    for (; round >= ranks - 1 - a; a++) {
        round -= ranks - 1 - a;
    }
    int b = a + 1 + round;
    return rank == a ? b : rank == b ? a : -1;
}

/* A tournament on a circle of m places, m even: the last stays, the others go round; ranks whose numbers add up to the
 * round (modulo m - 1) meet. */
static int partner_in_circle(int ranks, int round, int rank)
{
    int circle = ranks + ranks % 2 - 1;
    int partner;
    if (rank == circle) {
        partner = (int)((int64_t)round * ((circle + 1) / 2) % circle); /* half of the round */
    } else {
        partner = (round - rank % circle + circle) % circle;
        partner = partner == rank ? circle : partner;
    }
    return partner < ranks ? partner : -1;
}

int tern_peers_partner(int ranks, int round, int rank)
{
    return ranks <= TERN_PEERS_ALONE_MAX ? partner_alone(ranks, round, rank)
                                         : partner_in_circle(ranks, round, rank);
}
