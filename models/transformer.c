/* transformer.c - from a config and its parameter table to the places of all weights. */
#include "models/transformer.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"

static int64_t offset_of(const struct tern_params *params, enum tern_role role, int layer)
{
    const struct tern_param *param = tern_params_find(params, role, layer);
    return param != NULL ? param->offset : -1;
}

static struct tern_linear map_linear(const struct tern_model *model,
                                     enum tern_role weight,
                                     enum tern_role bias,
                                     int layer,
                                     int64_t in,
                                     int64_t out)
{
    return (struct tern_linear){
        .weight = offset_of(&model->params, weight, layer),
        .bias = offset_of(&model->params, bias, layer),
        .in = in,
        .out = out,
        .is_out_in = model->config.features.is_out_in,
    };
}

static void map_layer(struct tern_model *model, int layer)
{
    const struct tern_model_config *c = &model->config;
    const struct tern_params *p = &model->params;
    int64_t q = c->heads * c->head_width;
    int64_t kv = c->kv_heads * c->head_width;
    struct tern_layer_map *map = &model->layers[layer];
    map->norm1_weight = offset_of(p, TERN_ROLE_NORM1_WEIGHT, layer);
    map->norm1_bias = offset_of(p, TERN_ROLE_NORM1_BIAS, layer);
    map->norm2_weight = offset_of(p, TERN_ROLE_NORM2_WEIGHT, layer);
    map->norm2_bias = offset_of(p, TERN_ROLE_NORM2_BIAS, layer);
    map->post1_weight = offset_of(p, TERN_ROLE_POST1_WEIGHT, layer);
    map->post2_weight = offset_of(p, TERN_ROLE_POST2_WEIGHT, layer);
    map->q_norm_weight = offset_of(p, TERN_ROLE_Q_NORM_WEIGHT, layer);
    map->k_norm_weight = offset_of(p, TERN_ROLE_K_NORM_WEIGHT, layer);
    map->window = tern_model_window(c, layer);
    map->qkv =
        map_linear(model, TERN_ROLE_QKV_WEIGHT, TERN_ROLE_QKV_BIAS, layer, c->width, q + 2 * kv);
    map->out = map_linear(model, TERN_ROLE_OUT_WEIGHT, TERN_ROLE_OUT_BIAS, layer, q, c->width);
    map->up = map_linear(model, TERN_ROLE_UP_WEIGHT, TERN_ROLE_UP_BIAS, layer, c->width,
                         c->features.is_gated ? 2 * c->ff_width : c->ff_width);
    map->down =
        map_linear(model, TERN_ROLE_DOWN_WEIGHT, TERN_ROLE_DOWN_BIAS, layer, c->ff_width, c->width);
    map->bucket = tern_params_find(p, TERN_ROLE_NORM1_WEIGHT, layer)->bucket;
}

tern_status tern_model_init(struct tern_model *model,
                            const struct tern_model_config *config,
                            enum tern_dtype dtype)
{
    *model = (struct tern_model){.config = *config, .dtype = dtype};
    TERN_RETURN_IF_ERR(tern_params_init(&model->params, config));
    model->layers = tern_alloc_zero("model", (size_t)config->layers, sizeof *model->layers);
    if (model->layers == NULL) {
        tern_params_fini(&model->params);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the map of %lld layers",
                         (long long)config->layers);
    }
    for (int layer = 0; layer < config->layers; layer++) {
        map_layer(model, layer);
    }
    const struct tern_params *p = &model->params;
    model->token_embedding = offset_of(p, TERN_ROLE_TOKEN_EMBEDDING, -1);
    model->position_embedding = offset_of(p, TERN_ROLE_POSITION_EMBEDDING, -1);
    model->final_norm_weight = offset_of(p, TERN_ROLE_FINAL_NORM_WEIGHT, -1);
    model->final_norm_bias = offset_of(p, TERN_ROLE_FINAL_NORM_BIAS, -1);
    model->head =
        config->tied_embeddings ? model->token_embedding : offset_of(p, TERN_ROLE_HEAD, -1);
    model->first_bucket = 0;
    model->last_bucket = p->bucket_count - 1;
    TERN_CHECK(model->token_embedding >= 0 && model->head >= 0);
    return TERN_OK;
}

void tern_model_fini(struct tern_model *model)
{
    tern_free(model->layers);
    tern_params_fini(&model->params);
    *model = (struct tern_model){0};
}

tern_status tern_model_trainable_check(const struct tern_model_config *config)
{
    if (config->experts > 0) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "model.family: found %s, which training cannot do yet: it has mixture of "
                         "experts",
                         tern_family_name((int)config->family));
    }
    return TERN_OK;
}

double tern_model_products_per_token(const struct tern_model *model)
{
    const struct tern_model_config *c = &model->config;
    double matmul = (double)c->vocab_size * (double)c->width; /* the head */
    for (int layer = 0; layer < c->layers; layer++) {
        const struct tern_layer_map *map = &model->layers[layer];
        const struct tern_linear *linears[] = {&map->qkv, &map->out, &map->up, &map->down};
        for (int i = 0; i < (c->experts > 0 ? 2 : 4); i++) {
            matmul += (double)linears[i]->in * (double)linears[i]->out;
        }
        matmul +=
            (double)(c->experts + c->experts_used * 3 * c->expert_ff_width) * (double)c->width;
    }
    return matmul;
}

double tern_model_train_flops_per_token(const struct tern_model *model, int64_t sequence)
{
    const struct tern_model_config *c = &model->config;
    double attention = (double)(c->layers * c->heads * c->head_width) * (double)sequence;
    return 6 * tern_model_products_per_token(model) + 6 * attention;
}
