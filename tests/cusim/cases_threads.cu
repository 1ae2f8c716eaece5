/* cases_threads.cu - barriers, warps, shared memory, tensor cores. */
#include "tests/cusim/cases.h"

enum {
    THREADS = 128,
    BLOCKS = 5
};

/* ---- sums over a block, and what is wrong with them ---- */

enum sum_kind {
    RIGHT,
    NO_BARRIER,
    NO_LAST_BARRIER
};

/* out[block] = the sum of the block's part of x, twice over, so that the scratch space is used again. */
template <sum_kind kind> __global__ void sum_twice(const float *x, float *out)
{
    TERN_SHARED(float, scratch, [THREADS]);
    float total = 0;
    for (int turn = 0; turn < 2; turn++) {
        scratch[threadIdx.x] = x[blockIdx.x * THREADS + threadIdx.x];
        if (kind != NO_BARRIER) {
            __syncthreads();
        }
        for (int i = 0; i < THREADS; i++) {
            total += scratch[i];
        }
        if (kind != NO_LAST_BARRIER) {
            __syncthreads();
        }
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = total;
    }
}

template <sum_kind kind> static void run_sum()
{
    float x[THREADS * BLOCKS], sums[BLOCKS];
    for (int i = 0; i < THREADS * BLOCKS; i++) {
        x[i] = (float)(i % 11);
    }
    float *in = device_array(THREADS * BLOCKS, x), *out = device_array<float>(BLOCKS);
    tern_launch(sum_twice<kind>, BLOCKS, THREADS, 0, nullptr, in, out);
    EXPECT(cudaMemcpy(sums, out, sizeof sums, cudaMemcpyDeviceToHost) == cudaSuccess);
    for (int b = 0; b < BLOCKS; b++) {
        float want = 0;
        for (int i = 0; i < THREADS; i++) {
            want += 2 * x[b * THREADS + i];
        }
        EXPECT(sums[b] == want);
    }
    cudaFree(in);
    cudaFree(out);
}

__global__ void block_sum(float *out)
{
    TERN_SHARED(float, scratch, [TERN_WARP]);
    float total = tern_block_sum((float)threadIdx.x, scratch);
    float most = tern_block_max((float)threadIdx.x, scratch);
    out[threadIdx.x] = total + most;
}

static void run_block_sum()
{
    float sums[THREADS];
    float *out = device_array<float>(THREADS);
    tern_launch(block_sum, 1, THREADS, 0, nullptr, out);
    cudaMemcpy(sums, out, sizeof sums, cudaMemcpyDeviceToHost);
    for (float sum : sums) {
        EXPECT(sum == THREADS * (THREADS - 1) / 2 + THREADS - 1);
    }
    cudaFree(out);
}

/* ---- single blocks whose only point is what they do ---- */

/* Runs a kernel of one block that takes one array of as many floats as threads. */
static void run_block(void (*kernel)(float *), int threads, size_t shared_bytes = 0)
{
    float *x = device_zeros<float>((size_t)threads);
    tern_launch(kernel, 1, threads, shared_bytes, nullptr, x);
    EXPECT(cudaGetLastError() == cudaSuccess);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    cudaFree(x);
}

__global__ void divergent_barrier(float *x)
{
    if (threadIdx.x < 32) {
        x[threadIdx.x] = 1;
        __syncthreads();
    } else {
        __syncthreads();
    }
}

__global__ void barrier_of_some(float *x)
{
    if (threadIdx.x < 32) {
        __syncthreads();
    }
    x[threadIdx.x] = 1;
}

__global__ void return_before_barrier(float *x)
{
    if (threadIdx.x >= 96) {
        return;
    }
    __syncthreads();
    x[threadIdx.x] = 1;
}

__global__ void early_return(float *x)
{
    if (threadIdx.x >= 77) {
        return;
    }
    x[threadIdx.x] = 1;
}

__global__ void shuffle_left_out(float *x)
{
    x[threadIdx.x] = __shfl_xor_sync(0xffff, x[threadIdx.x], 1);
}

