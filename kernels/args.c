/* args.c - the arguments of every op are checked here, once for all backends: products, elementwise ops, loss and
 * optimizer; args_layers.c has the rest. */
#include "kernels/args.h"

#include "kernels/check.h"

#include <math.h>

static bool is_kind(enum tern_packed packed)
{
    return packed > TERN_PACKED_NONE && packed < TERN_PACKED_COUNT;
}

/* A packed matrix (n, k) at p. */
static void check_packed(struct tern_check *check,
                         const char *name,
                         struct tern_dptr p,
                         enum tern_packed packed,
                         const int64_t shape[2],
                         unsigned flags)
{
    if (check->status != TERN_OK) {
        return;
    }
    size_t bytes = tern_packed_bytes(check->device, packed, shape[0], shape[1]);
    if (bytes == 0) {
        TERN_CHECK_REFUSE(check, "%s: %s of k = %lld is packed as %s, expected whole groups of %d",
                          check->op, name, (long long)shape[1], tern_packed_name(packed),
                          TERN_PACKED_GROUP);
        return;
    }
    tern_check_vector(check, name, p, TERN_U8, (int64_t)bytes, flags);
}

/* What a product with a packed b may be. */
static void check_gemm_packed(struct tern_check *check, const struct tern_gemm_args *args)
{
    tern_check_has(check, TERN_LACKS_PACKED, "products of packed weights");
    tern_check_float(check, "a_dtype", args->a_dtype);
    tern_check_float(check, "d_dtype", args->d_dtype);
    if (!is_kind(args->b_packed)) {
        TERN_CHECK_REFUSE(check, "%s: b_packed is %d, expected one of enum tern_packed", check->op,
                          (int)args->b_packed);
        return;
    }
    bool is_codes = tern_packed_is_codes(args->b_packed);
    if (is_codes ? args->compute != TERN_I8
                 : args->compute != TERN_F32 && args->compute != TERN_BF16) {
        TERN_CHECK_REFUSE(check, "%s: b is packed as %s and compute is %s, expected %s", check->op,
                          tern_packed_name(args->b_packed), tern_dtype_name(args->compute),
                          is_codes ? "i8" : "f32 or bf16");
    }
    if (!args->trans_b || args->trans_a || args->accumulate) {
        TERN_CHECK_REFUSE(check, "%s: b is packed, expected trans_b, no trans_a, no accumulate",
                          check->op);
    }
    if ((int)args->epilogue < TERN_EPILOGUE_NONE || args->epilogue >= TERN_EPILOGUE_DGELU) {
        TERN_CHECK_REFUSE(check, "%s: b is packed and epilogue is %d, expected none, bias or gelu",
                          check->op, (int)args->epilogue);
    }
    if (tern_epilogue_has_bias(args->epilogue)) {
        tern_check_float(check, "bias_dtype", args->bias_dtype);
    }
    if (args->a_dtype == TERN_F64 || args->d_dtype == TERN_F64) {
        TERN_CHECK_REFUSE(check, "%s: b is packed and a or d is f64, expected f32 or bf16",
                          check->op);
    }
}

