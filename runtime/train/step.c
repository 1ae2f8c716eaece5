/* step.c - own lanes through the model, buckets through the tree, one norm, one update. */
#include "runtime/train/step.h"

#include "io/tokens.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/train/batch.h"
#include "runtime/train/micro.h"
#include "runtime/train/tally.h"

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
    struct tern_stepper_queues queues;
    struct tern_device *device; /* queues.compute */
    struct tern_pass *pass;
    struct tern_batch *batch;
    struct tern_micro *micro;
    struct tern_tally *tally;
    struct tern_dptr ids, targets; /* i32 (micro_batch, T) */
    struct tern_dptr starts;       /* the same, of packed documents; null: there are none */
    struct tern_dptr nll;          /* f32 (micro_batch, T) */
    struct tern_dptr nll_step;     /* f32 (own sequences, T): a step's losses */
    float *nll_host;               /* (micro_batch, T): of an evaluation */
    struct tern_lane_reduce *reduces;
    tern_comm_job reduce_job; /* what is done to each of them */
    uint64_t *tickets;
    struct tern_step_word *words;
    /* the step that was ended and not settled */
    bool is_pending;
    int64_t pending_tokens;
    double pending_comm_seconds;
    /* the step that was begun and not ended */
    int64_t own_targets; /* tokens that count */
    double lane_seconds; /* computing; 0 where the device runs behind the host */
    /* the lane under way */
    int lane;            /* index among own lanes */
    int depth;           /* gradient buffers that hold nodes before this lane */
    double wait_seconds; /* waited for weights inside the forward pass */
};

static bool is_packed(const struct tern_stepper *s)
{
    return s->config->data.format == TERN_DATA_CHAT;
}

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
                           const struct tern_train_state *state,
                           bool is_ahead)
{
    int64_t n = config->train.micro_batch * config->train.sequence_length;
    int64_t own = config->train.global_batch / config->train.lanes * state->plan.lane_count *
                  config->train.sequence_length;
    bool is_chat = config->data.format == TERN_DATA_CHAT;
    return n * (is_chat ? 16 : 12) + own * 4 + (is_ahead ? tern_batch_bytes(own, is_chat) : 0) +
           tern_tally_bytes(state) +
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

static tern_status take_memory(struct tern_stepper *s)
{
    const struct tern_device_table *table = s->device->ops->device;
    size_t n = (size_t)micro_tokens(s);
    size_t step = (size_t)own_tokens(s);
    size_t buckets = (size_t)s->state->params->bucket_count;
    TERN_RETURN_IF_ERR(table->alloc(s->device, "batch", n * 4, &s->ids));
    TERN_RETURN_IF_ERR(table->alloc(s->device, "batch", n * 4, &s->targets));
    if (is_packed(s)) {
        TERN_RETURN_IF_ERR(table->alloc(s->device, "batch", n * 4, &s->starts));
        TERN_RETURN_IF_ERR(tern_pass_pack(s->pass, s->starts));
    }
    TERN_RETURN_IF_ERR(table->alloc(s->device, "batch", n * 4, &s->nll));
    TERN_RETURN_IF_ERR(table->alloc(s->device, "batch", step * 4, &s->nll_step));
    s->nll_host = tern_alloc("batch", n * sizeof *s->nll_host);
    s->reduces = tern_alloc_zero("reduce", buckets, sizeof *s->reduces);
    s->tickets = tern_alloc_zero("reduce", buckets, sizeof *s->tickets);
    s->words = tern_alloc_zero("step", (size_t)s->state->comm->size, sizeof *s->words);
    if (s->nll_host == NULL || s->reduces == NULL || s->tickets == NULL || s->words == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the buffers of a training step");
    }
    return TERN_OK;
}

/* What the step is made of, each with its own memory. */
static tern_status create_parts(struct tern_stepper *s)
{
    const struct tern_train_state *state = s->state;
    struct tern_batch_options batch = {
        .device = s->device,
        .uploader = s->queues.uploader,
        .ids = s->ids,
        .targets = s->targets,
        .starts = s->starts,
        .tokens = own_tokens(s),
        .micro_tokens = micro_tokens(s),
    };
    struct tern_tally_options tally = {
        .state = state,
        .device = s->device,
        .reader = s->queues.reader != NULL ? s->queues.reader : s->device,
        .nll = s->nll_step,
        .lane_tokens = lane_tokens(s),
        .max_norm = s->config->optimizer.clip_grad_norm,
    };
    struct tern_micro_options micro = {
        .pass = s->pass,
        .device = s->device,
        .weights = state->weights,
        .ids = s->ids,
        .targets = s->targets,
        .nll = s->nll,
        .buckets = state->params->bucket_count,
        .kinds = state->plan.buffers * MICRO_KINDS,
    };
    TERN_RETURN_IF_ERR(tern_batch_create(&batch, &s->batch));
    TERN_RETURN_IF_ERR(tern_tally_create(&tally, &s->tally));
    return tern_micro_create(&micro, &s->micro);
}

static void plan_reduces(struct tern_stepper *s)
{
    const struct tern_train_state *state = s->state;
    for (int b = 0; b < state->params->bucket_count; b++) {
        struct tern_lane_reduce *reduce = &s->reduces[b];
        *reduce = (struct tern_lane_reduce){
            .plan = &state->plan,
            .ranges = state->buckets[b].ranges,
            .scratch = state->reduce_scratch,
            .add = lane_add,
            .add_context = s->queues.comm,
        };
        for (int i = 0; i < state->plan.node_count; i++) {
            reduce->nodes[i] =
                tern_dptr_at(state->grads[i], state->params->bucket_starts[b], TERN_F32);
        }
    }
    bool has_sum = state->data_comm->table->reduce_ranges != NULL;
    s->reduce_job =
        has_sum && !s->config->train.deterministic ? tern_lane_sum_job : tern_lane_reduce_job;
}

tern_status tern_stepper_create(const struct tern_train_config *config,
                                struct tern_train_state *state,
                                const struct tern_stepper_queues *queues,
                                struct tern_pass *pass,
                                struct tern_stepper **out)
{
    struct tern_stepper *s = tern_alloc_zero("step", 1, sizeof *s);
    if (s == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a stepper");
    }
    s->config = config;
    s->state = state;
    s->queues = *queues;
    s->device = queues->compute;
    s->pass = pass;
    tern_status status;
    TERN_GOTO_IF_ERR(status, take_memory(s), fail);
    TERN_GOTO_IF_ERR(status, create_parts(s), fail);
    plan_reduces(s);
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
    if (table->sync(s->device) != TERN_OK) { /* a step may be under way */
        tern_log_debug("at the end of a step: %s", tern_detail());
    }
    tern_micro_destroy(s->micro);
    tern_tally_destroy(s->tally);
    tern_batch_destroy(s->batch);
    struct tern_dptr device_blocks[] = {s->ids, s->targets, s->starts, s->nll, s->nll_step};
    for (size_t i = 0; i < sizeof device_blocks / sizeof device_blocks[0]; i++) {
        table->free(s->device, device_blocks[i]);
    }
    tern_free(s->nll_host);
    tern_free(s->reduces);
    tern_free(s->tickets);
    tern_free(s->words);
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

/* Micro-batches of one lane, in order, into the gradient buffer above the stack. */
static tern_status run_lane(struct tern_stepper *s)
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
        int64_t at = s->lane * lane_tokens(s) + m * n;
        TERN_RETURN_IF_ERR(tern_batch_fetch(s->batch, at));
        TERN_RETURN_IF_ERR(
            tern_micro_run(s->micro, kind, s->state->grads[s->depth], m > 0, &hooks));
        TERN_RETURN_IF_ERR(table->copy(s->device, tern_dptr_at(s->nll_step, at, TERN_F32), s->nll,
                                       (size_t)n * sizeof(float)));
        tern_fault_pass(TERN_FAULT_STEP_BACKWARD);
    }
    return TERN_OK;
}