__global__ void shuffle_other_mask(float *x)
{
    unsigned mask = threadIdx.x < 16 ? 0xffffffffu : 0xffff0000u;
    x[threadIdx.x] = __shfl_xor_sync(mask, x[threadIdx.x], 1);
}

__global__ void shuffle_from_outside(float *x)
{
    if (threadIdx.x < 16) {
        x[threadIdx.x] = __shfl_sync(0xffff, x[threadIdx.x], 20);
    }
}

__global__ void shuffle_after_return(float *x)
{
    if (threadIdx.x >= 16) {
        return;
    }
    x[threadIdx.x] = __shfl_down_sync(TERN_WARP_ALL, x[threadIdx.x], 8);
}

__global__ void shuffle_against_barrier(float *x)
{
    if (threadIdx.x % 32 < 16) {
        x[threadIdx.x] = __shfl_xor_sync(TERN_WARP_ALL, x[threadIdx.x], 16);
    }
    __syncthreads();
}

/* Every kind, in halves of a warp, in segments, and votes; x[i] = 1 where all is right. */
__global__ void shuffles(float *x)
{
    int lane = (int)threadIdx.x % 32, half = lane / 16;
    unsigned mask = half == 0 ? 0xffffu : 0xffff0000u;
    bool good = __shfl_sync(TERN_WARP_ALL, lane, 5) == 5;
    good &= __shfl_sync(TERN_WARP_ALL, lane, 5, 8) == lane / 8 * 8 + 5;
    good &= __shfl_xor_sync(TERN_WARP_ALL, lane, 3) == (lane ^ 3);
    good &= __shfl_up_sync(TERN_WARP_ALL, lane, 2) == (lane < 2 ? lane : lane - 2);
    good &= __shfl_down_sync(TERN_WARP_ALL, lane, 2) == (lane > 29 ? lane : lane + 2);
    good &= __shfl_down_sync(TERN_WARP_ALL, (double)lane, 2, 8) == (lane % 8 > 5 ? lane : lane + 2);
    if (half == 0) {
        good &= __shfl_xor_sync(mask, lane, 8) == (lane ^ 8);
    } else {
        good &= __shfl_xor_sync(mask, lane, 4) == (lane ^ 4);
    }
    good &= __ballot_sync(TERN_WARP_ALL, lane % 2) == 0xaaaaaaaau;
    good &= __any_sync(TERN_WARP_ALL, lane == 7) && !__all_sync(TERN_WARP_ALL, lane == 7);
    good &= __syncthreads_count((int)threadIdx.x < 70) == 70;
    good &= __syncthreads_or(threadIdx.x == 99) && !__syncthreads_and(threadIdx.x == 99);
    x[threadIdx.x] = good;
}

static void run_shuffles()
{
    float x[THREADS];
    float *out = device_array<float>(THREADS);
    tern_launch(shuffles, 1, THREADS, 0, nullptr, out);
    cudaMemcpy(x, out, sizeof x, cudaMemcpyDeviceToHost);
    for (float each : x) {
        EXPECT(each == 1);
    }
    cudaFree(out);
}

/* Neighbours of a warp swap through shared memory. */
template <bool is_ordered> __global__ void swap_in_warp(float *x)
{
    TERN_SHARED(float, tile, [THREADS]);
    tile[threadIdx.x] = (float)threadIdx.x;
    if (is_ordered) {
        __syncwarp();
    } else {
        __shfl_sync(TERN_WARP_ALL, 0, 0); /* lanes meet here, but memory is not ordered by it */
    }
    x[threadIdx.x] = tile[threadIdx.x ^ 1];
}

__global__ void warp_order_across_warps(float *x)
{
    TERN_SHARED(float, tile, [THREADS]);
    tile[threadIdx.x] = (float)threadIdx.x;
    __syncwarp();
    x[threadIdx.x] = tile[threadIdx.x ^ 32];
}

__global__ void shared_not_written(float *x)
{
    TERN_SHARED(float, tile, [THREADS]);
    if (threadIdx.x != 3) {
        tile[threadIdx.x] = 1;
    }
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x];
}

