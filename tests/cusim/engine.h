/* engine.h - the simulated CUDA, for its own parts and for the stand-ins of cuBLASLt and NCCL. C and C++.
 *
 * Kernels run on the CPU: the threads of a block are fibers of one host thread, blocks run one after another, streams
 * are queues that are drained in an order drawn from a seed. Wrong programs end the process with a sentence that names
 * the kernel, block, thread and source line.
 *
 * A report ends with the line that runs the same again. A run is a function of its seed as long as one host thread calls
 * and cusim_run_in_background was not called (NCCL does). In a debugger: break on cusim_fail.
 *
 * What it cannot see: time; registers and occupancy (bench/gpu_static.sh); a mistake that the kernel and the simulator
 * share, such as the layout of a fragment (one run on a GPU settles that); the rounding of tensor cores and of fast math;
 * order by atomics and __threadfence (there are none); bytes as a race of neighbours (cells are two bytes); an index so
 * far out that it meets another allocation; host threads that touch device memory while a kernel runs; blocks that wait for
 * each other (they run one after another). Kernels built for AddressSanitizer have no access hooks, so no races there.
 *
 * Environment:
 *   CUSIM_SEED=7         the order of everything; the report of a failure names its own
 *   CUSIM_DEVICES=8      how many GPUs there are
 *   CUSIM_MEMORY_MB=4096 how much memory each has
 *   CUSIM_SPAN_MB=8192   addresses of each: fewer come round sooner
 */
#ifndef TERN_TESTS_CUSIM_ENGINE_H
#define TERN_TESTS_CUSIM_ENGINE_H

#include <cuda_runtime.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- memory ---- */

enum cusim_kind {
    CUSIM_NOWHERE,  /* the device's range, but not inside one live allocation */
    CUSIM_DEVICE,   /* cudaMalloc */
    CUSIM_PINNED,   /* cudaHostAlloc or cudaHostRegister */
    CUSIM_PAGEABLE, /* any other host memory */
};

/* Of the whole range. *device_out: whose memory it is (or where it was pinned), -1 for pageable; may be NULL. */
enum cusim_kind cusim_kind_of(const void *start, size_t bytes, int *device_out);

/* Where the engine itself reads and writes device memory, without any check; a host pointer comes back as it is. */
void *cusim_raw(const void *pointer);

/* ---- operations on a stream ---- */

enum cusim_step {
    CUSIM_DONE,
    CUSIM_NOT_YET, /* ask again later: it waits for another process or thread */
};

/* Memory that an operation touches: rows of row_bytes each, pitch_bytes apart; one row: pitch not used. */
struct cusim_range {
    const void *start;
    size_t row_bytes;
    size_t rows;
    size_t pitch_bytes;
};

enum {
    CUSIM_RANGES_MAX = 8
};

/* An operation of a stand-in library. Its turn comes when all before it on the stream is done; then `start` is called
 * once, if there is one, and `attempt` until it is done; a captured operation goes through that once a replay. `attempt` runs
 * under the engine's lock on any host thread, must not block and calls no CUDA function. `drop` is called once, when
 * neither the stream nor a graph needs `state` any more. */
struct cusim_op {
    const char *name; /* "cublasLtMatmul": for reports; lives for ever */
    void (*start)(void *state);
    enum cusim_step (*attempt)(void *state);
    void (*drop)(void *state);
    void *state;
    struct cusim_range reads[CUSIM_RANGES_MAX];
    struct cusim_range writes[CUSIM_RANGES_MAX];
    int read_count, write_count;
};

/* Copies *op. Errors: an unknown stream; then drop is not called. */
cudaError_t cusim_enqueue(cudaStream_t stream, const struct cusim_op *op);
bool cusim_is_capturing(cudaStream_t stream);
/* -1: no such stream. */
int cusim_stream_device(cudaStream_t stream);

/* From now on a thread of the engine drains the streams even when no host thread waits, as a GPU does: whoever waits
 * for another process needs it. The order of operations then is no longer the seed's alone. */
void cusim_run_in_background(void);

/* ---- seeds and reports ---- */

/* The engine's random numbers: call them with the engine's lock held (inside `attempt`), or at start-up. */
uint64_t cusim_random(void);
/* Uniform in [0, n). */
uint64_t cusim_random_below(uint64_t n);
uint64_t cusim_seed(void);

/* Prints "cusim: ..." with the kernel, block, thread and source line, if any, and how to run just that again; aborts. */
void cusim_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Things that must be given back before exit ("cublasLtHandle"): counted; what is left then is an error. */
void cusim_live(const char *what, int change);

#ifdef __cplusplus
}
#endif

#endif
