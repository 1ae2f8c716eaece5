/* params.c - the tables of tensors, and their expansion into offsets, buckets and blocks. */
#include "models/params.h"

#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>

enum {
    BUCKET_ALIGN = 16,
    BLOCK_ELEMENTS = 16384
};

enum scope {
    SCOPE_FIRST,
    SCOPE_LAYER,
    SCOPE_LAST
};

/* Dimensions in symbols: C width, V vocabulary, P positions, Q = H*D, KV = K*D, QKV = Q + 2 KV, F
 * feed-forward. */
enum dim {
    DIM_NONE,
    DIM_C,
    DIM_V,
    DIM_P,
    DIM_Q,
    DIM_KV,
    DIM_QKV,
    DIM_F
};

struct row {
    enum scope scope;
    const char *name; /* %d: the layer */
    enum tern_role role;
    enum dim rows, cols; /* cols DIM_NONE: a vector */
    enum tern_init init;
    bool decay;
    bool only_untied;
};

static const struct row g_gpt2[] = {
    {SCOPE_FIRST, "transformer.wte.weight", TERN_ROLE_TOKEN_EMBEDDING, DIM_V, DIM_C,
     TERN_INIT_NORMAL, false, false},
    {SCOPE_FIRST, "transformer.wpe.weight", TERN_ROLE_POSITION_EMBEDDING, DIM_P, DIM_C,
     TERN_INIT_NORMAL, false, false},
    {SCOPE_LAYER, "transformer.h.%d.ln_1.weight", TERN_ROLE_NORM1_WEIGHT, DIM_C, DIM_NONE,
     TERN_INIT_ONE, false, false},
    {SCOPE_LAYER, "transformer.h.%d.ln_1.bias", TERN_ROLE_NORM1_BIAS, DIM_C, DIM_NONE,
     TERN_INIT_ZERO, false, false},
    {SCOPE_LAYER, "transformer.h.%d.attn.c_attn.weight", TERN_ROLE_QKV_WEIGHT, DIM_C, DIM_QKV,
     TERN_INIT_NORMAL, true, false},
    {SCOPE_LAYER, "transformer.h.%d.attn.c_attn.bias", TERN_ROLE_QKV_BIAS, DIM_QKV, DIM_NONE,
     TERN_INIT_ZERO, false, false},
    {SCOPE_LAYER, "transformer.h.%d.attn.c_proj.weight", TERN_ROLE_OUT_WEIGHT, DIM_Q, DIM_C,
     TERN_INIT_NORMAL_RESIDUAL, true, false},
    {SCOPE_LAYER, "transformer.h.%d.attn.c_proj.bias", TERN_ROLE_OUT_BIAS, DIM_C, DIM_NONE,
     TERN_INIT_ZERO, false, false},
    {SCOPE_LAYER, "transformer.h.%d.ln_2.weight", TERN_ROLE_NORM2_WEIGHT, DIM_C, DIM_NONE,
     TERN_INIT_ONE, false, false},
    {SCOPE_LAYER, "transformer.h.%d.ln_2.bias", TERN_ROLE_NORM2_BIAS, DIM_C, DIM_NONE,
     TERN_INIT_ZERO, false, false},
    {SCOPE_LAYER, "transformer.h.%d.mlp.c_fc.weight", TERN_ROLE_UP_WEIGHT, DIM_C, DIM_F,
     TERN_INIT_NORMAL, true, false},
    {SCOPE_LAYER, "transformer.h.%d.mlp.c_fc.bias", TERN_ROLE_UP_BIAS, DIM_F, DIM_NONE,
     TERN_INIT_ZERO, false, false},
    {SCOPE_LAYER, "transformer.h.%d.mlp.c_proj.weight", TERN_ROLE_DOWN_WEIGHT, DIM_F, DIM_C,
     TERN_INIT_NORMAL_RESIDUAL, true, false},
    {SCOPE_LAYER, "transformer.h.%d.mlp.c_proj.bias", TERN_ROLE_DOWN_BIAS, DIM_C, DIM_NONE,
     TERN_INIT_ZERO, false, false},
    {SCOPE_LAST, "transformer.ln_f.weight", TERN_ROLE_FINAL_NORM_WEIGHT, DIM_C, DIM_NONE,
     TERN_INIT_ONE, false, false},
    {SCOPE_LAST, "transformer.ln_f.bias", TERN_ROLE_FINAL_NORM_BIAS, DIM_C, DIM_NONE,
     TERN_INIT_ZERO, false, false},
};

