/* ops.c - the checked wrappers around a backend's table, and the time that each op takes. */
#include "kernels/ops.h"

#include "kernels/args.h"
#include "kernels/cost.h"
#include "runtime/base/clock.h"

#include <stdatomic.h>

static const char *const g_names[TERN_OP_COUNT] = {
    [TERN_OP_EMBED_FWD] = "embed_fwd",
    [TERN_OP_EMBED_BWD] = "embed_bwd",
    [TERN_OP_NORM_FWD] = "norm_fwd",
    [TERN_OP_NORM_BWD] = "norm_bwd",
    [TERN_OP_GEMM] = "gemm",
    [TERN_OP_BIAS_BWD] = "bias_bwd",
    [TERN_OP_GEMM_BIAS_BWD] = "gemm_bias_bwd",
    [TERN_OP_ATTENTION_FWD] = "attention_fwd",
    [TERN_OP_ATTENTION_BWD] = "attention_bwd",
    [TERN_OP_KV_WRITE] = "kv_write",
    [TERN_OP_PAGED_ATTENTION] = "paged_attention",
    [TERN_OP_ROPE] = "rope",
    [TERN_OP_ACT_FWD] = "act_fwd",
    [TERN_OP_ACT_BWD] = "act_bwd",
    [TERN_OP_GLU_FWD] = "glu_fwd",
    [TERN_OP_GLU_BWD] = "glu_bwd",
    [TERN_OP_ADD] = "add",
    [TERN_OP_CROSS_ENTROPY] = "cross_entropy",
    [TERN_OP_ADAMW] = "adamw",
    [TERN_OP_SUMSQ] = "sumsq",
    [TERN_OP_CLIP] = "clip",
    [TERN_OP_CAST] = "cast",
    [TERN_OP_SOFTCAP] = "softcap",
    [TERN_OP_MOE_ROUTE] = "moe_route",
    [TERN_OP_MOE_COMBINE] = "moe_combine",
    [TERN_OP_PACK] = "pack",
};

/* Totals of one op; ranks that are threads of one process add to the same ones. Whole numbers,
 * so that they can be atomic: 2^63 FLOPs are hours of a fast GPU, and a profile is for a few
 * steps. */
struct counter {
    _Atomic int64_t calls, ns, flops, bytes;
};

static struct counter g_counters[TERN_OP_COUNT];
static _Atomic bool g_is_profiling;

const char *tern_op_name(enum tern_op op)
{
    return (int)op >= 0 && op < TERN_OP_COUNT ? g_names[op] : "no op";
}

void tern_op_profile_enable(bool on)
{
    for (int op = 0; op < TERN_OP_COUNT && on; op++) {
        atomic_store(&g_counters[op].calls, 0);
        atomic_store(&g_counters[op].ns, 0);
        atomic_store(&g_counters[op].flops, 0);
        atomic_store(&g_counters[op].bytes, 0);
    }
    atomic_store(&g_is_profiling, on);
}

void tern_op_profile_read(struct tern_op_profile out[TERN_OP_COUNT])
{
    for (int op = 0; op < TERN_OP_COUNT; op++) {
        out[op] = (struct tern_op_profile){
            .name = g_names[op],
            .calls = atomic_load(&g_counters[op].calls),
            .seconds = (double)atomic_load(&g_counters[op].ns) * 1e-9,
            .flops = (double)atomic_load(&g_counters[op].flops),
            .bytes = (double)atomic_load(&g_counters[op].bytes),
        };
    }
}

bool tern_op_profile_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&g_is_profiling, memory_order_relaxed), false);
}

/* Waits for the op, adds it to its counter, forwards the first error. */
static tern_status count(struct tern_device *device,
                         enum tern_op op,
                         tern_status status,
                         int64_t begin_ns,
                         struct tern_cost cost)
{
    TERN_RETURN_IF_ERR(status);
    TERN_RETURN_IF_ERR(device->ops->device->sync(device));
    struct counter *counter = &g_counters[op];
    atomic_fetch_add(&counter->calls, 1);
    atomic_fetch_add(&counter->ns, tern_clock_ns() - begin_ns);
    atomic_fetch_add(&counter->flops, (int64_t)cost.flops);
    atomic_fetch_add(&counter->bytes, (int64_t)cost.bytes);
    return TERN_OK;
}

