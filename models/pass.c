/* pass.c - one micro-batch forward and backward: which op follows which, and what is kept in
 * between. */
#include "models/linear.h"
#include "models/transformer.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <string.h>

enum {
    LOGITS_BYTES = 128 << 20, /* unless the options say otherwise */
    LOGITS_ROWS_MAX = 16384,
    LOGITS_ROWS_MIN = 64,
    LOGITS_ALIGN =
        64 /* elements between two rows: a vocabulary may be odd, tensor cores want 16 bytes */
};

/* What a layer leaves for its backward pass. Under recomputation several layers share the same
 * memory. */
struct saved {
    struct tern_dptr x1;           /* (N, C) residual stream at the first norm */
    struct tern_dptr norm1;        /* (N, C) */
    struct tern_dptr mean1, rstd1; /* f32 (N) */
    struct tern_dptr qkv;          /* (N, (H + 2K) D), rotated */
    struct tern_dptr att;          /* (N, H D) */
    struct tern_dptr lse;          /* f32 (B, H, T) */
    struct tern_dptr x2;           /* (N, C) residual stream at the second norm */
    struct tern_dptr norm2;
    struct tern_dptr mean2, rstd2;
    struct tern_dptr up;  /* (N, F) before GELU, or (N, 2F) gate and up */
    struct tern_dptr act; /* (N, F) */
};

struct tern_pass {
    const struct tern_model *model;
    struct tern_device *device;
    struct tern_pass_options options;
    struct tern_dptr starts; /* i32 (N) of packed documents, or null */
    struct tern_dptr memory;
    int64_t n;
    int64_t chunk_rows; /* rows of logits at a time */
    struct saved *layers;
    struct tern_dptr branch; /* (N, C) output of a sublayer before it joins the stream */
    struct tern_dptr x_final, norm_final, mean_final, rstd_final;
    struct tern_dptr logits;         /* f32 (chunk_rows, V) */
    struct tern_dptr dlogits;        /* dtype (chunk_rows, V); in f32 the logits themselves */
    struct tern_dptr cos, sin;       /* f32 (T, D/2) */
    struct tern_dptr dstream, dnorm; /* (N, C) */
    struct tern_dptr dact, dup, dqkv, datt;
    struct tern_linear_run run;
    /* Of a model with adapters: */
    struct tern_dptr frozen; /* dtype, the model's flat block */
    struct tern_dptr unused; /* f32 (2, C): where the gradients of a frozen norm go */
};

/* Gives out addresses from base in order; base 0 only counts. */
struct carver {
    uint64_t base, used;
};

static struct tern_dptr carve(struct carver *carver, int64_t elements, enum tern_dtype dtype)
{
    struct tern_dptr p = {carver->base + carver->used};
    carver->used += ((uint64_t)elements * tern_dtype_bytes(dtype) + 63) & ~(uint64_t)63;
    return p;
}

static int64_t logits_rows(const struct tern_model *model,
                           const struct tern_pass_options *options,
                           int64_t n)
{
    int64_t rows = LOGITS_ROWS_MAX;
    int64_t bytes = options->logits_bytes > 0 ? options->logits_bytes : LOGITS_BYTES;
    while (rows > LOGITS_ROWS_MIN && rows * model->config.vocab_size * 4 > bytes) {
        rows /= 2;
    }
    return rows < n ? rows : n;
}

/* Elements from one row of logits to the next. */
static int64_t logits_stride(const struct tern_model *model)
{
    return (model->config.vocab_size + LOGITS_ALIGN - 1) / LOGITS_ALIGN * LOGITS_ALIGN;
}

static int64_t up_width(const struct tern_model *model)
{
    return model->layers[0].up.out;
}

static void carve_attention(struct carver *carver,
                            const struct tern_model *model,
                            int64_t n,
                            struct saved *s)
{
    const struct tern_model_config *c = &model->config;
    s->norm1 = carve(carver, n * c->width, model->dtype);
    s->mean1 = carve(carver, n, TERN_F32);
    s->rstd1 = carve(carver, n, TERN_F32);
    s->qkv = carve(carver, n * model->layers[0].qkv.out, model->dtype);
    s->att = carve(carver, n * model->layers[0].out.in, model->dtype);
    s->lse = carve(carver, n * c->heads, TERN_F32);
}

static void carve_mlp(struct carver *carver,
                      const struct tern_model *model,
                      int64_t n,
                      struct saved *s)
{
    const struct tern_model_config *c = &model->config;
    s->x2 = carve(carver, n * c->width, model->dtype);
    s->norm2 = carve(carver, n * c->width, model->dtype);
    s->mean2 = carve(carver, n, TERN_F32);
    s->rstd2 = carve(carver, n, TERN_F32);
    s->up = carve(carver, n * up_width(model), model->dtype);
    s->act = carve(carver, n * c->ff_width, model->dtype);
}

