/* args_layers.c - the arguments of the ops that know rows, heads, positions and experts: embedding, norm, attention,
 * rotary positions, routing. */
#include "kernels/args.h"
#include "kernels/check.h"

#include <math.h>

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

/* Rows come in whole sequences, or each says where it stands. Positions that the tables must have. */
static int64_t check_places(struct tern_check *check,
                            int64_t n,
                            int64_t t,
                            int64_t first_position,
                            struct tern_dptr positions,
                            int64_t position_count)
{
    if (tern_dptr_is_null(positions)) {
        check_sequences(check, n, t, first_position);
        return first_position + t;
    }
    tern_check_size(check, "n", n, 0);
    tern_check_size(check, "position_count", position_count, 1);
    return position_count;
}

/* Token ids steer writes and reads: where the host can see them, they are looked at. */
static void check_ids(struct tern_check *check,
                      const char *name,
                      struct tern_dptr ids,
                      int64_t n,
                      int64_t v)
{
    if (check->status != TERN_OK) {
        return;
    }
    const int32_t *view = check->device->ops->device->host_view(check->device, ids);
    for (int64_t i = 0; view != NULL && i < n; i++) {
        if (view[i] < 0 || view[i] >= v) {
            TERN_CHECK_REFUSE(check, "%s: %s[%lld] is %d, expected 0 to %lld", check->op, name,
                              (long long)i, view[i], (long long)(v - 1));
            return;
        }
    }
}

