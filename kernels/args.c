/* args.c - the arguments of every op are checked here, once for all backends. */
#include "kernels/args.h"

#include "kernels/check.h"

#include <math.h>

/* Side data of activations of this dtype. */
static enum tern_dtype side_of(enum tern_dtype dtype)
{
    return dtype == TERN_F64 ? TERN_F64 : TERN_F32;
}

/* A position table is read at first_position + row % t; rows come in whole sequences. */
static void check_sequences(struct tern_check *check, int64_t n, int64_t t, int64_t first_position)
{
    tern_check_size(check, "n", n, 0);
    tern_check_size(check, "t", t, 1);
    tern_check_size(check, "first_position", first_position, 0);
    if (check->status == TERN_OK && n % t != 0) {
        TERN_CHECK_REFUSE(check, "%s: n is %lld, expected whole sequences of t = %lld", check->op,
                          (long long)n, (long long)t);
    }
}

/* Token ids steer writes and reads: where the host can see them, they are looked at. */
static void check_ids(struct tern_check *check, struct tern_dptr ids, int64_t n, int64_t v)
{
    if (check->status != TERN_OK) {
        return;
    }
    const int32_t *view = check->device->ops->device->host_view(check->device, ids);
    for (int64_t i = 0; view != NULL && i < n; i++) {
        if (view[i] < 0 || view[i] >= v) {
            TERN_CHECK_REFUSE(check, "%s: ids[%lld] is %d, expected 0 to %lld", check->op,
                              (long long)i, view[i], (long long)(v - 1));
            return;
        }
    }
}

/* Document starts (n, of sequences of t) steer reads as ids do. */
static void check_starts(struct tern_check *check, struct tern_dptr starts, int64_t n, int64_t t)
{
    tern_check_vector(check, "starts", starts, TERN_I32, n,
                      TERN_OPERAND_READ | TERN_OPERAND_OPTIONAL);
    if (check->status != TERN_OK || tern_dptr_is_null(starts)) {
        return;
    }
    if (!check->device->ops->has_documents) {
        check->status = tern_fail(TERN_ERR_UNSUPPORTED,
                                  "%s: backend %s does not take packed documents (starts)",
                                  check->op, check->device->ops->device->name);
        return;
    }
    const int32_t *view = check->device->ops->device->host_view(check->device, starts);
    for (int64_t i = 0; view != NULL && i < n; i++) {
        int32_t least = i % t > 0 ? view[i - 1] : 0;
        if (view[i] < least || view[i] > i % t) {
            TERN_CHECK_REFUSE(check, "%s: starts[%lld] is %d, expected %d to %lld", check->op,
                              (long long)i, view[i], least, (long long)(i % t));
            return;
        }
    }
}

tern_status tern_args_check_embed_fwd(struct tern_device *device,
                                      const struct tern_embed_fwd_args *args,
                                      bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_EMBED_FWD, args);
    TERN_RETURN_IF_ERR(check.status);
    check_sequences(&check, args->n, args->t, args->first_position);
    tern_check_size(&check, "c", args->c, 1);
    tern_check_size(&check, "v", args->v, 1);
    tern_check_float(&check, "dtype", args->dtype);
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t cells[2] = {args->n, args->c}, table[2] = {args->v, args->c},
                  positions[2] = {args->first_position + args->t, args->c};
    tern_check_vector(&check, "ids", args->ids, TERN_I32, args->n, TERN_OPERAND_READ);
    tern_check_matrix(&check, "wte", args->wte, args->dtype, table, TERN_OPERAND_READ);
    tern_check_matrix(&check, "wpe", args->wpe, args->dtype, positions,
                      TERN_OPERAND_READ | TERN_OPERAND_OPTIONAL);
    tern_check_matrix(&check, "out", args->out, args->dtype, cells, TERN_OPERAND_WRITE);
    check_starts(&check, args->starts, args->n, args->t);
    check_ids(&check, args->ids, args->n, args->v);
    return tern_check_finish(&check);
}

