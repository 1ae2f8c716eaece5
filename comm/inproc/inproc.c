/* inproc.c - messages between threads: a channel a pair of ranks, delays by seed, deaths on demand. */
#include "comm/inproc/inproc.h"

#include "comm/engine.h"
#include "comm/engine_impl.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* One side of a message. Sends hang in their channel until they are taken. */
struct letter {
    struct letter *next; /* in the channel */
    struct tern_transport_message message;
    int context;
    int64_t visible_ns;
    bool is_taken; /* somebody copies from it */
    bool is_done;
};

struct world {
    pthread_mutex_t lock;
    struct tern_inproc_options options;
    int users;
    uint64_t draws; /* random numbers used */
    struct letter
        *channels[TERN_INPROC_RANKS_MAX][TERN_INPROC_RANKS_MAX]; /* [src][dst], oldest first */
    enum tern_inproc_fate fates[TERN_INPROC_RANKS_MAX];
    bool is_aborted;
    char abort_detail[TERN_DETAIL_BYTES];
};

struct member {
    struct tern_transport base;
    struct world *world;
    int64_t exchanges;
};

struct op {
    struct letter *letters;
    int count, capacity;
};

static struct member *member_of(struct tern_transport *t)
{
    return (struct member *)t;
}

static tern_status inproc_start(struct tern_transport *t)
{
    (void)t;
    return TERN_OK;
}

static void inproc_stop(struct tern_transport *t, bool clean)
{
    struct world *world = member_of(t)->world;
    pthread_mutex_lock(&world->lock);
    (void)clean; /* who still waits for a rank that left is out of step with it */
    if (world->fates[t->rank] != TERN_INPROC_STOPS) {
        world->fates[t->rank] = TERN_INPROC_DIES;
    }
    pthread_mutex_unlock(&world->lock);
}

static void inproc_abort(struct tern_transport *t, int exit_code)
{
    struct world *world = member_of(t)->world;
    pthread_mutex_lock(&world->lock);
    if (!world->is_aborted) {
        snprintf(world->abort_detail, sizeof world->abort_detail,
                 "rank %d ended the job with exit code %d", t->rank, exit_code);
        world->is_aborted = true;
    }
    pthread_mutex_unlock(&world->lock);
}

static void world_release(struct world *world)
{
    pthread_mutex_lock(&world->lock);
    bool is_last = --world->users == 0;
    pthread_mutex_unlock(&world->lock);
    if (is_last) {
        pthread_mutex_destroy(&world->lock);
        tern_free(world);
    }
}

static void inproc_destroy(struct tern_transport *t)
{
    world_release(member_of(t)->world);
    tern_free(t);
}

static tern_status inproc_op_open(struct tern_transport *t, void **op_out)
{
    (void)t;
    *op_out = tern_alloc_zero("comm inproc op", 1, sizeof(struct op));
    return *op_out != NULL ? TERN_OK : tern_fail(TERN_ERR_MEMORY, "inproc: no memory");
}

static void unlink_letter(struct world *world, int src, const struct letter *letter)
{
    struct letter **at = &world->channels[src][letter->message.peer];
    while (*at != NULL && *at != letter) {
        at = &(*at)->next;
    }
    if (*at == letter) {
        *at = letter->next;
    }
}

/* Takes back what nobody has taken; waits for those who are copying. */
static void op_clear(struct tern_transport *t, struct op *op)
{
    struct world *world = member_of(t)->world;
    pthread_mutex_lock(&world->lock);
    for (int i = 0; i < op->count; i++) {
        struct letter *letter = &op->letters[i];
        if (!letter->message.is_send || letter->is_done) {
            continue;
        }
        while (letter->is_taken && !letter->is_done) {
            pthread_mutex_unlock(&world->lock);
            sched_yield();
            pthread_mutex_lock(&world->lock);
        }
        unlink_letter(world, t->rank, letter);
    }
    pthread_mutex_unlock(&world->lock);
    op->count = 0;
}

