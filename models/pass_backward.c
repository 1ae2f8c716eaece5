/* pass_backward.c - a micro-batch backward, layer by layer from the loss, and the whole of a training pass. */
#include "models/pass_impl.h"
#include "runtime/base/check.h"

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
    int64_t ld = tern_pass_logits_stride(model);
    for (int64_t first = 0; first < pass->n; first += pass->chunk_rows) {
        int64_t rows = pass->n - first < pass->chunk_rows ? pass->n - first : pass->chunk_rows;
        TERN_RETURN_IF_ERR(tern_pass_head(pass, weights, first, rows, ld));
        TERN_RETURN_IF_ERR(tern_pass_loss(pass, targets, nll, first, rows, true));
        TERN_RETURN_IF_ERR(
            tern_op_gemm(pass->device, &(struct tern_gemm_args){
                                           .a = pass->dlogits,
                                           .b = tern_pass_weight(pass, weights, model->head),
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

/* Gradients of one call, all of whose layers add or overwrite alike. */
struct backward {
    struct tern_pass *pass;
    struct tern_dptr weights, grads;
    bool accumulate;
};

/* dx (N, C) = dresidual + backward of the norm of x at dy; both may be dx, dresidual may be null. */
static tern_status norm_bwd(const struct backward *b,
                            const struct tern_pass_norm *norm,
                            struct tern_dptr dy,
                            struct tern_dptr x,
                            struct tern_dptr dresidual,
                            struct tern_dptr dx)
{
    const struct tern_pass *pass = b->pass;
    const struct tern_model_config *c = &pass->model->config;
    bool is_frozen = pass->run.is_frozen, has_bias = norm->bias >= 0;
    struct tern_dptr dbeta = is_frozen ? tern_dptr_at(pass->unused, c->width, TERN_F32)
                                       : tern_dptr_at(b->grads, norm->bias, TERN_F32);
    return tern_op_norm_bwd(
        pass->device,
        &(struct tern_norm_bwd_args){
            .dy = dy,
            .x = x,
            .gamma = tern_pass_weight(pass, b->weights, norm->weight),
            .mean = norm->stats.mean,
            .rstd = norm->stats.rstd,
            .dresidual = dresidual,
            .dx = dx,
            .dgamma = is_frozen ? pass->unused : tern_dptr_at(b->grads, norm->weight, TERN_F32),
            .dbeta = has_bias ? dbeta : (struct tern_dptr){0},
            .n = pass->n,
            .c = c->width,
            .gamma_offset = c->features.norm_offset,
            .accumulate = b->accumulate && !is_frozen,
            .kind = c->features.norm,
            .dtype = pass->model->dtype,
        });
}

/* The norms of q or k heads, in place in rows of dqkv from element `first` on. */
static tern_status norm_heads_bwd(const struct backward *b,
                                  int64_t weight,
                                  int64_t first,
                                  int64_t heads,
                                  struct tern_dptr raw,
                                  const struct tern_pass_stats *stats)
{
    const struct tern_pass *pass = b->pass;
    const struct tern_model_config *c = &pass->model->config;
    struct tern_dptr dx = tern_dptr_at(pass->dqkv, first, pass->model->dtype);
    bool is_frozen = pass->run.is_frozen;
    return tern_op_norm_bwd(
        pass->device,
        &(struct tern_norm_bwd_args){
            .dy = dx,
            .x = raw,
            .gamma = tern_pass_weight(pass, b->weights, weight),
            .rstd = stats->rstd,
            .dx = dx,
            .dgamma = is_frozen ? pass->unused : tern_dptr_at(b->grads, weight, TERN_F32),
            .n = pass->n,
            .c = c->head_width,
            .heads = heads,
            .dy_row = pass->model->layers[0].qkv.out,
            .gamma_offset = c->features.norm_offset,
            .accumulate = b->accumulate && !is_frozen,
            .kind = TERN_NORM_RMS,
            .dtype = pass->model->dtype,
        });
}

/* The gradient of a sublayer's last product: that of the stream, through the norm behind it if there is one. */
static tern_status branch_backward(const struct backward *b,
                                   const struct tern_pass_norm *post,
                                   struct tern_dptr raw,
                                   struct tern_dptr *dout)
{
    const struct tern_pass *pass = b->pass;
    *dout = pass->dstream;
    if (!pass->model->config.features.has_post_norms) {
        return TERN_OK;
    }
    *dout = pass->dbranch;
    return norm_bwd(b, post, pass->dstream, raw, (struct tern_dptr){0}, pass->dbranch);
}

static tern_status linear_backward(const struct backward *b,
                                   const struct tern_linear *linear,
                                   struct tern_dptr x,
                                   struct tern_dptr dy,
                                   struct tern_dptr dx,
                                   const struct tern_dptr *gelu_pre)
{
    const struct tern_linear_run *run = &b->pass->run;
    TERN_RETURN_IF_ERR(tern_linear_bwd_input(run, linear, b->weights, dy, dx, gelu_pre));
    return tern_linear_bwd_weight(run, linear, b->grads, x, dy, b->accumulate);
}

static tern_status mlp_backward(const struct backward *b, int layer)
{
    const struct tern_pass *pass = b->pass;
    const struct tern_model *model = pass->model;
    const struct tern_layer_map *map = &model->layers[layer];
    const struct tern_pass_saved *s = &pass->layers[layer];
    const struct tern_pass_norm post = {map->post2_weight, -1, s->post2};
    const struct tern_pass_norm norm2 = {map->norm2_weight, map->norm2_bias, s->stats2};
    bool is_gated = model->config.features.is_gated;
    struct tern_dptr dout;
    TERN_RETURN_IF_ERR(branch_backward(b, &post, s->out2, &dout));
    TERN_RETURN_IF_ERR(linear_backward(
        b, &map->down, s->act, dout, is_gated ? pass->dact : pass->dup, is_gated ? NULL : &s->up));
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
    TERN_RETURN_IF_ERR(linear_backward(b, &map->up, s->norm2, pass->dup, pass->dnorm, NULL));
    return norm_bwd(b, &norm2, pass->dnorm, s->x2, pass->dstream, pass->dstream);
}

static tern_status attention_backward(const struct backward *b, int layer)
{
    const struct tern_pass *pass = b->pass;
    const struct tern_model_config *c = &pass->model->config;
    const struct tern_layer_map *map = &pass->model->layers[layer];
    const struct tern_pass_saved *s = &pass->layers[layer];
    const struct tern_pass_norm post = {map->post1_weight, -1, s->post1};
    const struct tern_pass_norm norm1 = {map->norm1_weight, map->norm1_bias, s->stats1};
    struct tern_attention_args args = tern_pass_attention_args(pass, layer);
    int64_t q = c->heads * c->head_width, kv = c->kv_heads * c->head_width;
    struct tern_dptr dout;
    TERN_RETURN_IF_ERR(branch_backward(b, &post, s->out1, &dout));
    TERN_RETURN_IF_ERR(linear_backward(b, &map->out, s->att, dout, pass->datt, NULL));
    args.dout = pass->datt;
    args.dq = pass->dqkv;
    args.dk = tern_dptr_at(pass->dqkv, q, pass->model->dtype);
    args.dv = tern_dptr_at(pass->dqkv, q + kv, pass->model->dtype);
    TERN_RETURN_IF_ERR(tern_op_attention_bwd(pass->device, &args));
    TERN_RETURN_IF_ERR(tern_pass_rope(b->pass, pass->dqkv, layer, true));
    if (c->features.has_qk_norm) {
        TERN_RETURN_IF_ERR(
            norm_heads_bwd(b, map->q_norm_weight, 0, c->heads, s->q_raw, &s->q_stats));
        TERN_RETURN_IF_ERR(
            norm_heads_bwd(b, map->k_norm_weight, q, c->kv_heads, s->k_raw, &s->k_stats));
    }
    TERN_RETURN_IF_ERR(linear_backward(b, &map->qkv, s->norm1, pass->dqkv, pass->dnorm, NULL));
    return norm_bwd(b, &norm1, pass->dnorm, s->x1, pass->dstream, pass->dstream);
}

/* Brings back what recomputation did not keep. The same ops on the same inputs: the same bits. */
static tern_status recompute_layer(struct tern_pass *pass, struct tern_dptr weights, int layer)
{
    if (pass->options.recompute == TERN_RECOMPUTE_NONE) {
        return TERN_OK;
    }
    const struct tern_layer_map *map = &pass->model->layers[layer];
    const struct tern_pass_saved *s = &pass->layers[layer];
    const struct tern_pass_norm norm1 = {map->norm1_weight, map->norm1_bias, s->stats1};
    struct tern_dptr none = {0};
    TERN_RETURN_IF_ERR(tern_pass_norm_fwd(pass, weights, &norm1, s->x1, none, none, s->norm1));
    TERN_RETURN_IF_ERR(tern_pass_attend(pass, weights, layer));
    if (pass->options.recompute != TERN_RECOMPUTE_BLOCK) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_pass_feed(pass, weights, layer));
    /* what the last norm saw */
    return pass->model->config.features.has_post_norms ? tern_pass_close_layer(pass, weights, layer)
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
                                 .scale = tern_model_embedding_scale(&model->config, model->dtype),
                                 .dtype = model->dtype,
                             });
}

static tern_status ready(const struct tern_pass_hooks *hooks, int bucket)
{
    return hooks != NULL && hooks->ready != NULL ? hooks->ready(hooks->context, bucket) : TERN_OK;
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
    weights = tern_pass_take_weights(pass, weights);
    const struct backward back = {pass, weights, grads, accumulate};
    const struct tern_pass_norm norm = {model->final_norm_weight, model->final_norm_bias,
                                        pass->stats_final};
    TERN_RETURN_IF_ERR(tern_pass_forward(pass, weights, ids, hooks));
    if (!accumulate && !pass->run.is_frozen) {
        TERN_RETURN_IF_ERR(zero_embeddings(pass, grads));
    }
    TERN_RETURN_IF_ERR(head_backward(pass, weights, grads, targets, nll, accumulate));
    TERN_RETURN_IF_ERR(norm_bwd(&back, &norm, pass->dnorm, pass->x_final, none, pass->dstream));
    if (!pass->run.is_frozen) {
        TERN_RETURN_IF_ERR(ready(hooks, model->last_bucket));
    }
    for (int layer = (int)model->config.layers - 1; layer >= 0; layer--) {
        TERN_RETURN_IF_ERR(recompute_layer(pass, weights, layer));
        TERN_RETURN_IF_ERR(mlp_backward(&back, layer));
        TERN_RETURN_IF_ERR(attention_backward(&back, layer));
        int bucket = tern_pass_layer_bucket(pass, layer);
        TERN_RETURN_IF_ERR(bucket >= 0 ? ready(hooks, bucket) : TERN_OK);
    }
    if (pass->run.is_frozen) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(embed_backward(pass, grads, ids));
    return ready(hooks, model->first_bucket);
}
