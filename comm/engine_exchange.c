/* engine_exchange.c - one exchange: post, wait without burning the processor that computes, give up in
 * time and say on whom. */
#include "comm/engine_impl.h"
#include "runtime/base/check.h"
#include "runtime/base/fault.h"
#include "runtime/base/mem.h"

#include <sched.h>
#include <string.h>
#include <time.h>

/* A wait polls: first at full speed, since the peer is mostly already there; then giving the processor
 * away after each poll; then asleep for longer and longer. */
enum {
    SPIN_NS = 20 * 1000,
    YIELD_NS = 100 * 1000,
    SLEEP_MIN_NS = 20 * 1000,
    SLEEP_MAX_NS = 200 * 1000,
    /* A poll that took longer than this moved data: there is more to come soon. */
    BUSY_POLL_NS = 5 * 1000,
};
/* Time between two polls beyond this does not count against the limit: this process itself was stopped. */
static const int64_t GAP_MAX_NS = 1000000000;

int64_t tern_comm_engine_now_ns(void)
{
    struct timespec now; /* not tern_clock_ns: a test's fake clock does not move peers */
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void tern_transport_die(struct tern_transport *transport, tern_status status, const char *detail)
{
    int alive = 0;
    if (atomic_compare_exchange_strong(&transport->death, &alive, 1)) {
        transport->death_status = status;
        memcpy(transport->death_detail, detail, strnlen(detail, TERN_DETAIL_BYTES - 1) + 1);
        transport->death_detail[TERN_DETAIL_BYTES - 1] = '\0';
        atomic_store(&transport->death, 2);
    }
}

bool tern_transport_is_dead(const struct tern_transport *transport)
{
    return atomic_load_explicit(&transport->death, memory_order_acquire) == 2;
}

static tern_status fail_dead(const struct tern_comm_engine *engine)
{
    return tern_fail(engine->transport->death_status, "%s", engine->transport->death_detail);
}

static tern_status fail_late(const struct tern_comm_engine *engine,
                             const struct tern_comm_engine_slot *slot,
                             int64_t waited_ns)
{
    struct tern_transport *t = engine->transport;
    const struct tern_transport_message *m = &slot->messages[t->table->first_left(t, slot->op)];
    return tern_fail(TERN_ERR_TIMEOUT,
                     "rank %d waited %.1f s for rank %d to %s %zu bytes (operation %llu, exchange "
                     "%llu); it is stopped, overloaded or out of step (limit: TERN_COMM_TIMEOUT, "
                     "%.1f s)",
                     t->rank, (double)waited_ns * 1e-9, m->peer, m->is_send ? "take" : "send",
                     m->bytes, (unsigned long long)(atomic_load(&engine->done) + 1),
                     (unsigned long long)engine->exchange_of_job, (double)engine->limit_ns * 1e-9);
}

/* Between two polls, `idle_ns` after the last sign of progress. */
static void pause_poll(int64_t idle_ns)
{
    if (idle_ns < SPIN_NS) {
        return;
    }
    if (idle_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    int64_t sleep_ns = (idle_ns - YIELD_NS) / 8;
    sleep_ns = sleep_ns < SLEEP_MIN_NS ? SLEEP_MIN_NS : sleep_ns;
    sleep_ns = sleep_ns > SLEEP_MAX_NS ? SLEEP_MAX_NS : sleep_ns;
    nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
}

static tern_status wait_all(struct tern_comm_engine *engine, struct tern_comm_engine_slot *slot)
{
    struct tern_transport *t = engine->transport;
    int64_t before = tern_comm_engine_now_ns();
    int64_t last_sign = before;
    int64_t waited = 0;
    int left = -1;
    for (;;) {
        if (tern_transport_is_dead(t)) {
            return fail_dead(engine);
        }
        int64_t poll_begin = tern_comm_engine_now_ns();
        int left_before = left;
        tern_status status = t->table->test(t, slot->op, &left);
        if (status != TERN_OK) {
            return tern_fail_prefix(status, "rank %d, operation %llu", t->rank,
                                    (unsigned long long)(atomic_load(&engine->done) + 1));
        }
        if (left == 0) {
            return TERN_OK;
        }
        int64_t now = tern_comm_engine_now_ns();
        int64_t gap = now - before;
        before = now;
        if (left != left_before || now - poll_begin > BUSY_POLL_NS) {
            last_sign = now;
        }
        waited = left != left_before ? 0 : waited + (gap < GAP_MAX_NS ? gap : GAP_MAX_NS);
        if (waited > engine->limit_ns) {
            return fail_late(engine, slot, waited);
        }
        pause_poll(now - last_sign);
    }
}

/* The k-th message to oneself goes into the k-th from oneself. */
static tern_status copy_own(struct tern_comm_engine *engine,
                            const struct tern_comm_message *messages,
                            int count)
{
    int in = 0;
    for (int out = 0; out < count; out++) {
        const struct tern_comm_message *from = &messages[out];
        if (from->peer != engine->comm.rank || !from->is_send) {
            continue;
        }
        while (in < count && (messages[in].peer != engine->comm.rank || messages[in].is_send)) {
            in++;
        }
        if (in == count || messages[in].bytes != from->bytes) {
            return tern_fail(
                TERN_ERR_ARGUMENT, "exchange: rank %d sends itself %zu bytes and takes %zu",
                engine->comm.rank, from->bytes, in == count ? (size_t)0 : messages[in].bytes);
        }
        if (from->bytes > 0) {
            memmove((void *)(uintptr_t)messages[in].data.addr,
                    (const void *)(uintptr_t)from->data.addr, from->bytes);
        }
        in++;
    }
    return TERN_OK;
}

static tern_status reserve(struct tern_comm_engine_slot *slot, size_t count)
{
    if (count <= slot->capacity) {
        return TERN_OK;
    }
    size_t capacity = count < 64 ? 64 : count;
    void *block = tern_realloc("comm messages", slot->messages, capacity * sizeof *slot->messages);
    if (block == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "exchange: no memory for %zu messages", count);
    }
    slot->messages = block;
    slot->capacity = capacity;
    return TERN_OK;
}

static void add(_Atomic int64_t *counter, int64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* Whether a message goes over the transport: not to oneself, and not if it is empty, which both sides
 * know. */
static bool travels(const struct tern_comm_engine *engine, const struct tern_comm_message *m)
{
    return m->peer != engine->comm.rank && m->bytes > 0;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Fills the slot: piece after piece, of each the messages in order. */
static tern_status translate(struct tern_comm_engine *engine,
                             struct tern_comm_engine_slot *slot,
                             const struct tern_comm_message *messages,
                             int count,
                             size_t piece_bytes)
{
    size_t pieces = 0;
    size_t longest = 0;
    for (int i = 0; i < count; i++) {
        if (travels(engine, &messages[i])) {
            pieces += 1 + (messages[i].bytes - 1) / piece_bytes;
            longest = messages[i].bytes > longest ? messages[i].bytes : longest;
        }
    }
    if (pieces > INT32_MAX) {
        return tern_fail(TERN_ERR_ARGUMENT, "exchange: %zu pieces", pieces);
    }
    TERN_RETURN_IF_ERR(reserve(slot, pieces));
    slot->count = 0;
    for (size_t begin = 0; begin < longest; begin += min_size(piece_bytes, longest - begin)) {
        for (int i = 0; i < count; i++) {
            const struct tern_comm_message *m = &messages[i];
            if (!travels(engine, m) || begin >= m->bytes) {
                continue;
            }
            slot->messages[slot->count++] = (struct tern_transport_message){
                .peer = engine->world_ranks[m->peer],
                .is_send = m->is_send,
                .data = (char *)(uintptr_t)m->data.addr + begin,
                .bytes = min_size(piece_bytes, m->bytes - begin),
            };
        }
    }
    return TERN_OK;
}

static void count_messages(struct tern_comm_engine *engine,
                           const struct tern_comm_engine_slot *slot)
{
    struct tern_comm_counters *c = &engine->comm.counters;
    for (int i = 0; i < slot->count; i++) {
        const struct tern_transport_message *m = &slot->messages[i];
        if (m->is_send) {
            (void)tern_fault_pass(TERN_FAULT_COMM_SEND);
        }
        add(m->is_send ? &c->bytes_sent : &c->bytes_received, (int64_t)m->bytes);
    }
    add(&c->exchanges, 1);
    engine->exchange_of_job++;
}

static tern_status begin(struct tern_comm_engine *engine, struct tern_comm_engine_slot *slot)
{
    struct tern_transport *t = engine->transport;
    count_messages(engine, slot);
    if (slot->count == 0) {
        return TERN_OK;
    }
    if (tern_transport_is_dead(t)) {
        return fail_dead(engine);
    }
    slot->is_under_way = true;
    return t->table->begin(t, slot->op, engine->context, slot->messages, slot->count);
}

/* Waits for what begin started, if that was good. */
static tern_status finish(struct tern_comm_engine *engine,
                          struct tern_comm_engine_slot *slot,
                          tern_status status)
{
    if (status == TERN_OK && slot->is_under_way) {
        status = wait_all(engine, slot);
    }
    if (status != TERN_OK) {
        tern_comm_engine_cancel(engine);
    }
    if (tern_status_blast(status) >= TERN_BLAST_GROUP) {
        tern_transport_die(engine->transport, status, tern_detail());
    }
    slot->is_under_way = false;
    return status;
}

void tern_comm_engine_cancel(struct tern_comm_engine *engine)
{
    struct tern_transport *t = engine->transport;
    struct tern_comm_engine_slot *const slots[] = {&engine->now, &engine->ahead};
    for (int i = 0; i < 2; i++) {
        if (slots[i]->is_under_way) {
            t->table->cancel(t, slots[i]->op);
            slots[i]->is_under_way = false;
        }
    }
}

tern_status tern_comm_engine_exchange(struct tern_comm *comm,
                                      const struct tern_comm_message *messages,
                                      int count)
{
    struct tern_comm_engine *engine = tern_comm_engine_of(comm);
    TERN_CHECK(tern_comm_is_inside(comm));
    TERN_RETURN_IF_ERR(copy_own(engine, messages, count));
    TERN_RETURN_IF_ERR(translate(engine, &engine->now, messages, count, SIZE_MAX));
    return finish(engine, &engine->now, begin(engine, &engine->now));
}

tern_status tern_comm_engine_post(struct tern_comm *comm,
                                  const struct tern_comm_message *messages,
                                  int count,
                                  size_t piece_bytes)
{
    struct tern_comm_engine *engine = tern_comm_engine_of(comm);
    TERN_CHECK(tern_comm_is_inside(comm) && !engine->ahead.is_under_way && piece_bytes > 0);
    TERN_RETURN_IF_ERR(translate(engine, &engine->ahead, messages, count, piece_bytes));
    tern_status status = begin(engine, &engine->ahead);
    return status == TERN_OK ? TERN_OK : finish(engine, &engine->ahead, status);
}

tern_status tern_comm_engine_settle(struct tern_comm *comm)
{
    struct tern_comm_engine *engine = tern_comm_engine_of(comm);
    TERN_CHECK(tern_comm_is_inside(comm));
    return finish(engine, &engine->ahead, TERN_OK);
}

/* Dissemination: log2(size) rounds of one byte. */
tern_status tern_comm_engine_barrier(struct tern_comm *comm)
{
    unsigned char out = 1;
    unsigned char in = 0;
    for (int step = 1; step < comm->size; step *= 2) {
        int to = (comm->rank + step) % comm->size;
        int from = (comm->rank - step + comm->size) % comm->size;
        struct tern_comm_message both[2] = {
            {to, true, {(uint64_t)(uintptr_t)&out}, 1},
            {from, false, {(uint64_t)(uintptr_t)&in}, 1},
        };
        TERN_RETURN_IF_ERR(tern_comm_engine_exchange(comm, both, 2));
    }
    return TERN_OK;
}
