/* check.c - operands described one by one: null, alignment, size, overlap. */
#include "kernels/check.h"

#include <math.h>
#include <string.h>

/* Sizes beyond this are a bug, and products of two stay inside 64 bits. */
static const int64_t SIZE_MAX_ELEMENTS = (int64_t)1 << 40;

struct tern_check tern_check_begin(struct tern_device *device, enum tern_op op, const void *args)
{
    struct tern_check check = {.op = tern_op_name(op), .device = device};
    if (device == NULL || args == NULL) {
        check.status = tern_fail(TERN_ERR_ARGUMENT, "%s: %s is NULL", check.op,
                                 device == NULL ? "the device" : "the argument struct");
    }
    return check;
}

bool tern_check_is_over(const struct tern_check *check, bool is_empty, bool *is_empty_out)
{
    *is_empty_out = is_empty;
    return check->status != TERN_OK || is_empty;
}

void tern_check_size(struct tern_check *check, const char *name, int64_t value, int64_t min)
{
    if (value < min || value > SIZE_MAX_ELEMENTS) {
        TERN_CHECK_REFUSE(check, "%s: %s is %lld, expected %lld to %lld", check->op, name,
                          (long long)value, (long long)min, (long long)SIZE_MAX_ELEMENTS);
    }
}

void tern_check_stride(struct tern_check *check,
                       const char *name,
                       int64_t stride,
                       const char *width_name,
                       int64_t width)
{
    if (stride < width || stride > SIZE_MAX_ELEMENTS) {
        TERN_CHECK_REFUSE(check, "%s: %s is %lld, expected at least %s = %lld", check->op, name,
                          (long long)stride, width_name, (long long)width);
    }
}

static bool is_float(const struct tern_check *check, enum tern_dtype dtype)
{
    return dtype == TERN_F32 || dtype == TERN_BF16 ||
           (dtype == TERN_F64 && check->device->ops->has_f64);
}

void tern_check_float(struct tern_check *check, const char *name, enum tern_dtype dtype)
{
    if (check->status == TERN_OK && !is_float(check, dtype)) {
        bool is_known = (int)dtype >= 0 && dtype < TERN_DTYPE_COUNT;
        TERN_CHECK_REFUSE(check,
                          "%s: %s is %s, which backend %s does not take; expected f32 or bf16%s",
                          check->op, name, is_known ? tern_dtype_name(dtype) : "no dtype at all",
                          check->device->ops->device->name,
                          check->device->ops->has_f64 ? " (or f64 for everything)" : "");
    }
}

void tern_check_finite(struct tern_check *check, const char *name, float value)
{
    if (!isfinite(value)) {
        TERN_CHECK_REFUSE(check, "%s: %s is %g, expected a finite number", check->op, name,
                          (double)value);
    }
}

void tern_check_softcap(struct tern_check *check, const char *name, float cap, bool is_needed)
{
    tern_check_finite(check, name, cap);
    if (!(cap > 0 || (cap == 0 && !is_needed))) {
        TERN_CHECK_REFUSE(check, "%s: %s is %g, expected %s", check->op, name, (double)cap,
                          is_needed ? "more than 0" : "0 or more");
    }
}

void tern_check_has(struct tern_check *check, enum tern_op_lack need, const char *what)
{
    if (check->status == TERN_OK && (check->device->ops->lacks & (unsigned)need) != 0) {
        check->status = tern_fail(TERN_ERR_UNSUPPORTED, "%s: backend %s lacks %s", check->op,
                                  check->device->ops->device->name, what);
    }
}

