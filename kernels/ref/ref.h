/* ref.h - inside the reference backend: elements as doubles, whatever they are stored as. */
#ifndef TERN_KERNELS_REF_REF_H
#define TERN_KERNELS_REF_REF_H

#include "kernels/ops.h"

/* A device of plain host memory and one thread. *out is owned: close with its table. */
TERN_MUST_CHECK tern_status tern_ref_open(struct tern_device **out);

/* On this backend a device address is a host address. */
static inline void *tern_ref_ptr(struct tern_dptr p)
{
    return (void *)(uintptr_t)p.addr; /* NOLINT(performance-no-int-to-ptr) */
}

static inline double tern_ref_get(struct tern_dptr p, enum tern_dtype dtype, int64_t index)
{
    const void *base = tern_ref_ptr(p);
    switch (dtype) {
    case TERN_F64:
        return ((const double *)base)[index];
    case TERN_BF16:
        return (double)tern_bf16_to_f32(((const tern_bf16 *)base)[index]);
    default:
        return (double)((const float *)base)[index];
    }
}

/* Rounds once to f32, and from there to bf16. */
static inline void tern_ref_put(struct tern_dptr p, enum tern_dtype dtype, int64_t index, double x)
{
    void *base = tern_ref_ptr(p);
    switch (dtype) {
    case TERN_F64:
        ((double *)base)[index] = x;
        break;
    case TERN_BF16:
        ((tern_bf16 *)base)[index] = tern_f32_to_bf16((float)x);
        break;
    default:
        ((float *)base)[index] = (float)x;
        break;
    }
}

/* Elements [first, first + count) of weights, stored or plain; no more than lie in one block of 256. */
void tern_ref_weights(struct tern_dptr p,
                      enum tern_dtype dtype,
                      int64_t first,
                      int64_t count,
                      double *out);

/* x as it reads back after being stored. */
static inline double tern_ref_round(enum tern_dtype dtype, double x)
{
    switch (dtype) {
    case TERN_F64:
        return x;
    case TERN_BF16:
        return (double)tern_bf16_to_f32(tern_f32_to_bf16((float)x));
    default:
        return (double)(float)x;
    }
}

/* Where the document of row n begins in its sequence. */
static inline int64_t tern_ref_start(struct tern_dptr starts, int64_t n)
{
    return tern_dptr_is_null(starts) ? 0 : ((const int32_t *)tern_ref_ptr(starts))[n];
}

/* What side data and parameter gradients are stored as beside activations of `dtype`. */
static inline enum tern_dtype tern_ref_side(enum tern_dtype dtype)
{
    return dtype == TERN_F64 ? TERN_F64 : TERN_F32;
}

static inline int32_t tern_ref_i32(struct tern_dptr p, int64_t index)
{
    return ((const int32_t *)tern_ref_ptr(p))[index];
}

/* act(x) and its derivative. */
double tern_ref_act(enum tern_act act, double x);
double tern_ref_act_slope(enum tern_act act, double x);

tern_status tern_ref_embed_fwd(struct tern_device *, const struct tern_embed_fwd_args *);
tern_status tern_ref_embed_bwd(struct tern_device *, const struct tern_embed_bwd_args *);
tern_status tern_ref_norm_fwd(struct tern_device *, const struct tern_norm_fwd_args *);
tern_status tern_ref_norm_bwd(struct tern_device *, const struct tern_norm_bwd_args *);
tern_status tern_ref_gemm(struct tern_device *, const struct tern_gemm_args *);
tern_status tern_ref_bias_bwd(struct tern_device *, const struct tern_bias_bwd_args *);
tern_status tern_ref_attention_fwd(struct tern_device *, const struct tern_attention_args *);
tern_status tern_ref_attention_bwd(struct tern_device *, const struct tern_attention_args *);
size_t tern_ref_kv_block_bytes(int64_t kv_heads, int64_t d, enum tern_dtype kv_dtype);
tern_status tern_ref_kv_write(struct tern_device *, const struct tern_kv_write_args *);
tern_status tern_ref_paged_attention(struct tern_device *,
                                     const struct tern_paged_attention_args *);
tern_status tern_ref_rope(struct tern_device *, const struct tern_rope_args *);
tern_status tern_ref_act_fwd(struct tern_device *, const struct tern_act_args *);
tern_status tern_ref_act_bwd(struct tern_device *, const struct tern_act_args *);
tern_status tern_ref_glu_fwd(struct tern_device *, const struct tern_glu_args *);
tern_status tern_ref_glu_bwd(struct tern_device *, const struct tern_glu_args *);
tern_status tern_ref_add(struct tern_device *, const struct tern_add_args *);
tern_status tern_ref_cross_entropy(struct tern_device *, const struct tern_cross_entropy_args *);
tern_status tern_ref_adamw(struct tern_device *, const struct tern_adamw_args *);
tern_status tern_ref_sumsq(struct tern_device *, const struct tern_sumsq_args *);
tern_status tern_ref_cast(struct tern_device *, const struct tern_cast_args *);
tern_status tern_ref_softcap(struct tern_device *, const struct tern_softcap_args *);
tern_status tern_ref_moe_route(struct tern_device *, const struct tern_moe_route_args *);
tern_status tern_ref_moe_combine(struct tern_device *, const struct tern_moe_combine_args *);
tern_status tern_ref_pack(struct tern_device *, const struct tern_pack_args *);
size_t tern_ref_packed_bytes(struct tern_device *, enum tern_packed packed, int64_t n, int64_t k);
/* Row i of a times row j of a packed b. */
double tern_ref_packed_product(const struct tern_gemm_args *args, int64_t i, int64_t j);

#endif
