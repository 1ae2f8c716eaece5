/* blas_plan.c - which algorithm a piece of a product is run with.
 *
 * The promise of every backend is that sums have a fixed order for a given shape, and training's is more: the same bits
 * on any number of GPUs. So the usual choice is the library's own first, under a mask that leaves only fixed orders
 * (blas_lt.c): a pure function of the shape, the GPU model and the library's version, the same in every process.
 * Nothing has to be sent between ranks.
 *
 * Timing finds faster ones, but two ranks may measure differently and then sum differently. It happens only where the
 * caller allows that (tern_op_limits.may_tune: `deterministic: false`, benchmarks), and what it finds is kept in a
 * file. Who wants both gives every rank the same finished file by TERN_CUDA_CACHE: then its plans are taken without
 * timing, and they too are the same everywhere. A file that nobody named is not read without may_tune, since another
 * machine's cache would hold other plans. */
#include "kernels/cuda/blas_lt.h"
#include "runtime/base/log.h"

enum {
    CANDIDATES = 16, /* timed for each route */
    RUNS_MAX = 20,   /* in a batch between two events */
    BATCHES = 3,     /* the fastest counts */
    BATCH_MICROSECONDS = 2000,
};

/* Somewhere else to write while algorithms are tried: the caller's outputs stay as they are. */
struct stage {
    void *block;
    struct tern_blas_operands operands;
    cudaEvent_t begin, end;
};

static size_t output_bytes(const struct tern_blas_key *key)
{
    size_t elements = (size_t)(key->m - 1) * (size_t)key->ldd + (size_t)key->n;
    size_t bytes = elements * tern_dtype_bytes((enum tern_dtype)key->d_dtype);
    return (bytes + TERN_CUDA_ALIGN - 1) / TERN_CUDA_ALIGN * TERN_CUDA_ALIGN;
}

static void close_stage(struct stage *stage)
{
    if (stage->begin != NULL) {
        cudaEventDestroy(stage->begin);
    }
    if (stage->end != NULL) {
        cudaEventDestroy(stage->end);
    }
    cudaFree(stage->block); /* waits for the GPU */
}

/* False when there is no memory to spare for it. */
static bool open_stage(struct tern_cuda_device *device,
                       const struct tern_blas_key *key,
                       const struct tern_blas_operands *operands,
                       struct stage *stage)
{
    size_t bytes = output_bytes(key);
    bool has_aux = key->epilogue == TERN_EPILOGUE_BIAS_GELU; /* and writes it */
    size_t all = has_aux ? 2 * bytes : bytes;
    *stage = (struct stage){.operands = *operands};
    if (cudaMalloc(&stage->block, all) != cudaSuccess) {
        (void)cudaGetLastError();
        stage->block = NULL;
        return false;
    }
    stage->operands.d = stage->block;
    if (has_aux) {
        stage->operands.aux = (char *)stage->block + bytes;
    }
    return cudaMemsetAsync(stage->block, 0, all, device->stream) == cudaSuccess &&
           cudaEventCreateWithFlags(&stage->begin, cudaEventDefault) == cudaSuccess &&
           cudaEventCreateWithFlags(&stage->end, cudaEventDefault) == cudaSuccess;
}

/* Microseconds that `runs` runs take; below 0 when the algorithm does not run. */
static float batch(struct tern_cuda_device *device,
                   struct stage *stage,
                   const struct tern_blas_plan *plan,
                   int runs)
{
    float milliseconds = -1;
    if (cudaEventRecord(stage->begin, device->stream) != cudaSuccess) {
        return -1;
    }
    for (int i = 0; i < runs; i++) {
        if (tern_blas_run(device, plan, &stage->operands) != TERN_OK) {
            return -1;
        }
    }
    if (cudaEventRecord(stage->end, device->stream) != cudaSuccess ||
        cudaEventSynchronize(stage->end) != cudaSuccess ||
        cudaEventElapsedTime(&milliseconds, stage->begin, stage->end) != cudaSuccess) {
        return -1;
    }
    return milliseconds * 1e3F;
}

/* Seconds of one run; below 0 when the algorithm does not run. */
static double measure(struct tern_cuda_device *device,
                      struct stage *stage,
                      const struct tern_blas_plan *plan)
{
    if (batch(device, stage, plan, 1) < 0) { /* loads the kernel */
        return -1;
    }
    float once = batch(device, stage, plan, 1);
    int runs = once * RUNS_MAX < BATCH_MICROSECONDS ? RUNS_MAX
               : once < BATCH_MICROSECONDS          ? (int)(BATCH_MICROSECONDS / once)
                                                    : 1;
    double best = once;
    for (int i = 0; i < BATCHES && best >= 0; i++) {
        float time = batch(device, stage, plan, runs);
        best = time < 0 ? -1 : time / (float)runs < best ? time / (float)runs : best;
    }
    return best < 0 ? -1 : best * 1e-6;
}

