/* state.c - ownership, memory, initial values, reading back. */
#include "runtime/train/state.h"

#include "models/stored.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <pthread.h>
#include <string.h>

static int64_t bucket_start(const struct tern_train_state *state, int bucket)
{
    return state->model->params.bucket_starts[bucket];
}

/* Cuts of a bucket at its blocks, relative to its start; the last is its whole length with
 * padding. */
static tern_status plan_bucket(struct tern_train_state *state, int bucket, int64_t *cuts)
{
    const struct tern_params *params = &state->model->params;
    int ranks = state->comm->size;
    int64_t first = params->bucket_blocks[bucket];
    int64_t count = params->bucket_blocks[bucket + 1] - first;
    for (int64_t i = 0; i <= count; i++) {
        cuts[i] = params->block_starts[first + i] - params->bucket_starts[bucket];
    }
    struct tern_range *ranges = state->ranges + (int64_t)bucket * ranks;
    tern_lane_ranges(ranks, cuts, count + 1, ranges);
    struct tern_bucket_shard *shard = &state->buckets[bucket];
    const struct tern_range *own = &ranges[state->comm->rank];
    *shard = (struct tern_bucket_shard){
        .ranges = ranges,
        .own_begin = params->bucket_starts[bucket] + own->begin,
        .own_end = params->bucket_starts[bucket] + own->end,
        .at = state->shard_size,
        .first_block = first,
    };
    while (shard->first_block < first + count &&
           params->block_starts[shard->first_block] < shard->own_begin) {
        shard->first_block++;
    }
    shard->end_block = shard->first_block;
    while (shard->end_block < first + count &&
           params->block_starts[shard->end_block] < shard->own_end) {
        shard->end_block++;
    }
    state->shard_size += own->end - own->begin;
    state->block_count += shard->end_block - shard->first_block;
    int64_t scratch = tern_lane_scratch_floats(&state->plan, ranges);
    state->reduce_scratch_floats =
        scratch > state->reduce_scratch_floats ? scratch : state->reduce_scratch_floats;
    return TERN_OK;
}

tern_status tern_train_state_plan(struct tern_train_state *state,
                                  const struct tern_model *model,
                                  struct tern_comm *comm,
                                  int lanes,
                                  int64_t chunk_floats)
{
    *state = (struct tern_train_state){.model = model, .comm = comm, .data_comm = comm};
    TERN_RETURN_IF_ERR(tern_lane_plan_make(lanes, comm->size, comm->rank, &state->plan));
    state->plan.chunk_floats = chunk_floats > 0 ? chunk_floats : state->plan.chunk_floats;
    size_t buckets = (size_t)model->params.bucket_count;
    state->buckets = tern_alloc_zero("state", buckets, sizeof *state->buckets);
    state->ranges = tern_alloc_zero("state", buckets * (size_t)comm->size, sizeof *state->ranges);
    state->gathers = tern_alloc_zero("state", buckets, sizeof *state->gathers);
    int64_t *cuts = tern_alloc("state", (size_t)(model->params.block_count + 1) * sizeof *cuts);
    tern_status status = TERN_OK;
    if (state->buckets == NULL || state->ranges == NULL || state->gathers == NULL || cuts == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate the sharding of %zu buckets", buckets);
        goto out;
    }
    for (int bucket = 0; bucket < model->params.bucket_count; bucket++) {
        TERN_GOTO_IF_ERR(status, plan_bucket(state, bucket, cuts), out);
    }
out:
    tern_free(cuts);
    if (status != TERN_OK) {
        tern_train_state_fini(state);
    }
    return status;
}

struct tern_state_bytes tern_train_state_bytes(const struct tern_train_state *state)
{
    int64_t flat = state->model->params.flat_size;
    bool has_master = state->model->dtype != TERN_F32;
    return (struct tern_state_bytes){
        .weights = flat * (int64_t)tern_dtype_bytes(state->model->dtype),
        .gradients = flat * state->plan.buffers * 4,
        .master = has_master ? state->shard_size * 4 : 0,
        .moments = state->shard_size * 8,
        .reduce = state->reduce_scratch_floats * 4,
    };
}

