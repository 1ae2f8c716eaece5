/* args.c - the arguments of every op are checked here, once for all backends. */
#include "kernels/args.h"

#include <math.h>
#include <string.h>

enum {
    OPERANDS_MAX = 12,
    PAIRS_MAX = 4
};

/* Sizes beyond this are a bug, and products of two stay inside 64 bits. */
static const int64_t SIZE_MAX_ELEMENTS = (int64_t)1 << 40;

enum operand_flags {
    READ = 0,
    WRITE = 1,
    OPTIONAL = 2
};

/* rows rows of width elements, stride elements apart, that batches times, batch elements apart. */
struct operand {
    const char *name;
    struct tern_dptr p;
    int64_t width_bytes, stride_bytes, batch_bytes;
    int64_t span_bytes; /* from the first byte to one past the last */
    bool is_written;
};

/* Everything that was found out about one call; the first failure stays. */
struct check {
    const char *op;
    struct tern_device *device;
    tern_status status;
    struct operand operands[OPERANDS_MAX];
    int operand_count;
    const char *may_be[PAIRS_MAX][2]; /* names of operands that may have the same address */
    int pair_count;
};

static struct check begin(struct tern_device *device, enum tern_op op, const void *args)
{
    struct check check = {.op = tern_op_name(op), .device = device};
    if (device == NULL || args == NULL) {
        check.status = tern_fail(TERN_ERR_ARGUMENT, "%s: %s is NULL", check.op,
                                 device == NULL ? "the device" : "the argument struct");
    }
    return check;
}

/* Keeps the first failure and its sentence. */
#define REFUSE(check, ...) \
    do { \
        if ((check)->status == TERN_OK) { \
            (check)->status = tern_fail(TERN_ERR_ARGUMENT, __VA_ARGS__); \
        } \
    } while (0)

static void check_size(struct check *check, const char *name, int64_t value, int64_t min)
{
    if (value < min || value > SIZE_MAX_ELEMENTS) {
        REFUSE(check, "%s: %s is %lld, expected %lld to %lld", check->op, name, (long long)value,
               (long long)min, (long long)SIZE_MAX_ELEMENTS);
    }
}

static void check_stride(struct check *check,
                         const char *name,
                         int64_t stride,
                         const char *width_name,
                         int64_t width)
{
    if (stride < width || stride > SIZE_MAX_ELEMENTS) {
        REFUSE(check, "%s: %s is %lld, expected at least %s = %lld", check->op, name,
               (long long)stride, width_name, (long long)width);
    }
}

/* A position table is read at first_position + row % t; rows come in whole sequences. */
static void check_sequences(struct check *check, int64_t n, int64_t t, int64_t first_position)
{
    check_size(check, "n", n, 0);
    check_size(check, "t", t, 1);
    check_size(check, "first_position", first_position, 0);
    if (check->status == TERN_OK && n % t != 0) {
        REFUSE(check, "%s: n is %lld, expected whole sequences of t = %lld", check->op,
               (long long)n, (long long)t);
    }
}

static bool is_float(const struct check *check, enum tern_dtype dtype)
{
    return dtype == TERN_F32 || dtype == TERN_BF16 ||
           (dtype == TERN_F64 && check->device->ops->has_f64);
}

static void check_float(struct check *check, const char *name, enum tern_dtype dtype)
{
    if (check->status == TERN_OK && !is_float(check, dtype)) {
        bool is_known = (int)dtype >= 0 && dtype < TERN_DTYPE_COUNT;
        REFUSE(check, "%s: %s is %s, which backend %s does not take; expected f32 or bf16%s",
               check->op, name, is_known ? tern_dtype_name(dtype) : "no dtype at all",
               check->device->ops->device->name,
               check->device->ops->has_f64 ? " (or f64 for everything)" : "");
    }
}

static void check_finite(struct check *check, const char *name, float value)
{
    if (!isfinite(value)) {
        REFUSE(check, "%s: %s is %g, expected a finite number", check->op, name, (double)value);
    }
}

/* Side data of activations of this dtype. */
static enum tern_dtype side_of(enum tern_dtype dtype)
{
    return dtype == TERN_F64 ? TERN_F64 : TERN_F32;
}

