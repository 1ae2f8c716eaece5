/* device.h - the seam to where tensors live. A device address on the host is a struct around a number, so that
 * code which dereferences one does not compile; only kernels/ turn it into a pointer. On the CPU backends device
 * memory is host memory and every operation is complete when its call returns. */
#ifndef TERN_RUNTIME_BASE_DEVICE_H
#define TERN_RUNTIME_BASE_DEVICE_H

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_dptr {
    uint64_t addr; /* 0: none */
};

static inline struct tern_dptr tern_dptr_at(struct tern_dptr base,
                                            int64_t index,
                                            enum tern_dtype dtype)
{
    return (struct tern_dptr){base.addr + (uint64_t)index * tern_dtype_bytes(dtype)};
}

static inline bool tern_dptr_is_null(struct tern_dptr p)
{
    return p.addr == 0;
}

struct tern_device; /* one device of one backend, with its compute stream */

/* What every backend offers below the ops: memory and copies, ordered on the device's compute stream. */
struct tern_device_table {
    const char *name; /* "ref", "cpu", "cuda" */
    void (*close)(struct tern_device *device);
    /* Cleared to zero; on the host large blocks take their pages when first touched. */
    tern_status (*alloc)(struct tern_device *device,
                         const char *tag,
                         size_t bytes,
                         struct tern_dptr *out);
    void (*free)(struct tern_device *device, struct tern_dptr p);
    tern_status (*upload)(struct tern_device *device,
                          struct tern_dptr dst,
                          const void *src,
                          size_t bytes);
    tern_status (*download)(struct tern_device *device,
                            void *dst,
                            struct tern_dptr src,
                            size_t bytes);
    tern_status (*copy)(struct tern_device *device,
                        struct tern_dptr dst,
                        struct tern_dptr src,
                        size_t bytes);
    tern_status (*zero)(struct tern_device *device, struct tern_dptr dst, size_t bytes);
    /* Returns when everything enqueued is done; the first asynchronous error comes out here. */
    tern_status (*sync)(struct tern_device *device);
    /* Host view of device memory when it is host memory, else NULL. */
    void *(*host_view)(struct tern_device *device, struct tern_dptr p);
};

#endif
