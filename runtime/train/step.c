/* step.c - own lanes through the model, buckets through the tree, one norm, one update. */
#include "runtime/train/step.h"

#include "io/tokens.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/mem.h"
#include "runtime/train/micro.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Kinds of micro-batch a gradient buffer: it accumulates, its gradients are final, its weights may still be coming. */
enum {
    MICRO_ACCUMULATES = 1,
    MICRO_IS_LAST = 2,
    MICRO_IS_FIRST = 4,
    MICRO_KINDS = 8
};

struct tern_stepper {
    const struct tern_train_config *config;
    struct tern_train_state *state;
    struct tern_device *device;      /* computes the passes and the update */
    struct tern_device *comm_device; /* adds inside reductions, on the communicator's thread */
    struct tern_pass *pass;
    struct tern_micro *micro;
    struct tern_dptr ids, targets; /* i32 (micro_batch, T) */
    struct tern_dptr nll;          /* f32 (micro_batch, T) */
    struct tern_dptr nll_step; /* f32 (own sequences, T): a step's losses, read once at its end */
    float *nll_host;           /* pinned, the same */
    struct tern_dptr block_starts;  /* i64 (own blocks + 1) a bucket, one after another */
    struct tern_dptr block_sums;    /* f64 (own blocks) */
    double *sums_mine;              /* pinned (own blocks) */
    double *sums_all;               /* (block_count): every block of the flat gradient, in order */
    double *sums_packed;            /* (block_count): in rank order, as they travel */
    struct tern_range *sums_ranges; /* bytes of each rank in sums_packed */
    struct tern_lane_reduce *reduces;
    tern_comm_job reduce_job; /* what is done to each of them */
    uint64_t *tickets;
    struct tern_step_word *words;
    /* the lane under way */
    int lane;            /* index among own lanes */
    int depth;           /* gradient buffers that hold nodes before this lane */
    double wait_seconds; /* waited for weights inside the forward pass */
};

static int64_t micro_tokens(const struct tern_stepper *s)
{
    return s->config->train.micro_batch * s->config->train.sequence_length;
}

static int64_t lane_tokens(const struct tern_stepper *s)
{
    const struct tern_config_train *train = &s->config->train;
    return train->global_batch / train->lanes * train->sequence_length;
}

static int64_t own_tokens(const struct tern_stepper *s)
{
    return lane_tokens(s) * s->state->plan.lane_count;
}

int64_t tern_stepper_bytes(const struct tern_train_config *config,
                           const struct tern_train_state *state)
{
    int64_t n = config->train.micro_batch * config->train.sequence_length;
    int64_t own = config->train.global_batch / config->train.lanes * state->plan.lane_count *
                  config->train.sequence_length;
    int64_t blocks = state->params->block_count;
    return n * 12 + own * 8 + blocks * 16 + state->block_count * 24 +
           (int64_t)sizeof(struct tern_step_word) * (state->comm->size + 1);
}

/* ---- set-up ---- */

static tern_status lane_add(void *context, struct tern_dptr dst, struct tern_dptr src, int64_t n)
{
    struct tern_device *device = context;
    return n == 0
               ? TERN_OK
               : tern_op_add(device, &(struct tern_add_args){
                                         .a = dst, .b = src, .y = dst, .n = n, .dtype = TERN_F32});
}

/* Own blocks of all buckets, and where each rank's block sums lie when packed in rank order. */
static tern_status plan_norm(struct tern_stepper *s)
{
    const struct tern_params *params = s->state->params;
    int buckets = params->bucket_count;
    int64_t entries = s->state->block_count + buckets;
    int64_t *starts = tern_alloc("norm", (size_t)entries * sizeof *starts);
    if (starts == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the plan of the gradient norm");
    }
    int64_t used = 0;
    for (int b = 0; b < buckets; b++) {
        const struct tern_bucket_shard *shard = &s->state->buckets[b];
        for (int64_t i = shard->first_block; i < shard->end_block; i++) {
            starts[used++] = params->block_starts[i];
        }
        starts[used++] = shard->own_end;
    }
    TERN_CHECK(used == entries);
    const struct tern_device_table *table = s->device->ops->device;
    tern_status status =
        table->upload(s->device, s->block_starts, starts, (size_t)entries * sizeof *starts);
    tern_free(starts);
    int64_t at = 0;
    for (int rank = 0; rank < s->state->comm->size; rank++) {
        s->sums_ranges[rank].begin = at * 8;
        for (int b = 0; b < buckets; b++) {
            const struct tern_range *range = &s->state->buckets[b].ranges[rank];
            for (int64_t i = params->bucket_blocks[b]; i < params->bucket_blocks[b + 1]; i++) {
                int64_t start = params->block_starts[i] - params->bucket_starts[b];
                at += start >= range->begin && start < range->end;
            }
        }
        s->sums_ranges[rank].end = at * 8;
    }
    TERN_CHECK(at == params->block_count);
    return status;
}

