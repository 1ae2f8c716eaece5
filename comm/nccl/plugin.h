/* plugin.h - what libtern_cuda.so offers comm/: communicators between GPUs. Plain C on both sides. */
#ifndef TERN_COMM_NCCL_PLUGIN_H
#define TERN_COMM_NCCL_PLUGIN_H

#include "comm/comm.h"

struct tern_nccl_options {
    struct tern_comm *
        host; /* the same ranks over host memory: carries the unique id, and outlives the communicator */
    struct tern_device *
        compute; /* the queue whose work the communicator's jobs wait for, and that waits for them */
    struct tern_device
        *queue; /* the communicator's own queue: jobs are enqueued on it, and their additions */
    const struct tern_device_table *table; /* of both: native() gives a cudaStream_t */
    int ordinal;                           /* the GPU that both are on */
    /* How long a collective may take before the watchdog names who is late, and ends the job with exit code 34. */
    int64_t limit_ns;
    /* Services of the program. enter: this thread is inside a job of the communicator (NULL: no more). */
    void (*enter)(const struct tern_comm *comm);
    tern_status (*all_gather)(struct tern_comm *host, const void *in, size_t bytes, void *out);
    void (*fault)(void); /* passes the fault point comm.collective */
    struct tern_comm_farewell farewell;
};

enum {
    TERN_NCCL_PATH_BYTES = 512,
    TERN_NCCL_REASON_BYTES = TERN_NCCL_PATH_BYTES + 256
};

/* What NCCL is here, for --version and doctor. */
struct tern_nccl_info {
    int version;       /* 22809 is 2.28.9; 0: it can't be used, and reason says why */
    int built_version; /* of the header that the plugin was compiled with */
    bool can_register; /* buffers made known to the network (2.19) */
    bool can_shrink;   /* going on without a rank (2.27.3) */
    bool can_revoke;   /* stopping what is under way without ending the communicator (2.28.7) */
    char path[TERN_NCCL_PATH_BYTES];
    char reason[TERN_NCCL_REASON_BYTES];
};

struct tern_cuda_comm {
    uint32_t comm_bytes; /* sizeof (struct tern_comm): a guard against a mixed build */
    /* Collective over options->host. Owned: close with its table. Without a peer (size 1) NCCL is not needed. */
    tern_status (*open)(const struct tern_nccl_options *options, struct tern_comm **out);
    void (*info)(struct tern_nccl_info *out);
};

#endif
