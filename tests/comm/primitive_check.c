/* primitive_check.c - every primitive on one group, sizes from nothing to many pieces. */
#include "comm/comm.h"
#include "runtime/base/mem.h"
#include "tests/comm/checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int report(struct tern_comm *comm, const char *what, size_t bytes, tern_status status)
{
    fprintf(stderr, "rank %d of %d: %s, %zu bytes: %s\n", comm->rank, comm->size, what, bytes,
            status != TERN_OK ? tern_detail() : "wrong data");
    return 1;
}

/* What rank r has at byte i, for check number k. */
static unsigned char pattern(int rank, size_t i, int k)
{
    return (unsigned char)((size_t)rank * 131 + i * 7 + i / 251 + (size_t)k * 29 + 1);
}

static bool matches(const unsigned char *data, size_t bytes, int rank, int k)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != pattern(rank, i, k)) {
            return false;
        }
    }
    return true;
}

static void fill(unsigned char *data, size_t bytes, int rank, int k)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = pattern(rank, i, k);
    }
}

static struct tern_dptr at(const void *p)
{
    return (struct tern_dptr){(uint64_t)(uintptr_t)p};
}

static unsigned char *take(size_t bytes)
{
    unsigned char *block = tern_alloc("test", bytes);
    if (block == NULL) {
        abort();
    }
    memset(block, 0xee, bytes);
    return block;
}

static int check_all_gather(struct tern_comm *comm, size_t bytes)
{
    unsigned char *in = take(bytes);
    unsigned char *out = take(bytes * (size_t)comm->size);
    int failures = 0;
    fill(in, bytes, comm->rank, 1);
    for (int in_place = 0; in_place < 2; in_place++) {
        memset(out, 0xee, bytes * (size_t)comm->size);
        unsigned char *own = out + bytes * (size_t)comm->rank;
        memcpy(own, in, bytes);
        tern_status status = tern_comm_all_gather(comm, in_place ? own : in, bytes, out);
        bool good = status == TERN_OK;
        for (int r = 0; r < comm->size && good; r++) {
            good = matches(out + bytes * (size_t)r, bytes, r, 1);
        }
        failures += good ? 0 : report(comm, "all_gather", bytes, status);
    }
    tern_free(in);
    tern_free(out);
    return failures;
}

/* Uneven ranges with gaps, some empty, in an order that is not the ranks'. */
static int check_all_gatherv(struct tern_comm *comm, size_t bytes)
{
    struct tern_range ranges[256];
    int64_t end = 3;
    for (int i = 0; i < comm->size; i++) {
        int r = (i * 5 + 2) % comm->size; /* a permutation unless 5 divides the size */
        r = comm->size % 5 == 0 ? comm->size - 1 - i : r;
        int64_t length = r % 3 == 1 ? 0 : (int64_t)bytes + r;
        ranges[r] = (struct tern_range){end, end + length};
        end += length + (r % 2) * 5;
    }
    unsigned char *data = take((size_t)end + 1);
    struct tern_range own = ranges[comm->rank];
    fill(data + own.begin, (size_t)(own.end - own.begin), comm->rank, 2);
    tern_status status = tern_comm_all_gatherv(comm, at(data), ranges);
    bool good = status == TERN_OK && data[0] == 0xee && data[end] == 0xee;
    for (int r = 0; r < comm->size && good; r++) {
        good = matches(data + ranges[r].begin, (size_t)(ranges[r].end - ranges[r].begin), r, 2);
    }
    tern_free(data);
    return good ? 0 : report(comm, "all_gatherv", bytes, status);
}

static int check_broadcast(struct tern_comm *comm, size_t bytes)
{
    unsigned char *data = take(bytes + 1);
    int failures = 0;
    for (int root = 0; root < comm->size; root++) {
        memset(data, 0xee, bytes + 1);
        if (comm->rank == root) {
            fill(data, bytes, root, 3);
        }
        tern_status status = tern_comm_broadcast(comm, data, bytes, root);
        bool good = status == TERN_OK && matches(data, bytes, root, 3) && data[bytes] == 0xee;
        failures += good ? 0 : report(comm, "broadcast", bytes, status);
    }
    tern_free(data);
    return failures;
}