static tern_status take_memory(struct tern_stepper *s)
{
    const struct tern_device_table *table = s->device->ops->device;
    const struct tern_params *params = s->state->params;
    size_t n = (size_t)micro_tokens(s);
    size_t step = (size_t)own_tokens(s);
    size_t buckets = (size_t)params->bucket_count;
    size_t ranks = (size_t)s->state->comm->size;
    size_t own = (size_t)s->state->block_count;
    size_t all = (size_t)params->block_count;
    TERN_RETURN_IF_ERR(table->alloc(s->device, "batch", n * 4, &s->ids));
    TERN_RETURN_IF_ERR(table->alloc(s->device, "batch", n * 4, &s->targets));
    TERN_RETURN_IF_ERR(table->alloc(s->device, "batch", n * 4, &s->nll));
    TERN_RETURN_IF_ERR(table->alloc(s->device, "batch", step * 4, &s->nll_step));
    TERN_RETURN_IF_ERR(table->alloc(s->device, "norm", (own + buckets) * 8, &s->block_starts));
    TERN_RETURN_IF_ERR(table->alloc(s->device, "norm", (own + 1) * 8, &s->block_sums));
    s->nll_host = table->pin(s->device, "batch", step * sizeof *s->nll_host);
    s->sums_mine = table->pin(s->device, "norm", (own + 1) * sizeof *s->sums_mine);
    s->sums_all = tern_alloc_zero("norm", all, sizeof *s->sums_all);
    s->sums_packed = tern_alloc_zero("norm", all, sizeof *s->sums_packed);
    s->sums_ranges = tern_alloc_zero("norm", ranks, sizeof *s->sums_ranges);
    s->reduces = tern_alloc_zero("reduce", buckets, sizeof *s->reduces);
    s->tickets = tern_alloc_zero("reduce", buckets, sizeof *s->tickets);
    s->words = tern_alloc_zero("step", ranks, sizeof *s->words);
    if (s->nll_host == NULL || s->sums_mine == NULL || s->sums_all == NULL ||
        s->sums_packed == NULL || s->sums_ranges == NULL || s->reduces == NULL ||
        s->tickets == NULL || s->words == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the buffers of a training step");
    }
    return TERN_OK;
}

tern_status tern_stepper_create(const struct tern_train_config *config,
                                struct tern_train_state *state,
                                struct tern_device *device,
                                struct tern_device *comm_device,
                                struct tern_pass *pass,
                                struct tern_stepper **out)
{
    struct tern_stepper *s = tern_alloc_zero("step", 1, sizeof *s);
    if (s == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a stepper");
    }
    s->config = config;
    s->state = state;
    s->device = device;
    s->comm_device = comm_device;
    s->pass = pass;
    tern_status status;
    TERN_GOTO_IF_ERR(status, take_memory(s), fail);
    TERN_GOTO_IF_ERR(status, plan_norm(s), fail);
    struct tern_micro_options micro = {
        .pass = pass,
        .device = device,
        .weights = state->weights,
        .ids = s->ids,
        .targets = s->targets,
        .nll = s->nll,
        .buckets = state->params->bucket_count,
        .kinds = state->plan.buffers * MICRO_KINDS,
    };
    TERN_GOTO_IF_ERR(status, tern_micro_create(&micro, &s->micro), fail);
    for (int b = 0; b < state->params->bucket_count; b++) {
        struct tern_lane_reduce *reduce = &s->reduces[b];
        *reduce = (struct tern_lane_reduce){
            .plan = &state->plan,
            .ranges = state->buckets[b].ranges,
            .scratch = state->reduce_scratch,
            .add = lane_add,
            .add_context = comm_device,
        };
        for (int i = 0; i < state->plan.node_count; i++) {
            reduce->nodes[i] =
                tern_dptr_at(state->grads[i], state->params->bucket_starts[b], TERN_F32);
        }
    }
    bool has_sum = state->data_comm->table->reduce_ranges != NULL;
    s->reduce_job =
        has_sum && !config->train.deterministic ? tern_lane_sum_job : tern_lane_reduce_job;
    *out = s;
    return TERN_OK;
fail:
    tern_stepper_destroy(s);
    return status;
}

