/* norm_fwd.cu - LayerNorm and RMSNorm of rows (N, C), with the residual sum in front: one read of x and residual, one
 * write of sum and out.
 *
 * Held: a row stays in the registers of its team, up to VECS times 16 bytes a thread; a team is 1 to 32 lanes of a warp
 * for rows of up to 128 accesses, else a block. Streamed (wider, or not aligned): a block reads its row three times.
 * Statistics are f32 in a fixed order: the mean, then the mean of squared deviations from it. */
#include "kernels/cuda/team.cuh"

enum {
    VECS = 4,
    TEAM_THREADS = 256,
    BLOCK_THREADS_MAX = 512
};

template <typename T> struct norm_fwd {
    const T *x, *residual; /* (N, C); residual may be null */
    T *sum;                /* (N, C), may be x */
    const T *gamma, *beta; /* (C); beta may be null */
    T *out;                /* (N, C) */
    float *mean, *rstd;    /* (N) or null */
    int64_t n, c;
    float eps;
    bool is_layer;
};

/* W elements of what is normalised, and the sum written. */
template <typename T, int W>
TERN_DEVICE void load_sum(const struct norm_fwd<T> &a, int64_t at, float (&x)[W])
{
    tern_load(a.x + at, x);
    if (a.residual != nullptr) {
        float residual[W];
        tern_load(a.residual + at, residual);
        TERN_UNROLL
        for (int i = 0; i < W; i++) {
            x[i] += residual[i];
        }
        tern_store(a.sum + at, x);
        tern_round<T>(x);
    }
}

template <typename T, int W>
TERN_DEVICE void store_normed(const struct norm_fwd<T> &a,
                              int64_t row,
                              int64_t col,
                              float (&x)[W],
                              float mean,
                              float rstd)
{
    float gamma[W], beta[W];
    tern_load(a.gamma + col, gamma);
    TERN_UNROLL
    for (int i = 0; i < W; i++) {
        x[i] = (x[i] - mean) * rstd * gamma[i];
    }
    if (a.beta != nullptr) {
        tern_load(a.beta + col, beta);
        TERN_UNROLL
        for (int i = 0; i < W; i++) {
            x[i] += beta[i];
        }
    }
    tern_store(a.out + row * a.c + col, x);
}

template <typename T>
TERN_DEVICE void keep_stats(const struct norm_fwd<T> &a, int64_t row, float mean, float rstd)
{
    if (a.mean != nullptr) {
        a.mean[row] = mean;
    }
    if (a.rstd != nullptr) {
        a.rstd[row] = rstd;
    }
}

/* `lanes` threads hold a row: a power of two up to 32, or (is_block) the block. */
template <typename T, bool is_block>
__global__ void __launch_bounds__(is_block ? BLOCK_THREADS_MAX : TEAM_THREADS)
    norm_fwd_held(struct norm_fwd<T> a, int lanes)
{
    enum {
        W = tern_wide<T>::COUNT
    };
    TERN_SHARED(float, scratch, [TERN_WARP]);
    int rows = (int)blockDim.x / lanes, lane = (int)threadIdx.x % lanes;
    int vecs = (int)(a.c / W);
    int64_t stride = (int64_t)gridDim.x * rows;
    for (int64_t first = (int64_t)blockIdx.x * rows; first < a.n; first += stride) {
        int64_t row = first + (int)threadIdx.x / lanes;
        bool is_live = row < a.n;
        float x[VECS][W], total = 0;
        TERN_UNROLL
        for (int v = 0; v < VECS; v++) {
            TERN_UNROLL
            for (int i = 0; i < W; i++) {
                x[v][i] = 0;
            }
            if (is_live && lane + v * lanes < vecs) {
                load_sum(a, row * a.c + (int64_t)(lane + v * lanes) * W, x[v]);
            }
            TERN_UNROLL
            for (int i = 0; i < W; i++) {
                total += x[v][i];
            }
        }
        float mean = a.is_layer ? tern_team_sum<is_block>(total, lanes, scratch) / (float)a.c : 0;
        float square = 0;
        TERN_UNROLL
        for (int v = 0; v < VECS; v++) {
            TERN_UNROLL
            for (int i = 0; i < W; i++) {
                float centred = lane + v * lanes < vecs ? x[v][i] - mean : 0;
                square += centred * centred;
            }
        }
        square = tern_team_sum<is_block>(square, lanes, scratch);
        float rstd = 1.0f / sqrtf(square / (float)a.c + a.eps);
        TERN_UNROLL
        for (int v = 0; v < VECS; v++) {
            if (is_live && lane + v * lanes < vecs) {
                store_normed(a, row, (int64_t)(lane + v * lanes) * W, x[v], mean, rstd);
            }
        }
        if (is_live && lane == 0) {
            keep_stats(a, row, mean, rstd);
        }
    }
}

