/* infer.c - tokens in, logits out, keys and values kept: memory, embeddings, positions, the head. */
#include "models/infer_impl.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <string.h>

enum {
    LOGIT_BYTES = 4 << 20, /* made at a time */
    LOGIT_ROWS = 16        /* at least, if asked for as many */
};

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static struct tern_dptr take(uint64_t base, uint64_t *used, int64_t elements, enum tern_dtype dtype)
{
    struct tern_dptr p = {base + *used};
    *used += ((uint64_t)elements * tern_dtype_bytes(dtype) + 63) & ~(uint64_t)63;
    return p;
}

static int64_t kv_width(const struct tern_model_config *c)
{
    return c->kv_heads * c->head_width;
}

static int64_t q_width(const struct tern_model_config *c)
{
    return c->heads * c->head_width;
}

static int64_t up_width(const struct tern_model_config *c)
{
    return c->features.is_gated ? 2 * c->ff_width : c->ff_width;
}

/* Positions that a rotary table has: all, or those of one call where they depend on the length. */
static int64_t table_positions(const struct tern_sequence *infer)
{
    return tern_rope_follows_length(&infer->model->config) ? infer->options.chunk
                                                           : infer->options.positions;
}

static void place_experts(struct tern_sequence *infer, uint64_t base, uint64_t *used)
{
    const struct tern_model_config *c = &infer->model->config;
    enum tern_dtype dtype = infer->model->dtype;
    int64_t n = infer->options.chunk;
    int64_t pairs = n * c->experts_used;
    infer->router_logits = take(base, used, n * c->experts, dtype);
    infer->chosen = take(base, used, pairs, TERN_I32);
    infer->shares = take(base, used, pairs, TERN_F32);
    infer->pairs = take(base, used, pairs, TERN_I32);
    infer->rows = take(base, used, pairs, TERN_I32);
    infer->starts = take(base, used, c->experts + 1, TERN_I32);
    infer->gathered = take(base, used, pairs * c->width, dtype);
    infer->expert_out = take(base, used, pairs * c->width, dtype);
    infer->expert_up = take(base, used, pairs * 2 * c->expert_ff_width, dtype);
    infer->expert_act = take(base, used, pairs * c->expert_ff_width, dtype);
}

static void place_rope(struct tern_sequence *infer, uint64_t base, uint64_t *used)
{
    const struct tern_model_config *c = &infer->model->config;
    int64_t count = table_positions(infer) * (c->rope_width / 2);
    for (int i = 0; i < (c->rope_theta_local > 0 ? 2 : 1); i++) {
        infer->cos[i] = take(base, used, count, TERN_F32);
        infer->sin[i] = take(base, used, count, TERN_F32);
    }
}

static size_t place(struct tern_sequence *infer, uint64_t base)
{
    const struct tern_model_config *c = &infer->model->config;
    enum tern_dtype dtype = infer->model->dtype;
    int64_t n = infer->options.chunk;
    uint64_t used = 0;
    infer->logit_rows = min_i64(n, max_i64(LOGIT_ROWS, LOGIT_BYTES / (c->vocab_size * 4)));
    infer->ids = take(base, &used, n, TERN_I32);
    infer->cache = take(base, &used, c->layers * infer->options.positions * 2 * kv_width(c), dtype);
    infer->x = take(base, &used, n * c->width, dtype);
    infer->x2 = take(base, &used, n * c->width, dtype);
    infer->branch = take(base, &used, n * c->width, dtype);
    infer->norm = take(base, &used, n * c->width, dtype);
    infer->q = take(base, &used, n * q_width(c), dtype);
    infer->att = take(base, &used, n * q_width(c), dtype);
    if (c->experts > 0) {
        place_experts(infer, base, &used);
    } else {
        infer->up = take(base, &used, n * up_width(c), dtype);
        infer->act = take(base, &used, n * c->ff_width, dtype);
    }
    infer->logits = take(base, &used, infer->logit_rows * c->vocab_size, TERN_F32);
    infer->targets = take(base, &used, infer->logit_rows, TERN_I32);
    infer->nll = take(base, &used, infer->logit_rows, TERN_F32);
    if (!c->features.has_positions) {
        place_rope(infer, base, &used);
    }
    return used;
}