static void add_batched(struct check *check,
                        const char *name,
                        struct tern_dptr p,
                        enum tern_dtype dtype,
                        const int64_t shape[3],  /* batches, rows, width */
                        const int64_t stride[2], /* batch, row */
                        unsigned flags)
{
    if (check->status != TERN_OK || (tern_dptr_is_null(p) && (flags & OPTIONAL) != 0)) {
        return;
    }
    int64_t bytes = (int64_t)tern_dtype_bytes(dtype);
    if (tern_dptr_is_null(p)) {
        REFUSE(check, "%s: %s is null", check->op, name);
        return;
    }
    if (p.addr % (uint64_t)bytes != 0) {
        REFUSE(check, "%s: %s is at address 0x%llx, expected a multiple of %lld (%s)", check->op,
               name, (unsigned long long)p.addr, (long long)bytes, tern_dtype_name(dtype));
        return;
    }
    int64_t last_batch, last_row, span;
    if (__builtin_mul_overflow(shape[0] - 1, stride[0], &last_batch) ||
        __builtin_mul_overflow(shape[1] - 1, stride[1], &last_row) ||
        __builtin_add_overflow(last_batch, last_row, &span) ||
        __builtin_add_overflow(span, shape[2], &span) ||
        __builtin_mul_overflow(span, bytes, &span) || p.addr + (uint64_t)span < p.addr) {
        REFUSE(check, "%s: %s of %lld x %lld x %lld elements is too large for 64-bit addresses",
               check->op, name, (long long)shape[0], (long long)shape[1], (long long)shape[2]);
        return;
    }
    check->operands[check->operand_count++] = (struct operand){
        .name = name,
        .p = p,
        .width_bytes = shape[2] * bytes,
        .stride_bytes = stride[1] * bytes,
        .batch_bytes = shape[0] > 1 ? stride[0] * bytes : 0,
        .span_bytes = span,
        .is_written = (flags & WRITE) != 0,
    };
}

static void add_rows(struct check *check,
                     const char *name,
                     struct tern_dptr p,
                     enum tern_dtype dtype,
                     const int64_t shape[2], /* rows, width */
                     int64_t stride,
                     unsigned flags)
{
    const int64_t shape3[3] = {1, shape[0], shape[1]}, stride2[2] = {0, stride};
    add_batched(check, name, p, dtype, shape3, stride2, flags);
}

static void add_vector(struct check *check,
                       const char *name,
                       struct tern_dptr p,
                       enum tern_dtype dtype,
                       int64_t count,
                       unsigned flags)
{
    const int64_t shape[2] = {1, count};
    add_rows(check, name, p, dtype, shape, count, flags);
}

/* Dense (rows, width). */
static void add_matrix(struct check *check,
                       const char *name,
                       struct tern_dptr p,
                       enum tern_dtype dtype,
                       const int64_t shape[2],
                       unsigned flags)
{
    add_rows(check, name, p, dtype, shape, shape[1], flags);
}

static void may_be(struct check *check, const char *name, const char *other)
{
    check->may_be[check->pair_count][0] = name;
    check->may_be[check->pair_count][1] = other;
    check->pair_count++;
}

static bool overlaps(const struct operand *a, const struct operand *b)
{
    if (a->p.addr > b->p.addr) {
        const struct operand *first = b;
        b = a;
        a = first;
    }
    int64_t apart = (int64_t)(b->p.addr - a->p.addr);
    if (apart >= a->span_bytes) {
        return false;
    }
    /* Columns side by side in the rows of one buffer, such as q, k and v. */
    int64_t row = a->stride_bytes;
    bool same_rows =
        row == b->stride_bytes && row > 0 && a->batch_bytes % row == 0 && b->batch_bytes % row == 0;
    int64_t column = same_rows ? apart % row : 0;
    return !(same_rows && column >= a->width_bytes && column + b->width_bytes <= row);
}

static bool may_share(const struct check *check, const struct operand *a, const struct operand *b)
{
    if (a->p.addr != b->p.addr) {
        return false;
    }
    for (int i = 0; i < check->pair_count; i++) {
        const char *const *pair = check->may_be[i];
        if ((strcmp(pair[0], a->name) == 0 && strcmp(pair[1], b->name) == 0) ||
            (strcmp(pair[0], b->name) == 0 && strcmp(pair[1], a->name) == 0)) {
            return true;
        }
    }
    return false;
}