static void carve_layers(struct carver *carver,
                         const struct tern_model *model,
                         const struct tern_pass_options *options,
                         int64_t n,
                         struct saved *layers)
{
    bool share_attention = !options->backward || options->recompute != TERN_RECOMPUTE_NONE;
    bool share_mlp = !options->backward || options->recompute == TERN_RECOMPUTE_BLOCK;
    struct saved shared = {0};
    if (share_attention) {
        carve_attention(carver, model, n, &shared);
    }
    if (share_mlp) {
        carve_mlp(carver, model, n, &shared);
    }
    for (int64_t layer = 0; layer < model->config.layers; layer++) {
        struct saved own = shared;
        /* without a backward pass two streams suffice: a layer reads x1 and leaves x2 */
        if (options->backward || layer == 0) {
            own.x1 = carve(carver, n * model->config.width, model->dtype);
            shared.x1 = own.x1;
        }
        if (!share_attention) {
            carve_attention(carver, model, n, &own);
        }
        if (!share_mlp) {
            carve_mlp(carver, model, n, &own);
        }
        layers[layer] = own;
    }
}

static void carve_backward(struct carver *carver, struct tern_pass *pass)
{
    const struct tern_model *model = pass->model;
    int64_t n = pass->n;
    pass->dlogits = pass->logits;
    if (model->dtype == TERN_BF16) {
        pass->dlogits = carve(carver, pass->chunk_rows * logits_stride(model), model->dtype);
    }
    pass->dstream = carve(carver, n * model->config.width, model->dtype);
    pass->dnorm = carve(carver, n * model->config.width, model->dtype);
    if (model->config.features.is_gated) { /* GELU's slope comes with the product */
        pass->dact = carve(carver, n * model->config.ff_width, model->dtype);
    }
    pass->dup = carve(carver, n * up_width(model), model->dtype);
    pass->dqkv = carve(carver, n * model->layers[0].qkv.out, model->dtype);
    pass->datt = carve(carver, n * model->layers[0].out.in, model->dtype);
}

/* What adapters need: low-rank rows and their way back, and a product before it is added. */
static void carve_adapters(struct carver *carver, struct tern_pass *pass)
{
    const struct tern_lora *lora = pass->options.lora;
    enum tern_dtype dtype = pass->model->dtype;
    struct tern_lora_width width = tern_lora_width(lora);
    pass->run.is_frozen = true;
    pass->run.low = carve(carver, pass->n * width.low, dtype);
    pass->run.dlow = carve(carver, pass->n * width.low, dtype);
    pass->run.wide = carve(carver, pass->n * width.wide, dtype);
    pass->unused = carve(carver, 2 * pass->model->config.width, TERN_F32);
}

/* Places everything from base on; returns the bytes. layers has room for all layers. */
static size_t place(struct tern_pass *pass, uint64_t base)
{
    const struct tern_model *model = pass->model;
    const struct tern_model_config *c = &model->config;
    struct carver carver = {.base = base};
    pass->n = pass->options.batch * pass->options.sequence;
    pass->chunk_rows = logits_rows(model, &pass->options, pass->n);
    carve_layers(&carver, model, &pass->options, pass->n, pass->layers);
    pass->branch = carve(&carver, pass->n * c->width, model->dtype);
    pass->x_final = carve(&carver, pass->n * c->width, model->dtype);
    pass->norm_final = carve(&carver, pass->n * c->width, model->dtype);
    pass->mean_final = carve(&carver, pass->n, TERN_F32);
    pass->rstd_final = carve(&carver, pass->n, TERN_F32);
    pass->logits = carve(&carver, pass->chunk_rows * logits_stride(model), TERN_F32);
    if (model->position_embedding < 0) {
        pass->cos = carve(&carver, pass->options.sequence * (c->head_width / 2), TERN_F32);
        pass->sin = carve(&carver, pass->options.sequence * (c->head_width / 2), TERN_F32);
    }
    if (pass->options.backward) {
        carve_backward(&carver, pass);
    }
    if (pass->options.lora != NULL) {
        carve_adapters(&carver, pass);
    }
    return carver.used;
}

size_t tern_pass_bytes(const struct tern_model *model, const struct tern_pass_options *options)
{
    struct saved *layers = tern_alloc("pass", (size_t)model->config.layers * sizeof *layers);
    if (layers == NULL) {
        return SIZE_MAX;
    }
    struct tern_pass pass = {.model = model, .options = *options, .layers = layers};
    size_t bytes = place(&pass, 0);
    tern_free(layers);
    return bytes;
}

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

