/* cuda_plugin.h - libtern_cuda.so as the program sees it: one symbol, a version, and what it needs of the program.
 *
 * The plugin links CUDA and nothing of tern, so that the same tern runs where no CUDA library is installed. Its parts
 * are two tables, one of kernels/ (kernels/cuda/plugin.h) and one of comm/ (comm/nccl/plugin.h). */
#ifndef TERN_RUNTIME_BASE_CUDA_PLUGIN_H
#define TERN_RUNTIME_BASE_CUDA_PLUGIN_H

#include "runtime/base/log.h"
#include "runtime/base/status.h"

#include <stdint.h>

/* Counted up with any change of the tables, of runtime/base/device.h, kernels/ops.h, comm/comm.h or status.h. */
enum {
    TERN_CUDA_PLUGIN_VERSION = 2
};

/* Services of the program for the plugin. */
struct tern_cuda_host {
    void *(*alloc)(const char *tag, size_t bytes);
    void (*free)(void *block);
    void (*fail)(tern_status status, const char *sentence); /* records it for the calling thread */
    const char *(*detail)(void);
    void (*log)(enum tern_log_level level, const char *sentence);
};

struct tern_cuda_kernels;
struct tern_cuda_comm;

struct tern_cuda_plugin {
    uint32_t version;      /* TERN_CUDA_PLUGIN_VERSION */
    uint32_t status_count; /* TERN_STATUS_COUNT: a guard against a mixed build */
    void (*attach)(const struct tern_cuda_host *host); /* before any other call */
    const struct tern_cuda_kernels *kernels;
    const struct tern_cuda_comm *comm;
};
#define TERN_CUDA_PLUGIN_SYMBOL "tern_cuda_plugin"

/* Loads it once for the process: TERN_CUDA_PLUGIN if set, else beside the executable when there is an NVIDIA driver.
 * NULL when it can't be used: *reason_out then says why. Never fails otherwise; any thread. Stays loaded. */
const struct tern_cuda_plugin *tern_cuda_plugin_load(const char **reason_out);

#endif
