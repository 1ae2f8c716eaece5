/* memory_peer.c - copies of sealed blocks on other hosts, made behind the steps by a communicator of their own.
 *
 * A copy begins when all ranks have sealed their blocks, and not at all when one could not: until then the copies of the
 * snapshot that lay in these blocks are all that is left of it.
 *
 * Each rank sends its block in frames of equal size to its keeper and takes those of the ranks that it keeps, one frame from
 * each in every exchange, until all that are under way have said that they are at their end. A quarter of the time at most
 * is spent moving, so that the steps keep the network, unless a rank is in a hurry: its frames say so, and so do those of
 * the ranks that get them, since everybody's pauses hold up everybody. The copy's seal is written last, as the block's is. */
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/reclaim/memory_impl.h"

#include <stdio.h>
#include <string.h>

enum {
    PIECE_BYTES = 1 << 20,
    PAUSES = 3,                     /* times as long as an exchange took it pauses after it */
    PAUSE_NS_MAX = 50 * 1000 * 1000 /* and at most: whoever stops the copy waits no longer */
};

enum kind {
    NOTHING, /* no block of this step, or no more of it: what came so far is not a copy */
    DATA,
    LAST /* the head: the copy is whole */
};

struct frame {
    int64_t step, offset, bytes, block_bytes;
    int32_t kind, slot;
    int32_t is_hurried;
    uint8_t data[PIECE_BYTES];
};

/* A rank whose copies are kept here. */
struct source {
    int rank;
    int64_t block_bytes;
    struct tern_shm blocks[TERN_MEMORY_SLOTS];
    bool is_done;
    struct frame *in;
};

struct tern_memory_peers {
    struct tern_comm *comm; /* owned */
    struct tern_segment_key key;
    int keeper;
    struct source *sources;
    int source_count;
    struct frame *out;
    struct tern_comm_message *messages; /* (1 + source_count) */
    bool has_warned;
    const _Atomic bool *is_hurried; /* borrowed */
    /* of the copy under way */
    bool hears_hurry; /* of another rank */
    const struct tern_segment *segment;
    int slot;
    int64_t step;
    tern_memory_copied copied;
    void *context;
    /* shared */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_running; /* a copy is under way */
    bool is_reading; /* a block of this rank is being read for it */
    _Atomic bool is_stopped, is_closing;
};

/* What every rank says at the start. */
struct offer {
    int64_t keeper, block_bytes;
};

/* ---- opening and closing ---- */

static tern_status find_sources(struct tern_memory_peers *peers, const struct offer *offers)
{
    int count = 0;
    for (int rank = 0; rank < peers->comm->size; rank++) {
        count += offers[rank].keeper == peers->comm->rank;
    }
    peers->sources = tern_alloc_zero("memory copies", (size_t)count + 1, sizeof *peers->sources);
    peers->messages = tern_alloc_zero("memory copies", (size_t)count + 1, sizeof *peers->messages);
    peers->out = tern_alloc_zero("memory copies", 1, sizeof *peers->out);
    if (peers->sources == NULL || peers->messages == NULL || peers->out == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate copies of %d ranks", count);
    }
    for (int rank = 0; rank < peers->comm->size; rank++) {
        if (offers[rank].keeper != peers->comm->rank) {
            continue;
        }
        struct source *source = &peers->sources[peers->source_count++];
        *source = (struct source){.rank = rank, .block_bytes = offers[rank].block_bytes};
        source->in = tern_alloc_zero("memory copies", 1, sizeof *source->in);
        if (source->in == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate a frame of %zu bytes",
                             sizeof *source->in);
        }
    }
    return TERN_OK;
}

static tern_status exchange_offers(struct tern_memory_peers *peers, int64_t block_bytes)
{
    struct offer mine = {peers->keeper, block_bytes};
    struct offer *offers =
        tern_alloc_zero("memory copies", (size_t)peers->comm->size, sizeof *offers);
    tern_status status =
        offers != NULL ? tern_comm_all_gather(peers->comm, &mine, sizeof mine, offers)
                       : tern_fail(TERN_ERR_MEMORY, "cannot allocate %d offers", peers->comm->size);
    status = status == TERN_OK ? find_sources(peers, offers) : status;
    tern_free(offers);
    return status;
}

tern_status tern_memory_peers_create(struct tern_comm *comm,
                                     const struct tern_segment_key *key,
                                     int keeper,
                                     int64_t block_bytes,
                                     const _Atomic bool *is_hurried,
                                     struct tern_memory_peers **out)
{
    *out = NULL;
    int64_t anybody = keeper >= 0;
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(comm, &anybody, 1));
    if (!anybody) {
        return TERN_OK;
    }
    struct tern_memory_peers *peers = tern_alloc_zero("memory copies", 1, sizeof *peers);
    if (peers == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the copies");
    }
    peers->key = *key;
    peers->keeper = keeper;
    peers->is_hurried = is_hurried;
    pthread_mutex_init(&peers->lock, NULL);
    pthread_cond_init(&peers->changed, NULL);
    *out = peers; /* destroy frees it, also after a failure */
    TERN_RETURN_IF_ERR(tern_comm_split(comm, 0, comm->rank, &peers->comm));
    return exchange_offers(peers, block_bytes);
}

