/* engine_split.c - groups: which ranks, which message context, which of them share a host.
 *
 * A context is a number that keeps the messages of two groups apart. The ranks of a split agree on it
 * with one gather, so no collective of the transport is needed, and the time limit holds here too. */
#include "comm/engine_impl.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <stdlib.h>

struct entry {
    int color, key, rank, context_next;
};

struct split {
    struct entry *all; /* (size) */
};

void tern_comm_engine_place(struct tern_comm_engine *engine)
{
    struct tern_comm *comm = &engine->comm;
    comm->local_rank = 0;
    comm->local_size = 0;
    for (int r = 0; r < comm->size; r++) {
        if (engine->hosts[r] == engine->hosts[comm->rank]) {
            comm->local_rank += r < comm->rank;
            comm->local_size++;
        }
    }
}

static int by_group(const void *left, const void *right)
{
    const struct entry *a = left;
    const struct entry *b = right;
    if (a->color != b->color) {
        return a->color < b->color ? -1 : 1;
    }
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    return a->rank - b->rank;
}

/* The context of `color`: the highest that any rank has free, plus the number of the color among all. */
static tern_status agree(struct tern_comm_engine *engine,
                         const struct entry *all,
                         int color,
                         int *context_out)
{
    struct tern_transport *t = engine->transport;
    int base = 0;
    int colors = 0;
    int ordinal = 0;
    for (int i = 0; i < engine->comm.size; i++) {
        base = all[i].context_next > base ? all[i].context_next : base;
        if (all[i].color >= 0 && (i == 0 || all[i].color != all[i - 1].color)) {
            ordinal = all[i].color == color ? colors : ordinal;
            colors++;
        }
    }
    if (colors > t->context_max - base) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "split: no message context left (%d given out, at most %d)", base,
                         t->context_max);
    }
    int next = atomic_load(&t->context_next);
    while (next < base + colors &&
           !atomic_compare_exchange_weak(&t->context_next, &next, base + colors)) {
    }
    *context_out = base + ordinal;
    return TERN_OK;
}

static tern_status make_group(struct tern_comm_engine *parent,
                              const struct entry *all,
                              int context,
                              int color,
                              struct tern_comm **out)
{
    int first = 0;
    while (all[first].color != color) {
        first++;
    }
    int size = 0;
    int rank = -1;
    while (first + size < parent->comm.size && all[first + size].color == color) {
        rank = all[first + size].rank == parent->comm.rank ? size : rank;
        size++;
    }
    TERN_CHECK(rank >= 0);
    int *world_ranks = tern_alloc("comm ranks", (size_t)size * sizeof *world_ranks);
    uint64_t *hosts = tern_alloc("comm hosts", (size_t)size * sizeof *hosts);
    tern_status status = TERN_OK;
    struct tern_comm_engine *engine = NULL;
    if (world_ranks == NULL || hosts == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "split: no memory for a group of %d ranks", size);
        goto done;
    }
    for (int i = 0; i < size; i++) {
        world_ranks[i] = parent->world_ranks[all[first + i].rank];
        hosts[i] = parent->hosts[all[first + i].rank];
    }
    TERN_GOTO_IF_ERR(status,
                     tern_comm_engine_create(parent->transport, parent->limit_ns, context, rank,
                                             size, world_ranks, hosts, &engine),
                     done);
    *out = &engine->comm;
    return TERN_OK;
done:
    tern_free(world_ranks);
    tern_free(hosts);
    return status;
}

tern_status tern_comm_engine_split(struct tern_comm *comm,
                                   int color,
                                   int key,
                                   struct tern_comm **out)
{
    struct tern_comm_engine *engine = tern_comm_engine_of(comm);
    *out = NULL;
    struct entry *all = tern_alloc("comm split", (size_t)comm->size * sizeof *all);
    if (all == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "split: no memory for %d ranks", comm->size);
    }
    int next = atomic_load(&engine->transport->context_next);
    struct entry own = {color < 0 ? -1 : color, key, comm->rank, next};
    int context = 0;
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_comm_all_gather(comm, &own, sizeof own, all), done);
    qsort(all, (size_t)comm->size, sizeof *all, by_group);
    TERN_GOTO_IF_ERR(status, agree(engine, all, own.color, &context), done);
    if (own.color >= 0) {
        status = make_group(engine, all, context, own.color, out);
    }
done:
    tern_free(all);
    return status;
}
