/* reduce.cu - sums over rows (bias gradients) and sums of squares of runs of elements (the gradient norm).
 *
 * bias_bwd: rows are cut into runs by the shape alone; a block sums a run of its 32 lanes' columns, every warp taking
 * each eighth row; the sums of runs (runs, n) f32 lie in the workspace and are added in order. dy is read once.
 * sumsq: a block an entry; products and sums in double, in an order that the addresses have no part in.
 * clip: one block; its threads fetch, one of them adds: every backend's order, so every backend's bits. An addition waits
 * for the one before, 4 to 5 ns each: 0.5 ms a step for the 95,000 blocks of a 1.5B model. */
#include "kernels/cuda/team.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / TERN_WARP,
    ROWS_AT_ONCE = 4, /* of a warp */
    RUN_ROWS_MIN = WARPS * ROWS_AT_ONCE,
    BLOCKS_WANTED = 1024,
    SQUARE_THREADS = 512,
    SQUARE_GROUP = 4, /* neighbours that a thread takes */
    GROUPS_AT_ONCE = 4,
    CLIP_THREADS = 512,
    CLIP_TILE = 2048 /* values that lie ready for the one that adds */
};

/* ---- bias ---- */

template <typename T> struct bias_bwd {
    const T *dy;    /* (rows, n), row stride ldy */
    float *partial; /* (runs, n) */
    int64_t rows, n, ldy, run_rows;
};

/* By the shape and dtype alone. */
static int64_t bias_run_rows(int64_t rows, int64_t n, int64_t element_bytes)
{
    int64_t tiles = tern_div_up(n * element_bytes, (int64_t)TERN_WARP * 16);
    int64_t most = tern_div_up(BLOCKS_WANTED, tiles), runs = tern_div_up(rows, RUN_ROWS_MIN);
    return tern_div_up(rows, tern_min(runs, most));
}

size_t tern_cuda_reduce_workspace(const struct tern_cuda_device *cuda,
                                  const struct tern_op_limits *limits)
{
    (void)cuda;
    /* runs * n: at most BLOCKS_WANTED tiles of up to 256 columns and one more row of them */
    int64_t most = (int64_t)BLOCKS_WANTED * TERN_WARP * 8 + limits->width;
    int64_t short_of = tern_div_up(limits->rows, RUN_ROWS_MIN) * limits->width;
    return (size_t)tern_min(most, short_of) * sizeof(float);
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) bias_bwd_kernel(struct bias_bwd<T> a)
{
    TERN_SHARED(float, tile, [WARPS][W][TERN_WARP]);
    int warp = (int)threadIdx.x / TERN_WARP, lane = (int)threadIdx.x % TERN_WARP;
    int64_t col = ((int64_t)blockIdx.x * TERN_WARP + lane) * W;
    int64_t begin = (int64_t)blockIdx.y * a.run_rows;
    int64_t end = tern_min(begin + a.run_rows, a.rows);
    float sum[W] = {};
    for (int64_t row = begin + warp; row < end && col < a.n; row += WARPS * ROWS_AT_ONCE) {
        float dy[ROWS_AT_ONCE][W];
        TERN_UNROLL
        for (int r = 0; r < ROWS_AT_ONCE; r++) {
            if (row + r * WARPS < end) {
                tern_load(a.dy + (row + r * WARPS) * a.ldy + col, dy[r]);
            } else {
                TERN_UNROLL
                for (int i = 0; i < W; i++) {
                    dy[r][i] = 0;
                }
            }
        }
        TERN_UNROLL
        for (int r = 0; r < ROWS_AT_ONCE; r++) {
            TERN_UNROLL
            for (int i = 0; i < W; i++) {
                sum[i] += dy[r][i];
            }
        }
    }
    TERN_UNROLL
    for (int i = 0; i < W; i++) {
        tile[warp][i][lane] = sum[i];
    }
    __syncthreads();
    for (int at = (int)threadIdx.x; at < W * TERN_WARP; at += THREADS) {
        int64_t to = ((int64_t)blockIdx.x * TERN_WARP + at / W) * W + at % W;
        float total = 0;
        for (int w = 0; w < WARPS; w++) {
            total += tile[w][at % W][at / W];
        }
        if (to < a.n) {
            a.partial[(int64_t)blockIdx.y * a.n + to] = total;
        }
    }
}

template <typename T>
static tern_status bias_bwd_any(struct tern_device *device, const struct tern_bias_bwd_args *args)
{
    enum {
        W = tern_wide<T>::COUNT
    };
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    int64_t run_rows = bias_run_rows(args->rows, args->n, sizeof(T));
    int64_t runs = tern_div_up(args->rows, run_rows);
    void *workspace;
    TERN_RETURN_IF_ERR(
        tern_cuda_need(cuda, "bias_bwd", (size_t)(runs * args->n) * sizeof(float), &workspace));
    bias_bwd<T> a = {
        tern_ptr<const T>(args->dy), (float *)workspace, args->rows, args->n, args->ldy, run_rows};
    bool is_wide = args->n % W == 0 && args->ldy % W == 0 && tern_is_aligned(args->dy, 16);
    int64_t columns = (int64_t)TERN_WARP * (is_wide ? W : 1);
    dim3 grid((unsigned)tern_div_up(args->n, columns), (unsigned)runs);
    tern_launch(is_wide ? bias_bwd_kernel<T, W> : bias_bwd_kernel<T, 1>, grid, THREADS, 0,
                cuda->stream, a);
    struct tern_fold fold = {
        a.partial, runs, args->n, args->n, tern_ptr<float>(args->dbias), nullptr, args->accumulate};
    tern_fold_run(cuda, fold);
    return tern_cuda_launched("bias_bwd");
}

