/* cost.c - bytes and FLOPs of each op. */
#include "kernels/cost.h"

/* One transcendental function, in additions and multiplications. */
static const double FUNCTION_FLOPS = 10;

static double size_of(enum tern_dtype dtype)
{
    return (double)tern_dtype_bytes(dtype) / (double)tern_dtype_block_elements(dtype);
}

/* Bytes of a packed weight: codes and their group's scales. */
static double packed_size(enum tern_packed packed)
{
    static const double bytes[TERN_PACKED_COUNT] = {
        [TERN_PACKED_F32] = 4,        [TERN_PACKED_BF16] = 2,       [TERN_PACKED_Q8] = 34 / 32.0,
        [TERN_PACKED_Q6] = 28 / 32.0, [TERN_PACKED_Q5] = 22 / 32.0, [TERN_PACKED_Q5A] = 24 / 32.0,
        [TERN_PACKED_Q4] = 18 / 32.0, [TERN_PACKED_Q4A] = 20 / 32.0};
    return bytes[packed];
}

/* Bytes of an element of side data that goes with `dtype`. */
static double side_of(enum tern_dtype dtype)
{
    return dtype == TERN_F64 ? 8.0 : 4.0;
}

struct tern_cost tern_cost_embed_fwd(const struct tern_embed_fwd_args *args)
{
    double cells = (double)args->n * (double)args->c, e = size_of(args->dtype);
    bool positions = !tern_dptr_is_null(args->wpe);
    double wpe = positions ? (double)args->t * (double)args->c * e : 0;
    return (struct tern_cost){positions ? cells : 0, 2 * cells * e + wpe + 4.0 * (double)args->n};
}

struct tern_cost tern_cost_embed_bwd(const struct tern_embed_bwd_args *args)
{
    double cells = (double)args->n * (double)args->c, side = side_of(args->dtype);
    bool positions = !tern_dptr_is_null(args->dwpe);
    double wpe = positions ? 2 * (double)args->t * (double)args->c * side : 0;
    double bytes = cells * (size_of(args->dtype) + 2 * side) + wpe + 4.0 * (double)args->n;
    return (struct tern_cost){positions ? 2 * cells : cells, bytes};
}

struct tern_cost tern_cost_norm_fwd(const struct tern_norm_fwd_args *args)
{
    double norms = (double)args->n * (double)(args->heads > 0 ? args->heads : 1);
    double cells = norms * (double)args->c, e = size_of(args->dtype);
    bool residual = !tern_dptr_is_null(args->residual);
    double stats = tern_dptr_is_null(args->rstd) ? 0 : 2 * side_of(args->dtype) * norms;
    double flops = cells * (args->kind == TERN_NORM_LAYER ? 8 : 4) + (residual ? cells : 0);
    double moved = cells * e * ((residual ? 4 : 2) + (tern_dptr_is_null(args->copy) ? 0 : 1));
    return (struct tern_cost){flops, moved + stats + 2 * (double)args->c * e};
}

struct tern_cost tern_cost_norm_bwd(const struct tern_norm_bwd_args *args)
{
    double norms = (double)args->n * (double)(args->heads > 0 ? args->heads : 1);
    double cells = norms * (double)args->c, e = size_of(args->dtype);
    bool residual = !tern_dptr_is_null(args->dresidual);
    double side = side_of(args->dtype);
    double bytes = cells * e * (residual ? 4 : 3) + 2 * side * norms +
                   (double)args->c * (e + 2 * side * (args->accumulate ? 2 : 1));
    return (struct tern_cost){cells * 14, bytes};
}

struct tern_cost tern_cost_gemm(const struct tern_gemm_args *args)
{
    double m = (double)args->m, n = (double)args->n, k = (double)args->k;
    double d = m * n * size_of(args->d_dtype);
    double b =
        args->b_packed != TERN_PACKED_NONE ? packed_size(args->b_packed) : size_of(args->b_dtype);
    double bytes = m * k * size_of(args->a_dtype) + k * n * b + d;
    double flops = 2 * m * n * k;
    if (args->accumulate) {
        bytes += d;
    }
    if (tern_epilogue_has_bias(args->epilogue)) {
        flops += m * n;
        bytes += n * size_of(args->bias_dtype);
    }
    if (tern_epilogue_has_aux(args->epilogue)) {
        flops += m * n * (FUNCTION_FLOPS + 7);
        bytes += d;
    }
    return (struct tern_cost){flops, bytes};
}

