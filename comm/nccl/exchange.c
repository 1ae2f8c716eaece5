/* exchange.c - the collectives: groups of sends and receives, of broadcasts, of reductions.
 *
 * Sends and receives on a stream complete only when the peer's counterpart runs, and nothing is buffered: two ranks that both
 * send first, each in a group of its own, wait for ever. So a post sends nothing by itself. Its messages are cut into
 * pieces, and the k-th exchange after it carries, in the same group as its own messages, the k-th piece of every posted
 * message; settle sends what is left, round by round, a group each.
 *
 * Why this ends and matches. The contract of post (comm.h) is that a peer takes the k-th piece of a message in its own k-th
 * exchange after its own post. Call everything with the number k round k. All messages of round k, of all ranks, are in
 * their sender's k-th group and in their receiver's k-th group. A rank whose exchanges are fewer than its pieces (uneven
 * counts: its part of the vector is shorter) goes on with rounds of sends only in settle, and one whose pieces are fewer has
 * rounds of receives only. A group with nothing in it is skipped on that rank, and then no other rank's round has a message
 * for it. By induction over k: when all ranks have finished round k-1 (or skipped it), each rank's next group is round
 * k's, all counterparts are in it, so it completes; between two rounds a rank does only its own additions. Between two ranks
 * messages match in the order of issue, which is the order of the posted messages, the same on both sides, within
 * every round. */
#include "comm/nccl/nccl_impl.h"
#include "runtime/base/check.h"

#include <string.h>

