/* norm_fwd.cu - LayerNorm and RMSNorm of rows (N, C), with the residual sum in front: one read of x and residual, one
 * write of sum and out.
 *
 * Held: a row stays in the registers of its team, up to VECS times 16 bytes a thread; a team is 1 to 32 lanes of a warp
 * for rows of up to 128 accesses, else a block. Streamed (wider, or not aligned): a block reads its row three times.
 * Norms of heads, strided rows and norms in place are streamed too: a block a norm.
 * Statistics are f32 in a fixed order: the mean, then the mean of squared deviations from it. */
#include "kernels/cuda/team.cuh"

enum {
    VECS = 4,
    GIVEN = 2, /* accesses of gamma and beta before two of out */
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
    float eps, by_c, offset; /* by_c: 1 / C; offset: of gamma */
    bool is_layer;
    /* streamed only; n counts norms then */
    T *copy; /* (N, C) or null */
    int64_t heads, x_row, out_row;
};

/* Where norm number `norm` starts in rows of a stride, `heads` of them in a row. */
TERN_DEVICE int64_t norm_start(int64_t norm, int64_t heads, int64_t c, int64_t row)
{
    return heads == 1 ? norm * row : norm / heads * row + norm % heads * c;
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

/* Which accesses of which row are a thread's: lane, lane + lanes, ... below vecs; vecs 0: of none. */
struct share {
    int64_t row;
    int lane, lanes, vecs;
};

template <typename T> TERN_DEVICE tern_words<16> read_vec(const T *p, int64_t vec)
{
    return *reinterpret_cast<const tern_words<16> *>(p + vec * tern_wide<T>::COUNT);
}

template <typename T> TERN_DEVICE void write_vec(T *p, int64_t vec, const tern_words<16> &words)
{
    *reinterpret_cast<tern_words<16> *>(p + vec * tern_wide<T>::COUNT) = words;
}

/* x of what is normalised, as stored; the sum is written. Reads first: sum may be x, so none would pass a write. */
template <typename T, int count>
TERN_DEVICE void hold_row(const struct norm_fwd<T> &a,
                          const struct share &mine,
                          tern_words<16> (&x)[count])
{
    enum {
        W = tern_wide<T>::COUNT
    };
    tern_words<16> residual[count] = {};
    TERN_UNROLL
    for (int v = 0; v < count; v++) {
        int vec = mine.lane + v * mine.lanes;
        if (vec < mine.vecs) {
            x[v] = read_vec(a.x + mine.row * a.c, vec);
            if (a.residual != nullptr) {
                residual[v] = read_vec(a.residual + mine.row * a.c, vec);
            }
        }
    }
    TERN_UNROLL
    for (int v = 0; v < count && a.residual != nullptr; v++) {
        int vec = mine.lane + v * mine.lanes;
        if (vec < mine.vecs) {
            float sum[W], added[W];
            tern_unpack<T, W>(x[v], sum);
            tern_unpack<T, W>(residual[v], added);
            TERN_UNROLL
            for (int i = 0; i < W; i++) {
                sum[i] += added[i];
            }
            tern_pack<T, W>(sum, x[v]);
            write_vec(a.sum + mine.row * a.c, vec, x[v]);
        }
    }
}

/* This thread's part of the sum of x, or of (x - mean)^2. */
template <typename T, bool is_square, int count>
TERN_DEVICE float add_up(const struct share &mine, const tern_words<16> (&x)[count], float mean)
{
    enum {
        W = tern_wide<T>::COUNT
    };
    float sum = 0;
    TERN_UNROLL
    for (int v = 0; v < count; v++) {
        if (mine.lane + v * mine.lanes < mine.vecs) {
            float e[W];
            tern_unpack<T, W>(x[v], e);
            TERN_UNROLL
            for (int i = 0; i < W; i++) {
                sum += is_square ? (e[i] - mean) * (e[i] - mean) : e[i];
            }
        }
    }
    return sum;
}

/* out of a held row; gamma and beta come from the first cache. */
template <typename T, int count>
TERN_DEVICE void give_row(const struct norm_fwd<T> &a,
                          const struct share &mine,
                          const tern_words<16> (&x)[count],
                          float mean,
                          float rstd)
{
    enum {
        W = tern_wide<T>::COUNT,
        AT_ONCE = count < GIVEN ? count : GIVEN
    };
    TERN_UNROLL
    for (int first = 0; first < count; first += AT_ONCE) {
        tern_words<16> gamma[AT_ONCE], beta[AT_ONCE] = {};
        TERN_UNROLL
        for (int v = 0; v < AT_ONCE; v++) {
            int vec = mine.lane + (first + v) * mine.lanes;
            if (vec < mine.vecs) {
                gamma[v] = read_vec(a.gamma, vec);
                if (a.beta != nullptr) {
                    beta[v] = read_vec(a.beta, vec);
                }
            }
        }
        TERN_UNROLL
        for (int v = 0; v < AT_ONCE; v++) {
            int vec = mine.lane + (first + v) * mine.lanes;
            if (vec < mine.vecs) {
                float e[W], g[W], b[W];
                tern_unpack<T, W>(x[first + v], e);
                tern_unpack<T, W>(gamma[v], g);
                tern_unpack<T, W>(beta[v], b);
                TERN_UNROLL
                for (int i = 0; i < W; i++) {
                    e[i] = (e[i] - mean) * rstd * (g[i] + a.offset) + b[i];
                }
                tern_words<16> words;
                tern_pack<T, W>(e, words);
                write_vec(a.out + mine.row * a.c, vec, words);
            }
        }
    }
}

/* `lanes` threads hold a row of up to count accesses each: a power of two up to 32, or (is_block) the block. */
template <typename T, bool is_block, int count>
__global__ void __launch_bounds__(is_block ? BLOCK_THREADS_MAX : TEAM_THREADS, is_block ? 1 : 3)
    norm_fwd_held(struct norm_fwd<T> a, int lanes)
{
    if constexpr (!is_block && count > 1) {
        lanes =
            TERN_WARP; /* known here, so that a row's addresses differ by constants: fewer registers */
    }
    TERN_SHARED(float, scratch, [TERN_WARP]);
    int rows = (int)blockDim.x / lanes, vecs = (int)(a.c / tern_wide<T>::COUNT);
    int64_t stride = (int64_t)gridDim.x * rows;
    for (int64_t first = (int64_t)blockIdx.x * rows; first < a.n; first += stride) {
        struct share mine = {first + (int)threadIdx.x / lanes, (int)threadIdx.x % lanes, lanes, 0};
        mine.vecs = mine.row < a.n ? vecs : 0;
        tern_words<16> x[count];
        hold_row(a, mine, x);
        float mean = 0;
        if (a.is_layer) {
            mean = add_up<T, false>(mine, x, 0);
            mean = tern_team_sum<is_block>(mean, lanes, &scratch[0]) * a.by_c;
        }
        float square = add_up<T, true>(mine, x, mean);
        square = tern_team_sum<is_block>(square, lanes, &scratch[0]);
        float rstd = rsqrtf(square * a.by_c + a.eps);
        give_row(a, mine, x, mean, rstd);
        if (mine.vecs > 0 && mine.lane == 0) {
            keep_stats(a, mine.row, mean, rstd);
        }
    }
}

/* W elements of what is normalised, as stored; the sum and the copy, which are dense, are written. */
template <typename T, int W>
TERN_DEVICE void load_sum(const struct norm_fwd<T> &a, int64_t from, int64_t at, float (&x)[W])
{
    tern_load(a.x + from, x);
    if (a.copy != nullptr) {
        tern_store(a.copy + at, x);
    }
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
                              int64_t at,
                              int64_t col,
                              float (&x)[W],
                              float mean,
                              float rstd)
{
    float gamma[W], beta[W] = {};
    tern_load(a.gamma + col, gamma);
    if (a.beta != nullptr) {
        tern_load(a.beta + col, beta);
    }
    TERN_UNROLL
    for (int i = 0; i < W; i++) {
        x[i] = (x[i] - mean) * rstd * (gamma[i] + a.offset) + beta[i];
    }
    tern_store(a.out + at + col, x);
}

/* A block a norm, W elements an access. What a thread wrote to sum it reads again itself; out may be x. */
template <typename T, int W>
__global__ void __launch_bounds__(BLOCK_THREADS_MAX) norm_fwd_streamed(struct norm_fwd<T> a)
{
    TERN_SHARED(float, scratch, [TERN_WARP]);
    const T *source = a.residual != nullptr ? a.sum : a.x;
    int64_t step = (int64_t)blockDim.x * W, begin = (int64_t)threadIdx.x * W;
    for (int64_t row = blockIdx.x; row < a.n; row += gridDim.x) {
        float total = 0, square = 0, mean = 0, x[W];
        int64_t x_at = norm_start(row, a.heads, a.c, a.x_row), dense = row * a.c;
        int64_t at = a.residual != nullptr ? dense : x_at; /* of what is normalised */
        for (int64_t col = begin; col < a.c; col += step) {
            load_sum(a, x_at + col, dense + col, x);
            for (int i = 0; i < W; i++) {
                total += x[i];
            }
        }
        if (a.is_layer) {
            mean = tern_block_sum(total, scratch) * a.by_c;
        }
        for (int64_t col = begin; col < a.c; col += step) {
            tern_load(source + at + col, x);
            for (int i = 0; i < W; i++) {
                square += (x[i] - mean) * (x[i] - mean);
            }
        }
        square = tern_block_sum(square, scratch);
        float rstd = rsqrtf(square * a.by_c + a.eps);
        for (int64_t col = begin; col < a.c; col += step) {
            tern_load(source + at + col, x);
            store_normed(a, norm_start(row, a.heads, a.c, a.out_row), col, x, mean, rstd);
        }
        if (threadIdx.x == 0) {
            keep_stats(a, row, mean, rstd);
        }
    }
}

template <typename T>
static void launch(const struct tern_cuda_device *cuda,
                   struct norm_fwd<T> a,
                   bool is_aligned,
                   bool is_plain)
{
    enum {
        W = tern_wide<T>::COUNT
    };
    int64_t vecs = is_aligned ? a.c / W : a.c;
    if (!is_plain && is_aligned) {
        int threads = tern_whole_warps(vecs, BLOCK_THREADS_MAX);
        tern_launch(norm_fwd_streamed<T, W>, tern_grid(a.n), threads, 0, cuda->stream, a);
    } else if (is_aligned && vecs <= TERN_WARP) {
        int lanes = tern_team_lanes(vecs);
        tern_launch(norm_fwd_held<T, false, 1>, tern_grid(tern_div_up(a.n * lanes, TEAM_THREADS)),
                    TEAM_THREADS, 0, cuda->stream, a, lanes);
    } else if (is_aligned && vecs <= VECS * TERN_WARP) {
        tern_launch(norm_fwd_held<T, false, VECS>,
                    tern_grid(tern_div_up(a.n, TEAM_THREADS / TERN_WARP)), TEAM_THREADS, 0,
                    cuda->stream, a, (int)TERN_WARP);
    } else if (is_aligned && vecs <= VECS * BLOCK_THREADS_MAX) {
        int threads = tern_whole_warps(tern_div_up(vecs, VECS), BLOCK_THREADS_MAX);
        tern_launch(norm_fwd_held<T, true, VECS>, tern_grid(a.n), threads, 0, cuda->stream, a,
                    threads);
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
    int64_t heads = args->heads > 0 ? args->heads : 1, width = heads * args->c;
    int64_t x_row = args->x_row > 0 ? args->x_row : width;
    int64_t out_row = args->out_row > 0 ? args->out_row : width;
    norm_fwd<T> a = {
        tern_ptr<const T>(args->x),
        tern_ptr<const T>(args->residual),
        tern_ptr<T>(args->sum),
        tern_ptr<const T>(args->gamma),
        tern_ptr<const T>(args->beta),
        tern_ptr<T>(args->out),
        tern_ptr<float>(args->mean),
        tern_ptr<float>(args->rstd),
        args->n * heads,
        args->c,
        args->eps,
        1.0f / (float)args->c,
        args->gamma_offset,
        args->kind == TERN_NORM_LAYER,
        tern_ptr<T>(args->copy),
        heads,
        x_row,
        out_row,
    };
    bool has_residual = !tern_dptr_is_null(args->residual);
    bool is_aligned = args->c % tern_wide<T>::COUNT == 0 && tern_is_aligned(args->x, 16) &&
                      tern_is_aligned(args->residual, 16) &&
                      (!has_residual || tern_is_aligned(args->sum, 16)) &&
                      tern_is_aligned(args->gamma, 16) && tern_is_aligned(args->beta, 16) &&
                      tern_is_aligned(args->out, 16) && tern_is_aligned(args->copy, 16) &&
                      (x_row | out_row) % tern_wide<T>::COUNT == 0;
    bool is_plain = x_row == args->c && out_row == args->c && a.copy == nullptr && a.out != a.x;
    launch(tern_cuda_device_of(device), a, is_aligned, is_plain);
    return tern_cuda_launched("norm_fwd");
}

tern_status tern_cuda_norm_fwd(struct tern_device *device, const struct tern_norm_fwd_args *args)
{
    return args->dtype == TERN_BF16 ? norm_fwd_any<tern_bf16>(device, args)
                                    : norm_fwd_any<float>(device, args);
}
