/* infer.c - tokens in, logits out, keys and values kept. */
#include "models/infer.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"

enum {
    LOGIT_ROWS = 16
}; /* rows of logits made at a time */

struct tern_infer {
    const struct tern_model *model;
    struct tern_device *device;
    struct tern_dptr weights;
    struct tern_infer_options options;
    int64_t position;
    struct tern_dptr memory;
    struct tern_dptr ids;      /* i32 (chunk) */
    struct tern_dptr cache;    /* (L, positions, 2 K D): keys, then values in a row */
    struct tern_dptr x, x2;    /* (chunk, C) the stream */
    struct tern_dptr branch;   /* (chunk, C) */
    struct tern_dptr norm;     /* (chunk, C) */
    struct tern_dptr q, att;   /* (chunk, H D) */
    struct tern_dptr up, act;  /* (chunk, F or 2F), (chunk, F) */
    struct tern_dptr logits;   /* f32 (LOGIT_ROWS, V) */
    struct tern_dptr cos, sin; /* f32 (positions, D/2) */
};

static struct tern_dptr take(uint64_t base, uint64_t *used, int64_t elements, enum tern_dtype dtype)
{
    struct tern_dptr p = {base + *used};
    *used += ((uint64_t)elements * tern_dtype_bytes(dtype) + 63) & ~(uint64_t)63;
    return p;
}

static int64_t kv_width(const struct tern_model *model)
{
    return model->config.kv_heads * model->config.head_width;
}

static int64_t q_width(const struct tern_model *model)
{
    return model->config.heads * model->config.head_width;
}

static size_t place(struct tern_infer *infer, uint64_t base)
{
    const struct tern_model *model = infer->model;
    const struct tern_model_config *c = &model->config;
    enum tern_dtype dtype = model->dtype;
    int64_t n = infer->options.chunk;
    uint64_t used = 0;
    infer->ids = take(base, &used, n, TERN_I32);
    infer->cache =
        take(base, &used, c->layers * infer->options.positions * 2 * kv_width(model), dtype);
    infer->x = take(base, &used, n * c->width, dtype);
    infer->x2 = take(base, &used, n * c->width, dtype);
    infer->branch = take(base, &used, n * c->width, dtype);
    infer->norm = take(base, &used, n * c->width, dtype);
    infer->q = take(base, &used, n * q_width(model), dtype);
    infer->att = take(base, &used, n * q_width(model), dtype);
    infer->up = take(base, &used, n * model->layers[0].up.out, dtype);
    infer->act = take(base, &used, n * c->ff_width, dtype);
    infer->logits = take(base, &used, LOGIT_ROWS * c->vocab_size, TERN_F32);
    if (model->position_embedding < 0) {
        infer->cos = take(base, &used, infer->options.positions * (c->head_width / 2), TERN_F32);
        infer->sin = take(base, &used, infer->options.positions * (c->head_width / 2), TERN_F32);
    }
    return used;
}

size_t tern_infer_bytes(const struct tern_model *model, const struct tern_infer_options *options)
{
    struct tern_infer infer = {.model = model, .options = *options};
    return place(&infer, 0);
}

static tern_status upload_rope(struct tern_infer *infer)
{
    const struct tern_model_config *c = &infer->model->config;
    int64_t count = infer->options.positions * (c->head_width / 2);
    if (infer->model->position_embedding >= 0) {
        return TERN_OK;
    }
    float *tables = tern_alloc("rope", 2 * (size_t)count * sizeof *tables);
    if (tables == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate rotary tables of %lld values",
                         (long long)(2 * count));
    }
    tern_rope_tables(c, false, infer->options.positions, 0, infer->options.positions, tables,
                     tables + count);
    const struct tern_device_table *table = infer->device->ops->device;
    tern_status status =
        table->upload(infer->device, infer->cos, tables, (size_t)count * sizeof *tables);
    if (status == TERN_OK) {
        status = table->upload(infer->device, infer->sin, tables + count,
                               (size_t)count * sizeof *tables);
    }
    tern_free(tables);
    return status;
}