tern_status tern_args_check_embed_bwd(struct tern_device *device,
                                      const struct tern_embed_bwd_args *args,
                                      bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_EMBED_BWD, args);
    TERN_RETURN_IF_ERR(check.status);
    check_sequences(&check, args->n, args->t, 0);
    tern_check_size(&check, "c", args->c, 1);
    tern_check_size(&check, "v", args->v, 1);
    tern_check_float(&check, "dtype", args->dtype);
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t cells[2] = {args->n, args->c}, table[2] = {args->v, args->c},
                  positions[2] = {args->t, args->c};
    tern_check_vector(&check, "ids", args->ids, TERN_I32, args->n, TERN_OPERAND_READ);
    tern_check_matrix(&check, "dout", args->dout, args->dtype, cells, TERN_OPERAND_READ);
    tern_check_matrix(&check, "dwte", args->dwte, side_of(args->dtype), table, TERN_OPERAND_WRITE);
    tern_check_matrix(&check, "dwpe", args->dwpe, side_of(args->dtype), positions,
                      TERN_OPERAND_WRITE | TERN_OPERAND_OPTIONAL);
    check_starts(&check, args->starts, args->n, args->t);
    check_ids(&check, args->ids, args->n, args->v);
    return tern_check_finish(&check);
}

static void check_norm_kind(struct tern_check *check, enum tern_norm_kind kind)
{
    if (kind != TERN_NORM_LAYER && kind != TERN_NORM_RMS) {
        TERN_CHECK_REFUSE(check, "%s: kind is %d, expected TERN_NORM_LAYER or TERN_NORM_RMS",
                          check->op, (int)kind);
    }
}

static void check_absent(struct tern_check *check,
                         const char *name,
                         struct tern_dptr p,
                         const char *why)
{
    if (!tern_dptr_is_null(p)) {
        TERN_CHECK_REFUSE(check, "%s: %s is not null, but %s", check->op, name, why);
    }
}

tern_status tern_args_check_norm_fwd(struct tern_device *device,
                                     const struct tern_norm_fwd_args *args,
                                     bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_NORM_FWD, args);
    TERN_RETURN_IF_ERR(check.status);
    bool is_layer = args->kind == TERN_NORM_LAYER,
         has_residual = !tern_dptr_is_null(args->residual);
    check_norm_kind(&check, args->kind);
    tern_check_size(&check, "n", args->n, 0);
    tern_check_size(&check, "c", args->c, 1);
    tern_check_float(&check, "dtype", args->dtype);
    if (!(args->eps >= 0) || !isfinite(args->eps)) {
        TERN_CHECK_REFUSE(&check, "%s: eps is %g, expected 0 or more", check.op, (double)args->eps);
    }
    if (!is_layer) {
        check_absent(&check, "mean", args->mean, "rms has no mean");
    } else if (tern_dptr_is_null(args->mean) != tern_dptr_is_null(args->rstd)) {
        TERN_CHECK_REFUSE(&check, "%s: one of mean and rstd is null, expected both or none",
                          check.op);
    }
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t cells[2] = {args->n, args->c};
    enum tern_dtype side = side_of(args->dtype);
    tern_check_matrix(&check, "x", args->x, args->dtype, cells, TERN_OPERAND_READ);
    tern_check_matrix(&check, "residual", args->residual, args->dtype, cells,
                      TERN_OPERAND_READ | TERN_OPERAND_OPTIONAL);
    if (has_residual) {
        tern_check_matrix(&check, "sum", args->sum, args->dtype, cells, TERN_OPERAND_WRITE);
    }
    tern_check_vector(&check, "gamma", args->gamma, args->dtype, args->c, TERN_OPERAND_READ);
    tern_check_vector(&check, "beta", args->beta, args->dtype, args->c,
                      TERN_OPERAND_READ | TERN_OPERAND_OPTIONAL);
    tern_check_matrix(&check, "out", args->out, args->dtype, cells, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "mean", args->mean, side, args->n,
                      TERN_OPERAND_WRITE | TERN_OPERAND_OPTIONAL);
    tern_check_vector(&check, "rstd", args->rstd, side, args->n,
                      TERN_OPERAND_WRITE | TERN_OPERAND_OPTIONAL);
    tern_check_may_be(&check, "sum", "x");
    return tern_check_finish(&check);
}

