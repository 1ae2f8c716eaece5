/* host.h - the part of a device table, and the one op, that are the same on every backend whose device memory is
 * host memory. */
#ifndef TERN_KERNELS_HOST_H
#define TERN_KERNELS_HOST_H

#include "kernels/ops.h"

tern_status tern_host_after(struct tern_device *device, struct tern_device *earlier);
/* TERN_ERR_UNSUPPORTED: the plan asks the operating system (runtime/plan/bill.h). */
tern_status tern_host_memory(struct tern_device *device, int64_t *free_out, int64_t *total_out);
void *tern_host_pin(struct tern_device *device, const char *tag, size_t bytes);
void tern_host_unpin(struct tern_device *device, void *block);
tern_status tern_host_alloc(struct tern_device *device,
                            const char *tag,
                            size_t bytes,
                            struct tern_dptr *out);
void tern_host_free(struct tern_device *device, struct tern_dptr p);
tern_status tern_host_upload(struct tern_device *device,
                             struct tern_dptr dst,
                             const void *src,
                             size_t bytes);
tern_status tern_host_download(struct tern_device *device,
                               void *dst,
                               struct tern_dptr src,
                               size_t bytes);
tern_status tern_host_sync(struct tern_device *device);
void *tern_host_view(struct tern_device *device, struct tern_dptr p);
void *tern_host_native(struct tern_device *device);

/* The op of this name: a handful of numbers, the same bits on ref and cpu. */
tern_status tern_host_clip(struct tern_device *device, const struct tern_clip_args *args);

/* Their slots in a struct tern_device_table. */
/* clang-format off */
#define TERN_HOST_SLOTS \
    .alloc = tern_host_alloc, \
    .free = tern_host_free, \
    .after = tern_host_after, \
    .memory = tern_host_memory, \
    .pin = tern_host_pin, \
    .unpin = tern_host_unpin, \
    .upload = tern_host_upload, \
    .download = tern_host_download, \
    .upload_begin = tern_host_upload, \
    .download_begin = tern_host_download, \
    .sync = tern_host_sync, \
    .host_view = tern_host_view, \
    .native = tern_host_native
/* clang-format on */

#endif
