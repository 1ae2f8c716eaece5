/* cases_products.cc - small programs for the stand-in of cuBLASLt, right ones and wrong ones. No kernels: not hooked. */
#include "tests/cusim/cases.h"

#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <initializer_list>

namespace
{

enum {
    ROWS = 16, /* of D: m */
    COLUMNS = 8,
    DEPTH = 64,
    WORKSPACE = 1 << 16,
    RESULTS = 16
};

/* D (m, n) = A (m, k) B (k, n), column-major f32 unless a case says otherwise. */
struct product {
    cublasLtHandle_t handle;
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t a_layout, b_layout, d_layout;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[RESULTS];
    int count;
    float *a, *b, *d, *bias, *aux;
    char *workspace;
    cudaStream_t stream;
};

#define GOOD(call) EXPECT((call) == CUBLAS_STATUS_SUCCESS)

template <typename T> cublasStatus_t set(product &p, cublasLtMatmulDescAttributes_t name, T value)
{
    return cublasLtMatmulDescSetAttribute(&p.op, name, &value, sizeof value);
}

template <typename T>
cublasStatus_t prefer(product &p, cublasLtMatmulPreferenceAttributes_t name, T value)
{
    return cublasLtMatmulPreferenceSetAttribute(&p.preference, name, &value, sizeof value);
}

float *filled(size_t n, uint32_t seed)
{
    float *host = new float[n];
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        host[i] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
    }
    float *block = device_array<float>(n, host);
    delete[] host;
    return block;
}

void open(product &p)
{
    GOOD(cublasLtCreate(&p.handle));
    GOOD(cublasLtMatmulDescInit(&p.op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    GOOD(cublasLtMatrixLayoutInit(&p.a_layout, CUDA_R_32F, ROWS, DEPTH, ROWS));
    GOOD(cublasLtMatrixLayoutInit(&p.b_layout, CUDA_R_32F, DEPTH, COLUMNS, DEPTH));
    GOOD(cublasLtMatrixLayoutInit(&p.d_layout, CUDA_R_32F, ROWS, COLUMNS, ROWS));
    GOOD(cublasLtMatmulPreferenceInit(&p.preference));
    GOOD(prefer(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (uint64_t)WORKSPACE));
    GOOD(prefer(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                (uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    p.a = filled(ROWS * DEPTH + 4, 1);
    p.b = filled(DEPTH * COLUMNS + 4, 2);
    p.bias = filled(ROWS + 4, 3);
    p.d = device_zeros<float>(ROWS * COLUMNS + 4);
    p.aux = device_zeros<float>(ROWS * COLUMNS + 4);
    p.workspace = device_array<char>(WORKSPACE);
    p.stream = new_stream();
}

void close(product &p)
{
    for (void *block : {(void *)p.a, (void *)p.b, (void *)p.d, (void *)p.bias, (void *)p.aux,
                        (void *)p.workspace}) {
        cudaFree(block);
    }
    cudaStreamDestroy(p.stream);
    GOOD(cublasLtDestroy(p.handle));
}

cublasStatus_t choose(product &p)
{
    return cublasLtMatmulAlgoGetHeuristic(p.handle, &p.op, &p.a_layout, &p.b_layout, &p.d_layout,
                                          &p.d_layout, &p.preference, RESULTS, p.results, &p.count);
}

cublasStatus_t run(product &p, int which, cudaStream_t stream, size_t workspace = WORKSPACE)
{
    float one = 1, zero = 0;
    return cublasLtMatmul(p.handle, &p.op, &one, p.a, &p.a_layout, p.b, &p.b_layout, &zero, p.d,
                          &p.d_layout, p.d, &p.d_layout, &p.results[which].algo, p.workspace,
                          workspace, stream);
}

void read(const float *block, float *host, size_t n)
{
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    EXPECT(cudaMemcpy(host, block, n * sizeof *host, cudaMemcpyDeviceToHost) == cudaSuccess);
}

/* Every algorithm, with and without an epilogue, against a sum in double. */
void product_right()
{
    product p;
    open(p);
    float a[ROWS * DEPTH], b[DEPTH * COLUMNS], bias[ROWS], d[ROWS * COLUMNS];
    read(p.a, a, ROWS * DEPTH);
    read(p.b, b, DEPTH * COLUMNS);
    read(p.bias, bias, ROWS);
    for (cublasLtEpilogue_t epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS}) {
        GOOD(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
        GOOD(set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias));
        GOOD(choose(p));
        EXPECT(p.count >= 4);
        for (int i = 0; i < p.count; i++) {
            GOOD(run(p, i, p.stream));
            read(p.d, d, ROWS * COLUMNS);
            for (int at = 0; at < ROWS * COLUMNS; at++) {
                double sum = epilogue == CUBLASLT_EPILOGUE_BIAS ? (double)bias[at % ROWS] : 0;
                for (int q = 0; q < DEPTH; q++) {
                    sum += (double)a[q * ROWS + at % ROWS] * (double)b[at / ROWS * DEPTH + q];
                }
                EXPECT(fabs((double)d[at] - sum) < 1e-4);
            }
        }
    }
    close(p);
}

void product_types()
{
    product p;
    open(p);
    GOOD(cublasLtMatrixLayoutInit(&p.d_layout, CUDA_R_16BF, ROWS, COLUMNS, ROWS));
    EXPECT(choose(p) == CUBLAS_STATUS_NOT_SUPPORTED); /* f32 factors into bf16 */
    GOOD(cublasLtMatrixLayoutInit(&p.a_layout, CUDA_R_16BF, ROWS, DEPTH, ROWS));
    EXPECT(choose(p) == CUBLAS_STATUS_NOT_SUPPORTED); /* factors of two types */
    GOOD(cublasLtMatrixLayoutInit(&p.b_layout, CUDA_R_16BF, DEPTH, COLUMNS, DEPTH));
    GOOD(choose(p));
    GOOD(cublasLtMatmulDescInit(&p.op, CUBLAS_COMPUTE_32F_FAST_16BF, CUDA_R_32F));
    EXPECT(choose(p) == CUBLAS_STATUS_NOT_SUPPORTED); /* nothing to round */
    GOOD(cublasLtMatmulDescInit(&p.op, CUBLAS_COMPUTE_32F, CUDA_R_16BF));
    EXPECT(choose(p) == CUBLAS_STATUS_NOT_SUPPORTED); /* the scale type is f32 */
    close(p);
}

void product_epilogues()
{
    product p;
    open(p);
    GOOD(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX_BIAS));
    EXPECT(choose(p) == CUBLAS_STATUS_INVALID_VALUE); /* no aux */
    GOOD(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux));
    GOOD(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)8));
    EXPECT(choose(p) == CUBLAS_STATUS_INVALID_VALUE); /* shorter than a column */
    GOOD(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)20));
    EXPECT(choose(p) == CUBLAS_STATUS_NOT_SUPPORTED); /* not a multiple of 8 */
    GOOD(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)ROWS));
    EXPECT(choose(p) == CUBLAS_STATUS_INVALID_VALUE); /* no bias */
    GOOD(set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias));
    GOOD(choose(p));
    GOOD(set(p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (int32_t)CUDA_R_16BF));
    EXPECT(choose(p) == CUBLAS_STATUS_NOT_SUPPORTED); /* not D's type */
    GOOD(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU));
    GOOD(choose(p)); /* takes no bias */
    GOOD(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)2));
    EXPECT(choose(p) == CUBLAS_STATUS_NOT_SUPPORTED);
    uint64_t wide = 4;
    EXPECT(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, wide) == CUBLAS_STATUS_INVALID_VALUE);
    close(p);
}

