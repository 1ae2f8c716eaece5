/* nccl_ranks.c - what every rank of the tests of the communicator between GPUs runs: nccl_ranks CHECK. The GPUs may be
 * simulated ones (TERN_CUDA_PLUGIN). */
#include "kernels/open.h"
#include "kernels/ops.h"
#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "tests/comm/checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bench {
    struct tern_comm *host, *comm;
    struct tern_device *compute, *queue;
    const struct tern_device_table *table;
    float *staging[2]; /* of the additions */
    int64_t staging_floats;
    struct tern_dptr adopted; /* outlives the communicator */
};

static int failed(const struct bench *b, const char *what)
{
    fprintf(stderr, "rank %d of %d: %s: %s\n", b->comm->rank, b->comm->size, what, tern_detail());
    return 1;
}

/* dst += src on the communicator's queue, by way of the host: there need be no kernels for it. */
static tern_status add(void *context, struct tern_dptr dst, struct tern_dptr src, int64_t n)
{
    struct bench *b = context;
    for (int64_t at = 0; at < n; at += b->staging_floats) {
        int64_t count = n - at < b->staging_floats ? n - at : b->staging_floats;
        size_t bytes = (size_t)count * sizeof(float);
        struct tern_dptr into = tern_dptr_at(dst, at, TERN_F32);
        TERN_RETURN_IF_ERR(b->table->download(b->queue, b->staging[0], into, bytes));
        TERN_RETURN_IF_ERR(
            b->table->download(b->queue, b->staging[1], tern_dptr_at(src, at, TERN_F32), bytes));
        for (int64_t i = 0; i < count; i++) {
            b->staging[0][i] += b->staging[1][i];
        }
        TERN_RETURN_IF_ERR(b->table->upload(b->queue, into, b->staging[0], bytes));
    }
    return TERN_OK;
}

static int check_lanes(struct bench *b)
{
    struct tern_check_memory memory = {b->table, b->compute, b->queue, add, b};
    int failures = 0;
    for (int lanes = 1; lanes <= 16; lanes *= 2) {
        if (lanes >= b->comm->size) {
            failures +=
                tern_check_lanes_in(b->comm, &memory, lanes, 1009, 100, 64, (uint64_t)lanes);
            failures += tern_check_lanes_in(b->comm, &memory, lanes, 1009, 100, 0, (uint64_t)lanes);
        }
    }
    /* uneven parts of many pieces; and a vector with nothing for some ranks */
    failures += tern_check_lanes_in(b->comm, &memory, 8, 100003, 49999, 5000, 77);
    return failures + tern_check_lanes_in(b->comm, &memory, 8, 5, 2, 0, 78);
}

static unsigned char pattern(int rank, size_t i, int k)
{
    return (unsigned char)((size_t)rank * 131 + i * 7 + i / 251 + (size_t)k * 29 + 1);
}

/* A block on the device with this rank's pattern; through `compute`, without waiting for it. */
static unsigned char *fill(struct bench *b,
                           unsigned char *host,
                           struct tern_dptr device,
                           size_t bytes,
                           int k)
{
    for (size_t i = 0; i < bytes; i++) {
        host[i] = pattern(b->comm->rank, i, k);
    }
    return b->table->upload(b->compute, device, host, bytes) == TERN_OK ? host : NULL;
}

/* Both edges of a hand-over: what compute enqueued before must be sent, and what it enqueues after wait must see what
 * came. Two messages to the next rank, one to oneself, again and again over the same blocks. */
