/* cases_memory.cu - device memory: bounds, what was never written, whose memory it is, blocks against blocks, launches. */
#include "tests/cusim/cases.h"

enum {
    N = 100
};

__global__ void scale(const float *in, float *out, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        out[i] = 2 * in[i];
    }
}

/* in (N), out (N), n as given. */
static void run_scale(int n, bool is_written)
{
    static float x[N];
    float *in = is_written ? device_array(N, x) : device_array<float>(N);
    float *out = device_array<float>(N);
    tern_launch(scale, 4, 32, 0, nullptr, in, out, n);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    cudaFree(in);
    cudaFree(out);
}

static void read_unwritten_on_host()
{
    float x[N];
    float *block = device_array<float>(N);
    cudaMemcpy(x, block, sizeof x, cudaMemcpyDeviceToHost);
    cudaFree(block);
}

/* Of a half-written block all is copied; the written half is read. */
static void copy_unwritten()
{
    static float x[N];
    float *one = device_array<float>(N), *two = device_array<float>(N);
    cudaMemcpy(one, x, sizeof x / 2, cudaMemcpyHostToDevice);
    cudaMemcpy(two, one, sizeof x, cudaMemcpyDeviceToDevice);
    tern_launch(scale, 4, 32, 0, nullptr, two, one, N / 2);
    cudaDeviceSynchronize();
    cudaFree(one);
    cudaFree(two);
}

static void use_after_free()
{
    float *in = device_zeros<float>(N), *out = device_array<float>(N);
    cudaFree(in);
    tern_launch(scale, 4, 32, 0, nullptr, in, out, N);
    cudaDeviceSynchronize();
}

static void double_free()
{
    float *in = device_array<float>(N);
    cudaFree(in);
    cudaFree(in);
}

static void copy_too_much()
{
    static float x[N + 1];
    float *in = device_array<float>(N);
    cudaMemcpy(in, x, sizeof x, cudaMemcpyHostToDevice);
}

static void set_host_memory()
{
    static float x[N];
    cudaMemset(x, 0, sizeof x);
}

static void host_argument()
{
    static float x[N];
    float *out = device_array<float>(N);
    tern_launch(scale, 4, 32, 0, nullptr, x, out, N);
    cudaDeviceSynchronize();
}

struct view {
    const float *in;
    float *out;
};

__global__ void scale_view(view v)
{
    v.out[threadIdx.x] = 2 * v.in[threadIdx.x];
}

static void run_view(const float *in)
{
    float *out = device_array<float>(32);
    tern_launch(scale_view, 1, 32, 0, nullptr, view{in, out});
    cudaDeviceSynchronize();
    cudaFree(out);
}

static void host_pointer_in_struct()
{
    float *x = (float *)calloc(32, sizeof(float));
    run_view(x);
}

static void pointer_in_struct()
{
    float *x = device_zeros<float>(32);
    run_view(x);
    cudaFree(x);
}

static void memory_of_other_gpu()
{
    cudaSetDevice(1);
    float *x = device_zeros<float>(32);
    cudaSetDevice(0);
    run_view(x);
}

static void host_touches()
{
    float *x = device_zeros<float>(N);
    printf("%g\n", (double)x[3]);
}

/* ---- blocks ---- */

__global__ void same_place(float *x)
{
    if (threadIdx.x == 0) {
        x[0] = 1;
    }
}

__global__ void read_neighbour(float *x)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), n = (int)(gridDim.x * blockDim.x);
    float other = x[(i + (int)blockDim.x) % n];
    x[i] = other + 1;
}