static void inproc_cancel(struct tern_transport *t, void *op)
{
    op_clear(t, op);
}

static void inproc_op_close(struct tern_transport *t, void *op_arg)
{
    (void)t;
    struct op *op = op_arg;
    tern_free(op->letters);
    tern_free(op);
}

static int64_t draw_delay(struct world *world)
{
    double u = tern_random_uniform(world->options.seed, tern_random_stream_id(TERN_STREAM_TEST, 0),
                                   world->draws++);
    return (int64_t)(u * (double)world->options.delay_ns_max);
}

/* The death that the test asked for. Under the lock. */
static tern_status meet_fate(struct member *member)
{
    struct world *world = member->world;
    const struct tern_inproc_options *o = &world->options;
    int rank = member->base.rank;
    member->exchanges++;
    if (o->fate != TERN_INPROC_LIVES && o->fate_rank == rank &&
        o->fate_exchange == member->exchanges) {
        world->fates[rank] = o->fate;
    }
    if (world->fates[rank] == TERN_INPROC_DIES) {
        return tern_fail(TERN_ERR_PEER_LOST, "rank %d died, as the test asked", rank);
    }
    return TERN_OK;
}

static tern_status inproc_begin(struct tern_transport *t,
                                void *op_arg,
                                int context,
                                const struct tern_transport_message *messages,
                                int count)
{
    struct member *member = member_of(t);
    struct world *world = member->world;
    struct op *op = op_arg;
    if (count > op->capacity) {
        struct letter *more =
            tern_realloc("comm inproc op", op->letters, (size_t)count * sizeof *more);
        if (more == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "inproc: no memory for %d messages", count);
        }
        op->letters = more;
        op->capacity = count;
    }
    pthread_mutex_lock(&world->lock);
    tern_status status = meet_fate(member);
    int64_t now = tern_comm_engine_now_ns();
    op->count = status == TERN_OK ? count : 0;
    for (int i = 0; i < op->count; i++) {
        struct letter *letter = &op->letters[i];
        *letter = (struct letter){.message = messages[i], .context = context, .visible_ns = now};
        if (messages[i].is_send) {
            letter->visible_ns += draw_delay(world);
            struct letter **end = &world->channels[t->rank][messages[i].peer];
            while (*end != NULL) {
                end = &(*end)->next;
            }
            *end = letter;
        }
    }
    pthread_mutex_unlock(&world->lock);
    return status;
}

/* The oldest send of a context to this rank that nobody took; NULL if it is not visible yet. */
static struct letter *find_send(struct world *world, int src, int dst, int context, int64_t now)
{
    struct letter *letter = world->channels[src][dst];
    while (letter != NULL && (letter->context != context || letter->is_taken)) {
        letter = letter->next;
    }
    return letter != NULL && letter->visible_ns <= now ? letter : NULL;
}

/* Under the lock, which is let go for the copy. */
static tern_status take(struct world *world,
                        int src,
                        int dst,
                        struct letter *from,
                        struct letter *into)
{
    if (from->message.bytes != into->message.bytes) {
        return tern_fail(TERN_ERR_STATE,
                         "rank %d expects %zu bytes from rank %d and gets %zu: out of step", dst,
                         into->message.bytes, src, from->message.bytes);
    }
    from->is_taken = true;
    pthread_mutex_unlock(&world->lock);
    memcpy(into->message.data, from->message.data, from->message.bytes);
    pthread_mutex_lock(&world->lock);
    unlink_letter(world, src, from);
    from->is_done = true;
    into->is_done = true;
    return TERN_OK;
}

static tern_status check_peer(const struct world *world, int peer)
{
    if (world->is_aborted) {
        return tern_fail(TERN_ERR_PEER_LOST, "%s", world->abort_detail);
    }
    if (world->fates[peer] == TERN_INPROC_DIES) {
        return tern_fail(TERN_ERR_PEER_LOST, "rank %d is gone", peer);
    }
    return TERN_OK;
}