static void check_positions(struct tern_check *check,
                            struct tern_dptr positions,
                            int64_t n,
                            int64_t count)
{
    tern_check_vector(check, "positions", positions, TERN_I32, n,
                      TERN_OPERAND_READ | TERN_OPERAND_OPTIONAL);
    if (!tern_dptr_is_null(positions)) {
        check_ids(check, "positions", positions, n, count);
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
    tern_check_has(check, TERN_LACKS_DOCUMENTS, "packed documents (starts)");
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

static void check_scale(struct tern_check *check, float scale)
{
    tern_check_finite(check, "scale", scale);
    if (scale != 0 && scale != 1) {
        tern_check_has(check, TERN_LACKS_EMBED_SCALE, "a scale of embeddings");
    }
}

/* The table of an embedding, packed or not: (V, C). */
static void check_table(struct tern_check *check,
                        const struct tern_embed_fwd_args *args,
                        enum tern_dtype wte_dtype,
                        const int64_t table[2])
{
    if (args->wte_packed == TERN_PACKED_NONE) {
        tern_check_weights(check, "wte", args->wte, wte_dtype, table, args->c);
        return;
    }
    tern_check_has(check, TERN_LACKS_PACKED, "embeddings from packed weights");
    if (check->status != TERN_OK) {
        return;
    }
    size_t bytes = tern_packed_bytes(check->device, args->wte_packed, table[0], table[1]);
    if (bytes == 0 || args->dtype == TERN_F64) {
        TERN_CHECK_REFUSE(check,
                          "%s: wte of c = %lld is packed as %s, expected whole groups of %d, "
                          "and dtype f32 or bf16",
                          check->op, (long long)args->c, tern_packed_name(args->wte_packed),
                          TERN_PACKED_GROUP);
        return;
    }
    tern_check_vector(check, "wte", args->wte, TERN_U8, (int64_t)bytes, TERN_OPERAND_READ);
}

tern_status tern_args_check_embed_fwd(struct tern_device *device,
                                      const struct tern_embed_fwd_args *args,
                                      bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_EMBED_FWD, args);
    TERN_RETURN_IF_ERR(check.status);
    int64_t places = check_places(&check, args->n, args->t, args->first_position, args->positions,
                                  args->position_count);
    tern_check_size(&check, "c", args->c, 1);
    tern_check_size(&check, "v", args->v, 1);
    tern_check_float(&check, "dtype", args->dtype);
    check_scale(&check, args->scale);
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    const int64_t cells[2] = {args->n, args->c}, table[2] = {args->v, args->c},
                  positions[2] = {places, args->c};
    tern_check_vector(&check, "ids", args->ids, TERN_I32, args->n, TERN_OPERAND_READ);
    enum tern_dtype wte_dtype = args->wte_dtype == TERN_F32 ? args->dtype : args->wte_dtype;
    if (wte_dtype != args->dtype && args->wte_packed == TERN_PACKED_NONE) {
        tern_check_has(&check, TERN_LACKS_STORED, "embeddings as they are stored");
        if (!tern_dtype_is_stored(wte_dtype) && wte_dtype != TERN_BF16) {
            TERN_CHECK_REFUSE(&check, "%s: wte_dtype is %s, expected %s, bf16 or a stored type",
                              check.op, tern_dtype_name(wte_dtype), tern_dtype_name(args->dtype));
        }
    }
    check_table(&check, args, wte_dtype, table);
    tern_check_matrix(&check, "wpe", args->wpe, args->dtype, positions,
                      TERN_OPERAND_READ | TERN_OPERAND_OPTIONAL);
    tern_check_matrix(&check, "out", args->out, args->dtype, cells, TERN_OPERAND_WRITE);
    check_starts(&check, args->starts, args->n, args->t);
    check_positions(&check, args->positions, args->n, places);
    check_ids(&check, "ids", args->ids, args->n, args->v);
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
    check_scale(&check, args->scale);
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    const int64_t cells[2] = {args->n, args->c}, table[2] = {args->v, args->c},
                  positions[2] = {args->t, args->c};
    tern_check_vector(&check, "ids", args->ids, TERN_I32, args->n, TERN_OPERAND_READ);
    tern_check_matrix(&check, "dout", args->dout, args->dtype, cells, TERN_OPERAND_READ);
    tern_check_matrix(&check, "dwte", args->dwte, tern_check_side_of(args->dtype), table,
                      TERN_OPERAND_WRITE);
    tern_check_matrix(&check, "dwpe", args->dwpe, tern_check_side_of(args->dtype), positions,
                      TERN_OPERAND_WRITE | TERN_OPERAND_OPTIONAL);
    check_starts(&check, args->starts, args->n, args->t);
    check_ids(&check, "ids", args->ids, args->n, args->v);
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

/* How a norm's rows lie: norms of c, heads of them side by side. */
struct norm_rows {
    int64_t heads, width; /* width: heads * c */
    int64_t stride[2];    /* of the first and the second kind of rows */
};

static struct norm_rows check_norm_rows(struct tern_check *check,
                                        int64_t heads,
                                        int64_t c,
                                        const char *const names[2],
                                        const int64_t strides[2])
{
    tern_check_size(check, "heads", heads, 0);
    tern_check_size(check, "c", c, 1);
    struct norm_rows rows = {.heads = heads > 0 ? heads : 1};
    if (check->status != TERN_OK || __builtin_mul_overflow(rows.heads, c, &rows.width)) {
        TERN_CHECK_REFUSE(check, "%s: heads * c overflows", check->op);
        return rows;
    }
    bool is_plain = rows.heads == 1;
    for (int i = 0; i < 2; i++) {
        rows.stride[i] = strides[i] != 0 ? strides[i] : rows.width;
        tern_check_stride(check, names[i], rows.stride[i], "heads * c", rows.width);
        is_plain &= rows.stride[i] == rows.width;
    }
    if (!is_plain) {
        tern_check_has(check, TERN_LACKS_NORM_HEADS, "norms of heads and of strided rows");
    }
    return rows;
}

static void check_offset(struct tern_check *check, float gamma_offset)
{
    tern_check_finite(check, "gamma_offset", gamma_offset);
    if (gamma_offset != 0) {
        tern_check_has(check, TERN_LACKS_NORM_OFFSET, "a norm with an offset of gamma");
    }
}

static void check_norm_fwd_numbers(struct tern_check *check, const struct tern_norm_fwd_args *args)
{
    check_norm_kind(check, args->kind);
    tern_check_float(check, "dtype", args->dtype);
    check_offset(check, args->gamma_offset);
    if (!(args->eps >= 0) || !isfinite(args->eps)) {
        TERN_CHECK_REFUSE(check, "%s: eps is %g, expected 0 or more", check->op, (double)args->eps);
    }
    if (args->kind == TERN_NORM_RMS) {
        check_absent(check, "mean", args->mean, "rms has no mean");
    } else if (tern_dptr_is_null(args->mean) != tern_dptr_is_null(args->rstd)) {
        TERN_CHECK_REFUSE(check, "%s: one of mean and rstd is null, expected both or none",
                          check->op);
    }
}

tern_status tern_args_check_norm_fwd(struct tern_device *device,
                                     const struct tern_norm_fwd_args *args,
                                     bool *is_empty_out)
{
    static const char *const names[2] = {"x_row", "out_row"};
    struct tern_check check = tern_check_begin(device, TERN_OP_NORM_FWD, args);
    TERN_RETURN_IF_ERR(check.status);
    const int64_t strides[2] = {args->x_row, args->out_row};
    tern_check_size(&check, "n", args->n, 0);
    struct norm_rows rows = check_norm_rows(&check, args->heads, args->c, names, strides);
    check_norm_fwd_numbers(&check, args);
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    bool has_residual = !tern_dptr_is_null(args->residual);
    bool is_in_place = args->x.addr == args->out.addr && !has_residual;
    if (!tern_dptr_is_null(args->copy) || is_in_place) {
        tern_check_has(&check, TERN_LACKS_NORM_HEADS, "norms in place and with a copy");
    }
    const int64_t cells[2] = {args->n, rows.width};
    enum tern_dtype side = tern_check_side_of(args->dtype), dtype = args->dtype;
    tern_check_rows(&check, "x", args->x, dtype, cells, rows.stride[0], TERN_OPERAND_READ);
    tern_check_matrix(&check, "residual", args->residual, dtype, cells,
                      TERN_OPERAND_READ | TERN_OPERAND_OPTIONAL);
    if (has_residual) {
        tern_check_matrix(&check, "sum", args->sum, dtype, cells, TERN_OPERAND_WRITE);
    }
    tern_check_vector(&check, "gamma", args->gamma, dtype, args->c, TERN_OPERAND_READ);
    tern_check_vector(&check, "beta", args->beta, dtype, args->c,
                      TERN_OPERAND_READ | TERN_OPERAND_OPTIONAL);
    tern_check_rows(&check, "out", args->out, dtype, cells, rows.stride[1], TERN_OPERAND_WRITE);
    tern_check_matrix(&check, "copy", args->copy, dtype, cells,
                      TERN_OPERAND_WRITE | TERN_OPERAND_OPTIONAL);
    tern_check_vector(&check, "mean", args->mean, side, args->n * rows.heads,
                      TERN_OPERAND_WRITE | TERN_OPERAND_OPTIONAL);
    tern_check_vector(&check, "rstd", args->rstd, side, args->n * rows.heads,
                      TERN_OPERAND_WRITE | TERN_OPERAND_OPTIONAL);
    if (rows.stride[0] == rows.width) {
        tern_check_may_be(&check, "sum", "x");
    }
    if (is_in_place && rows.stride[0] == rows.stride[1]) {
        tern_check_may_be(&check, "out", "x");
    }
    return tern_check_finish(&check);
}

tern_status tern_args_check_norm_bwd(struct tern_device *device,
                                     const struct tern_norm_bwd_args *args,
                                     bool *is_empty_out)
{
    static const char *const names[2] = {"x_row", "dy_row"};
    struct tern_check check = tern_check_begin(device, TERN_OP_NORM_BWD, args);
    TERN_RETURN_IF_ERR(check.status);
    const int64_t strides[2] = {args->x_row, args->dy_row};
    check_norm_kind(&check, args->kind);
    tern_check_size(&check, "n", args->n, 0);
    struct norm_rows rows = check_norm_rows(&check, args->heads, args->c, names, strides);
    tern_check_float(&check, "dtype", args->dtype);
    check_offset(&check, args->gamma_offset);
    if (args->kind == TERN_NORM_RMS) {
        check_absent(&check, "dbeta", args->dbeta, "rms has no beta");
    }
    if (args->n == 0 && !args->accumulate) {
        TERN_CHECK_REFUSE(&check, "%s: n is 0, expected rows to overwrite dgamma from", check.op);
    }
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    if (args->dx.addr == args->dy.addr) {
        tern_check_has(&check, TERN_LACKS_NORM_HEADS, "norms in place");
    }
    const int64_t cells[2] = {args->n, rows.width};
    int64_t norms = args->n * rows.heads, dy_row = rows.stride[1];
    enum tern_dtype side = tern_check_side_of(args->dtype), dtype = args->dtype;
    tern_check_rows(&check, "dy", args->dy, dtype, cells, dy_row, TERN_OPERAND_READ);
    tern_check_rows(&check, "x", args->x, dtype, cells, rows.stride[0], TERN_OPERAND_READ);
    tern_check_vector(&check, "gamma", args->gamma, dtype, args->c, TERN_OPERAND_READ);
    if (args->kind == TERN_NORM_LAYER) {
        tern_check_vector(&check, "mean", args->mean, side, norms, TERN_OPERAND_READ);
    }
    tern_check_vector(&check, "rstd", args->rstd, side, norms, TERN_OPERAND_READ);
    tern_check_rows(&check, "dresidual", args->dresidual, dtype, cells, dy_row,
                    TERN_OPERAND_READ | TERN_OPERAND_OPTIONAL);
    tern_check_rows(&check, "dx", args->dx, dtype, cells, dy_row, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "dgamma", args->dgamma, side, args->c, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "dbeta", args->dbeta, side, args->c,
                      TERN_OPERAND_WRITE | TERN_OPERAND_OPTIONAL);
    tern_check_may_be(&check, "dresidual", "dx");
    tern_check_may_be(&check, "dx", "dy");
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
    tern_check_softcap(check, "softcap", args->softcap, false);
    if (args->softcap > 0) {
        tern_check_has(check, TERN_LACKS_SOFTCAP, "a softcap");
    }
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
    if (tern_check_is_over(&check, args->b == 0, is_empty_out)) {
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
    tern_check_vector(&check, "lse", args->lse, tern_check_side_of(dtype), lse_count,
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
    int64_t places = check_places(&check, args->n, args->t, args->first_position, args->positions,
                                  args->position_count);
    tern_check_size(&check, "heads", args->heads, 1);
    tern_check_size(&check, "d", args->d, 2);
    tern_check_float(&check, "dtype", args->dtype);
    if (args->d % 2 != 0 || args->d > TERN_HEAD_WIDTH_MAX) {
        TERN_CHECK_REFUSE(&check, "%s: d is %lld, expected an even number up to %d", check.op,
                          (long long)args->d, TERN_HEAD_WIDTH_MAX);
    }
    int64_t rotary_d = args->rotary_d != 0 ? args->rotary_d : args->d;
    if (rotary_d < 2 || rotary_d > args->d || rotary_d % 2 != 0) {
        TERN_CHECK_REFUSE(&check, "%s: rotary_d is %lld, expected an even number up to d = %lld",
                          check.op, (long long)rotary_d, (long long)args->d);
    }
    if (rotary_d != args->d) {
        tern_check_has(&check, TERN_LACKS_ROTARY_PART, "rotary positions of a part of the head");
    }
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    tern_check_stride(&check, "x_row", args->x_row, "heads * d", args->heads * args->d);
    const int64_t cells[2] = {args->n, args->heads * args->d}, table[2] = {places, rotary_d / 2};
    tern_check_rows(&check, "x", args->x, args->dtype, cells, args->x_row, TERN_OPERAND_WRITE);
    tern_check_matrix(&check, "cos", args->cos, tern_check_side_of(args->dtype), table,
                      TERN_OPERAND_READ);
    tern_check_matrix(&check, "sin", args->sin, tern_check_side_of(args->dtype), table,
                      TERN_OPERAND_READ);
    check_starts(&check, args->starts, args->n, args->t);
    check_positions(&check, args->positions, args->n, places);
    return tern_check_finish(&check);
}

static int64_t check_pairs(struct tern_check *check, int64_t n, int64_t top_k)
{
    int64_t pairs = 0;
    tern_check_size(check, "n", n, 0);
    tern_check_size(check, "top_k", top_k, 1);
    if (check->status == TERN_OK &&
        (__builtin_mul_overflow(n, top_k, &pairs) || pairs > INT32_MAX)) {
        TERN_CHECK_REFUSE(check, "%s: n * top_k is %lld * %lld, expected less than 2^31", check->op,
                          (long long)n, (long long)top_k);
    }
    return pairs;
}

tern_status tern_args_check_moe_route(struct tern_device *device,
                                      const struct tern_moe_route_args *args,
                                      bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_MOE_ROUTE, args);
    TERN_RETURN_IF_ERR(check.status);
    int64_t pairs = check_pairs(&check, args->n, args->top_k);
    tern_check_size(&check, "expert_count", args->expert_count, 1);
    tern_check_float(&check, "dtype", args->dtype);
    if (args->expert_count > TERN_EXPERTS_MAX || args->top_k > args->expert_count) {
        TERN_CHECK_REFUSE(&check, "%s: top_k is %lld of %lld experts, expected at most all of %d",
                          check.op, (long long)args->top_k, (long long)args->expert_count,
                          TERN_EXPERTS_MAX);
    }
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    const int64_t cells[2] = {args->n, args->expert_count};
    enum tern_dtype side = tern_check_side_of(args->dtype);
    tern_check_matrix(&check, "logits", args->logits, args->dtype, cells, TERN_OPERAND_READ);
    tern_check_vector(&check, "experts", args->experts, TERN_I32, pairs, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "weights", args->weights, side, pairs, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "pairs", args->pairs, TERN_I32, pairs, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "rows", args->rows, TERN_I32, pairs, TERN_OPERAND_WRITE);
    tern_check_vector(&check, "starts", args->starts, TERN_I32, args->expert_count + 1,
                      TERN_OPERAND_WRITE);
    return tern_check_finish(&check);
}

tern_status tern_args_check_moe_combine(struct tern_device *device,
                                        const struct tern_moe_combine_args *args,
                                        bool *is_empty_out)
{
    struct tern_check check = tern_check_begin(device, TERN_OP_MOE_COMBINE, args);
    TERN_RETURN_IF_ERR(check.status);
    int64_t pairs = check_pairs(&check, args->n, args->top_k);
    tern_check_size(&check, "c", args->c, 1);
    tern_check_float(&check, "dtype", args->dtype);
    if (tern_check_is_over(&check, args->n == 0, is_empty_out)) {
        return check.status;
    }
    const int64_t given[2] = {pairs, args->c}, cells[2] = {args->n, args->c};
    enum tern_dtype side = tern_check_side_of(args->dtype);
    tern_check_matrix(&check, "x", args->x, args->dtype, given, TERN_OPERAND_READ);
    tern_check_vector(&check, "weights", args->weights, side, pairs, TERN_OPERAND_READ);
    tern_check_vector(&check, "pairs", args->pairs, TERN_I32, pairs, TERN_OPERAND_READ);
    tern_check_matrix(&check, "out", args->out, args->dtype, cells, TERN_OPERAND_WRITE);
    check_ids(&check, "pairs", args->pairs, pairs, pairs);
    return tern_check_finish(&check);
}