__global__ void own_places(float *x)
{
    x[blockIdx.x * blockDim.x + threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    x[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}

static void run_blocks(void (*kernel)(float *))
{
    float *x = device_zeros<float>(N);
    tern_launch(kernel, 10, 10, 0, nullptr, x);
    cudaDeviceSynchronize();
    cudaFree(x);
}

/* bf16 neighbours, written by two threads, share a cell of nobody's. */
__global__ void halves(uint16_t *x)
{
    x[threadIdx.x] = tern_store_bf16((float)threadIdx.x);
}

static void run_halves()
{
    uint16_t *x = device_array<uint16_t>(64);
    tern_launch(halves, 1, 64, 0, nullptr, x);
    cudaDeviceSynchronize();
    cudaFree(x);
}

/* ---- wide accesses ---- */

__global__ void wide(const float *in, float *out, int shift)
{
    const tern_vec16 *from = reinterpret_cast<const tern_vec16 *>(in + shift);
    reinterpret_cast<tern_vec16 *>(out)[threadIdx.x] = from[threadIdx.x];
}

static void run_wide(int shift)
{
    float *in = device_zeros<float>(260), *out = device_array<float>(256);
    tern_launch(wide, 1, 64, 0, nullptr, in, out, shift);
    cudaDeviceSynchronize();
    cudaFree(in);
    cudaFree(out);
}

__global__ void shift_too_far(float *x)
{
    int by = 30 + (int)threadIdx.x;
    x[threadIdx.x] = (float)(1u << by);
}

__global__ void cast_too_large(float *x)
{
    x[threadIdx.x] = (float)(int)(x[threadIdx.x] + 3e9f);
}

/* ---- launches ---- */

__global__ void nothing()
{
}

__global__ void touch_dynamic()
{
    TERN_DYNAMIC_SHARED(char, all);
    all[threadIdx.x] = 1;
}

static cudaError_t launch_of(dim3 grid, dim3 block, size_t shared_bytes)
{
    tern_launch(touch_dynamic, grid, block, shared_bytes, nullptr);
    return cudaGetLastError();
}

static void launch_limits()
{
    EXPECT(launch_of(1, 1024, 1024) == cudaSuccess);
    EXPECT(launch_of(1, 1025, 1024) == cudaErrorInvalidConfiguration);
    EXPECT(launch_of(1, dim3(1, 1, 65), 1024) == cudaErrorInvalidConfiguration);
    EXPECT(launch_of(0, 32, 1024) == cudaErrorInvalidConfiguration);
    EXPECT(launch_of(1, 0, 1024) == cudaErrorInvalidConfiguration);
    EXPECT(launch_of(dim3(1, 65536), 32, 1024) == cudaErrorInvalidConfiguration);
    EXPECT(launch_of(1, 32, 49152) == cudaSuccess);
    EXPECT(launch_of(1, 32, 49153) == cudaErrorInvalidValue);
    EXPECT(tern_allow_shared(touch_dynamic, 100000) == cudaSuccess);
    EXPECT(launch_of(1, 32, 100000) == cudaSuccess);
    EXPECT(launch_of(1, 32, 100001) == cudaErrorInvalidValue);
    EXPECT(tern_allow_shared(touch_dynamic, 300000) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
    tern_launch(nothing, dim3(3, 2, 2), dim3(4, 4, 4), 0, nullptr);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
}

static void out_of_memory()
{
    void *block;
    size_t left, total;
    EXPECT(cudaMemGetInfo(&left, &total) == cudaSuccess && left == total);
    EXPECT(cudaMalloc(&block, total + 1) == cudaErrorMemoryAllocation && block == nullptr);
    EXPECT(cudaMalloc(&block, 1000) == cudaSuccess);
    EXPECT(cudaMemGetInfo(&left, &total) == cudaSuccess && left == total - 1024);
    EXPECT(cudaFree(block) == cudaSuccess);
    EXPECT(cudaMemGetInfo(&left, &total) == cudaSuccess && left == total);
}

/* Far more than the addresses that there are, in turn; what stays is not given out again. */
static void addresses_come_round()
{
    setenv("CUSIM_SPAN_MB", "1", 1);
    float *kept = device_zeros<float>(N);
    for (int i = 0; i < 100; i++) {
        char *blocks[3];
        for (char *&block : blocks) {
            EXPECT(cudaMalloc(&block, 20000) == cudaSuccess);
            EXPECT(block + 20000 <= (char *)kept || block >= (char *)(kept + N));
        }
        for (char *block : blocks) {
            EXPECT(cudaFree(block) == cudaSuccess);
        }
    }
    cudaFree(kept);
}

const test_case g_memory_cases[] = {
    {"scale", [] { run_scale(N, true); }},
    {"scale_too_far", [] { run_scale(N + 1, true); }},
    {"scale_unwritten", [] { run_scale(N, false); }},
    {"read_unwritten_on_host", read_unwritten_on_host},
    {"copy_unwritten", copy_unwritten},
    {"use_after_free", use_after_free},
    {"double_free", double_free},
    {"copy_too_much", copy_too_much},
    {"set_host_memory", set_host_memory},
    {"host_argument", host_argument},
    {"host_pointer_in_struct", host_pointer_in_struct},
    {"pointer_in_struct", pointer_in_struct},
    {"memory_of_other_gpu", memory_of_other_gpu},
    {"host_touches", host_touches},
    {"same_place", [] { run_blocks(same_place); }},
    {"read_neighbour", [] { run_blocks(read_neighbour); }},
    {"own_places", [] { run_blocks(own_places); }},
    {"halves", run_halves},
    {"wide", [] { run_wide(0); }},
    {"wide_misaligned", [] { run_wide(1); }},
    {"wide_too_far", [] { run_wide(8); }},
    {"shift_too_far", [] { run_blocks(shift_too_far); }},
    {"cast_too_large", [] { run_blocks(cast_too_large); }},
    {"launch_limits", launch_limits},
    {"out_of_memory", out_of_memory},
    {"addresses_come_round", addresses_come_round},
    {"leak_memory", [] { device_array<float>(N); }},
    {nullptr, nullptr},
};
