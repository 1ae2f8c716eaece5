/* device.c - opening the CPU backend: its op table, its memory, its workspace. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/packed.h"
#include "kernels/cpu/threads.h"
#include "kernels/host.h"
#include "runtime/base/mem.h"

#include <string.h>

static size_t max_bytes(size_t a, size_t b)
{
    return a > b ? a : b;
}

static tern_status cpu_queue(struct tern_device *device, const char *name, struct tern_device **out)
{
    (void)device;
    (void)name;
    return tern_cpu_open(1, out); /* the caller's own thread: it works beside the compute threads */
}

/* Copies and fills go through the pool in pieces: one core alone does not reach the memory's
 * bandwidth. */
enum {
    COPY_PIECE_BYTES = 1 << 20
};

struct copy_job {
    char *dst;
    const char *src; /* NULL: fill with zeros */
    size_t bytes;
};

static void copy_task(void *arg, int64_t task, int thread)
{
    const struct copy_job *job = arg;
    size_t first = (size_t)task * COPY_PIECE_BYTES;
    size_t left = job->bytes - first;
    size_t bytes = left < COPY_PIECE_BYTES ? left : COPY_PIECE_BYTES;
    (void)thread;
    if (job->src == NULL) {
        memset(job->dst + first, 0, bytes);
    } else {
        memcpy(job->dst + first, job->src + first, bytes);
    }
}

static void run_copy(struct tern_device *device, struct copy_job job)
{
    int64_t pieces = (int64_t)((job.bytes + COPY_PIECE_BYTES - 1) / COPY_PIECE_BYTES);
    tern_cpu_parallel(tern_cpu_device_of(device), pieces, copy_task, &job);
}

static tern_status cpu_copy(struct tern_device *device,
                            struct tern_dptr dst,
                            struct tern_dptr src,
                            size_t bytes)
{
    char *to = tern_cpu_ptr(dst);
    const char *from = tern_cpu_ptr(src);
    if (bytes == 0 || to == from) {
        return TERN_OK;
    }
    if (to < from + bytes && from < to + bytes) {
        memmove(to, from, bytes); /* pieces of an overlapping copy would race */
        return TERN_OK;
    }
    run_copy(device, (struct copy_job){.dst = to, .src = from, .bytes = bytes});
    return TERN_OK;
}

static tern_status cpu_zero(struct tern_device *device, struct tern_dptr dst, size_t bytes)
{
    run_copy(device, (struct copy_job){.dst = tern_cpu_ptr(dst), .bytes = bytes});
    return TERN_OK;
}

static void cpu_close(struct tern_device *device)
{
    struct tern_cpu_device *cpu = tern_cpu_device_of(device);
    if (cpu == NULL) {
        return;
    }
    tern_cpu_pool_destroy(cpu->pool);
    tern_free(cpu->shared);
    tern_free(cpu->scratch);
    tern_free(cpu);
}

/* Grows *block to `bytes`; its contents are not kept. */
static tern_status grow(const char *tag, void **block, size_t *block_bytes, size_t bytes)
{
    if (bytes <= *block_bytes) {
        return TERN_OK;
    }
    void *grown = tern_alloc(tag, bytes);
    if (grown == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cpu: no memory for the %s (%zu bytes)", tag, bytes);
    }
    tern_free(*block);
    *block = grown;
    *block_bytes = bytes;
    return TERN_OK;
}

static tern_status cpu_prepare(struct tern_device *device,
                               const struct tern_op_limits *limits,
                               size_t *bytes_out)
{
    struct tern_cpu_device *cpu = tern_cpu_device_of(device);
    size_t shared = 0, scratch = 0;
    tern_cpu_gemm_needs(limits, cpu->threads, &shared, &scratch);
    size_t ops_shared = 0, ops_scratch = 0;
    tern_cpu_ops_needs(limits, cpu->threads, &ops_shared, &ops_scratch);
    shared = max_bytes(shared, ops_shared);
    scratch = max_bytes(scratch, ops_scratch);
    tern_cpu_packed_needs(limits, &ops_shared, &ops_scratch);
    shared = max_bytes(shared, ops_shared);
    scratch = max_bytes(scratch, ops_scratch);
    /* Slices of two threads never share a cache line, nor a page. */
    scratch = (max_bytes(scratch, cpu->scratch_bytes) + 4095) / 4096 * 4096;
    size_t all_bytes = cpu->scratch_bytes * (size_t)cpu->threads;
    void *all = cpu->scratch;
    TERN_RETURN_IF_ERR(grow("cpu workspace", &cpu->shared, &cpu->shared_bytes, shared));
    tern_status status =
        grow("cpu thread workspace", &all, &all_bytes, scratch * (size_t)cpu->threads);
    TERN_RETURN_IF_ERR(status);
    cpu->scratch = all;
    cpu->scratch_bytes = scratch;
    cpu->limits = *limits;
    if (bytes_out != NULL) {
        *bytes_out = cpu->shared_bytes + all_bytes;
    }
    return TERN_OK;
}