/* Cleared memory: what no pass writes (padding between buckets) and no update made yet (moments) is
 * zero. */
static tern_status reserve(struct tern_train_state *state,
                           const char *tag,
                           int64_t bytes,
                           struct tern_dptr *out)
{
    const struct tern_device_table *table = state->device->ops->device;
    return table->alloc(state->device, tag, (size_t)(bytes > 0 ? bytes : 64), out);
}

tern_status tern_train_state_alloc(struct tern_train_state *state, struct tern_device *device)
{
    state->device = device;
    struct tern_state_bytes bytes = tern_train_state_bytes(state);
    TERN_RETURN_IF_ERR(reserve(state, "weights", bytes.weights, &state->weights));
    if (bytes.master > 0 || state->model->dtype != TERN_F32) {
        TERN_RETURN_IF_ERR(reserve(state, "master weights", bytes.master, &state->master));
    }
    TERN_RETURN_IF_ERR(reserve(state, "moments", bytes.moments / 2, &state->exp_avg));
    TERN_RETURN_IF_ERR(reserve(state, "moments", bytes.moments / 2, &state->exp_avg_sq));
    for (int i = 0; i < state->plan.buffers; i++) {
        TERN_RETURN_IF_ERR(
            reserve(state, "gradients", bytes.gradients / state->plan.buffers, &state->grads[i]));
    }
    return reserve(state, "reduction", bytes.reduce, &state->reduce_scratch);
}

tern_status tern_train_state_adopt(struct tern_train_state *state)
{
    struct tern_state_bytes bytes = tern_train_state_bytes(state);
    TERN_RETURN_IF_ERR(tern_comm_adopt(state->data_comm, state->weights, (size_t)bytes.weights));
    return tern_comm_adopt(state->data_comm, state->grads[0],
                           (size_t)(bytes.gradients / state->plan.buffers));
}

void tern_train_state_fini(struct tern_train_state *state)
{
    if (state->device != NULL) {
        const struct tern_device_table *table = state->device->ops->device;
        table->free(state->device, state->weights);
        table->free(state->device, state->master);
        table->free(state->device, state->exp_avg);
        table->free(state->device, state->exp_avg_sq);
        for (int i = 0; i < state->plan.buffers; i++) {
            table->free(state->device, state->grads[i]);
        }
        table->free(state->device, state->reduce_scratch);
    }
    tern_free(state->buckets);
    tern_free(state->ranges);
    tern_free(state->gathers);
    *state = (struct tern_train_state){0};
}

struct tern_dptr tern_train_state_master(const struct tern_train_state *state, int bucket)
{
    const struct tern_bucket_shard *shard = &state->buckets[bucket];
    return state->model->dtype == TERN_F32
               ? tern_dptr_at(state->weights, shard->own_begin, TERN_F32)
               : tern_dptr_at(state->master, shard->at, TERN_F32);
}

/* One run of elements that this rank owns of one tensor. */
struct piece {
    const struct tern_param *param;
    int bucket;
    int64_t begin, end; /* in the flat block */
};

/* The next piece at or after parameter *index; false at the end. */
static bool next_piece(const struct tern_train_state *state, int *index, struct piece *piece)
{
    const struct tern_params *params = &state->model->params;
    while (*index < params->count) {
        const struct tern_param *param = &params->items[(*index)++];
        const struct tern_bucket_shard *shard = &state->buckets[param->bucket];
        int64_t begin = param->offset > shard->own_begin ? param->offset : shard->own_begin;
        int64_t end = param->offset + param->size < shard->own_end ? param->offset + param->size
                                                                   : shard->own_end;
        if (begin < end) {
            *piece =
                (struct piece){.param = param, .bucket = param->bucket, .begin = begin, .end = end};
            return true;
        }
    }
    return false;
}

