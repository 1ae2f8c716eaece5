/* args.h - inside kernels/: what must hold for the arguments of each op, whatever the backend. */
#ifndef TERN_KERNELS_ARGS_H
#define TERN_KERNELS_ARGS_H

#include "kernels/ops.h"

/* TERN_OK, or TERN_ERR_ARGUMENT with the op, the operand, what was found and what is expected.
 * *is_empty_out: there is nothing to do, and the backend is not called. */
#define TERN_ARGS_CHECK(op) \
    TERN_MUST_CHECK tern_status tern_args_check_##op( \
        struct tern_device *device, const struct tern_##op##_args *args, bool *is_empty_out)

TERN_ARGS_CHECK(embed_fwd);
TERN_ARGS_CHECK(embed_bwd);
TERN_ARGS_CHECK(norm_fwd);
TERN_ARGS_CHECK(norm_bwd);
TERN_ARGS_CHECK(gemm);
TERN_ARGS_CHECK(bias_bwd);
TERN_ARGS_CHECK(gemm_bias_bwd);
TERN_ARGS_CHECK(kv_write);
TERN_ARGS_CHECK(paged_attention);
TERN_ARGS_CHECK(rope);
TERN_ARGS_CHECK(add);
TERN_ARGS_CHECK(cross_entropy);
TERN_ARGS_CHECK(adamw);
TERN_ARGS_CHECK(sumsq);
TERN_ARGS_CHECK(clip);
TERN_ARGS_CHECK(cast);
TERN_ARGS_CHECK(softcap);
TERN_ARGS_CHECK(moe_route);
TERN_ARGS_CHECK(moe_combine);
TERN_ARGS_CHECK(pack);

#undef TERN_ARGS_CHECK

/* One struct serves both directions of these. */
TERN_MUST_CHECK tern_status tern_args_check_attention(struct tern_device *device,
                                                      const struct tern_attention_args *args,
                                                      bool is_backward,
                                                      bool *is_empty_out);
TERN_MUST_CHECK tern_status tern_args_check_act(struct tern_device *device,
                                                const struct tern_act_args *args,
                                                bool is_backward,
                                                bool *is_empty_out);
TERN_MUST_CHECK tern_status tern_args_check_glu(struct tern_device *device,
                                                const struct tern_glu_args *args,
                                                bool is_backward,
                                                bool *is_empty_out);

TERN_MUST_CHECK tern_status tern_args_check_limits(const struct tern_op_limits *limits);

#endif
