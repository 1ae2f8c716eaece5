/* cuda.h - inside the CUDA backend: a queue on a GPU, its workspace, its errors, its ops. For C and, by cuda.cuh, for
 * .cu files. Not for includers outside kernels/cuda. */
#ifndef TERN_KERNELS_CUDA_CUDA_H
#define TERN_KERNELS_CUDA_CUDA_H

#include "kernels/ops.h"

#include <cuda_runtime.h>

#include <pthread.h>

struct tern_cuda_blas; /* blas.c */

enum {
    TERN_CUDA_SLOTS = 8, /* pinned blocks that uploads pass through in turn */
    TERN_CUDA_SLOT_BYTES = 1 << 20,
    TERN_CUDA_ALIGN = 256, /* of every allocation, as cudaMalloc gives it */
};

struct tern_cuda_slot {
    void *block;
    cudaEvent_t is_free; /* recorded behind the copy out of it */
};

struct tern_cuda_device {
    struct tern_device base;
    int ordinal;
    int capability; /* 80, 90, ... */
    int multiprocessors;
    int shared_bytes_max; /* dynamic shared memory that a block may ask for */
    const char *name;     /* of the queue: "compute", ... */
    cudaStream_t stream;
    cudaEvent_t edge;           /* for `after` */
    cudaEvent_t sleeper;        /* blocking: a host that waits does not spin */
    pthread_mutex_t slots_lock; /* over the two below: uploads come from several threads */
    struct tern_cuda_slot slots[TERN_CUDA_SLOTS];
    int next_slot;
    struct tern_op_limits limits;
    void *
        workspace; /* device memory that one op uses as a whole; the next op on the queue may overwrite it */
    size_t workspace_bytes;
    struct tern_cuda_blas *blas; /* NULL until the first prepare */
    bool is_recording;
};

static inline struct tern_cuda_device *tern_cuda_device_of(struct tern_device *device)
{
    return (struct tern_cuda_device *)device;
}

/* err.c: TERN_OK, or the CUDA error in words: "norm_fwd: an illegal memory access was encountered
 * (cudaErrorIllegalAddress)". Out of memory is TERN_ERR_MEMORY, everything else TERN_ERR_DEVICE. */
TERN_MUST_CHECK tern_status tern_cuda_status(cudaError_t error, const char *what);
/* After a launch: what cudaGetLastError says. */
TERN_MUST_CHECK tern_status tern_cuda_launched(const char *op);

/* Workspace: each op family says how much it needs for these limits; the queue keeps the largest. An op takes it by
 * tern_cuda_need, which fails when prepare was not called with such a shape. */
size_t tern_cuda_norm_workspace(const struct tern_cuda_device *, const struct tern_op_limits *);
size_t tern_cuda_embed_workspace(const struct tern_cuda_device *, const struct tern_op_limits *);
size_t tern_cuda_reduce_workspace(const struct tern_cuda_device *, const struct tern_op_limits *);
size_t tern_cuda_attention_workspace(const struct tern_cuda_device *,
                                     const struct tern_op_limits *);
size_t tern_cuda_blas_workspace(const struct tern_cuda_device *, const struct tern_op_limits *);
TERN_MUST_CHECK tern_status tern_cuda_need(struct tern_cuda_device *,
                                           const char *op,
                                           size_t bytes,
                                           void **out);

/* Matrix products (blas.c): handle, plans, algorithm cache. open is called by the queue's first prepare. */
TERN_MUST_CHECK tern_status tern_cuda_blas_open(struct tern_cuda_device *,
                                                struct tern_cuda_blas **out);
void tern_cuda_blas_close(struct tern_cuda_blas *);

/* device.c */
tern_status tern_cuda_device_open(int ordinal, struct tern_device **out);
int tern_cuda_device_ordinal(const struct tern_device *device);
/* The backend's op table (plugin.c), whose device table is device.c's. */
extern const struct tern_ops tern_cuda_ops;
extern const struct tern_device_table tern_cuda_device_table;
tern_status tern_cuda_prepare(struct tern_device *,
                              const struct tern_op_limits *,
                              size_t *bytes_out);

/* The ops, one family a file. */
tern_status tern_cuda_embed_fwd(struct tern_device *, const struct tern_embed_fwd_args *);
tern_status tern_cuda_embed_bwd(struct tern_device *, const struct tern_embed_bwd_args *);
tern_status tern_cuda_norm_fwd(struct tern_device *, const struct tern_norm_fwd_args *);
tern_status tern_cuda_norm_bwd(struct tern_device *, const struct tern_norm_bwd_args *);
tern_status tern_cuda_gemm(struct tern_device *, const struct tern_gemm_args *);
tern_status tern_cuda_bias_bwd(struct tern_device *, const struct tern_bias_bwd_args *);
tern_status tern_cuda_gemm_bias_bwd(struct tern_device *, const struct tern_gemm_bias_bwd_args *);
tern_status tern_cuda_attention_fwd(struct tern_device *, const struct tern_attention_args *);
tern_status tern_cuda_attention_bwd(struct tern_device *, const struct tern_attention_args *);
size_t tern_cuda_kv_block_bytes(int64_t kv_heads, int64_t d, enum tern_dtype kv_dtype);
tern_status tern_cuda_kv_write(struct tern_device *, const struct tern_kv_write_args *);
tern_status tern_cuda_paged_attention(struct tern_device *,
                                      const struct tern_paged_attention_args *);
tern_status tern_cuda_rope(struct tern_device *, const struct tern_rope_args *);
tern_status tern_cuda_act_fwd(struct tern_device *, const struct tern_act_args *);
tern_status tern_cuda_act_bwd(struct tern_device *, const struct tern_act_args *);
tern_status tern_cuda_glu_fwd(struct tern_device *, const struct tern_glu_args *);
tern_status tern_cuda_glu_bwd(struct tern_device *, const struct tern_glu_args *);
tern_status tern_cuda_add(struct tern_device *, const struct tern_add_args *);
tern_status tern_cuda_cross_entropy(struct tern_device *, const struct tern_cross_entropy_args *);
tern_status tern_cuda_adamw(struct tern_device *, const struct tern_adamw_args *);
tern_status tern_cuda_sumsq(struct tern_device *, const struct tern_sumsq_args *);
tern_status tern_cuda_clip(struct tern_device *, const struct tern_clip_args *);
tern_status tern_cuda_cast(struct tern_device *, const struct tern_cast_args *);
tern_status tern_cuda_softcap(struct tern_device *, const struct tern_softcap_args *);
tern_status tern_cuda_moe_route(struct tern_device *, const struct tern_moe_route_args *);
tern_status tern_cuda_moe_combine(struct tern_device *, const struct tern_moe_combine_args *);

#endif