/* Address of a piece's first element in the masters, and its index in the shard arrays. */
static struct tern_dptr piece_master(const struct tern_train_state *state,
                                     const struct piece *piece)
{
    int64_t skip = piece->begin - state->buckets[piece->bucket].own_begin;
    return tern_dptr_at(tern_train_state_master(state, piece->bucket), skip, TERN_F32);
}

static int64_t piece_shard_index(const struct tern_train_state *state, const struct piece *piece)
{
    const struct tern_bucket_shard *shard = &state->buckets[piece->bucket];
    return shard->at + piece->begin - shard->own_begin;
}

/* ---- initial values ---- */

enum {
    LOAD_ELEMENTS = 4 << 20, /* read at a time */
    INIT_CHUNK = 1 << 16,
    INIT_THREADS_MAX = 64
};

struct init_worker {
    struct tern_train_state *state;
    uint64_t seed;
    int number, count; /* does every count-th chunk, from number on */
    float *chunk;
    tern_status status;
    pthread_t thread;
    bool is_started;
};

static void *init_run(void *arg)
{
    struct init_worker *w = arg;
    const struct tern_model *model = w->state->model;
    const struct tern_device_table *table = w->state->device->ops->device;
    struct piece piece;
    int64_t turn = 0;
    for (int index = 0; next_piece(w->state, &index, &piece) && w->status == TERN_OK;) {
        struct tern_dptr dst = piece_master(w->state, &piece);
        int64_t size = piece.end - piece.begin;
        for (int64_t at = 0; at < size && w->status == TERN_OK; at += INIT_CHUNK) {
            if (turn++ % w->count != w->number) {
                continue;
            }
            int64_t n = size - at < INIT_CHUNK ? size - at : INIT_CHUNK;
            tern_param_initial(&model->params, piece.param, model->config.layers, w->seed,
                               piece.begin - piece.param->offset + at, n, w->chunk);
            w->status = table->upload(w->state->device, tern_dptr_at(dst, at, TERN_F32), w->chunk,
                                      (size_t)n * sizeof *w->chunk);
        }
    }
    return NULL;
}

tern_status tern_train_state_init(struct tern_train_state *state, uint64_t seed, int threads)
{
    struct init_worker workers[INIT_THREADS_MAX];
    int count = threads < 1 ? 1 : threads > INIT_THREADS_MAX ? INIT_THREADS_MAX : threads;
    float *chunks = tern_alloc("init", (size_t)count * INIT_CHUNK * sizeof *chunks);
    if (chunks == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %d chunks for initial weights", count);
    }
    for (int i = 0; i < count; i++) {
        workers[i] = (struct init_worker){.state = state,
                                          .seed = seed,
                                          .number = i,
                                          .count = count,
                                          .chunk = chunks + (size_t)i * INIT_CHUNK};
        workers[i].is_started =
            i > 0 && pthread_create(&workers[i].thread, NULL, init_run, &workers[i]) == 0;
    }
    for (int i = 0; i < count; i++) {
        if (!workers[i].is_started) {
            init_run(&workers[i]); /* the first one, and whatever could not get a thread */
        }
    }
    tern_status status = TERN_OK;
    for (int i = 0; i < count; i++) {
        if (workers[i].is_started) {
            pthread_join(workers[i].thread, NULL);
        }
        status = status != TERN_OK ? status : workers[i].status;
    }
    tern_free(chunks);
    return status;
}

/* ---- all-gather ---- */

/* The weights of one bucket from their owners to everybody; runs on the communicator's thread. */
static tern_status gather_run(struct tern_comm *comm, void *arg)
{
    const struct tern_weight_gather *gather = arg;
    return tern_comm_all_gatherv(comm, gather->data, gather->ranges);
}

