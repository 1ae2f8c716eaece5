/* cases.h - small CUDA programs, right ones and wrong ones, for self_test.c: each a function of a name. */
#ifndef TERN_TESTS_CUSIM_CASES_H
#define TERN_TESTS_CUSIM_CASES_H

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/warp.cuh"

#include <stdio.h>
#include <stdlib.h>

struct test_case {
    const char *name;
    void (*run)();
};

/* Ends the program with the exit code of a failed case when `condition` does not hold. */
#define EXPECT(condition) expect((condition), #condition, __FILE__, __LINE__)

static inline void expect(bool is_true, const char *condition, const char *file, int line)
{
    if (!is_true) {
        fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
        exit(1);
    }
}

/* Device memory of n elements, from the host's, or not written; freed by the case unless that is its point. */
template <typename T> static inline T *device_array(size_t n, const T *host = nullptr)
{
    T *block;
    EXPECT(cudaMalloc(&block, n * sizeof(T)) == cudaSuccess);
    if (host != nullptr) {
        EXPECT(cudaMemcpy(block, host, n * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
    }
    return block;
}

/* Device memory of n zeros. */
template <typename T> static inline T *device_zeros(size_t n)
{
    T *block = device_array<T>(n);
    EXPECT(cudaMemset(block, 0, n * sizeof(T)) == cudaSuccess);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    return block;
}

/* A stream of its own; the legacy default stream would order what should not be ordered. */
static inline cudaStream_t new_stream()
{
    cudaStream_t stream;
    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

static inline cudaEvent_t new_event()
{
    cudaEvent_t event;
    EXPECT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    return event;
}

extern const test_case g_thread_cases[], g_memory_cases[], g_stream_cases[], g_graph_cases[],
    g_product_cases[];

#endif