static int check_exchange(struct bench *b, size_t bytes, int rounds)
{
    int next = (b->comm->rank + 1) % b->comm->size;
    int last = (b->comm->rank - 1 + b->comm->size) % b->comm->size;
    unsigned char *host = tern_alloc("test", bytes);
    struct tern_dptr out[3], in[3];
    int failures = 0;
    for (int i = 0; i < 3; i++) {
        bool is_good = b->table->alloc(b->compute, "test", bytes, &out[i]) == TERN_OK &&
                       b->table->alloc(b->compute, "test", bytes, &in[i]) == TERN_OK;
        failures += is_good ? 0 : failed(b, "alloc");
    }
    for (int k = 0; k < rounds && failures == 0; k++) {
        for (int i = 0; i < 3; i++) {
            failures += fill(b, host, out[i], bytes, 3 * k + i) != NULL ? 0 : failed(b, "upload");
        }
        struct tern_comm_message messages[] = {
            {next, true, out[0], bytes},          {last, false, in[0], bytes},
            {b->comm->rank, false, in[2], bytes}, {next, true, out[1], bytes},
            {last, false, in[1], bytes},          {b->comm->rank, true, out[2], bytes},
        };
        if (b->comm->size == 1) { /* all three to oneself */
            messages[2] = messages[4];
            messages[4] = (struct tern_comm_message){0, false, in[2], bytes};
        }
        if (tern_comm_exchange(b->comm, messages, 6) != TERN_OK) {
            failures += failed(b, "exchange");
            break;
        }
        for (int i = 0; i < 3; i++) {
            if (b->table->download(b->compute, host, in[i], bytes) != TERN_OK) {
                failures += failed(b, "download");
            }
            int from = i == 2 ? b->comm->rank : last;
            for (size_t j = 0; j < bytes; j++) {
                if (host[j] != pattern(from, j, 3 * k + i)) {
                    fprintf(stderr, "round %d, message %d, byte %zu of %zu: wrong\n", k, i, j,
                            bytes);
                    failures++;
                    break;
                }
            }
        }
    }
    for (int i = 0; i < 3; i++) {
        b->table->free(b->compute, out[i]);
        b->table->free(b->compute, in[i]);
    }
    tern_free(host);
    return failures;
}

/* Uneven ranges, some empty, in an order that is not the ranks': integers, whose sum has no order. */
static int check_ranges(struct bench *b, int64_t n, int round)
{
    int size = b->comm->size;
    struct tern_range ranges[16];
    struct tern_range bytes[16];
    int64_t end = 0;
    for (int i = 0; i < size; i++) {
        int r = size - 1 - i;
        int64_t length = r % 3 == 1 ? 0 : n + r;
        ranges[r] = (struct tern_range){end, end + length};
        bytes[r] = (struct tern_range){4 * end, 4 * (end + length)};
        end += length;
    }
    float *host = tern_alloc("test", (size_t)(end + 1) * sizeof *host);
    struct tern_dptr data;
    int failures = b->table->alloc(b->compute, "test", (size_t)(end + 1) * 4, &data) == TERN_OK
                       ? 0
                       : failed(b, "alloc");
    for (int64_t i = 0; i < end; i++) {
        host[i] = (float)((b->comm->rank + 1) * (i % 1000 + round));
    }
    bool is_good = b->table->upload(b->compute, data, host, (size_t)end * 4) == TERN_OK &&
                   tern_comm_reduce_ranges(b->comm, data, ranges) == TERN_OK &&
                   tern_comm_all_gatherv(b->comm, data, bytes) == TERN_OK &&
                   b->table->download(b->compute, host, data, (size_t)end * 4) == TERN_OK;
    failures += is_good ? 0 : failed(b, "reduce and gather");
    for (int64_t i = 0; i < end && is_good; i++) {
        float expected = (float)(size * (size + 1) / 2 * (i % 1000 + round));
        if (host[i] != expected) {
            fprintf(stderr, "element %lld: found %g, expected %g\n", (long long)i, (double)host[i],
                    (double)expected);
            failures++;
            break;
        }
    }
    b->table->free(b->compute, data);
    tern_free(host);
    return failures;
}

static tern_status nothing_job(struct tern_comm *comm, void *arg)
{
    (void)arg;
    return comm->table->barrier(comm);
}

static tern_status poll_to_end(struct bench *b, uint64_t ticket)
{
    tern_status status = TERN_ERR_AGAIN;
    while (status == TERN_ERR_AGAIN) {
        status = tern_comm_poll(b->comm, ticket);
    }
    return status;
}