void tern_stepper_destroy(struct tern_stepper *s)
{
    if (s == NULL) {
        return;
    }
    const struct tern_device_table *table = s->device->ops->device;
    tern_micro_destroy(s->micro);
    table->unpin(s->device, s->nll_host);
    table->unpin(s->device, s->sums_mine);
    struct tern_dptr device_blocks[] = {s->ids,      s->targets,      s->nll,
                                        s->nll_step, s->block_starts, s->block_sums};
    for (size_t i = 0; i < sizeof device_blocks / sizeof device_blocks[0]; i++) {
        table->free(s->device, device_blocks[i]);
    }
    void *host_blocks[] = {s->sums_all, s->sums_packed, s->sums_ranges,
                           s->reduces,  s->tickets,     s->words};
    for (size_t i = 0; i < sizeof host_blocks / sizeof host_blocks[0]; i++) {
        tern_free(host_blocks[i]);
    }
    tern_free(s);
}

/* ---- lanes ---- */

/* A bucket of the current lane is complete: fold it into the nodes below it on the stack, and when
 * it is the last lane, hand the bucket's nodes to the communicator while the backward pass goes
 * on. */
static tern_status bucket_ready(void *context, int bucket)
{
    struct tern_stepper *s = context;
    const struct tern_train_state *state = s->state;
    const struct tern_params *params = state->params;
    int64_t start = params->bucket_starts[bucket];
    int64_t size = params->bucket_starts[bucket + 1] - start;
    int merges = tern_lane_fold_count(&state->plan, state->plan.first_lane + s->lane);
    for (int top = s->depth; merges > 0; merges--, top--) {
        struct tern_dptr left = tern_dptr_at(state->grads[top - 1], start, TERN_F32);
        struct tern_dptr right = tern_dptr_at(state->grads[top], start, TERN_F32);
        TERN_RETURN_IF_ERR(lane_add(s->device, left, right, size));
    }
    if (s->lane + 1 < state->plan.lane_count) {
        return TERN_OK;
    }
    if (tern_fault_pass(TERN_FAULT_GRADIENT) == TERN_FAULT_NAN) {
        float nan_value = NAN;
        TERN_RETURN_IF_ERR(
            s->device->ops->device->upload(s->device, s->reduces[bucket].nodes[0], &nan_value, 4));
    }
    if (state->comm->size == 1) {
        return TERN_OK;
    }
    return tern_comm_submit(state->data_comm, s->reduce_job, &s->reduces[bucket],
                            &s->tickets[bucket]);
}

/* The weights of a bucket are about to be read: the all-gather of the step before has had the time since to do its work
 * under what came before. */
static tern_status bucket_needed(void *context, int bucket)
{
    struct tern_stepper *s = context;
    double started = tern_clock_seconds();
    TERN_RETURN_IF_ERR(tern_train_state_need_shared(s->state, bucket));
    s->wait_seconds += tern_clock_seconds() - started;
    return TERN_OK;
}

/* Losses of n tokens, in order, to a sum in double. */
static void add_losses(const float *nll,
                       const int32_t *targets,
                       int64_t n,
                       double *loss,
                       int64_t *tokens)
{
    for (int64_t i = 0; i < n; i++) {
        if (targets[i] >= 0) {
            *loss += nll[i];
            *tokens += 1;
        }
    }
}