tern_status tern_args_check_norm_bwd(struct tern_device *device,
                                     const struct tern_norm_bwd_args *args,
                                     bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_NORM_BWD, args);
    TERN_RETURN_IF_ERR(check.status);
    check_norm_kind(&check, args->kind);
    tern_check_size(&check, "n", args->n, 0);
    tern_check_size(&check, "c", args->c, 1);
    tern_check_float(&check, "dtype", args->dtype);
    if (args->kind == TERN_NORM_RMS) {
        check_absent(&check, "dbeta", args->dbeta, "rms has no beta");
    }
    *is_empty_out = args->n == 0 && args->accumulate;
    if (args->n == 0 && !args->accumulate) {
        TERN_CHECK_REFUSE(&check, "%s: n is 0, expected rows to overwrite dgamma from", check.op);
    }
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t cells[2] = {args->n, args->c};
    enum tern_dtype side = side_of(args->dtype);
    tern_check_matrix(&check, "dy", args->dy, args->dtype, cells, TERN_OPERAND_READ);
    tern_check_matrix(&check, "x", args->x, args->dtype, cells, TERN_OPERAND_READ);
    tern_check_vector(&check, "gamma", args->gamma, args->dtype, args->c, TERN_OPERAND_READ);
    if (args->kind == TERN_NORM_LAYER) {
        tern_check_vector(&check, "mean", args->mean, side, args->n, TERN_OPERAND_READ);
    }
    tern_check_vector(&check, "rstd", args->rstd, side, args->n, TERN_OPERAND_READ);
    tern_check_matrix(&check, "dresidual", args->dresidual, args->dtype, cells,
                      TERN_OPERAND_READ | TERN_OPERAND_OPTIONAL);
    tern_check_matrix(&check, "dx", args->dx, args->dtype, cells, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "dgamma", args->dgamma, side, args->c, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "dbeta", args->dbeta, side, args->c,
                      TERN_OPERAND_WRITE | TERN_OPERAND_OPTIONAL);
    tern_check_may_be(&check, "dresidual", "dx");
    return tern_check_finish(&check);
}

static void check_gemm_kinds(struct tern_check *check, const struct tern_gemm_args *args)
{
    bool has_bias = tern_epilogue_has_bias(args->epilogue);
    tern_check_float(check, "a_dtype", args->a_dtype);
    tern_check_float(check, "b_dtype", args->b_dtype);
    tern_check_float(check, "d_dtype", args->d_dtype);
    tern_check_float(check, "compute", args->compute);
    if (has_bias) {
        tern_check_float(check, "bias_dtype", args->bias_dtype);
    }
    int wide = (args->a_dtype == TERN_F64) + (args->b_dtype == TERN_F64) +
               (args->d_dtype == TERN_F64) + (args->compute == TERN_F64) +
               (!has_bias || args->bias_dtype == TERN_F64);
    if (wide != 5 && wide != (has_bias ? 0 : 1)) {
        TERN_CHECK_REFUSE(check, "%s: some dtypes are f64 and some are not, expected all or none",
                          check->op);
    }
    if ((int)args->epilogue < TERN_EPILOGUE_NONE || args->epilogue > TERN_EPILOGUE_DGELU) {
        TERN_CHECK_REFUSE(check, "%s: epilogue is %d, expected one of enum tern_epilogue",
                          check->op, (int)args->epilogue);
    }
    if (args->accumulate && args->d_dtype == TERN_BF16) {
        TERN_CHECK_REFUSE(check, "%s: accumulate into bf16, expected d_dtype f32", check->op);
    }
    if (args->accumulate && args->epilogue != TERN_EPILOGUE_NONE) {
        TERN_CHECK_REFUSE(check, "%s: accumulate with epilogue %d, expected TERN_EPILOGUE_NONE",
                          check->op, (int)args->epilogue);
    }
}