struct tern_op_limits tern_pass_limits(const struct tern_model *model,
                                       const struct tern_pass_options *options)
{
    const struct tern_model_config *c = &model->config;
    int64_t widest = max_i64(max_i64(model->layers[0].qkv.out, up_width(model)), c->width);
    if (options->lora != NULL) {
        widest = max_i64(widest, tern_lora_width(options->lora).low);
    }
    return (struct tern_op_limits){
        .rows = options->batch * options->sequence,
        .sequence = options->sequence,
        .width = widest,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_width = c->head_width,
        .batch = options->batch,
        .vocab = c->vocab_size,
    };
}

static tern_status upload_rope(struct tern_pass *pass)
{
    const struct tern_model_config *c = &pass->model->config;
    if (pass->model->position_embedding >= 0) {
        return TERN_OK;
    }
    int64_t count = pass->options.sequence * (c->head_width / 2);
    float *tables = tern_alloc("rope", 2 * (size_t)count * sizeof *tables);
    if (tables == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate rotary tables of %lld values",
                         (long long)(2 * count));
    }
    tern_rope_tables(c, false, pass->options.sequence, 0, pass->options.sequence, tables,
                     tables + count);
    const struct tern_device_table *table = pass->device->ops->device;
    tern_status status =
        table->upload(pass->device, pass->cos, tables, (size_t)count * sizeof *tables);
    if (status == TERN_OK) {
        status =
            table->upload(pass->device, pass->sin, tables + count, (size_t)count * sizeof *tables);
    }
    tern_free(tables);
    return status;
}

tern_status tern_pass_create(const struct tern_model *model,
                             struct tern_device *device,
                             const struct tern_pass_options *options,
                             struct tern_pass **out)
{
    TERN_CHECK(options->sequence <= model->config.context);
    struct tern_pass *pass = tern_alloc_zero("pass", 1, sizeof *pass);
    struct saved *layers = tern_alloc("pass", (size_t)model->config.layers * sizeof *layers);
    if (pass == NULL || layers == NULL) {
        tern_free(pass);
        tern_free(layers);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the plan of a pass");
    }
    *pass =
        (struct tern_pass){.model = model, .device = device, .options = *options, .layers = layers};
    tern_status status;
    TERN_GOTO_IF_ERR(
        status, device->ops->device->alloc(device, "activations", place(pass, 0), &pass->memory),
        fail);
    place(pass, pass->memory.addr);
    pass->run.device = device;
    pass->run.dtype = model->dtype;
    pass->run.n = pass->n;
    TERN_GOTO_IF_ERR(status, upload_rope(pass), fail);
    *out = pass;
    return TERN_OK;
fail:
    tern_pass_destroy(pass);
    return status;
}

void tern_pass_destroy(struct tern_pass *pass)
{
    if (pass == NULL) {
        return;
    }
    pass->device->ops->device->free(pass->device, pass->memory);
    tern_free(pass->layers);
    tern_free(pass);
}

void tern_pass_freeze(struct tern_pass *pass, struct tern_dptr weights)
{
    TERN_CHECK(pass->options.lora != NULL);
    pass->frozen = weights;
}

tern_status tern_pass_pack(struct tern_pass *pass, struct tern_dptr starts)
{
    const struct tern_ops *ops = pass->device->ops;
    if (!tern_dptr_is_null(starts) && (ops->lacks & TERN_LACKS_DOCUMENTS) != 0) {
        return tern_fail(
            TERN_ERR_UNSUPPORTED,
            "backend %s cannot keep documents in one sequence apart, which data.format: "
            "chat needs",
            ops->device->name);
    }
    pass->starts = starts;
    return TERN_OK;
}

/* What a caller gives as weights is what is trained. Returns the model's. */
static struct tern_dptr take_weights(struct tern_pass *pass, struct tern_dptr weights)
{
    if (!pass->run.is_frozen) {
        return weights;
    }
    TERN_CHECK(pass->frozen.addr != 0);
    pass->run.adapters = weights;
    return pass->frozen;
}

/* ---- forward ---- */

static enum tern_norm_kind norm_kind(const struct tern_model *model)
{
    return model->config.features.norm;
}

static struct tern_dptr weight_at(const struct tern_model *model,
                                  struct tern_dptr weights,
                                  int64_t offset)
{
    return offset >= 0 ? tern_dptr_at(weights, offset, model->dtype) : (struct tern_dptr){0};
}

