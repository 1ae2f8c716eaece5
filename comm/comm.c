/* comm.c - checked wrappers, and the collectives that are built on exchange. */
#include "comm/comm.h"

#include "comm/engine.h"
#include "runtime/base/check.h"

#include <string.h>

enum {
    BATCH = 32,                /* messages each way in one exchange of a collective */
    MAX_CHUNK = 512,           /* values of one round of all_reduce_max_i64 */
    BROADCAST_TREE_MAX = 65536 /* bytes; longer ones are scattered and gathered */
};

static _Thread_local const struct tern_comm *g_inside;

void tern_comm_enter(const struct tern_comm *comm)
{
    g_inside = comm;
}

bool tern_comm_is_inside(const struct tern_comm *comm)
{
    return g_inside == comm;
}

tern_status tern_comm_run(struct tern_comm *comm, tern_comm_job job, void *arg)
{
    if (tern_comm_is_inside(comm)) {
        return job(comm, arg);
    }
    uint64_t ticket;
    TERN_RETURN_IF_ERR(tern_comm_submit(comm, job, arg, &ticket));
    return tern_comm_wait(comm, ticket);
}

void tern_comm_close(struct tern_comm *comm)
{
    if (comm != NULL) {
        comm->table->close(comm);
    }
}

tern_status tern_comm_submit(struct tern_comm *comm,
                             tern_comm_job job,
                             void *arg,
                             uint64_t *ticket_out)
{
    TERN_CHECK(job != NULL && !tern_comm_is_inside(comm));
    return comm->table->submit(comm, job, arg, ticket_out);
}

tern_status tern_comm_wait(struct tern_comm *comm, uint64_t ticket)
{
    TERN_CHECK(!tern_comm_is_inside(comm));
    return comm->table->wait(comm, ticket);
}

tern_status tern_comm_poll(struct tern_comm *comm, uint64_t ticket)
{
    return comm->table->poll(comm, ticket);
}

void tern_comm_abort(struct tern_comm *comm, int exit_code)
{
    comm->table->abort(comm, exit_code);
}

struct exchange {
    const struct tern_comm_message *messages;
    int count;
};

static tern_status exchange_job(struct tern_comm *comm, void *arg)
{
    const struct exchange *e = arg;
    return comm->table->exchange(comm, e->messages, e->count);
}

tern_status tern_comm_exchange(struct tern_comm *comm,
                               const struct tern_comm_message *messages,
                               int count)
{
    for (int i = 0; i < count; i++) {
        if (messages[i].peer < 0 || messages[i].peer >= comm->size) {
            return tern_fail(TERN_ERR_ARGUMENT,
                             "exchange: message %d names rank %d, expected 0 to %d", i,
                             messages[i].peer, comm->size - 1);
        }
    }
    struct exchange e = {messages, count};
    return tern_comm_run(comm, exchange_job, &e);
}

static tern_status barrier_job(struct tern_comm *comm, void *arg)
{
    (void)arg;
    return comm->table->barrier(comm);
}

tern_status tern_comm_barrier(struct tern_comm *comm)
{
    return tern_comm_run(comm, barrier_job, NULL);
}

tern_status tern_comm_split(struct tern_comm *comm, int color, int key, struct tern_comm **out)
{
    *out = NULL;
    return comm->table->split(comm, color, key, out);
}

/* The blocks of a set of ranks as few messages: neighbours in memory become one. */
struct blocks {
    struct tern_dptr data;
    const struct tern_range *ranges;
    int size;
    /* The set: first, first + stride, ... (count of them, modulo size). */
    int first, stride, count;
    int next; /* cursor */
};

/* The next contiguous run of the set; false at its end. */
static bool next_run(struct blocks *b, struct tern_range *run_out)
{
    struct tern_range run = {0, 0};
    while (b->next < b->count) {
        struct tern_range range = b->ranges[(b->first + b->next * b->stride) % b->size];
        if (range.end > range.begin) {
            if (run.end == run.begin) {
                run = range;
            } else if (range.begin == run.end) {
                run.end = range.end;
            } else {
                break;
            }
        }
        b->next++;
    }
    *run_out = run;
    return run.end > run.begin;
}

/* Sends one set of blocks to a rank and receives another from one, BATCH messages at a time. Both sides
 * of a pair walk the same set in the same order, so that their batches agree. */