tern_status tern_args_check_gemm(struct tern_device *device,
                                 const struct tern_gemm_args *args,
                                 bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_GEMM, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "m", args->m, 0);
    tern_check_size(&check, "n", args->n, 0);
    tern_check_size(&check, "k", args->k, 1);
    tern_check_stride(&check, "lda", args->lda, args->trans_a ? "m" : "k",
                      args->trans_a ? args->m : args->k);
    tern_check_stride(&check, "ldb", args->ldb, args->trans_b ? "k" : "n",
                      args->trans_b ? args->k : args->n);
    tern_check_stride(&check, "ldd", args->ldd, "n", args->n);
    check_gemm_kinds(&check, args);
    *is_empty_out = args->m == 0 || args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t a[2] = {args->trans_a ? args->k : args->m, args->trans_a ? args->m : args->k},
                  b[2] = {args->trans_b ? args->n : args->k, args->trans_b ? args->k : args->n},
                  d[2] = {args->m, args->n};
    tern_check_rows(&check, "a", args->a, args->a_dtype, a, args->lda, TERN_OPERAND_READ);
    tern_check_rows(&check, "b", args->b, args->b_dtype, b, args->ldb, TERN_OPERAND_READ);
    tern_check_rows(&check, "d", args->d, args->d_dtype, d, args->ldd, TERN_OPERAND_WRITE);
    if (tern_epilogue_has_bias(args->epilogue)) {
        tern_check_vector(&check, "bias", args->bias, args->bias_dtype, args->n, TERN_OPERAND_READ);
    }
    if (tern_epilogue_has_aux(args->epilogue)) {
        tern_check_rows(&check, "aux", args->aux, args->d_dtype, d, args->ldd,
                        args->epilogue == TERN_EPILOGUE_DGELU ? TERN_OPERAND_READ
                                                              : TERN_OPERAND_WRITE);
    }
    return tern_check_finish(&check);
}

tern_status tern_args_check_bias_bwd(struct tern_device *device,
                                     const struct tern_bias_bwd_args *args,
                                     bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_BIAS_BWD, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "rows", args->rows, args->accumulate ? 0 : 1);
    tern_check_size(&check, "n", args->n, 1);
    tern_check_stride(&check, "ldy", args->ldy, "n", args->n);
    tern_check_float(&check, "dtype", args->dtype);
    *is_empty_out = args->rows == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t cells[2] = {args->rows, args->n};
    tern_check_rows(&check, "dy", args->dy, args->dtype, cells, args->ldy, TERN_OPERAND_READ);
    tern_check_vector(&check, "dbias", args->dbias, side_of(args->dtype), args->n,
                      TERN_OPERAND_WRITE);
    return tern_check_finish(&check);
}

/* Elements from the first of a sequence to one past its last; INT64_MAX when that overflows. */
static int64_t sequence_span(int64_t rows, int64_t stride, int64_t width)
{
    int64_t span;
    bool is_too_large = __builtin_mul_overflow(rows - 1, stride, &span) ||
                        __builtin_add_overflow(span, width, &span);
    return is_too_large ? INT64_MAX : span;
}