void tern_memory_peers_destroy(struct tern_memory_peers *peers, bool forget)
{
    if (peers == NULL) {
        return;
    }
    tern_comm_close(peers->comm);
    for (int i = 0; i < peers->source_count; i++) {
        struct source *source = &peers->sources[i];
        for (int slot = 0; slot < TERN_MEMORY_SLOTS; slot++) {
            if (forget && source->blocks[slot].data != NULL &&
                tern_file_remove(source->blocks[slot].path) != TERN_OK) {
                tern_log_warn("a copy of a snapshot stays: %s", tern_detail());
            }
            tern_shm_close(&source->blocks[slot]);
        }
        tern_free(source->in);
    }
    tern_free(peers->sources);
    tern_free(peers->messages);
    tern_free(peers->out);
    pthread_cond_destroy(&peers->changed);
    pthread_mutex_destroy(&peers->lock);
    tern_free(peers);
}

/* ---- frames ---- */

static bool is_stopped(const struct tern_memory_peers *peers)
{
    return atomic_load(&peers->is_stopped) || atomic_load(&peers->is_closing);
}

static bool is_hurried(const struct tern_memory_peers *peers)
{
    return peers->hears_hurry || atomic_load(peers->is_hurried);
}

/* The next frame of this rank's block; *at: bytes sent so far, behind the head, which goes last. */
static void fill_frame(struct tern_memory_peers *peers, int64_t *at)
{
    struct frame *out = peers->out;
    const struct tern_segment *segment = peers->segment;
    out->step = peers->step;
    out->slot = peers->slot;
    out->is_hurried = is_hurried(peers);
    out->kind = NOTHING;
    out->bytes = 0;
    int error = tern_file_fault(TERN_FAULT_MEMORY_PEER);
    if (segment == NULL || error != 0 || is_stopped(peers)) {
        return;
    }
    int64_t total = (int64_t)segment->shm.bytes;
    int64_t left = total - *at;
    out->block_bytes = total;
    out->kind = left > 0 ? DATA : LAST;
    out->offset = left > 0 ? *at : 0;
    out->bytes = left <= 0 ? TERN_SEGMENT_HEAD_BYTES : left < PIECE_BYTES ? left : PIECE_BYTES;
    memcpy(out->data, segment->shm.data + out->offset, (size_t)out->bytes);
    *at += left > 0 ? out->bytes : 0;
}

static tern_status open_copy(struct tern_memory_peers *peers,
                             const struct source *source,
                             int slot,
                             struct tern_shm *block)
{
    char name[TERN_SEGMENT_NAME_BYTES];
    if (block->data != NULL) {
        return TERN_OK;
    }
    tern_segment_name(&peers->key, source->rank, slot, true, name);
    return tern_shm_create(name, (size_t)source->block_bytes, block);
}

/* A frame into the copy that it belongs to. The seal is gone before anything else changes, and comes back last. */
static void take_frame(struct tern_memory_peers *peers, struct source *source)
{
    const struct frame *in = source->in;
    source->is_done = in->kind != DATA;
    peers->hears_hurry |= in->is_hurried != 0;
    bool is_sane = in->slot >= 0 && in->slot < TERN_MEMORY_SLOTS && in->offset >= 0 &&
                   in->bytes >= 0 && in->bytes <= PIECE_BYTES &&
                   in->offset <= source->block_bytes - in->bytes &&
                   in->block_bytes == source->block_bytes;
    if (in->kind == NOTHING || !is_sane) {
        return;
    }
    struct tern_shm *block = &source->blocks[in->slot];
    if (open_copy(peers, source, in->slot, block) != TERN_OK) {
        if (!peers->has_warned) {
            tern_log_warn("no copy of the snapshots of rank %d is kept: %s", source->rank,
                          tern_detail());
        }
        peers->has_warned = true;
        return;
    }
    struct tern_segment_head *head = (void *)block->data;
    if (in->kind == DATA) {
        __atomic_store_n(&head->seal, 0, __ATOMIC_RELEASE);
        atomic_thread_fence(memory_order_seq_cst);
        memcpy(block->data + in->offset, in->data, (size_t)in->bytes);
        return;
    }
    struct tern_segment_head fresh;
    memcpy(&fresh, in->data, sizeof fresh);
    uint64_t seal = fresh.seal;
    fresh.seal = 0;
    *head = fresh;
    __atomic_store_n(&head->seal, seal, __ATOMIC_RELEASE);
}

static int list_messages(struct tern_memory_peers *peers, bool sends)
{
    int count = 0;
    if (sends) {
        peers->messages[count++] = (struct tern_comm_message){
            peers->keeper, true, {(uint64_t)(uintptr_t)peers->out}, sizeof *peers->out};
    }
    for (int i = 0; i < peers->source_count; i++) {
        const struct source *source = &peers->sources[i];
        if (!source->is_done) {
            peers->messages[count++] = (struct tern_comm_message){
                source->rank, false, {(uint64_t)(uintptr_t)source->in}, sizeof *source->in};
        }
    }
    return count;
}