static int check_all_to_all(struct tern_comm *comm, size_t bytes)
{
    size_t size = (size_t)comm->size;
    unsigned char *in = take(bytes * size);
    unsigned char *out = take(bytes * size);
    for (size_t r = 0; r < size; r++) {
        fill(in + r * bytes, bytes, comm->rank, 4 + (int)r);
    }
    tern_status status = tern_comm_all_to_all(comm, in, out, bytes);
    bool good = status == TERN_OK;
    for (size_t r = 0; r < size && good; r++) {
        good = matches(out + r * bytes, bytes, (int)r, 4 + comm->rank);
    }
    tern_free(in);
    tern_free(out);
    return good ? 0 : report(comm, "all_to_all", bytes, status);
}

static int check_max(struct tern_comm *comm, int count)
{
    int64_t *values = (int64_t *)(void *)take((size_t)count * sizeof *values);
    for (int i = 0; i < count; i++) {
        int64_t far = i % comm->size == comm->rank ? 1000000000000 : -5;
        values[i] = i == 0 ? INT64_MIN + comm->rank : far + i;
    }
    tern_status status = tern_comm_all_reduce_max_i64(comm, values, count);
    bool good = status == TERN_OK;
    for (int i = 0; i < count && good; i++) {
        good = values[i] == (i == 0 ? INT64_MIN + comm->size - 1 : 1000000000000 + i);
    }
    tern_free(values);
    return good ? 0 : report(comm, "all_reduce_max_i64", (size_t)count * sizeof(int64_t), status);
}

/* Two messages each way with both neighbours, and one to oneself, all at once. */
static int check_exchange(struct tern_comm *comm, size_t bytes)
{
    int next = (comm->rank + 1) % comm->size;
    int last = (comm->rank - 1 + comm->size) % comm->size;
    unsigned char *out[3];
    unsigned char *in[3];
    for (int k = 0; k < 3; k++) {
        out[k] = take(bytes);
        in[k] = take(bytes);
        fill(out[k], bytes, comm->rank, 10 + k);
    }
    struct tern_comm_message messages[] = {
        {next, true, at(out[0]), bytes},       {last, false, at(in[0]), bytes},
        {comm->rank, false, at(in[2]), bytes}, {next, true, at(out[1]), bytes},
        {last, false, at(in[1]), bytes},       {comm->rank, true, at(out[2]), bytes},
    };
    if (comm->size == 1) {
        messages[2] = messages[4];
        messages[4] = (struct tern_comm_message){0, false, at(in[2]), bytes};
    }
    tern_status status = tern_comm_exchange(comm, messages, 6);
    bool good = status == TERN_OK;
    for (int k = 0; k < 3 && good; k++) {
        good = matches(in[k], bytes, k == 2 ? comm->rank : last, 10 + k);
    }
    for (int k = 0; k < 3; k++) {
        tern_free(out[k]);
        tern_free(in[k]);
    }
    return good ? 0 : report(comm, "exchange", bytes, status);
}

struct mark {
    int *log;
    int *length;
    int value;
};

static tern_status mark_job(struct tern_comm *comm, void *arg)
{
    struct mark *mark = arg;
    int sum = 0;
    int all[256];
    TERN_RETURN_IF_ERR(tern_comm_all_gather(comm, &mark->value, sizeof(int), all));
    for (int r = 0; r < comm->size; r++) {
        sum += all[r] == mark->value;
    }
    mark->log[(*mark->length)++] = sum == comm->size ? mark->value : -1;
    return TERN_OK;
}

/* More jobs than the queue holds, direct calls among them: all run in the order of submission. */
static int check_order(struct tern_comm *comm)
{
    enum {
        JOBS = 1500
    };
    int *log = (int *)(void *)take(JOBS * sizeof *log);
    struct mark *marks = (struct mark *)(void *)take(JOBS * sizeof *marks);
    int length = 0;
    uint64_t ticket = 0;
    tern_status status = TERN_OK;
    bool good = true;
    for (int i = 0; i < JOBS && status == TERN_OK; i++) {
        marks[i] = (struct mark){log, &length, i};
        uint64_t before = ticket;
        status = tern_comm_submit(comm, mark_job, &marks[i], &ticket);
        good = good && ticket > before;
        if (i % 500 == 250 && status == TERN_OK) {
            status = tern_comm_barrier(comm);
            good = good && length == i + 1 && tern_comm_poll(comm, ticket) == TERN_OK;
        }
    }
    if (status == TERN_OK) {
        status = tern_comm_wait(comm, ticket);
    }
    good = good && status == TERN_OK && length == JOBS;
    for (int i = 0; i < JOBS && good; i++) {
        good = log[i] == i;
    }
    tern_free(log);
    tern_free(marks);
    return good ? 0 : report(comm, "order of jobs", JOBS, status);
}