static void check_attention_sizes(struct tern_check *check, const struct tern_attention_args *args)
{
    tern_check_size(check, "b", args->b, 0);
    tern_check_size(check, "tq", args->tq, 1);
    tern_check_size(check, "tkv", args->tkv, 1);
    tern_check_size(check, "h", args->h, 1);
    tern_check_size(check, "kv_heads", args->kv_heads, 1);
    tern_check_size(check, "d", args->d, 1);
    tern_check_size(check, "window", args->window, 0);
    tern_check_float(check, "dtype", args->dtype);
    tern_check_finite(check, "scale", args->scale);
    if (check->status != TERN_OK) {
        return;
    }
    if (args->d > TERN_HEAD_WIDTH_MAX) {
        TERN_CHECK_REFUSE(check, "%s: d is %lld, expected at most %d", check->op,
                          (long long)args->d, TERN_HEAD_WIDTH_MAX);
    }
    if (args->tq > args->tkv) {
        TERN_CHECK_REFUSE(check, "%s: tq is %lld, expected at most tkv = %lld", check->op,
                          (long long)args->tq, (long long)args->tkv);
    }
    if (!tern_dptr_is_null(args->starts) && args->tq != args->tkv) {
        TERN_CHECK_REFUSE(check, "%s: tq is %lld, expected tkv = %lld with starts", check->op,
                          (long long)args->tq, (long long)args->tkv);
    }
    if (args->h % args->kv_heads != 0) {
        TERN_CHECK_REFUSE(check, "%s: h is %lld, expected a multiple of kv_heads = %lld", check->op,
                          (long long)args->h, (long long)args->kv_heads);
    }
    if (check->status != TERN_OK) {
        return;
    }
    tern_check_stride(check, "q_row", args->q_row, "h * d", args->h * args->d);
    tern_check_stride(check, "kv_row", args->kv_row, "kv_heads * d", args->kv_heads * args->d);
    tern_check_stride(check, "out_row", args->out_row, "h * d", args->h * args->d);
    if (args->b > 1) {
        tern_check_stride(check, "q_batch", args->q_batch, "a sequence",
                          sequence_span(args->tq, args->q_row, args->h * args->d));
        tern_check_stride(check, "kv_batch", args->kv_batch, "a sequence",
                          sequence_span(args->tkv, args->kv_row, args->kv_heads * args->d));
        tern_check_stride(check, "out_batch", args->out_batch, "a sequence",
                          sequence_span(args->tq, args->out_row, args->h * args->d));
    }
}

tern_status tern_args_check_attention(struct tern_device *device,
                                      const struct tern_attention_args *args,
                                      bool is_backward,
                                      bool *is_empty_out)
{
    struct tern_check check =
        tern_check_begin(device, is_backward ? TERN_OP_ATTENTION_BWD : TERN_OP_ATTENTION_FWD, args);
    TERN_RETURN_IF_ERR(check.status);
    check_attention_sizes(&check, args);
    *is_empty_out = args->b == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t q[3] = {args->b, args->tq, args->h * args->d},
                  kv[3] = {args->b, args->tkv, args->kv_heads * args->d};
    const int64_t q_stride[2] = {args->q_batch, args->q_row},
                  kv_stride[2] = {args->kv_batch, args->kv_row},
                  out_stride[2] = {args->out_batch, args->out_row};
    int64_t lse_count = 0;
    if (__builtin_mul_overflow(args->b, args->h, &lse_count) ||
        __builtin_mul_overflow(lse_count, args->tq, &lse_count)) {
        TERN_CHECK_REFUSE(&check, "%s: b * h * tq overflows", check.op);
    }
    unsigned fwd_writes = is_backward ? TERN_OPERAND_READ : TERN_OPERAND_WRITE;
    enum tern_dtype dtype = args->dtype;
    tern_check_batched(&check, "q", args->q, dtype, q, q_stride, TERN_OPERAND_READ);
    tern_check_batched(&check, "k", args->k, dtype, kv, kv_stride, TERN_OPERAND_READ);
    tern_check_batched(&check, "v", args->v, dtype, kv, kv_stride, TERN_OPERAND_READ);
    tern_check_batched(&check, "out", args->out, dtype, q, out_stride, fwd_writes);
    tern_check_vector(&check, "lse", args->lse, side_of(dtype), lse_count,
                      fwd_writes | (is_backward ? 0 : TERN_OPERAND_OPTIONAL));
    check_starts(&check, args->starts, args->b * args->tq, args->tq);
    if (is_backward) {
        tern_check_batched(&check, "dout", args->dout, dtype, q, out_stride, TERN_OPERAND_READ);
        tern_check_batched(&check, "dq", args->dq, dtype, q, q_stride, TERN_OPERAND_WRITE);
        tern_check_batched(&check, "dk", args->dk, dtype, kv, kv_stride, TERN_OPERAND_WRITE);
        tern_check_batched(&check, "dv", args->dv, dtype, kv, kv_stride, TERN_OPERAND_WRITE);
    }
    return tern_check_finish(&check);
}