tern_status tern_cuda_bias_bwd(struct tern_device *device, const struct tern_bias_bwd_args *args)
{
    return args->dtype == TERN_BF16 ? bias_bwd_any<tern_bf16>(device, args)
                                    : bias_bwd_any<float>(device, args);
}

/* ---- sums of squares ---- */

/* x[0..4), as far as there are so many; the rest 0. */
TERN_DEVICE void load_group(const float *x, int64_t left, bool is_aligned, float (&group)[4])
{
    if (is_aligned && left >= SQUARE_GROUP) {
        tern_load(x, group);
        return;
    }
    TERN_UNROLL
    for (int i = 0; i < SQUARE_GROUP; i++) {
        group[i] = i < left ? x[i] : 0;
    }
}

template <bool is_plain>
static __global__ void __launch_bounds__(SQUARE_THREADS)
    sumsq_kernel(const float *x, const int64_t *starts, double *sums, int64_t blocks)
{
    TERN_SHARED(double, scratch, [TERN_WARP]);
    for (int64_t entry = blockIdx.x; entry < blocks; entry += gridDim.x) {
        const float *from = x + starts[entry];
        int64_t count = starts[entry + 1] - starts[entry];
        bool is_aligned = (uintptr_t)from % 16 == 0;
        int64_t step = (int64_t)blockDim.x * SQUARE_GROUP;
        double sum = 0;
        for (int64_t at = (int64_t)threadIdx.x * SQUARE_GROUP; at < count;
             at += GROUPS_AT_ONCE * step) {
            float group[GROUPS_AT_ONCE][SQUARE_GROUP];
            TERN_UNROLL
            for (int g = 0; g < GROUPS_AT_ONCE; g++) {
                load_group(from + at + g * step, count - at - g * step, is_aligned, group[g]);
            }
            TERN_UNROLL
            for (int g = 0; g < GROUPS_AT_ONCE; g++) {
                TERN_UNROLL
                for (int i = 0; i < SQUARE_GROUP; i++) {
                    double value = (double)group[g][i];
                    sum += is_plain ? value : value * value;
                }
            }
        }
        sum = tern_block_sum(sum, &scratch[0]);
        if (threadIdx.x == 0) {
            sums[entry] = sum;
        }
    }
}

tern_status tern_cuda_sumsq(struct tern_device *device, const struct tern_sumsq_args *args)
{
    tern_launch(args->is_plain ? sumsq_kernel<true> : sumsq_kernel<false>, tern_grid(args->blocks),
                SQUARE_THREADS, 0, tern_cuda_device_of(device)->stream,
                tern_ptr<const float>(args->x), tern_ptr<const int64_t>(args->starts),
                tern_ptr<double>(args->sums), args->blocks);
    return tern_cuda_launched("sumsq");
}

/* ---- clipping ---- */

static __global__ void __launch_bounds__(CLIP_THREADS) clip_kernel(const double *values,
                                                                   const int64_t *order,
                                                                   double *total,
                                                                   float *scale,
                                                                   int64_t blocks,
                                                                   int64_t losses,
                                                                   double count,
                                                                   double max_norm)
{
    TERN_SHARED(double, tile, [CLIP_TILE]);
    double sum = 0; /* of thread 0 */
    for (int64_t begin = 0; begin < blocks; begin += CLIP_TILE) {
        int n = (int)tern_min((int64_t)CLIP_TILE, blocks - begin);
        for (int i = (int)threadIdx.x; i < n; i += CLIP_THREADS) {
            tile[i] = values[order[begin + i]];
        }
        __syncthreads();
        for (int i = 0; i < n && threadIdx.x == 0; i++) {
            sum += tile[i];
        }
        __syncthreads();
    }
    bool is_bad = false;
    for (int64_t i = threadIdx.x; i < losses; i += CLIP_THREADS) {
        is_bad = is_bad || !isfinite(values[order[blocks + i]]);
    }
    is_bad = __syncthreads_or(is_bad) != 0;
    if (threadIdx.x == 0) {
        double norm = sqrt(sum) / count;
        double coefficient = max_norm > 0 ? max_norm / (norm + 1e-6) : 1;
        coefficient = coefficient < 1 ? coefficient : 1;
        *total = sum;
        *scale = is_bad || !isfinite(norm) ? nanf("") : (float)(coefficient / count);
    }
}

tern_status tern_cuda_clip(struct tern_device *device, const struct tern_clip_args *args)
{
    tern_launch(clip_kernel, 1, CLIP_THREADS, 0, tern_cuda_device_of(device)->stream,
                tern_ptr<const double>(args->values), tern_ptr<const int64_t>(args->order),
                tern_ptr<double>(args->total), tern_ptr<float>(args->scale), args->blocks,
                args->losses, args->count, args->max_norm);
    return tern_cuda_launched("clip");
}