static tern_status inproc_test(struct tern_transport *t, void *op_arg, int *left_out)
{
    struct world *world = member_of(t)->world;
    struct op *op = op_arg;
    uint64_t waits_for = 0; /* ranks whose next message is not here: later ones must not overtake */
    int left = 0;
    tern_status status = TERN_OK;
    int64_t now = tern_comm_engine_now_ns();
    pthread_mutex_lock(&world->lock);
    bool is_stopped = world->fates[t->rank] == TERN_INPROC_STOPS;
    for (int i = 0; i < op->count && status == TERN_OK; i++) {
        struct letter *letter = &op->letters[i];
        int peer = letter->message.peer;
        if (!letter->is_done && !letter->message.is_send && !is_stopped &&
            (waits_for >> peer & 1) == 0) {
            struct letter *from = find_send(world, peer, t->rank, letter->context, now);
            if (from != NULL) {
                status = take(world, peer, t->rank, from, letter);
            } else {
                waits_for |= (uint64_t)1 << peer;
            }
        }
        if (!letter->is_done && status == TERN_OK) {
            left++;
            status = is_stopped ? TERN_OK : check_peer(world, peer);
        }
    }
    left = is_stopped ? op->count : left;
    pthread_mutex_unlock(&world->lock);
    if (status == TERN_OK && left == 0) {
        op->count = 0;
    }
    *left_out = left;
    return status;
}

static int inproc_first_left(struct tern_transport *t, void *op_arg)
{
    struct world *world = member_of(t)->world;
    struct op *op = op_arg;
    int i = 0;
    pthread_mutex_lock(&world->lock);
    while (i < op->count - 1 && op->letters[i].is_done) {
        i++;
    }
    pthread_mutex_unlock(&world->lock);
    return i;
}

static const struct tern_transport_table g_inproc = {
    .name = "inproc",
    .start = inproc_start,
    .stop = inproc_stop,
    .abort = inproc_abort,
    .destroy = inproc_destroy,
    .op_open = inproc_op_open,
    .op_close = inproc_op_close,
    .begin = inproc_begin,
    .test = inproc_test,
    .cancel = inproc_cancel,
    .first_left = inproc_first_left,
};

void tern_inproc_doom(struct tern_comm *comm, enum tern_inproc_fate fate)
{
    struct tern_transport *t = tern_comm_engine_of(comm)->transport;
    TERN_CHECK(t->table == &g_inproc);
    struct world *world = member_of(t)->world;
    pthread_mutex_lock(&world->lock);
    world->fates[t->rank] = fate;
    pthread_mutex_unlock(&world->lock);
}

static tern_status world_new(const struct tern_inproc_options *options, struct world **out)
{
    if (options->ranks < 1 || options->ranks > TERN_INPROC_RANKS_MAX) {
        return tern_fail(TERN_ERR_ARGUMENT, "inproc: %d ranks, expected 1 to %d", options->ranks,
                         TERN_INPROC_RANKS_MAX);
    }
    struct world *world = tern_alloc_zero("comm inproc", 1, sizeof *world);
    if (world == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "inproc: no memory for the world");
    }
    pthread_mutex_init(&world->lock, NULL);
    world->options = *options;
    world->users = 1;
    *out = world;
    return TERN_OK;
}

struct opening {
    struct world *world;
    int rank;
    struct tern_comm *comm;
    tern_status status;
    char detail[TERN_DETAIL_BYTES];
    tern_status (*main)(struct tern_comm *comm, void *arg);
    void *arg;
    pthread_t thread;
};

static tern_status open_rank(struct opening *o)
{
    struct member *member = tern_alloc("comm inproc", sizeof *member);
    if (member == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "inproc: no memory for rank %d", o->rank);
    }
    tern_transport_init(&member->base, &g_inproc);
    member->base.rank = o->rank;
    member->base.size = o->world->options.ranks;
    member->world = o->world;
    member->exchanges = 0;
    pthread_mutex_lock(&o->world->lock);
    o->world->users++;
    pthread_mutex_unlock(&o->world->lock);
    double seconds = o->world->options.timeout_seconds;
    return tern_comm_engine_open(&member->base, (int64_t)((seconds > 0 ? seconds : 60) * 1e9),
                                 &o->comm);
}

