/* state.c - ownership, memory, exchange, and what a checkpoint holds of it. */
#include "runtime/train/state.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <string.h>

static int64_t bucket_start(const struct tern_train_state *state, int bucket)
{
    return state->params->bucket_starts[bucket];
}

/* Cuts of a bucket at its blocks, relative to its start; the last is its whole length with
 * padding. */
static tern_status plan_bucket(struct tern_train_state *state, int bucket, int64_t *cuts)
{
    const struct tern_params *params = state->params;
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
                                  const struct tern_params *params,
                                  enum tern_dtype dtype,
                                  struct tern_comm *comm,
                                  int lanes,
                                  int64_t chunk_floats)
{
    *state = (struct tern_train_state){
        .params = params, .dtype = dtype, .comm = comm, .data_comm = comm};
    TERN_RETURN_IF_ERR(tern_lane_plan_make(lanes, comm->size, comm->rank, &state->plan));
    state->plan.chunk_floats = chunk_floats > 0 ? chunk_floats : state->plan.chunk_floats;
    size_t buckets = (size_t)params->bucket_count;
    state->buckets = tern_alloc_zero("state", buckets, sizeof *state->buckets);
    state->ranges = tern_alloc_zero("state", buckets * (size_t)comm->size, sizeof *state->ranges);
    state->gathers = tern_alloc_zero("state", buckets, sizeof *state->gathers);
    int64_t *cuts = tern_alloc("state", (size_t)(params->block_count + 1) * sizeof *cuts);
    tern_status status = TERN_OK;
    if (state->buckets == NULL || state->ranges == NULL || state->gathers == NULL || cuts == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate the sharding of %zu buckets", buckets);
        goto out;
    }
    for (int bucket = 0; bucket < params->bucket_count; bucket++) {
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
    int64_t flat = state->params->flat_size;
    bool has_master = state->dtype != TERN_F32;
    return (struct tern_state_bytes){
        .weights = flat * (int64_t)tern_dtype_bytes(state->dtype),
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
    if (bytes.master > 0 || state->dtype != TERN_F32) {
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
    return state->dtype == TERN_F32 ? tern_dptr_at(state->weights, shard->own_begin, TERN_F32)
                                    : tern_dptr_at(state->master, shard->at, TERN_F32);
}

bool tern_train_state_piece(const struct tern_train_state *state,
                            int *index,
                            struct tern_state_piece *piece)
{
    const struct tern_params *params = state->params;
    while (*index < params->count) {
        const struct tern_param *param = &params->items[(*index)++];
        const struct tern_bucket_shard *shard = &state->buckets[param->bucket];
        int64_t begin = param->offset > shard->own_begin ? param->offset : shard->own_begin;
        int64_t end = param->offset + param->size < shard->own_end ? param->offset + param->size
                                                                   : shard->own_end;
        if (begin < end) {
            *piece = (struct tern_state_piece){
                .param = param, .bucket = param->bucket, .begin = begin, .end = end};
            return true;
        }
    }
    return false;
}

struct tern_dptr tern_train_state_piece_master(const struct tern_train_state *state,
                                               const struct tern_state_piece *piece)
{
    int64_t skip = piece->begin - state->buckets[piece->bucket].own_begin;
    return tern_dptr_at(tern_train_state_master(state, piece->bucket), skip, TERN_F32);
}

int64_t tern_train_state_piece_index(const struct tern_train_state *state,
                                     const struct tern_state_piece *piece)
{
    const struct tern_bucket_shard *shard = &state->buckets[piece->bucket];
    return shard->at + piece->begin - shard->own_begin;
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
    int64_t width = (int64_t)tern_dtype_bytes(state->dtype);
    const struct tern_range *ranges = state->buckets[bucket].ranges;
    for (int rank = 0; rank < state->comm->size; rank++) {
        gather->ranges[rank] =
            (struct tern_range){ranges[rank].begin * width, ranges[rank].end * width};
    }
    gather->data = tern_dptr_at(state->weights, bucket_start(state, bucket), state->dtype);
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
    for (int bucket = 0; bucket < state->params->bucket_count; bucket++) {
        TERN_RETURN_IF_ERR(tern_train_state_need_shared(state, bucket));
    }
    return TERN_OK;
}

tern_status tern_train_state_publish(struct tern_train_state *state)
{
    enum tern_dtype dtype = state->dtype;
    for (int bucket = 0; bucket < state->params->bucket_count; bucket++) {
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

const char *const tern_train_state_groups[3] = {"model", "optimizer/exp_avg",
                                                "optimizer/exp_avg_sq"};

int64_t tern_train_state_slab_count(const struct tern_train_state *state)
{
    int64_t count = 0;
    struct tern_state_piece piece;
    for (int index = 0; tern_train_state_piece(state, &index, &piece);) {
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
        struct tern_state_piece piece;
        for (int index = 0; tern_train_state_piece(state, &index, &piece);) {
            const struct tern_param *param = piece.param;
            struct tern_ckpt_slab *slab = &slabs[used++];
            *slab = (struct tern_ckpt_slab){
                .group = tern_train_state_groups[group],
                .name = param->name,
                .dtype = TERN_F32,
                .rank = param->rank,
                .global_shape = {param->shape[0], param->shape[1]},
                .row_offset = (piece.begin - param->offset) / param->shape[1],
                .row_count = (piece.end - piece.begin) / param->shape[1],
                .data =
                    base + group * state->shard_size + tern_train_state_piece_index(state, &piece),
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
    if (state->dtype != TERN_F32) {
        TERN_RETURN_IF_ERR(copy_out(state, base, state->master, state->shard_size));
    } else {
        for (int bucket = 0; bucket < state->params->bucket_count; bucket++) {
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
