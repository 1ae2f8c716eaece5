/* params.c - the tables of tensors, and their expansion for a model. */
#include "models/params.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>

enum scope {
    SCOPE_FIRST,
    SCOPE_LAYER,
    SCOPE_EXPERT, /* of a layer */
    SCOPE_LAYER_END,
    SCOPE_LAST
};

/* Dimensions in symbols: C width, V vocabulary, P positions, D head width, Q = H*D, KV = K*D,
 * QKV = Q + 2 KV, F feed-forward, 2F both halves of a gated one, E experts, X feed-forward of one. */
enum dim {
    DIM_NONE,
    DIM_C,
    DIM_V,
    DIM_P,
    DIM_D,
    DIM_Q,
    DIM_KV,
    DIM_QKV,
    DIM_F,
    DIM_2F,
    DIM_E,
    DIM_X
};

/* Which models of a table have a row. */
enum when {
    ALWAYS,
    UNTIED,
    SPLIT, /* q, k, v apart */
    FUSED,
    SPLIT_DENSE, /* gate and up apart, no experts */
    FUSED_DENSE,
    DENSE,
    EXPERTS,
    QKV_BIAS,
    OUT_BIAS,
    MLP_BIAS,
    QK_NORM,
    POST_NORMS,
    NO_POST_NORMS
};

struct row {
    enum scope scope;
    const char *name; /* %d: the layer; a second one: the expert */
    enum tern_role role;
    enum dim rows, cols; /* cols DIM_NONE: a vector */
    enum tern_init init;
    bool decay;
    enum when when;
};

static const struct row g_gpt2[] = {
    {SCOPE_FIRST, "transformer.wte.weight", TERN_ROLE_TOKEN_EMBEDDING, DIM_V, DIM_C,
     TERN_INIT_NORMAL, false, ALWAYS},
    {SCOPE_FIRST, "transformer.wpe.weight", TERN_ROLE_POSITION_EMBEDDING, DIM_P, DIM_C,
     TERN_INIT_NORMAL, false, ALWAYS},
    {SCOPE_LAYER, "transformer.h.%d.ln_1.weight", TERN_ROLE_NORM1_WEIGHT, DIM_C, DIM_NONE,
     TERN_INIT_ONE, false, ALWAYS},
    {SCOPE_LAYER, "transformer.h.%d.ln_1.bias", TERN_ROLE_NORM1_BIAS, DIM_C, DIM_NONE,
     TERN_INIT_ZERO, false, ALWAYS},
    {SCOPE_LAYER, "transformer.h.%d.attn.c_attn.weight", TERN_ROLE_QKV_WEIGHT, DIM_C, DIM_QKV,
     TERN_INIT_NORMAL, true, ALWAYS},
    {SCOPE_LAYER, "transformer.h.%d.attn.c_attn.bias", TERN_ROLE_QKV_BIAS, DIM_QKV, DIM_NONE,
     TERN_INIT_ZERO, false, ALWAYS},
    {SCOPE_LAYER, "transformer.h.%d.attn.c_proj.weight", TERN_ROLE_OUT_WEIGHT, DIM_Q, DIM_C,
     TERN_INIT_NORMAL_RESIDUAL, true, ALWAYS},
    {SCOPE_LAYER, "transformer.h.%d.attn.c_proj.bias", TERN_ROLE_OUT_BIAS, DIM_C, DIM_NONE,
     TERN_INIT_ZERO, false, ALWAYS},
    {SCOPE_LAYER, "transformer.h.%d.ln_2.weight", TERN_ROLE_NORM2_WEIGHT, DIM_C, DIM_NONE,
     TERN_INIT_ONE, false, ALWAYS},
    {SCOPE_LAYER, "transformer.h.%d.ln_2.bias", TERN_ROLE_NORM2_BIAS, DIM_C, DIM_NONE,
     TERN_INIT_ZERO, false, ALWAYS},
    {SCOPE_LAYER, "transformer.h.%d.mlp.c_fc.weight", TERN_ROLE_UP_WEIGHT, DIM_C, DIM_F,
     TERN_INIT_NORMAL, true, ALWAYS},
    {SCOPE_LAYER, "transformer.h.%d.mlp.c_fc.bias", TERN_ROLE_UP_BIAS, DIM_F, DIM_NONE,
     TERN_INIT_ZERO, false, ALWAYS},
    {SCOPE_LAYER, "transformer.h.%d.mlp.c_proj.weight", TERN_ROLE_DOWN_WEIGHT, DIM_F, DIM_C,
     TERN_INIT_NORMAL_RESIDUAL, true, ALWAYS},
    {SCOPE_LAYER, "transformer.h.%d.mlp.c_proj.bias", TERN_ROLE_DOWN_BIAS, DIM_C, DIM_NONE,
     TERN_INIT_ZERO, false, ALWAYS},
    {SCOPE_LAST, "transformer.ln_f.weight", TERN_ROLE_FINAL_NORM_WEIGHT, DIM_C, DIM_NONE,
     TERN_INIT_ONE, false, ALWAYS},
    {SCOPE_LAST, "transformer.ln_f.bias", TERN_ROLE_FINAL_NORM_BIAS, DIM_C, DIM_NONE,
     TERN_INIT_ZERO, false, ALWAYS},
    {SCOPE_LAST, "lm_head.weight", TERN_ROLE_HEAD, DIM_V, DIM_C, TERN_INIT_NORMAL, true, UNTIED},
};