static void check_gemm_kinds(struct tern_check *check, const struct tern_gemm_args *args)
{
    if (args->b_packed != TERN_PACKED_NONE) {
        check_gemm_packed(check, args);
        return;
    }
    bool has_bias = tern_epilogue_has_bias(args->epilogue);
    tern_check_float(check, "a_dtype", args->a_dtype);
    if (tern_dtype_is_stored(args->b_dtype)) {
        tern_check_has(check, TERN_LACKS_STORED, "products of weights as they are stored");
        if (!args->trans_b) {
            TERN_CHECK_REFUSE(check, "%s: b is stored as %s and not transposed, expected trans_b",
                              check->op, tern_dtype_name(args->b_dtype));
        }
    } else {
        tern_check_float(check, "b_dtype", args->b_dtype);
    }
    tern_check_float(check, "d_dtype", args->d_dtype);
    tern_check_float(check, "compute", args->compute);
    if (has_bias) {
        tern_check_float(check, "bias_dtype", args->bias_dtype);
    }
    bool is_stored = tern_dtype_is_stored(args->b_dtype);
    int wide = (args->a_dtype == TERN_F64) + (args->b_dtype == TERN_F64) +
               (args->d_dtype == TERN_F64) + (args->compute == TERN_F64) +
               (!has_bias || args->bias_dtype == TERN_F64);
    if ((is_stored || wide != 5) && wide != (has_bias ? 0 : 1)) {
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
    if (args->b_packed == TERN_PACKED_NONE) {
        tern_check_stride(&check, "ldb", args->ldb, args->trans_b ? "k" : "n",
                          args->trans_b ? args->k : args->n);
    }
    tern_check_stride(&check, "ldd", args->ldd, "n", args->n);
    check_gemm_kinds(&check, args);
    if (tern_check_is_over(&check, args->m == 0 || args->n == 0, is_empty_out)) {
        return check.status;
    }
    const int64_t a[2] = {args->trans_a ? args->k : args->m, args->trans_a ? args->m : args->k},
                  b[2] = {args->trans_b ? args->n : args->k, args->trans_b ? args->k : args->n},
                  d[2] = {args->m, args->n};
    tern_check_rows(&check, "a", args->a, args->a_dtype, a, args->lda, TERN_OPERAND_READ);
    if (args->b_packed != TERN_PACKED_NONE) {
        check_packed(&check, "b", args->b, args->b_packed, b, TERN_OPERAND_READ);
    } else {
        tern_check_weights(&check, "b", args->b, args->b_dtype, b, args->ldb);
    }
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
    if (tern_check_is_over(&check, args->rows == 0, is_empty_out)) {
        return check.status;
    }
    const int64_t cells[2] = {args->rows, args->n};
    tern_check_rows(&check, "dy", args->dy, args->dtype, cells, args->ldy, TERN_OPERAND_READ);
    tern_check_vector(&check, "dbias", args->dbias, tern_check_side_of(args->dtype), args->n,
                      TERN_OPERAND_WRITE);
    return tern_check_finish(&check);
}

tern_status tern_args_check_gemm_bias_bwd(struct tern_device *device,
                                          const struct tern_gemm_bias_bwd_args *args,
                                          bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_GEMM_BIAS_BWD, args);
    TERN_RETURN_IF_ERR(check.status);
    const struct tern_gemm_args *gemm = &args->gemm;
    struct tern_bias_bwd_args half = tern_gemm_bias_bwd_half(args);
    TERN_RETURN_IF_ERR(tern_args_check_gemm(device, gemm, is_empty_out));
    if (args->is_of_a ? !gemm->trans_a : gemm->trans_b) {
        TERN_CHECK_REFUSE(&check, "%s: %s is stored (%s, k), expected (k, %s): sums are over k",
                          check.op, args->is_of_a ? "a" : "b", args->is_of_a ? "m" : "n",
                          args->is_of_a ? "m" : "n");
    }
    if (gemm->epilogue != TERN_EPILOGUE_NONE) {
        TERN_CHECK_REFUSE(&check, "%s: epilogue is %d, expected none", check.op,
                          (int)gemm->epilogue);
    }
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t a[2] = {gemm->k, gemm->m}, b[2] = {gemm->k, gemm->n}, d[2] = {gemm->m, gemm->n};
    tern_check_rows(&check, args->is_of_a ? "a" : "b", half.dy, half.dtype, args->is_of_a ? a : b,
                    half.ldy, TERN_OPERAND_READ);
    tern_check_rows(&check, "d", gemm->d, gemm->d_dtype, d, gemm->ldd, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "dbias", args->dbias, tern_check_side_of(half.dtype), half.n,
                      TERN_OPERAND_WRITE);
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
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
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
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
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
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    tern_check_finite(&check, "scale", args->scale);
    tern_check_vector(&check, "a", args->a, args->dtype, args->n,
                      TERN_OPERAND_READ | TERN_OPERAND_OPTIONAL);
    tern_check_vector(&check, "b", args->b, args->dtype, args->n, TERN_OPERAND_READ);
    tern_check_vector(&check, "y", args->y, args->dtype, args->n, TERN_OPERAND_WRITE);
    tern_check_may_be(&check, "y", "a");
    tern_check_may_be(&check, "y", "b");
    return tern_check_finish(&check);
}

tern_status tern_args_check_softcap(struct tern_device *device,
                                    const struct tern_softcap_args *args,
                                    bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_SOFTCAP, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "n", args->n, 0);
    tern_check_softcap(&check, "cap", args->cap, true);
    tern_check_float(&check, "dtype", args->dtype);
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    tern_check_vector(&check, "x", args->x, args->dtype, args->n, TERN_OPERAND_READ);
    tern_check_vector(&check, "y", args->y, args->dtype, args->n, TERN_OPERAND_WRITE);
    tern_check_may_be(&check, "y", "x");
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
    tern_check_softcap(&check, "softcap", args->softcap, false);
    if (args->softcap > 0) {
        tern_check_has(&check, TERN_LACKS_SOFTCAP, "a softcap");
    }
    if (tern_check_is_over(&check, args->rows == 0, is_empty_out)) {
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
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    tern_check_vector(&check, "weight", args->weight, TERN_F32, args->n, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "grad", args->grad, TERN_F32, args->n, TERN_OPERAND_READ);
    tern_check_vector(&check, "exp_avg", args->exp_avg, TERN_F32, args->n, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "exp_avg_sq", args->exp_avg_sq, TERN_F32, args->n,
                      TERN_OPERAND_WRITE);
    tern_check_vector(&check, "copy", args->copy, args->copy_dtype, args->n,
                      TERN_OPERAND_WRITE | TERN_OPERAND_OPTIONAL);
    tern_check_vector(&check, "grad_scale", args->grad_scale, TERN_F32, 1, TERN_OPERAND_READ);
    return tern_check_finish(&check);
}

