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
    /* comm.c's tern_comm_enter: tells the program that this thread is inside a job of the communicator */
    void (*enter)(const struct tern_comm *comm);
};

struct tern_cuda_comm {
    uint32_t comm_bytes; /* sizeof (struct tern_comm): a guard against a mixed build */
    /* Collective over options->host. Owned: close with its table. */
    tern_status (*open)(const struct tern_nccl_options *options, struct tern_comm **out);
};

#endif
