/* pass_forward.c - a micro-batch forward: which op follows which, the head and its loss. */
#include "models/pass_impl.h"
#include "runtime/base/check.h"

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

struct tern_dptr tern_pass_take_weights(struct tern_pass *pass, struct tern_dptr weights)
{
    if (!pass->run.is_frozen) {
        return weights;
    }
    TERN_CHECK(pass->frozen.addr != 0);
    pass->run.adapters = weights;
    return pass->frozen;
}

tern_status tern_pass_norm_fwd(struct tern_pass *pass,
                               struct tern_dptr weights,
                               const struct tern_pass_norm *norm,
                               struct tern_dptr x,
                               struct tern_dptr residual,
                               struct tern_dptr sum,
                               struct tern_dptr out)
{
    const struct tern_model_config *c = &pass->model->config;
    return tern_op_norm_fwd(pass->device,
                            &(struct tern_norm_fwd_args){
                                .x = x,
                                .residual = residual,
                                .sum = sum,
                                .gamma = tern_pass_weight(pass, weights, norm->weight),
                                .beta = tern_pass_weight(pass, weights, norm->bias),
                                .out = out,
                                .mean = norm->stats.mean,
                                .rstd = norm->stats.rstd,
                                .n = pass->n,
                                .c = c->width,
                                .eps = c->norm_eps,
                                .gamma_offset = c->features.norm_offset,
                                .kind = c->features.norm,
                                .dtype = pass->model->dtype,
                            });
}

/* `heads` heads of rows of qkv from element `first` on, each by itself, in place; raw keeps what they were. */
static tern_status norm_heads(struct tern_pass *pass,
                              struct tern_dptr weights,
                              int64_t weight,
                              struct tern_dptr qkv,
                              int64_t first,
                              int64_t heads,
                              struct tern_dptr raw,
                              const struct tern_pass_stats *stats)
{
    const struct tern_model_config *c = &pass->model->config;
    struct tern_dptr x = tern_dptr_at(qkv, first, pass->model->dtype);
    int64_t row = pass->model->layers[0].qkv.out;
    return tern_op_norm_fwd(pass->device,
                            &(struct tern_norm_fwd_args){
                                .x = x,
                                .gamma = tern_pass_weight(pass, weights, weight),
                                .out = x,
                                .copy = pass->options.backward ? raw : (struct tern_dptr){0},
                                .rstd = stats->rstd,
                                .n = pass->n,
                                .c = c->head_width,
                                .heads = heads,
                                .x_row = row,
                                .out_row = row,
                                .eps = c->norm_eps,
                                .gamma_offset = c->features.norm_offset,
                                .kind = TERN_NORM_RMS,
                                .dtype = pass->model->dtype,
                            });
}

tern_status tern_pass_rope(struct tern_pass *pass, struct tern_dptr qkv, int layer, bool backward)
{
    const struct tern_model *model = pass->model;
    const struct tern_model_config *c = &model->config;
    if (c->features.has_positions) {
        return TERN_OK;
    }
    int table = tern_pass_rope_table(model, layer);
    /* q and k heads lie side by side at the front of a row */
    return tern_op_rope(pass->device, &(struct tern_rope_args){
                                          .x = qkv,
                                          .cos = pass->cos[table],
                                          .sin = pass->sin[table],
                                          .starts = pass->starts,
                                          .n = pass->n,
                                          .t = pass->options.sequence,
                                          .heads = c->heads + c->kv_heads,
                                          .d = c->head_width,
                                          .rotary_d = c->rope_width,
                                          .x_row = model->layers[0].qkv.out,
                                          .backward = backward,
                                          .dtype = model->dtype,
                                      });
}

struct tern_attention_args tern_pass_attention_args(const struct tern_pass *pass, int layer)
{
    const struct tern_model_config *c = &pass->model->config;
    const struct tern_pass_saved *s = &pass->layers[layer];
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
        .window = pass->model->layers[layer].window,
        .scale = c->query_scale,
        .softcap = c->attention_softcap,
        .dtype = dtype,
    };
}

