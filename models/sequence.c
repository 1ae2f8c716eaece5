/* sequence.c - one sequence by the pass over many: blocks of its own in order, tokens appended, forgotten, or computed
 * anew where their rotary positions change. */
#include "models/sequence.h"

#include "models/infer_impl.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <string.h>

enum {
    LOGIT_BYTES = 4 << 20, /* made at a time */
    LOGIT_ROWS = 16        /* at least, if asked for as many */
};

struct tern_sequence {
    struct tern_infer *infer;
    struct tern_sequence_options options;
    int64_t logit_rows;
    int32_t *blocks;
    int64_t position;
    int64_t expected; /* length that it will have at least */
    int32_t *ids;     /* (positions), where positions may have to be made anew; else NULL */
    struct tern_dptr targets, nll; /* i32, f32 (logit_rows) */
};

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t block_count(const struct tern_sequence_options *options)
{
    return (options->positions + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
}

/* Host and device memory beside the pass's. */
static tern_status take(struct tern_sequence *sequence, const struct tern_model *model)
{
    struct tern_device *device = sequence->infer->device;
    size_t bytes = (size_t)sequence->logit_rows * sizeof(float);
    int64_t blocks = block_count(&sequence->options);
    bool keeps_ids = model->config.rope_scaling == TERN_ROPE_LONGROPE;
    sequence->blocks = tern_alloc_zero("sequence", (size_t)blocks, sizeof *sequence->blocks);
    if (keeps_ids) {
        sequence->ids =
            tern_alloc_zero("sequence", (size_t)sequence->options.positions, sizeof *sequence->ids);
    }
    if (sequence->blocks == NULL || (keeps_ids && sequence->ids == NULL)) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate buffers of a sequence");
    }
    for (int64_t i = 0; i < blocks; i++) {
        sequence->blocks[i] = (int32_t)i;
    }
    TERN_RETURN_IF_ERR(device->ops->device->alloc(device, "sequence", bytes, &sequence->targets));
    return device->ops->device->alloc(device, "sequence", bytes, &sequence->nll);
}

tern_status tern_sequence_create(const struct tern_model *model,
                                 struct tern_device *device,
                                 const struct tern_placed *weights,
                                 const struct tern_sequence_options *options,
                                 struct tern_sequence **out)
{
    TERN_CHECK(options->positions <= model->config.context && options->chunk >= 1);
    struct tern_sequence *sequence = tern_alloc_zero("sequence", 1, sizeof *sequence);
    if (sequence == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a sequence");
    }
    sequence->options = *options;
    sequence->logit_rows =
        min_i64(options->chunk, max_i64(LOGIT_ROWS, LOGIT_BYTES / (model->config.vocab_size * 4)));
    struct tern_infer_options infer = {
        .blocks = block_count(options),
        .rows = options->chunk,
        .sequences = 1,
        .context = options->positions,
        .logit_rows = sequence->logit_rows,
        .kv_dtype = model->dtype,
    };
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_infer_create(model, device, weights, &infer, &sequence->infer),
                     fail);
    TERN_GOTO_IF_ERR(status, take(sequence, model), fail);
    tern_infer_follow(sequence->infer, 0);
    *out = sequence;
    return TERN_OK;
fail:
    tern_sequence_destroy(sequence);
    return status;
}

void tern_sequence_destroy(struct tern_sequence *sequence)
{
    if (sequence == NULL) {
        return;
    }
    if (sequence->infer != NULL) {
        struct tern_device *device = sequence->infer->device;
        device->ops->device->free(device, sequence->targets);
        device->ops->device->free(device, sequence->nll);
    }
    tern_infer_destroy(sequence->infer);
    tern_free(sequence->blocks);
    tern_free(sequence->ids);
    tern_free(sequence);
}

int64_t tern_sequence_position(const struct tern_sequence *sequence)
{
    return sequence->position;
}

void tern_sequence_rewind(struct tern_sequence *sequence, int64_t position)
{
    TERN_CHECK(position >= 0 && position <= sequence->position);
    sequence->position = position;
}

void tern_sequence_expect(struct tern_sequence *sequence, int64_t length)
{
    sequence->expected = length;
}

/* n tokens through the model, their keys and values into the blocks. rows: how many of the last are asked for, none, one
 * or all. */
static tern_status forward(struct tern_sequence *sequence,
                           const int32_t *ids,
                           int64_t n,
                           int64_t rows)
{
    struct tern_infer_part part = {.ids = ids,
                                   .count = n,
                                   .position = sequence->position,
                                   .blocks = sequence->blocks,
                                   .logits = rows == 1,
                                   .hidden = rows > 1};
    TERN_RETURN_IF_ERR(tern_infer_forward(sequence->infer, &part, 1));
    sequence->position += n;
    return TERN_OK;
}