tern_status tern_args_check_sumsq(struct tern_device *device,
                                  const struct tern_sumsq_args *args,
                                  bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_SUMSQ, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "blocks", args->blocks, 0);
    if (tern_check_is_over(&check, args->blocks == 0, is_empty_out)) {
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

tern_status tern_args_check_clip(struct tern_device *device,
                                 const struct tern_clip_args *args,
                                 bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_CLIP, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "n", args->n, 0);
    tern_check_size(&check, "blocks", args->blocks, 0);
    tern_check_size(&check, "losses", args->losses, 0);
    if (!(args->count > 0) || !isfinite(args->count)) {
        TERN_CHECK_REFUSE(&check, "%s: count is %g, expected more than 0", check.op, args->count);
    }
    if (!(args->max_norm >= 0) || !isfinite(args->max_norm)) {
        TERN_CHECK_REFUSE(&check, "%s: max_norm is %g, expected 0 or more", check.op,
                          args->max_norm);
    }
    if (tern_check_is_over(&check, args->blocks == 0, is_empty_out)) {
        return check.status;
    }
    int64_t count = args->blocks + args->losses;
    tern_check_vector(&check, "values", args->values, TERN_F64, args->n, TERN_OPERAND_READ);
    tern_check_vector(&check, "order", args->order, TERN_I64, count, TERN_OPERAND_READ);
    tern_check_vector(&check, "total", args->total, TERN_F64, 1, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "scale", args->scale, TERN_F32, 1, TERN_OPERAND_WRITE);
    const int64_t *order =
        check.status != TERN_OK ? NULL : device->ops->device->host_view(device, args->order);
    for (int64_t i = 0; order != NULL && i < count; i++) {
        if (order[i] < 0 || order[i] >= args->n) {
            TERN_CHECK_REFUSE(&check, "%s: order[%lld] is %lld, expected 0 to %lld", check.op,
                              (long long)i, (long long)order[i], (long long)args->n - 1);
            break;
        }
    }
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
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
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

static void check_pack_kinds(struct tern_check *check, const struct tern_pack_args *args)
{
    bool is_stored = tern_dtype_is_stored(args->src_dtype);
    tern_check_has(check, TERN_LACKS_PACKED, "packed weights");
    if (!is_stored && args->src_dtype != TERN_F32 && args->src_dtype != TERN_BF16) {
        TERN_CHECK_REFUSE(check, "%s: src_dtype is %s, expected f32, bf16 or a stored type",
                          check->op, tern_dtype_name(args->src_dtype));
        return;
    }
    if (!is_kind(args->packed)) {
        TERN_CHECK_REFUSE(check, "%s: packed is %d, expected one of enum tern_packed", check->op,
                          (int)args->packed);
        return;
    }
    bool is_by_value = args->packed == TERN_PACKED_F32 || args->packed == TERN_PACKED_BF16 ||
                       args->packed == TERN_PACKED_Q8 || args->packed == TERN_PACKED_Q4;
    if (!is_by_value && args->packed != tern_packed_for(args->src_dtype)) {
        TERN_CHECK_REFUSE(check, "%s: %s cannot be packed as %s, expected f32, bf16, q8, q4 or %s",
                          check->op, tern_dtype_name(args->src_dtype),
                          tern_packed_name(args->packed),
                          tern_packed_name(tern_packed_for(args->src_dtype)));
    }
    if (args->trans_src && tern_dtype_block_elements(args->src_dtype) > 1) {
        TERN_CHECK_REFUSE(check, "%s: src is %s and (k, n), expected (n, k): blocks lie along k",
                          check->op, tern_dtype_name(args->src_dtype));
    }
}

tern_status tern_args_check_pack(struct tern_device *device,
                                 const struct tern_pack_args *args,
                                 bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_PACK, args);
    TERN_RETURN_IF_ERR(check.status);
    tern_check_size(&check, "n", args->n, 0);
    tern_check_size(&check, "k", args->k, 1);
    tern_check_stride(&check, "ld", args->ld, args->trans_src ? "n" : "k",
                      args->trans_src ? args->n : args->k);
    check_pack_kinds(&check, args);
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    const int64_t shape[2] = {args->n, args->k};
    const int64_t src[2] = {args->trans_src ? args->k : args->n,
                            args->trans_src ? args->n : args->k};
    tern_check_weights(&check, "src", args->src, args->src_dtype, src, args->ld);
    check_packed(&check, "dst", args->dst, args->packed, shape, TERN_OPERAND_WRITE);
    return tern_check_finish(&check);
}
