/* infer_weights.c - a layer's matrices as the products take them: neighbours joined. */
#include "models/infer_impl.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

static const struct tern_placed_tensor *placed_of(const struct tern_infer *infer,
                                                  const struct tern_param *param)
{
    return &infer->weights->items[param - infer->model->params.items];
}

static struct tern_dptr vector_of(const struct tern_infer *infer, enum tern_role role, int layer)
{
    const struct tern_param *param = tern_params_find(&infer->model->params, role, layer);
    return param != NULL ? placed_of(infer, param)->data : (struct tern_dptr){0};
}

static struct tern_matrix matrix_of_param(const struct tern_infer *infer,
                                          const struct tern_param *param,
                                          struct tern_dptr bias)
{
    const struct tern_placed_tensor *tensor = placed_of(infer, param);
    bool is_head = param->role == TERN_ROLE_TOKEN_EMBEDDING || param->role == TERN_ROLE_HEAD;
    bool is_out_in = is_head || infer->model->config.features.is_out_in;
    int64_t out = param->shape[is_out_in ? 0 : 1];
    int64_t in = param->shape[is_out_in ? 1 : 0];
    is_out_in = is_out_in != tensor->is_transposed || tensor->packed != TERN_PACKED_NONE;
    return (struct tern_matrix){
        .weight = tensor->data,
        .bias = bias,
        .dtype = tensor->dtype,
        .packed = tensor->packed,
        .in = in,
        .out = out,
        .ld = is_out_in ? in : out,
        .is_out_in = is_out_in,
    };
}

/* All zeros when the model has no such matrix. */
static struct tern_matrix matrix_of(const struct tern_infer *infer,
                                    enum tern_role role,
                                    enum tern_role bias,
                                    int layer)
{
    const struct tern_param *param = tern_params_find(&infer->model->params, role, layer);
    return param != NULL ? matrix_of_param(infer, param, vector_of(infer, bias, layer))
                         : (struct tern_matrix){0};
}

/* Where the matrix ends, if another may follow it there and be one with it; 0: none may. */
static uint64_t end_of(const struct tern_infer *infer, const struct tern_matrix *matrix)
{
    size_t bytes = 0;
    if (matrix->packed != TERN_PACKED_NONE) {
        return matrix->out % TERN_PACKED_ROWS == 0
                   ? matrix->weight.addr +
                         tern_packed_bytes(infer->device, matrix->packed, matrix->out, matrix->in)
                   : 0;
    }
    TERN_CHECK(!matrix->is_out_in || tern_dtype_row_bytes(matrix->dtype, matrix->in, &bytes));
    return matrix->is_out_in ? matrix->weight.addr + (uint64_t)matrix->out * bytes : 0;
}

static uint64_t bias_bytes(const struct tern_infer *infer)
{
    return tern_dtype_bytes(infer->model->dtype);
}

/* One more part; one with the last when it follows it in memory. */
static void add_part(const struct tern_infer *infer,
                     struct tern_matrices *matrices,
                     struct tern_matrix matrix)
{
    struct tern_matrix *last = matrices->count > 0 ? &matrices->parts[matrices->count - 1] : NULL;
    bool is_alike = last != NULL && last->packed == matrix.packed && last->in == matrix.in &&
                    (last->packed != TERN_PACKED_NONE || last->dtype == matrix.dtype);
    if (is_alike && matrix.is_out_in && end_of(infer, last) == matrix.weight.addr) {
        bool has_bias = !tern_dptr_is_null(last->bias);
        if (has_bias == !tern_dptr_is_null(matrix.bias) &&
            (!has_bias ||
             last->bias.addr + (uint64_t)last->out * bias_bytes(infer) == matrix.bias.addr)) {
            last->out += matrix.out;
            return;
        }
    }
    TERN_CHECK(matrices->count < TERN_PARTS_MAX);
    matrices->parts[matrices->count++] = matrix;
}