void tern_check_batched(struct tern_check *check,
                        const char *name,
                        struct tern_dptr p,
                        enum tern_dtype dtype,
                        const int64_t shape[3],  /* batches, rows, width */
                        const int64_t stride[2], /* batch, row */
                        unsigned flags)
{
    if (check->status != TERN_OK ||
        (tern_dptr_is_null(p) && (flags & TERN_OPERAND_OPTIONAL) != 0)) {
        return;
    }
    int64_t bytes = (int64_t)tern_dtype_bytes(dtype);
    if (tern_dptr_is_null(p)) {
        TERN_CHECK_REFUSE(check, "%s: %s is null", check->op, name);
        return;
    }
    if (p.addr % (uint64_t)bytes != 0) {
        TERN_CHECK_REFUSE(check, "%s: %s is at address 0x%llx, expected a multiple of %lld (%s)",
                          check->op, name, (unsigned long long)p.addr, (long long)bytes,
                          tern_dtype_name(dtype));
        return;
    }
    int64_t last_batch, last_row, span;
    if (__builtin_mul_overflow(shape[0] - 1, stride[0], &last_batch) ||
        __builtin_mul_overflow(shape[1] - 1, stride[1], &last_row) ||
        __builtin_add_overflow(last_batch, last_row, &span) ||
        __builtin_add_overflow(span, shape[2], &span) ||
        __builtin_mul_overflow(span, bytes, &span) || p.addr + (uint64_t)span < p.addr) {
        TERN_CHECK_REFUSE(
            check, "%s: %s of %lld x %lld x %lld elements is too large for 64-bit addresses",
            check->op, name, (long long)shape[0], (long long)shape[1], (long long)shape[2]);
        return;
    }
    check->operands[check->operand_count++] = (struct tern_operand){
        .name = name,
        .p = p,
        .width_bytes = shape[2] * bytes,
        .stride_bytes = stride[1] * bytes,
        .batch_bytes = shape[0] > 1 ? stride[0] * bytes : 0,
        .span_bytes = span,
        .is_written = (flags & TERN_OPERAND_WRITE) != 0,
    };
}

void tern_check_rows(struct tern_check *check,
                     const char *name,
                     struct tern_dptr p,
                     enum tern_dtype dtype,
                     const int64_t shape[2], /* rows, width */
                     int64_t stride,
                     unsigned flags)
{
    const int64_t shape3[3] = {1, shape[0], shape[1]}, stride2[2] = {0, stride};
    tern_check_batched(check, name, p, dtype, shape3, stride2, flags);
}

void tern_check_weights(struct tern_check *check,
                        const char *name,
                        struct tern_dptr p,
                        enum tern_dtype dtype,
                        const int64_t shape[2],
                        int64_t stride)
{
    if (check->status != TERN_OK || !tern_dtype_is_stored(dtype)) {
        tern_check_rows(check, name, p, dtype, shape, stride, TERN_OPERAND_READ);
        return;
    }
    size_t width_bytes, stride_bytes;
    if (!tern_dtype_row_bytes(dtype, shape[1], &width_bytes) ||
        !tern_dtype_row_bytes(dtype, stride, &stride_bytes)) {
        TERN_CHECK_REFUSE(check,
                          "%s: rows of %s are %lld elements, %lld apart, expected whole blocks of "
                          "%lld (%s)",
                          check->op, name, (long long)shape[1], (long long)stride,
                          (long long)tern_dtype_block_elements(dtype), tern_dtype_name(dtype));
        return;
    }
    const int64_t bytes[2] = {shape[0], (int64_t)width_bytes};
    tern_check_rows(check, name, p, TERN_U8, bytes, (int64_t)stride_bytes, TERN_OPERAND_READ);
}

void tern_check_vector(struct tern_check *check,
                       const char *name,
                       struct tern_dptr p,
                       enum tern_dtype dtype,
                       int64_t count,
                       unsigned flags)
{
    const int64_t shape[2] = {1, count};
    tern_check_rows(check, name, p, dtype, shape, count, flags);
}

/* Dense (rows, width). */
void tern_check_matrix(struct tern_check *check,
                       const char *name,
                       struct tern_dptr p,
                       enum tern_dtype dtype,
                       const int64_t shape[2],
                       unsigned flags)
{
    tern_check_rows(check, name, p, dtype, shape, shape[1], flags);
}

void tern_check_may_be(struct tern_check *check, const char *name, const char *other)
{
    check->may_be[check->pair_count][0] = name;
    check->may_be[check->pair_count][1] = other;
    check->pair_count++;
}

static bool overlaps(const struct tern_operand *a, const struct tern_operand *b)
{
    if (a->p.addr > b->p.addr) {
        const struct tern_operand *first = b;
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

static bool may_share(const struct tern_check *check,
                      const struct tern_operand *a,
                      const struct tern_operand *b)
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

tern_status tern_check_finish(struct tern_check *check)
{
    for (int i = 0; i < check->operand_count; i++) {
        for (int j = 0; j < i; j++) {
            const struct tern_operand *a = &check->operands[i], *b = &check->operands[j];
            if ((a->is_written || b->is_written) && overlaps(a, b) && !may_share(check, a, b)) {
                TERN_CHECK_REFUSE(
                    check, "%s: %s (0x%llx, %lld bytes) overlaps %s (0x%llx, %lld bytes)",
                    check->op, a->name, (unsigned long long)a->p.addr, (long long)a->span_bytes,
                    b->name, (unsigned long long)b->p.addr, (long long)b->span_bytes);
            }
        }
    }
    return check->status;
}