/* sum = x + residual (residual null: x as it is); out = norm(sum). */
static tern_status norm_fwd(struct tern_pass *pass,
                            struct tern_dptr weights,
                            int64_t weight,
                            int64_t bias,
                            struct tern_dptr x,
                            struct tern_dptr residual,
                            struct tern_dptr sum,
                            struct tern_dptr out,
                            struct tern_dptr mean,
                            struct tern_dptr rstd)
{
    const struct tern_model *model = pass->model;
    bool is_layer = norm_kind(model) == TERN_NORM_LAYER;
    return tern_op_norm_fwd(pass->device, &(struct tern_norm_fwd_args){
                                              .x = x,
                                              .residual = residual,
                                              .sum = sum,
                                              .gamma = weight_at(model, weights, weight),
                                              .beta = weight_at(model, weights, bias),
                                              .out = out,
                                              .mean = is_layer ? mean : (struct tern_dptr){0},
                                              .rstd = rstd,
                                              .n = pass->n,
                                              .c = model->config.width,
                                              .eps = model->config.norm_eps,
                                              .kind = norm_kind(model),
                                              .dtype = model->dtype,
                                          });
}

static tern_status rope(struct tern_pass *pass, struct tern_dptr qkv, bool backward)
{
    const struct tern_model *model = pass->model;
    if (model->position_embedding >= 0) {
        return TERN_OK;
    }
    const struct tern_model_config *c = &model->config;
    /* q and k heads lie side by side at the front of a row */
    return tern_op_rope(pass->device, &(struct tern_rope_args){
                                          .x = qkv,
                                          .cos = pass->cos,
                                          .sin = pass->sin,
                                          .starts = pass->starts,
                                          .n = pass->n,
                                          .t = pass->options.sequence,
                                          .heads = c->heads + c->kv_heads,
                                          .d = c->head_width,
                                          .x_row = model->layers[0].qkv.out,
                                          .backward = backward,
                                          .dtype = model->dtype,
                                      });
}

static struct tern_attention_args attention_args(const struct tern_pass *pass,
                                                 const struct saved *s)
{
    const struct tern_model_config *c = &pass->model->config;
    enum tern_dtype dtype = pass->model->dtype;
    int64_t q = c->heads * c->head_width;
    int64_t kv = c->kv_heads * c->head_width;
    int64_t row = q + 2 * kv;
    int64_t t = pass->options.sequence;
    return (struct tern_attention_args){
        .q = s->qkv,
        .k = tern_dptr_at(s->qkv, q, dtype),
        .v = tern_dptr_at(s->qkv, q + kv, dtype),
        .out = s->att,
        .lse = s->lse,
        .starts = pass->starts,
        .b = pass->options.batch,
        .tq = t,
        .tkv = t,
        .h = c->heads,
        .kv_heads = c->kv_heads,
        .d = c->head_width,
        .q_row = row,
        .q_batch = row * t,
        .kv_row = row,
        .kv_batch = row * t,
        .out_row = q,
        .out_batch = q * t,
        .scale = 1.0F / __builtin_sqrtf((float)c->head_width),
        .dtype = dtype,
    };
}

/* From x1 (already summed) to att: norm, qkv, rotation, attention. */
static tern_status attention_from_norm(struct tern_pass *pass, struct tern_dptr weights, int layer)
{
    const struct tern_layer_map *map = &pass->model->layers[layer];
    const struct saved *s = &pass->layers[layer];
    TERN_RETURN_IF_ERR(tern_linear_fwd(&pass->run, &map->qkv, weights, s->norm1, s->qkv, NULL));
    TERN_RETURN_IF_ERR(rope(pass, s->qkv, false));
    struct tern_attention_args args = attention_args(pass, s);
    return tern_op_attention_fwd(pass->device, &args);
}

/* From att to act: output projection, second norm, first half of the MLP. */
static tern_status mlp_from_attention(struct tern_pass *pass, struct tern_dptr weights, int layer)
{
    const struct tern_model *model = pass->model;
    const struct tern_layer_map *map = &model->layers[layer];
    const struct saved *s = &pass->layers[layer];
    TERN_RETURN_IF_ERR(tern_linear_fwd(&pass->run, &map->out, weights, s->att, pass->branch, NULL));
    TERN_RETURN_IF_ERR(norm_fwd(pass, weights, map->norm2_weight, map->norm2_bias, s->x1,
                                pass->branch, s->x2, s->norm2, s->mean2, s->rstd2));
    if (!model->config.features.is_gated) {
        return tern_linear_fwd(&pass->run, &map->up, weights, s->norm2, s->act, &s->up);
    }
    TERN_RETURN_IF_ERR(tern_linear_fwd(&pass->run, &map->up, weights, s->norm2, s->up, NULL));
    return tern_op_glu_fwd(pass->device, &(struct tern_glu_args){
                                             .gate_up = s->up,
                                             .out = s->act,
                                             .n = pass->n,
                                             .f = model->config.ff_width,
                                             .act = model->config.features.act,
                                             .dtype = model->dtype,
                                         });
}

