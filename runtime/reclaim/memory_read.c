/* memory_read.c - every rank's part of a snapshot that is in memory: straight from the blocks where all ranks can see them,
 * else each shard in pieces from a rank that can, to all.
 *
 * The pieces need little memory on any host, however large the state; each byte is sent once to each rank, at the start of
 * a launch, when the network has nothing else to do. */
#include "runtime/base/fault.h"
#include "runtime/base/mem.h"
#include "runtime/reclaim/memory_find_impl.h"

#include <string.h>

enum {
    PIECE_BYTES = 8 << 20 /* a row at least */
};

/* A shard, as one rank sees it. */
struct shard {
    struct tern_segment segment; /* open where this rank reads the block itself */
    bool is_open;
    int sender; /* rank that gives it to the others */
    int64_t slab_count, state_bytes;
    struct tern_segment_slab *slabs; /* owned; of a shard that is sent */
};

struct reading {
    struct tern_memory_found *found;
    tern_memory_sink sink;
    void *context;
    bool is_sent; /* some rank can't see all blocks: all is sent */
    uint8_t *piece;
    int64_t piece_bytes;
    tern_status status; /* the first failure of this rank; the others are not left alone for it */
    char sentence[TERN_DETAIL_BYTES];
};

static void note(struct reading *reading, tern_status status)
{
    if (status != TERN_OK && reading->status == TERN_OK) {
        reading->status = status;
        memcpy(reading->sentence, tern_detail(), strnlen(tern_detail(), TERN_DETAIL_BYTES - 1) + 1);
    }
}

static void give(struct reading *reading, const struct tern_ckpt_slab *rows)
{
    if (reading->status == TERN_OK && rows->row_count > 0) {
        note(reading, reading->sink(reading->context, rows));
    }
}

/* Whether each rank has all shards in its own folder. */
static tern_status find_way(struct reading *reading)
{
    const struct tern_memory_found *found = reading->found;
    int place = tern_memory_place_of(found, found->comm->rank);
    int64_t is_sent = 0;
    for (int shard = 0; shard < found->set.ranks; shard++) {
        is_sent |= tern_memory_copy_of(found, place, shard)->place != place;
    }
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(found->comm, &is_sent, 1));
    reading->is_sent = is_sent != 0;
    return TERN_OK;
}

/* Opens the block where this rank is to read it. */
static void open_shard(struct reading *reading, int number, struct shard *shard)
{
    const struct tern_memory_found *found = reading->found;
    int rank = found->comm->rank;
    int place = reading->is_sent ? -1 : tern_memory_place_of(found, rank);
    const struct tern_memory_copy *copy = tern_memory_copy_of(found, place, number);
    *shard = (struct shard){.sender = tern_memory_rank_of(found, copy->place, number)};
    if (reading->is_sent && shard->sender != rank) {
        return;
    }
    tern_status status = tern_segment_open(copy->name, &shard->segment);
    shard->is_open = status == TERN_OK;
    if (status == TERN_OK &&
        (shard->segment.head->step != found->set.step || shard->segment.head->rank != number)) {
        status = tern_fail(TERN_ERR_CORRUPT, "'%s' was written to meanwhile", copy->name);
    }
    note(reading, status);
}

static void close_shard(struct reading *reading, struct shard *shard)
{
    if (shard->is_open) {
        if (!tern_segment_is_unchanged(&shard->segment)) {
            note(reading, tern_fail(TERN_ERR_CORRUPT, "a snapshot was written to meanwhile"));
        }
        tern_segment_close(&shard->segment);
    }
    tern_free(shard->slabs);
}

static void read_here(struct reading *reading, const struct shard *shard)
{
    for (int64_t i = 0; shard->is_open && i < shard->segment.head->slab_count; i++) {
        struct tern_ckpt_slab slab;
        tern_segment_slab_at(&shard->segment, i, &slab);
        give(reading, &slab);
    }
}

/* ---- sent ---- */

/* How long the table and the JSON are; -1: the sender can't read the block after all. */
static tern_status send_sizes(struct reading *reading, struct shard *shard)
{
    int64_t sizes[2] = {-1, -1};
    if (shard->is_open && reading->status == TERN_OK) {
        sizes[0] = shard->segment.head->slab_count;
        sizes[1] = shard->segment.head->state_bytes;
    }
    TERN_RETURN_IF_ERR(
        tern_comm_broadcast(reading->found->comm, sizes, sizeof sizes, shard->sender));
    shard->slab_count = sizes[0];
    shard->state_bytes = sizes[1];
    return TERN_OK;
}

/* A rank without the memory for it says so before any waits for it. */
static tern_status send_table(struct reading *reading, struct shard *shard)
{
    struct tern_comm *comm = reading->found->comm;
    size_t bytes = (size_t)shard->slab_count * sizeof *shard->slabs;
    shard->slabs = tern_alloc("memory", bytes + 1);
    int64_t cannot = shard->slabs == NULL;
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(comm, &cannot, 1));
    if (cannot) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a table of %zu bytes", bytes);
    }
    if (comm->rank == shard->sender) {
        memcpy(shard->slabs, shard->segment.slabs, bytes);
    }
    return tern_comm_broadcast(comm, shard->slabs, bytes, shard->sender);
}