static tern_status upload_batch(struct tern_stepper *s,
                                const int32_t *inputs,
                                const int32_t *targets)
{
    const struct tern_device_table *table = s->device->ops->device;
    size_t bytes = (size_t)micro_tokens(s) * sizeof *inputs;
    TERN_RETURN_IF_ERR(table->upload(s->device, s->ids, inputs, bytes));
    return table->upload(s->device, s->targets, targets, bytes);
}

/* Micro-batches of one lane, in order, into the gradient buffer above the stack. */
static tern_status run_lane(struct tern_stepper *s, const int32_t *inputs, const int32_t *targets)
{
    const struct tern_device_table *table = s->device->ops->device;
    int64_t n = micro_tokens(s);
    int64_t count = lane_tokens(s) / n;
    for (int64_t m = 0; m < count; m++) {
        bool is_first = s->lane == 0 && m == 0;
        bool is_last = m + 1 == count;
        struct tern_pass_hooks hooks = {
            .need = is_first ? bucket_needed : NULL,
            .ready = is_last ? bucket_ready : NULL,
            .context = s,
        };
        int kind = s->depth * MICRO_KINDS + (m > 0 ? MICRO_ACCUMULATES : 0) +
                   (is_last ? MICRO_IS_LAST : 0) + (is_first ? MICRO_IS_FIRST : 0);
        TERN_RETURN_IF_ERR(upload_batch(s, inputs + m * n, targets + m * n));
        TERN_RETURN_IF_ERR(
            tern_micro_run(s->micro, kind, s->state->grads[s->depth], m > 0, &hooks));
        int64_t at = s->lane * lane_tokens(s) + m * n;
        TERN_RETURN_IF_ERR(table->copy(s->device, tern_dptr_at(s->nll_step, at, TERN_F32), s->nll,
                                       (size_t)n * sizeof(float)));
        tern_fault_pass(TERN_FAULT_STEP_BACKWARD);
    }
    return TERN_OK;
}

static tern_status run_lanes(struct tern_stepper *s, const int32_t *inputs, const int32_t *targets)
{
    int64_t lane_size = lane_tokens(s);
    s->depth = 0;
    for (s->lane = 0; s->lane < s->state->plan.lane_count; s->lane++) {
        TERN_RETURN_IF_ERR(
            run_lane(s, inputs + s->lane * lane_size, targets + s->lane * lane_size));
        s->depth += 1 - tern_lane_fold_count(&s->state->plan, s->state->plan.first_lane + s->lane);
    }
    TERN_CHECK(s->depth == s->state->plan.node_count);
    return TERN_OK;
}

/* ---- norm ---- */

static tern_status own_sums(struct tern_stepper *s)
{
    struct tern_train_state *state = s->state;
    int64_t entry = 0;
    int64_t sum = 0;
    for (int b = 0; b < state->params->bucket_count; b++) {
        const struct tern_bucket_shard *shard = &state->buckets[b];
        int64_t blocks = shard->end_block - shard->first_block;
        if (blocks > 0) {
            TERN_RETURN_IF_ERR(tern_op_sumsq(
                s->device,
                &(struct tern_sumsq_args){.x = state->grads[0],
                                          .starts = tern_dptr_at(s->block_starts, entry, TERN_I64),
                                          .sums = tern_dptr_at(s->block_sums, sum, TERN_F64),
                                          .blocks = blocks}));
        }
        entry += blocks + 1;
        sum += blocks;
    }
    return s->device->ops->device->download_begin(s->device, s->sums_mine, s->block_sums,
                                                  (size_t)sum * 8);
}

