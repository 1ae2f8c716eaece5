/* cost.h - what an op must at least move and compute: pure functions of its arguments. */
#ifndef TERN_KERNELS_COST_H
#define TERN_KERNELS_COST_H

#include "kernels/ops.h"

/* flops: multiplications and additions of the formula in ops.h (a fused multiply-add counts two,
 * a transcendental function ten); attention counts only the pairs that the causal mask and the
 * window leave. bytes: every operand read or written once, as if the cache were perfect. */
struct tern_cost {
    double flops;
    double bytes;
};

struct tern_cost tern_cost_embed_fwd(const struct tern_embed_fwd_args *args);
struct tern_cost tern_cost_embed_bwd(const struct tern_embed_bwd_args *args);
struct tern_cost tern_cost_norm_fwd(const struct tern_norm_fwd_args *args);
struct tern_cost tern_cost_norm_bwd(const struct tern_norm_bwd_args *args);
struct tern_cost tern_cost_gemm(const struct tern_gemm_args *args);
struct tern_cost tern_cost_bias_bwd(const struct tern_bias_bwd_args *args);
struct tern_cost tern_cost_gemm_bias_bwd(const struct tern_gemm_bias_bwd_args *args);
struct tern_cost tern_cost_attention_fwd(const struct tern_attention_args *args);
struct tern_cost tern_cost_attention_bwd(const struct tern_attention_args *args);
struct tern_cost tern_cost_kv_write(const struct tern_kv_write_args *args);
/* Rows and lengths are device memory: pairs says how many queries and keys meet, keys how many keys are read, of one
 * head. */
struct tern_cost tern_cost_paged_attention(const struct tern_paged_attention_args *args,
                                           double pairs,
                                           double keys);
struct tern_cost tern_cost_rope(const struct tern_rope_args *args);
struct tern_cost tern_cost_act_fwd(const struct tern_act_args *args);
struct tern_cost tern_cost_act_bwd(const struct tern_act_args *args);
struct tern_cost tern_cost_glu_fwd(const struct tern_glu_args *args);
struct tern_cost tern_cost_glu_bwd(const struct tern_glu_args *args);
struct tern_cost tern_cost_add(const struct tern_add_args *args);
struct tern_cost tern_cost_cross_entropy(const struct tern_cross_entropy_args *args);
struct tern_cost tern_cost_adamw(const struct tern_adamw_args *args);
/* The starts are device memory: elements says how many there are in all. */
struct tern_cost tern_cost_sumsq(const struct tern_sumsq_args *args, int64_t elements);
struct tern_cost tern_cost_clip(const struct tern_clip_args *args);
struct tern_cost tern_cost_cast(const struct tern_cast_args *args);
struct tern_cost tern_cost_softcap(const struct tern_softcap_args *args);
struct tern_cost tern_cost_moe_route(const struct tern_moe_route_args *args);
struct tern_cost tern_cost_moe_combine(const struct tern_moe_combine_args *args);
struct tern_cost tern_cost_pack(const struct tern_pack_args *args);

/* Query-key pairs of one head of one sequence that causal attention with `window` (0: none)
 * visits. */
double tern_cost_attention_pairs(int64_t tq, int64_t tkv, int64_t window);

#endif