struct tern_cost tern_cost_bias_bwd(const struct tern_bias_bwd_args *args)
{
    double cells = (double)args->rows * (double)args->n;
    double side = side_of(args->dtype) * (double)args->n * (args->accumulate ? 2 : 1);
    return (struct tern_cost){cells, cells * size_of(args->dtype) + side};
}

/* The factor is read once for both. */
struct tern_cost tern_cost_gemm_bias_bwd(const struct tern_gemm_bias_bwd_args *args)
{
    struct tern_bias_bwd_args half = tern_gemm_bias_bwd_half(args);
    struct tern_cost cost = tern_cost_gemm(&args->gemm);
    cost.flops += (double)half.rows * (double)half.n;
    cost.bytes += (double)half.n * 4 * (half.accumulate ? 2 : 1);
    return cost;
}

double tern_cost_attention_pairs(int64_t tq, int64_t tkv, int64_t window)
{
    double first = (double)(tkv - tq + 1), last = (double)tkv, count = (double)tq;
    double all = count * (first + last) / 2;
    if (window <= 0 || (double)window >= last) {
        return all;
    }
    /* Queries that see fewer than `window` keys see as many as their position + 1. */
    double w = (double)window;
    double below = w > first ? w - first : 0;
    return below * (first + w - 1) / 2 + (count - below) * w;
}

struct tern_cost tern_cost_attention_fwd(const struct tern_attention_args *args)
{
    double pairs = tern_cost_attention_pairs(args->tq, args->tkv, args->window) * (double)args->b *
                   (double)args->h;
    double e = size_of(args->dtype), d = (double)args->d, b = (double)args->b;
    double cap = args->softcap > 0 ? FUNCTION_FLOPS + 2 : 0;
    double bytes = 2 * b * (double)args->tq * (double)args->h * d * e +
                   2 * b * (double)args->tkv * (double)args->kv_heads * d * e;
    return (struct tern_cost){pairs * (4 * d + FUNCTION_FLOPS + 3 + cap), bytes};
}

struct tern_cost tern_cost_attention_bwd(const struct tern_attention_args *args)
{
    double pairs = tern_cost_attention_pairs(args->tq, args->tkv, args->window) * (double)args->b *
                   (double)args->h;
    double e = size_of(args->dtype), d = (double)args->d, b = (double)args->b;
    double cap = args->softcap > 0 ? FUNCTION_FLOPS + 5 : 0;
    double bytes = 4 * b * (double)args->tq * (double)args->h * d * e +
                   4 * b * (double)args->tkv * (double)args->kv_heads * d * e;
    return (struct tern_cost){pairs * (10 * d + FUNCTION_FLOPS + 4 + cap), bytes};
}

struct tern_cost tern_cost_kv_write(const struct tern_kv_write_args *args)
{
    double cells = 2 * (double)args->n * (double)args->kv_heads * (double)args->d;
    return (struct tern_cost){0, cells * (size_of(args->dtype) + size_of(args->kv_dtype)) +
                                     4 * (double)args->n};
}

struct tern_cost tern_cost_paged_attention(const struct tern_paged_attention_args *args,
                                           double pairs,
                                           double keys)
{
    double d = (double)args->d, h = (double)args->h, kv = (double)args->kv_heads;
    double cap = args->softcap > 0 ? FUNCTION_FLOPS + 2 : 0;
    double bytes = 2 * (double)args->n * h * d * size_of(args->dtype) +
                   2 * keys * kv * d * size_of(args->kv_dtype);
    return (struct tern_cost){pairs * h * (4 * d + FUNCTION_FLOPS + 3 + cap), bytes};
}

struct tern_cost tern_cost_rope(const struct tern_rope_args *args)
{
    double rotary = (double)(args->rotary_d > 0 ? args->rotary_d : args->d);
    double cells = (double)args->n * (double)args->heads * rotary;
    double table = (double)args->t * rotary * side_of(args->dtype);
    return (struct tern_cost){3 * cells, 2 * cells * size_of(args->dtype) + table};
}