tern_status tern_args_check_rope(struct tern_device *device,
                                 const struct tern_rope_args *args,
                                 bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_ROPE, args);
    TERN_RETURN_IF_ERR(check.status);
    check_sequences(&check, args->n, args->t, args->first_position);
    tern_check_size(&check, "heads", args->heads, 1);
    tern_check_size(&check, "d", args->d, 2);
    tern_check_float(&check, "dtype", args->dtype);
    if (args->d % 2 != 0 || args->d > TERN_HEAD_WIDTH_MAX) {
        TERN_CHECK_REFUSE(&check, "%s: d is %lld, expected an even number up to %d", check.op,
                          (long long)args->d, TERN_HEAD_WIDTH_MAX);
    }
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    tern_check_stride(&check, "x_row", args->x_row, "heads * d", args->heads * args->d);
    const int64_t cells[2] = {args->n, args->heads * args->d},
                  table[2] = {args->first_position + args->t, args->d / 2};
    tern_check_rows(&check, "x", args->x, args->dtype, cells, args->x_row, TERN_OPERAND_WRITE);
    tern_check_matrix(&check, "cos", args->cos, side_of(args->dtype), table, TERN_OPERAND_READ);
    tern_check_matrix(&check, "sin", args->sin, side_of(args->dtype), table, TERN_OPERAND_READ);
    check_starts(&check, args->starts, args->n, args->t);
    return tern_check_finish(&check);
}

static void check_act_kind(struct tern_check *check, enum tern_act act)
{
    if (act != TERN_ACT_GELU_TANH && act != TERN_ACT_SILU) {
        TERN_CHECK_REFUSE(check, "%s: act is %d, expected TERN_ACT_GELU_TANH or TERN_ACT_SILU",
                          check->op, (int)act);
    }
}

tern_status tern_args_check_act(struct tern_device *device,
                                const struct tern_act_args *args,
                                bool is_backward,
                                bool *is_empty_out)
{
    struct tern_check check =
        tern_check_begin(device, is_backward ? TERN_OP_ACT_BWD : TERN_OP_ACT_FWD, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "n", args->n, 0);
    check_act_kind(&check, args->act);
    tern_check_float(&check, "dtype", args->dtype);
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    tern_check_vector(&check, "x", args->x, args->dtype, args->n, TERN_OPERAND_READ);
    if (is_backward) {
        tern_check_vector(&check, "dy", args->dy, args->dtype, args->n, TERN_OPERAND_READ);
        tern_check_vector(&check, "dx", args->dx, args->dtype, args->n, TERN_OPERAND_WRITE);
        tern_check_may_be(&check, "dx", "dy");
    } else {
        tern_check_vector(&check, "y", args->y, args->dtype, args->n, TERN_OPERAND_WRITE);
    }
    return tern_check_finish(&check);
}

tern_status tern_args_check_glu(struct tern_device *device,
                                const struct tern_glu_args *args,
                                bool is_backward,
                                bool *is_empty_out)
{
    struct tern_check check =
        tern_check_begin(device, is_backward ? TERN_OP_GLU_BWD : TERN_OP_GLU_FWD, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "n", args->n, 0);
    tern_check_size(&check, "f", args->f, 1);
    check_act_kind(&check, args->act);
    tern_check_float(&check, "dtype", args->dtype);
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t pair[2] = {args->n, 2 * args->f}, cells[2] = {args->n, args->f};
    tern_check_matrix(&check, "gate_up", args->gate_up, args->dtype, pair, TERN_OPERAND_READ);
    if (is_backward) {
        tern_check_matrix(&check, "dout", args->dout, args->dtype, cells, TERN_OPERAND_READ);
        tern_check_matrix(&check, "dgate_up", args->dgate_up, args->dtype, pair,
                          TERN_OPERAND_WRITE);
    } else {
        tern_check_matrix(&check, "out", args->out, args->dtype, cells, TERN_OPERAND_WRITE);
    }
    return tern_check_finish(&check);
}