/* Halves by parity, the other way round; both groups and the world carry different things at once. */
static int check_split(struct tern_comm *comm)
{
    struct tern_comm *half = NULL;
    struct tern_comm *none = comm;
    tern_status status = tern_comm_split(comm, comm->rank % 2, -comm->rank, &half);
    if (status != TERN_OK) {
        return report(comm, "split", 0, status);
    }
    int count = (comm->size + 1 - comm->rank % 2) / 2;
    bool good = half->size == count && half->rank == count - 1 - comm->rank / 2 &&
                half->local_size == half->size && half->local_rank == half->rank;
    good = good && comm->local_size == comm->size && comm->local_rank == comm->rank;
    int failures = good ? 0 : report(comm, "split: ranks", 0, TERN_OK);
    int length = 0;
    int log[1];
    struct mark mark = {log, &length, 7};
    uint64_t ticket = 0;
    status = tern_comm_submit(comm, mark_job, &mark, &ticket);
    failures += status == TERN_OK ? 0 : report(comm, "split: submit", 0, status);
    failures += check_all_gather(half, 1000) + check_max(half, 3) + check_exchange(half, 77);
    status = tern_comm_wait(comm, ticket);
    failures += status == TERN_OK ? 0 : report(comm, "split: the world", 0, status);
    status = tern_comm_split(comm, comm->rank == 0 ? -1 : 0, 0, &none);
    bool is_none = comm->rank == 0 ? none == NULL : none != NULL && none->size == comm->size - 1;
    failures += status == TERN_OK && is_none ? 0 : report(comm, "split: without 0", 0, status);
    if (none != NULL) {
        failures += check_all_gather(none, 5);
    }
    tern_comm_close(none);
    tern_comm_close(half);
    return failures;
}

static int check_equal(struct tern_comm *comm)
{
    tern_status status = tern_comm_check_equal(comm, "config", 42);
    int failures = status == TERN_OK ? 0 : report(comm, "check_equal of equals", 8, status);
    if (comm->size > 1) {
        int odd = comm->size - 1;
        char expected[64];
        snprintf(expected, sizeof expected, "rank %d has another binary", odd);
        status = tern_comm_check_equal(comm, "binary", comm->rank == odd ? 43 : 42);
        bool good = status == TERN_ERR_CONFIG && strstr(tern_detail(), expected) != NULL;
        failures += good ? 0 : report(comm, "check_equal", 8, status);
    }
    return failures;
}

int tern_check_long_message(struct tern_comm *comm, size_t bytes)
{
    unsigned char *data = take(bytes);
    if (comm->rank == 0) {
        fill(data, bytes, 0, 5);
    }
    struct tern_comm_message message = {1, true, at(data), bytes};
    if (comm->rank == 1) {
        message = (struct tern_comm_message){0, false, at(data), bytes};
    }
    tern_status status = tern_comm_exchange(comm, &message, 1);
    bool good = status == TERN_OK && matches(data, bytes, 0, 5);
    tern_free(data);
    return good ? 0 : report(comm, "long message", bytes, status);
}

int tern_check_primitives(struct tern_comm *comm)
{
    static const size_t sizes[] = {0, 1, 7, 4096, 10007, 65537, 300001};
    int failures = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        failures += check_exchange(comm, sizes[i]);
        failures += check_all_gather(comm, sizes[i]);
        failures += check_all_gatherv(comm, sizes[i]);
        failures += check_broadcast(comm, sizes[i]);
        failures += check_all_to_all(comm, sizes[i]);
        failures += sizes[i] <= 4096 ? check_max(comm, (int)sizes[i]) : 0;
    }
    failures += check_order(comm);
    failures += check_split(comm);
    failures += check_equal(comm);
    tern_status status = tern_comm_barrier(comm);
    return failures + (status == TERN_OK ? 0 : report(comm, "barrier", 0, status));
}
