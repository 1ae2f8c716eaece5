/* blas_lt.c - pieces of a product as cuBLASLt calls.
 *
 * Descriptors are built on the stack for every call: some function calls of tens of nanoseconds, for which nothing has
 * to be kept or locked (in a recorded graph they cost nothing at all). */
#include "kernels/cuda/blas_lt.h"

#include <cublasLt.h>

#include <string.h>

enum {
    CANDIDATES_MAX = 64,
    HOPPER = 90
};

/* One cublasLtMatmul. */
struct problem {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t first, second, out; /* op(b)^T, op(a)^T, d^T */
    void *target;                                    /* d, aux or sums */
    float beta;
};

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(uint64_t[TERN_BLAS_ALGO_WORDS]),
               "an algorithm fits into a plan");

size_t tern_blas_library_bytes(int capability)
{
    /* what NVIDIA recommends for the workspace: 32 MiB from Hopper on, 4 MiB before */
    return (size_t)(capability >= HOPPER ? 32 : 4) << 20;
}

static tern_status lt_status(cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS) {
        return TERN_OK;
    }
    return tern_fail(status == CUBLAS_STATUS_ALLOC_FAILED ? TERN_ERR_MEMORY : TERN_ERR_DEVICE,
                     "gemm: %s: %s", what, cublasLtGetStatusName(status));
}

tern_status tern_blas_library_open(void **handle_out, int64_t *version_out)
{
    cublasLtHandle_t handle = NULL;
    *handle_out = NULL;
    TERN_RETURN_IF_ERR(lt_status(cublasLtCreate(&handle), "cublasLtCreate"));
    *handle_out = handle;
    *version_out = (int64_t)cublasLtGetVersion();
    return TERN_OK;
}

void tern_blas_library_close(void *handle)
{
    if (handle != NULL) {
        cublasLtDestroy(handle);
    }
}