/* Tables of `count` positions from `first` on, of a sequence of infer->length tokens. */
static tern_status upload_rope(struct tern_sequence *infer, int64_t first, int64_t count)
{
    const struct tern_model_config *c = &infer->model->config;
    const struct tern_device_table *table = infer->device->ops->device;
    int64_t values = count * (c->rope_width / 2);
    size_t bytes = (size_t)values * sizeof(float);
    float *tables = tern_alloc("rope", 2 * bytes);
    tern_status status = TERN_OK;
    if (tables == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate rotary tables of %lld values",
                         (long long)(2 * values));
    }
    for (int i = 0; i < (c->rope_theta_local > 0 ? 2 : 1) && status == TERN_OK; i++) {
        tern_rope_tables(c, i == 1, infer->length, first, count, tables, tables + values);
        status = table->upload(infer->device, infer->cos[i], tables, bytes);
        if (status == TERN_OK) {
            status = table->upload(infer->device, infer->sin[i], tables + values, bytes);
        }
    }
    tern_free(tables);
    return status;
}

static tern_status prepare_device(struct tern_sequence *infer)
{
    const struct tern_model_config *c = &infer->model->config;
    int64_t experts = c->experts > 0 ? c->experts_used : 1;
    struct tern_op_limits limits = {
        .rows = max_i64(infer->options.chunk * experts, infer->logit_rows),
        .sequence = infer->options.positions,
        .width =
            max_i64(max_i64(up_width(c), 2 * c->expert_ff_width), max_i64(c->width, q_width(c))),
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_width = c->head_width,
        .batch = 1,
        .vocab = c->vocab_size,
    };
    size_t bytes;
    return tern_device_prepare(infer->device, &limits, &bytes);
}

/* Host memory that calls need. */
static tern_status take_host(struct tern_sequence *infer)
{
    const struct tern_model_config *c = &infer->model->config;
    if (c->experts > 0) {
        infer->starts_host =
            tern_alloc_zero("infer", (size_t)c->experts + 1, sizeof *infer->starts_host);
    }
    if (c->rope_scaling == TERN_ROPE_LONGROPE) {
        infer->ids_host =
            tern_alloc_zero("infer", (size_t)infer->options.positions, sizeof *infer->ids_host);
    }
    bool is_whole = (c->experts == 0 || infer->starts_host != NULL) &&
                    (c->rope_scaling != TERN_ROPE_LONGROPE || infer->ids_host != NULL);
    return is_whole ? TERN_OK
                    : tern_fail(TERN_ERR_MEMORY, "cannot allocate buffers of an inference pass");
}

tern_status tern_sequence_create(const struct tern_model *model,
                                 struct tern_device *device,
                                 const struct tern_placed *weights,
                                 const struct tern_sequence_options *options,
                                 struct tern_sequence **out)
{
    TERN_CHECK(options->positions <= model->config.context && options->chunk >= 1);
    struct tern_sequence *infer = tern_alloc_zero("infer", 1, sizeof *infer);
    if (infer == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate an inference pass");
    }
    *infer = (struct tern_sequence){
        .model = model, .device = device, .weights = weights, .options = *options};
    size_t bytes = place(infer, 0);
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_infer_layers_init(infer), fail);
    TERN_GOTO_IF_ERR(status, take_host(infer), fail);
    TERN_GOTO_IF_ERR(status, prepare_device(infer), fail);
    TERN_GOTO_IF_ERR(status, device->ops->device->alloc(device, "infer", bytes, &infer->memory),
                     fail);
    place(infer, infer->memory.addr);
    if (!model->config.features.has_positions && !tern_rope_follows_length(&model->config)) {
        infer->length = options->positions;
        TERN_GOTO_IF_ERR(status, upload_rope(infer, 0, options->positions), fail);
    }
    *out = infer;
    return TERN_OK;