static void init_attention(struct tern_infer *infer, struct tern_infer_layer *layer, int number)
{
    const struct tern_model_config *c = &infer->model->config;
    add_part(infer, &layer->qkv,
             matrix_of(infer, TERN_ROLE_QKV_WEIGHT, TERN_ROLE_QKV_BIAS, number));
    if (!c->features.is_fused) {
        add_part(infer, &layer->qkv,
                 matrix_of(infer, TERN_ROLE_K_WEIGHT, TERN_ROLE_K_BIAS, number));
        add_part(infer, &layer->qkv,
                 matrix_of(infer, TERN_ROLE_V_WEIGHT, TERN_ROLE_V_BIAS, number));
    }
    layer->out = matrix_of(infer, TERN_ROLE_OUT_WEIGHT, TERN_ROLE_OUT_BIAS, number);
    layer->q_norm = vector_of(infer, TERN_ROLE_Q_NORM_WEIGHT, number);
    layer->k_norm = vector_of(infer, TERN_ROLE_K_NORM_WEIGHT, number);
    layer->window = tern_model_window(c, number);
    layer->is_local = layer->window > 0 && c->rope_theta_local > 0;
}

static void init_experts(struct tern_infer *infer, struct tern_infer_layer *layer, int number)
{
    const struct tern_params *params = &infer->model->params;
    struct tern_dptr none = {0};
    const struct tern_param *param = tern_params_find(params, TERN_ROLE_EXPERT_GATE, number);
    layer->router = matrix_of(infer, TERN_ROLE_ROUTER, TERN_ROLE_COUNT, number);
    for (int64_t i = 0; i < infer->model->config.experts; i++, param += 3) {
        struct tern_expert *expert = &layer->experts[i];
        add_part(infer, &expert->up, matrix_of_param(infer, param, none));
        add_part(infer, &expert->up, matrix_of_param(infer, param + 1, none));
        expert->down = matrix_of_param(infer, param + 2, none);
    }
}

static void init_layer(struct tern_infer *infer, int number)
{
    struct tern_infer_layer *layer = &infer->layers[number];
    const struct tern_model_config *c = &infer->model->config;
    layer->norm1 = vector_of(infer, TERN_ROLE_NORM1_WEIGHT, number);
    layer->norm1_bias = vector_of(infer, TERN_ROLE_NORM1_BIAS, number);
    layer->norm2 = vector_of(infer, TERN_ROLE_NORM2_WEIGHT, number);
    layer->norm2_bias = vector_of(infer, TERN_ROLE_NORM2_BIAS, number);
    layer->post1 = vector_of(infer, TERN_ROLE_POST1_WEIGHT, number);
    layer->post2 = vector_of(infer, TERN_ROLE_POST2_WEIGHT, number);
    init_attention(infer, layer, number);
    if (c->experts > 0) {
        layer->experts = infer->experts + (int64_t)number * c->experts;
        init_experts(infer, layer, number);
        return;
    }
    add_part(infer, &layer->up, matrix_of(infer, TERN_ROLE_UP_WEIGHT, TERN_ROLE_UP_BIAS, number));
    if (c->features.is_gated && !c->features.is_fused) {
        add_part(infer, &layer->up,
                 matrix_of(infer, TERN_ROLE_UP2_WEIGHT, TERN_ROLE_UP2_BIAS, number));
    }
    layer->down = matrix_of(infer, TERN_ROLE_DOWN_WEIGHT, TERN_ROLE_DOWN_BIAS, number);
}

tern_status tern_infer_layers_init(struct tern_infer *infer)
{
    const struct tern_model_config *c = &infer->model->config;
    size_t layers = (size_t)c->layers;
    infer->layers = tern_alloc_zero("infer", layers, sizeof *infer->layers);
    if (c->experts > 0) {
        infer->experts =
            tern_alloc_zero("infer", layers * (size_t)c->experts, sizeof *infer->experts);
    }
    if (infer->layers == NULL || (c->experts > 0 && infer->experts == NULL)) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the map of %zu layers", layers);
    }
    for (int i = 0; i < c->layers; i++) {
        init_layer(infer, i);
    }
    enum tern_role head = c->tied_embeddings ? TERN_ROLE_TOKEN_EMBEDDING : TERN_ROLE_HEAD;
    infer->head = matrix_of(infer, head, TERN_ROLE_COUNT, -1);
    infer->final_norm = vector_of(infer, TERN_ROLE_FINAL_NORM_WEIGHT, -1);
    infer->final_norm_bias = vector_of(infer, TERN_ROLE_FINAL_NORM_BIAS, -1);
    infer->positions = vector_of(infer, TERN_ROLE_POSITION_EMBEDDING, -1);
    infer->embedding =
        placed_of(infer, tern_params_find(&infer->model->params, TERN_ROLE_TOKEN_EMBEDDING, -1));
    return TERN_OK;
}

void tern_infer_layers_fini(struct tern_infer *infer)
{
    tern_free(infer->layers);
    tern_free(infer->experts);
}