/* The one place of a step where the host waits for the device: its losses and the own part of its norm. */
static tern_status read_back(struct tern_stepper *s,
                             const int32_t *targets,
                             struct tern_step_word *mine)
{
    const struct tern_device_table *table = s->device->ops->device;
    int64_t n = lane_tokens(s);
    TERN_RETURN_IF_ERR(own_sums(s));
    TERN_RETURN_IF_ERR(table->download_begin(s->device, s->nll_host, s->nll_step,
                                             (size_t)own_tokens(s) * sizeof *s->nll_host));
    TERN_RETURN_IF_ERR(table->sync(s->device));
    if (s->state->data_comm != s->state->comm) { /* was the group alive for what was read? */
        tern_status alive = tern_comm_poll(s->state->data_comm, s->tickets[0]);
        TERN_RETURN_IF_ERR(alive == TERN_ERR_AGAIN ? TERN_OK : alive);
    }
    memset(mine->lane_loss, 0, sizeof mine->lane_loss);
    memset(mine->lane_tokens, 0, sizeof mine->lane_tokens);
    for (int lane = 0; lane < s->state->plan.lane_count; lane++) {
        add_losses(s->nll_host + lane * n, targets + lane * n, n, &mine->lane_loss[lane],
                   &mine->lane_tokens[lane]);
    }
    return TERN_OK;
}

/* Packed sums in rank order to the order of the flat block. */
static void unpack_sums(struct tern_stepper *s)
{
    const struct tern_params *params = s->state->params;
    for (int rank = 0; rank < s->state->comm->size; rank++) {
        int64_t at = s->sums_ranges[rank].begin / 8;
        for (int b = 0; b < params->bucket_count; b++) {
            const struct tern_range *range = &s->state->buckets[b].ranges[rank];
            for (int64_t i = params->bucket_blocks[b]; i < params->bucket_blocks[b + 1]; i++) {
                int64_t start = params->block_starts[i] - params->bucket_starts[b];
                if (start >= range->begin && start < range->end) {
                    s->sums_all[i] = s->sums_packed[at++];
                }
            }
        }
    }
}

/* Sum of squares of the whole gradient, in block order on every rank: the same double
 * everywhere. */
static tern_status total_sum(struct tern_stepper *s, double *total_out, char *culprit)
{
    const struct tern_params *params = s->state->params;
    const struct tern_range *own = &s->sums_ranges[s->state->comm->rank];
    memcpy((char *)s->sums_packed + own->begin, s->sums_mine, (size_t)(own->end - own->begin));
    struct tern_dptr packed = {(uint64_t)(uintptr_t)s->sums_packed};
    TERN_RETURN_IF_ERR(tern_comm_all_gatherv(s->state->comm, packed, s->sums_ranges));
    unpack_sums(s);
    double total = 0;
    culprit[0] = '\0';
    for (int64_t i = 0; i < params->block_count; i++) {
        total += s->sums_all[i];
        if (!isfinite(s->sums_all[i]) && culprit[0] == '\0') {
            const struct tern_param *param = tern_params_at(params, params->block_starts[i]);
            snprintf(culprit, TERN_PARAM_NAME_BYTES, "%s", param != NULL ? param->name : "padding");
        }
    }
    *total_out = total;
    return TERN_OK;
}

/* ---- update ---- */

/* AdamW on what this rank owns of [begin, end) of the flat block, where decay is one value. */
static tern_status update_range(struct tern_stepper *s,
                                int bucket,
                                int64_t begin,
                                int64_t end,
                                struct tern_adamw_args *args)
{
    struct tern_train_state *state = s->state;
    const struct tern_bucket_shard *shard = &state->buckets[bucket];
    begin = begin > shard->own_begin ? begin : shard->own_begin;
    end = end < shard->own_end ? end : shard->own_end;
    if (begin >= end) {
        return TERN_OK;
    }
    int64_t skip = begin - shard->own_begin;
    args->weight = tern_dptr_at(tern_train_state_master(state, bucket), skip, TERN_F32);
    args->grad = tern_dptr_at(state->grads[0], begin, TERN_F32);
    args->exp_avg = tern_dptr_at(state->exp_avg, shard->at + skip, TERN_F32);
    args->exp_avg_sq = tern_dptr_at(state->exp_avg_sq, shard->at + skip, TERN_F32);
    args->copy = (struct tern_dptr){0};
    if (state->dtype != TERN_F32) {
        args->copy = tern_dptr_at(state->weights, begin, state->dtype);
        args->copy_dtype = state->dtype;
    }
    args->n = end - begin;
    return tern_op_adamw(s->device, args);
}

