/* device.c - the counting backend: an op adds its cost to a row and its time to the queue's clock. */
#include "bench/roofline/roofline.h"
#include "kernels/cost.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    /* a guess at cuBLASLt's workspace, partial sums and the like; the plugin alone knows */
    WORKSPACE_BYTES = 256 << 20
};

struct roof_device {
    struct tern_device base;
    struct tern_roof_gpu gpu;
    double now;
    struct tern_roof_count count;
};

static struct roof_device *of(struct tern_device *device)
{
    return (struct roof_device *)device;
}

static tern_status add(struct tern_device *base,
                       const char *label,
                       struct tern_cost cost,
                       double seconds,
                       bool is_product)
{
    struct roof_device *device = of(base);
    struct tern_roof_count *count = &device->count;
    int i = 0;
    while (i < count->row_count && strcmp(count->rows[i].label, label) != 0) {
        i++;
    }
    struct tern_roof_row *row = &count->rows[i];
    if (i == count->row_count) {
        TERN_CHECK(count->row_count < TERN_ROOF_ROWS_MAX);
        count->row_count++;
        *row = (struct tern_roof_row){.is_product = is_product};
        snprintf(row->label, sizeof row->label, "%s", label);
    }
    seconds += device->gpu.assumed.gap_seconds;
    row->calls++;
    row->seconds += seconds;
    row->flops += cost.flops;
    row->bytes += cost.bytes;
    device->now += seconds;
    return TERN_OK;
}

/* ---- ops ---- */