static tern_status swap_blocks(struct tern_comm *comm,
                               int to,
                               struct blocks *out,
                               int from,
                               struct blocks *in)
{
    for (;;) {
        struct tern_comm_message messages[2 * BATCH];
        int count = 0;
        struct tern_range run;
        for (int i = 0; i < BATCH && next_run(out, &run); i++) {
            struct tern_dptr at = {out->data.addr + (uint64_t)run.begin};
            messages[count++] =
                (struct tern_comm_message){to, true, at, (size_t)(run.end - run.begin)};
        }
        for (int i = 0; i < BATCH && next_run(in, &run); i++) {
            struct tern_dptr at = {in->data.addr + (uint64_t)run.begin};
            messages[count++] =
                (struct tern_comm_message){from, false, at, (size_t)(run.end - run.begin)};
        }
        if (count == 0) {
            return TERN_OK;
        }
        TERN_RETURN_IF_ERR(comm->table->exchange(comm, messages, count));
    }
}

struct gather {
    struct tern_dptr data;
    const struct tern_range *ranges;
};

/* A power of two: recursive doubling, farthest rank first, so that most bytes move between neighbours
 * (the mirror of the lane tree's halving, whose ranges then stay whole). Otherwise Bruck's algorithm
 * without the rotation. Both move every foreign block to each rank once, in log2(size) rounds. */
static tern_status gatherv_job(struct tern_comm *comm, void *arg)
{
    const struct gather *g = arg;
    int size = comm->size;
    int rank = comm->rank;
    struct blocks blocks = {.data = g->data, .ranges = g->ranges, .size = size};
    if ((size & (size - 1)) == 0) {
        for (int far = size / 2; far >= 1; far /= 2) {
            int peer = rank ^ far;
            struct blocks mine = blocks;
            mine.stride = 2 * far;
            mine.count = size / mine.stride;
            struct blocks theirs = mine;
            mine.first = rank % mine.stride;
            theirs.first = peer % mine.stride;
            TERN_RETURN_IF_ERR(swap_blocks(comm, peer, &mine, peer, &theirs));
        }
        return TERN_OK;
    }
    for (int held = 1; held < size; held *= 2) {
        struct blocks mine = blocks;
        mine.stride = 1;
        mine.count = held < size - held ? held : size - held;
        struct blocks theirs = mine;
        mine.first = rank;
        theirs.first = (rank + held) % size;
        int to = (rank - held + size) % size;
        TERN_RETURN_IF_ERR(swap_blocks(comm, to, &mine, (rank + held) % size, &theirs));
    }
    return TERN_OK;
}

static tern_status own_gatherv_job(struct tern_comm *comm, void *arg)
{
    const struct gather *g = arg;
    return comm->table->all_gatherv(comm, g->data, g->ranges);
}

tern_status tern_comm_all_gatherv(struct tern_comm *comm,
                                  struct tern_dptr data,
                                  const struct tern_range *ranges)
{
    struct gather g = {data, ranges};
    return tern_comm_run(comm, comm->table->all_gatherv != NULL ? own_gatherv_job : gatherv_job,
                         &g);
}

static tern_status reduce_job(struct tern_comm *comm, void *arg)
{
    const struct gather *g = arg;
    return comm->table->reduce_ranges(comm, g->data, g->ranges);
}

tern_status tern_comm_reduce_ranges(struct tern_comm *comm,
                                    struct tern_dptr data,
                                    const struct tern_range *ranges)
{
    if (comm->size == 1) {
        return TERN_OK;
    }
    if (comm->table->reduce_ranges == NULL) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "%s: no sum in an order of its own choice; set deterministic: true",
                         comm->table->name);
    }
    struct gather g = {data, ranges};
    return tern_comm_run(comm, reduce_job, &g);
}

tern_status tern_comm_adopt(struct tern_comm *comm, struct tern_dptr block, size_t bytes)
{
    return comm->table->adopt != NULL && bytes > 0 ? comm->table->adopt(comm, block, bytes)
                                                   : TERN_OK;
}

struct even {
    void *data;
    const void *in;
    void *out;
    size_t bytes;
    int root;
};

enum {
    RANKS_ON_STACK = 4096
};