static tern_status finish(struct check *check)
{
    for (int i = 0; i < check->operand_count; i++) {
        for (int j = 0; j < i; j++) {
            const struct operand *a = &check->operands[i], *b = &check->operands[j];
            if ((a->is_written || b->is_written) && overlaps(a, b) && !may_share(check, a, b)) {
                REFUSE(check, "%s: %s (0x%llx, %lld bytes) overlaps %s (0x%llx, %lld bytes)",
                       check->op, a->name, (unsigned long long)a->p.addr, (long long)a->span_bytes,
                       b->name, (unsigned long long)b->p.addr, (long long)b->span_bytes);
            }
        }
    }
    return check->status;
}

/* Token ids steer writes and reads: where the host can see them, they are looked at. */
static void check_ids(struct check *check, struct tern_dptr ids, int64_t n, int64_t v)
{
    if (check->status != TERN_OK) {
        return;
    }
    const int32_t *view = check->device->ops->device->host_view(check->device, ids);
    for (int64_t i = 0; view != NULL && i < n; i++) {
        if (view[i] < 0 || view[i] >= v) {
            REFUSE(check, "%s: ids[%lld] is %d, expected 0 to %lld", check->op, (long long)i,
                   view[i], (long long)(v - 1));
            return;
        }
    }
}

tern_status tern_args_check_embed_fwd(struct tern_device *device,
                                      const struct tern_embed_fwd_args *args,
                                      bool *is_empty_out)
{
    struct check check = begin(device, TERN_OP_EMBED_FWD, args);
    TERN_RETURN_IF_ERR(check.status);
    check_sequences(&check, args->n, args->t, args->first_position);
    check_size(&check, "c", args->c, 1);
    check_size(&check, "v", args->v, 1);
    check_float(&check, "dtype", args->dtype);
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t cells[2] = {args->n, args->c}, table[2] = {args->v, args->c},
                  positions[2] = {args->first_position + args->t, args->c};
    add_vector(&check, "ids", args->ids, TERN_I32, args->n, READ);
    add_matrix(&check, "wte", args->wte, args->dtype, table, READ);
    add_matrix(&check, "wpe", args->wpe, args->dtype, positions, READ | OPTIONAL);
    add_matrix(&check, "out", args->out, args->dtype, cells, WRITE);
    check_ids(&check, args->ids, args->n, args->v);
    return finish(&check);
}

tern_status tern_args_check_embed_bwd(struct tern_device *device,
                                      const struct tern_embed_bwd_args *args,
                                      bool *is_empty_out)
{
    struct check check = begin(device, TERN_OP_EMBED_BWD, args);
    TERN_RETURN_IF_ERR(check.status);
    check_sequences(&check, args->n, args->t, 0);
    check_size(&check, "c", args->c, 1);
    check_size(&check, "v", args->v, 1);
    check_float(&check, "dtype", args->dtype);
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t cells[2] = {args->n, args->c}, table[2] = {args->v, args->c},
                  positions[2] = {args->t, args->c};
    add_vector(&check, "ids", args->ids, TERN_I32, args->n, READ);
    add_matrix(&check, "dout", args->dout, args->dtype, cells, READ);
    add_matrix(&check, "dwte", args->dwte, side_of(args->dtype), table, WRITE);
    add_matrix(&check, "dwpe", args->dwpe, side_of(args->dtype), positions, WRITE | OPTIONAL);
    check_ids(&check, args->ids, args->n, args->v);
    return finish(&check);
}

static void check_norm_kind(struct check *check, enum tern_norm_kind kind)
{
    if (kind != TERN_NORM_LAYER && kind != TERN_NORM_RMS) {
        REFUSE(check, "%s: kind is %d, expected TERN_NORM_LAYER or TERN_NORM_RMS", check->op,
               (int)kind);
    }
}

static void check_absent(struct check *check, const char *name, struct tern_dptr p, const char *why)
{
    if (!tern_dptr_is_null(p)) {
        REFUSE(check, "%s: %s is not null, but %s", check->op, name, why);
    }
}