tern_status tern_pass_attend(struct tern_pass *pass, struct tern_dptr weights, int layer)
{
    const struct tern_model_config *c = &pass->model->config;
    const struct tern_layer_map *map = &pass->model->layers[layer];
    const struct tern_pass_saved *s = &pass->layers[layer];
    TERN_RETURN_IF_ERR(tern_linear_fwd(&pass->run, &map->qkv, weights, s->norm1, s->qkv, NULL));
    if (c->features.has_qk_norm) {
        TERN_RETURN_IF_ERR(norm_heads(pass, weights, map->q_norm_weight, s->qkv, 0, c->heads,
                                      s->q_raw, &s->q_stats));
        TERN_RETURN_IF_ERR(norm_heads(pass, weights, map->k_norm_weight, s->qkv,
                                      c->heads * c->head_width, c->kv_heads, s->k_raw,
                                      &s->k_stats));
    }
    TERN_RETURN_IF_ERR(tern_pass_rope(pass, s->qkv, layer, false));
    struct tern_attention_args args = tern_pass_attention_args(pass, layer);
    return tern_op_attention_fwd(pass->device, &args);
}

/* branch = what a sublayer's last product gives, through the norm behind it if there is one; raw keeps the product. */
static tern_status close_sublayer(struct tern_pass *pass,
                                  struct tern_dptr weights,
                                  const struct tern_linear *last,
                                  struct tern_dptr x,
                                  struct tern_dptr raw,
                                  const struct tern_pass_norm *post)
{
    struct tern_dptr none = {0};
    bool has_post = pass->model->config.features.has_post_norms;
    TERN_RETURN_IF_ERR(
        tern_linear_fwd(&pass->run, last, weights, x, has_post ? raw : pass->branch, NULL));
    return has_post ? tern_pass_norm_fwd(pass, weights, post, raw, none, none, pass->branch)
                    : TERN_OK;
}

tern_status tern_pass_feed(struct tern_pass *pass, struct tern_dptr weights, int layer)
{
    const struct tern_model *model = pass->model;
    const struct tern_layer_map *map = &model->layers[layer];
    const struct tern_pass_saved *s = &pass->layers[layer];
    const struct tern_pass_norm post = {map->post1_weight, -1, s->post1};
    const struct tern_pass_norm norm2 = {map->norm2_weight, map->norm2_bias, s->stats2};
    TERN_RETURN_IF_ERR(close_sublayer(pass, weights, &map->out, s->att, s->out1, &post));
    TERN_RETURN_IF_ERR(
        tern_pass_norm_fwd(pass, weights, &norm2, s->x1, pass->branch, s->x2, s->norm2));
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

tern_status tern_pass_close_layer(struct tern_pass *pass, struct tern_dptr weights, int layer)
{
    const struct tern_layer_map *map = &pass->model->layers[layer];
    const struct tern_pass_saved *s = &pass->layers[layer];
    const struct tern_pass_norm post = {map->post2_weight, -1, s->post2};
    return close_sublayer(pass, weights, &map->down, s->act, s->out2, &post);
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
    const struct tern_pass_saved *s = &pass->layers[layer];
    const struct tern_pass_norm norm1 = {map->norm1_weight, map->norm1_bias, s->stats1};
    TERN_RETURN_IF_ERR(
        tern_pass_norm_fwd(pass, weights, &norm1, stream->x, stream->branch, s->x1, s->norm1));
    TERN_RETURN_IF_ERR(tern_pass_attend(pass, weights, layer));
    TERN_RETURN_IF_ERR(tern_pass_feed(pass, weights, layer));
    *stream = (struct stream){.x = s->x2, .branch = pass->branch};
    return tern_pass_close_layer(pass, weights, layer);
}

static tern_status need(const struct tern_pass_hooks *hooks, int bucket)
{
    return hooks != NULL && hooks->need != NULL ? hooks->need(hooks->context, bucket) : TERN_OK;
}

int tern_pass_layer_bucket(const struct tern_pass *pass, int layer)
{
    return pass->run.is_frozen ? pass->options.lora->layers[layer].bucket
                               : pass->model->layers[layer].bucket;
}

/* The first bucket is asked for before anything is done, whatever it is of. */
static tern_status need_layer(struct tern_pass *pass,
                              int layer,
                              const struct tern_pass_hooks *hooks)
{
    int bucket = tern_pass_layer_bucket(pass, layer);
    return bucket > 0 ? need(hooks, bucket) : TERN_OK;
}

tern_status tern_pass_forward(struct tern_pass *pass,
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
                          .wte = tern_pass_weight(pass, weights, model->token_embedding),
                          .wpe = tern_pass_weight(pass, weights, model->position_embedding),
                          .out = stream.x,
                          .n = pass->n,
                          .t = pass->options.sequence,
                          .c = model->config.width,
                          .v = model->config.vocab_size,
                          .scale = tern_model_embedding_scale(&model->config, model->dtype),
                          .dtype = model->dtype,
                      }));
    for (int layer = 0; layer < model->config.layers; layer++) {
        TERN_RETURN_IF_ERR(need_layer(pass, layer, hooks));
        TERN_RETURN_IF_ERR(forward_layer(pass, weights, layer, &stream));
    }
    if (!pass->run.is_frozen) {
        TERN_RETURN_IF_ERR(need(hooks, model->last_bucket));
    }
    const struct tern_pass_norm norm = {model->final_norm_weight, model->final_norm_bias,
                                        pass->stats_final};
    return tern_pass_norm_fwd(pass, weights, &norm, stream.x, stream.branch, pass->x_final,
                              pass->norm_final);
}