void product_shapes()
{
    product p;
    open(p);
    GOOD(cublasLtMatrixLayoutInit(&p.b_layout, CUDA_R_32F, DEPTH + 1, COLUMNS, DEPTH + 1));
    EXPECT(choose(p) == CUBLAS_STATUS_INVALID_VALUE);
    GOOD(cublasLtMatrixLayoutInit(&p.b_layout, CUDA_R_32F, DEPTH, COLUMNS, DEPTH - 1));
    EXPECT(choose(p) == CUBLAS_STATUS_INVALID_VALUE);
    GOOD(cublasLtMatrixLayoutInit(&p.b_layout, CUDA_R_32F, COLUMNS, DEPTH, COLUMNS));
    EXPECT(choose(p) == CUBLAS_STATUS_INVALID_VALUE);
    GOOD(set(p, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T));
    GOOD(choose(p));
    p.op.data[0] ^= 1; /* never made */
    EXPECT(choose(p) == CUBLAS_STATUS_INVALID_VALUE);
    close(p);
}

/* What the caller promises decides which algorithms there are. */
void product_preferences()
{
    product p;
    open(p);
    GOOD(choose(p));
    int all = p.count;
    GOOD(prefer(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)4));
    GOOD(choose(p));
    EXPECT(p.count < all && p.count > 0);
    int unaligned = p.count;
    GOOD(prefer(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (uint64_t)0));
    GOOD(choose(p));
    EXPECT(p.count < unaligned && p.count > 0);
    GOOD(prefer(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (uint64_t)WORKSPACE));
    GOOD(prefer(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)16));
    GOOD(prefer(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                (uint32_t)CUBLASLT_REDUCTION_SCHEME_MASK));
    GOOD(choose(p));
    EXPECT(p.count > all);
    close(p);
}