/* The stream and the branch that join in the next norm. */
struct stream {
    struct tern_dptr x, branch;
};

static tern_status forward_layer(struct tern_pass *pass,
                                 struct tern_dptr weights,
                                 int layer,
                                 struct stream *stream)
{
    const struct tern_layer_map *map = &pass->model->layers[layer];
    const struct saved *s = &pass->layers[layer];
    TERN_RETURN_IF_ERR(norm_fwd(pass, weights, map->norm1_weight, map->norm1_bias, stream->x,
                                stream->branch, s->x1, s->norm1, s->mean1, s->rstd1));
    TERN_RETURN_IF_ERR(attention_from_norm(pass, weights, layer));
    TERN_RETURN_IF_ERR(mlp_from_attention(pass, weights, layer));
    *stream = (struct stream){.x = s->x2, .branch = pass->branch};
    return tern_linear_fwd(&pass->run, &map->down, weights, s->act, pass->branch, NULL);
}

static tern_status need(const struct tern_pass_hooks *hooks, int bucket)
{
    return hooks != NULL && hooks->need != NULL ? hooks->need(hooks->context, bucket) : TERN_OK;
}

static tern_status ready(const struct tern_pass_hooks *hooks, int bucket)
{
    return hooks != NULL && hooks->ready != NULL ? hooks->ready(hooks->context, bucket) : TERN_OK;
}

/* Bucket of a layer's weights that are trained; -1: it has none. */
static int layer_bucket(const struct tern_pass *pass, int layer)
{
    return pass->run.is_frozen ? pass->options.lora->layers[layer].bucket
                               : pass->model->layers[layer].bucket;
}

/* The first bucket is asked for before anything is done, whatever it is of. */
static tern_status need_layer(struct tern_pass *pass,
                              int layer,
                              const struct tern_pass_hooks *hooks)
{
    int bucket = layer_bucket(pass, layer);
    return bucket > 0 ? need(hooks, bucket) : TERN_OK;
}

static tern_status forward(struct tern_pass *pass,
                           struct tern_dptr weights,
                           struct tern_dptr ids,
                           const struct tern_pass_hooks *hooks)
{
    const struct tern_model *model = pass->model;
    struct stream stream = {.x = pass->layers[0].x1};
    TERN_RETURN_IF_ERR(need(hooks, 0));
    TERN_RETURN_IF_ERR(tern_op_embed_fwd(
        pass->device, &(struct tern_embed_fwd_args){
                          .ids = ids,
                          .starts = pass->starts,
                          .wte = weight_at(model, weights, model->token_embedding),
                          .wpe = weight_at(model, weights, model->position_embedding),
                          .out = stream.x,
                          .n = pass->n,
                          .t = pass->options.sequence,
                          .c = model->config.width,
                          .v = model->config.vocab_size,
                          .dtype = model->dtype,
                      }));
    for (int layer = 0; layer < model->config.layers; layer++) {
        TERN_RETURN_IF_ERR(need_layer(pass, layer, hooks));
        TERN_RETURN_IF_ERR(forward_layer(pass, weights, layer, &stream));
    }
    if (!pass->run.is_frozen) {
        TERN_RETURN_IF_ERR(need(hooks, model->last_bucket));
    }
    return norm_fwd(pass, weights, model->final_norm_weight, model->final_norm_bias, stream.x,
                    stream.branch, pass->x_final, pass->norm_final, pass->mean_final,
                    pass->rstd_final);
}

/* logits (rows, V), ld apart, = norm_final[first .. first + rows) head^T */
static tern_status head_logits(struct tern_pass *pass,
                               struct tern_dptr weights,
                               int64_t first,
                               int64_t rows,
                               int64_t ld)
{
    const struct tern_model *model = pass->model;
    int64_t c = model->config.width;
    return tern_op_gemm(pass->device,
                        &(struct tern_gemm_args){
                            .a = tern_dptr_at(pass->norm_final, first * c, model->dtype),
                            .b = weight_at(model, weights, model->head),
                            .d = pass->logits,
                            .m = rows,
                            .n = model->config.vocab_size,
                            .k = c,
                            .lda = c,
                            .ldb = c,
                            .ldd = ld,
                            .trans_b = true,
                            .a_dtype = model->dtype,
                            .b_dtype = model->dtype,
                            .d_dtype = TERN_F32,
                            .compute = model->dtype,
                        });
}