tern_status tern_train_state_share(struct tern_train_state *state, int bucket)
{
    struct tern_weight_gather *gather = &state->gathers[bucket];
    if (state->comm->size == 1) {
        return TERN_OK;
    }
    int64_t width = (int64_t)tern_dtype_bytes(state->model->dtype);
    const struct tern_range *ranges = state->buckets[bucket].ranges;
    for (int rank = 0; rank < state->comm->size; rank++) {
        gather->ranges[rank] =
            (struct tern_range){ranges[rank].begin * width, ranges[rank].end * width};
    }
    gather->data = tern_dptr_at(state->weights, bucket_start(state, bucket), state->model->dtype);
    gather->is_under_way = true;
    return tern_comm_submit(state->data_comm, gather_run, gather, &gather->ticket);
}

tern_status tern_train_state_need_shared(struct tern_train_state *state, int bucket)
{
    struct tern_weight_gather *gather = &state->gathers[bucket];
    if (!gather->is_under_way) {
        return TERN_OK;
    }
    gather->is_under_way = false;
    return tern_comm_wait(state->data_comm, gather->ticket);
}

tern_status tern_train_state_wait_shared(struct tern_train_state *state)
{
    for (int bucket = 0; bucket < state->model->params.bucket_count; bucket++) {
        TERN_RETURN_IF_ERR(tern_train_state_need_shared(state, bucket));
    }
    return TERN_OK;
}

tern_status tern_train_state_publish(struct tern_train_state *state)
{
    enum tern_dtype dtype = state->model->dtype;
    for (int bucket = 0; bucket < state->model->params.bucket_count; bucket++) {
        const struct tern_bucket_shard *shard = &state->buckets[bucket];
        int64_t count = shard->own_end - shard->own_begin;
        if (dtype != TERN_F32 && count > 0) {
            struct tern_cast_args cast = {
                .src = tern_train_state_master(state, bucket),
                .dst = tern_dptr_at(state->weights, shard->own_begin, dtype),
                .n = count,
                .src_dtype = TERN_F32,
                .dst_dtype = dtype,
            };
            TERN_RETURN_IF_ERR(tern_op_cast(state->device, &cast));
        }
        TERN_RETURN_IF_ERR(tern_train_state_share(state, bucket));
    }
    return tern_train_state_wait_shared(state);
}

/* ---- checkpoints ---- */

static const char *const g_groups[3] = {"model", "optimizer/exp_avg", "optimizer/exp_avg_sq"};

int64_t tern_train_state_slab_count(const struct tern_train_state *state)
{
    int64_t count = 0;
    struct piece piece;
    for (int index = 0; next_piece(state, &index, &piece);) {
        count++;
    }
    return 3 * count;
}

void tern_train_state_slabs(const struct tern_train_state *state,
                            const float *base,
                            struct tern_ckpt_slab *slabs)
{
    int64_t used = 0;
    for (int group = 0; group < 3; group++) {
        struct piece piece;
        for (int index = 0; next_piece(state, &index, &piece);) {
            const struct tern_param *param = piece.param;
            struct tern_ckpt_slab *slab = &slabs[used++];
            *slab = (struct tern_ckpt_slab){
                .group = g_groups[group],
                .name = param->name,
                .dtype = TERN_F32,
                .rank = param->rank,
                .global_shape = {param->shape[0], param->shape[1]},
                .row_offset = (piece.begin - param->offset) / param->shape[1],
                .row_count = (piece.end - piece.begin) / param->shape[1],
                .data = base + group * state->shard_size + piece_shard_index(state, &piece),
            };
            TERN_CHECK((piece.begin - param->offset) % param->shape[1] == 0);
            TERN_CHECK((piece.end - piece.begin) % param->shape[1] == 0);
        }
    }
}

/* Host memory on this backend: one parallel copy; elsewhere the copier begins a download. */
static tern_status copy_out(const struct tern_train_state *state,
                            float *dst,
                            struct tern_dptr src,
                            int64_t n)
{
    const struct tern_device_table *table = state->device->ops->device;
    if (n == 0) {
        return TERN_OK;
    }
    if (table->host_view(state->device, src) == NULL) {
        return table->download_begin(state->copier, dst, src, (size_t)n * sizeof *dst);
    }
    return tern_op_cast(state->device, &(struct tern_cast_args){
                                           .src = src,
                                           .dst = {(uint64_t)(uintptr_t)dst},
                                           .n = n,
                                           .src_dtype = TERN_F32,
                                           .dst_dtype = TERN_F32,
                                       });
}