static tern_status prepare_device(struct tern_infer *infer)
{
    const struct tern_model *model = infer->model;
    int64_t widest = model->layers[0].up.out > model->config.width ? model->layers[0].up.out
                                                                   : model->config.width;
    struct tern_op_limits limits = {
        .rows = infer->options.chunk > LOGIT_ROWS ? infer->options.chunk : LOGIT_ROWS,
        .sequence = infer->options.positions,
        .width = widest,
        .heads = model->config.heads,
        .kv_heads = model->config.kv_heads,
        .head_width = model->config.head_width,
        .batch = 1,
        .vocab = model->config.vocab_size,
    };
    size_t bytes;
    return tern_device_prepare(infer->device, &limits, &bytes);
}

tern_status tern_infer_create(const struct tern_model *model,
                              struct tern_device *device,
                              struct tern_dptr weights,
                              const struct tern_infer_options *options,
                              struct tern_infer **out)
{
    TERN_CHECK(options->positions <= model->config.context && options->chunk >= 1);
    struct tern_infer *infer = tern_alloc_zero("infer", 1, sizeof *infer);
    if (infer == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate an inference pass");
    }
    *infer = (struct tern_infer){
        .model = model, .device = device, .weights = weights, .options = *options};
    tern_status status;
    TERN_GOTO_IF_ERR(status, prepare_device(infer), fail);
    TERN_GOTO_IF_ERR(
        status, device->ops->device->alloc(device, "infer", place(infer, 0), &infer->memory), fail);
    place(infer, infer->memory.addr);
    TERN_GOTO_IF_ERR(status, upload_rope(infer), fail);
    *out = infer;
    return TERN_OK;
fail:
    tern_infer_destroy(infer);
    return status;
}

void tern_infer_destroy(struct tern_infer *infer)
{
    if (infer == NULL) {
        return;
    }
    infer->device->ops->device->free(infer->device, infer->memory);
    tern_free(infer);
}

int64_t tern_infer_position(const struct tern_infer *infer)
{
    return infer->position;
}

void tern_infer_rewind(struct tern_infer *infer, int64_t position)
{
    TERN_CHECK(position >= 0 && position <= infer->position);
    infer->position = position;
}

static struct tern_dptr weight_at(const struct tern_infer *infer, int64_t offset)
{
    return offset >= 0 ? tern_dptr_at(infer->weights, offset, infer->model->dtype)
                       : (struct tern_dptr){0};
}

/* d (n, cols) = x (n, in) W[:, first .. first + cols) + bias, rows of d ldd apart; gelu: through
 * it, up keeps the rest. */
static tern_status project(struct tern_infer *infer,
                           const struct tern_linear *linear,
                           int64_t first,
                           int64_t cols,
                           int64_t n,
                           struct tern_dptr x,
                           struct tern_dptr d,
                           int64_t ldd,
                           const struct tern_dptr *pre)
{
    enum tern_dtype dtype = infer->model->dtype;
    int64_t start = linear->weight + (linear->is_out_in ? first * linear->in : first);
    struct tern_gemm_args args = {
        .a = x,
        .b = weight_at(infer, start),
        .d = d,
        .m = n,
        .n = cols,
        .k = linear->in,
        .lda = linear->in,
        .ldb = linear->is_out_in ? linear->in : linear->out,
        .ldd = ldd,
        .trans_b = linear->is_out_in,
        .a_dtype = dtype,
        .b_dtype = dtype,
        .d_dtype = dtype,
        .bias_dtype = dtype,
        .compute = dtype,
    };
    if (linear->bias >= 0) {
        args.bias = weight_at(infer, linear->bias + first);
        args.epilogue = pre != NULL ? TERN_EPILOGUE_BIAS_GELU : TERN_EPILOGUE_BIAS;
        args.aux = pre != NULL ? *pre : (struct tern_dptr){0};
    }
    return tern_op_gemm(infer->device, &args);
}