fail:
    tern_sequence_destroy(infer);
    return status;
}

void tern_sequence_destroy(struct tern_sequence *infer)
{
    if (infer == NULL) {
        return;
    }
    infer->device->ops->device->free(infer->device, infer->memory);
    tern_infer_layers_fini(infer);
    tern_free(infer->starts_host);
    tern_free(infer->ids_host);
    tern_free(infer);
}

int64_t tern_sequence_position(const struct tern_sequence *infer)
{
    return infer->position;
}

void tern_sequence_rewind(struct tern_sequence *infer, int64_t position)
{
    TERN_CHECK(position >= 0 && position <= infer->position);
    infer->position = position;
}

void tern_sequence_expect(struct tern_sequence *infer, int64_t length)
{
    infer->expected = length;
}

static tern_status embed(struct tern_sequence *infer, const int32_t *ids, int64_t n)
{
    const struct tern_model *model = infer->model;
    float scale = tern_model_embedding_scale(&model->config, model->dtype);
    TERN_RETURN_IF_ERR(infer->device->ops->device->upload(infer->device, infer->ids, ids,
                                                          (size_t)n * sizeof *ids));
    return tern_op_embed_fwd(infer->device, &(struct tern_embed_fwd_args){
                                                .ids = infer->ids,
                                                .wte = infer->embedding->data,
                                                .wpe = infer->positions,
                                                .out = infer->x,
                                                .n = n,
                                                .t = n,
                                                .c = model->config.width,
                                                .v = model->config.vocab_size,
                                                .first_position = infer->position,
                                                .scale = scale != 1 ? scale : 0,
                                                .dtype = model->dtype,
                                                .wte_dtype = infer->embedding->dtype,
                                            });
}

/* n tokens through the model, their keys and values into the cache. */
static tern_status forward(struct tern_sequence *infer, const int32_t *ids, int64_t n)
{
    if (tern_rope_follows_length(&infer->model->config)) {
        TERN_RETURN_IF_ERR(upload_rope(infer, infer->position, n));
    }
    TERN_RETURN_IF_ERR(embed(infer, ids, n));
    TERN_RETURN_IF_ERR(tern_infer_run_layers(infer, n));
    infer->position += n;
    return TERN_OK;
}

/* The length that rotary positions of the next n tokens go by. A longrope has one set of factors up
 * to its original context and one beyond: a sequence that crosses it is computed anew, so that all of
 * its keys are of one set, as a pass over the whole would make them. */
static tern_status follow_length(struct tern_sequence *infer, int64_t n)
{
    const struct tern_model_config *c = &infer->model->config;
    int64_t before = infer->length;
    infer->length = max_i64(infer->position + n, infer->expected);
    bool was_long = before > c->rope_original_context;
    bool is_long = infer->length > c->rope_original_context;
    if (c->rope_scaling != TERN_ROPE_LONGROPE || infer->position == 0 || was_long == is_long) {
        return TERN_OK;
    }
    int64_t count = infer->position;
    infer->position = 0;
    while (infer->position < count) {
        int64_t step = min_i64(infer->options.chunk, count - infer->position);
        TERN_RETURN_IF_ERR(forward(infer, infer->ids_host + infer->position, step));
    }
    return TERN_OK;
}

static tern_status append(struct tern_sequence *infer, const int32_t *ids, int64_t n)
{
    TERN_CHECK(n >= 1 && n <= infer->options.chunk);
    if (infer->position + n > infer->options.positions) {
        return tern_fail(TERN_ERR_INPUT,
                         "the sequence would be %lld tokens long, the limit is %lld",
                         (long long)(infer->position + n), (long long)infer->options.positions);
    }
    TERN_RETURN_IF_ERR(follow_length(infer, n));
    if (infer->ids_host != NULL) {
        memcpy(infer->ids_host + infer->position, ids, (size_t)n * sizeof *ids);
    }
    return forward(infer, ids, n);
}