static double act_flops(enum tern_act act)
{
    return act == TERN_ACT_GELU_TANH ? FUNCTION_FLOPS + 7 : FUNCTION_FLOPS + 2;
}

struct tern_cost tern_cost_act_fwd(const struct tern_act_args *args)
{
    double n = (double)args->n;
    return (struct tern_cost){n * act_flops(args->act), 2 * n * size_of(args->dtype)};
}

struct tern_cost tern_cost_act_bwd(const struct tern_act_args *args)
{
    double n = (double)args->n;
    return (struct tern_cost){n * (act_flops(args->act) + 6), 3 * n * size_of(args->dtype)};
}

struct tern_cost tern_cost_glu_fwd(const struct tern_glu_args *args)
{
    double cells = (double)args->n * (double)args->f;
    return (struct tern_cost){cells * (act_flops(args->act) + 1), 3 * cells * size_of(args->dtype)};
}

struct tern_cost tern_cost_glu_bwd(const struct tern_glu_args *args)
{
    double cells = (double)args->n * (double)args->f;
    return (struct tern_cost){cells * (act_flops(args->act) + 8), 5 * cells * size_of(args->dtype)};
}

struct tern_cost tern_cost_add(const struct tern_add_args *args)
{
    return (struct tern_cost){(double)args->n, 3 * (double)args->n * size_of(args->dtype)};
}

struct tern_cost tern_cost_cross_entropy(const struct tern_cross_entropy_args *args)
{
    double cells = (double)args->rows * (double)args->v, e = side_of(args->dtype);
    double cap = args->softcap > 0 ? FUNCTION_FLOPS + 2 : 0;
    double flops = cells * (FUNCTION_FLOPS + 3 + (args->backward ? 2 : 0) + cap);
    double written = !args->backward                    ? 0
                     : tern_dptr_is_null(args->dlogits) ? e
                                                        : size_of(TERN_BF16);
    return (struct tern_cost){flops, cells * (e + written) + (double)args->rows * (4 + e)};
}

struct tern_cost tern_cost_adamw(const struct tern_adamw_args *args)
{
    double n = (double)args->n;
    double copy = tern_dptr_is_null(args->copy) ? 0 : n * size_of(args->copy_dtype);
    return (struct tern_cost){n * 18, n * 7 * 4 + copy};
}

struct tern_cost tern_cost_sumsq(const struct tern_sumsq_args *args, int64_t elements)
{
    double n = (double)elements;
    return (struct tern_cost){2 * n, 4 * n + 16 * (double)args->blocks};
}

struct tern_cost tern_cost_clip(const struct tern_clip_args *args)
{
    double n = (double)args->blocks + (double)args->losses;
    return (struct tern_cost){n, 16 * n};
}

struct tern_cost tern_cost_cast(const struct tern_cast_args *args)
{
    return (struct tern_cost){0, (double)args->n *
                                     (size_of(args->src_dtype) + size_of(args->dst_dtype))};
}

struct tern_cost tern_cost_softcap(const struct tern_softcap_args *args)
{
    double n = (double)args->n;
    return (struct tern_cost){n * (FUNCTION_FLOPS + 2), 2 * n * size_of(args->dtype)};
}

struct tern_cost tern_cost_moe_route(const struct tern_moe_route_args *args)
{
    double cells = (double)args->n * (double)args->expert_count;
    double pairs = (double)args->n * (double)args->top_k;
    return (struct tern_cost){cells * (FUNCTION_FLOPS + 2 + (double)args->top_k),
                              cells * size_of(args->dtype) + pairs * 16 +
                                  4 * (double)(args->expert_count + 1)};
}

struct tern_cost tern_cost_moe_combine(const struct tern_moe_combine_args *args)
{
    double cells = (double)args->n * (double)args->c, k = (double)args->top_k;
    return (struct tern_cost){2 * cells * k,
                              cells * (k + 1) * size_of(args->dtype) + (double)args->n * k * 8};
}

struct tern_cost tern_cost_pack(const struct tern_pack_args *args)
{
    double cells = (double)args->n * (double)args->k;
    return (struct tern_cost){cells,
                              cells * (size_of(args->src_dtype) + packed_size(args->packed))};
}
