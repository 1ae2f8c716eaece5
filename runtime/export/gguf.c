/* gguf.c - a GGUF file: which tensors it has, of which type, and the file itself. */
#include "runtime/base/mem.h"
#include "runtime/export/export_impl.h"

#include <stdio.h>
#include <string.h>

enum {
    K_BLOCK = 256,
    BLOCK = 32
};

uint32_t tern_export_file_type(const struct tern_export *export)
{
    switch (export->dtype) {
    case TERN_F16:
        return 1;
    case TERN_Q4_0:
        return 2;
    case TERN_Q8_0:
        return 7;
    case TERN_Q4_K:
        return 15; /* "mostly Q4_K - medium" */
    case TERN_BF16:
        return 32;
    default:
        return 0;
    }
}

/* The layers that llama.cpp's "medium" mixes spend more bits on: the first and last eighth, and of
 * those between every third. */
static bool has_more_bits(int64_t layer, int64_t layers)
{
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

static bool is_value(const struct tern_export *export, const struct tern_param *param)
{
    return param->role == TERN_ROLE_V_WEIGHT ||
           (param->role == TERN_ROLE_QKV_WEIGHT && export->config->features.is_fused);
}

/* llama.cpp's choices by what a matrix is for. */
static enum tern_dtype mixed_type(const struct tern_export *export, const struct tern_param *param)
{
    const struct tern_model_config *c = export->config;
    bool is_medium = export->dtype == TERN_Q4_K;
    enum tern_dtype more =
        is_medium && has_more_bits(param->layer, c->layers) ? TERN_Q6_K : export->dtype;
    if (c->experts == 8 && (is_value(export, param) || param->role == TERN_ROLE_K_WEIGHT)) {
        return TERN_Q8_0; /* small beside eight experts */
    }
    if (is_value(export, param)) {
        /* Llama 70B: eight query heads share one of these */
        return more == TERN_Q4_K && c->layers == 80 && c->heads != c->kv_heads ? TERN_Q5_K : more;
    }
    if (param->role == TERN_ROLE_OUT_WEIGHT && c->experts == 8 && is_medium) {
        return TERN_Q5_K;
    }
    return param->role == TERN_ROLE_DOWN_WEIGHT || param->role == TERN_ROLE_EXPERT_DOWN
               ? more
               : export->dtype;
}

/* What takes the place of a type whose blocks do not fit the rows. */
static enum tern_dtype fitting(enum tern_dtype dtype, int64_t width)
{
    if (width % BLOCK != 0) {
        return TERN_F16;
    }
    if (width % tern_dtype_block_elements(dtype) == 0) {
        return dtype;
    }
    return dtype == TERN_Q4_K ? TERN_Q5_0 : TERN_Q8_0;
}

enum tern_dtype tern_export_gguf_type(const struct tern_export *export,
                                      const struct tern_export_tensor *tensor)
{
    const struct tern_param *param = tensor->param;
    if (param == NULL || param->rank == 1 || param->role == TERN_ROLE_ROUTER ||
        param->role == TERN_ROLE_POSITION_EMBEDDING) {
        return TERN_F32;
    }
    if (tern_dtype_block_elements(export->dtype) == 1) {
        return export->dtype;
    }
    int64_t width = tensor->stored.shape[tensor->stored.rank - 1];
    bool is_output = param->role == TERN_ROLE_HEAD ||
                     (param->role == TERN_ROLE_TOKEN_EMBEDDING && export->config->tied_embeddings);
    if (is_output) {
        return fitting(export->dtype == TERN_Q8_0 || width % K_BLOCK != 0 ? TERN_Q8_0 : TERN_Q6_K,
                       width);
    }
    return fitting(mixed_type(export, param), width);
}

/* ---- the list of tensors ---- */

static tern_status add_values(struct tern_export_list *list,
                              const char *name,
                              const float *values,
                              int64_t count)
{
    struct tern_export_tensor *tensor = tern_export_list_add(list);
    if (tensor == NULL) {
        return TERN_ERR_MEMORY;
    }
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->values = values;
    tensor->stored = (struct tern_stored_tensor){.dtype = TERN_F32, .rank = 1, .shape = {count}};
    return TERN_OK;
}

static tern_status add_param(const struct tern_export *export,
                             const struct tern_param *param,
                             struct tern_export_list *list)
{
    struct tern_export_tensor *tensor = tern_export_list_add(list);
    if (tensor == NULL) {
        return TERN_ERR_MEMORY;
    }
    tern_gguf_param_name(export->config, param, tensor->name);
    tensor->param = param;
    tensor->layout = tern_gguf_param_layout(export->config, param);
    tensor->stored = (struct tern_stored_tensor){.rank = param->rank,
                                                 .shape = {param->shape[0], param->shape[1]}};
    if (tensor->layout == TERN_LAYOUT_TRANSPOSED) {
        tensor->stored.shape[0] = param->shape[1];
        tensor->stored.shape[1] = param->shape[0];
    }
    if (param->expert >= 0) {
        tensor->parts = export->config->experts;
        tensor->stored.rank = 3;
        memmove(tensor->stored.shape + 1, tensor->stored.shape, 2 * sizeof(int64_t));
        tensor->stored.shape[0] = tensor->parts;
    }
    tensor->stored.dtype = tern_export_gguf_type(export, tensor);
    return TERN_OK;
}

/* factors: room for those of Llama 3. */
static tern_status list_tensors(const struct tern_export *export,
                                float *factors,
                                struct tern_export_list *list)
{
    const struct tern_model_config *c = export->config;
    int64_t pairs = c->rope_width / 2;
    bool is_one = memcmp(c->rope_short, c->rope_long, (size_t)pairs * sizeof(float)) == 0;
    if (c->rope_scaling == TERN_ROPE_LLAMA3) {
        tern_export_llama3_factors(c, factors);
        TERN_RETURN_IF_ERR(add_values(list, "rope_freqs.weight", factors, pairs));
    } else if (c->rope_scaling == TERN_ROPE_LONGROPE && is_one) {
        TERN_RETURN_IF_ERR(add_values(list, "rope_freqs.weight", c->rope_short, pairs));
    } else if (c->rope_scaling == TERN_ROPE_LONGROPE) {
        TERN_RETURN_IF_ERR(add_values(list, "rope_factors_long.weight", c->rope_long, pairs));
        TERN_RETURN_IF_ERR(add_values(list, "rope_factors_short.weight", c->rope_short, pairs));
    }
    for (int i = 0; i < export->params.count; i++) {
        const struct tern_param *param = &export->params.items[i];
        if (param->expert <= 0) { /* the first stands for all */
            TERN_RETURN_IF_ERR(add_param(export, param, list));
        }
    }
    return TERN_OK;
}

static tern_status append(void *context, const void *data, size_t bytes)
{
    return tern_gguf_append(context, data, bytes);
}

tern_status tern_export_gguf(struct tern_export *export)
{
    struct tern_export_list list = {0};
    struct tern_gguf_writer *writer = NULL;
    float factors[TERN_ROPE_PAIRS_MAX];
    tern_status status;
    TERN_RETURN_IF_ERR(tern_gguf_create(&writer));
    TERN_GOTO_IF_ERR(status, tern_export_gguf_keys(export, writer), out);
    TERN_GOTO_IF_ERR(status, tern_export_gguf_vocab(export, writer), out);
    TERN_GOTO_IF_ERR(status, list_tensors(export, factors, &list), out);
    for (int64_t i = 0; i < list.count; i++) {
        list.items[i].stored.name = list.items[i].name;
        tern_gguf_put_tensor(writer, &list.items[i].stored);
    }
    TERN_GOTO_IF_ERR(status, tern_gguf_begin(writer, export->work), out);
    TERN_GOTO_IF_ERR(status, tern_export_stream(export, &list, append, writer), out);
    status = tern_gguf_finish(writer);
    writer = NULL;
out:
    tern_gguf_abandon(writer);
    tern_export_list_fini(&list);
    return status;
}