static int check_tickets(struct bench *b)
{
    uint64_t ticket = 0;
    int failures = 0;
    for (int i = 0; i < 700; i++) { /* more than can be under way */
        uint64_t before = ticket;
        if (tern_comm_submit(b->comm, nothing_job, NULL, &ticket) != TERN_OK || ticket <= before) {
            return failed(b, "submit");
        }
    }
    failures += poll_to_end(b, ticket) == TERN_OK && tern_comm_wait(b->comm, ticket) == TERN_OK &&
                        tern_comm_wait(b->comm, 1) == TERN_OK
                    ? 0
                    : failed(b, "poll");
    return failures;
}

/* Blocks of one job of two exchanges. */
struct relay {
    struct tern_dptr mine, between, came;
    size_t bytes;
};

/* To oneself, then to the next rank what came of that. */
static tern_status relay_job(struct tern_comm *comm, void *arg)
{
    const struct relay *it = arg;
    int next = (comm->rank + 1) % comm->size;
    int last = (comm->rank - 1 + comm->size) % comm->size;
    struct tern_comm_message first[] = {{comm->rank, true, it->mine, it->bytes},
                                        {comm->rank, false, it->between, it->bytes}};
    struct tern_comm_message second[] = {{next, true, it->between, it->bytes},
                                         {last, false, it->came, it->bytes}};
    struct tern_comm_message third[] = {{next, true, it->came, it->bytes},
                                        {last, false, it->mine, it->bytes}};
    TERN_RETURN_IF_ERR(comm->table->exchange(comm, first, 2));
    TERN_RETURN_IF_ERR(comm->table->exchange(comm, second, 2));
    return comm->table->exchange(comm, third, 2);
}

/* Who has polled an operation to its end need not wait for it: what came is there, for any queue. */
static int check_poll(struct bench *b)
{
    enum {
        BYTES = 3000
    };
    int size = b->comm->size;
    unsigned char host[BYTES];
    struct relay relay = {.bytes = BYTES};
    bool is_good = b->table->alloc(b->compute, "test", BYTES, &relay.mine) == TERN_OK &&
                   b->table->alloc(b->compute, "test", BYTES, &relay.between) == TERN_OK &&
                   b->table->alloc(b->compute, "test", BYTES, &relay.came) == TERN_OK;
    for (int k = 0; k < 10 && is_good; k++) {
        uint64_t ticket;
        is_good = fill(b, host, relay.mine, BYTES, k) != NULL &&
                  tern_comm_submit(b->comm, relay_job, &relay, &ticket) == TERN_OK &&
                  poll_to_end(b, ticket) == TERN_OK &&
                  b->table->download(b->compute, host, relay.mine, BYTES) == TERN_OK;
        int from = (b->comm->rank - 2 + 2 * size) % size;
        for (size_t j = 0; j < BYTES && is_good; j++) {
            if (host[j] != pattern(from, j, k)) {
                fprintf(stderr, "after a poll, round %d, byte %zu: wrong\n", k, j);
                return 1;
            }
        }
    }
    b->table->free(b->compute, relay.mine);
    b->table->free(b->compute, relay.between);
    b->table->free(b->compute, relay.came);
    return is_good ? 0 : failed(b, "exchanges and a poll");
}

/* Nobody's queue leaves a barrier before the last rank has come to it, whichever that is. It says so by a file. */
static int check_barrier(struct bench *b)
{
    int32_t pid = (int32_t)getpid();
    int32_t pids[16];
    int failures = 0;
    if (tern_comm_all_gather(b->host, &pid, sizeof pid, pids) != TERN_OK) {
        return failed(b, "all_gather");
    }
    for (int late = 0; late < b->comm->size; late++) {
        char path[64];
        uint64_t ticket;
        snprintf(path, sizeof path, "/tmp/tern-barrier-%d-%d", (int)pids[0], late);
        if (b->comm->rank == late) {
            usleep(30000);
            FILE *file = fopen(path, "w");
            failures += file != NULL && fclose(file) == 0 ? 0 : failed(b, path);
        }
        if (tern_comm_submit(b->comm, nothing_job, NULL, &ticket) != TERN_OK ||
            poll_to_end(b, ticket) != TERN_OK) {
            failures += failed(b, "barrier");
        } else if (access(path, F_OK) != 0) {
            fprintf(stderr, "rank %d left the barrier before rank %d came: wrong\n", b->comm->rank,
                    late);
            failures++;
        }
        failures += tern_comm_barrier(b->host) == TERN_OK ? 0 : failed(b, "barrier of the hosts");
        if (b->comm->rank == late) {
            unlink(path);
        }
    }
    return failures;
}