tern_status tern_args_check_norm_fwd(struct tern_device *device,
                                     const struct tern_norm_fwd_args *args,
                                     bool *is_empty_out)
{
    struct check check = begin(device, TERN_OP_NORM_FWD, args);
    TERN_RETURN_IF_ERR(check.status);
    bool is_layer = args->kind == TERN_NORM_LAYER,
         has_residual = !tern_dptr_is_null(args->residual);
    check_norm_kind(&check, args->kind);
    check_size(&check, "n", args->n, 0);
    check_size(&check, "c", args->c, 1);
    check_float(&check, "dtype", args->dtype);
    if (!(args->eps >= 0) || !isfinite(args->eps)) {
        REFUSE(&check, "%s: eps is %g, expected 0 or more", check.op, (double)args->eps);
    }
    if (!is_layer) {
        check_absent(&check, "mean", args->mean, "rms has no mean");
    } else if (tern_dptr_is_null(args->mean) != tern_dptr_is_null(args->rstd)) {
        REFUSE(&check, "%s: one of mean and rstd is null, expected both or none", check.op);
    }
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t cells[2] = {args->n, args->c};
    enum tern_dtype side = side_of(args->dtype);
    add_matrix(&check, "x", args->x, args->dtype, cells, READ);
    add_matrix(&check, "residual", args->residual, args->dtype, cells, READ | OPTIONAL);
    if (has_residual) {
        add_matrix(&check, "sum", args->sum, args->dtype, cells, WRITE);
    }
    add_vector(&check, "gamma", args->gamma, args->dtype, args->c, READ);
    add_vector(&check, "beta", args->beta, args->dtype, args->c, READ | OPTIONAL);
    add_matrix(&check, "out", args->out, args->dtype, cells, WRITE);
    add_vector(&check, "mean", args->mean, side, args->n, WRITE | OPTIONAL);
    add_vector(&check, "rstd", args->rstd, side, args->n, WRITE | OPTIONAL);
    may_be(&check, "sum", "x");
    return finish(&check);
}

tern_status tern_args_check_norm_bwd(struct tern_device *device,
                                     const struct tern_norm_bwd_args *args,
                                     bool *is_empty_out)
{
    struct check check = begin(device, TERN_OP_NORM_BWD, args);
    TERN_RETURN_IF_ERR(check.status);
    check_norm_kind(&check, args->kind);
    check_size(&check, "n", args->n, 0);
    check_size(&check, "c", args->c, 1);
    check_float(&check, "dtype", args->dtype);
    if (args->kind == TERN_NORM_RMS) {
        check_absent(&check, "dbeta", args->dbeta, "rms has no beta");
    }
    *is_empty_out = args->n == 0 && args->accumulate;
    if (args->n == 0 && !args->accumulate) {
        REFUSE(&check, "%s: n is 0, expected rows to overwrite dgamma from", check.op);
    }
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t cells[2] = {args->n, args->c};
    enum tern_dtype side = side_of(args->dtype);
    add_matrix(&check, "dy", args->dy, args->dtype, cells, READ);
    add_matrix(&check, "x", args->x, args->dtype, cells, READ);
    add_vector(&check, "gamma", args->gamma, args->dtype, args->c, READ);
    if (args->kind == TERN_NORM_LAYER) {
        add_vector(&check, "mean", args->mean, side, args->n, READ);
    }
    add_vector(&check, "rstd", args->rstd, side, args->n, READ);
    add_matrix(&check, "dresidual", args->dresidual, args->dtype, cells, READ | OPTIONAL);
    add_matrix(&check, "dx", args->dx, args->dtype, cells, WRITE);
    add_vector(&check, "dgamma", args->dgamma, side, args->c, WRITE);
    add_vector(&check, "dbeta", args->dbeta, side, args->c, WRITE | OPTIONAL);
    may_be(&check, "dresidual", "dx");
    return finish(&check);
}

static void check_gemm_kinds(struct check *check, const struct tern_gemm_args *args)
{
    bool has_bias = args->epilogue != TERN_EPILOGUE_NONE;
    check_float(check, "a_dtype", args->a_dtype);
    check_float(check, "b_dtype", args->b_dtype);
    check_float(check, "d_dtype", args->d_dtype);
    check_float(check, "compute", args->compute);
    if (has_bias) {
        check_float(check, "bias_dtype", args->bias_dtype);
    }
    int wide = (args->a_dtype == TERN_F64) + (args->b_dtype == TERN_F64) +
               (args->d_dtype == TERN_F64) + (args->compute == TERN_F64) +
               (!has_bias || args->bias_dtype == TERN_F64);
    if (wide != 5 && wide != (has_bias ? 0 : 1)) {
        REFUSE(check, "%s: some dtypes are f64 and some are not, expected all or none", check->op);
    }
    if ((int)args->epilogue < TERN_EPILOGUE_NONE || args->epilogue > TERN_EPILOGUE_BIAS_GELU) {
        REFUSE(check, "%s: epilogue is %d, expected one of enum tern_epilogue", check->op,
               (int)args->epilogue);
    }
    if (args->accumulate && args->d_dtype == TERN_BF16) {
        REFUSE(check, "%s: accumulate into bf16, expected d_dtype f32", check->op);
    }
    if (args->accumulate && has_bias) {
        REFUSE(check, "%s: accumulate with epilogue %d, expected TERN_EPILOGUE_NONE", check->op,
               (int)args->epilogue);
    }
}

