/* runtime.cc - the rest of the runtime API: devices, memory, copies, launches. */
#include "tests/cusim/sim.h"

#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace cusim
{

static thread_local int g_device;
static auto &g_allowed_shared =
    *new std::map<const void *, size_t>; /* by kernel: cudaFuncSetAttribute */

int current_device()
{
    return g_device;
}

/* ---- launches ---- */

static cudaError_t check_launch(const cusim_launch &it)
{
    const dim3 &block = it.block, &grid = it.grid;
    bool is_block = block.x > 0 && block.y > 0 && block.z > 0 && block.x <= 1024 &&
                    block.y <= 1024 && block.z <= 64 &&
                    (uint64_t)block.x * block.y * block.z <= THREADS_MAX;
    bool is_grid = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffff &&
                   grid.y <= 65535 && grid.z <= 65535;
    if (!is_block || !is_grid) {
        return cudaErrorInvalidConfiguration;
    }
    auto allowed = g_allowed_shared.find(it.kernel);
    size_t most = allowed == g_allowed_shared.end()
                      ? (size_t)SHARED_DEFAULT_BYTES
                      : std::max((size_t)SHARED_DEFAULT_BYTES, allowed->second);
    return it.shared_bytes > most ? cudaErrorInvalidValue : cudaSuccess;
}

static cudaError_t launch(const cusim_launch &it, cudaStream_t stream)
{
    std::shared_ptr<void> call(it.call, it.drop);
    cudaError_t error = check_launch(it);
    if (error != cudaSuccess) {
        return error;
    }
    return enqueue(stream, [it, call] {
        operation op = {};
        op.name = "kernel";
        op.kernel = it.kernel;
        op.attempt = [it, call] {
            run_kernel({it, g_random.next()});
            return CUSIM_DONE;
        };
        return op;
    });
}

static bool is_device(int device)
{
    return device >= 0 && device < devices();
}

} // namespace cusim

using namespace cusim;

void cusim_launch_kernel(const cusim_launch &it, cudaStream_t stream)
{
    api_call call;
    set_error(launch(it, stream));
}

void cusim_check_argument(const void *kernel, int index, const void *pointer)
{
    api_call call;
    if (pointer != nullptr && !is_device_address(pointer)) {
        cusim_fail("argument %d of kernel %s is %p, %s, expected device memory", index,
                   describe_code(kernel).c_str(), pointer, describe_address(pointer).c_str());
    }
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    api_call call;
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > SHARED_OPTIN_BYTES) {
            return set_error(cudaErrorInvalidValue);
        }
        g_allowed_shared[kernel] = (size_t)value;
    }
    return cudaSuccess;
}

/* ---- devices ---- */

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = devices();
    return set_error(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device)
{
    if (!is_device(device)) {
        return set_error(cudaErrorInvalidDevice);
    }
    g_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = g_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    static const std::map<int, int> values = {
        {cudaDevAttrMaxThreadsPerBlock, THREADS_MAX},
        {cudaDevAttrMaxBlockDimX, 1024},
        {cudaDevAttrMaxBlockDimY, 1024},
        {cudaDevAttrMaxBlockDimZ, 64},
        {cudaDevAttrMaxGridDimX, 0x7fffffff},
        {cudaDevAttrMaxGridDimY, 65535},
        {cudaDevAttrMaxGridDimZ, 65535},
        {cudaDevAttrMaxSharedMemoryPerBlock, SHARED_DEFAULT_BYTES},
        {cudaDevAttrWarpSize, WARP},
        {cudaDevAttrMaxRegistersPerBlock, 65536},
        {cudaDevAttrClockRate, 1000000},
        {cudaDevAttrMultiProcessorCount, MULTIPROCESSORS},
        {cudaDevAttrPciDeviceId, 0},
        {cudaDevAttrPciDomainId, 0},
        {cudaDevAttrMemoryClockRate, 1000000},
        {cudaDevAttrGlobalMemoryBusWidth, 5120},
        {cudaDevAttrL2CacheSize, 50 << 20},
        {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
        {cudaDevAttrComputeCapabilityMajor, 9},
        {cudaDevAttrComputeCapabilityMinor, 0},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 << 10},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, SHARED_OPTIN_BYTES},
    };
    if (!is_device(device)) {
        return set_error(cudaErrorInvalidDevice);
    }
    auto it = values.find(attribute);
    if (attribute != cudaDevAttrPciBusId && it == values.end()) {
        return set_error(cudaErrorInvalidValue);
    }
    *value = attribute == cudaDevAttrPciBusId ? device + 1 : it->second;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    if (!is_device(device)) {
        return set_error(cudaErrorInvalidDevice);
    }
    *out = cudaDeviceProp{};
    snprintf(out->name, sizeof out->name, "simulated GPU");
    out->totalGlobalMem = device_memory();
    out->sharedMemPerBlock = SHARED_DEFAULT_BYTES;
    out->sharedMemPerBlockOptin = SHARED_OPTIN_BYTES;
    out->sharedMemPerMultiprocessor = 228 << 10;
    out->regsPerBlock = 65536;
    out->warpSize = WARP;
    out->maxThreadsPerBlock = THREADS_MAX;
    out->maxThreadsPerMultiProcessor = 2048;
    out->major = 9;
    out->multiProcessorCount = MULTIPROCESSORS;
    out->pciBusID = device + 1;
    out->memoryBusWidth = 5120;
    out->l2CacheSize = 50 << 20;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    if (!is_device(device)) {
        return set_error(cudaErrorInvalidDevice);
    }
    snprintf(text, (size_t)length, "0000:%02x:00.0", (unsigned)device + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    api_call call;
    cudaError_t error = check_no_capture_of_this_thread();
    if (error == cudaSuccess) {
        drain_device(g_device, true, call.lock);
    }
    return set_error(error);
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    api_call call;
    *out = nullptr;
    cudaError_t error = check_no_capture_of_this_thread();
    if (error == cudaSuccess && bytes > 0) {
        error = allocate(bytes, g_device, out);
    }
    return set_error(error);
}