/* Opening is collective, so it takes a thread a rank. */
static void *rank_main(void *arg)
{
    struct opening *o = arg;
    o->status = open_rank(o);
    if (o->status == TERN_OK && o->main != NULL) {
        o->status = o->main(o->comm, o->arg);
    }
    snprintf(o->detail, sizeof o->detail, "%s", o->status != TERN_OK ? tern_detail() : "");
    if (o->main != NULL) {
        tern_comm_close(o->comm);
    }
    return NULL;
}

/* Runs rank_main on a thread for each rank. */
static tern_status run_ranks(const struct tern_inproc_options *options, struct opening *ranks)
{
    struct world *world = NULL;
    TERN_RETURN_IF_ERR(world_new(options, &world));
    tern_status status = TERN_OK;
    int started = 0;
    for (; started < options->ranks; started++) {
        ranks[started].world = world;
        ranks[started].rank = started;
        int error = pthread_create(&ranks[started].thread, NULL, rank_main, &ranks[started]);
        if (error != 0) {
            status = tern_fail_errno(TERN_ERR_MEMORY, error, "inproc: thread of rank %d", started);
            pthread_mutex_lock(&world->lock);
            snprintf(world->abort_detail, sizeof world->abort_detail, "%s", tern_detail());
            world->is_aborted = true;
            pthread_mutex_unlock(&world->lock);
            break;
        }
    }
    for (int r = 0; r < started; r++) {
        pthread_join(ranks[r].thread, NULL);
    }
    world_release(world);
    return status;
}

static tern_status first_failure(const struct opening *ranks, int count)
{
    for (int r = 0; r < count; r++) {
        if (ranks[r].status != TERN_OK) {
            return tern_fail(ranks[r].status, "%s", ranks[r].detail);
        }
    }
    return TERN_OK;
}

static struct opening *openings_new(int count)
{
    struct opening *ranks = tern_alloc_zero("comm inproc", (size_t)count, sizeof *ranks);
    if (ranks == NULL) {
        tern_fail(TERN_ERR_MEMORY, "inproc: no memory for %d ranks", count);
    }
    return ranks;
}

tern_status tern_inproc_open(const struct tern_inproc_options *options,
                             struct tern_comm **comms_out)
{
    struct opening *ranks = openings_new(options->ranks);
    if (ranks == NULL) {
        return TERN_ERR_MEMORY;
    }
    tern_status status = run_ranks(options, ranks);
    if (status == TERN_OK) {
        status = first_failure(ranks, options->ranks);
    }
    for (int r = 0; r < options->ranks; r++) {
        comms_out[r] = ranks[r].comm;
        if (status != TERN_OK) {
            tern_comm_close(ranks[r].comm);
            comms_out[r] = NULL;
        }
    }
    tern_free(ranks);
    return status;
}

tern_status tern_inproc_run(const struct tern_inproc_options *options,
                            tern_status (*main)(struct tern_comm *comm, void *arg),
                            void *arg,
                            tern_status *statuses_out)
{
    struct opening *ranks = openings_new(options->ranks);
    if (ranks == NULL) {
        return TERN_ERR_MEMORY;
    }
    for (int r = 0; r < options->ranks; r++) {
        ranks[r].main = main;
        ranks[r].arg = arg;
    }
    tern_status status = run_ranks(options, ranks);
    if (status == TERN_OK) {
        status = first_failure(ranks, options->ranks);
    }
    for (int r = 0; r < options->ranks && statuses_out != NULL; r++) {
        statuses_out[r] = ranks[r].status;
    }
    tern_free(ranks);
    return status;
}