/* Logits of rows [first, first + rows) of the normalised stream, on the device; no cap yet. */
static tern_status head(struct tern_sequence *infer, int64_t first, int64_t rows)
{
    const struct tern_model *model = infer->model;
    const struct tern_matrix *matrix = &infer->head;
    return tern_op_gemm(
        infer->device,
        &(struct tern_gemm_args){
            .a = tern_dptr_at(infer->norm, first * model->config.width, model->dtype),
            .b = matrix->weight,
            .d = infer->logits,
            .m = rows,
            .n = matrix->out,
            .k = matrix->in,
            .lda = matrix->in,
            .ldb = matrix->ld,
            .ldd = matrix->out,
            .trans_b = matrix->is_out_in,
            .a_dtype = model->dtype,
            .b_dtype = matrix->dtype,
            .d_dtype = TERN_F32,
            .compute = model->dtype,
        });
}

/* Logits of rows [first, first + rows) to host memory. */
static tern_status read_logits(struct tern_sequence *infer, int64_t first, int64_t rows, float *out)
{
    const struct tern_model_config *c = &infer->model->config;
    for (int64_t done = 0; done < rows; done += infer->logit_rows) {
        int64_t some = min_i64(rows - done, infer->logit_rows);
        TERN_RETURN_IF_ERR(head(infer, first + done, some));
        if (c->logit_softcap > 0) {
            TERN_RETURN_IF_ERR(tern_op_softcap(infer->device, &(struct tern_softcap_args){
                                                                  .x = infer->logits,
                                                                  .y = infer->logits,
                                                                  .n = some * c->vocab_size,
                                                                  .cap = c->logit_softcap,
                                                              }));
        }
        TERN_RETURN_IF_ERR(infer->device->ops->device->download(
            infer->device, out + done * c->vocab_size, infer->logits,
            (size_t)(some * c->vocab_size) * sizeof *out));
    }
    return TERN_OK;
}

tern_status tern_sequence_append(struct tern_sequence *infer,
                                 const int32_t *ids,
                                 int64_t n,
                                 bool all_rows,
                                 float *logits_out)
{
    TERN_RETURN_IF_ERR(append(infer, ids, n));
    if (logits_out == NULL) {
        return TERN_OK;
    }
    return all_rows ? read_logits(infer, 0, n, logits_out)
                    : read_logits(infer, n - 1, 1, logits_out);
}

tern_status tern_sequence_nll(struct tern_sequence *infer,
                              const int32_t *ids,
                              const int32_t *targets,
                              int64_t n,
                              float *nll_out)
{
    const struct tern_model_config *c = &infer->model->config;
    const struct tern_device_table *table = infer->device->ops->device;
    TERN_RETURN_IF_ERR(append(infer, ids, n));
    for (int64_t done = 0; done < n; done += infer->logit_rows) {
        int64_t some = min_i64(n - done, infer->logit_rows);
        TERN_RETURN_IF_ERR(head(infer, done, some));
        TERN_RETURN_IF_ERR(table->upload(infer->device, infer->targets, targets + done,
                                         (size_t)some * sizeof *targets));
        TERN_RETURN_IF_ERR(tern_op_cross_entropy(infer->device, &(struct tern_cross_entropy_args){
                                                                    .logits = infer->logits,
                                                                    .targets = infer->targets,
                                                                    .nll = infer->nll,
                                                                    .rows = some,
                                                                    .v = c->vocab_size,
                                                                    .ld = c->vocab_size,
                                                                    .softcap = c->logit_softcap,
                                                                }));
        TERN_RETURN_IF_ERR(table->download(infer->device, nll_out + done, infer->nll,
                                           (size_t)some * sizeof *nll_out));
    }
    return TERN_OK;
}