__global__ void shared_index(float *x)
{
    TERN_SHARED(float, tile, [4][32]);
    int column = (int)threadIdx.x % 32 + (threadIdx.x == 127);
    tile[threadIdx.x / 32][column] = 1;
    __syncthreads();
    x[threadIdx.x] = 1;
}

__global__ void dynamic_index(float *x)
{
    TERN_DYNAMIC_SHARED(float, tile);
    tile[threadIdx.x + 1] = 1;
    x[threadIdx.x] = 1;
}

__global__ void use_dynamic(float *x)
{
    TERN_DYNAMIC_SHARED(float, tile);
    tile[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x ^ 64];
}

__global__ void too_much_shared(float *x)
{
    TERN_SHARED(float, one, [8000]);
    TERN_SHARED(float, two, [8000]);
    one[threadIdx.x] = two[threadIdx.x] = 1;
    x[threadIdx.x] = one[threadIdx.x];
}

/* ---- asynchronous copies, matrix loads, tensor cores ---- */

enum copy_kind {
    COPY_RIGHT,
    COPY_NO_WAIT,
    COPY_WAIT_TOO_LITTLE,
    COPY_NO_BARRIER,
    COPY_NO_COMMIT
};

/* Four tiles of 16 bytes a thread pass through two buffers. */
template <copy_kind kind> __global__ void copy_tiles(const float *in, float *out)
{
    TERN_SHARED(float, tile, [2][THREADS * 4]);
    int i = (int)threadIdx.x * 4, other = i ^ 4;
    tern_cp_async16(&tile[0][i], in + i, 16);
    tern_cp_async_commit();
    for (int turn = 0; turn < 4; turn++) {
        if (turn < 3) {
            tern_cp_async16(&tile[(turn + 1) % 2][i], in + (turn + 1) * THREADS * 4 + i, 16);
        }
        if (kind != COPY_NO_COMMIT) {
            tern_cp_async_commit();
        }
        if (kind == COPY_WAIT_TOO_LITTLE) {
            tern_cp_async_wait<2>();
        } else if (kind != COPY_NO_WAIT) {
            tern_cp_async_wait<1>();
        }
        if (kind != COPY_NO_BARRIER) {
            __syncthreads();
        }
        for (int k = 0; k < 4; k++) {
            out[turn * THREADS * 4 + i + k] = tile[turn % 2][other + k];
        }
        __syncthreads();
    }
    tern_cp_async_wait<0>();
}

template <copy_kind kind> static void run_copy_tiles()
{
    static float x[THREADS * 16], y[THREADS * 16];
    for (int i = 0; i < THREADS * 16; i++) {
        x[i] = (float)i;
    }
    float *in = device_array(THREADS * 16, x), *out = device_array<float>(THREADS * 16);
    tern_launch(copy_tiles<kind>, 1, THREADS, 0, nullptr, in, out);
    cudaMemcpy(y, out, sizeof y, cudaMemcpyDeviceToHost);
    for (int i = 0; i < THREADS * 16; i++) {
        EXPECT(y[i] == x[i ^ 4]);
    }
    cudaFree(in);
    cudaFree(out);
}