static tern_status norm(struct tern_infer *infer,
                        int64_t weight,
                        int64_t bias,
                        int64_t n,
                        struct tern_dptr x,
                        struct tern_dptr residual,
                        struct tern_dptr sum)
{
    const struct tern_model *model = infer->model;
    return tern_op_norm_fwd(infer->device, &(struct tern_norm_fwd_args){
                                               .x = x,
                                               .residual = residual,
                                               .sum = sum,
                                               .gamma = weight_at(infer, weight),
                                               .beta = weight_at(infer, bias),
                                               .out = infer->norm,
                                               .n = n,
                                               .c = model->config.width,
                                               .eps = model->config.norm_eps,
                                               .kind = model->config.features.norm,
                                               .dtype = model->dtype,
                                           });
}

static tern_status rope(struct tern_infer *infer,
                        struct tern_dptr x,
                        int64_t heads,
                        int64_t row,
                        int64_t n)
{
    if (infer->model->position_embedding >= 0) {
        return TERN_OK;
    }
    return tern_op_rope(infer->device, &(struct tern_rope_args){
                                           .x = x,
                                           .cos = infer->cos,
                                           .sin = infer->sin,
                                           .n = n,
                                           .t = n,
                                           .heads = heads,
                                           .d = infer->model->config.head_width,
                                           .x_row = row,
                                           .first_position = infer->position,
                                           .dtype = infer->model->dtype,
                                       });
}

/* norm (n, C) to att (n, H D): new keys and values go straight into the cache. */
static tern_status attend(struct tern_infer *infer, int layer, int64_t n)
{
    const struct tern_model *model = infer->model;
    const struct tern_model_config *c = &model->config;
    const struct tern_linear *qkv = &model->layers[layer].qkv;
    int64_t q = q_width(model);
    int64_t kv = kv_width(model);
    struct tern_dptr cache =
        tern_dptr_at(infer->cache, layer * infer->options.positions * 2 * kv, model->dtype);
    struct tern_dptr fresh = tern_dptr_at(cache, infer->position * 2 * kv, model->dtype);
    TERN_RETURN_IF_ERR(project(infer, qkv, 0, q, n, infer->norm, infer->q, q, NULL));
    TERN_RETURN_IF_ERR(project(infer, qkv, q, 2 * kv, n, infer->norm, fresh, 2 * kv, NULL));
    TERN_RETURN_IF_ERR(rope(infer, infer->q, c->heads, q, n));
    TERN_RETURN_IF_ERR(rope(infer, fresh, c->kv_heads, 2 * kv, n));
    return tern_op_attention_fwd(infer->device,
                                 &(struct tern_attention_args){
                                     .q = infer->q,
                                     .k = cache,
                                     .v = tern_dptr_at(cache, kv, model->dtype),
                                     .out = infer->att,
                                     .b = 1,
                                     .tq = n,
                                     .tkv = infer->position + n,
                                     .h = c->heads,
                                     .kv_heads = c->kv_heads,
                                     .d = c->head_width,
                                     .q_row = q,
                                     .q_batch = n * q,
                                     .kv_row = 2 * kv,
                                     .kv_batch = infer->options.positions * 2 * kv,
                                     .out_row = q,
                                     .out_batch = n * q,
                                     .scale = 1.0F / __builtin_sqrtf((float)c->head_width),
                                     .dtype = model->dtype,
                                 });
}

/* norm (n, C) to act (n, F). */
static tern_status feed_forward(struct tern_infer *infer, int layer, int64_t n)
{
    const struct tern_model *model = infer->model;
    const struct tern_linear *up = &model->layers[layer].up;
    if (!model->config.features.is_gated) {
        return project(infer, up, 0, up->out, n, infer->norm, infer->act, up->out, &infer->up);
    }
    TERN_RETURN_IF_ERR(project(infer, up, 0, up->out, n, infer->norm, infer->up, up->out, NULL));
    return tern_op_glu_fwd(infer->device, &(struct tern_glu_args){
                                              .gate_up = infer->up,
                                              .out = infer->act,
                                              .n = n,
                                              .f = model->config.ff_width,
                                              .act = model->config.features.act,
                                              .dtype = model->dtype,
                                          });
}