tern_status tern_args_check_add(struct tern_device *device,
                                const struct tern_add_args *args,
                                bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_ADD, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "n", args->n, 0);
    tern_check_float(&check, "dtype", args->dtype);
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    tern_check_vector(&check, "a", args->a, args->dtype, args->n, TERN_OPERAND_READ);
    tern_check_vector(&check, "b", args->b, args->dtype, args->n, TERN_OPERAND_READ);
    tern_check_vector(&check, "y", args->y, args->dtype, args->n, TERN_OPERAND_WRITE);
    tern_check_may_be(&check, "y", "a");
    tern_check_may_be(&check, "y", "b");
    return tern_check_finish(&check);
}

tern_status tern_args_check_cross_entropy(struct tern_device *device,
                                          const struct tern_cross_entropy_args *args,
                                          bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_CROSS_ENTROPY, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "rows", args->rows, 0);
    tern_check_size(&check, "v", args->v, 1);
    tern_check_stride(&check, "ld", args->ld, "v", args->v);
    tern_check_float(&check, "dtype", args->dtype);
    if (args->dtype == TERN_BF16) {
        TERN_CHECK_REFUSE(&check, "%s: dtype is bf16, expected f32 logits", check.op);
    }
    *is_empty_out = args->rows == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t cells[2] = {args->rows, args->v};
    tern_check_rows(&check, "logits", args->logits, args->dtype, cells, args->ld,
                    args->backward ? TERN_OPERAND_WRITE : TERN_OPERAND_READ);
    if (!tern_dptr_is_null(args->dlogits)) {
        if (!args->backward) {
            TERN_CHECK_REFUSE(&check, "%s: dlogits is given, expected null without backward",
                              check.op);
        }
        tern_check_stride(&check, "ldd", args->ldd, "v", args->v);
        tern_check_rows(&check, "dlogits", args->dlogits, TERN_BF16, cells, args->ldd,
                        TERN_OPERAND_WRITE);
    }
    tern_check_vector(&check, "targets", args->targets, TERN_I32, args->rows, TERN_OPERAND_READ);
    tern_check_vector(&check, "nll", args->nll, args->dtype, args->rows, TERN_OPERAND_WRITE);
    return tern_check_finish(&check);
}

static void check_adamw_numbers(struct tern_check *check, const struct tern_adamw_args *args)
{
    tern_check_finite(check, "lr", args->lr);
    tern_check_finite(check, "weight_decay", args->weight_decay);
    tern_check_finite(check, "grad_scale", args->grad_scale);
    if (!(args->beta1 >= 0 && args->beta1 < 1 && args->beta2 >= 0 && args->beta2 < 1)) {
        TERN_CHECK_REFUSE(check, "%s: betas are %g and %g, expected 0 <= beta < 1", check->op,
                          (double)args->beta1, (double)args->beta2);
    }
    if (!(args->bias1 > 0 && args->bias1 <= 1 && args->bias2 > 0 && args->bias2 <= 1)) {
        TERN_CHECK_REFUSE(check,
                          "%s: bias corrections are %g and %g, expected 1 - beta^step in (0, 1]",
                          check->op, (double)args->bias1, (double)args->bias2);
    }
    if (!(args->eps >= 0) || !isfinite(args->eps)) {
        TERN_CHECK_REFUSE(check, "%s: eps is %g, expected 0 or more", check->op, (double)args->eps);
    }
}