tern_status tern_train_state_snapshot(const struct tern_train_state *state, float *base)
{
    if (state->copier != NULL) {
        TERN_RETURN_IF_ERR(state->device->ops->device->after(state->copier, state->device));
    }
    if (state->model->dtype != TERN_F32) {
        TERN_RETURN_IF_ERR(copy_out(state, base, state->master, state->shard_size));
    } else {
        for (int bucket = 0; bucket < state->model->params.bucket_count; bucket++) {
            const struct tern_bucket_shard *shard = &state->buckets[bucket];
            TERN_RETURN_IF_ERR(copy_out(state, base + shard->at,
                                        tern_train_state_master(state, bucket),
                                        shard->own_end - shard->own_begin));
        }
    }
    TERN_RETURN_IF_ERR(
        copy_out(state, base + state->shard_size, state->exp_avg, state->shard_size));
    return copy_out(state, base + 2 * state->shard_size, state->exp_avg_sq, state->shard_size);
}

tern_status tern_train_state_settle_snapshot(const struct tern_train_state *state)
{
    return state->copier != NULL ? state->copier->ops->device->sync(state->copier) : TERN_OK;
}

tern_status tern_train_state_guard_snapshot(const struct tern_train_state *state)
{
    return state->copier != NULL ? state->device->ops->device->after(state->device, state->copier)
                                 : TERN_OK;
}

/* Through `rows`, host memory for room floats. */
static tern_status load_piece(struct tern_train_state *state,
                              struct tern_ckpt_reader *reader,
                              const struct piece *piece,
                              float *rows,
                              int64_t room)
{
    const struct tern_device_table *table = state->device->ops->device;
    const struct tern_param *param = piece->param;
    int64_t index = piece_shard_index(state, piece);
    int64_t width = param->shape[1];
    int64_t first = (piece->begin - param->offset) / width;
    int64_t count = (piece->end - piece->begin) / width;
    struct tern_dptr targets[3] = {piece_master(state, piece),
                                   tern_dptr_at(state->exp_avg, index, TERN_F32),
                                   tern_dptr_at(state->exp_avg_sq, index, TERN_F32)};
    for (int group = 0; group < 3; group++) {
        for (int64_t row = 0; row < count; row += room / width) {
            int64_t take = count - row < room / width ? count - row : room / width;
            TERN_RETURN_IF_ERR(
                tern_ckpt_read(reader, g_groups[group], param->name, first + row, take, rows));
            TERN_RETURN_IF_ERR(table->upload(state->device,
                                             tern_dptr_at(targets[group], row * width, TERN_F32),
                                             rows, (size_t)(take * width) * sizeof *rows));
        }
    }
    return TERN_OK;
}

tern_status tern_train_state_load(struct tern_train_state *state, struct tern_ckpt_reader *reader)
{
    const struct tern_params *params = &state->model->params;
    int64_t room = LOAD_ELEMENTS;
    for (int group = 0; group < 3; group++) {
        TERN_RETURN_IF_ERR(tern_stored_check(params, reader, g_groups[group]));
    }
    for (int i = 0; i < params->count; i++) { /* a row at least */
        room = params->items[i].shape[1] > room ? params->items[i].shape[1] : room;
    }
    float *rows = tern_alloc("load", (size_t)room * sizeof *rows);
    if (rows == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld values to read a checkpoint",
                         (long long)room);
    }
    tern_status status = TERN_OK;
    struct piece piece;
    for (int index = 0; status == TERN_OK && next_piece(state, &index, &piece);) {
        status = load_piece(state, reader, &piece, rows, room);
    }
    tern_free(rows);
    return status;
}