tern_status tern_args_check_gemm(struct tern_device *device,
                                 const struct tern_gemm_args *args,
                                 bool *is_empty_out)
{
    struct check check = begin(device, TERN_OP_GEMM, args);
    TERN_RETURN_IF_ERR(check.status);
    check_size(&check, "m", args->m, 0);
    check_size(&check, "n", args->n, 0);
    check_size(&check, "k", args->k, 1);
    check_stride(&check, "lda", args->lda, args->trans_a ? "m" : "k",
                 args->trans_a ? args->m : args->k);
    check_stride(&check, "ldb", args->ldb, args->trans_b ? "k" : "n",
                 args->trans_b ? args->k : args->n);
    check_stride(&check, "ldd", args->ldd, "n", args->n);
    check_gemm_kinds(&check, args);
    *is_empty_out = args->m == 0 || args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t a[2] = {args->trans_a ? args->k : args->m, args->trans_a ? args->m : args->k},
                  b[2] = {args->trans_b ? args->n : args->k, args->trans_b ? args->k : args->n},
                  d[2] = {args->m, args->n};
    add_rows(&check, "a", args->a, args->a_dtype, a, args->lda, READ);
    add_rows(&check, "b", args->b, args->b_dtype, b, args->ldb, READ);
    add_rows(&check, "d", args->d, args->d_dtype, d, args->ldd, WRITE);
    if (args->epilogue != TERN_EPILOGUE_NONE) {
        add_vector(&check, "bias", args->bias, args->bias_dtype, args->n, READ);
    }
    if (args->epilogue == TERN_EPILOGUE_BIAS_GELU) {
        add_rows(&check, "aux", args->aux, args->d_dtype, d, args->ldd, WRITE);
    }
    return finish(&check);
}

tern_status tern_args_check_bias_bwd(struct tern_device *device,
                                     const struct tern_bias_bwd_args *args,
                                     bool *is_empty_out)
{
    struct check check = begin(device, TERN_OP_BIAS_BWD, args);
    TERN_RETURN_IF_ERR(check.status);
    check_size(&check, "rows", args->rows, args->accumulate ? 0 : 1);
    check_size(&check, "n", args->n, 1);
    check_stride(&check, "ldy", args->ldy, "n", args->n);
    check_float(&check, "dtype", args->dtype);
    *is_empty_out = args->rows == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t cells[2] = {args->rows, args->n};
    add_rows(&check, "dy", args->dy, args->dtype, cells, args->ldy, READ);
    add_vector(&check, "dbias", args->dbias, side_of(args->dtype), args->n, WRITE);
    return finish(&check);
}

static void check_attention_sizes(struct check *check, const struct tern_attention_args *args)
{
    check_size(check, "b", args->b, 0);
    check_size(check, "tq", args->tq, 1);
    check_size(check, "tkv", args->tkv, 1);
    check_size(check, "h", args->h, 1);
    check_size(check, "kv_heads", args->kv_heads, 1);
    check_size(check, "d", args->d, 1);
    check_size(check, "window", args->window, 0);
    check_float(check, "dtype", args->dtype);
    check_finite(check, "scale", args->scale);
    if (check->status != TERN_OK) {
        return;
    }
    if (args->d > TERN_HEAD_WIDTH_MAX) {
        REFUSE(check, "%s: d is %lld, expected at most %d", check->op, (long long)args->d,
               TERN_HEAD_WIDTH_MAX);
    }
    if (args->tq > args->tkv) {
        REFUSE(check, "%s: tq is %lld, expected at most tkv = %lld", check->op, (long long)args->tq,
               (long long)args->tkv);
    }
    if (args->h % args->kv_heads != 0) {
        REFUSE(check, "%s: h is %lld, expected a multiple of kv_heads = %lld", check->op,
               (long long)args->h, (long long)args->kv_heads);
    }
    check_stride(check, "q_row", args->q_row, "h * d", args->h * args->d);
    check_stride(check, "kv_row", args->kv_row, "kv_heads * d", args->kv_heads * args->d);
    check_stride(check, "out_row", args->out_row, "h * d", args->h * args->d);
    if (args->b > 1) {
        check_stride(check, "q_batch", args->q_batch, "a sequence",
                     (args->tq - 1) * args->q_row + args->h * args->d);
        check_stride(check, "kv_batch", args->kv_batch, "a sequence",
                     (args->tkv - 1) * args->kv_row + args->kv_heads * args->d);
        check_stride(check, "out_batch", args->out_batch, "a sequence",
                     (args->tq - 1) * args->out_row + args->h * args->d);
    }
}