static const struct row g_llama[] = {
    {SCOPE_FIRST, "model.embed_tokens.weight", TERN_ROLE_TOKEN_EMBEDDING, DIM_V, DIM_C,
     TERN_INIT_NORMAL, false, false},
    {SCOPE_LAYER, "model.layers.%d.input_layernorm.weight", TERN_ROLE_NORM1_WEIGHT, DIM_C, DIM_NONE,
     TERN_INIT_ONE, false, false},
    {SCOPE_LAYER, "model.layers.%d.self_attn.q_proj.weight", TERN_ROLE_QKV_WEIGHT, DIM_Q, DIM_C,
     TERN_INIT_NORMAL, true, false},
    {SCOPE_LAYER, "model.layers.%d.self_attn.k_proj.weight", TERN_ROLE_K_WEIGHT, DIM_KV, DIM_C,
     TERN_INIT_NORMAL, true, false},
    {SCOPE_LAYER, "model.layers.%d.self_attn.v_proj.weight", TERN_ROLE_V_WEIGHT, DIM_KV, DIM_C,
     TERN_INIT_NORMAL, true, false},
    {SCOPE_LAYER, "model.layers.%d.self_attn.o_proj.weight", TERN_ROLE_OUT_WEIGHT, DIM_C, DIM_Q,
     TERN_INIT_NORMAL_RESIDUAL, true, false},
    {SCOPE_LAYER, "model.layers.%d.post_attention_layernorm.weight", TERN_ROLE_NORM2_WEIGHT, DIM_C,
     DIM_NONE, TERN_INIT_ONE, false, false},
    {SCOPE_LAYER, "model.layers.%d.mlp.gate_proj.weight", TERN_ROLE_UP_WEIGHT, DIM_F, DIM_C,
     TERN_INIT_NORMAL, true, false},
    {SCOPE_LAYER, "model.layers.%d.mlp.up_proj.weight", TERN_ROLE_UP2_WEIGHT, DIM_F, DIM_C,
     TERN_INIT_NORMAL, true, false},
    {SCOPE_LAYER, "model.layers.%d.mlp.down_proj.weight", TERN_ROLE_DOWN_WEIGHT, DIM_C, DIM_F,
     TERN_INIT_NORMAL_RESIDUAL, true, false},
    {SCOPE_LAST, "model.norm.weight", TERN_ROLE_FINAL_NORM_WEIGHT, DIM_C, DIM_NONE, TERN_INIT_ONE,
     false, false},
    {SCOPE_LAST, "lm_head.weight", TERN_ROLE_HEAD, DIM_V, DIM_C, TERN_INIT_NORMAL, true, true},
};

static const struct {
    const struct row *rows;
    int count;
} g_tables[TERN_FAMILY_COUNT] = {
    [TERN_FAMILY_GPT2] = {g_gpt2, sizeof g_gpt2 / sizeof g_gpt2[0]},
    [TERN_FAMILY_LLAMA] = {g_llama, sizeof g_llama / sizeof g_llama[0]},
};

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
    case DIM_F:
        return config->ff_width;
    case DIM_NONE:
        break;
    }
    return 1;
}

static int64_t align_up(int64_t value, int64_t step)
{
    return (value + step - 1) / step * step;
}

static void add_param(struct tern_params *params,
                      const struct tern_model_config *config,
                      const struct row *row,
                      int layer,
                      int64_t *offset)
{
    struct tern_param *param = &params->items[params->count++];
    *param = (struct tern_param){
        .role = row->role, .layer = layer, .init = row->init, .decay = row->decay};
    if (layer >= 0) {
        const char *digits = strstr(row->name, "%d");
        snprintf(param->name, sizeof param->name, "%.*s%d%s", (int)(digits - row->name), row->name,
                 layer, digits + 2);
    } else {
        snprintf(param->name, sizeof param->name, "%s", row->name);
    }
    param->bucket = params->bucket_count;
    param->rank = row->cols == DIM_NONE ? 1 : 2;
    param->shape[0] = dimension(config, row->rows);
    param->shape[1] = dimension(config, row->cols);
    param->size = param->shape[0] * param->shape[1];
    param->offset = *offset;
    *offset += param->size;
    params->parameter_count += param->size;
}

