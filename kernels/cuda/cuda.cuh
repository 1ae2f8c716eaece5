/* cuda.cuh - what a .cu file includes first: the kernels' language, and the backend's C declarations. */
#ifndef TERN_KERNELS_CUDA_CUDA_CUH
#define TERN_KERNELS_CUDA_CUDA_CUH

#include "kernels/cuda/target.cuh"
#include "kernels/cuda/warp.cuh"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include "kernels/cuda/cuda.h"
}

/* A device address as a pointer for a kernel's argument. */
template <typename T> static inline T *tern_ptr(struct tern_dptr p)
{
    return reinterpret_cast<T *>((uintptr_t)p.addr);
}

#endif