/* A block a row, W elements an access. What a thread wrote to sum it reads again itself. */
template <typename T, int W>
__global__ void __launch_bounds__(BLOCK_THREADS_MAX) norm_fwd_streamed(struct norm_fwd<T> a)
{
    TERN_SHARED(float, scratch, [TERN_WARP]);
    const T *source = a.residual != nullptr ? a.sum : a.x;
    int64_t step = (int64_t)blockDim.x * W, begin = (int64_t)threadIdx.x * W;
    for (int64_t row = blockIdx.x; row < a.n; row += gridDim.x) {
        float total = 0, square = 0, mean = 0, x[W];
        for (int64_t col = begin; col < a.c; col += step) {
            load_sum(a, row * a.c + col, x);
            for (int i = 0; i < W; i++) {
                total += x[i];
            }
        }
        if (a.is_layer) {
            mean = tern_block_sum(total, scratch) / (float)a.c;
        }
        for (int64_t col = begin; col < a.c; col += step) {
            tern_load(source + row * a.c + col, x);
            for (int i = 0; i < W; i++) {
                square += (x[i] - mean) * (x[i] - mean);
            }
        }
        square = tern_block_sum(square, scratch);
        float rstd = 1.0f / sqrtf(square / (float)a.c + a.eps);
        for (int64_t col = begin; col < a.c; col += step) {
            tern_load(source + row * a.c + col, x);
            store_normed(a, row, col, x, mean, rstd);
        }
        if (threadIdx.x == 0) {
            keep_stats(a, row, mean, rstd);
        }
    }
}

template <typename T>
static void launch(const struct tern_cuda_device *cuda, struct norm_fwd<T> a, bool is_aligned)
{
    enum {
        W = tern_wide<T>::COUNT
    };
    int64_t vecs = is_aligned ? a.c / W : a.c;
    if (is_aligned && vecs <= VECS * TERN_WARP) {
        int lanes = tern_team_lanes(vecs);
        tern_launch(norm_fwd_held<T, false>, tern_grid(tern_div_up(a.n * lanes, TEAM_THREADS)),
                    TEAM_THREADS, 0, cuda->stream, a, lanes);
    } else if (is_aligned && vecs <= VECS * BLOCK_THREADS_MAX) {
        int threads = tern_whole_warps(tern_div_up(vecs, VECS), BLOCK_THREADS_MAX);
        tern_launch(norm_fwd_held<T, true>, tern_grid(a.n), threads, 0, cuda->stream, a, threads);
    } else if (is_aligned) {
        tern_launch(norm_fwd_streamed<T, W>, tern_grid(a.n), BLOCK_THREADS_MAX, 0, cuda->stream, a);
    } else {
        int threads = tern_whole_warps(vecs, BLOCK_THREADS_MAX);
        tern_launch(norm_fwd_streamed<T, 1>, tern_grid(a.n), threads, 0, cuda->stream, a);
    }
}

template <typename T>
static tern_status norm_fwd_any(struct tern_device *device, const struct tern_norm_fwd_args *args)
{
    struct norm_fwd<T> a = {
        tern_ptr<const T>(args->x), tern_ptr<const T>(args->residual), tern_ptr<T>(args->sum),
            tern_ptr<const T>(args->gamma), tern_ptr<const T>(args->beta), tern_ptr<T>(args->out),
            tern_ptr<float>(args->mean), tern_ptr<float>(args->rstd), args->n, args->c, args->eps,
            args->kind == TERN_NORM_LAYER
    };
    bool has_residual = !tern_dptr_is_null(args->residual);
    bool is_aligned = args->c % tern_wide<T>::COUNT == 0 && tern_is_aligned(args->x, 16) &&
                      tern_is_aligned(args->residual, 16) &&
                      (!has_residual || tern_is_aligned(args->sum, 16)) &&
                      tern_is_aligned(args->gamma, 16) && tern_is_aligned(args->beta, 16) &&
                      tern_is_aligned(args->out, 16);
    launch(tern_cuda_device_of(device), a, is_aligned);
    return tern_cuda_launched("norm_fwd");
}

tern_status tern_cuda_norm_fwd(struct tern_device *device, const struct tern_norm_fwd_args *args)
{
    return args->dtype == TERN_BF16 ? norm_fwd_any<tern_bf16>(device, args)
                                    : norm_fwd_any<float>(device, args);
}
