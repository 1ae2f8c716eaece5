/* host.c - device memory that is host memory: plain allocations and copies, nothing asynchronous. */
#include "kernels/host.h"

#include "runtime/base/mem.h"

#include <math.h>
#include <string.h>

static void *at(struct tern_dptr p)
{
    return (void *)(uintptr_t)p.addr; /* NOLINT(performance-no-int-to-ptr) */
}

tern_status tern_host_after(struct tern_device *device, struct tern_device *earlier)
{
    (void)device;
    (void)earlier;
    return TERN_OK;
}

tern_status tern_host_memory(struct tern_device *device, int64_t *free_out, int64_t *total_out)
{
    (void)device;
    (void)free_out;
    (void)total_out;
    return TERN_ERR_UNSUPPORTED;
}

void *tern_host_pin(struct tern_device *device, const char *tag, size_t bytes)
{
    (void)device;
    return tern_alloc_zero(tag, 1, bytes);
}

void tern_host_unpin(struct tern_device *device, void *block)
{
    (void)device;
    tern_free(block);
}

tern_status tern_host_alloc(struct tern_device *device,
                            const char *tag,
                            size_t bytes,
                            struct tern_dptr *out)
{
    (void)device;
    void *block = tern_alloc_zero(tag, 1, bytes);
    if (block == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for %zu bytes of %s", bytes, tag);
    }
    out->addr = (uint64_t)(uintptr_t)block;
    return TERN_OK;
}

void tern_host_free(struct tern_device *device, struct tern_dptr p)
{
    (void)device;
    tern_free(at(p));
}

tern_status tern_host_upload(struct tern_device *device,
                             struct tern_dptr dst,
                             const void *src,
                             size_t bytes)
{
    (void)device;
    if (bytes > 0) {
        memcpy(at(dst), src, bytes);
    }
    return TERN_OK;
}

tern_status tern_host_download(struct tern_device *device,
                               void *dst,
                               struct tern_dptr src,
                               size_t bytes)
{
    (void)device;
    if (bytes > 0) {
        memcpy(dst, at(src), bytes);
    }
    return TERN_OK;
}

tern_status tern_host_sync(struct tern_device *device)
{
    (void)device;
    return TERN_OK;
}

void *tern_host_view(struct tern_device *device, struct tern_dptr p)
{
    (void)device;
    return at(p);
}

void *tern_host_native(struct tern_device *device)
{
    (void)device;
    return NULL;
}

tern_status tern_host_clip(struct tern_device *device, const struct tern_clip_args *args)
{
    (void)device;
    const double *values = at(args->values);
    const int64_t *order = at(args->order);
    double total = 0;
    for (int64_t i = 0; i < args->blocks; i++) {
        total += values[order[i]];
    }
    double norm = sqrt(total) / args->count;
    bool is_finite = isfinite(norm);
    for (int64_t i = args->blocks; i < args->blocks + args->losses; i++) {
        is_finite = is_finite && isfinite(values[order[i]]);
    }
    double coefficient = args->max_norm > 0 ? args->max_norm / (norm + 1e-6) : 1;
    coefficient = coefficient < 1 ? coefficient : 1;
    *(double *)at(args->total) = total;
    *(float *)at(args->scale) = is_finite ? (float)(coefficient / args->count) : NAN;
    return TERN_OK;
}