static tern_status missing(const struct tern_device *device, enum tern_op op)
{
    return tern_fail(TERN_ERR_UNSUPPORTED, "backend %s has no op %s", device->ops->device->name,
                     g_names[op]);
}

/* How many elements a sumsq reads: only its starts say, which a device may keep to itself. */
static struct tern_cost sumsq_cost(struct tern_device *device, const struct tern_sumsq_args *args)
{
    const int64_t *starts = device->ops->device->host_view(device, args->starts);
    return tern_cost_sumsq(args, starts == NULL ? 0 : starts[args->blocks] - starts[0]);
}

/* What rows and lengths say, which a device may keep to itself: then one row a sequence, all of the longest. */
static struct tern_cost paged_cost(struct tern_device *device,
                                   const struct tern_paged_attention_args *args)
{
    const int32_t *starts = device->ops->device->host_view(device, args->row_starts);
    const int32_t *lengths = device->ops->device->host_view(device, args->lengths);
    double pairs = 0, keys = 0;
    for (int64_t s = 0; s < args->sequences; s++) {
        int64_t rows = starts != NULL ? starts[s + 1] - starts[s] : 1;
        int64_t length = lengths != NULL ? lengths[s] : args->longest;
        int64_t seen =
            args->window > 0 && args->window + rows - 1 < length ? args->window + rows - 1 : length;
        pairs += rows > 0 ? tern_cost_attention_pairs(rows, length, args->window) : 0;
        keys += rows > 0 ? (double)seen : 0;
    }
    return tern_cost_paged_attention(args, pairs, keys);
}

/* The body of a wrapper: check, call, count. `check` and `cost` are expressions over device,
 * args and is_empty. */
#define WRAP(op, field, check, cost) \
    bool is_empty = false; \
    TERN_RETURN_IF_ERR(check); \
    if (is_empty) { \
        return TERN_OK; \
    } \
    if (device->ops->field == NULL) { \
        return missing(device, op); \
    } \
    if (!tern_op_profile_is_on()) { \
        return device->ops->field(device, args); \
    } \
    int64_t begin_ns = tern_clock_ns(); \
    return count(device, op, device->ops->field(device, args), begin_ns, cost)

tern_status tern_op_embed_fwd(struct tern_device *device, const struct tern_embed_fwd_args *args)
{
    WRAP(TERN_OP_EMBED_FWD, embed_fwd, tern_args_check_embed_fwd(device, args, &is_empty),
         tern_cost_embed_fwd(args));
}

tern_status tern_op_embed_bwd(struct tern_device *device, const struct tern_embed_bwd_args *args)
{
    WRAP(TERN_OP_EMBED_BWD, embed_bwd, tern_args_check_embed_bwd(device, args, &is_empty),
         tern_cost_embed_bwd(args));
}

tern_status tern_op_norm_fwd(struct tern_device *device, const struct tern_norm_fwd_args *args)
{
    WRAP(TERN_OP_NORM_FWD, norm_fwd, tern_args_check_norm_fwd(device, args, &is_empty),
         tern_cost_norm_fwd(args));
}

tern_status tern_op_norm_bwd(struct tern_device *device, const struct tern_norm_bwd_args *args)
{
    WRAP(TERN_OP_NORM_BWD, norm_bwd, tern_args_check_norm_bwd(device, args, &is_empty),
         tern_cost_norm_bwd(args));
}

tern_status tern_op_gemm(struct tern_device *device, const struct tern_gemm_args *args)
{
    WRAP(TERN_OP_GEMM, gemm, tern_args_check_gemm(device, args, &is_empty), tern_cost_gemm(args));
}