tern_status tern_args_check_attention(struct tern_device *device,
                                      const struct tern_attention_args *args,
                                      bool is_backward,
                                      bool *is_empty_out)
{
    struct check check =
        begin(device, is_backward ? TERN_OP_ATTENTION_BWD : TERN_OP_ATTENTION_FWD, args);
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
    if (__builtin_mul_overflow(args->b * args->h, args->tq, &lse_count)) {
        REFUSE(&check, "%s: b * h * tq overflows", check.op);
    }
    unsigned fwd_writes = is_backward ? READ : WRITE;
    enum tern_dtype dtype = args->dtype;
    add_batched(&check, "q", args->q, dtype, q, q_stride, READ);
    add_batched(&check, "k", args->k, dtype, kv, kv_stride, READ);
    add_batched(&check, "v", args->v, dtype, kv, kv_stride, READ);
    add_batched(&check, "out", args->out, dtype, q, out_stride, fwd_writes);
    add_vector(&check, "lse", args->lse, side_of(dtype), lse_count,
               fwd_writes | (is_backward ? 0 : OPTIONAL));
    if (is_backward) {
        add_batched(&check, "dout", args->dout, dtype, q, out_stride, READ);
        add_batched(&check, "dq", args->dq, dtype, q, q_stride, WRITE);
        add_batched(&check, "dk", args->dk, dtype, kv, kv_stride, WRITE);
        add_batched(&check, "dv", args->dv, dtype, kv, kv_stride, WRITE);
    }
    return finish(&check);
}

tern_status tern_args_check_rope(struct tern_device *device,
                                 const struct tern_rope_args *args,
                                 bool *is_empty_out)
{
    struct check check = begin(device, TERN_OP_ROPE, args);
    TERN_RETURN_IF_ERR(check.status);
    check_sequences(&check, args->n, args->t, args->first_position);
    check_size(&check, "heads", args->heads, 1);
    check_size(&check, "d", args->d, 2);
    check_float(&check, "dtype", args->dtype);
    if (args->d % 2 != 0) {
        REFUSE(&check, "%s: d is %lld, expected an even number", check.op, (long long)args->d);
    }
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    check_stride(&check, "x_row", args->x_row, "heads * d", args->heads * args->d);
    const int64_t cells[2] = {args->n, args->heads * args->d},
                  table[2] = {args->first_position + args->t, args->d / 2};
    add_rows(&check, "x", args->x, args->dtype, cells, args->x_row, WRITE);
    add_matrix(&check, "cos", args->cos, side_of(args->dtype), table, READ);
    add_matrix(&check, "sin", args->sin, side_of(args->dtype), table, READ);
    return finish(&check);
}

static void check_act_kind(struct check *check, enum tern_act act)
{
    if (act != TERN_ACT_GELU_TANH && act != TERN_ACT_SILU) {
        REFUSE(check, "%s: act is %d, expected TERN_ACT_GELU_TANH or TERN_ACT_SILU", check->op,
               (int)act);
    }
}

