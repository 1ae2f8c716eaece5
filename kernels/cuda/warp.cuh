/* warp.cuh - sums and maxima over a warp and a block, always in the same order. */
#ifndef TERN_KERNELS_CUDA_WARP_CUH
#define TERN_KERNELS_CUDA_WARP_CUH

#include "kernels/cuda/target.cuh"

enum {
    TERN_WARP = 32
};
static const unsigned TERN_WARP_ALL = 0xffffffffu;

/* Every lane of a whole warp gets the sum: butterfly, so all lanes have the same bits. */
template <typename T> TERN_DEVICE T tern_warp_sum(T x)
{
    TERN_UNROLL
    for (int offset = TERN_WARP / 2; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(TERN_WARP_ALL, x, offset);
    }
    return x;
}

TERN_DEVICE float tern_warp_max(float x)
{
    TERN_UNROLL
    for (int offset = TERN_WARP / 2; offset > 0; offset /= 2) {
        x = fmaxf(x, __shfl_xor_sync(TERN_WARP_ALL, x, offset));
    }
    return x;
}

/* Every thread of the block gets the sum; scratch has one T a warp (at most 32) and is free again after the call. All
 * threads of a one-dimensional block of whole warps call it. */
template <typename T> TERN_DEVICE T tern_block_sum(T x, T *scratch)
{
    int warps = (int)blockDim.x / TERN_WARP;
    int warp = (int)threadIdx.x / TERN_WARP, lane = (int)threadIdx.x % TERN_WARP;
    x = tern_warp_sum(x);
    if (lane == 0) {
        scratch[warp] = x;
    }
    __syncthreads();
    T total = tern_warp_sum(lane < warps ? scratch[lane] : (T)0);
    __syncthreads();
    return total;
}

TERN_DEVICE float tern_block_max(float x, float *scratch)
{
    int warps = (int)blockDim.x / TERN_WARP;
    int warp = (int)threadIdx.x / TERN_WARP, lane = (int)threadIdx.x % TERN_WARP;
    x = tern_warp_max(x);
    if (lane == 0) {
        scratch[warp] = x;
    }
    __syncthreads();
    float most = tern_warp_max(lane < warps ? scratch[lane] : scratch[0]);
    __syncthreads();
    return most;
}

#endif