tern_status tern_op_bias_bwd(struct tern_device *device, const struct tern_bias_bwd_args *args)
{
    WRAP(TERN_OP_BIAS_BWD, bias_bwd, tern_args_check_bias_bwd(device, args, &is_empty),
         tern_cost_bias_bwd(args));
}

static tern_status gemm_then_bias_bwd(struct tern_device *device,
                                      const struct tern_gemm_bias_bwd_args *args)
{
    bool is_empty = false;
    TERN_RETURN_IF_ERR(tern_args_check_gemm_bias_bwd(device, args, &is_empty));
    struct tern_bias_bwd_args half = tern_gemm_bias_bwd_half(args);
    TERN_RETURN_IF_ERR(tern_op_gemm(device, &args->gemm));
    return tern_op_bias_bwd(device, &half);
}

static tern_status gemm_bias_bwd(struct tern_device *device,
                                 const struct tern_gemm_bias_bwd_args *args)
{
    WRAP(TERN_OP_GEMM_BIAS_BWD, gemm_bias_bwd,
         tern_args_check_gemm_bias_bwd(device, args, &is_empty), tern_cost_gemm_bias_bwd(args));
}

tern_status tern_op_gemm_bias_bwd(struct tern_device *device,
                                  const struct tern_gemm_bias_bwd_args *args)
{
    bool has_both = device == NULL || args == NULL || device->ops->gemm_bias_bwd != NULL;
    return has_both ? gemm_bias_bwd(device, args) : gemm_then_bias_bwd(device, args);
}

tern_status tern_op_attention_fwd(struct tern_device *device,
                                  const struct tern_attention_args *args)
{
    WRAP(TERN_OP_ATTENTION_FWD, attention_fwd,
         tern_args_check_attention(device, args, false, &is_empty), tern_cost_attention_fwd(args));
}

tern_status tern_op_attention_bwd(struct tern_device *device,
                                  const struct tern_attention_args *args)
{
    WRAP(TERN_OP_ATTENTION_BWD, attention_bwd,
         tern_args_check_attention(device, args, true, &is_empty), tern_cost_attention_bwd(args));
}

size_t tern_kv_block_bytes(const struct tern_device *device,
                           int64_t kv_heads,
                           int64_t d,
                           enum tern_dtype kv_dtype)
{
    bool is_kept = kv_dtype == TERN_F32 || kv_dtype == TERN_BF16 || kv_dtype == TERN_I8;
    if (device->ops->kv_block_bytes == NULL || !is_kept || kv_heads < 1 || d < 1 ||
        d > TERN_HEAD_WIDTH_MAX) {
        return 0;
    }
    return device->ops->kv_block_bytes(kv_heads, d, kv_dtype);
}

tern_status tern_op_kv_write(struct tern_device *device, const struct tern_kv_write_args *args)
{
    WRAP(TERN_OP_KV_WRITE, kv_write, tern_args_check_kv_write(device, args, &is_empty),
         tern_cost_kv_write(args));
}

tern_status tern_op_paged_attention(struct tern_device *device,
                                    const struct tern_paged_attention_args *args)
{
    WRAP(TERN_OP_PAGED_ATTENTION, paged_attention,
         tern_args_check_paged_attention(device, args, &is_empty), paged_cost(device, args));
}

tern_status tern_op_rope(struct tern_device *device, const struct tern_rope_args *args)
{
    WRAP(TERN_OP_ROPE, rope, tern_args_check_rope(device, args, &is_empty), tern_cost_rope(args));
}

tern_status tern_op_act_fwd(struct tern_device *device, const struct tern_act_args *args)
{
    WRAP(TERN_OP_ACT_FWD, act_fwd, tern_args_check_act(device, args, false, &is_empty),
         tern_cost_act_fwd(args));
}

tern_status tern_op_act_bwd(struct tern_device *device, const struct tern_act_args *args)
{
    WRAP(TERN_OP_ACT_BWD, act_bwd, tern_args_check_act(device, args, true, &is_empty),
         tern_cost_act_bwd(args));
}