tern_status tern_args_check_act(struct tern_device *device,
                                const struct tern_act_args *args,
                                bool is_backward,
                                bool *is_empty_out)
{
    struct check check = begin(device, is_backward ? TERN_OP_ACT_BWD : TERN_OP_ACT_FWD, args);
    TERN_RETURN_IF_ERR(check.status);
    check_size(&check, "n", args->n, 0);
    check_act_kind(&check, args->act);
    check_float(&check, "dtype", args->dtype);
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    add_vector(&check, "x", args->x, args->dtype, args->n, READ);
    if (is_backward) {
        add_vector(&check, "dy", args->dy, args->dtype, args->n, READ);
        add_vector(&check, "dx", args->dx, args->dtype, args->n, WRITE);
        may_be(&check, "dx", "dy");
    } else {
        add_vector(&check, "y", args->y, args->dtype, args->n, WRITE);
    }
    return finish(&check);
}

tern_status tern_args_check_glu(struct tern_device *device,
                                const struct tern_glu_args *args,
                                bool is_backward,
                                bool *is_empty_out)
{
    struct check check = begin(device, is_backward ? TERN_OP_GLU_BWD : TERN_OP_GLU_FWD, args);
    TERN_RETURN_IF_ERR(check.status);
    check_size(&check, "n", args->n, 0);
    check_size(&check, "f", args->f, 1);
    check_act_kind(&check, args->act);
    check_float(&check, "dtype", args->dtype);
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t pair[2] = {args->n, 2 * args->f}, cells[2] = {args->n, args->f};
    add_matrix(&check, "gate_up", args->gate_up, args->dtype, pair, READ);
    if (is_backward) {
        add_matrix(&check, "dout", args->dout, args->dtype, cells, READ);
        add_matrix(&check, "dgate_up", args->dgate_up, args->dtype, pair, WRITE);
    } else {
        add_matrix(&check, "out", args->out, args->dtype, cells, WRITE);
    }
    return finish(&check);
}

tern_status tern_args_check_add(struct tern_device *device,
                                const struct tern_add_args *args,
                                bool *is_empty_out)
{
    struct check check = begin(device, TERN_OP_ADD, args);
    TERN_RETURN_IF_ERR(check.status);
    check_size(&check, "n", args->n, 0);
    check_float(&check, "dtype", args->dtype);
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    add_vector(&check, "a", args->a, args->dtype, args->n, READ);
    add_vector(&check, "b", args->b, args->dtype, args->n, READ);
    add_vector(&check, "y", args->y, args->dtype, args->n, WRITE);
    may_be(&check, "y", "a");
    may_be(&check, "y", "b");
    return finish(&check);
}

tern_status tern_args_check_cross_entropy(struct tern_device *device,
                                          const struct tern_cross_entropy_args *args,
                                          bool *is_empty_out)
{
    struct check check = begin(device, TERN_OP_CROSS_ENTROPY, args);
    TERN_RETURN_IF_ERR(check.status);
    check_size(&check, "rows", args->rows, 0);
    check_size(&check, "v", args->v, 1);
    check_stride(&check, "ld", args->ld, "v", args->v);
    check_float(&check, "dtype", args->dtype);
    if (args->dtype == TERN_BF16) {
        REFUSE(&check, "%s: dtype is bf16, expected f32 logits", check.op);
    }
    *is_empty_out = args->rows == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    const int64_t cells[2] = {args->rows, args->v};
    add_rows(&check, "logits", args->logits, args->dtype, cells, args->ld,
             args->backward ? WRITE : READ);
    add_vector(&check, "targets", args->targets, TERN_I32, args->rows, READ);
    add_vector(&check, "nll", args->nll, args->dtype, args->rows, WRITE);
    return finish(&check);
}

static void check_adamw_numbers(struct check *check, const struct tern_adamw_args *args)
{
    check_finite(check, "lr", args->lr);
    check_finite(check, "weight_decay", args->weight_decay);
    check_finite(check, "grad_scale", args->grad_scale);
    if (!(args->beta1 >= 0 && args->beta1 < 1 && args->beta2 >= 0 && args->beta2 < 1)) {
        REFUSE(check, "%s: betas are %g and %g, expected 0 <= beta < 1", check->op,
               (double)args->beta1, (double)args->beta2);
    }
    if (!(args->bias1 > 0 && args->bias1 <= 1 && args->bias2 > 0 && args->bias2 <= 1)) {
        REFUSE(check, "%s: bias corrections are %g and %g, expected 1 - beta^step in (0, 1]",
               check->op, (double)args->bias1, (double)args->bias2);
    }
    if (!(args->eps >= 0) || !isfinite(args->eps)) {
        REFUSE(check, "%s: eps is %g, expected 0 or more", check->op, (double)args->eps);
    }
}

