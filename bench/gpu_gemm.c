/* gpu_gemm.c - the best that cuBLASLt has for a product, whatever it is: every algorithm that its heuristics offer, all
 * ways of splitting sums allowed, timed one after the other. What tern's own plans are held against (tests/gpu.sh).
 *
 *   bench_gpu_gemm M,N,K[,ta][,tb][,acc] ...      d (M, N) = op(a) op(b), bf16; with acc d += in f32
 *
 * One JSON object a line: seconds of the best, how many were tried, and the rate. */
#include "runtime/base/mem.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALGORITHMS_MAX = 200,
    ROUNDS = 3,
    WORKSPACE_BYTES = 128 << 20,
};

static const double ROUND_SECONDS = 0.01;

/* A product, row-major as ops.h has it; to the library it is d^T = op(b)^T op(a)^T, column-major. */
struct product {
    uint64_t m, n, k;
    bool trans_a, trans_b, accumulate;
    void *a, *b, *d, *workspace;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t first, second, out;
};

static void must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "bench_gpu_gemm: %s failed (%s)\n", what,
                cudaGetErrorString(cudaGetLastError()));
        exit(1);
    }
}

#define CUDA(call) must((call) == cudaSuccess, #call)
#define LT(call)   must((call) == CUBLAS_STATUS_SUCCESS, #call)

static void parse(const char *text, struct product *p)
{
    unsigned long long m, n, k;
    *p = (struct product){0};
    if (sscanf(text, "%llu,%llu,%llu", &m, &n, &k) != 3 || m == 0 || n == 0 || k == 0) {
        fprintf(stderr, "usage: bench_gpu_gemm M,N,K[,ta][,tb][,acc] ... (found '%s')\n", text);
        exit(2);
    }
    p->m = m;
    p->n = n;
    p->k = k;
    p->trans_a = strstr(text, ",ta") != NULL;
    p->trans_b = strstr(text, ",tb") != NULL;
    p->accumulate = strstr(text, ",acc") != NULL;
}

/* Random bits are no good numbers: values near 1, so that the clock is what real data gives. */
static void *filled(uint64_t count)
{
    uint16_t *values = tern_alloc("bench", count * 2);
    void *block;
    must(values != NULL, "tern_alloc");
    uint32_t x = 1;
    for (uint64_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        values[i] = (uint16_t)(0x3f00u + (x >> 24) + (x >> 8 & 0x8000u)); /* +-0.5 to +-2 */
    }
    CUDA(cudaMalloc(&block, count * 2));
    CUDA(cudaMemcpy(block, values, count * 2, cudaMemcpyHostToDevice));
    tern_free(values);
    return block;
}

static void describe(struct product *p)
{
    cublasOperation_t first = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cudaDataType_t out = p->accumulate ? CUDA_R_32F : CUDA_R_16BF;
    LT(cublasLtMatmulDescInit(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT(cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                      sizeof first));
    LT(cublasLtMatmulDescSetAttribute(&p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                      sizeof second));
    uint64_t b_rows = p->trans_b ? p->n : p->k, b_columns = p->trans_b ? p->k : p->n;
    uint64_t a_rows = p->trans_a ? p->k : p->m, a_columns = p->trans_a ? p->m : p->k;
    LT(cublasLtMatrixLayoutInit(&p->first, CUDA_R_16BF, b_columns, b_rows, (int64_t)b_columns));
    LT(cublasLtMatrixLayoutInit(&p->second, CUDA_R_16BF, a_columns, a_rows, (int64_t)a_columns));
    LT(cublasLtMatrixLayoutInit(&p->out, out, p->n, p->m, (int64_t)p->n));
    p->a = filled(p->m * p->k);
    p->b = filled(p->k * p->n);
    CUDA(cudaMalloc(&p->d, p->m * p->n * 4));
    CUDA(cudaMemset(p->d, 0, p->m * p->n * 4));
    CUDA(cudaMalloc(&p->workspace, WORKSPACE_BYTES));
}

static void release(struct product *p)
{
    CUDA(cudaFree(p->a));
    CUDA(cudaFree(p->b));
    CUDA(cudaFree(p->d));
    CUDA(cudaFree(p->workspace));
}

/* Seconds that `calls` calls take on the GPU; false when the library refuses the algorithm after all. */
static bool time_calls(cublasLtHandle_t handle,
                       struct product *p,
                       const cublasLtMatmulAlgo_t *algo,
                       int calls,
                       const cudaEvent_t events[2],
                       double *seconds_out)
{
    float one = 1, beta = p->accumulate ? 1 : 0, ms = 0;
    CUDA(cudaEventRecord(events[0], NULL));
    for (int i = 0; i < calls; i++) {
        if (cublasLtMatmul(handle, &p->operation, &one, p->b, &p->first, p->a, &p->second, &beta,
                           p->d, &p->out, p->d, &p->out, algo, p->workspace, WORKSPACE_BYTES,
                           NULL) != CUBLAS_STATUS_SUCCESS) {
            return false;
        }
    }
    CUDA(cudaEventRecord(events[1], NULL));
    CUDA(cudaEventSynchronize(events[1]));
    CUDA(cudaEventElapsedTime(&ms, events[0], events[1]));
    *seconds_out = ms * 1e-3;
    return true;
}

static double time_best(cublasLtHandle_t handle,
                        struct product *p,
                        const cublasLtMatmulAlgo_t *algo,
                        const cudaEvent_t events[2])
{
    double best = -1, took;
    if (!time_calls(handle, p, algo, 1, events, &took) ||
        !time_calls(handle, p, algo, 1, events, &took)) {
        return -1;
    }
    int calls = took > 0 && ROUND_SECONDS / took < 1000 ? 1 + (int)(ROUND_SECONDS / took) : 1000;
    for (int round = 0; round < ROUNDS; round++) {
        if (time_calls(handle, p, algo, calls, events, &took)) {
            best = best < 0 || took / calls < best ? took / calls : best;
        }
    }
    return best;
}

static void bench(cublasLtHandle_t handle, const char *text, const cudaEvent_t events[2])
{
    struct product p;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[ALGORITHMS_MAX];
    size_t workspace = WORKSPACE_BYTES;
    int found = 0;
    double best = -1;
    parse(text, &p);
    describe(&p);
    LT(cublasLtMatmulPreferenceInit(&preference));
    LT(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &workspace, sizeof workspace));
    LT(cublasLtMatmulAlgoGetHeuristic(handle, &p.operation, &p.first, &p.second, &p.out, &p.out,
                                      &preference, ALGORITHMS_MAX, results, &found));
    for (int i = 0; i < found; i++) {
        double seconds = time_best(handle, &p, &results[i].algo, events);
        best = seconds > 0 && (best < 0 || seconds < best) ? seconds : best;
    }
    must(best > 0, "every algorithm");
    printf("{\"product\":\"%s\",\"algorithms\":%d,\"seconds\":%.9g,\"tflops\":%.6g}\n", text, found,
           best, 2e-12 * (double)p.m * (double)p.n * (double)p.k / best);
    fflush(stdout);
    release(&p);
}

int main(int argc, char **argv)
{
    cublasLtHandle_t handle;
    cudaEvent_t events[2];
    LT(cublasLtCreate(&handle));
    CUDA(cudaEventCreate(&events[0]));
    CUDA(cudaEventCreate(&events[1]));
    for (int i = 1; i < argc; i++) {
        bench(handle, argv[i], events);
    }
    cublasLtDestroy(handle);
    return 0;
}
