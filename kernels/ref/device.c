/* device.c - the reference backend's device: host memory, nothing asynchronous, the table of its
 * ops. */
#include "kernels/host.h"
#include "kernels/ref/ref.h"
#include "runtime/base/mem.h"

#include <string.h>

static void ref_close(struct tern_device *device)
{
    tern_free(device);
}

static tern_status ref_queue(struct tern_device *device, const char *name, struct tern_device **out)
{
    (void)device;
    (void)name;
    return tern_ref_open(out);
}

static tern_status ref_copy(struct tern_device *device,
                            struct tern_dptr dst,
                            struct tern_dptr src,
                            size_t bytes)
{
    (void)device;
    memmove(tern_ref_ptr(dst), tern_ref_ptr(src), bytes);
    return TERN_OK;
}

static tern_status ref_zero(struct tern_device *device, struct tern_dptr dst, size_t bytes)
{
    (void)device;
    memset(tern_ref_ptr(dst), 0, bytes);
    return TERN_OK;
}

/* Everything is computed in registers and on the stack. */
static tern_status ref_prepare(struct tern_device *device,
                               const struct tern_op_limits *limits,
                               size_t *bytes_out)
{
    (void)device;
    (void)limits;
    *bytes_out = 0;
    return TERN_OK;
}

static const struct tern_device_table g_ref_device = {
    .name = "ref",
    .close = ref_close,
    .queue = ref_queue,
    TERN_HOST_SLOTS,
    .copy = ref_copy,
    .zero = ref_zero,
};

static const struct tern_ops g_ref_ops = {
    .device = &g_ref_device,
    .prepare = ref_prepare,
    .embed_fwd = tern_ref_embed_fwd,
    .embed_bwd = tern_ref_embed_bwd,
    .norm_fwd = tern_ref_norm_fwd,
    .norm_bwd = tern_ref_norm_bwd,
    .gemm = tern_ref_gemm,
    .bias_bwd = tern_ref_bias_bwd,
    .attention_fwd = tern_ref_attention_fwd,
    .attention_bwd = tern_ref_attention_bwd,
    .kv_block_bytes = tern_ref_kv_block_bytes,
    .kv_write = tern_ref_kv_write,
    .paged_attention = tern_ref_paged_attention,
    .rope = tern_ref_rope,
    .act_fwd = tern_ref_act_fwd,
    .act_bwd = tern_ref_act_bwd,
    .glu_fwd = tern_ref_glu_fwd,
    .glu_bwd = tern_ref_glu_bwd,
    .add = tern_ref_add,
    .cross_entropy = tern_ref_cross_entropy,
    .adamw = tern_ref_adamw,
    .sumsq = tern_ref_sumsq,
    .clip = tern_host_clip,
    .cast = tern_ref_cast,
    .softcap = tern_ref_softcap,
    .moe_route = tern_ref_moe_route,
    .moe_combine = tern_ref_moe_combine,
    .pack = tern_ref_pack,
    .packed_bytes = tern_ref_packed_bytes,
    .has_f64 = true,
};

tern_status tern_ref_open(struct tern_device **out)
{
    struct tern_device *device = tern_alloc_zero("device", 1, sizeof *device);
    if (device == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for the reference device");
    }
    device->ops = &g_ref_ops;
    *out = device;
    return TERN_OK;
}
