/* blas_lt.h - inside the matrix product: a piece as cuBLASLt takes it, and the kernels around it. */
#ifndef TERN_KERNELS_CUDA_BLAS_LT_H
#define TERN_KERNELS_CUDA_BLAS_LT_H

#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"

/* Shared by all queues of one GPU, so that equal shapes are summed equally on all of them. */
struct tern_cuda_blas {
    struct tern_cuda_blas *next;
    int ordinal;
    int users;            /* queues */
    void *handle;         /* cublasLtHandle_t: any thread may use it */
    pthread_mutex_t lock; /* over what follows */
    struct tern_blas_table *table;
    struct tern_blas_machine machine;
    char path[TERN_BLAS_PATH_BYTES];
    bool has_path, is_path_given, has_read;
};

/* The addresses of a piece. */
struct tern_blas_operands {
    const void *a, *b;
    void *d;
    const void *bias; /* read, or with TERN_BLAS_SUMS_OF_A or _B written */
    void *aux;
    void *sums; /* f32, row stride tern_blas_scratch_stride(n), if key.is_finish */
};

/* Bytes at the start of a device's workspace that cuBLASLt may use. */
size_t tern_blas_library_bytes(int capability);

/* ---- blas_plan.c ---- */

/* The plan of a key: remembered, read from the file, or chosen now. Fails when nothing fits, and when a graph is being
 * recorded and the plan is not known. A plan by TERN_BLAS_FINISH of a key with d in bf16 and not is_finish has no
 * algorithm: the caller asks again with is_finish. */
TERN_MUST_CHECK tern_status tern_blas_plan_find(struct tern_cuda_device *device,
                                                const struct tern_blas_key *key,
                                                const struct tern_blas_operands *operands,
                                                struct tern_blas_plan *out);

/* ---- blas_lt.c ---- */

/* Up to `wanted` algorithms for a key by a route, in the library's order; 0 when it has none. */
TERN_MUST_CHECK tern_status tern_blas_candidates(struct tern_cuda_device *device,
                                                 const struct tern_blas_key *key,
                                                 enum tern_blas_route route,
                                                 const struct tern_blas_operands *operands,
                                                 int wanted,
                                                 struct tern_blas_plan *out,
                                                 int *count_out);
/* Does the library in use still run this plan? */
bool tern_blas_is_valid(struct tern_cuda_device *device,
                        const struct tern_blas_plan *plan,
                        const struct tern_blas_operands *operands);
/* Enqueues a piece. */
TERN_MUST_CHECK tern_status tern_blas_run(struct tern_cuda_device *device,
                                          const struct tern_blas_plan *plan,
                                          const struct tern_blas_operands *operands);
/* Opens and closes the library on the current GPU. */
TERN_MUST_CHECK tern_status tern_blas_library_open(void **handle_out, int64_t *version_out);
void tern_blas_library_close(void *handle);

/* ---- blas_side.cu ---- */

/* to (n) f32 = from, or += from. */
TERN_MUST_CHECK tern_status tern_blas_add_bias(struct tern_cuda_device *device,
                                               float *to,
                                               const float *from,
                                               int64_t n,
                                               bool accumulate);

/* x = in + bias (bias null: x = in); aux = x in d's dtype, if not null; d = x, or gelu(x), or x gelu'(slope_at), with x
 * as rounded to d's dtype. (rows, columns), row strides in elements; in may be d. With none of these: a conversion. */
struct tern_blas_finish_args {
    const void *in;
    const void *bias;     /* (columns) or null */
    void *aux;            /* row stride ldd, or null */
    const void *slope_at; /* d's dtype, row stride ldd, or null */
    void *d;
    int64_t rows, columns, ld_in, ldd;
    enum tern_dtype in_dtype, bias_dtype, d_dtype;
    bool is_gelu;
};
TERN_MUST_CHECK tern_status tern_blas_finish(struct tern_cuda_device *device,
                                             const struct tern_blas_finish_args *args);

#endif