static tern_status loss_rows(struct tern_pass *pass,
                             struct tern_dptr targets,
                             struct tern_dptr nll,
                             int64_t first,
                             int64_t rows,
                             bool backward)
{
    return tern_op_cross_entropy(pass->device,
                                 &(struct tern_cross_entropy_args){
                                     .logits = pass->logits,
                                     .targets = tern_dptr_at(targets, first, TERN_I32),
                                     .nll = tern_dptr_at(nll, first, TERN_F32),
                                     .dlogits = backward && pass->model->dtype == TERN_BF16
                                                    ? pass->dlogits
                                                    : (struct tern_dptr){0},
                                     .rows = rows,
                                     .v = pass->model->config.vocab_size,
                                     .ld = logits_stride(pass->model),
                                     .ldd = logits_stride(pass->model),
                                     .backward = backward,
                                 });
}

tern_status tern_pass_eval(struct tern_pass *pass,
                           struct tern_dptr weights,
                           struct tern_dptr ids,
                           struct tern_dptr targets,
                           struct tern_dptr nll)
{
    weights = take_weights(pass, weights);
    TERN_RETURN_IF_ERR(forward(pass, weights, ids, NULL));
    for (int64_t first = 0; first < pass->n; first += pass->chunk_rows) {
        int64_t rows = pass->n - first < pass->chunk_rows ? pass->n - first : pass->chunk_rows;
        TERN_RETURN_IF_ERR(head_logits(pass, weights, first, rows, logits_stride(pass->model)));
        TERN_RETURN_IF_ERR(loss_rows(pass, targets, nll, first, rows, false));
    }
    return TERN_OK;
}

tern_status tern_pass_logits(struct tern_pass *pass,
                             struct tern_dptr weights,
                             int64_t first_row,
                             int64_t rows,
                             float *logits_out)
{
    int64_t v = pass->model->config.vocab_size;
    weights = take_weights(pass, weights);
    for (int64_t done = 0; done < rows; done += pass->chunk_rows) {
        int64_t take = rows - done < pass->chunk_rows ? rows - done : pass->chunk_rows;
        TERN_RETURN_IF_ERR(head_logits(pass, weights, first_row + done, take, v));
        TERN_RETURN_IF_ERR(
            pass->device->ops->device->download(pass->device, logits_out + done * v, pass->logits,
                                                (size_t)(take * v) * sizeof *logits_out));
    }
    return TERN_OK;
}

/* ---- backward ---- */

/* Loss and its gradient, a chunk of rows at a time: dnorm (N, C) and the head's gradient. */
static tern_status head_backward(struct tern_pass *pass,
                                 struct tern_dptr weights,
                                 struct tern_dptr grads,
                                 struct tern_dptr targets,
                                 struct tern_dptr nll,
                                 bool accumulate)
{
    const struct tern_model *model = pass->model;
    int64_t c = model->config.width;
    int64_t v = model->config.vocab_size;
    int64_t ld = logits_stride(model);
    for (int64_t first = 0; first < pass->n; first += pass->chunk_rows) {
        int64_t rows = pass->n - first < pass->chunk_rows ? pass->n - first : pass->chunk_rows;
        TERN_RETURN_IF_ERR(head_logits(pass, weights, first, rows, ld));
        TERN_RETURN_IF_ERR(loss_rows(pass, targets, nll, first, rows, true));
        TERN_RETURN_IF_ERR(
            tern_op_gemm(pass->device, &(struct tern_gemm_args){
                                           .a = pass->dlogits,
                                           .b = weight_at(model, weights, model->head),
                                           .d = tern_dptr_at(pass->dnorm, first * c, model->dtype),
                                           .m = rows,
                                           .n = c,
                                           .k = v,
                                           .lda = ld,
                                           .ldb = c,
                                           .ldd = c,
                                           .a_dtype = model->dtype,
                                           .b_dtype = model->dtype,
                                           .d_dtype = model->dtype,
                                           .compute = model->dtype,
                                       }));
        if (pass->run.is_frozen) {
            continue;
        }
        TERN_RETURN_IF_ERR(tern_op_gemm(
            pass->device, &(struct tern_gemm_args){
                              .a = pass->dlogits,
                              .b = tern_dptr_at(pass->norm_final, first * c, model->dtype),
                              .d = tern_dptr_at(grads, model->head, TERN_F32),
                              .m = v,
                              .n = c,
                              .k = rows,
                              .lda = ld,
                              .ldb = c,
                              .ldd = c,
                              .trans_a = true,
                              .accumulate = accumulate || first > 0,
                              .a_dtype = model->dtype,
                              .b_dtype = model->dtype,
                              .d_dtype = TERN_F32,
                              .compute = model->dtype,
                          }));
    }
    return TERN_OK;
}