tern_status tern_pass_head(struct tern_pass *pass,
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
                            .b = tern_pass_weight(pass, weights, model->head),
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

tern_status tern_pass_loss(struct tern_pass *pass,
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
                                     .ld = tern_pass_logits_stride(pass->model),
                                     .ldd = tern_pass_logits_stride(pass->model),
                                     .softcap = pass->model->config.logit_softcap,
                                     .backward = backward,
                                 });
}

tern_status tern_pass_eval(struct tern_pass *pass,
                           struct tern_dptr weights,
                           struct tern_dptr ids,
                           struct tern_dptr targets,
                           struct tern_dptr nll)
{
    weights = tern_pass_take_weights(pass, weights);
    TERN_RETURN_IF_ERR(tern_pass_forward(pass, weights, ids, NULL));
    for (int64_t first = 0; first < pass->n; first += pass->chunk_rows) {
        int64_t rows = pass->n - first < pass->chunk_rows ? pass->n - first : pass->chunk_rows;
        TERN_RETURN_IF_ERR(
            tern_pass_head(pass, weights, first, rows, tern_pass_logits_stride(pass->model)));
        TERN_RETURN_IF_ERR(tern_pass_loss(pass, targets, nll, first, rows, false));
    }
    return TERN_OK;
}

static tern_status cap_logits(struct tern_pass *pass, int64_t count)
{
    float cap = pass->model->config.logit_softcap;
    return cap > 0
               ? tern_op_softcap(pass->device,
                                 &(struct tern_softcap_args){
                                     .x = pass->logits, .y = pass->logits, .n = count, .cap = cap})
               : TERN_OK;
}

tern_status tern_pass_logits(struct tern_pass *pass,
                             struct tern_dptr weights,
                             int64_t first_row,
                             int64_t rows,
                             float *logits_out)
{
    int64_t v = pass->model->config.vocab_size;
    weights = tern_pass_take_weights(pass, weights);
    for (int64_t done = 0; done < rows; done += pass->chunk_rows) {
        int64_t take = rows - done < pass->chunk_rows ? rows - done : pass->chunk_rows;
        TERN_RETURN_IF_ERR(tern_pass_head(pass, weights, first_row + done, take, v));
        TERN_RETURN_IF_ERR(cap_logits(pass, take * v));
        TERN_RETURN_IF_ERR(
            pass->device->ops->device->download(pass->device, logits_out + done * v, pass->logits,
                                                (size_t)(take * v) * sizeof *logits_out));
    }
    return TERN_OK;
}