static tern_status update_bucket(struct tern_stepper *s, int bucket, struct tern_adamw_args *args)
{
    const struct tern_params *params = s->state->params;
    for (int i = 0; i < params->count;) {
        const struct tern_param *first = &params->items[i];
        if (first->bucket != bucket) {
            i++;
            continue;
        }
        int64_t end = first->offset;
        for (; i < params->count && params->items[i].bucket == bucket &&
               params->items[i].decay == first->decay;
             i++) {
            end = params->items[i].offset + params->items[i].size;
        }
        args->weight_decay = first->decay ? (float)s->config->optimizer.weight_decay : 0;
        TERN_RETURN_IF_ERR(update_range(s, bucket, first->offset, end, args));
    }
    return tern_train_state_share(s->state, bucket);
}

static tern_status update(struct tern_stepper *s, double lr, double grad_scale)
{
    const struct tern_config_optimizer *o = &s->config->optimizer;
    struct tern_train_state *state = s->state;
    double count = (double)(state->updates + 1);
    struct tern_adamw_args args = {
        .lr = (float)lr,
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .eps = (float)o->eps,
        .bias1 = (float)(1 - pow(o->beta1, count)),
        .bias2 = (float)(1 - pow(o->beta2, count)),
        .grad_scale = (float)grad_scale,
    };
    TERN_RETURN_IF_ERR(tern_train_state_guard_snapshot(state));
    for (int bucket = 0; bucket < state->params->bucket_count; bucket++) {
        TERN_RETURN_IF_ERR(update_bucket(s, bucket, &args));
    }
    state->updates++;
    return TERN_OK;
}

/* ---- the step ---- */

static tern_status wait_reduced(struct tern_stepper *s)
{
    tern_fault_pass(TERN_FAULT_STEP_REDUCE);
    if (s->state->comm->size == 1) {
        return TERN_OK;
    }
    for (int b = 0; b < s->state->params->bucket_count; b++) {
        TERN_RETURN_IF_ERR(tern_comm_wait(s->state->data_comm, s->tickets[b]));
    }
    return TERN_OK;
}

/* Lane losses in lane order: the same sum for every number of ranks. */
static void sum_words(const struct tern_stepper *s, double *loss, int64_t *tokens)
{
    *loss = 0;
    *tokens = 0;
    const struct tern_lane_plan *plan = &s->state->plan;
    for (int rank = 0; rank < s->state->comm->size; rank++) {
        int lanes = tern_lane_first(plan->lanes, plan->ranks, rank + 1) -
                    tern_lane_first(plan->lanes, plan->ranks, rank);
        for (int lane = 0; lane < lanes; lane++) {
            *loss += s->words[rank].lane_loss[lane];
            *tokens += s->words[rank].lane_tokens[lane];
        }
    }
}

tern_status tern_stepper_run(struct tern_stepper *s,
                             const int32_t *inputs,
                             const int32_t *targets,
                             double lr,
                             struct tern_step_word *mine,
                             const struct tern_step_word **words_out,
                             struct tern_step_result *result)
{
    struct tern_train_state *state = s->state;
    *result = (struct tern_step_result){0};
    s->wait_seconds = 0;
    TERN_RETURN_IF_ERR(run_lanes(s, inputs, targets));
    double started = tern_clock_seconds();
    TERN_RETURN_IF_ERR(wait_reduced(s));
    result->comm_seconds = s->wait_seconds + tern_clock_seconds() - started;
    TERN_RETURN_IF_ERR(read_back(s, targets, mine));
    started = tern_clock_seconds();
    TERN_RETURN_IF_ERR(tern_comm_all_gather(state->comm, mine, sizeof *mine, s->words));
    result->comm_seconds += tern_clock_seconds() - started;
    *words_out = s->words;
    double loss;
    double sum_squares;
    sum_words(s, &loss, &result->tokens);
    TERN_RETURN_IF_ERR(total_sum(s, &sum_squares, result->culprit));
    double count = result->tokens > 0 ? (double)result->tokens : 1;
    result->loss = loss / count;
    result->grad_norm = sqrt(sum_squares) / count;
    state->step++;
    state->tokens += result->tokens;
    if (!isfinite(result->loss) || !isfinite(result->grad_norm)) {
        result->is_skipped = true; /* every rank has the same numbers: all decide alike */
        return TERN_OK;
    }
    double clip = s->config->optimizer.clip_grad_norm;
    double coefficient = clip > 0 ? clip / (result->grad_norm + 1e-6) : 1;
    coefficient = coefficient < 1 ? coefficient : 1;
    tern_fault_pass(TERN_FAULT_STEP_UPDATE);
    return update(s, lr, coefficient / count);
}