/* ranges[r] = block r of `bytes`; the last are cut at `total`. */
static void even_ranges(struct tern_range *ranges, int size, size_t bytes, size_t total)
{
    for (int r = 0; r < size; r++) {
        size_t begin = (size_t)r * bytes;
        size_t end = begin + bytes;
        ranges[r].begin = (int64_t)(begin < total ? begin : total);
        ranges[r].end = (int64_t)(end < total ? end : total);
    }
}

static tern_status gather_job(struct tern_comm *comm, void *arg)
{
    const struct even *g = arg;
    struct tern_range ranges[RANKS_ON_STACK];
    TERN_CHECK(comm->size <= RANKS_ON_STACK);
    even_ranges(ranges, comm->size, g->bytes, g->bytes * (size_t)comm->size);
    char *own = (char *)g->out + (size_t)comm->rank * g->bytes;
    if (own != g->in && g->bytes > 0) {
        memcpy(own, g->in, g->bytes);
    }
    struct gather v = {{(uint64_t)(uintptr_t)g->out}, ranges};
    return gatherv_job(comm, &v);
}

/* The collectives below read and write host memory, which NCCL would take for a GPU's. */
static tern_status check_host(const struct tern_comm *comm, const char *what)
{
    return comm->table->is_device
               ? tern_fail(TERN_ERR_ARGUMENT,
                           "%s over %s: it carries the memory of GPUs, expected the communicator "
                           "between hosts",
                           what, comm->table->name)
               : TERN_OK;
}

tern_status tern_comm_all_gather(struct tern_comm *comm, const void *in, size_t bytes, void *out)
{
    TERN_RETURN_IF_ERR(check_host(comm, "all_gather"));
    struct even g = {.in = in, .out = out, .bytes = bytes};
    return tern_comm_run(comm, gather_job, &g);
}

static struct tern_comm_message message(int peer, bool is_send, const void *data, size_t bytes)
{
    return (struct tern_comm_message){peer, is_send, {(uint64_t)(uintptr_t)data}, bytes};
}

/* Binomial tree; ranks count from the root. */
static tern_status broadcast_tree(struct tern_comm *comm, const struct even *b)
{
    int size = comm->size;
    int place = (comm->rank - b->root + size) % size;
    int step = 1;
    while (step < size && (place & step) == 0) {
        step *= 2;
    }
    if (place != 0) {
        int parent = (place - step + b->root) % size;
        struct tern_comm_message m = message(parent, false, b->data, b->bytes);
        TERN_RETURN_IF_ERR(comm->table->exchange(comm, &m, 1));
    }
    struct tern_comm_message children[32];
    int count = 0;
    for (step /= 2; step >= 1; step /= 2) {
        if (place + step < size) {
            int child = (place + step + b->root) % size;
            children[count++] = message(child, true, b->data, b->bytes);
        }
    }
    return count == 0 ? TERN_OK : comm->table->exchange(comm, children, count);
}

/* Long vectors: the root hands out one part a rank, then all gather. Each rank but the root moves the
 * vector about twice, however many there are. */
static tern_status broadcast_parts(struct tern_comm *comm, const struct even *b)
{
    struct tern_range ranges[RANKS_ON_STACK];
    TERN_CHECK(comm->size <= RANKS_ON_STACK);
    size_t part = (b->bytes + (size_t)comm->size - 1) / (size_t)comm->size;
    even_ranges(ranges, comm->size, part, b->bytes);
    struct tern_comm_message messages[BATCH];
    int count = 0;
    for (int r = 0; r < comm->size; r++) {
        bool is_mine = comm->rank == b->root ? r != b->root : r == comm->rank;
        char *at = (char *)b->data + ranges[r].begin;
        size_t bytes = (size_t)(ranges[r].end - ranges[r].begin);
        if (is_mine && bytes > 0) {
            bool is_send = comm->rank == b->root;
            messages[count++] = message(is_send ? r : b->root, is_send, at, bytes);
        }
        if (count == BATCH || (count > 0 && r == comm->size - 1)) {
            TERN_RETURN_IF_ERR(comm->table->exchange(comm, messages, count));
            count = 0;
        }
    }
    struct gather v = {{(uint64_t)(uintptr_t)b->data}, ranges};
    return gatherv_job(comm, &v);
}

static tern_status broadcast_job(struct tern_comm *comm, void *arg)
{
    const struct even *b = arg;
    if (b->bytes == 0 || comm->size == 1) {
        return TERN_OK;
    }
    bool is_long = comm->size > 2 && b->bytes > BROADCAST_TREE_MAX;
    return is_long ? broadcast_parts(comm, b) : broadcast_tree(comm, b);
}

