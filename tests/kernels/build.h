/* build.h - between instance.c and build.c: shapes and arguments of each op. */
#ifndef TERN_TESTS_KERNELS_BUILD_H
#define TERN_TESTS_KERNELS_BUILD_H

#include "tests/kernels/instance.h"

/* Dense (rows, width), summed over `length`; what is special is set on the result. */
struct tern_tensor *tern_build_tensor(struct tern_instance *in,
                                      const char *name,
                                      enum tern_dtype dtype,
                                      enum tern_role role,
                                      int64_t rows,
                                      int64_t width);
/* The pointer at `offset` of the arguments is to element `element` of the last tensor. */
void tern_build_slot(struct tern_instance *in, size_t offset, int64_t element);

static inline struct tern_tensor *slot_after(struct tern_instance *in,
                                             struct tern_tensor *t,
                                             size_t offset)
{
    tern_build_slot(in, offset, 0);
    return t;
}

/* A tensor and the pointer to its start. */
#define TENSOR(in, member, field, dtype, role, rows, width) \
    (slot_after((in), tern_build_tensor((in), #field, (dtype), (role), (rows), (width)), \
                offsetof(union tern_args, member.field)))

/* paged.c: keys and values of sequences, which a kv_write brings into blocks and a paged_attention reads. */
void tern_build_paged(struct tern_instance *in);
void tern_paged_limits(const struct tern_instance *in, struct tern_op_limits *limits);
/* Element `at` of slots, row_starts, lengths or tables, whichever t is. */
double tern_paged_value(const struct tern_instance *in, const struct tern_tensor *t, int64_t at);
void tern_paged_magnitudes(struct tern_instance *in);
/* Both ops, one after the other. */
TERN_MUST_CHECK tern_status tern_paged_call(const union tern_args *args,
                                            struct tern_device *device);

/* Sets args, tensors (without values), slots and limits. */
void tern_build_shapes(struct tern_instance *in);

#endif