static void *pointer(struct tern_dptr p)
{
    return (void *)(uintptr_t)p.addr; /* NOLINT(performance-no-int-to-ptr) */
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- one collective: what it is, the group of calls, the mark behind it ---- */

/* Says what is coming, passes the fault point, and starts the group. The caller ends it with finish, whatever comes between. */
static tern_status begin(struct tern_nccl *n, const struct tern_mark *what)
{
    n->options.fault();
    if (atomic_load(&n->is_dead)) {
        return tern_nccl_fail_dead(n);
    }
    pthread_mutex_lock(&n->lock);
    n->calling = *what;
    pthread_mutex_unlock(&n->lock);
    pthread_mutex_lock(&n->library_lock);
    if (n->handle == NULL) {
        pthread_mutex_unlock(&n->library_lock);
        return tern_nccl_fail_dead(n);
    }
    ncclResult_t result = n->library->ncclGroupStart();
    if (result != ncclSuccess) {
        pthread_mutex_unlock(&n->library_lock);
        return tern_nccl_result(n, result, "ncclGroupStart");
    }
    return TERN_OK;
}

/* `result` is the first bad one of the calls in the group. In a group a call only notes what is to be done, so "in progress"
 * is not bad. */
static tern_status finish(struct tern_nccl *n,
                          const struct tern_mark *what,
                          ncclResult_t result,
                          const char *call)
{
    ncclResult_t end = n->library->ncclGroupEnd();
    pthread_mutex_unlock(&n->library_lock);
    bool is_bad = result != ncclSuccess && result != ncclInProgress;
    TERN_RETURN_IF_ERR(tern_nccl_result(n, is_bad ? result : end, is_bad ? call : "ncclGroupEnd"));
    atomic_fetch_add_explicit(&n->comm.counters.exchanges, 1, memory_order_relaxed);
    return tern_nccl_mark(n, what);
}

static struct tern_mark next_collective(struct tern_nccl *n, enum tern_collective kind)
{
    n->step++;
    return (struct tern_mark){.ticket = n->submitted, .step = n->step, .kind = kind, .peer = -1};
}

static void count_bytes(struct tern_nccl *n, bool is_sent, size_t bytes)
{
    atomic_fetch_add_explicit(is_sent ? &n->comm.counters.bytes_sent
                                      : &n->comm.counters.bytes_received,
                              (int64_t)bytes, memory_order_relaxed);
}

/* ---- exchange ---- */

/* Whether NCCL carries it: not to oneself, and not if it is empty, which both sides know. */
static bool travels(const struct tern_nccl *n, const struct tern_comm_message *m)
{
    return m->peer != n->comm.rank && m->bytes > 0;
}

/* The k-th message to oneself goes into the k-th from oneself. */
static tern_status copy_own(struct tern_nccl *n,
                            const struct tern_comm_message *messages,
                            int count)
{
    int in = 0;
    for (int out = 0; out < count; out++) {
        const struct tern_comm_message *from = &messages[out];
        if (from->peer != n->comm.rank || !from->is_send) {
            continue;
        }
        while (in < count && (messages[in].peer != n->comm.rank || messages[in].is_send)) {
            in++;
        }
        if (in == count || messages[in].bytes != from->bytes) {
            return tern_fail(TERN_ERR_ARGUMENT,
                             "exchange: rank %d sends itself %zu bytes and takes %zu", n->comm.rank,
                             from->bytes, in == count ? (size_t)0 : messages[in].bytes);
        }
        if (from->bytes > 0) {
            TERN_RETURN_IF_ERR(n->options.table->copy(n->options.queue, messages[in].data,
                                                      from->data, from->bytes));
        }
        in++;
    }
    return TERN_OK;
}

static void note(struct tern_mark *what, int *calls, int peer, size_t bytes)
{
    what->peer = *calls == 0 || what->peer == peer ? peer : -1;
    what->bytes += bytes;
    *calls += 1;
}

/* What the group will hold; the number of its calls. */
static int describe(const struct tern_nccl *n,
                    const struct tern_comm_message *messages,
                    int count,
                    struct tern_mark *what)
{
    int calls = 0;
    for (int i = 0; i < count; i++) {
        if (travels(n, &messages[i])) {
            note(what, &calls, messages[i].peer, messages[i].bytes);
        }
    }
    for (int i = 0; i < n->posted_count; i++) {
        if (n->posted[i].bytes > 0) {
            note(what, &calls, n->posted[i].peer, min_size(n->posted[i].bytes, n->piece_bytes));
        }
    }
    return calls;
}

static ncclResult_t call_one(struct tern_nccl *n, const struct tern_comm_message *m, size_t bytes)
{
    count_bytes(n, m->is_send, bytes);
    return m->is_send ? n->library->ncclSend(pointer(m->data), bytes, ncclUint8, m->peer, n->handle,
                                             n->stream)
                      : n->library->ncclRecv(pointer(m->data), bytes, ncclUint8, m->peer, n->handle,
                                             n->stream);
}

static bool is_good(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

/* One round: these messages and the next piece of each posted one. */
static tern_status run_round(struct tern_nccl *n,
                             const struct tern_comm_message *messages,
                             int count)
{
    struct tern_mark what = {0};
    if (describe(n, messages, count, &what) == 0) {
        return TERN_OK;
    }
    struct tern_mark mark = next_collective(n, TERN_COLLECTIVE_EXCHANGE);
    mark.bytes = what.bytes;
    mark.peer = what.peer;
    TERN_RETURN_IF_ERR(begin(n, &mark));
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count && is_good(result); i++) {
        if (travels(n, &messages[i])) {
            result = call_one(n, &messages[i], messages[i].bytes);
        }
    }
    for (int i = 0; i < n->posted_count && is_good(result); i++) {
        struct tern_comm_message *m = &n->posted[i];
        size_t bytes = min_size(m->bytes, n->piece_bytes);
        if (bytes > 0) {
            result = call_one(n, m, bytes);
            m->data.addr += bytes;
            m->bytes -= bytes;
        }
    }
    return finish(n, &mark, result, "ncclSend or ncclRecv");
}

tern_status tern_nccl_exchange(struct tern_comm *comm,
                               const struct tern_comm_message *messages,
                               int count)
{
    struct tern_nccl *n = tern_nccl_of(comm);
    TERN_RETURN_IF_ERR(copy_own(n, messages, count));
    return run_round(n, messages, count);
}

tern_status tern_nccl_post(struct tern_comm *comm,
                           const struct tern_comm_message *messages,
                           int count,
                           size_t piece_bytes)
{
    struct tern_nccl *n = tern_nccl_of(comm);
    TERN_CHECK(n->piece_bytes == 0 && piece_bytes > 0);
    if (count > TERN_NCCL_POSTED_MAX) {
        return tern_fail(TERN_ERR_ARGUMENT, "nccl: a post of %d messages, expected at most %d",
                         count, TERN_NCCL_POSTED_MAX);
    }
    for (int i = 0; i < count; i++) {
        if (!messages[i].is_send || messages[i].peer == n->comm.rank) {
            return tern_fail(TERN_ERR_ARGUMENT,
                             "nccl: message %d of a post is no send to another rank", i);
        }
        n->posted[i] = messages[i];
    }
    n->posted_count = count;
    n->piece_bytes = piece_bytes;
    return TERN_OK;
}

static bool is_settled(const struct tern_nccl *n)
{
    for (int i = 0; i < n->posted_count; i++) {
        if (n->posted[i].bytes > 0) {
            return false;
        }
    }
    return true;
}

tern_status tern_nccl_settle(struct tern_comm *comm)
{
    struct tern_nccl *n = tern_nccl_of(comm);
    while (!is_settled(n)) {
        TERN_RETURN_IF_ERR(run_round(n, NULL, 0));
    }
    n->posted_count = 0;
    n->piece_bytes = 0;
    return TERN_OK;
}

/* Dissemination: log2(size) rounds of one byte, on the queue. The host does not wait: what the queue does after the barrier
 * happens after all ranks' queues have come to it. */
tern_status tern_nccl_barrier(struct tern_comm *comm)
{
    struct tern_nccl *n = tern_nccl_of(comm);
    for (int step = 1; step < comm->size; step *= 2) {
        struct tern_comm_message both[2] = {
            {(comm->rank + step) % comm->size, true, n->tokens, 1},
            {(comm->rank - step + comm->size) % comm->size, false, {n->tokens.addr + 1}, 1},
        };
        TERN_RETURN_IF_ERR(tern_nccl_exchange(comm, both, 2));
    }
    return TERN_OK;
}

/* ---- ranges ---- */

/* One group, one kernel: a broadcast in place of each range by its owner. The ranges are of uneven length and not in rank
 * order, so ncclAllGather does not fit; and log2(size) exchanges would be as many kernels, with the host between. */
tern_status tern_nccl_all_gatherv(struct tern_comm *comm,
                                  struct tern_dptr data,
                                  const struct tern_range *ranges)
{
    struct tern_nccl *n = tern_nccl_of(comm);
    struct tern_mark mark = {0};
    for (int r = 0; r < comm->size; r++) {
        mark.bytes += (uint64_t)(ranges[r].end - ranges[r].begin);
    }
    if (mark.bytes == 0 || comm->size == 1) {
        return TERN_OK;
    }
    uint64_t bytes = mark.bytes;
    mark = next_collective(n, TERN_COLLECTIVE_GATHER);
    mark.bytes = bytes;
    TERN_RETURN_IF_ERR(begin(n, &mark));
    ncclResult_t result = ncclSuccess;
    for (int r = 0; r < comm->size && is_good(result); r++) {
        size_t length = (size_t)(ranges[r].end - ranges[r].begin);
        if (length > 0) {
            void *at = (char *)pointer(data) + ranges[r].begin;
            count_bytes(n, r == comm->rank, length);
            result = n->library->ncclBroadcast(at, at, length, ncclUint8, r, n->handle, n->stream);
        }
    }
    return finish(n, &mark, result, "ncclBroadcast");
}

/* One group: a reduction of each range, in place, to its owner. */
tern_status tern_nccl_reduce_ranges(struct tern_comm *comm,
                                    struct tern_dptr data,
                                    const struct tern_range *ranges)
{
    struct tern_nccl *n = tern_nccl_of(comm);
    uint64_t bytes = 0;
    for (int r = 0; r < comm->size; r++) {
        bytes += (uint64_t)(ranges[r].end - ranges[r].begin) * sizeof(float);
    }
    if (bytes == 0 || comm->size == 1) {
        return TERN_OK;
    }
    struct tern_mark mark = next_collective(n, TERN_COLLECTIVE_REDUCE);
    mark.bytes = bytes;
    TERN_RETURN_IF_ERR(begin(n, &mark));
    ncclResult_t result = ncclSuccess;
    for (int r = 0; r < comm->size && is_good(result); r++) {
        size_t length = (size_t)(ranges[r].end - ranges[r].begin);
        if (length > 0) {
            float *at = (float *)pointer(data) + ranges[r].begin;
            count_bytes(n, r != comm->rank, length * sizeof(float));
            result = n->library->ncclReduce(at, at, length, ncclFloat32, ncclSum, r, n->handle,
                                            n->stream);
        }
    }
    return finish(n, &mark, result, "ncclReduce");
}

tern_status tern_nccl_adopt(struct tern_comm *comm, struct tern_dptr block, size_t bytes)
{
    struct tern_nccl *n = tern_nccl_of(comm);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    if (n->library == NULL || !n->library->info.can_register) {
        return TERN_OK;
    }
    if (n->block_count == TERN_NCCL_BLOCKS_MAX) {
        return tern_fail(TERN_ERR_ARGUMENT, "nccl: more than %d blocks made known",
                         TERN_NCCL_BLOCKS_MAX);
    }
    ncclResult_t result = ncclInProgress;
    pthread_mutex_lock(&n->library_lock);
    if (n->handle != NULL) {
        result = n->library->ncclCommRegister(n->handle, pointer(block), bytes,
                                              &n->blocks[n->block_count]);
    }
    pthread_mutex_unlock(&n->library_lock);
    TERN_RETURN_IF_ERR(tern_nccl_result(n, result, "ncclCommRegister"));
    n->block_count++;
#else
    (void)n;
    (void)block;
    (void)bytes;
#endif
    return TERN_OK;
}