void product_workspace()
{
    product p;
    open(p);
    GOOD(choose(p));
    int tried = 0;
    for (int i = 0; i < p.count; i++) {
        size_t needs = p.results[i].workspaceSize;
        if (needs > 0) {
            EXPECT(run(p, i, p.stream, needs - 1) == CUBLAS_STATUS_INVALID_VALUE);
            GOOD(run(p, i, p.stream, needs));
            tried++;
        }
    }
    EXPECT(tried > 0);
    close(p);
}

/* "In place" adds in the order of arrival; all others always in the same. */
void product_order()
{
    product p;
    open(p);
    GOOD(prefer(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                (uint32_t)CUBLASLT_REDUCTION_SCHEME_MASK));
    GOOD(choose(p));
    int fixed = 0, changing = 0;
    for (int i = 0; i < p.count; i++) {
        float first[ROWS * COLUMNS], again[ROWS * COLUMNS];
        bool is_same = true;
        GOOD(run(p, i, p.stream));
        read(p.d, first, ROWS * COLUMNS);
        for (int repeat = 0; repeat < 20; repeat++) {
            GOOD(run(p, i, p.stream));
            read(p.d, again, ROWS * COLUMNS);
            is_same = is_same && memcmp(first, again, sizeof first) == 0;
        }
        (is_same ? fixed : changing)++;
    }
    EXPECT(changing == 1 && fixed == p.count - 1);
    close(p);
}

/* ---- wrong ones ---- */

/* Opened, changed, run: the change is what is wrong. */
template <typename Change> void run_wrong(Change change)
{
    product p;
    open(p);
    GOOD(choose(p));
    change(p);
    cudaDeviceSynchronize(); /* so that what comes is the report */
    GOOD(run(p, 0, p.stream));
    cudaDeviceSynchronize();
    close(p);
}

void use_bias(product &p, float *bias)
{
    GOOD(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
    GOOD(set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
    GOOD(choose(p));
}

void use_slope(product &p, float *aux)
{
    GOOD(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU));
    GOOD(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux));
    GOOD(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)ROWS));
    GOOD(choose(p));
}

/* One workspace under two products on two streams. */
void two_streams(bool share_output, bool has_event)
{
    product p;
    open(p);
    GOOD(choose(p));
    int which = 0;
    while (p.results[which].workspaceSize == 0) {
        which++;
    }
    cudaStream_t other = new_stream();
    cudaEvent_t event = new_event();
    float *d = p.d;
    GOOD(run(p, which, p.stream));
    if (has_event) {
        EXPECT(cudaEventRecord(event, p.stream) == cudaSuccess);
        EXPECT(cudaStreamWaitEvent(other, event, 0) == cudaSuccess);
    }
    p.d = share_output ? p.d : p.aux;
    GOOD(run(p, which, other));
    p.d = d;
    cudaDeviceSynchronize();
    cudaEventDestroy(event);
    cudaStreamDestroy(other);
    close(p);
}

} // namespace

const test_case g_product_cases[] = {
    {"product_right", product_right},
    {"product_types", product_types},
    {"product_epilogues", product_epilogues},
    {"product_shapes", product_shapes},
    {"product_preferences", product_preferences},
    {"product_workspace", product_workspace},
    {"product_order", product_order},
    {"product_a_misaligned", [] { run_wrong([](product &p) { p.a++; }); }},
    {"product_d_misaligned", [] { run_wrong([](product &p) { p.d++; }); }},
    {"product_bias_misaligned", [] { run_wrong([](product &p) { use_bias(p, p.bias + 1); }); }},
    {"product_aux_misaligned", [] { run_wrong([](product &p) { use_slope(p, p.aux + 1); }); }},
    {"product_workspace_misaligned", [] { run_wrong([](product &p) { p.workspace++; }); }},
    {"product_into_factor", [] { run_wrong([](product &p) { p.d = p.a; }); }},
    {"product_other_algorithm", [] { run_wrong([](product &p) { p.results[0].algo.data[1]++; }); }},
    {"product_a_too_short", [] { run_wrong([](product &p) { p.a += 8; }); }},
    {"product_d_too_short", [] { run_wrong([](product &p) { p.d += 8; }); }},
    {"product_bias_too_short", [] { run_wrong([](product &p) { use_bias(p, p.bias + 8); }); }},
    {"product_a_unwritten",
     [] {
         run_wrong([](product &p) {
             cudaFree(p.a);
             p.a = device_array<float>(ROWS * DEPTH);
         });
     }},
    {"product_host_memory",
     [] {
         static float host[ROWS * DEPTH] __attribute__((aligned(16)));
         run_wrong([](product &p) { p.b = host; });
     }},
    {"product_shared_workspace", [] { two_streams(false, false); }},
    {"product_shared_output", [] { two_streams(true, false); }},
    {"product_after_event", [] { two_streams(true, true); }},
    {"leak_handle",
     [] {
         cublasLtHandle_t handle;
         GOOD(cublasLtCreate(&handle));
     }},
    {nullptr, nullptr},
};