static tern_status run_layers(struct tern_infer *infer, int64_t n)
{
    const struct tern_model *model = infer->model;
    struct tern_dptr x = infer->x;
    struct tern_dptr branch = {0};
    for (int layer = 0; layer < model->config.layers; layer++) {
        const struct tern_layer_map *map = &model->layers[layer];
        TERN_RETURN_IF_ERR(norm(infer, map->norm1_weight, map->norm1_bias, n, x, branch, infer->x));
        TERN_RETURN_IF_ERR(attend(infer, layer, n));
        TERN_RETURN_IF_ERR(project(infer, &map->out, 0, map->out.out, n, infer->att, infer->branch,
                                   map->out.out, NULL));
        TERN_RETURN_IF_ERR(
            norm(infer, map->norm2_weight, map->norm2_bias, n, infer->x, infer->branch, infer->x2));
        TERN_RETURN_IF_ERR(feed_forward(infer, layer, n));
        TERN_RETURN_IF_ERR(project(infer, &map->down, 0, map->down.out, n, infer->act,
                                   infer->branch, map->down.out, NULL));
        x = infer->x2;
        branch = infer->branch;
    }
    return norm(infer, model->final_norm_weight, model->final_norm_bias, n, x, branch, infer->x);
}

/* Logits of rows [first, first + rows) of the normalised stream. */
static tern_status head(struct tern_infer *infer, int64_t first, int64_t rows, float *out)
{
    const struct tern_model *model = infer->model;
    int64_t c = model->config.width;
    int64_t v = model->config.vocab_size;
    for (int64_t done = 0; done < rows; done += LOGIT_ROWS) {
        int64_t take_rows = rows - done < LOGIT_ROWS ? rows - done : LOGIT_ROWS;
        TERN_RETURN_IF_ERR(tern_op_gemm(
            infer->device, &(struct tern_gemm_args){
                               .a = tern_dptr_at(infer->norm, (first + done) * c, model->dtype),
                               .b = weight_at(infer, model->head),
                               .d = infer->logits,
                               .m = take_rows,
                               .n = v,
                               .k = c,
                               .lda = c,
                               .ldb = c,
                               .ldd = v,
                               .trans_b = true,
                               .a_dtype = model->dtype,
                               .b_dtype = model->dtype,
                               .d_dtype = TERN_F32,
                               .compute = model->dtype,
                           }));
        TERN_RETURN_IF_ERR(infer->device->ops->device->download(
            infer->device, out + done * v, infer->logits, (size_t)(take_rows * v) * sizeof *out));
    }
    return TERN_OK;
}

tern_status tern_infer_append(struct tern_infer *infer,
                              const int32_t *ids,
                              int64_t n,
                              bool all_rows,
                              float *logits_out)
{
    const struct tern_model *model = infer->model;
    TERN_CHECK(n >= 1 && n <= infer->options.chunk);
    if (infer->position + n > infer->options.positions) {
        return tern_fail(TERN_ERR_INPUT,
                         "the sequence would be %lld tokens long, the limit is %lld",
                         (long long)(infer->position + n), (long long)infer->options.positions);
    }
    TERN_RETURN_IF_ERR(infer->device->ops->device->upload(infer->device, infer->ids, ids,
                                                          (size_t)n * sizeof *ids));
    TERN_RETURN_IF_ERR(
        tern_op_embed_fwd(infer->device, &(struct tern_embed_fwd_args){
                                             .ids = infer->ids,
                                             .wte = weight_at(infer, model->token_embedding),
                                             .wpe = weight_at(infer, model->position_embedding),
                                             .out = infer->x,
                                             .n = n,
                                             .t = n,
                                             .c = model->config.width,
                                             .v = model->config.vocab_size,
                                             .first_position = infer->position,
                                             .dtype = model->dtype,
                                         }));
    TERN_RETURN_IF_ERR(run_layers(infer, n));
    infer->position += n;
    if (logits_out == NULL) {
        return TERN_OK;
    }
    return all_rows ? head(infer, 0, n, logits_out) : head(infer, n - 1, 1, logits_out);
}