cudaError_t cudaFree(void *block)
{
    api_call call;
    if (block == nullptr) {
        return cudaSuccess;
    }
    cudaError_t error = check_no_capture_of_this_thread();
    if (error == cudaSuccess) {
        drain_device(g_device, false, call.lock);
        release(block);
    }
    return set_error(error);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int)
{
    api_call call;
    *out = nullptr;
    cudaError_t error = check_no_capture_of_this_thread();
    if (error != cudaSuccess || bytes == 0) {
        return set_error(error);
    }
    void *block = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (block == nullptr) {
        return set_error(cudaErrorMemoryAllocation);
    }
    memset(block, 0xff, bytes);
    *out = block;
    return set_error(pin(block, bytes, g_device));
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaHostAlloc(out, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *block)
{
    api_call call;
    if (block == nullptr) {
        return cudaSuccess;
    }
    cudaError_t error = check_no_capture_of_this_thread();
    if (error != cudaSuccess) {
        return set_error(error);
    }
    drain_device(g_device, false, call.lock);
    finish_effects_on(block, pinned_bytes(block));
    if (!unpin(block)) {
        cusim_fail("cudaFreeHost of %p, which cudaHostAlloc did not give", block);
    }
    free(block);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *block, size_t bytes, unsigned int)
{
    api_call call;
    return set_error(block == nullptr || bytes == 0 ? cudaErrorInvalidValue
                                                    : pin(block, bytes, g_device));
}

cudaError_t cudaHostUnregister(void *block)
{
    api_call call;
    drain_device(g_device, false, call.lock);
    finish_effects_on(block, pinned_bytes(block));
    return set_error(unpin(block) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    api_call call;
    *free_bytes = free_memory(g_device);
    *total_bytes = device_memory();
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *pointer)
{
    api_call call;
    *out = cudaPointerAttributes{};
    enum cusim_kind kind = cusim_kind_of(pointer, 1, &out->device);
    out->type = kind == CUSIM_DEVICE   ? cudaMemoryTypeDevice
                : kind == CUSIM_PINNED ? cudaMemoryTypeHost
                                       : cudaMemoryTypeUnregistered;
    out->devicePointer = kind == CUSIM_DEVICE ? const_cast<void *>(pointer) : nullptr;
    out->hostPointer =
        kind == CUSIM_PINNED || kind == CUSIM_PAGEABLE ? const_cast<void *>(pointer) : nullptr;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst,
                            const void *src,
                            size_t bytes,
                            enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    api_call call;
    return set_error(copy_async(dst, src, bytes, kind, stream, call.lock));
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    api_call call;
    cudaError_t error = check_no_capture_of_this_thread();
    if (error == cudaSuccess) {
        error = copy_async(dst, src, bytes, kind, nullptr, call.lock);
    }
    if (error == cudaSuccess && kind != cudaMemcpyDeviceToDevice) {
        await(last_moment(*find_stream(nullptr)), call.lock);
    }
    return set_error(error);
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    api_call call;
    return set_error(set_async(dst, value, bytes, stream));
}

cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    return cudaMemsetAsync(dst, value, bytes, nullptr);
}