/* What it does not carry is refused in words. */
static int check_refusals(struct bench *b)
{
    int64_t value = 1;
    struct tern_comm *half;
    int failures = 0;
    failures += tern_comm_all_reduce_max_i64(b->comm, &value, 1) == TERN_ERR_ARGUMENT &&
                        strstr(tern_detail(), "carries the memory of GPUs") != NULL
                    ? 0
                    : failed(b, "host memory");
    failures +=
        tern_comm_split(b->comm, 0, 0, &half) == TERN_ERR_UNSUPPORTED ? 0 : failed(b, "split");
    failures += b->host->size == 1 || tern_comm_reduce_ranges(b->host, (struct tern_dptr){0},
                                                              NULL) == TERN_ERR_UNSUPPORTED
                    ? 0
                    : failed(b, "a sum between hosts");
    return failures;
}

static int check_adopt(struct bench *b)
{
    bool is_good = b->table->alloc(b->compute, "test", 4096, &b->adopted) == TERN_OK &&
                   tern_comm_adopt(b->comm, b->adopted, 4096) == TERN_OK;
    return is_good ? 0 : failed(b, "adopt");
}

static int check_primitives(struct bench *b)
{
    static const size_t sizes[] = {1, 7, 4096, 40007};
    int failures = check_tickets(b); /* first: what comes then has tickets that have gone round */
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && failures == 0; i++) {
        failures += check_exchange(b, sizes[i], i < 2 ? 20 : 5);
        failures += check_ranges(b, (int64_t)sizes[i], (int)i);
    }
    failures += check_poll(b) + check_barrier(b) + check_refusals(b);
    return failures + (tern_comm_barrier(b->comm) == TERN_OK ? 0 : failed(b, "barrier"));
}

/* A training step's traffic until something goes wrong, which is then the last word: a sum by the lane tree, a gather,
 * and the host's wait for the compute queue. */
static int check_until_failure(struct bench *b)
{
    enum {
        FLOATS = 3000
    };
    struct tern_lane_plan plan;
    struct tern_range ranges[16];
    struct tern_range bytes[16];
    int64_t cuts[] = {0, 700, 1400, 2100, FLOATS};
    struct tern_dptr nodes[TERN_LANE_NODES_MAX];
    struct tern_dptr scratch;
    if (tern_lane_plan_make(8, b->comm->size, b->comm->rank, &plan) != TERN_OK) {
        return failed(b, "plan");
    }
    plan.chunk_floats = 256;
    tern_lane_ranges(b->comm->size, cuts, 5, ranges);
    for (int r = 0; r < b->comm->size; r++) {
        bytes[r] = (struct tern_range){4 * ranges[r].begin, 4 * ranges[r].end};
    }
    size_t scratch_bytes = (size_t)tern_lane_scratch_floats(&plan, ranges) * 4;
    tern_status status = b->table->alloc(b->compute, "test", scratch_bytes, &scratch);
    for (int i = 0; i < plan.node_count && status == TERN_OK; i++) {
        status = b->table->alloc(b->compute, "test", (size_t)FLOATS * 4, &nodes[i]);
    }
    struct tern_lane_reduce reduce = {
        .plan = &plan, .ranges = ranges, .scratch = scratch, .add = add, .add_context = b};
    memcpy(reduce.nodes, nodes, sizeof nodes);
    for (int i = 0; status == TERN_OK; i++) {
        uint64_t ticket;
        float back;
        fprintf(stderr, "now: operation %d\n",
                2 * i + 1); /* for the test: it may be the last word */
        status = tern_comm_submit(b->comm, tern_lane_reduce_job, &reduce, &ticket);
        status = status == TERN_OK ? tern_comm_wait(b->comm, ticket) : status;
        fprintf(stderr, "now: operation %d\n", 2 * i + 2);
        status = status == TERN_OK ? tern_comm_all_gatherv(b->comm, nodes[0], bytes) : status;
        status = status == TERN_OK ? b->table->download(b->compute, &back, nodes[0], 4) : status;
    }
    fprintf(stderr, "rank %d: %s: %s\n", b->comm->rank, tern_status_name(status), tern_detail());
    tern_comm_abort(b->comm, tern_status_exit_code(status));
    return 1;
}