static tern_status run_lanes(struct tern_stepper *s)
{
    s->depth = 0;
    for (s->lane = 0; s->lane < s->state->plan.lane_count; s->lane++) {
        TERN_RETURN_IF_ERR(run_lane(s));
        s->depth += 1 - tern_lane_fold_count(&s->state->plan, s->state->plan.first_lane + s->lane);
    }
    TERN_CHECK(s->depth == s->state->plan.node_count);
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

static tern_status update(struct tern_stepper *s, double lr)
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
        .grad_scale = tern_tally_scale(s->tally),
    };
    TERN_RETURN_IF_ERR(tern_train_state_guard_snapshot(state));
    for (int bucket = 0; bucket < state->params->bucket_count; bucket++) {
        TERN_RETURN_IF_ERR(update_bucket(s, bucket, &args));
    }
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

/* Target tokens of the step, of all ranks. */
static int64_t word_tokens(const struct tern_stepper *s)
{
    int64_t tokens = 0;
    for (int rank = 0; rank < s->state->comm->size; rank++) {
        tokens += s->words[rank].tokens;
    }
    return tokens;
}

tern_status tern_stepper_begin(struct tern_stepper *s,
                               const int32_t *inputs,
                               const int32_t *targets,
                               const int32_t *starts)
{
    s->wait_seconds = 0;
    s->own_targets = 0;
    for (int64_t i = 0; i < own_tokens(s); i++) {
        s->own_targets += targets[i] >= 0;
    }
    double started = tern_clock_seconds();
    TERN_RETURN_IF_ERR(tern_batch_begin(s->batch, inputs, targets, starts));
    TERN_RETURN_IF_ERR(run_lanes(s));
    double took = tern_clock_seconds() - started - s->wait_seconds;
    s->lane_seconds = s->queues.reader == NULL ? took / s->state->plan.lane_count : 0;
    return TERN_OK;
}

