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
    struct tern_dptr p = {base.addr + (uint64_t)index * tern_dtype_bytes(dtype)}; /* C++ too */
    return p;
}

static inline bool tern_dptr_is_null(struct tern_dptr p)
{
    return p.addr == 0;
}

struct tern_device; /* a queue of work on one device of one backend */

/* What every backend offers below the ops: memory and copies, in the order of the device's queue (a CUDA stream). On
 * the host backends everything is done when the call returns. A second queue on the same device (`queue`) has an order
 * of its own; `after` is the edge between two. Only alloc, free, pin, unpin and the uploads may be called by several
 * threads at once. */
struct tern_device_table {
    const char *name; /* "ref", "cpu", "cuda" */
    void (*close)(struct tern_device *device);
    /* Another queue on the same device; shares its memory. Closed on its own, before the device that it came from. */
    tern_status (*queue)(struct tern_device *device, const char *name, struct tern_device **out);
    /* What is enqueued on `device` from now on starts after all that is enqueued on `earlier` so far. */
    tern_status (*after)(struct tern_device *device, struct tern_device *earlier);
    /* Bytes of the device's memory: free now, and in all. */
    tern_status (*memory)(struct tern_device *device, int64_t *free_out, int64_t *total_out);
    /* Cleared to zero; on the host large blocks take their pages when first touched. */
    tern_status (*alloc)(struct tern_device *device,
                         const char *tag,
                         size_t bytes,
                         struct tern_dptr *out);
    void (*free)(struct tern_device *device, struct tern_dptr p);
    /* Host memory that the device copies from and to at full speed, cleared; NULL when there is none. Owned: unpin. */
    void *(*pin)(struct tern_device *device, const char *tag, size_t bytes);
    void (*unpin)(struct tern_device *device, void *block);
    /* src may be changed as soon as upload returns; dst is filled when download returns. */
    tern_status (*upload)(struct tern_device *device,
                          struct tern_dptr dst,
                          const void *src,
                          size_t bytes);
    tern_status (*download)(struct tern_device *device,
                            void *dst,
                            struct tern_dptr src,
                            size_t bytes);
    /* The same without waiting: the host block is pinned and left alone until the queue has come that far. */
    tern_status (*upload_begin)(struct tern_device *device,
                                struct tern_dptr dst,
                                const void *src,
                                size_t bytes);
    tern_status (*download_begin)(struct tern_device *device,
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
    /* The queue as its library knows it (a cudaStream_t), else NULL. */
    void *(*native)(struct tern_device *device);
    /* Records what is enqueued between begin and end, without running it, as a graph that replay runs as often as asked:
     * with the same addresses and numbers. NULL where there is nothing to win. Owned: forget. */
    tern_status (*record_begin)(struct tern_device *device);
    tern_status (*record_end)(struct tern_device *device, void **graph_out);
    tern_status (*replay)(struct tern_device *device, void *graph);
    void (*forget)(struct tern_device *device, void *graph);
};

#endif