tern_status tern_comm_broadcast(struct tern_comm *comm, void *data, size_t bytes, int root)
{
    if (root < 0 || root >= comm->size) {
        return tern_fail(TERN_ERR_ARGUMENT, "broadcast: root is rank %d, expected 0 to %d", root,
                         comm->size - 1);
    }
    TERN_RETURN_IF_ERR(check_host(comm, "broadcast"));
    struct even b = {.data = data, .bytes = bytes, .root = root};
    return tern_comm_run(comm, broadcast_job, &b);
}

struct reduce_max {
    int64_t *values;
    int count;
};

/* Dissemination: after round k a rank knows the maximum over the 2^(k+1) ranks that end at it; hearing
 * some of them twice does no harm to a maximum, so any size works. */
static tern_status max_job(struct tern_comm *comm, void *arg)
{
    const struct reduce_max *m = arg;
    int size = comm->size;
    for (int start = 0; start < m->count; start += MAX_CHUNK) {
        int64_t theirs[MAX_CHUNK];
        int64_t *mine = m->values + start;
        int count = m->count - start < MAX_CHUNK ? m->count - start : MAX_CHUNK;
        size_t bytes = (size_t)count * sizeof theirs[0];
        for (int step = 1; step < size; step *= 2) {
            struct tern_comm_message both[2] = {
                message((comm->rank + step) % size, true, mine, bytes),
                message((comm->rank - step + size) % size, false, theirs, bytes),
            };
            TERN_RETURN_IF_ERR(comm->table->exchange(comm, both, 2));
            for (int i = 0; i < count; i++) {
                mine[i] = theirs[i] > mine[i] ? theirs[i] : mine[i];
            }
        }
    }
    return TERN_OK;
}

tern_status tern_comm_all_reduce_max_i64(struct tern_comm *comm, int64_t *values, int count)
{
    TERN_RETURN_IF_ERR(check_host(comm, "all_reduce_max_i64"));
    struct reduce_max m = {values, count};
    return tern_comm_run(comm, max_job, &m);
}

/* Pairs at growing distance, BATCH of them under way at once. */
static tern_status all_to_all_job(struct tern_comm *comm, void *arg)
{
    const struct even *a = arg;
    int size = comm->size;
    int rank = comm->rank;
    const char *in = a->in;
    char *out = a->out;
    if (a->bytes == 0) {
        return TERN_OK;
    }
    memcpy(out + (size_t)rank * a->bytes, in + (size_t)rank * a->bytes, a->bytes);
    for (int start = 1; start < size; start += BATCH) {
        struct tern_comm_message messages[2 * BATCH];
        int count = 0;
        for (int d = start; d < start + BATCH && d < size; d++) {
            int to = (rank + d) % size;
            int from = (rank - d + size) % size;
            messages[count++] = message(to, true, in + (size_t)to * a->bytes, a->bytes);
            messages[count++] = message(from, false, out + (size_t)from * a->bytes, a->bytes);
        }
        TERN_RETURN_IF_ERR(comm->table->exchange(comm, messages, count));
    }
    return TERN_OK;
}

tern_status tern_comm_all_to_all(struct tern_comm *comm,
                                 const void *in,
                                 void *out,
                                 size_t bytes_each)
{
    TERN_RETURN_IF_ERR(check_host(comm, "all_to_all"));
    struct even a = {.in = in, .out = out, .bytes = bytes_each};
    return tern_comm_run(comm, all_to_all_job, &a);
}

tern_status tern_comm_check_equal(struct tern_comm *comm, const char *what, uint64_t digest)
{
    uint64_t digests[RANKS_ON_STACK];
    TERN_CHECK(comm->size <= RANKS_ON_STACK);
    TERN_RETURN_IF_ERR(tern_comm_all_gather(comm, &digest, sizeof digest, digests));
    for (int r = 1; r < comm->size; r++) {
        if (digests[r] != digests[0]) {
            return tern_fail(TERN_ERR_CONFIG,
                             "rank %d has another %s than rank 0 (digest %016llx, expected "
                             "%016llx): every rank must run the same",
                             r, what, (unsigned long long)digests[r],
                             (unsigned long long)digests[0]);
        }
    }
    return TERN_OK;
}