static int64_t row_bytes(const struct tern_segment_slab *slab)
{
    int64_t bytes = (int64_t)tern_dtype_bytes((enum tern_dtype)slab->dtype);
    for (int i = 1; i < slab->rank; i++) {
        bytes *= slab->shape[i];
    }
    return bytes;
}

static tern_status make_piece(struct reading *reading, const struct shard *shard)
{
    int64_t bytes = PIECE_BYTES;
    for (int64_t i = 0; i < shard->slab_count; i++) {
        bytes = row_bytes(&shard->slabs[i]) > bytes ? row_bytes(&shard->slabs[i]) : bytes;
    }
    if (bytes > reading->piece_bytes) {
        tern_free(reading->piece);
        reading->piece = tern_alloc("memory", (size_t)bytes);
        reading->piece_bytes = reading->piece != NULL ? bytes : 0;
    }
    int64_t cannot = reading->piece == NULL;
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(reading->found->comm, &cannot, 1));
    return cannot ? tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld bytes to read a snapshot",
                              (long long)bytes)
                  : TERN_OK;
}

/* One slab, a few rows at a time. */
static tern_status send_slab(struct reading *reading, const struct shard *shard, int64_t index)
{
    const struct tern_segment_slab *slab = &shard->slabs[index];
    int64_t width = row_bytes(slab);
    int64_t most = reading->piece_bytes / (width > 0 ? width : 1);
    for (int64_t row = 0; row < slab->row_count; row += most) {
        int64_t rows = slab->row_count - row < most ? slab->row_count - row : most;
        size_t bytes = (size_t)(rows * width);
        if (shard->is_open) {
            memcpy(reading->piece, shard->segment.data + slab->at + row * width, bytes);
        }
        TERN_RETURN_IF_ERR(
            tern_comm_broadcast(reading->found->comm, reading->piece, bytes, shard->sender));
        struct tern_ckpt_slab part = {
            .group = slab->group,
            .name = slab->name,
            .dtype = (enum tern_dtype)slab->dtype,
            .rank = slab->rank,
            .row_offset = slab->row_offset + row,
            .row_count = rows,
            .data = reading->piece,
        };
        memcpy(part.global_shape, slab->shape, sizeof part.global_shape);
        give(reading, &part);
    }
    return TERN_OK;
}

static tern_status read_sent(struct reading *reading, struct shard *shard)
{
    TERN_RETURN_IF_ERR(send_sizes(reading, shard));
    if (shard->slab_count < 0) { /* the sender says why when all are through */
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(send_table(reading, shard));
    TERN_RETURN_IF_ERR(tern_segment_check_slabs(shard->slabs, shard->slab_count, INT64_MAX));
    TERN_RETURN_IF_ERR(make_piece(reading, shard));
    for (int64_t i = 0; i < shard->slab_count; i++) {
        TERN_RETURN_IF_ERR(send_slab(reading, shard, i));
    }
    return TERN_OK;
}

/* ---- all of it ---- */

/* What goes with the tensors, from the first shard. */
static tern_status read_state(struct reading *reading, const struct shard *shard, char **json_out)
{
    struct tern_comm *comm = reading->found->comm;
    int64_t bytes = shard->is_open ? shard->segment.head->state_bytes : shard->state_bytes;
    bytes = bytes > 0 ? bytes : 0;
    *json_out = tern_alloc_zero("memory", (size_t)bytes + 1, 1);
    if (*json_out == NULL) {
        note(reading, tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld bytes", (long long)bytes));
    }
    if (*json_out != NULL && shard->is_open) {
        memcpy(*json_out, shard->segment.state, (size_t)bytes);
    }
    if (!reading->is_sent) {
        return TERN_OK;
    }
    int64_t cannot = *json_out == NULL || shard->state_bytes < 0;
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(comm, &cannot, 1));
    return cannot ? TERN_OK : tern_comm_broadcast(comm, *json_out, (size_t)bytes, shard->sender);
}

static tern_status read_shard(struct reading *reading, int number, char **json_out)
{
    struct shard shard;
    tern_status status = TERN_OK;
    open_shard(reading, number, &shard);
    if (reading->is_sent) {
        status = read_sent(reading, &shard);
    } else {
        read_here(reading, &shard);
    }
    if (status == TERN_OK && number == 0) {
        status = read_state(reading, &shard, json_out);
    }
    close_shard(reading, &shard);
    return status;
}

tern_status tern_memory_found_read(struct tern_memory_found *found,
                                   tern_memory_sink sink,
                                   void *context,
                                   char **json_out)
{
    struct reading reading = {.found = found, .sink = sink, .context = context};
    *json_out = NULL;
    int error = tern_file_fault(TERN_FAULT_MEMORY_RESTORE);
    if (error != 0) {
        note(&reading, tern_fail_errno(TERN_ERR_IO, error, "cannot read the snapshot in memory"));
    }
    tern_status status = find_way(&reading);
    for (int shard = 0; shard < found->set.ranks && status == TERN_OK; shard++) {
        status = read_shard(&reading, shard, json_out);
    }
    tern_free(reading.piece);
    if (status == TERN_OK && reading.status != TERN_OK) {
        tern_detail_set(reading.sentence);
        status = reading.status;
    }
    if (status != TERN_OK) {
        tern_free(*json_out);
        *json_out = NULL;
    }
    return status;
}