tern_status tern_args_check_adamw(struct tern_device *device,
                                  const struct tern_adamw_args *args,
                                  bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_ADAMW, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "n", args->n, 0);
    check_adamw_numbers(&check, args);
    if (!tern_dptr_is_null(args->copy) && args->copy_dtype != TERN_F32 &&
        args->copy_dtype != TERN_BF16) {
        TERN_CHECK_REFUSE(&check, "%s: copy_dtype is number %d, expected f32 or bf16", check.op,
                          (int)args->copy_dtype);
    }
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    tern_check_vector(&check, "weight", args->weight, TERN_F32, args->n, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "grad", args->grad, TERN_F32, args->n, TERN_OPERAND_READ);
    tern_check_vector(&check, "exp_avg", args->exp_avg, TERN_F32, args->n, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "exp_avg_sq", args->exp_avg_sq, TERN_F32, args->n,
                      TERN_OPERAND_WRITE);
    tern_check_vector(&check, "copy", args->copy, args->copy_dtype, args->n,
                      TERN_OPERAND_WRITE | TERN_OPERAND_OPTIONAL);
    return tern_check_finish(&check);
}

tern_status tern_args_check_sumsq(struct tern_device *device,
                                  const struct tern_sumsq_args *args,
                                  bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_SUMSQ, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "blocks", args->blocks, 0);
    *is_empty_out = args->blocks == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    tern_check_vector(&check, "starts", args->starts, TERN_I64, args->blocks + 1,
                      TERN_OPERAND_READ);
    tern_check_vector(&check, "sums", args->sums, TERN_F64, args->blocks, TERN_OPERAND_WRITE);
    const int64_t *starts =
        check.status != TERN_OK ? NULL : device->ops->device->host_view(device, args->starts);
    for (int64_t i = 0; starts != NULL && i < args->blocks; i++) {
        if (starts[i] < 0 || starts[i] > starts[i + 1]) {
            TERN_CHECK_REFUSE(
                &check, "%s: starts[%lld] is %lld and the next is %lld, expected them to ascend",
                check.op, (long long)i, (long long)starts[i], (long long)starts[i + 1]);
            break;
        }
    }
    /* How long x is, only the starts say: where the host cannot see them, its first element
     * stands for it. */
    int64_t count = starts != NULL && check.status == TERN_OK ? starts[args->blocks] : 1;
    tern_check_vector(&check, "x", args->x, TERN_F32, count > 0 ? count : 1, TERN_OPERAND_READ);
    return tern_check_finish(&check);
}

tern_status tern_args_check_cast(struct tern_device *device,
                                 const struct tern_cast_args *args,
                                 bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_CAST, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "n", args->n, 0);
    tern_check_float(&check, "src_dtype", args->src_dtype);
    tern_check_float(&check, "dst_dtype", args->dst_dtype);
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    tern_check_vector(&check, "src", args->src, args->src_dtype, args->n, TERN_OPERAND_READ);
    tern_check_vector(&check, "dst", args->dst, args->dst_dtype, args->n, TERN_OPERAND_WRITE);
    return tern_check_finish(&check);
}

tern_status tern_args_check_limits(const struct tern_op_limits *limits)
{
    struct tern_check check = {.op = "prepare"};
    if (limits == NULL) {
        return tern_fail(TERN_ERR_ARGUMENT, "prepare: the limits are NULL");
    }
    tern_check_size(&check, "rows", limits->rows, 1);
    tern_check_size(&check, "sequence", limits->sequence, 0);
    tern_check_size(&check, "width", limits->width, 1);
    tern_check_size(&check, "heads", limits->heads, 0);
    tern_check_size(&check, "kv_heads", limits->kv_heads, 0);
    tern_check_size(&check, "head_width", limits->head_width, 0);
    tern_check_size(&check, "batch", limits->batch, 0);
    tern_check_size(&check, "vocab", limits->vocab, 0);
    if (check.status == TERN_OK && limits->head_width > TERN_HEAD_WIDTH_MAX) {
        TERN_CHECK_REFUSE(&check, "prepare: head_width is %lld, expected at most %d",
                          (long long)limits->head_width, TERN_HEAD_WIDTH_MAX);
    }
    return check.status;
}
