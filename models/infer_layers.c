/* infer_layers.c - the layers of the inference pass: which op follows which. */
#include "models/infer_impl.h"

tern_status tern_infer_multiply(struct tern_infer *infer,
                                const struct tern_matrix *matrix,
                                int64_t n,
                                struct tern_dptr x,
                                struct tern_dptr d,
                                int64_t ldd,
                                const struct tern_dptr *gelu_pre)
{
    enum tern_dtype dtype = infer->model->dtype;
    struct tern_gemm_args args = {
        .a = x,
        .b = matrix->weight,
        .d = d,
        .m = n,
        .n = matrix->out,
        .k = matrix->in,
        .lda = matrix->in,
        .ldb = matrix->ld,
        .ldd = ldd,
        .trans_b = matrix->is_out_in,
        .a_dtype = dtype,
        .b_dtype = matrix->dtype,
        .d_dtype = dtype,
        .bias_dtype = dtype,
        .compute = tern_matrix_compute(matrix, dtype),
        .b_packed = matrix->packed,
    };
    if (!tern_dptr_is_null(matrix->bias)) {
        args.bias = matrix->bias;
        args.epilogue = gelu_pre != NULL ? TERN_EPILOGUE_BIAS_GELU : TERN_EPILOGUE_BIAS;
        args.aux = gelu_pre != NULL ? *gelu_pre : (struct tern_dptr){0};
    }
    return tern_op_gemm(infer->device, &args);
}

tern_status tern_infer_multiply_all(struct tern_infer *infer,
                                    const struct tern_matrices *matrices,
                                    int64_t n,
                                    struct tern_dptr x,
                                    struct tern_dptr d,
                                    int64_t ldd)
{
    int64_t at = 0;
    for (int i = 0; i < matrices->count; i++) {
        const struct tern_matrix *part = &matrices->parts[i];
        TERN_RETURN_IF_ERR(tern_infer_multiply(
            infer, part, n, x, tern_dptr_at(d, at, infer->model->dtype), ldd, NULL));
        at += part->out;
    }
    return TERN_OK;
}

/* out (n, C) = norm(x + residual), the sum kept; residual null: of x. */
static tern_status norm(struct tern_infer *infer,
                        struct tern_dptr weight,
                        struct tern_dptr bias,
                        int64_t n,
                        struct tern_dptr x,
                        struct tern_dptr residual,
                        struct tern_dptr sum,
                        struct tern_dptr out)
{
    const struct tern_model_config *c = &infer->model->config;
    return tern_op_norm_fwd(infer->device, &(struct tern_norm_fwd_args){
                                               .x = x,
                                               .residual = residual,
                                               .sum = sum,
                                               .gamma = weight,
                                               .beta = bias,
                                               .out = out,
                                               .n = n,
                                               .c = c->width,
                                               .eps = c->norm_eps,
                                               .gamma_offset = c->features.norm_offset,
                                               .kind = c->features.norm,
                                               .dtype = infer->model->dtype,
                                           });
}

/* Each head of x by itself, in place. */
static tern_status norm_heads(struct tern_infer *infer,
                              struct tern_dptr weight,
                              int64_t n,
                              struct tern_dptr x,
                              int64_t heads,
                              int64_t row)
{
    const struct tern_model_config *c = &infer->model->config;
    if (tern_dptr_is_null(weight)) {
        return TERN_OK;
    }
    return tern_op_norm_fwd(infer->device, &(struct tern_norm_fwd_args){
                                               .x = x,
                                               .gamma = weight,
                                               .out = x,
                                               .n = n,
                                               .c = c->head_width,
                                               .heads = heads,
                                               .x_row = row,
                                               .out_row = row,
                                               .eps = c->norm_eps,
                                               .gamma_offset = c->features.norm_offset,
                                               .kind = TERN_NORM_RMS,
                                               .dtype = infer->model->dtype,
                                           });
}

/* q and k, side by side in the rows. */
static tern_status rope(struct tern_infer *infer, const struct tern_infer_layer *layer, int64_t row)
{
    const struct tern_model_config *c = &infer->model->config;
    if (c->features.has_positions) {
        return TERN_OK;
    }
    return tern_op_rope(infer->device,
                        &(struct tern_rope_args){
                            .x = infer->qkv,
                            .cos = infer->cos[layer->is_local],
                            .sin = infer->sin[layer->is_local],
                            .positions = tern_infer_number(infer, infer->run.positions),
                            .n = infer->run.rows,
                            .heads = c->heads + c->kv_heads,
                            .d = c->head_width,
                            .rotary_d = c->rope_width,
                            .x_row = row,
                            .position_count = infer->options.context,
                            .dtype = infer->model->dtype,
                        });
}

static tern_status keep(struct tern_infer *infer, struct tern_dptr pool, int64_t row)
{
    const struct tern_model_config *c = &infer->model->config;
    int64_t q = c->heads * c->head_width;
    int64_t kv = c->kv_heads * c->head_width;
    enum tern_dtype dtype = infer->model->dtype;
    return tern_op_kv_write(infer->device, &(struct tern_kv_write_args){
                                               .k = tern_dptr_at(infer->qkv, q, dtype),
                                               .v = tern_dptr_at(infer->qkv, q + kv, dtype),
                                               .slots = tern_infer_number(infer, infer->run.slots),
                                               .pool = pool,
                                               .n = infer->run.rows,
                                               .kv_heads = c->kv_heads,
                                               .d = c->head_width,
                                               .k_row = row,
                                               .v_row = row,
                                               .blocks = infer->options.blocks,
                                               .dtype = dtype,
                                               .kv_dtype = infer->options.kv_dtype,
                                           });
}