/* d (16, 8) = a (16, 16) b^T, b (8, 16); ldmatrix for both. */
template <bool is_aligned> __global__ void product(const uint16_t *a, const uint16_t *b, float *d)
{
    TERN_SHARED(uint16_t, tile_a, [16][16]);
    TERN_SHARED(uint16_t, tile_b, [16][16]);
    int lane = (int)threadIdx.x, group = lane / 4, t = lane % 4;
    for (int i = lane; i < 256; i += 32) {
        tile_a[i / 16][i % 16] = a[i];
        tile_b[i / 16][i % 16] = i < 128 ? b[i] : 0;
    }
    __syncwarp();
    uint32_t left[4], right[4];
    tern_ldmatrix_x4(left, &tile_a[lane % 16][lane / 16 * 8 + (is_aligned ? 0 : 1)]);
    tern_ldmatrix_x4(right, &tile_b[lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
    uint32_t factor[2] = {right[0], right[1]};
    float sum[4] = {0, 0, 0, 0};
    tern_mma_bf16(sum, left, factor);
    for (int i = 0; i < 4; i++) {
        d[(group + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
    }
}

template <bool is_aligned> static void run_product()
{
    uint16_t a[16 * 16], b[8 * 16];
    float d[16 * 8];
    for (int i = 0; i < 16 * 16; i++) {
        a[i] = tern_store_bf16((float)(i * 7 % 13 - 6));
        b[i % 128] = tern_store_bf16((float)(i * 5 % 11 - 5));
    }
    uint16_t *left = device_array(16 * 16, a), *right = device_array(8 * 16, b);
    float *out = device_array<float>(16 * 8);
    tern_launch(product<is_aligned>, 1, 32, 0, nullptr, left, right, out);
    cudaMemcpy(d, out, sizeof d, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 16 * 8; i++) {
        float want = 0;
        for (int k = 0; k < 16; k++) {
            want += tern_load_bf16(a[i / 8 * 16 + k]) * tern_load_bf16(b[i % 8 * 16 + k]);
        }
        EXPECT(d[i] == want);
    }
    cudaFree(left);
    cudaFree(right);
    cudaFree(out);
}

/* What another lane has just written, without __syncwarp. */
__global__ void load_matrix_too_soon(float *x)
{
    TERN_SHARED(uint16_t, tile, [32][8]);
    tern_vec16 *row = reinterpret_cast<tern_vec16 *>(tile[threadIdx.x]);
    *row = {{0, 0, 0, 0}};
    __syncwarp();
    *row = {{1, 2, 3, 4}};
    uint32_t r[4];
    tern_ldmatrix_x4(r, tile[threadIdx.x ^ 1]);
    x[threadIdx.x] = (float)r[0];
}

__global__ void mma_in_part(float *x)
{
    if (threadIdx.x < 20) {
        float d[4] = {0, 0, 0, 0};
        uint32_t a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
        tern_mma_bf16(d, a, b);
        x[threadIdx.x] = d[0];
    }
}

#define BLOCK(kernel, ...) \
    { \
#        kernel, [] { run_block(kernel, __VA_ARGS__); } \
    }
const test_case g_thread_cases[] = {
    {"sum", run_sum<RIGHT>},
    {"sum_no_barrier", run_sum<NO_BARRIER>},
    {"sum_no_last_barrier", run_sum<NO_LAST_BARRIER>},
    {"block_sum", run_block_sum},
    BLOCK(divergent_barrier, THREADS),
    BLOCK(barrier_of_some, THREADS),
    BLOCK(return_before_barrier, THREADS),
    BLOCK(early_return, THREADS),
    BLOCK(shuffle_left_out, 32),
    BLOCK(shuffle_other_mask, 32),
    BLOCK(shuffle_from_outside, 32),
    BLOCK(shuffle_after_return, 32),
    BLOCK(shuffle_against_barrier, THREADS),
    {"shuffles", run_shuffles},
    {"swap_in_warp", [] { run_block(swap_in_warp<true>, THREADS); }},
    {"swap_unordered", [] { run_block(swap_in_warp<false>, THREADS); }},
    BLOCK(warp_order_across_warps, THREADS),
    BLOCK(shared_not_written, THREADS),
    BLOCK(shared_index, THREADS),
    BLOCK(dynamic_index, THREADS, THREADS * sizeof(float)),
    BLOCK(use_dynamic, THREADS, THREADS * sizeof(float)),
    {"no_dynamic", [] { run_block(use_dynamic, THREADS); }},
    BLOCK(too_much_shared, THREADS),
    {"copy_tiles", run_copy_tiles<COPY_RIGHT>},
    {"copy_no_wait", run_copy_tiles<COPY_NO_WAIT>},
    {"copy_wait_too_little", run_copy_tiles<COPY_WAIT_TOO_LITTLE>},
    {"copy_no_barrier", run_copy_tiles<COPY_NO_BARRIER>},
    {"copy_no_commit", run_copy_tiles<COPY_NO_COMMIT>},
    {"product", run_product<true>},
    {"product_misaligned", run_product<false>},
    BLOCK(load_matrix_too_soon, 32),
    BLOCK(mma_in_part, 32),
    {nullptr, nullptr},
};