#define MEMORY_OP(op) \
    static tern_status roof_##op(struct tern_device *device, const struct tern_##op##_args *args) \
    { \
        struct tern_cost cost = tern_cost_##op(args); \
        double seconds = tern_roof_memory_seconds(&of(device)->gpu, cost.flops, cost.bytes); \
        return add(device, #op, cost, seconds, false); \
    }
#define tern_act_fwd_args tern_act_args
#define tern_act_bwd_args tern_act_args
#define tern_glu_fwd_args tern_glu_args
#define tern_glu_bwd_args tern_glu_args
MEMORY_OP(embed_fwd)
MEMORY_OP(embed_bwd)
MEMORY_OP(norm_fwd)
MEMORY_OP(norm_bwd)
MEMORY_OP(rope)
MEMORY_OP(act_fwd)
MEMORY_OP(act_bwd)
MEMORY_OP(glu_fwd)
MEMORY_OP(glu_bwd)
MEMORY_OP(add)
MEMORY_OP(cross_entropy)
MEMORY_OP(adamw)
MEMORY_OP(bias_bwd)
MEMORY_OP(cast)

static tern_status add_gemm(struct tern_device *device,
                            const struct tern_gemm_args *args,
                            const char *beside)
{
    static const char *const epilogues[] = {"", " +bias", " +bias+gelu", " *gelu'"};
    char label[TERN_ROOF_LABEL_BYTES];
    snprintf(label, sizeof label, "gemm %lld x %lld x %lld%s%s%s%s%s", (long long)args->m,
             (long long)args->n, (long long)args->k, args->trans_a ? " a^T" : "",
             args->trans_b ? " b^T" : "", args->accumulate ? " +=" : "", epilogues[args->epilogue],
             beside);
    return add(device, label, tern_cost_gemm(args), tern_roof_gemm_seconds(&of(device)->gpu, args),
               true);
}

static tern_status roof_gemm(struct tern_device *device, const struct tern_gemm_args *args)
{
    return add_gemm(device, args, "");
}

/* The sums come with the product, from what it has loaded: assumed to cost nothing. Added to sums of before they lie in a
 * buffer of their own, which takes a small kernel. */
static tern_status roof_gemm_bias_bwd(struct tern_device *device,
                                      const struct tern_gemm_bias_bwd_args *args)
{
    struct tern_bias_bwd_args half = tern_gemm_bias_bwd_half(args);
    struct tern_cost fold = {0, 12 * (double)half.n};
    TERN_RETURN_IF_ERR(add_gemm(device, &args->gemm, ", dbias"));
    return args->gemm.accumulate
               ? add(device, "dbias +=", fold,
                     tern_roof_memory_seconds(&of(device)->gpu, fold.flops, fold.bytes), false)
               : TERN_OK;
}

static tern_status roof_attention_fwd(struct tern_device *device,
                                      const struct tern_attention_args *args)
{
    return add(device, "attention_fwd", tern_cost_attention_fwd(args),
               tern_roof_attention_seconds(&of(device)->gpu, args, false), true);
}

static tern_status roof_attention_bwd(struct tern_device *device,
                                      const struct tern_attention_args *args)
{
    return add(device, "attention_bwd", tern_cost_attention_bwd(args),
               tern_roof_attention_seconds(&of(device)->gpu, args, true), true);
}

static tern_status roof_sumsq(struct tern_device *device, const struct tern_sumsq_args *args)
{
    const int64_t *starts = (const int64_t *)(uintptr_t)args->starts.addr;
    struct tern_cost cost = tern_cost_sumsq(args, starts[args->blocks] - starts[0]);
    return add(device, "sumsq", cost,
               tern_roof_memory_seconds(&of(device)->gpu, cost.flops, cost.bytes), false);
}

/* One addition after the other, whatever the bandwidth. */
static tern_status roof_clip(struct tern_device *device, const struct tern_clip_args *args)
{
    return add(device, "clip", tern_cost_clip(args),
               (double)args->blocks * of(device)->gpu.assumed.addition_seconds, false);
}

static tern_status roof_prepare(struct tern_device *device,
                                const struct tern_op_limits *limits,
                                size_t *bytes_out)
{
    (void)device;
    (void)limits;
    *bytes_out = WORKSPACE_BYTES;
    return TERN_OK;
}

/* ---- memory and copies ---- */

static tern_status roof_copy_bytes(struct tern_device *device, const char *label, double bytes)
{
    return add(device, label, (struct tern_cost){0, bytes},
               tern_roof_memory_seconds(&of(device)->gpu, 0, bytes), false);
}

/* Address space only: pages come when an upload touches them. The size is kept in front. */
static tern_status roof_alloc(struct tern_device *device,
                              const char *tag,
                              size_t bytes,
                              struct tern_dptr *out)
{
    (void)device;
    size_t page = 4096;
    char *block = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) {
        return tern_fail_errno(TERN_ERR_MEMORY, errno, "no address space for %zu bytes of %s",
                               bytes, tag);
    }
    memcpy(block, &bytes, sizeof bytes);
    out->addr = (uint64_t)(uintptr_t)(block + page);
    return TERN_OK;
}

static void roof_free(struct tern_device *device, struct tern_dptr p)
{
    (void)device;
    size_t page = 4096;
    size_t bytes;
    if (p.addr != 0) {
        char *block = (char *)(uintptr_t)p.addr - page; /* NOLINT(performance-no-int-to-ptr) */
        memcpy(&bytes, block, sizeof bytes);
        munmap(block, bytes + page);
    }
}

static void *roof_pin(struct tern_device *device, const char *tag, size_t bytes)
{
    (void)device;
    return tern_alloc_zero(tag, 1, bytes);
}

static void roof_unpin(struct tern_device *device, void *block)
{
    (void)device;
    tern_free(block);
}

/* Over PCIe behind the computation: no time of the queue's. */
static tern_status roof_upload(struct tern_device *device,
                               struct tern_dptr dst,
                               const void *src,
                               size_t bytes)
{
    (void)device;
    memcpy((void *)(uintptr_t)dst.addr, src, bytes); /* NOLINT(performance-no-int-to-ptr) */
    return TERN_OK;
}

static tern_status roof_download(struct tern_device *device,
                                 void *dst,
                                 struct tern_dptr src,
                                 size_t bytes)
{
    (void)device;
    memcpy(dst, (const void *)(uintptr_t)src.addr, bytes); /* NOLINT(performance-no-int-to-ptr) */
    return TERN_OK;
}

