/* stubs.c - ops that are not written yet: weak, so that the real one replaces it. */
#include "kernels/cuda/cuda.h"

#define STUB(op) \
    __attribute__((weak)) \
    tern_status tern_cuda_##op(struct tern_device *device, const struct tern_##op##_args *args) \
    { \
        (void)device; \
        (void)args; \
        return tern_fail(TERN_ERR_UNSUPPORTED, "cuda: " #op " is not written yet"); \
    }
#define tern_attention_fwd_args tern_attention_args
#define tern_attention_bwd_args tern_attention_args
STUB(attention_fwd)
STUB(attention_bwd)

#define NOTHING(family) \
    __attribute__((weak)) size_t tern_cuda_##family##_workspace( \
        const struct tern_cuda_device *device, const struct tern_op_limits *limits) \
    { \
        (void)device; \
        (void)limits; \
        return 0; \
    }
NOTHING(attention)