/* ---- evaluation ---- */

static tern_status fill_group(struct tern_stepper *s,
                              const struct tern_tokens *tokens,
                              int64_t first,
                              int64_t sequences,
                              int32_t *inputs,
                              int32_t *targets)
{
    int64_t t = s->config->train.sequence_length;
    for (int64_t i = 0; i < s->config->train.micro_batch; i++) {
        if (first + i < sequences) {
            TERN_RETURN_IF_ERR(
                tern_tokens_sample(tokens, first + i, inputs + i * t, targets + i * t));
            continue;
        }
        for (int64_t j = 0; j < t; j++) { /* nothing left: a row that counts for nothing */
            inputs[i * t + j] = 0;
            targets[i * t + j] = -1;
        }
    }
    return TERN_OK;
}

/* Sum of nll of a micro-batch, and how many targets it has. */
struct group_sum {
    double loss;
    int64_t tokens;
};

static tern_status evaluate_group(struct tern_stepper *s,
                                  const int32_t *targets,
                                  struct group_sum *sum)
{
    int64_t n = micro_tokens(s);
    TERN_RETURN_IF_ERR(tern_pass_eval(s->pass, s->state->weights, s->ids, s->targets, s->nll));
    TERN_RETURN_IF_ERR(s->device->ops->device->download(s->device, s->nll_host, s->nll,
                                                        (size_t)n * sizeof *s->nll_host));
    add_losses(s->nll_host, targets, n, &sum->loss, &sum->tokens);
    return TERN_OK;
}

tern_status tern_stepper_evaluate(struct tern_stepper *s,
                                  const struct tern_tokens *tokens,
                                  int64_t sequences,
                                  double *loss_out)
{
    const struct tern_config_train *train = &s->config->train;
    struct tern_comm *comm = s->state->comm;
    int64_t n = micro_tokens(s);
    int64_t groups = (sequences + train->micro_batch - 1) / train->micro_batch;
    int64_t rounds = (groups + comm->size - 1) / comm->size;
    struct group_sum *mine = tern_alloc_zero("evaluation", (size_t)rounds, sizeof *mine);
    struct group_sum *all =
        tern_alloc_zero("evaluation", (size_t)(rounds * comm->size), sizeof *all);
    int32_t *batch = tern_alloc("evaluation", 2 * (size_t)n * sizeof *batch);
    tern_status status = TERN_OK;
    if (mine == NULL || all == NULL || batch == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate the sums of %lld evaluation groups",
                           (long long)groups);
        goto out;
    }
    TERN_GOTO_IF_ERR(status, tern_train_state_wait_shared(s->state), out);
    for (int64_t round = 0; round < rounds; round++) {
        int64_t group = round * comm->size + comm->rank;
        if (group >= groups) {
            continue;
        }
        TERN_GOTO_IF_ERR(
            status, fill_group(s, tokens, group * train->micro_batch, sequences, batch, batch + n),
            out);
        TERN_GOTO_IF_ERR(status, upload_batch(s, batch, batch + n), out);
        TERN_GOTO_IF_ERR(status, evaluate_group(s, batch + n, &mine[round]), out);
    }
    TERN_GOTO_IF_ERR(status, tern_comm_all_gather(comm, mine, (size_t)rounds * sizeof *mine, all),
                     out);
    struct group_sum total = {0};
    for (int64_t group = 0; group < groups; group++) {
        const struct group_sum *sum = &all[group % comm->size * rounds + group / comm->size];
        total.loss += sum->loss;
        total.tokens += sum->tokens;
    }
    *loss_out = total.tokens > 0 ? total.loss / (double)total.tokens : NAN;
out:
    tern_free(mine);
    tern_free(all);
    tern_free(batch);
    return status;
}
