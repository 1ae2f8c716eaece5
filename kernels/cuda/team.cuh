/* team.cuh - sums by the threads that share a row: some lanes of a warp, or a block; and column sums' second stage. */
#ifndef TERN_KERNELS_CUDA_TEAM_CUH
#define TERN_KERNELS_CUDA_TEAM_CUH

#include "kernels/cuda/vec.cuh"

/* Every thread of a team gets its team's sum; all threads of the warp call it. lanes: a power of two up to 32, or
 * (is_block) anything; scratch: one float a warp, for a block. */
template <bool is_block> TERN_DEVICE float tern_team_sum(float x, int lanes, float *scratch)
{
    if constexpr (is_block) {
        return tern_block_sum(x, scratch);
    } else {
        for (int offset = lanes / 2; offset > 0; offset /= 2) {
            x += __shfl_xor_sync(TERN_WARP_ALL, x, offset);
        }
        return x;
    }
}

/* Lanes of a team for rows of so many accesses. */
static inline int tern_team_lanes(int64_t vecs)
{
    int lanes = 1;
    while (lanes < TERN_WARP && lanes < vecs) {
        lanes *= 2;
    }
    return lanes;
}

/* Threads of a block for so many items, in whole warps. */
static inline int tern_whole_warps(int64_t items, int threads_max)
{
    int64_t threads = tern_div_up(items, TERN_WARP) * TERN_WARP;
    return (int)tern_min(threads, threads_max);
}

/* A grid of one dimension; kernels stride over what is beyond. */
static inline unsigned tern_grid(int64_t blocks)
{
    return (unsigned)tern_max(1, tern_min(blocks, 1 << 24));
}

/* ---- column sums, second stage: partial sums of `runs` runs of rows, added in order ---- */

struct tern_fold {
    const float *partial; /* (runs, columns) */
    int64_t runs, columns;
    int64_t split;         /* columns [0, split) go to first, the rest to second */
    float *first, *second; /* second may be null when split is columns */
    bool accumulate;
};

enum {
    TERN_FOLD_THREADS = 1024 /* 32 columns, 32 groups of runs */
};

static __global__ void __launch_bounds__(TERN_FOLD_THREADS) tern_fold_kernel(struct tern_fold a)
{
    TERN_SHARED(float, tile, [TERN_WARP][TERN_WARP]);
    int lane = (int)threadIdx.x % TERN_WARP, group = (int)threadIdx.x / TERN_WARP;
    int64_t col = (int64_t)blockIdx.x * TERN_WARP + lane;
    float sum = 0;
    if (col < a.columns) {
        for (int64_t run = group; run < a.runs; run += TERN_WARP) {
            sum += a.partial[run * a.columns + col];
        }
    }
    tile[group][lane] = sum;
    __syncthreads();
    if (group == 0 && col < a.columns) {
        float *to = col < a.split ? a.first + col : a.second + (col - a.split);
        float total = a.accumulate ? *to : 0;
        for (int g = 0; g < TERN_WARP && g < a.runs; g++) {
            total += tile[g][lane];
        }
        *to = total;
    }
}

static inline void tern_fold_run(const struct tern_cuda_device *cuda, struct tern_fold fold)
{
    tern_launch(tern_fold_kernel, tern_grid(tern_div_up(fold.columns, TERN_WARP)),
                TERN_FOLD_THREADS, 0, cuda->stream, fold);
}

#endif