/* Llama and all that are wired like it; the names are the same in most. */
static const struct row g_llama[] = {
    {SCOPE_FIRST, "model.embed_tokens.weight", TERN_ROLE_TOKEN_EMBEDDING, DIM_V, DIM_C,
     TERN_INIT_NORMAL, false, ALWAYS},
    {SCOPE_LAYER, "model.layers.%d.input_layernorm.weight", TERN_ROLE_NORM1_WEIGHT, DIM_C, DIM_NONE,
     TERN_INIT_ONE, false, ALWAYS},
    {SCOPE_LAYER, "model.layers.%d.self_attn.q_proj.weight", TERN_ROLE_QKV_WEIGHT, DIM_Q, DIM_C,
     TERN_INIT_NORMAL, true, SPLIT},
    {SCOPE_LAYER, "model.layers.%d.self_attn.k_proj.weight", TERN_ROLE_K_WEIGHT, DIM_KV, DIM_C,
     TERN_INIT_NORMAL, true, SPLIT},
    {SCOPE_LAYER, "model.layers.%d.self_attn.v_proj.weight", TERN_ROLE_V_WEIGHT, DIM_KV, DIM_C,
     TERN_INIT_NORMAL, true, SPLIT},
    {SCOPE_LAYER, "model.layers.%d.self_attn.qkv_proj.weight", TERN_ROLE_QKV_WEIGHT, DIM_QKV, DIM_C,
     TERN_INIT_NORMAL, true, FUSED},
    {SCOPE_LAYER, "model.layers.%d.self_attn.q_proj.bias", TERN_ROLE_QKV_BIAS, DIM_Q, DIM_NONE,
     TERN_INIT_ZERO, false, QKV_BIAS},
    {SCOPE_LAYER, "model.layers.%d.self_attn.k_proj.bias", TERN_ROLE_K_BIAS, DIM_KV, DIM_NONE,
     TERN_INIT_ZERO, false, QKV_BIAS},
    {SCOPE_LAYER, "model.layers.%d.self_attn.v_proj.bias", TERN_ROLE_V_BIAS, DIM_KV, DIM_NONE,
     TERN_INIT_ZERO, false, QKV_BIAS},
    {SCOPE_LAYER, "model.layers.%d.self_attn.q_norm.weight", TERN_ROLE_Q_NORM_WEIGHT, DIM_D,
     DIM_NONE, TERN_INIT_ONE, false, QK_NORM},
    {SCOPE_LAYER, "model.layers.%d.self_attn.k_norm.weight", TERN_ROLE_K_NORM_WEIGHT, DIM_D,
     DIM_NONE, TERN_INIT_ONE, false, QK_NORM},
    {SCOPE_LAYER, "model.layers.%d.self_attn.o_proj.weight", TERN_ROLE_OUT_WEIGHT, DIM_C, DIM_Q,
     TERN_INIT_NORMAL_RESIDUAL, true, ALWAYS},
    {SCOPE_LAYER, "model.layers.%d.self_attn.o_proj.bias", TERN_ROLE_OUT_BIAS, DIM_C, DIM_NONE,
     TERN_INIT_ZERO, false, OUT_BIAS},
    {SCOPE_LAYER, "model.layers.%d.post_attention_layernorm.weight", TERN_ROLE_NORM2_WEIGHT, DIM_C,
     DIM_NONE, TERN_INIT_ONE, false, NO_POST_NORMS},
    {SCOPE_LAYER, "model.layers.%d.post_attention_layernorm.weight", TERN_ROLE_POST1_WEIGHT, DIM_C,
     DIM_NONE, TERN_INIT_ONE, false, POST_NORMS},
    {SCOPE_LAYER, "model.layers.%d.pre_feedforward_layernorm.weight", TERN_ROLE_NORM2_WEIGHT, DIM_C,
     DIM_NONE, TERN_INIT_ONE, false, POST_NORMS},
    {SCOPE_LAYER, "model.layers.%d.mlp.gate_proj.weight", TERN_ROLE_UP_WEIGHT, DIM_F, DIM_C,
     TERN_INIT_NORMAL, true, SPLIT_DENSE},
    {SCOPE_LAYER, "model.layers.%d.mlp.up_proj.weight", TERN_ROLE_UP2_WEIGHT, DIM_F, DIM_C,
     TERN_INIT_NORMAL, true, SPLIT_DENSE},
    {SCOPE_LAYER, "model.layers.%d.mlp.gate_up_proj.weight", TERN_ROLE_UP_WEIGHT, DIM_2F, DIM_C,
     TERN_INIT_NORMAL, true, FUSED_DENSE},
    {SCOPE_LAYER, "model.layers.%d.mlp.gate_proj.bias", TERN_ROLE_UP_BIAS, DIM_F, DIM_NONE,
     TERN_INIT_ZERO, false, MLP_BIAS},
    {SCOPE_LAYER, "model.layers.%d.mlp.up_proj.bias", TERN_ROLE_UP2_BIAS, DIM_F, DIM_NONE,
     TERN_INIT_ZERO, false, MLP_BIAS},
    {SCOPE_LAYER, "model.layers.%d.mlp.down_proj.weight", TERN_ROLE_DOWN_WEIGHT, DIM_C, DIM_F,
     TERN_INIT_NORMAL_RESIDUAL, true, DENSE},
    {SCOPE_LAYER, "model.layers.%d.mlp.down_proj.bias", TERN_ROLE_DOWN_BIAS, DIM_C, DIM_NONE,
     TERN_INIT_ZERO, false, MLP_BIAS},
    {SCOPE_LAYER_END, "model.layers.%d.post_feedforward_layernorm.weight", TERN_ROLE_POST2_WEIGHT,
     DIM_C, DIM_NONE, TERN_INIT_ONE, false, POST_NORMS},
    {SCOPE_LAST, "model.norm.weight", TERN_ROLE_FINAL_NORM_WEIGHT, DIM_C, DIM_NONE, TERN_INIT_ONE,
     false, ALWAYS},
    {SCOPE_LAST, "lm_head.weight", TERN_ROLE_HEAD, DIM_V, DIM_C, TERN_INIT_NORMAL, true, UNTIED},
};