tern_status tern_op_glu_fwd(struct tern_device *device, const struct tern_glu_args *args)
{
    WRAP(TERN_OP_GLU_FWD, glu_fwd, tern_args_check_glu(device, args, false, &is_empty),
         tern_cost_glu_fwd(args));
}

tern_status tern_op_glu_bwd(struct tern_device *device, const struct tern_glu_args *args)
{
    WRAP(TERN_OP_GLU_BWD, glu_bwd, tern_args_check_glu(device, args, true, &is_empty),
         tern_cost_glu_bwd(args));
}

tern_status tern_op_add(struct tern_device *device, const struct tern_add_args *args)
{
    WRAP(TERN_OP_ADD, add, tern_args_check_add(device, args, &is_empty), tern_cost_add(args));
}

tern_status tern_op_cross_entropy(struct tern_device *device,
                                  const struct tern_cross_entropy_args *args)
{
    WRAP(TERN_OP_CROSS_ENTROPY, cross_entropy,
         tern_args_check_cross_entropy(device, args, &is_empty), tern_cost_cross_entropy(args));
}

tern_status tern_op_adamw(struct tern_device *device, const struct tern_adamw_args *args)
{
    WRAP(TERN_OP_ADAMW, adamw, tern_args_check_adamw(device, args, &is_empty),
         tern_cost_adamw(args));
}

tern_status tern_op_sumsq(struct tern_device *device, const struct tern_sumsq_args *args)
{
    WRAP(TERN_OP_SUMSQ, sumsq, tern_args_check_sumsq(device, args, &is_empty),
         sumsq_cost(device, args));
}

tern_status tern_op_clip(struct tern_device *device, const struct tern_clip_args *args)
{
    WRAP(TERN_OP_CLIP, clip, tern_args_check_clip(device, args, &is_empty), tern_cost_clip(args));
}

tern_status tern_op_cast(struct tern_device *device, const struct tern_cast_args *args)
{
    WRAP(TERN_OP_CAST, cast, tern_args_check_cast(device, args, &is_empty), tern_cost_cast(args));
}

tern_status tern_op_softcap(struct tern_device *device, const struct tern_softcap_args *args)
{
    WRAP(TERN_OP_SOFTCAP, softcap, tern_args_check_softcap(device, args, &is_empty),
         tern_cost_softcap(args));
}

tern_status tern_op_moe_route(struct tern_device *device, const struct tern_moe_route_args *args)
{
    WRAP(TERN_OP_MOE_ROUTE, moe_route, tern_args_check_moe_route(device, args, &is_empty),
         tern_cost_moe_route(args));
}

tern_status tern_op_moe_combine(struct tern_device *device,
                                const struct tern_moe_combine_args *args)
{
    WRAP(TERN_OP_MOE_COMBINE, moe_combine, tern_args_check_moe_combine(device, args, &is_empty),
         tern_cost_moe_combine(args));
}

tern_status tern_op_pack(struct tern_device *device, const struct tern_pack_args *args)
{
    WRAP(TERN_OP_PACK, pack, tern_args_check_pack(device, args, &is_empty), tern_cost_pack(args));
}

size_t tern_packed_bytes(struct tern_device *device, enum tern_packed packed, int64_t n, int64_t k)
{
    bool is_kind = packed > TERN_PACKED_NONE && packed < TERN_PACKED_COUNT;
    bool is_whole = !tern_packed_is_codes(packed) || k % TERN_PACKED_GROUP == 0;
    return is_kind && is_whole && n > 0 && k > 0 && device->ops->packed_bytes != NULL
               ? device->ops->packed_bytes(device, packed, n, k)
               : 0;
}

tern_status tern_device_prepare(struct tern_device *device,
                                const struct tern_op_limits *limits,
                                size_t *bytes_out)
{
    if (device == NULL || bytes_out == NULL) {
        return tern_fail(TERN_ERR_ARGUMENT, "prepare: %s is NULL",
                         device == NULL ? "the device" : "bytes_out");
    }
    TERN_RETURN_IF_ERR(tern_args_check_limits(limits));
    return device->ops->prepare(device, limits, bytes_out);
}