static cudaDataType_t type_of(enum tern_dtype dtype)
{
    return dtype == TERN_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static void set(struct problem *p,
                cublasStatus_t *status,
                cublasLtMatmulDescAttributes_t attribute,
                const void *value,
                size_t bytes)
{
    if (*status == CUBLAS_STATUS_SUCCESS) {
        *status = cublasLtMatmulDescSetAttribute(&p->operation, attribute, value, bytes);
    }
}

static void set_layout(cublasLtMatrixLayoutOpaque_t *layout,
                       cublasStatus_t *status,
                       enum tern_dtype dtype,
                       int64_t rows,
                       int64_t columns,
                       int64_t stride)
{
    if (*status == CUBLAS_STATUS_SUCCESS) { /* column-major: rows and columns change places */
        *status = cublasLtMatrixLayoutInit(layout, type_of(dtype), (uint64_t)columns,
                                           (uint64_t)rows, stride);
    }
}

static bool has_sums(const struct tern_blas_key *key)
{
    return key->epilogue == TERN_BLAS_SUMS_OF_A || key->epilogue == TERN_BLAS_SUMS_OF_B;
}

static cublasLtEpilogue_t epilogue_of(const struct tern_blas_key *key, enum tern_blas_route route)
{
    bool is_direct = route == TERN_BLAS_DIRECT;
    if (route == TERN_BLAS_FINISH || route == TERN_BLAS_APART) {
        return CUBLASLT_EPILOGUE_DEFAULT;
    }
    if (has_sums(key)) { /* its A is our b */
        return key->epilogue == TERN_BLAS_SUMS_OF_B ? CUBLASLT_EPILOGUE_BGRADA
                                                    : CUBLASLT_EPILOGUE_BGRADB;
    }
    switch ((enum tern_epilogue)key->epilogue) {
    case TERN_EPILOGUE_BIAS:
        return CUBLASLT_EPILOGUE_BIAS;
    case TERN_EPILOGUE_BIAS_GELU:
        return is_direct ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS;
    case TERN_EPILOGUE_DGELU:
        return is_direct ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_DEFAULT;
    case TERN_EPILOGUE_NONE:
        break;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
}

static void set_epilogue(const struct tern_blas_key *key,
                         enum tern_blas_route route,
                         const struct tern_blas_operands *operands,
                         struct problem *p,
                         cublasStatus_t *status)
{
    cublasLtEpilogue_t epilogue = epilogue_of(key, route);
    set(p, status, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    bool is_gradient = epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
    if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
        is_gradient) {
        int32_t type = (int32_t)type_of((enum tern_dtype)key->bias_dtype);
        set(p, status, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
        set(p, status, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands->bias, sizeof operands->bias);
    }
    if (epilogue == CUBLASLT_EPILOGUE_DGELU || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        set(p, status, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &operands->aux,
            sizeof operands->aux);
        set(p, status, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &key->ldd, sizeof key->ldd);
    }
}

/* By this route the library writes aux, not d. */
static bool writes_aux(const struct tern_blas_key *key, enum tern_blas_route route)
{
    return route == TERN_BLAS_GELU && key->epilogue == TERN_EPILOGUE_BIAS_GELU;
}

static tern_status describe(const struct tern_blas_key *key,
                            enum tern_blas_route route,
                            const struct tern_blas_operands *operands,
                            struct problem *p)
{
    enum tern_dtype factor = (enum tern_dtype)key->factor;
    enum tern_dtype out = key->is_finish ? TERN_F32 : (enum tern_dtype)key->d_dtype;
    int64_t ldd = key->is_finish ? tern_blas_scratch_stride(key->n) : key->ldd;
    cublasOperation_t first = key->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = key->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = cublasLtMatmulDescInit(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set(p, &status, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    set(p, &status, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    set_epilogue(key, route, operands, p, &status);
    set_layout(&p->first, &status, factor, key->trans_b ? key->n : key->k,
               key->trans_b ? key->k : key->n, key->ldb);
    set_layout(&p->second, &status, factor, key->trans_a ? key->k : key->m,
               key->trans_a ? key->m : key->k, key->lda);
    set_layout(&p->out, &status, out, key->m, key->n, ldd);
    p->target = key->is_finish           ? operands->sums
                : writes_aux(key, route) ? operands->aux
                                         : operands->d;
    p->beta = key->accumulate ? 1 : 0;
    return lt_status(status, "a descriptor");
}

/* ---- choosing ---- */

/* Split-K only with partial sums in fp32, added in a fixed order: NONE is 0 and always allowed. "In place" adds them in
 * the output's dtype and, it seems, in the order of arrival; OUTPUT_TYPE rounds them to it. */
static tern_status set_preference(struct tern_cuda_device *device,
                                  const struct tern_blas_key *key,
                                  enum tern_blas_route route,
                                  cublasLtMatmulPreferenceOpaque_t *preference)
{
    uint64_t bytes = tern_blas_library_bytes(device->capability);
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t out = key->is_finish           ? TERN_BLAS_ALIGN
                   : writes_aux(key, route) ? key->align_aux
                                            : key->align_d;
    uint32_t first = key->align_b;
    uint32_t second = key->align_a;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t bytes;
    } settings[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &first, sizeof first},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &second, sizeof second},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out},
    };
    cublasStatus_t status = cublasLtMatmulPreferenceInit(preference);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        if (status == CUBLAS_STATUS_SUCCESS) {
            status = cublasLtMatmulPreferenceSetAttribute(preference, settings[i].attribute,
                                                          settings[i].value, settings[i].bytes);
        }
    }
    return lt_status(status, "a preference");
}

tern_status tern_blas_candidates(struct tern_cuda_device *device,
                                 const struct tern_blas_key *key,
                                 enum tern_blas_route route,
                                 const struct tern_blas_operands *operands,
                                 int wanted,
                                 struct tern_blas_plan *out,
                                 int *count_out)
{
    struct problem p;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[CANDIDATES_MAX];
    int found = 0;
    *count_out = 0;
    TERN_RETURN_IF_ERR(describe(key, route, operands, &p));
    TERN_RETURN_IF_ERR(set_preference(device, key, route, &preference));
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        device->blas->handle, &p.operation, &p.first, &p.second, &p.out, &p.out, &preference,
        wanted < CANDIDATES_MAX ? wanted : CANDIDATES_MAX, results, &found);
    /* a combination that it does not have comes back as any of these */
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
        status == CUBLAS_STATUS_ARCH_MISMATCH) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(lt_status(status, "cublasLtMatmulAlgoGetHeuristic"));
    for (int i = 0; i < found; i++) {
        if (results[i].state == CUBLAS_STATUS_SUCCESS) {
            struct tern_blas_plan *plan = &out[(*count_out)++];
            *plan = (struct tern_blas_plan){.key = *key,
                                            .workspace_bytes = results[i].workspaceSize,
                                            .route = route,
                                            .is_checked = 1};
            memcpy(plan->algo, &results[i].algo, sizeof plan->algo);
        }
    }
    return TERN_OK;
}

