/* lane_check.c - the lane tree on one group against a serial tree over all lanes: the same bits. */
#include "comm/lane_tree.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "tests/comm/checks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tern_dptr at(const void *p)
{
    return (struct tern_dptr){(uint64_t)(uintptr_t)p};
}

static float *floats_new(int64_t n)
{
    float *block = tern_alloc("test", (size_t)(n > 0 ? n : 1) * sizeof *block);
    if (block == NULL) {
        abort();
    }
    return block;
}

/* Values whose sum depends on the order: huge and tiny, cancelling, denormal, both zeros, infinite. */
static float hostile(uint64_t seed, int lane, int64_t i)
{
    uint64_t bits =
        tern_random_u64(seed, tern_random_stream_id(TERN_STREAM_TEST, (uint32_t)lane), (uint64_t)i);
    uint32_t low = (uint32_t)bits;
    float value;
    switch (bits >> 60) {
    case 0:
        return low & 1 ? 0.0f : -0.0f;
    case 1:
        low &= 0x807fffffu; /* denormal */
        memcpy(&value, &low, sizeof value);
        return value;
    case 2:
        return (low & 1 ? 1.0f : -1.0f) * 3e38f;
    case 3:
        return i % 64 == 0 ? ((low & 1) ? INFINITY : -INFINITY) : 1.0f;
    case 4:
    case 5:
        return (low & 1 ? 1.0f : -1.0f) * 16777216.0f;
    default:
        low = (low & 0x80ffffffu) | ((96 + (uint32_t)(bits >> 32) % 60) << 23);
        memcpy(&value, &low, sizeof value);
        return value;
    }
}

static tern_status add(void *context, struct tern_dptr dst, struct tern_dptr src, int64_t n)
{
    float *into = (float *)(uintptr_t)dst.addr;
    const float *from = (const float *)(uintptr_t)src.addr;
    *(int64_t *)context += n;
    for (int64_t i = 0; i < n; i++) {
        into[i] += from[i];
    }
    return TERN_OK;
}

/* The definition: value of a node = left + right. */
static float serial(uint64_t seed, int first, int count, int64_t i)
{
    if (count == 1) {
        return hostile(seed, first, i);
    }
    float left = serial(seed, first, count / 2, i);
    float right = serial(seed, first + count / 2, count / 2, i);
    return left + right;
}