/* What stands in place of the feed-forward layer, by family: the names differ. */
static const struct row g_mixtral_experts[] = {
    {SCOPE_LAYER, "model.layers.%d.block_sparse_moe.gate.weight", TERN_ROLE_ROUTER, DIM_E, DIM_C,
     TERN_INIT_NORMAL, true, EXPERTS},
    {SCOPE_EXPERT, "model.layers.%d.block_sparse_moe.experts.%d.w1.weight", TERN_ROLE_EXPERT_GATE,
     DIM_X, DIM_C, TERN_INIT_NORMAL, true, EXPERTS},
    {SCOPE_EXPERT, "model.layers.%d.block_sparse_moe.experts.%d.w3.weight", TERN_ROLE_EXPERT_UP,
     DIM_X, DIM_C, TERN_INIT_NORMAL, true, EXPERTS},
    {SCOPE_EXPERT, "model.layers.%d.block_sparse_moe.experts.%d.w2.weight", TERN_ROLE_EXPERT_DOWN,
     DIM_C, DIM_X, TERN_INIT_NORMAL_RESIDUAL, true, EXPERTS},
};
static const struct row g_qwen_experts[] = {
    {SCOPE_LAYER, "model.layers.%d.mlp.gate.weight", TERN_ROLE_ROUTER, DIM_E, DIM_C,
     TERN_INIT_NORMAL, true, EXPERTS},
    {SCOPE_EXPERT, "model.layers.%d.mlp.experts.%d.gate_proj.weight", TERN_ROLE_EXPERT_GATE, DIM_X,
     DIM_C, TERN_INIT_NORMAL, true, EXPERTS},
    {SCOPE_EXPERT, "model.layers.%d.mlp.experts.%d.up_proj.weight", TERN_ROLE_EXPERT_UP, DIM_X,
     DIM_C, TERN_INIT_NORMAL, true, EXPERTS},
    {SCOPE_EXPERT, "model.layers.%d.mlp.experts.%d.down_proj.weight", TERN_ROLE_EXPERT_DOWN, DIM_C,
     DIM_X, TERN_INIT_NORMAL_RESIDUAL, true, EXPERTS},
};

