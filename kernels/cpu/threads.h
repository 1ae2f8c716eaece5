/* threads.h - a pool of compute threads that share one loop at a time. */
#ifndef TERN_KERNELS_CPU_THREADS_H
#define TERN_KERNELS_CPU_THREADS_H

#include "kernels/cpu/cpu.h"

enum {
    TERN_CPU_THREADS_MAX = 1024
};

/* Threads for a request: itself, or the size of this process's affinity mask when it is 0. */
int tern_cpu_thread_count(int requested);
/* Starts threads - 1 workers; the caller of tern_cpu_pool_run is thread 0. *out is owned. */
TERN_MUST_CHECK tern_status tern_cpu_pool_create(int threads, struct tern_cpu_pool **out);
void tern_cpu_pool_destroy(struct tern_cpu_pool *pool);
/* As tern_cpu_parallel. One caller at a time. */
void tern_cpu_pool_run(struct tern_cpu_pool *pool, int64_t count, tern_cpu_task task, void *arg);

#endif
