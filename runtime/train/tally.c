/* tally.c - sums of blocks and lanes to all ranks, one scale, one read-back.
 *
 * One array holds everything: of each rank in turn the sums of squares of its blocks, then the losses of its lanes. A rank
 * writes its own part, an exchange fills the rest, and an index list gives the blocks in the order of the flat gradient and
 * the lanes in theirs. */
#include "runtime/train/tally.h"

#include "kernels/ops.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    EXTRA = 2 /* behind the gathered values: the total (f64), the scale (f32, in 8 bytes) */
};

struct tern_tally {
    struct tern_tally_options options;
    int64_t count;             /* values gathered: blocks and lanes of all ranks */
    struct tern_dptr starts;   /* i64: (own blocks + 1) a bucket, then (own lanes + 1) */
    struct tern_dptr order;    /* i64 (count) */
    struct tern_dptr values;   /* f64 (count + EXTRA) */
    double *read;              /* pinned, the same */
    int64_t *order_host;       /* the same as order */
    struct tern_range *ranges; /* (ranks): bytes of each in values */
};

static int64_t value_count(const struct tern_train_state *state)
{
    return state->params->block_count + state->plan.lanes;
}

static int64_t start_count(const struct tern_train_state *state)
{
    return state->block_count + state->params->bucket_count + state->plan.lane_count + 1;
}

int64_t tern_tally_bytes(const struct tern_train_state *state)
{
    return 8 * (start_count(state) + 2 * value_count(state) + EXTRA);
}

/* ---- set-up ---- */

static void plan_starts(const struct tern_tally *tally, int64_t *starts)
{
    const struct tern_train_state *state = tally->options.state;
    const struct tern_params *params = state->params;
    int64_t used = 0;
    for (int b = 0; b < params->bucket_count; b++) {
        const struct tern_bucket_shard *shard = &state->buckets[b];
        for (int64_t i = shard->first_block; i < shard->end_block; i++) {
            starts[used++] = params->block_starts[i];
        }
        starts[used++] = shard->own_end;
    }
    for (int lane = 0; lane <= state->plan.lane_count; lane++) {
        starts[used++] = lane * tally->options.lane_tokens;
    }
    TERN_CHECK(used == start_count(state));
}

/* Where each rank's values lie, and with that where each block's and each lane's. */
static void plan_order(struct tern_tally *tally)
{
    const struct tern_train_state *state = tally->options.state;
    const struct tern_params *params = state->params;
    const struct tern_lane_plan *plan = &state->plan;
    int64_t at = 0;
    for (int rank = 0; rank < plan->ranks; rank++) {
        tally->ranges[rank].begin = at * 8;
        for (int b = 0; b < params->bucket_count; b++) {
            const struct tern_range *range = &state->buckets[b].ranges[rank];
            for (int64_t i = params->bucket_blocks[b]; i < params->bucket_blocks[b + 1]; i++) {
                int64_t start = params->block_starts[i] - params->bucket_starts[b];
                if (start >= range->begin && start < range->end) {
                    tally->order_host[i] = at++;
                }
            }
        }
        int end = tern_lane_first(plan->lanes, plan->ranks, rank + 1);
        for (int lane = tern_lane_first(plan->lanes, plan->ranks, rank); lane < end; lane++) {
            tally->order_host[params->block_count + lane] = at++;
        }
        tally->ranges[rank].end = at * 8;
    }
    TERN_CHECK(at == tally->count);
}

static tern_status take_memory(struct tern_tally *tally)
{
    const struct tern_train_state *state = tally->options.state;
    struct tern_device *device = tally->options.device;
    const struct tern_device_table *table = device->ops->device;
    size_t starts_bytes = 8 * (size_t)start_count(state);
    size_t order_bytes = 8 * (size_t)tally->count;
    size_t values_bytes = 8 * (size_t)(tally->count + EXTRA);
    TERN_RETURN_IF_ERR(table->alloc(device, "norm", starts_bytes, &tally->starts));
    TERN_RETURN_IF_ERR(table->alloc(device, "norm", order_bytes, &tally->order));
    TERN_RETURN_IF_ERR(table->alloc(device, "norm", values_bytes, &tally->values));
    tally->read = table->pin(device, "norm", values_bytes);
    tally->order_host = tern_alloc("norm", order_bytes);
    tally->ranges = tern_alloc_zero("norm", (size_t)state->plan.ranks, sizeof *tally->ranges);
    int64_t *starts = tern_alloc("norm", starts_bytes);
    tern_status status = TERN_OK;
    if (tally->read == NULL || tally->order_host == NULL || tally->ranges == NULL ||
        starts == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate the plan of the gradient norm");
        goto out;
    }
    plan_starts(tally, starts);
    plan_order(tally);
    TERN_GOTO_IF_ERR(status, table->upload(device, tally->starts, starts, starts_bytes), out);
    TERN_GOTO_IF_ERR(status, table->upload(device, tally->order, tally->order_host, order_bytes),
                     out);
out:
    tern_free(starts);
    return status;
}