struct table {
    const struct row *rows;
    int count;
};
#define TABLE(rows) \
    { \
        rows, sizeof(rows) / sizeof(rows)[0] \
    }

/* Rows common to many families, and a family's own; a scope lists the first before the second. */
static void family_tables(enum tern_family family, struct table out[2])
{
    static const struct table gpt2 = TABLE(g_gpt2);
    static const struct table llama = TABLE(g_llama);
    static const struct table mixtral = TABLE(g_mixtral_experts);
    static const struct table qwen = TABLE(g_qwen_experts);
    out[0] = family == TERN_FAMILY_GPT2 ? gpt2 : llama;
    out[1] = family == TERN_FAMILY_MIXTRAL     ? mixtral
             : family == TERN_FAMILY_QWEN3_MOE ? qwen
                                               : (struct table){0};
}

static bool has_row(const struct tern_model_config *config, enum when when)
{
    const struct tern_model_features *f = &config->features;
    bool is_dense = config->experts == 0;
    switch (when) {
    case ALWAYS:
        return true;
    case UNTIED:
        return !config->tied_embeddings;
    case SPLIT:
        return !f->is_fused;
    case FUSED:
        return f->is_fused;
    case SPLIT_DENSE:
        return is_dense && !f->is_fused;
    case FUSED_DENSE:
        return is_dense && f->is_fused;
    case DENSE:
        return is_dense;
    case EXPERTS:
        return !is_dense;
    case QKV_BIAS:
        return f->has_qkv_bias;
    case OUT_BIAS:
        return f->has_out_bias;
    case MLP_BIAS:
        return f->has_mlp_bias;
    case QK_NORM:
        return f->has_qk_norm;
    case POST_NORMS:
        return f->has_post_norms;
    case NO_POST_NORMS:
        return !f->has_post_norms;
    }
    return false;
}

static int64_t dimension(const struct tern_model_config *config, enum dim dim)
{
    int64_t q = config->heads * config->head_width;
    int64_t kv = config->kv_heads * config->head_width;
    switch (dim) {
    case DIM_C:
        return config->width;
    case DIM_V:
        return config->vocab_size;
    case DIM_P:
        return config->context;
    case DIM_Q:
        return q;
    case DIM_KV:
        return kv;
    case DIM_QKV:
        return q + 2 * kv;
    case DIM_D:
        return config->head_width;
    case DIM_F:
        return config->ff_width;
    case DIM_2F:
        return 2 * config->ff_width;
    case DIM_E:
        return config->experts;
    case DIM_X:
        return config->expert_ff_width;
    case DIM_NONE:
        break;
    }
    return 1;
}

/* Each "%d" of a row's name becomes the layer, then the expert. */
static void print_name(char out[TERN_PARAM_NAME_BYTES], const char *name, int layer, int expert)
{
    const char *digits = strstr(name, "%d");
    const char *second = digits != NULL ? strstr(digits + 2, "%d") : NULL;
    if (digits == NULL) {
        snprintf(out, TERN_PARAM_NAME_BYTES, "%s", name);
    } else if (second == NULL) {
        snprintf(out, TERN_PARAM_NAME_BYTES, "%.*s%d%s", (int)(digits - name), name, layer,
                 digits + 2);
    } else {
        snprintf(out, TERN_PARAM_NAME_BYTES, "%.*s%d%.*s%d%s", (int)(digits - name), name, layer,
                 (int)(second - digits - 2), digits + 2, expert, second + 2);
    }
}

static void add_param(struct tern_params *params,
                      const struct tern_model_config *config,
                      const struct row *row,
                      int layer,
                      int expert,
                      int bucket)
{
    struct tern_param *param = &params->items[params->count++];
    *param = (struct tern_param){.role = row->role,
                                 .layer = layer,
                                 .expert = expert,
                                 .bucket = bucket,
                                 .init = row->init,
                                 .decay = row->decay};
    if (row->init == TERN_INIT_ONE && config->features.norm_offset == 1) {
        param->init = TERN_INIT_ZERO; /* 1 + 0 */
    }
    print_name(param->name, row->name, layer, expert);
    param->rank = row->cols == DIM_NONE ? 1 : 2;
    param->shape[0] = dimension(config, row->rows);
    param->shape[1] = dimension(config, row->cols);
}