/* norm (n, C) to att (n, H D). */
static tern_status attend(struct tern_infer *infer, int number)
{
    const struct tern_model_config *c = &infer->model->config;
    const struct tern_infer_layer *layer = &infer->layers[number];
    const struct tern_infer_numbers *run = &infer->run;
    enum tern_dtype dtype = infer->model->dtype;
    int64_t q = c->heads * c->head_width;
    int64_t row = q + 2 * c->kv_heads * c->head_width;
    uint64_t pool_bytes = (uint64_t)infer->options.blocks * infer->block_bytes;
    struct tern_dptr pool = {infer->pools.addr + (uint64_t)number * pool_bytes};
    struct tern_dptr k = tern_dptr_at(infer->qkv, q, dtype);
    TERN_RETURN_IF_ERR(
        tern_infer_multiply_all(infer, &layer->qkv, run->rows, infer->norm, infer->qkv, row));
    TERN_RETURN_IF_ERR(norm_heads(infer, layer->q_norm, run->rows, infer->qkv, c->heads, row));
    TERN_RETURN_IF_ERR(norm_heads(infer, layer->k_norm, run->rows, k, c->kv_heads, row));
    TERN_RETURN_IF_ERR(rope(infer, layer, row));
    TERN_RETURN_IF_ERR(keep(infer, pool, row));
    return tern_op_paged_attention(infer->device,
                                   &(struct tern_paged_attention_args){
                                       .q = infer->qkv,
                                       .out = infer->att,
                                       .pool = pool,
                                       .row_starts = tern_infer_number(infer, run->row_starts),
                                       .lengths = tern_infer_number(infer, run->lengths),
                                       .tables = tern_infer_number(infer, run->tables),
                                       .n = run->rows,
                                       .sequences = run->parts,
                                       .longest = run->longest,
                                       .table_row = run->table_row,
                                       .blocks = infer->options.blocks,
                                       .h = c->heads,
                                       .kv_heads = c->kv_heads,
                                       .d = c->head_width,
                                       .q_row = row,
                                       .out_row = q,
                                       .window = layer->window,
                                       .scale = c->query_scale,
                                       .softcap = c->attention_softcap,
                                       .dtype = dtype,
                                       .kv_dtype = infer->options.kv_dtype,
                                   });
}

/* norm (n, C) to branch (n, C). */
static tern_status feed_forward(struct tern_infer *infer,
                                const struct tern_infer_layer *layer,
                                int64_t n)
{
    const struct tern_model_config *c = &infer->model->config;
    if (c->experts > 0) {
        return tern_infer_experts(infer, layer, n);
    }
    if (c->features.is_gated) {
        TERN_RETURN_IF_ERR(
            tern_infer_multiply_all(infer, &layer->up, n, infer->norm, infer->up, 2 * c->ff_width));
        TERN_RETURN_IF_ERR(tern_op_glu_fwd(infer->device, &(struct tern_glu_args){
                                                              .gate_up = infer->up,
                                                              .out = infer->act,
                                                              .n = n,
                                                              .f = c->ff_width,
                                                              .act = c->features.act,
                                                              .dtype = infer->model->dtype,
                                                          }));
    } else {
        TERN_RETURN_IF_ERR(tern_infer_multiply(infer, &layer->up.parts[0], n, infer->norm,
                                               infer->act, c->ff_width, &infer->up));
    }
    return tern_infer_multiply(infer, &layer->down, n, infer->act, infer->branch, c->width, NULL);
}

/* What a sublayer leaves in branch, before it joins the stream. */
static tern_status post_norm(struct tern_infer *infer, struct tern_dptr weight, int64_t n)
{
    struct tern_dptr none = {0};
    return tern_dptr_is_null(weight)
               ? TERN_OK
               : norm(infer, weight, none, n, infer->branch, none, none, infer->branch);
}

tern_status tern_infer_run_layers(struct tern_infer *infer)
{
    const struct tern_model_config *c = &infer->model->config;
    int64_t n = infer->run.rows;
    struct tern_dptr x = infer->x;
    struct tern_dptr branch = {0};
    for (int i = 0; i < c->layers; i++) {
        const struct tern_infer_layer *layer = &infer->layers[i];
        TERN_RETURN_IF_ERR(
            norm(infer, layer->norm1, layer->norm1_bias, n, x, branch, infer->x, infer->norm));
        TERN_RETURN_IF_ERR(attend(infer, i));
        TERN_RETURN_IF_ERR(
            tern_infer_multiply(infer, &layer->out, n, infer->att, infer->branch, c->width, NULL));
        TERN_RETURN_IF_ERR(post_norm(infer, layer->post1, n));
        TERN_RETURN_IF_ERR(norm(infer, layer->norm2, layer->norm2_bias, n, infer->x, infer->branch,
                                infer->x2, infer->norm));
        TERN_RETURN_IF_ERR(feed_forward(infer, layer, n));
        TERN_RETURN_IF_ERR(post_norm(infer, layer->post2, n));
        x = infer->x2;
        branch = infer->branch;
    }
    return norm(infer, infer->final_norm, infer->final_norm_bias, n, x, branch, infer->x,
                infer->norm);
}