/* The end of one of the two; the other side of it may wait. */
static void end_of(struct tern_memory_peers *peers, bool *flag)
{
    pthread_mutex_lock(&peers->lock);
    *flag = false;
    pthread_cond_broadcast(&peers->changed);
    pthread_mutex_unlock(&peers->lock);
}

static void pause_after(int64_t exchange_ns)
{
    int64_t pause = PAUSES * exchange_ns;
    tern_clock_sleep_ns(pause < PAUSE_NS_MAX ? pause : PAUSE_NS_MAX);
}

/* Frames out and in until nobody has more. *is_whole_out: the keeper has this rank's block. */
static tern_status move_frames(struct tern_memory_peers *peers, bool *is_whole_out)
{
    int64_t at = TERN_SEGMENT_HEAD_BYTES;
    bool sends = peers->keeper >= 0;
    *is_whole_out = false;
    for (int i = 0; i < peers->source_count; i++) {
        peers->sources[i].is_done = false;
    }
    for (;;) {
        if (sends) {
            fill_frame(peers, &at);
        }
        int count = list_messages(peers, sends);
        if (count == 0) {
            return TERN_OK;
        }
        int64_t started = tern_clock_ns();
        TERN_RETURN_IF_ERR(tern_comm_exchange(peers->comm, peers->messages, count));
        int64_t ended = tern_clock_ns();
        for (int i = 0; i < peers->source_count; i++) {
            if (!peers->sources[i].is_done) {
                take_frame(peers, &peers->sources[i]);
            }
        }
        if (sends && peers->out->kind != DATA) {
            *is_whole_out = peers->out->kind == LAST;
            sends = false;
            end_of(peers, &peers->is_reading);
        }
        if (!is_hurried(peers)) {
            pause_after(ended - started);
        }
    }
}

/* Waits until the other ranks have sealed theirs. From then on the block is being read, unless the copy was stopped
 * meanwhile or somebody has none. */
static tern_status meet(struct tern_memory_peers *peers)
{
    int64_t says[2] = {peers->segment == NULL, atomic_load(peers->is_hurried)};
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(peers->comm, says, 2));
    bool lacks = says[0] != 0;
    peers->hears_hurry = says[1] != 0;
    pthread_mutex_lock(&peers->lock);
    peers->is_reading = !lacks && !is_stopped(peers);
    peers->segment = peers->is_reading ? peers->segment : NULL;
    pthread_mutex_unlock(&peers->lock);
    return TERN_OK;
}

/* The job, on the communicator's thread. */
static tern_status copy_run(struct tern_comm *comm, void *arg)
{
    (void)comm;
    struct tern_memory_peers *peers = arg;
    char failure[128] = "";
    bool is_whole = false;
    tern_status status = meet(peers);
    double started = tern_clock_seconds();
    bool has_block = peers->segment != NULL;
    status = status == TERN_OK ? move_frames(peers, &is_whole) : status;
    if (status == TERN_OK && has_block && !is_whole && !is_stopped(peers)) {
        snprintf(failure, sizeof failure, "rank %d has no copy of the snapshot of step %lld",
                 peers->keeper, (long long)peers->step);
    }
    end_of(peers, &peers->is_reading);
    peers->copied(peers->context, peers->step, tern_clock_seconds() - started,
                  failure[0] != '\0' ? failure : NULL);
    end_of(peers, &peers->is_running);
    return status;
}

tern_status tern_memory_peers_copy(struct tern_memory_peers *peers,
                                   const struct tern_segment *segment,
                                   int slot,
                                   int64_t step,
                                   tern_memory_copied copied,
                                   void *context)
{
    uint64_t ticket;
    pthread_mutex_lock(&peers->lock);
    while (peers->is_running) { /* one at a time: the others stop theirs too */
        pthread_cond_wait(&peers->changed, &peers->lock);
    }
    peers->is_running = true;
    pthread_mutex_unlock(&peers->lock);
    peers->segment = segment;
    peers->slot = slot;
    peers->step = step;
    peers->copied = copied;
    peers->context = context;
    atomic_store(&peers->is_stopped, false);
    tern_status status = tern_comm_submit(peers->comm, copy_run, peers, &ticket);
    if (status != TERN_OK) {
        end_of(peers, &peers->is_running);
    }
    return status;
}

void tern_memory_peers_stop(struct tern_memory_peers *peers, bool for_good)
{
    if (for_good) {
        atomic_store(&peers->is_closing, true);
    }
    pthread_mutex_lock(&peers->lock);
    atomic_store(&peers->is_stopped, true);
    while (peers->is_reading) {
        pthread_cond_wait(&peers->changed, &peers->lock);
    }
    pthread_mutex_unlock(&peers->lock);
}