static void add_rows(struct tern_params *params,
                     const struct tern_model_config *config,
                     enum scope scope,
                     int layer,
                     int expert,
                     int bucket)
{
    struct table tables[2];
    family_tables(config->family, tables);
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < tables[t].count; i++) {
            const struct row *row = &tables[t].rows[i];
            if (row->scope == scope && has_row(config, row->when)) {
                add_param(params, config, row, layer, expert, bucket);
            }
        }
    }
}

/* All rows of a scope as one bucket. */
static void add_bucket(struct tern_params *params,
                       const struct tern_model_config *config,
                       enum scope scope,
                       int layer,
                       int bucket)
{
    add_rows(params, config, scope, layer, -1, bucket);
    if (scope == SCOPE_LAYER) {
        for (int expert = 0; expert < config->experts; expert++) {
            add_rows(params, config, SCOPE_EXPERT, layer, expert, bucket);
        }
        add_rows(params, config, SCOPE_LAYER_END, layer, -1, bucket);
    }
}

/* At least the rows that a model can have. */
static size_t row_bound(const struct tern_model_config *config)
{
    struct table tables[2];
    family_tables(config->family, tables);
    size_t experts = (size_t)config->experts * (size_t)tables[1].count;
    return ((size_t)tables[0].count + (size_t)tables[1].count + experts) *
           (size_t)(config->layers + 1);
}

void tern_params_count(const struct tern_model_config *config, double *values, double *tensors)
{
    struct table tables[2];
    family_tables(config->family, tables);
    *values = 0;
    *tensors = 0;
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < tables[t].count; i++) {
            const struct row *row = &tables[t].rows[i];
            double times =
                row->scope == SCOPE_FIRST || row->scope == SCOPE_LAST ? 1 : (double)config->layers;
            times *= row->scope == SCOPE_EXPERT ? (double)config->experts : 1;
            if (has_row(config, row->when)) {
                *tensors += times;
                *values += times * (double)dimension(config, row->rows) *
                           (double)dimension(config, row->cols);
            }
        }
    }
}

tern_status tern_params_init(struct tern_params *params, const struct tern_model_config *config)
{
    TERN_CHECK(config->has_features);
    *params = (struct tern_params){0};
    size_t rows = row_bound(config);
    params->items = tern_alloc_zero("params", rows, sizeof *params->items);
    if (params->items == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the table of %zu tensors", rows);
    }
    int bucket = 0;
    add_bucket(params, config, SCOPE_FIRST, -1, bucket++);
    for (int layer = 0; layer < config->layers; layer++) {
        add_bucket(params, config, SCOPE_LAYER, layer, bucket++);
    }
    add_bucket(params, config, SCOPE_LAST, -1, bucket);
    return tern_params_layout(params);
}

void tern_params_fini(struct tern_params *params)
{
    tern_free(params->items);
    tern_free(params->bucket_starts);
    tern_free(params->bucket_blocks);
    tern_free(params->block_starts);
    *params = (struct tern_params){0};
}

/* Where a layer's tensors begin: they lie together, layers ascending; 0 for those outside. */
static int first_of_layer(const struct tern_params *params, int layer)
{
    int low = 0;
    int high = layer >= 0 ? params->count : 0;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const struct tern_param *param = &params->items[middle];
        bool is_before = param->layer >= 0 ? param->layer < layer : param->bucket == 0;
        low = is_before ? middle + 1 : low;
        high = is_before ? high : middle;
    }
    return low;
}

const struct tern_param *tern_params_find(const struct tern_params *params,
                                          enum tern_role role,
                                          int layer)
{
    for (int i = first_of_layer(params, layer); i < params->count; i++) {
        if (params->items[i].role == role && params->items[i].layer == layer) {
            return &params->items[i];
        }
        if (layer >= 0 && params->items[i].layer != layer) {
            break;
        }
    }
    return NULL;
}

const struct tern_param *tern_params_at(const struct tern_params *params, int64_t index)
{
    for (int i = 0; i < params->count; i++) {
        const struct tern_param *param = &params->items[i];
        if (index >= param->offset && index < param->offset + param->size) {
            return param;
        }
    }
    return NULL;
}
