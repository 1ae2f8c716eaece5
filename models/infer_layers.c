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

static struct tern_dptr pool_of(const struct tern_infer *infer, int number)
{
    uint64_t pool_bytes = (uint64_t)infer->options.blocks * infer->block_bytes;
    return (struct tern_dptr){infer->pools.addr + (uint64_t)number * pool_bytes};
}

static int64_t qkv_row(const struct tern_model_config *c)
{
    return (c->heads + 2 * c->kv_heads) * c->head_width;
}

/* norm (N, C) to qkv, keys and values of which are kept. */
static tern_status project(struct tern_infer *infer, int number)
{
    const struct tern_model_config *c = &infer->model->config;
    const struct tern_infer_layer *layer = &infer->layers[number];
    int64_t row = qkv_row(c), n = infer->run.rows;
    struct tern_dptr k =
        tern_dptr_at(infer->qkv, c->heads * c->head_width, infer->model->dtype);
    TERN_RETURN_IF_ERR(
        tern_infer_multiply_all(infer, &layer->qkv, n, infer->norm, infer->qkv, row));
    TERN_RETURN_IF_ERR(norm_heads(infer, layer->q_norm, n, infer->qkv, c->heads, row));
    TERN_RETURN_IF_ERR(norm_heads(infer, layer->k_norm, n, k, c->kv_heads, row));
    TERN_RETURN_IF_ERR(rope(infer, layer, row));
    return keep(infer, pool_of(infer, number), row);
}

/* q (n, H D) in rows of q, k and v to att (n, H D); starts: where each part's rows begin. */
static tern_status attend(struct tern_infer *infer,
                          int number,
                          struct tern_dptr q,
                          int64_t n,
                          int64_t starts)
{
    const struct tern_model_config *c = &infer->model->config;
    const struct tern_infer_numbers *run = &infer->run;
    return tern_op_paged_attention(infer->device,
                                   &(struct tern_paged_attention_args){
                                       .q = q,
                                       .out = infer->att,
                                       .pool = pool_of(infer, number),
                                       .row_starts = tern_infer_number(infer, starts),
                                       .lengths = tern_infer_number(infer, run->lengths),
                                       .tables = tern_infer_number(infer, run->tables),
                                       .n = n,
                                       .sequences = run->parts,
                                       .longest = run->longest,
                                       .table_row = run->table_row,
                                       .blocks = infer->options.blocks,
                                       .h = c->heads,
                                       .kv_heads = c->kv_heads,
                                       .d = c->head_width,
                                       .q_row = qkv_row(c),
                                       .out_row = c->heads * c->head_width,
                                       .window = infer->layers[number].window,
                                       .scale = c->query_scale,
                                       .softcap = c->attention_softcap,
                                       .dtype = infer->model->dtype,
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

/* From att (n, H D) and the stream x (n, C) to branch (n, C) and, before it joins, the stream in x2; x2 may be x. */
static tern_status finish_layer(struct tern_infer *infer,
                                const struct tern_infer_layer *layer,
                                int64_t n,
                                struct tern_dptr x)
{
    const struct tern_model_config *c = &infer->model->config;
    TERN_RETURN_IF_ERR(
        tern_infer_multiply(infer, &layer->out, n, infer->att, infer->branch, c->width, NULL));
    TERN_RETURN_IF_ERR(post_norm(infer, layer->post1, n));
    TERN_RETURN_IF_ERR(norm(infer, layer->norm2, layer->norm2_bias, n, x, infer->branch, infer->x2,
                            infer->norm));
    TERN_RETURN_IF_ERR(feed_forward(infer, layer, n));
    return post_norm(infer, layer->post2, n);
}

/* The last layer after its keys and values, of the rows alone whose logits are asked for. */
static tern_status finish_last(struct tern_infer *infer, int number)
{
    const struct tern_model_config *c = &infer->model->config;
    int64_t n = infer->run.wanted_rows;
    if (n == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_infer_pick(infer, infer->qkv, qkv_row(c), infer->last_qkv));
    TERN_RETURN_IF_ERR(tern_infer_pick(infer, infer->x, c->width, infer->x2));
    TERN_RETURN_IF_ERR(attend(infer, number, infer->last_qkv, n, infer->run.wanted_starts));
    return finish_layer(infer, &infer->layers[number], n, infer->x2);
}

tern_status tern_infer_run_layers(struct tern_infer *infer)
{
    const struct tern_model_config *c = &infer->model->config;
    const struct tern_infer_numbers *run = &infer->run;
    struct tern_dptr x = infer->x;
    struct tern_dptr branch = {0};
    for (int i = 0; i < c->layers; i++) {
        const struct tern_infer_layer *layer = &infer->layers[i];
        TERN_RETURN_IF_ERR(norm(infer, layer->norm1, layer->norm1_bias, run->rows, x, branch,
                                infer->x, infer->norm));
        TERN_RETURN_IF_ERR(project(infer, i));
        if (i + 1 == c->layers && run->last_rows < run->rows) {
            TERN_RETURN_IF_ERR(finish_last(infer, i));
        } else {
            TERN_RETURN_IF_ERR(attend(infer, i, infer->qkv, run->rows, run->row_starts));
            TERN_RETURN_IF_ERR(finish_layer(infer, layer, run->rows, infer->x));
        }
        x = infer->x2;
        branch = infer->branch;
    }
    return norm(infer, infer->final_norm, infer->final_norm_bias, run->last_rows, x, branch,
                infer->x, infer->norm);
}