tern_status tern_args_check_adamw(struct tern_device *device,
                                  const struct tern_adamw_args *args,
                                  bool *is_empty_out)
{
    struct check check = begin(device, TERN_OP_ADAMW, args);
    TERN_RETURN_IF_ERR(check.status);
    check_size(&check, "n", args->n, 0);
    check_adamw_numbers(&check, args);
    if (!tern_dptr_is_null(args->copy) && args->copy_dtype != TERN_F32 &&
        args->copy_dtype != TERN_BF16) {
        REFUSE(&check, "%s: copy_dtype is number %d, expected f32 or bf16", check.op,
               (int)args->copy_dtype);
    }
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    add_vector(&check, "weight", args->weight, TERN_F32, args->n, WRITE);
    add_vector(&check, "grad", args->grad, TERN_F32, args->n, READ);
    add_vector(&check, "exp_avg", args->exp_avg, TERN_F32, args->n, WRITE);
    add_vector(&check, "exp_avg_sq", args->exp_avg_sq, TERN_F32, args->n, WRITE);
    add_vector(&check, "copy", args->copy, args->copy_dtype, args->n, WRITE | OPTIONAL);
    return finish(&check);
}

tern_status tern_args_check_sumsq(struct tern_device *device,
                                  const struct tern_sumsq_args *args,
                                  bool *is_empty_out)
{
    struct check check = begin(device, TERN_OP_SUMSQ, args);
    TERN_RETURN_IF_ERR(check.status);
    check_size(&check, "blocks", args->blocks, 0);
    *is_empty_out = args->blocks == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    add_vector(&check, "starts", args->starts, TERN_I64, args->blocks + 1, READ);
    add_vector(&check, "sums", args->sums, TERN_F64, args->blocks, WRITE);
    const int64_t *starts =
        check.status != TERN_OK ? NULL : device->ops->device->host_view(device, args->starts);
    for (int64_t i = 0; starts != NULL && i < args->blocks; i++) {
        if (starts[i] < 0 || starts[i] > starts[i + 1]) {
            REFUSE(&check, "%s: starts[%lld] is %lld and the next is %lld, expected them to ascend",
                   check.op, (long long)i, (long long)starts[i], (long long)starts[i + 1]);
            break;
        }
    }
    /* How long x is, only the starts say: where the host cannot see them, its first element
     * stands for it. */
    int64_t count = starts != NULL && check.status == TERN_OK ? starts[args->blocks] : 1;
    add_vector(&check, "x", args->x, TERN_F32, count > 0 ? count : 1, READ);
    return finish(&check);
}

tern_status tern_args_check_cast(struct tern_device *device,
                                 const struct tern_cast_args *args,
                                 bool *is_empty_out)
{
    struct check check = begin(device, TERN_OP_CAST, args);
    TERN_RETURN_IF_ERR(check.status);
    check_size(&check, "n", args->n, 0);
    check_float(&check, "src_dtype", args->src_dtype);
    check_float(&check, "dst_dtype", args->dst_dtype);
    *is_empty_out = args->n == 0;
    if (check.status != TERN_OK || *is_empty_out) {
        return check.status;
    }
    add_vector(&check, "src", args->src, args->src_dtype, args->n, READ);
    add_vector(&check, "dst", args->dst, args->dst_dtype, args->n, WRITE);
    return finish(&check);
}

tern_status tern_args_check_limits(const struct tern_op_limits *limits)
{
    struct check check = {.op = "prepare"};
    if (limits == NULL) {
        return tern_fail(TERN_ERR_ARGUMENT, "prepare: the limits are NULL");
    }
    check_size(&check, "rows", limits->rows, 1);
    check_size(&check, "sequence", limits->sequence, 0);
    check_size(&check, "width", limits->width, 1);
    check_size(&check, "heads", limits->heads, 0);
    check_size(&check, "kv_heads", limits->kv_heads, 0);
    check_size(&check, "head_width", limits->head_width, 0);
    check_size(&check, "batch", limits->batch, 0);
    check_size(&check, "vocab", limits->vocab, 0);
    if (check.status == TERN_OK && limits->head_width > TERN_HEAD_WIDTH_MAX) {
        REFUSE(&check, "prepare: head_width is %lld, expected at most %d",
               (long long)limits->head_width, TERN_HEAD_WIDTH_MAX);
    }
    return check.status;
}