/* The length that rotary positions of the next n tokens go by. A longrope has one set of factors up
 * to its original context and one beyond: a sequence that crosses it is computed anew, so that all of
 * its keys are of one set, as a pass over the whole would make them. */
static tern_status follow_length(struct tern_sequence *sequence, int64_t n)
{
    const struct tern_model_config *c = &sequence->infer->model->config;
    int64_t before = sequence->infer->length;
    int64_t length = max_i64(sequence->position + n, sequence->expected);
    tern_infer_follow(sequence->infer, length);
    bool was_long = before > c->rope_original_context;
    bool is_long = length > c->rope_original_context;
    if (c->rope_scaling != TERN_ROPE_LONGROPE || sequence->position == 0 || was_long == is_long) {
        return TERN_OK;
    }
    int64_t count = sequence->position;
    sequence->position = 0;
    while (sequence->position < count) {
        int64_t step = min_i64(sequence->options.chunk, count - sequence->position);
        TERN_RETURN_IF_ERR(forward(sequence, sequence->ids + sequence->position, step, 0));
    }
    return TERN_OK;
}

static tern_status append(struct tern_sequence *sequence,
                          const int32_t *ids,
                          int64_t n,
                          int64_t rows)
{
    TERN_CHECK(n >= 1 && n <= sequence->options.chunk);
    if (sequence->position + n > sequence->options.positions) {
        return tern_fail(
            TERN_ERR_INPUT, "the sequence would be %lld tokens long, the limit is %lld",
            (long long)(sequence->position + n), (long long)sequence->options.positions);
    }
    TERN_RETURN_IF_ERR(follow_length(sequence, n));
    if (sequence->ids != NULL) {
        memcpy(sequence->ids + sequence->position, ids, (size_t)n * sizeof *ids);
    }
    return forward(sequence, ids, n, rows);
}

/* Logits of rows [first, first + rows) of those asked for, on the device. */
static tern_status head(struct tern_sequence *sequence, int64_t first, int64_t rows, bool capped)
{
    struct tern_infer *infer = sequence->infer;
    const struct tern_model *model = infer->model;
    return tern_infer_head(
        infer, tern_dptr_at(infer->norm, first * model->config.width, model->dtype), rows, capped);
}

tern_status tern_sequence_append(struct tern_sequence *sequence,
                                 const int32_t *ids,
                                 int64_t n,
                                 bool all_rows,
                                 float *logits_out)
{
    struct tern_infer *infer = sequence->infer;
    int64_t vocab = infer->model->config.vocab_size;
    int64_t rows = logits_out == NULL ? 0 : all_rows ? n : 1;
    TERN_RETURN_IF_ERR(append(sequence, ids, n, rows));
    for (int64_t at = 0; at < rows; at += sequence->logit_rows) {
        int64_t some = min_i64(rows - at, sequence->logit_rows);
        TERN_RETURN_IF_ERR(head(sequence, at, some, true));
        TERN_RETURN_IF_ERR(infer->device->ops->device->download(
            infer->device, logits_out + at * vocab, infer->logits,
            (size_t)(some * vocab) * sizeof *logits_out));
    }
    return TERN_OK;
}

tern_status tern_sequence_nll(struct tern_sequence *sequence,
                              const int32_t *ids,
                              const int32_t *targets,
                              int64_t n,
                              float *nll_out)
{
    struct tern_infer *infer = sequence->infer;
    const struct tern_model_config *c = &infer->model->config;
    const struct tern_device_table *table = infer->device->ops->device;
    TERN_RETURN_IF_ERR(append(sequence, ids, n, n));
    for (int64_t done = 0; done < n; done += sequence->logit_rows) {
        int64_t some = min_i64(n - done, sequence->logit_rows);
        TERN_RETURN_IF_ERR(head(sequence, done, some, false));
        TERN_RETURN_IF_ERR(table->upload(infer->device, sequence->targets, targets + done,
                                         (size_t)some * sizeof *targets));
        TERN_RETURN_IF_ERR(tern_op_cross_entropy(infer->device, &(struct tern_cross_entropy_args){
                                                                    .logits = infer->logits,
                                                                    .targets = sequence->targets,
                                                                    .nll = sequence->nll,
                                                                    .rows = some,
                                                                    .v = c->vocab_size,
                                                                    .ld = c->vocab_size,
                                                                    .softcap = c->logit_softcap,
                                                                }));
        TERN_RETURN_IF_ERR(table->download(infer->device, nll_out + done, sequence->nll,
                                           (size_t)some * sizeof *nll_out));
    }
    return TERN_OK;
}