/* All rows of a scope as one bucket; an empty one adds none. */
static void add_bucket(struct tern_params *params,
                       const struct tern_model_config *config,
                       enum scope scope,
                       int layer,
                       int64_t *offset)
{
    int before = params->count;
    *offset = align_up(*offset, BUCKET_ALIGN);
    params->bucket_starts[params->bucket_count] = *offset;
    for (int i = 0; i < g_tables[config->family].count; i++) {
        const struct row *row = &g_tables[config->family].rows[i];
        if (row->scope == scope && !(row->only_untied && config->tied_embeddings)) {
            add_param(params, config, row, layer, offset);
        }
    }
    params->bucket_count += params->count > before;
}

/* Rows of a tensor that make one block. */
static int64_t block_rows(const struct tern_param *param)
{
    int64_t rows = BLOCK_ELEMENTS / param->shape[1];
    return rows > 0 ? rows : 1;
}

static tern_status make_blocks(struct tern_params *params)
{
    int64_t count = 0;
    for (int i = 0; i < params->count; i++) {
        int64_t rows = block_rows(&params->items[i]);
        count += (params->items[i].shape[0] + rows - 1) / rows;
    }
    params->block_starts = tern_alloc("params", (size_t)(count + 1) * sizeof *params->block_starts);
    if (params->block_starts == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a table of %lld blocks",
                         (long long)count);
    }
    int bucket = -1;
    for (int i = 0; i < params->count; i++) {
        const struct tern_param *param = &params->items[i];
        if (param->bucket != bucket) {
            bucket = param->bucket;
            params->bucket_blocks[bucket] = params->block_count;
        }
        int64_t step = block_rows(param) * param->shape[1];
        for (int64_t at = 0; at < param->size; at += step) {
            params->block_starts[params->block_count++] = param->offset + at;
        }
    }
    params->bucket_blocks[params->bucket_count] = params->block_count;
    params->block_starts[params->block_count] = params->flat_size;
    return TERN_OK;
}

tern_status tern_params_init(struct tern_params *params, const struct tern_model_config *config)
{
    *params = (struct tern_params){0};
    size_t rows = (size_t)g_tables[config->family].count * (size_t)(config->layers + 1);
    size_t buckets = (size_t)config->layers + 3;
    params->items = tern_alloc_zero("params", rows, sizeof *params->items);
    params->bucket_starts = tern_alloc_zero("params", buckets, sizeof *params->bucket_starts);
    params->bucket_blocks = tern_alloc_zero("params", buckets, sizeof *params->bucket_blocks);
    tern_status status = TERN_OK;
    if (params->items == NULL || params->bucket_starts == NULL || params->bucket_blocks == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate the table of %zu tensors", rows);
        goto fail;
    }
    int64_t offset = 0;
    add_bucket(params, config, SCOPE_FIRST, -1, &offset);
    for (int layer = 0; layer < config->layers; layer++) {
        add_bucket(params, config, SCOPE_LAYER, layer, &offset);
    }
    add_bucket(params, config, SCOPE_LAST, -1, &offset);
    params->flat_size = align_up(offset, BUCKET_ALIGN);
    params->bucket_starts[params->bucket_count] = params->flat_size;
    TERN_GOTO_IF_ERR(status, make_blocks(params), fail);
    return TERN_OK;
fail:
    tern_params_fini(params);
    return status;
}

void tern_params_fini(struct tern_params *params)
{
    tern_free(params->items);
    tern_free(params->bucket_starts);
    tern_free(params->bucket_blocks);
    tern_free(params->block_starts);
    *params = (struct tern_params){0};
}

const struct tern_param *tern_params_find(const struct tern_params *params,
                                          enum tern_role role,
                                          int layer)
{
    for (int i = 0; i < params->count; i++) {
        if (params->items[i].role == role && params->items[i].layer == layer) {
            return &params->items[i];
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
