/* target.cuh - the one header that knows which compiler reads a kernel: nvcc, or g++ for the simulated CUDA of
 * tests/cusim (TERN_CUSIM), whose cusim_target.cuh gives the same names other bodies.
 *
 * Kernels use only: __global__, __device__, threadIdx and its like, __syncthreads, __syncwarp, __shfl_*_sync,
 * __ballot_sync, __ldg-free plain loads, the math functions of <cuda_runtime.h>, and what is defined here, in warp.cuh
 * and in mma.cuh. No inline PTX elsewhere, no <<<>>>, no __device__ globals, no memset or memcpy (assign structs). */
#ifndef TERN_KERNELS_CUDA_TARGET_CUH
#define TERN_KERNELS_CUDA_TARGET_CUH

#ifdef TERN_CUSIM
#    include <cusim_target.cuh>
#else

#    include <cuda_bf16.h>
#    include <cuda_runtime.h>
#    include <stdint.h>

/* A loop to unroll. */
#    define TERN_UNROLL _Pragma("unroll")

/* A variable in shared memory: TERN_SHARED(float, tile, [32][33]); TERN_SHARED(int, flag, ); 16-byte aligned. */
#    define TERN_SHARED(type, name, dims) __shared__ alignas(16) type name dims

/* The block's dynamic shared memory (tern_launch's shared_bytes) as an array; one a kernel; 128-byte aligned. */
#    define TERN_DYNAMIC_SHARED(type, name) \
        extern __shared__ __align__(128) unsigned char tern_dynamic_shared[]; \
        type *name = reinterpret_cast<type *>(tern_dynamic_shared)

#    define TERN_DEVICE __device__ __forceinline__
#    define TERN_HOST_DEVICE __host__ __device__ __forceinline__

/* Enqueues a kernel; arguments are converted to the kernel's own parameter types. The error comes from
 * tern_cuda_launched. */
template <typename... Parameters, typename... Arguments>
static inline void tern_launch(void (*kernel)(Parameters...),
                               dim3 grid,
                               dim3 block,
                               size_t shared_bytes,
                               cudaStream_t stream,
                               Arguments... arguments)
{
    kernel<<<grid, block, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
}

/* Allows a kernel more than 48 KiB of dynamic shared memory. */
template <typename... Parameters>
static inline cudaError_t tern_allow_shared(void (*kernel)(Parameters...), size_t bytes)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

#endif

/* 16 bytes moved at once. */
struct alignas(16) tern_vec16 {
    uint32_t x[4];
};

/* bf16 stored as its 16 bits. Exact up, nearest even down; NaN stays NaN. */
TERN_HOST_DEVICE float tern_load_bf16(uint16_t bits)
{
    union {
        uint32_t u;
        float f;
    } x;
    x.u = (uint32_t)bits << 16;
    return x.f;
}

TERN_HOST_DEVICE uint16_t tern_store_bf16(float value)
{
    union {
        uint32_t u;
        float f;
    } x;
    x.f = value;
    if ((x.u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(x.u >> 16 | 0x40u);
    }
    return (uint16_t)((x.u + 0x7fffu + (x.u >> 16 & 1u)) >> 16);
}

#endif