/* dx = dresidual + backward of the norm of x at dy. */
static tern_status norm_bwd(struct tern_pass *pass,
                            struct tern_dptr weights,
                            struct tern_dptr grads,
                            int64_t weight,
                            int64_t bias,
                            struct tern_dptr x,
                            struct tern_dptr mean,
                            struct tern_dptr rstd,
                            struct tern_dptr dresidual,
                            bool accumulate)
{
    const struct tern_model *model = pass->model;
    bool is_layer = norm_kind(model) == TERN_NORM_LAYER;
    bool is_frozen = pass->run.is_frozen;
    struct tern_dptr dgamma = is_frozen ? pass->unused : tern_dptr_at(grads, weight, TERN_F32);
    struct tern_dptr dbeta = is_frozen ? tern_dptr_at(pass->unused, model->config.width, TERN_F32)
                                       : tern_dptr_at(grads, bias, TERN_F32);
    return tern_op_norm_bwd(pass->device, &(struct tern_norm_bwd_args){
                                              .dy = pass->dnorm,
                                              .x = x,
                                              .gamma = weight_at(model, weights, weight),
                                              .mean = is_layer ? mean : (struct tern_dptr){0},
                                              .rstd = rstd,
                                              .dresidual = dresidual,
                                              .dx = pass->dstream,
                                              .dgamma = dgamma,
                                              .dbeta = is_layer ? dbeta : (struct tern_dptr){0},
                                              .n = pass->n,
                                              .c = model->config.width,
                                              .accumulate = accumulate && !is_frozen,
                                              .kind = norm_kind(model),
                                              .dtype = model->dtype,
                                          });
}

static tern_status mlp_backward(struct tern_pass *pass,
                                struct tern_dptr weights,
                                struct tern_dptr grads,
                                int layer,
                                bool accumulate)
{
    const struct tern_model *model = pass->model;
    const struct tern_layer_map *map = &model->layers[layer];
    const struct saved *s = &pass->layers[layer];
    bool is_gated = model->config.features.is_gated;
    TERN_RETURN_IF_ERR(tern_linear_bwd_input(&pass->run, &map->down, weights, pass->dstream,
                                             is_gated ? pass->dact : pass->dup,
                                             is_gated ? NULL : &s->up));
    TERN_RETURN_IF_ERR(
        tern_linear_bwd_weight(&pass->run, &map->down, grads, s->act, pass->dstream, accumulate));
    if (is_gated) {
        TERN_RETURN_IF_ERR(tern_op_glu_bwd(pass->device, &(struct tern_glu_args){
                                                             .gate_up = s->up,
                                                             .dout = pass->dact,
                                                             .dgate_up = pass->dup,
                                                             .n = pass->n,
                                                             .f = model->config.ff_width,
                                                             .act = model->config.features.act,
                                                             .dtype = model->dtype,
                                                         }));
    }
    TERN_RETURN_IF_ERR(
        tern_linear_bwd_input(&pass->run, &map->up, weights, pass->dup, pass->dnorm, NULL));
    TERN_RETURN_IF_ERR(
        tern_linear_bwd_weight(&pass->run, &map->up, grads, s->norm2, pass->dup, accumulate));
    return norm_bwd(pass, weights, grads, map->norm2_weight, map->norm2_bias, s->x2, s->mean2,
                    s->rstd2, pass->dstream, accumulate);
}

static tern_status attention_backward(struct tern_pass *pass,
                                      struct tern_dptr weights,
                                      struct tern_dptr grads,
                                      int layer,
                                      bool accumulate)
{
    const struct tern_model *model = pass->model;
    const struct tern_layer_map *map = &model->layers[layer];
    const struct saved *s = &pass->layers[layer];
    TERN_RETURN_IF_ERR(
        tern_linear_bwd_input(&pass->run, &map->out, weights, pass->dstream, pass->datt, NULL));
    TERN_RETURN_IF_ERR(
        tern_linear_bwd_weight(&pass->run, &map->out, grads, s->att, pass->dstream, accumulate));
    struct tern_attention_args args = attention_args(pass, s);
    int64_t q = model->config.heads * model->config.head_width;
    int64_t kv = model->config.kv_heads * model->config.head_width;
    args.dout = pass->datt;
    args.dq = pass->dqkv;
    args.dk = tern_dptr_at(pass->dqkv, q, model->dtype);
    args.dv = tern_dptr_at(pass->dqkv, q + kv, model->dtype);
    TERN_RETURN_IF_ERR(tern_op_attention_bwd(pass->device, &args));
    TERN_RETURN_IF_ERR(rope(pass, pass->dqkv, true));
    TERN_RETURN_IF_ERR(
        tern_linear_bwd_input(&pass->run, &map->qkv, weights, pass->dqkv, pass->dnorm, NULL));
    TERN_RETURN_IF_ERR(
        tern_linear_bwd_weight(&pass->run, &map->qkv, grads, s->norm1, pass->dqkv, accumulate));
    return norm_bwd(pass, weights, grads, map->norm1_weight, map->norm1_bias, s->x1, s->mean1,
                    s->rstd1, pass->dstream, accumulate);
}