tern_status tern_tally_create(const struct tern_tally_options *options, struct tern_tally **out)
{
    struct tern_tally *tally = tern_alloc_zero("norm", 1, sizeof *tally);
    if (tally == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a tally");
    }
    tally->options = *options;
    tally->count = value_count(options->state);
    tern_status status = take_memory(tally);
    if (status != TERN_OK) {
        tern_tally_destroy(tally);
        return status;
    }
    *out = tally;
    return TERN_OK;
}

void tern_tally_destroy(struct tern_tally *tally)
{
    if (tally == NULL) {
        return;
    }
    struct tern_device *device = tally->options.device;
    const struct tern_device_table *table = device->ops->device;
    table->unpin(device, tally->read);
    table->free(device, tally->starts);
    table->free(device, tally->order);
    table->free(device, tally->values);
    tern_free(tally->order_host);
    tern_free(tally->ranges);
    tern_free(tally);
}

/* ---- a step ---- */

static tern_status own_sums(struct tern_tally *tally)
{
    const struct tern_train_state *state = tally->options.state;
    struct tern_device *device = tally->options.device;
    int64_t to = tally->ranges[state->plan.rank].begin / 8;
    int64_t from = 0;
    for (int b = 0; b < state->params->bucket_count; b++) {
        const struct tern_bucket_shard *shard = &state->buckets[b];
        int64_t blocks = shard->end_block - shard->first_block;
        TERN_RETURN_IF_ERR(
            tern_op_sumsq(device, &(struct tern_sumsq_args){
                                      .x = state->grads[0],
                                      .starts = tern_dptr_at(tally->starts, from, TERN_I64),
                                      .sums = tern_dptr_at(tally->values, to, TERN_F64),
                                      .blocks = blocks,
                                  }));
        from += blocks + 1;
        to += blocks;
    }
    return tern_op_sumsq(device, &(struct tern_sumsq_args){
                                     .x = tally->options.nll,
                                     .starts = tern_dptr_at(tally->starts, from, TERN_I64),
                                     .sums = tern_dptr_at(tally->values, to, TERN_F64),
                                     .blocks = state->plan.lane_count,
                                     .is_plain = true,
                                 });
}

/* A tern_comm_job. */
static tern_status gather_run(struct tern_comm *comm, void *arg)
{
    const struct tern_tally *tally = arg;
    return tern_comm_all_gatherv(comm, tally->values, tally->ranges);
}

static tern_status gather(struct tern_tally *tally)
{
    struct tern_comm *comm = tally->options.state->data_comm;
    uint64_t ticket;
    if (comm->size == 1) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_comm_submit(comm, gather_run, tally, &ticket));
    return tern_comm_wait(comm, ticket);
}

struct tern_dptr tern_tally_scale(const struct tern_tally *tally)
{
    return tern_dptr_at(tally->values, tally->count + 1, TERN_F64);
}

tern_status tern_tally_take(struct tern_tally *tally, double count)
{
    const struct tern_train_state *state = tally->options.state;
    struct tern_device *device = tally->options.device;
    struct tern_device *reader = tally->options.reader;
    const struct tern_device_table *table = device->ops->device;
    TERN_RETURN_IF_ERR(own_sums(tally));
    TERN_RETURN_IF_ERR(gather(tally));
    TERN_RETURN_IF_ERR(
        tern_op_clip(device, &(struct tern_clip_args){
                                 .values = tally->values,
                                 .order = tally->order,
                                 .total = tern_dptr_at(tally->values, tally->count, TERN_F64),
                                 .scale = tern_tally_scale(tally),
                                 .n = tally->count,
                                 .blocks = state->params->block_count,
                                 .losses = state->plan.lanes,
                                 .count = count,
                                 .max_norm = tally->options.max_norm,
                             }));
    if (reader != device) {
        TERN_RETURN_IF_ERR(table->after(reader, device));
    }
    return table->download_begin(reader, tally->read, tally->values,
                                 8 * (size_t)(tally->count + EXTRA));
}

static void name_culprit(const struct tern_tally *tally, char *culprit)
{
    const struct tern_params *params = tally->options.state->params;
    for (int64_t i = 0; i < params->block_count; i++) {
        if (!isfinite(tally->read[tally->order_host[i]])) {
            const struct tern_param *param = tern_params_at(params, params->block_starts[i]);
            snprintf(culprit, TERN_PARAM_NAME_BYTES, "%s", param != NULL ? param->name : "padding");
            return;
        }
    }
}

tern_status tern_tally_read(struct tern_tally *tally, struct tern_tally_found *found_out)
{
    const struct tern_train_state *state = tally->options.state;
    struct tern_device *reader = tally->options.reader;
    float scale;
    TERN_RETURN_IF_ERR(reader->ops->device->sync(reader));
    memcpy(&scale, &tally->read[tally->count + 1], sizeof scale);
    *found_out = (struct tern_tally_found){.sum_squares = tally->read[tally->count],
                                           .is_skipped = !isfinite(scale)};
    for (int lane = 0; lane < state->plan.lanes; lane++) {
        int64_t at = tally->order_host[state->params->block_count + lane];
        found_out->loss += tally->read[at];
    }
    if (found_out->is_skipped) {
        name_culprit(tally, found_out->culprit);
    }
    return TERN_OK;
}
