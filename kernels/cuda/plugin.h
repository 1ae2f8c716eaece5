/* plugin.h - what libtern_cuda.so offers kernels/: GPUs, their memory and the op table. Plain C on both sides. */
#ifndef TERN_KERNELS_CUDA_PLUGIN_H
#define TERN_KERNELS_CUDA_PLUGIN_H

#include "kernels/ops.h"

enum {
    TERN_CUDA_TEXT_BYTES = 256
};

/* What is here. Filled whatever is missing; reason is "" if and only if a device can be opened. */
struct tern_cuda_probe {
    char reason
        [TERN_CUDA_TEXT_BYTES]; /* no driver, too old, no device, compute capability too low, ... */
    int driver_version;         /* as CUDA says it: 13000 is 13.0; 0 none */
    int runtime_version;
    int device_count;
};

/* One GPU. */
struct tern_cuda_gpu {
    char name[TERN_CUDA_TEXT_BYTES];
    char pci[32];   /* "0000:17:00.0" */
    int capability; /* 90 is 9.0 */
    int multiprocessors;
    int64_t memory_bytes;
    double bytes_per_second; /* of its memory, by width and clock or the data sheet; 0 not known */
    double peak_bf16_flops;  /* dense, tensor cores, by the data sheet; 0 not known */
    double peak_f32_flops;
};

struct tern_cuda_kernels {
    uint32_t ops_bytes; /* sizeof (struct tern_ops): a guard against a mixed build */
    const char *build;  /* "CUDA 13.0, sm_80 sm_90 sm_100 and PTX" or "simulated" */
    void (*probe)(struct tern_cuda_probe *out);
    /* ordinal: among those that CUDA_VISIBLE_DEVICES leaves. */
    tern_status (*gpu)(int ordinal, struct tern_cuda_gpu *out);
    /* Owned: close with its table. */
    tern_status (*open)(int ordinal, struct tern_device **out);
    int (*ordinal)(const struct tern_device *device);
};

#endif