/* The fastest of the candidates of all routes but the last resort, if there is another. */
static bool choose_by_time(struct tern_cuda_device *device,
                           const struct tern_blas_key *key,
                           const struct tern_blas_operands *operands,
                           const enum tern_blas_route *routes,
                           int route_count,
                           struct tern_blas_plan *out)
{
    struct stage stage;
    struct tern_blas_plan candidates[CANDIDATES];
    bool is_chosen = false;
    bool is_open = open_stage(device, key, operands, &stage);
    for (int r = 0; r < route_count && is_open; r++) {
        int count = 0;
        bool is_resort = routes[r] == TERN_BLAS_FINISH || routes[r] == TERN_BLAS_APART;
        if ((is_resort && is_chosen) ||
            tern_blas_candidates(device, key, routes[r], &stage.operands, CANDIDATES, candidates,
                                 &count) != TERN_OK) {
            continue;
        }
        for (int i = 0; i < count; i++) {
            double seconds = measure(device, &stage, &candidates[i]);
            if (seconds >= 0 && (!is_chosen || seconds < out->seconds)) {
                *out = candidates[i];
                out->seconds = seconds;
                out->is_timed = 1;
                is_chosen = true;
            }
        }
    }
    close_stage(&stage);
    return is_chosen;
}

static bool needs_sums(const struct tern_blas_key *key, enum tern_blas_route route)
{
    return route == TERN_BLAS_FINISH && key->d_dtype == TERN_BF16 && !key->is_finish;
}

/* The library's first choice by the first route that it has. */
static tern_status choose_first(struct tern_cuda_device *device,
                                const struct tern_blas_key *key,
                                const struct tern_blas_operands *operands,
                                const enum tern_blas_route *routes,
                                int route_count,
                                struct tern_blas_plan *out)
{
    for (int i = 0; i < route_count; i++) {
        int count = 0;
        if (needs_sums(key, routes[i])) {
            *out = (struct tern_blas_plan){.key = *key, .route = routes[i], .is_checked = 1};
            return TERN_OK;
        }
        TERN_RETURN_IF_ERR(tern_blas_candidates(device, key, routes[i], operands, 1, out, &count));
        if (count > 0) {
            return TERN_OK;
        }
    }
    return tern_fail(TERN_ERR_UNSUPPORTED,
                     "gemm: cuBLASLt %lld has no algorithm for m=%lld n=%lld k=%lld of %s into %s "
                     "on %s, strides "
                     "%lld %lld %lld, addresses aligned to %d %d %d bytes",
                     (long long)device->blas->machine.library, (long long)key->m, (long long)key->n,
                     (long long)key->k, tern_dtype_name((enum tern_dtype)key->factor),
                     tern_dtype_name((enum tern_dtype)key->d_dtype), device->blas->machine.gpu,
                     (long long)key->lda, (long long)key->ldb, (long long)key->ldd, key->align_a,
                     key->align_b, key->align_d);
}

static tern_status choose(struct tern_cuda_device *device,
                          const struct tern_blas_key *key,
                          const struct tern_blas_operands *operands,
                          struct tern_blas_plan *out)
{
    struct tern_cuda_blas *blas = device->blas;
    enum tern_blas_route routes[TERN_BLAS_ROUTES];
    int count = tern_blas_routes(key, device->capability, routes);
    if (device->is_recording) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "gemm: m=%lld n=%lld k=%lld is met for the first time while a graph is "
                         "recorded: run the same work once before recording it",
                         (long long)key->m, (long long)key->n, (long long)key->k);
    }
    int timed = count - (needs_sums(key, routes[count - 1]) ? 1 : 0);
    if (device->limits.may_tune && choose_by_time(device, key, operands, routes, timed, out)) {
        tern_blas_table_put(blas->table, out);
        if (blas->has_path) {
            blas->has_path = tern_blas_cache_write(blas->path, &blas->machine, blas->table);
        }
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(choose_first(device, key, operands, routes, count, out));
    tern_blas_table_put(blas->table, out);
    return TERN_OK;
}

static void read_file(struct tern_cuda_device *device)
{
    struct tern_cuda_blas *blas = device->blas;
    if (blas->has_read || !blas->has_path || !(device->limits.may_tune || blas->is_path_given)) {
        return;
    }
    blas->has_read = true;
    int count = tern_blas_cache_read(blas->path, &blas->machine, blas->table);
    if (count > 0) {
        tern_log(TERN_LOG_DEBUG, "CUDA plans: %d from %s", count, blas->path);
    }
}

tern_status tern_blas_plan_find(struct tern_cuda_device *device,
                                const struct tern_blas_key *key,
                                const struct tern_blas_operands *operands,
                                struct tern_blas_plan *out)
{
    struct tern_cuda_blas *blas = device->blas;
    tern_status status = TERN_OK;
    pthread_mutex_lock(&blas->lock);
    read_file(device);
    bool is_known = tern_blas_table_find(blas->table, key, out);
    if (is_known && !out->is_checked) {
        is_known = tern_blas_is_valid(device, out, operands);
        if (is_known) {
            out->is_checked = 1;
            tern_blas_table_put(blas->table, out);
        }
    }
    if (!is_known) {
        status = choose(device, key, operands, out);
    }
    pthread_mutex_unlock(&blas->lock);
    return status;
}