/* Brings back what recomputation did not keep. The same ops on the same inputs: the same bits. */
static tern_status recompute_layer(struct tern_pass *pass, struct tern_dptr weights, int layer)
{
    if (pass->options.recompute == TERN_RECOMPUTE_NONE) {
        return TERN_OK;
    }
    const struct tern_layer_map *map = &pass->model->layers[layer];
    const struct saved *s = &pass->layers[layer];
    struct tern_dptr none = {0};
    TERN_RETURN_IF_ERR(norm_fwd(pass, weights, map->norm1_weight, map->norm1_bias, s->x1, none,
                                none, s->norm1, s->mean1, s->rstd1));
    TERN_RETURN_IF_ERR(attention_from_norm(pass, weights, layer));
    return pass->options.recompute == TERN_RECOMPUTE_BLOCK
               ? mlp_from_attention(pass, weights, layer)
               : TERN_OK;
}

/* Gradients that only ever grow by addition start from zero on the first micro-batch. */
static tern_status zero_embeddings(struct tern_pass *pass, struct tern_dptr grads)
{
    const struct tern_model *model = pass->model;
    const struct tern_model_config *c = &model->config;
    const struct tern_device_table *table = pass->device->ops->device;
    if (model->head != model->token_embedding) {
        TERN_RETURN_IF_ERR(table->zero(pass->device,
                                       tern_dptr_at(grads, model->token_embedding, TERN_F32),
                                       (size_t)(c->vocab_size * c->width) * sizeof(float)));
    }
    if (model->position_embedding >= 0) {
        TERN_RETURN_IF_ERR(table->zero(pass->device,
                                       tern_dptr_at(grads, model->position_embedding, TERN_F32),
                                       (size_t)(c->context * c->width) * sizeof(float)));
    }
    return TERN_OK;
}

static tern_status embed_backward(struct tern_pass *pass,
                                  struct tern_dptr grads,
                                  struct tern_dptr ids)
{
    const struct tern_model *model = pass->model;
    struct tern_dptr dwpe = {0};
    if (model->position_embedding >= 0) {
        dwpe = tern_dptr_at(grads, model->position_embedding, TERN_F32);
    }
    return tern_op_embed_bwd(pass->device,
                             &(struct tern_embed_bwd_args){
                                 .ids = ids,
                                 .starts = pass->starts,
                                 .dout = pass->dstream,
                                 .dwte = tern_dptr_at(grads, model->token_embedding, TERN_F32),
                                 .dwpe = dwpe,
                                 .n = pass->n,
                                 .t = pass->options.sequence,
                                 .c = model->config.width,
                                 .v = model->config.vocab_size,
                                 .dtype = model->dtype,
                             });
}

tern_status tern_pass_train(struct tern_pass *pass,
                            struct tern_dptr weights,
                            struct tern_dptr grads,
                            struct tern_dptr ids,
                            struct tern_dptr targets,
                            struct tern_dptr nll,
                            bool accumulate,
                            const struct tern_pass_hooks *hooks)
{
    TERN_CHECK(pass->options.backward);
    const struct tern_model *model = pass->model;
    struct tern_dptr none = {0};
    weights = take_weights(pass, weights);
    TERN_RETURN_IF_ERR(forward(pass, weights, ids, hooks));
    if (!accumulate && !pass->run.is_frozen) {
        TERN_RETURN_IF_ERR(zero_embeddings(pass, grads));
    }
    TERN_RETURN_IF_ERR(head_backward(pass, weights, grads, targets, nll, accumulate));
    TERN_RETURN_IF_ERR(norm_bwd(pass, weights, grads, model->final_norm_weight,
                                model->final_norm_bias, pass->x_final, pass->mean_final,
                                pass->rstd_final, none, accumulate));
    if (!pass->run.is_frozen) {
        TERN_RETURN_IF_ERR(ready(hooks, model->last_bucket));
    }
    for (int layer = (int)model->config.layers - 1; layer >= 0; layer--) {
        TERN_RETURN_IF_ERR(recompute_layer(pass, weights, layer));
        TERN_RETURN_IF_ERR(mlp_backward(pass, weights, grads, layer, accumulate));
        TERN_RETURN_IF_ERR(attention_backward(pass, weights, grads, layer, accumulate));
        int bucket = layer_bucket(pass, layer);
        TERN_RETURN_IF_ERR(bucket >= 0 ? ready(hooks, bucket) : TERN_OK);
    }
    if (pass->run.is_frozen) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(embed_backward(pass, grads, ids));
    return ready(hooks, model->first_bucket);
}