static bool same_bits(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

/* Folds this rank's lanes as lane_tree.h tells a caller to. Returns how many buffers were in use. */
static int fold_lanes(const struct tern_lane_plan *plan, float **buffers, int64_t n, uint64_t seed)
{
    int depth = 0;
    int deepest = 0;
    int64_t ignored = 0;
    for (int lane = plan->first_lane; lane < plan->first_lane + plan->lane_count; lane++) {
        for (int64_t i = 0; i < n; i++) {
            buffers[depth][i] = hostile(seed, lane, i);
        }
        depth++;
        deepest = depth > deepest ? depth : deepest;
        for (int merges = tern_lane_fold_count(plan, lane); merges > 0; merges--) {
            add(&ignored, at(buffers[depth - 2]), at(buffers[depth - 1]), n);
            depth--;
        }
    }
    return depth == plan->node_count ? deepest : -1;
}

static int64_t make_cuts(int64_t *cuts, int64_t n, int64_t step)
{
    int64_t count = 0;
    for (int64_t cut = 0; cut < n; cut += step) {
        cuts[count++] = cut;
    }
    cuts[count++] = n;
    return count;
}

struct setting {
    struct tern_lane_plan plan;
    struct tern_range ranges[TERN_LANES_MAX];
    float *buffers[TERN_LANE_NODES_MAX];
    float *scratch;
    int64_t n;
    uint64_t seed;
    const struct tern_check_memory *memory; /* NULL: the host's, and the two below are empty */
    struct tern_dptr nodes[TERN_LANE_NODES_MAX];
    struct tern_dptr device_scratch;
};

static int complain(struct tern_comm *comm, const struct setting *s, const char *what, int64_t i)
{
    fprintf(stderr, "rank %d of %d, %d lanes, %lld floats, seed %llu: %s (at %lld): %s\n",
            comm->rank, comm->size, s->plan.lanes, (long long)s->n, (unsigned long long)s->seed,
            what, (long long)i, tern_detail());
    return 1;
}

/* Compares [begin, end) of nodes[0] with the serial tree. */
static int compare(struct tern_comm *comm, const struct setting *s, struct tern_range range)
{
    for (int64_t i = range.begin; i < range.end; i++) {
        float expected = serial(s->seed, 0, s->plan.lanes, i);
        if (!same_bits(s->buffers[0][i], expected)) {
            fprintf(stderr, "found %a, expected %a\n", (double)s->buffers[0][i], (double)expected);
            return complain(comm, s, "wrong bits", i);
        }
    }
    return 0;
}

static int check_bytes(struct tern_comm *comm, const struct setting *s, int64_t sent_before)
{
    int ranks = comm->size;
    int64_t sent = atomic_load(&comm->counters.bytes_sent) - sent_before;
    struct tern_range own = s->ranges[comm->rank];
    /* A ring sends every part but one's own. */
    int64_t ring = (s->n - (own.end - own.begin)) * (int64_t)sizeof(float);
    if ((ranks & (ranks - 1)) == 0 && sent > ring) {
        fprintf(stderr, "sent %lld bytes, a ring %lld\n", (long long)sent, (long long)ring);
        return complain(comm, s, "too many bytes", sent);
    }
    return 0;
}

/* Copies of the nodes on the device, and scratch that is not zero. */
static int move_in(struct tern_comm *comm, struct setting *s)
{
    const struct tern_check_memory *m = s->memory;
    size_t bytes = (size_t)s->n * sizeof(float);
    size_t scratch = (size_t)(tern_lane_scratch_floats(&s->plan, s->ranges) + 1) * sizeof(float);
    if (m->table->alloc(m->compute, "test", scratch, &s->device_scratch) != TERN_OK ||
        m->table->upload(m->compute, s->device_scratch, s->scratch, scratch) != TERN_OK) {
        return complain(comm, s, "scratch on the device", 0);
    }
    for (int i = 0; i < s->plan.node_count; i++) {
        if (m->table->alloc(m->compute, "test", bytes, &s->nodes[i]) != TERN_OK ||
            m->table->upload(m->compute, s->nodes[i], s->buffers[i], bytes) != TERN_OK) {
            return complain(comm, s, "nodes on the device", i);
        }
    }
    return 0;
}

/* nodes[0] and the scratch, back to where compare looks. */
static int move_out(struct tern_comm *comm, struct setting *s)
{
    const struct tern_check_memory *m = s->memory;
    size_t scratch = (size_t)(tern_lane_scratch_floats(&s->plan, s->ranges) + 1) * sizeof(float);
    if (m->table->download(m->compute, s->buffers[0], s->nodes[0], (size_t)s->n * sizeof(float)) !=
            TERN_OK ||
        m->table->download(m->compute, s->scratch, s->device_scratch, scratch) != TERN_OK) {
        return complain(comm, s, "reading the device", 0);
    }
    return 0;
}

static void free_device(struct setting *s)
{
    const struct tern_check_memory *m = s->memory;
    for (int i = 0; m != NULL && i < TERN_LANE_NODES_MAX; i++) {
        m->table->free(m->compute, s->nodes[i]);
    }
    if (m != NULL) {
        m->table->free(m->compute, s->device_scratch);
    }
}

static int reduce_and_gather(struct tern_comm *comm, struct setting *s)
{
    const struct tern_check_memory *m = s->memory;
    int64_t adds = 0;
    struct tern_lane_reduce reduce = {.plan = &s->plan, .ranges = s->ranges, .add = add};
    reduce.scratch = at(s->scratch);
    reduce.add_context = &adds;
    for (int i = 0; i < s->plan.node_count; i++) {
        reduce.nodes[i] = at(s->buffers[i]);
    }
    if (m != NULL) {
        if (move_in(comm, s) != 0) {
            return 1;
        }
        memcpy(reduce.nodes, s->nodes, sizeof reduce.nodes);
        reduce.scratch = s->device_scratch;
        reduce.add = m->add;
        reduce.add_context = m->add_context;
    }
    int64_t sent = atomic_load(&comm->counters.bytes_sent);
    uint64_t ticket;
    if (tern_comm_submit(comm, tern_lane_reduce_job, &reduce, &ticket) != TERN_OK ||
        tern_comm_wait(comm, ticket) != TERN_OK) {
        return complain(comm, s, "reduce", 0);
    }
    int failures = check_bytes(comm, s, sent);
    failures += m != NULL ? move_out(comm, s) : 0;
    failures += compare(comm, s, s->ranges[comm->rank]);
    struct tern_range bytes[TERN_LANES_MAX];
    for (int r = 0; r < comm->size; r++) {
        bytes[r].begin = s->ranges[r].begin * (int64_t)sizeof(float);
        bytes[r].end = s->ranges[r].end * (int64_t)sizeof(float);
    }
    if (tern_comm_all_gatherv(comm, reduce.nodes[0], bytes) != TERN_OK) {
        return complain(comm, s, "all_gatherv", 0);
    }
    failures += m != NULL ? move_out(comm, s) : 0;
    return failures + compare(comm, s, (struct tern_range){0, s->n});
}

int tern_check_lanes(struct tern_comm *comm, int lanes, int64_t n, int64_t cuts_step, uint64_t seed)
{
    return tern_check_lanes_in(comm, NULL, lanes, n, cuts_step, 0, seed);
}

int tern_check_lanes_in(struct tern_comm *comm,
                        const struct tern_check_memory *memory,
                        int lanes,
                        int64_t n,
                        int64_t cuts_step,
                        int64_t chunk_floats,
                        uint64_t seed)
{
    struct setting s = {.n = n, .seed = seed, .memory = memory};
    if (tern_lane_plan_make(lanes, comm->size, comm->rank, &s.plan) != TERN_OK) {
        return complain(comm, &s, "plan", 0);
    }
    s.plan.chunk_floats = chunk_floats > 0 ? chunk_floats : s.plan.chunk_floats;
    int64_t *cuts = tern_alloc("test", (size_t)(n / cuts_step + 2) * sizeof *cuts);
    tern_lane_ranges(comm->size, cuts, make_cuts(cuts, n, cuts_step), s.ranges);
    int64_t scratch = tern_lane_scratch_floats(&s.plan, s.ranges);
    s.scratch = floats_new(scratch + 1);
    memset(s.scratch, 0x7f, (size_t)(scratch + 1) * sizeof(float));
    float guard = s.scratch[scratch];
    for (int i = 0; i < s.plan.buffers; i++) {
        s.buffers[i] = floats_new(n);
    }
    int failures = 0;
    if (fold_lanes(&s.plan, s.buffers, n, seed) != s.plan.buffers) {
        failures += complain(comm, &s, "folding uses another number of buffers than planned", 0);
    }
    failures += reduce_and_gather(comm, &s);
    if (memcmp(&guard, &s.scratch[scratch], sizeof guard) != 0) {
        failures += complain(comm, &s, "wrote past the scratch", scratch);
    }
    free_device(&s);
    for (int i = 0; i < s.plan.buffers; i++) {
        tern_free(s.buffers[i]);
    }
    tern_free(s.scratch);
    tern_free(cuts);
    return failures;
}
