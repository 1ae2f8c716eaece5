/* check.h - inside kernels/: what is said about the operands of a call, and the first thing that
 * is wrong with it. */
#ifndef TERN_KERNELS_CHECK_H
#define TERN_KERNELS_CHECK_H

#include "kernels/ops.h"

enum {
    TERN_OPERANDS_MAX = 12,
    TERN_OPERAND_PAIRS_MAX = 4
};

enum tern_operand_flags {
    TERN_OPERAND_READ = 0,
    TERN_OPERAND_WRITE = 1,
    TERN_OPERAND_OPTIONAL = 2
};

/* rows rows of width elements, stride elements apart, that batches times, batch elements apart. */
struct tern_operand {
    const char *name;
    struct tern_dptr p;
    int64_t width_bytes, stride_bytes, batch_bytes;
    int64_t span_bytes; /* from the first byte to one past the last */
    bool is_written;
};

/* Everything that was found out about one call; the first failure stays. */
struct tern_check {
    const char *op;
    struct tern_device *device;
    tern_status status;
    struct tern_operand operands[TERN_OPERANDS_MAX];
    int operand_count;
    /* names of operands that may have the same address */
    const char *may_be[TERN_OPERAND_PAIRS_MAX][2];
    int pair_count;
};

/* Keeps the first failure and its sentence. */
#define TERN_CHECK_REFUSE(check, ...) \
    do { \
        if ((check)->status == TERN_OK) { \
            (check)->status = tern_fail(TERN_ERR_ARGUMENT, __VA_ARGS__); \
        } \
    } while (0)

/* Side data of activations of this dtype. */
static inline enum tern_dtype tern_check_side_of(enum tern_dtype dtype)
{
    return dtype == TERN_F64 ? TERN_F64 : TERN_F32;
}

/* A NULL device or argument struct is the first thing that can be wrong. */
struct tern_check tern_check_begin(struct tern_device *device, enum tern_op op, const void *args);
/* Once sizes and dtypes are looked at: one of them is wrong, or is_empty, which goes out too: there
 * is nothing to do. Operands are not looked at then. */
bool tern_check_is_over(const struct tern_check *check, bool is_empty, bool *is_empty_out);
/* min to 2^40. */
void tern_check_size(struct tern_check *check, const char *name, int64_t value, int64_t min);
void tern_check_stride(struct tern_check *check,
                       const char *name,
                       int64_t stride,
                       const char *width_name,
                       int64_t width);
/* f32 or bf16; f64 where the backend has it. */
void tern_check_float(struct tern_check *check, const char *name, enum tern_dtype dtype);
void tern_check_finite(struct tern_check *check, const char *name, float value);
/* The cap of a softcap: 0 (none, unless is_needed) or a positive number. */
void tern_check_softcap(struct tern_check *check, const char *name, float cap, bool is_needed);
/* The backend has what this call needs; `what` names it. */
void tern_check_has(struct tern_check *check, enum tern_op_lack need, const char *what);
/* shape: batches, rows, width; stride: batch, row; in elements. */
void tern_check_batched(struct tern_check *check,
                        const char *name,
                        struct tern_dptr p,
                        enum tern_dtype dtype,
                        const int64_t shape[3],
                        const int64_t stride[2],
                        unsigned flags);
/* shape: rows, width. */
void tern_check_rows(struct tern_check *check,
                     const char *name,
                     struct tern_dptr p,
                     enum tern_dtype dtype,
                     const int64_t shape[2],
                     int64_t stride,
                     unsigned flags);
void tern_check_vector(struct tern_check *check,
                       const char *name,
                       struct tern_dptr p,
                       enum tern_dtype dtype,
                       int64_t count,
                       unsigned flags);
/* Rows of weights, stored or plain, that are read; width and stride in elements. */
void tern_check_weights(struct tern_check *check,
                        const char *name,
                        struct tern_dptr p,
                        enum tern_dtype dtype,
                        const int64_t shape[2],
                        int64_t stride);
/* Dense. */
void tern_check_matrix(struct tern_check *check,
                       const char *name,
                       struct tern_dptr p,
                       enum tern_dtype dtype,
                       const int64_t shape[2],
                       unsigned flags);
/* These two operands may have the same address. */
void tern_check_may_be(struct tern_check *check, const char *name, const char *other);
/* Overlaps, then the first failure or TERN_OK. */
TERN_MUST_CHECK tern_status tern_check_finish(struct tern_check *check);

#endif