/* Ranks that are out of step: the peer expects another size. */
static int check_mismatch(struct bench *b)
{
    struct tern_dptr block;
    if (b->table->alloc(b->compute, "test", 64, &block) != TERN_OK) {
        return failed(b, "alloc");
    }
    struct tern_comm_message message = {1 - b->comm->rank, b->comm->rank == 0, block,
                                        b->comm->rank == 0 ? 64 : 32};
    tern_status status = tern_comm_exchange(b->comm, &message, 1);
    unsigned char back;
    return status == TERN_OK && b->table->download(b->compute, &back, block, 1) == TERN_OK
               ? 0
               : failed(b, "exchange");
}

static tern_status open_all(struct bench *b)
{
    TERN_RETURN_IF_ERR(tern_comm_open(&b->host));
    tern_fault_set_rank(b->host->rank);
    tern_log_set_rank(b->host->rank, b->host->size);
    struct tern_device_seat seat = {
        .threads = 1, .local_rank = b->host->local_rank, .local_size = b->host->local_size};
    if (getenv("TEST_ONE_GPU") != NULL) {
        seat.local_rank = 0;
        seat.local_size = 1;
    }
    TERN_RETURN_IF_ERR(tern_device_open_at("cuda", &seat, &b->compute));
    b->table = b->compute->ops->device;
    TERN_RETURN_IF_ERR(b->table->queue(b->compute, "comm", &b->queue));
    b->staging_floats = 8192;
    for (int i = 0; i < 2; i++) {
        b->staging[i] = tern_alloc("test", (size_t)b->staging_floats * sizeof(float));
    }
    return tern_comm_open_device(b->host, b->compute, b->queue, b->table,
                                 &(struct tern_comm_farewell){0}, &b->comm);
}

static void close_all(struct bench *b)
{
    tern_comm_close(b->comm);
    b->table->free(b->compute, b->adopted);
    b->table->close(b->queue);
    b->table->close(b->compute);
    tern_comm_close(b->host);
    tern_free(b->staging[0]);
    tern_free(b->staging[1]);
}

int main(int argc, char **argv)
{
    const char *check = argc > 1 ? argv[1] : "";
    struct bench b = {0};
    tern_status status = tern_log_init();
    status = status == TERN_OK ? tern_fault_init() : status;
    status = status == TERN_OK ? open_all(&b) : status;
    if (status != TERN_OK) {
        int code = tern_status_exit_code(status);
        fprintf(stderr, "open: %s\n", tern_detail());
        if (b.host != NULL) {
            tern_comm_abort(b.host, code);
        }
        return code;
    }
    int failures = 1;
    if (strcmp(check, "lanes") == 0) {
        failures = check_lanes(&b);
    } else if (strcmp(check, "primitives") == 0) {
        failures = check_primitives(&b);
    } else if (strcmp(check, "adopt") == 0) {
        failures = check_adopt(&b);
    } else if (strcmp(check, "mismatch") == 0) {
        failures = check_mismatch(&b);
    } else if (strcmp(check, "failure") == 0) {
        failures = check_until_failure(&b);
    }
    if (failures > 0) {
        tern_comm_abort(b.comm, 1);
        return 1;
    }
    close_all(&b);
    int64_t live = tern_mem_stats().live_blocks;
    if (live != 0) {
        fprintf(stderr, "%lld blocks are still allocated\n", (long long)live);
        return 1;
    }
    return 0;
}