static tern_status roof_copy(struct tern_device *device,
                             struct tern_dptr dst,
                             struct tern_dptr src,
                             size_t bytes)
{
    (void)dst;
    (void)src;
    return roof_copy_bytes(device, "copy", 2.0 * (double)bytes);
}

static tern_status roof_zero(struct tern_device *device, struct tern_dptr dst, size_t bytes)
{
    (void)dst;
    return roof_copy_bytes(device, "zero", (double)bytes);
}

static tern_status roof_sync(struct tern_device *device)
{
    (void)device; /* the host waits, and no queue for it: what it needs it reads a step late */
    return TERN_OK;
}

static void *roof_host_view(struct tern_device *device, struct tern_dptr p)
{
    (void)device;
    (void)p;
    return NULL;
}

static void *roof_native(struct tern_device *device)
{
    (void)device;
    return NULL;
}

static tern_status roof_queue(struct tern_device *device,
                              const char *name,
                              struct tern_device **out)
{
    (void)name;
    return tern_roof_device_open(&of(device)->gpu, out);
}

static tern_status roof_after(struct tern_device *device, struct tern_device *earlier)
{
    tern_roof_device_wait_until(device, of(earlier)->now);
    return TERN_OK;
}

static tern_status roof_memory(struct tern_device *device, int64_t *free_out, int64_t *total_out)
{
    *total_out = (int64_t)(of(device)->gpu.machine->memory_gib * (1 << 30));
    *free_out = *total_out;
    return TERN_OK;
}

static void roof_close(struct tern_device *device)
{
    tern_free(device);
}

static const struct tern_device_table g_table = {
    .name = "roofline",
    .close = roof_close,
    .queue = roof_queue,
    .after = roof_after,
    .memory = roof_memory,
    .alloc = roof_alloc,
    .free = roof_free,
    .pin = roof_pin,
    .unpin = roof_unpin,
    .upload = roof_upload,
    .download = roof_download,
    .upload_begin = roof_upload,
    .download_begin = roof_download,
    .copy = roof_copy,
    .zero = roof_zero,
    .sync = roof_sync,
    .host_view = roof_host_view,
    .native = roof_native,
};

static const struct tern_ops g_ops = {
    .device = &g_table,
    .prepare = roof_prepare,
    .embed_fwd = roof_embed_fwd,
    .embed_bwd = roof_embed_bwd,
    .norm_fwd = roof_norm_fwd,
    .norm_bwd = roof_norm_bwd,
    .gemm = roof_gemm,
    .bias_bwd = roof_bias_bwd,
    .gemm_bias_bwd = roof_gemm_bias_bwd,
    .attention_fwd = roof_attention_fwd,
    .attention_bwd = roof_attention_bwd,
    .rope = roof_rope,
    .act_fwd = roof_act_fwd,
    .act_bwd = roof_act_bwd,
    .glu_fwd = roof_glu_fwd,
    .glu_bwd = roof_glu_bwd,
    .add = roof_add,
    .cross_entropy = roof_cross_entropy,
    .adamw = roof_adamw,
    .sumsq = roof_sumsq,
    .clip = roof_clip,
    .cast = roof_cast,
};

tern_status tern_roof_device_open(const struct tern_roof_gpu *gpu, struct tern_device **out)
{
    struct roof_device *device = tern_alloc_zero("roofline", 1, sizeof *device);
    if (device == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a queue");
    }
    device->base.ops = &g_ops;
    device->gpu = *gpu;
    *out = &device->base;
    return TERN_OK;
}

double tern_roof_device_now(const struct tern_device *device)
{
    return ((const struct roof_device *)device)->now;
}

void tern_roof_device_wait_until(struct tern_device *device, double seconds)
{
    struct roof_device *d = of(device);
    d->now = seconds > d->now ? seconds : d->now;
}

const struct tern_roof_count *tern_roof_device_count(const struct tern_device *device)
{
    return &((const struct roof_device *)device)->count;
}