tern_status tern_stepper_end(struct tern_stepper *s,
                             double lr,
                             struct tern_step_word *mine,
                             const struct tern_step_word **words_out)
{
    struct tern_train_state *state = s->state;
    TERN_CHECK(!s->is_pending); /* how many updates were made decides what this one does */
    double started = tern_clock_seconds();
    TERN_RETURN_IF_ERR(wait_reduced(s));
    mine->tokens = s->own_targets;
    mine->lane_seconds = s->lane_seconds;
    TERN_RETURN_IF_ERR(tern_comm_all_gather(state->comm, mine, sizeof *mine, s->words));
    *words_out = s->words;
    s->pending_comm_seconds = s->wait_seconds + tern_clock_seconds() - started;
    s->pending_tokens = word_tokens(s);
    TERN_RETURN_IF_ERR(
        tern_tally_take(s->tally, s->pending_tokens > 0 ? (double)s->pending_tokens : 1));
    tern_fault_pass(TERN_FAULT_STEP_UPDATE);
    TERN_RETURN_IF_ERR(update(s, lr));
    state->step++;
    state->tokens += s->pending_tokens;
    s->is_pending = true;
    return TERN_OK;
}

tern_status tern_stepper_settle(struct tern_stepper *s, struct tern_step_result *result)
{
    struct tern_tally_found found;
    TERN_CHECK(s->is_pending);
    s->is_pending = false;
    TERN_RETURN_IF_ERR(tern_tally_read(s->tally, &found));
    if (s->state->data_comm != s->state->comm) { /* was the group alive for what was read? */
        tern_status alive = tern_comm_poll(s->state->data_comm, s->tickets[0]);
        TERN_RETURN_IF_ERR(alive == TERN_ERR_AGAIN ? TERN_OK : alive);
    }
    double count = s->pending_tokens > 0 ? (double)s->pending_tokens : 1;
    *result = (struct tern_step_result){
        .loss = found.loss / count,
        .grad_norm = sqrt(found.sum_squares) / count,
        .tokens = s->pending_tokens,
        .is_skipped = found.is_skipped,
        .comm_seconds = s->pending_comm_seconds,
    };
    memcpy(result->culprit, found.culprit, sizeof result->culprit);
    s->state->updates += !found.is_skipped;
    return TERN_OK;
}

bool tern_stepper_is_late(const struct tern_stepper *s)
{
    return s->queues.reader != NULL;
}

bool tern_stepper_is_pending(const struct tern_stepper *s)
{
    return s->is_pending;
}

/* ---- evaluation ---- */

static tern_status fill_group(struct tern_stepper *s,
                              const struct tern_tokens *tokens,
                              int64_t first,
                              int64_t sequences,
                              int32_t *batch)
{
    int64_t t = s->config->train.sequence_length;
    int32_t *inputs = batch;
    int32_t *targets = inputs + micro_tokens(s);
    int32_t *starts = targets + micro_tokens(s);
    for (int64_t i = 0; i < s->config->train.micro_batch; i++) {
        if (first + i < sequences) {
            TERN_RETURN_IF_ERR(tern_tokens_sample(tokens, first + i, inputs + i * t,
                                                  targets + i * t, starts + i * t));
            continue;
        }
        for (int64_t j = 0; j < t; j++) { /* nothing left: a row that counts for nothing */
            inputs[i * t + j] = 0;
            targets[i * t + j] = -1;
            starts[i * t + j] = 0;
        }
    }
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

/* Sum of nll of a micro-batch, and how many targets it has. */
struct group_sum {
    double loss;
    int64_t tokens;
};

/* batch: ids, targets and starts (3, micro_batch, T). */
static tern_status evaluate_group(struct tern_stepper *s,
                                  const int32_t *batch,
                                  struct group_sum *sum)
{
    const struct tern_device_table *table = s->device->ops->device;
    int64_t n = micro_tokens(s);
    size_t bytes = (size_t)n * sizeof *batch;
    TERN_RETURN_IF_ERR(table->upload(s->device, s->ids, batch, bytes));
    TERN_RETURN_IF_ERR(table->upload(s->device, s->targets, batch + n, bytes));
    if (is_packed(s)) {
        TERN_RETURN_IF_ERR(table->upload(s->device, s->starts, batch + 2 * n, bytes));
    }
    TERN_RETURN_IF_ERR(tern_pass_eval(s->pass, s->state->weights, s->ids, s->targets, s->nll));
    TERN_RETURN_IF_ERR(
        table->download(s->device, s->nll_host, s->nll, (size_t)n * sizeof *s->nll_host));
    add_losses(s->nll_host, batch + n, n, &sum->loss, &sum->tokens);
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
    int32_t *batch = tern_alloc("evaluation", 3 * (size_t)n * sizeof *batch);
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
        TERN_GOTO_IF_ERR(status,
                         fill_group(s, tokens, group * train->micro_batch, sequences, batch), out);
        TERN_GOTO_IF_ERR(status, evaluate_group(s, batch, &mine[round]), out);
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