bool tern_blas_is_valid(struct tern_cuda_device *device,
                        const struct tern_blas_plan *plan,
                        const struct tern_blas_operands *operands)
{
    struct problem p;
    cublasLtMatmulAlgo_t algo;
    cublasLtMatmulHeuristicResult_t result;
    enum tern_blas_route routes[TERN_BLAS_ROUTES];
    bool is_route = false;
    for (int i = tern_blas_routes(&plan->key, device->capability, routes); i-- > 0;) {
        is_route = is_route || routes[i] == plan->route;
    }
    if (!is_route ||
        describe(&plan->key, (enum tern_blas_route)plan->route, operands, &p) != TERN_OK) {
        return false;
    }
    memcpy(&algo, plan->algo, sizeof algo);
    return cublasLtMatmulAlgoCheck(device->blas->handle, &p.operation, &p.first, &p.second, &p.out,
                                   &p.out, &algo, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= tern_blas_library_bytes(device->capability);
}

/* ---- running ---- */

/* What is left to do behind the library. */
static tern_status finish(struct tern_cuda_device *device,
                          const struct tern_blas_plan *plan,
                          const struct tern_blas_operands *operands)
{
    const struct tern_blas_key *key = &plan->key;
    bool is_finish = plan->route == TERN_BLAS_FINISH;
    bool has_gelu = key->epilogue == TERN_EPILOGUE_BIAS_GELU;
    bool has_slope = key->epilogue == TERN_EPILOGUE_DGELU;
    struct tern_blas_finish_args args = {
        .in = key->is_finish                                       ? operands->sums
              : writes_aux(key, (enum tern_blas_route)plan->route) ? operands->aux
                                                                   : operands->d,
        .bias = is_finish && tern_epilogue_has_bias((enum tern_epilogue)key->epilogue)
                    ? operands->bias
                    : NULL,
        .aux = is_finish && has_gelu ? operands->aux : NULL,
        .slope_at = has_slope ? operands->aux : NULL,
        .d = operands->d,
        .rows = key->m,
        .columns = key->n,
        .ld_in = key->is_finish ? tern_blas_scratch_stride(key->n) : key->ldd,
        .ldd = key->ldd,
        .in_dtype = key->is_finish ? TERN_F32 : (enum tern_dtype)key->d_dtype,
        .bias_dtype = (enum tern_dtype)key->bias_dtype,
        .d_dtype = (enum tern_dtype)key->d_dtype,
        .is_gelu = has_gelu,
    };
    return tern_blas_finish(device, &args);
}

tern_status tern_blas_run(struct tern_cuda_device *device,
                          const struct tern_blas_plan *plan,
                          const struct tern_blas_operands *operands)
{
    struct problem p;
    cublasLtMatmulAlgo_t algo;
    const float alpha = 1;
    TERN_RETURN_IF_ERR(describe(&plan->key, (enum tern_blas_route)plan->route, operands, &p));
    memcpy(&algo, plan->algo, sizeof algo);
    cublasStatus_t status =
        cublasLtMatmul(device->blas->handle, &p.operation, &alpha, operands->b, &p.first,
                       operands->a, &p.second, &p.beta, p.target, &p.out, p.target, &p.out, &algo,
                       device->workspace, (size_t)plan->workspace_bytes, device->stream);
    TERN_RETURN_IF_ERR(lt_status(status, "cublasLtMatmul"));
    bool is_done = plan->route == TERN_BLAS_DIRECT || plan->route == TERN_BLAS_APART;
    return is_done ? TERN_OK : finish(device, plan, operands);
}
