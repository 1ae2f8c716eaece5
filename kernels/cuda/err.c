/* err.c - CUDA's errors as Tern's. */
#include "kernels/cuda/cuda.h"

tern_status tern_cuda_status(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) {
        return TERN_OK;
    }
    tern_status status = error == cudaErrorMemoryAllocation ? TERN_ERR_MEMORY : TERN_ERR_DEVICE;
    return tern_fail(status, "%s: %s (%s)", what, cudaGetErrorString(error),
                     cudaGetErrorName(error));
}

tern_status tern_cuda_launched(const char *op)
{
    return tern_cuda_status(cudaGetLastError(), op);
}

tern_status tern_cuda_need(struct tern_cuda_device *device,
                           const char *op,
                           size_t bytes,
                           void **out)
{
    if (bytes > device->workspace_bytes) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "cuda %s: needs %zu bytes of workspace, the device was prepared with %zu: "
                         "call tern_device_prepare with this shape",
                         op, bytes, device->workspace_bytes);
    }
    *out = device->workspace;
    return TERN_OK;
}