static const struct tern_device_table g_device_table = {
    .name = "cpu",
    .close = cpu_close,
    .queue = cpu_queue,
    TERN_HOST_SLOTS,
    .copy = cpu_copy,
    .zero = cpu_zero,
};

static const struct tern_ops g_cpu_ops = {
    .device = &g_device_table,
    .prepare = cpu_prepare,
    .gemm = tern_cpu_gemm,
    .embed_fwd = tern_cpu_embed_fwd,
    .embed_bwd = tern_cpu_embed_bwd,
    .norm_fwd = tern_cpu_norm_fwd,
    .norm_bwd = tern_cpu_norm_bwd,
    .bias_bwd = tern_cpu_bias_bwd,
    .attention_fwd = tern_cpu_attention_fwd,
    .attention_bwd = tern_cpu_attention_bwd,
    .kv_block_bytes = tern_cpu_kv_block_bytes,
    .kv_write = tern_cpu_kv_write,
    .paged_attention = tern_cpu_paged_attention,
    .rope = tern_cpu_rope,
    .act_fwd = tern_cpu_act_fwd,
    .act_bwd = tern_cpu_act_bwd,
    .glu_fwd = tern_cpu_glu_fwd,
    .glu_bwd = tern_cpu_glu_bwd,
    .add = tern_cpu_add,
    .cross_entropy = tern_cpu_cross_entropy,
    .adamw = tern_cpu_adamw,
    .sumsq = tern_cpu_sumsq,
    .clip = tern_host_clip,
    .cast = tern_cpu_cast,
    .softcap = tern_cpu_softcap,
    .moe_route = tern_cpu_moe_route,
    .moe_combine = tern_cpu_moe_combine,
    .pack = tern_cpu_pack,
    .packed_bytes = tern_cpu_packed_bytes,
};

void tern_cpu_parallel(struct tern_cpu_device *device, int64_t count, tern_cpu_task task, void *arg)
{
    tern_cpu_pool_run(device->pool, count, task, arg);
}

const char *tern_cpu_reason(void)
{
    return "";
}

tern_status tern_cpu_open(int threads, struct tern_device **out)
{
    *out = NULL;
    if (threads < 0 || threads > TERN_CPU_THREADS_MAX) {
        return tern_fail(TERN_ERR_ARGUMENT, "cpu: %d threads, expected 0 (one a core) to %d",
                         threads, TERN_CPU_THREADS_MAX);
    }
    enum tern_cpu_level level;
    TERN_RETURN_IF_ERR(tern_cpu_level_allowed(&level));
    struct tern_cpu_device *cpu = tern_alloc_zero("cpu device", 1, sizeof *cpu);
    if (cpu == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cpu: no memory for the device");
    }
    tern_status status;
    const struct tern_op_limits least = {.rows = 1,
                                         .sequence = 1,
                                         .width = 1,
                                         .heads = 1,
                                         .kv_heads = 1,
                                         .head_width = 1,
                                         .batch = 1,
                                         .vocab = 1};
    cpu->base.ops = &g_cpu_ops;
    cpu->threads = tern_cpu_thread_count(threads);
    cpu->level = tern_cpu_gemm_level_checked(level);
    TERN_GOTO_IF_ERR(status, tern_cpu_pool_create(cpu->threads, &cpu->pool), fail);
    TERN_GOTO_IF_ERR(status, cpu_prepare(&cpu->base, &least, NULL), fail);
    *out = &cpu->base;
    return TERN_OK;

fail:
    cpu_close(&cpu->base);
    return status;
}
