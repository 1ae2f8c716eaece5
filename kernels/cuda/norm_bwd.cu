/* norm_bwd.cu - gradients of LayerNorm and RMSNorm. With hat = (x - mean) rstd and g = dy gamma:
 *   dx = dresidual + rstd (g - mean(g) - hat mean(g hat))           (rms: without mean(g))
 *   dgamma = sum over rows of dy hat, dbeta = sum over rows of dy.
 *
 * Rows are cut into runs by the shape alone, a block a run. Held: a row stays in the registers of its team (lanes of a
 * warp, or the block), which keeps sums of its columns over all its rows; dy, x and dresidual are read once, dx is written
 * once. Streamed (wider, or not aligned): one kernel reads each row twice for dx, another sums columns. The sums of runs
 * (runs, 2, C) f32 lie in the workspace and are added in order. Norms of heads, strided rows and dx in the place of dy are
 * streamed too: columns come first. */
#include "kernels/cuda/team.cuh"

enum {
    TEAM_THREADS = 256,
    TEAM_WARPS = TEAM_THREADS / TERN_WARP,
    BLOCK_THREADS_MAX = 512,
    STREAM_THREADS = 256,
    HELD_ELEMENTS =
        16, /* of a row in a thread: with their sums, what leaves room for enough warps */
    HELD_ELEMENTS_MAX = 24,
    RUN_ROWS_MIN = 8,
    RUNS_MIN = 160,  /* where rows abound: a block for every multiprocessor */
    RUNS_TEAM = 512, /* of rows that a warp or less holds */
    RUNS_MAX = 1024,
    RUNS_CELLS = 1 << 20 /* wide rows: runs times columns */
};

template <typename T> struct norm_bwd {
    const T *dy, *x;          /* (N, C) */
    const T *gamma;           /* (C) */
    const float *mean, *rstd; /* (N); mean null for rms */
    const T *dresidual;       /* (N, C), may be dx or null */
    T *dx;                    /* (N, C) */
    float *partial;           /* (runs, 2, C), or (runs, C) without beta */
    int64_t n, c, run_rows;
    float by_c, offset; /* 1 / C; of gamma */
    bool has_beta;
    /* streamed only; n counts norms then */
    int64_t heads, x_row, dy_row;
};

/* Where norm number `norm` starts in rows of a stride, `heads` of them in a row. */
TERN_DEVICE int64_t norm_start(int64_t norm, int64_t heads, int64_t c, int64_t row)
{
    return heads == 1 ? norm * row : norm / heads * row + norm % heads * c;
}

static int64_t runs_max(int64_t c)
{
    int64_t most = c <= HELD_ELEMENTS_MAX * TERN_WARP ? RUNS_TEAM : RUNS_MAX;
    return tern_max(RUNS_MIN, tern_min(RUNS_CELLS / c, most));
}

static int64_t run_rows(int64_t n, int64_t c)
{
    return tern_max(RUN_ROWS_MIN, tern_div_up(n, runs_max(c)));
}

size_t tern_cuda_norm_workspace(const struct tern_cuda_device *cuda,
                                const struct tern_op_limits *limits)
{
    (void)cuda;
    /* of every width up to the limit: the most of runs_max(c) * c, and of one run in RUN_ROWS_MIN rows */
    int64_t narrow = tern_min(RUNS_MAX * limits->width, RUNS_CELLS);
    int64_t most = tern_max(RUNS_MIN * limits->width, narrow);
    most = tern_min(most, tern_div_up(limits->rows, RUN_ROWS_MIN) * limits->width);
    return (size_t)most * 2 * sizeof(float);
}

/* Every thread of a team gets the team's two sums. Calls alternate between the halves of scratch, [2][2][32] for a
 * block: one barrier a call is enough. */
template <bool is_block>
TERN_DEVICE void team_sum_pair(float &a, float &b, int lanes, float (*scratch)[TERN_WARP])
{
    if constexpr (is_block) {
        int warps = (int)blockDim.x / TERN_WARP;
        int warp = (int)threadIdx.x / TERN_WARP, lane = (int)threadIdx.x % TERN_WARP;
        a = tern_warp_sum(a);
        b = tern_warp_sum(b);
        if (lane == 0) {
            scratch[0][warp] = a;
            scratch[1][warp] = b;
        }
        __syncthreads();
        a = tern_warp_sum(lane < warps ? scratch[0][lane] : 0.0f);
        b = tern_warp_sum(lane < warps ? scratch[1][lane] : 0.0f);
    } else {
        a = tern_team_sum<false>(a, lanes, nullptr);
        b = tern_team_sum<false>(b, lanes, nullptr);
    }
}

/* One access of a row in registers, as stored. */
struct held {
    tern_words<16> dy, x, dresidual;
};

/* Adds one access to the row's two sums and to the sums of its columns. */
template <typename T, int W>
TERN_DEVICE void take(const struct held &held,
                      const tern_words<16> &gamma_words,
                      float offset,
                      float mean,
                      float rstd,
                      float (&sums)[2],
                      float (&dgamma)[W],
                      float (&dbeta)[W])
{
    float dy[W], x[W], gamma[W];
    tern_unpack<T, W>(held.dy, dy);
    tern_unpack<T, W>(held.x, x);
    tern_unpack<T, W>(gamma_words, gamma);
    TERN_UNROLL
    for (int i = 0; i < W; i++) {
        float hat = (x[i] - mean) * rstd, g = dy[i] * (gamma[i] + offset);
        sums[0] += g;
        sums[1] += g * hat;
        dgamma[i] += dy[i] * hat;
        dbeta[i] += dy[i];
    }
}

/* Reads one access. All reads of a row come before its writes: dx may be dresidual, so none may pass a write. */
template <typename T>
TERN_DEVICE void hold(const struct norm_bwd<T> &a, int64_t at, struct held &held)
{
    held.dy = *reinterpret_cast<const tern_words<16> *>(a.dy + at);
    held.x = *reinterpret_cast<const tern_words<16> *>(a.x + at);
    if (a.dresidual != nullptr) {
        held.dresidual = *reinterpret_cast<const tern_words<16> *>(a.dresidual + at);
    }
}

/* dx of one access; means: of g and of g hat. */
template <typename T, int W>
TERN_DEVICE void give(const struct norm_bwd<T> &a,
                      int64_t at,
                      const struct held &held,
                      const tern_words<16> &gamma_words,
                      float mean,
                      float rstd,
                      const float (&means)[2])
{
    float dy[W], x[W], gamma[W], dx[W];
    tern_unpack<T, W>(held.dy, dy);
    tern_unpack<T, W>(held.x, x);
    tern_unpack<T, W>(gamma_words, gamma);
    TERN_UNROLL
    for (int i = 0; i < W; i++) {
        float hat = (x[i] - mean) * rstd;
        dx[i] = rstd * (dy[i] * (gamma[i] + a.offset) - means[0] - hat * means[1]);
    }
    if (a.dresidual != nullptr) {
        tern_unpack<T, W>(held.dresidual, x);
        TERN_UNROLL
        for (int i = 0; i < W; i++) {
            dx[i] += x[i];
        }
    }
    tern_store(a.dx + at, dx);
}

/* The column sums of a block's teams become those of the first: over the teams of a warp, then over warps, halving. */
template <int VECS, int W>
TERN_DEVICE void add_teams(float (&sums)[VECS][W], int lanes, float (*tile)[VECS * W][TERN_WARP])
{
    int warp = (int)threadIdx.x / TERN_WARP, lane = (int)threadIdx.x % TERN_WARP;
    for (int offset = lanes; offset < TERN_WARP; offset *= 2) {
        TERN_UNROLL
        for (int i = 0; i < VECS * W; i++) {
            sums[i / W][i % W] += __shfl_xor_sync(TERN_WARP_ALL, sums[i / W][i % W], offset);
        }
    }
    for (int half = TEAM_WARPS / 2; half > 0; half /= 2) {
        if (warp >= half && warp < 2 * half) {
            TERN_UNROLL
            for (int i = 0; i < VECS * W; i++) {
                tile[warp - half][i][lane] = sums[i / W][i % W];
            }
        }
        __syncthreads();
        if (warp < half) {
            TERN_UNROLL
            for (int i = 0; i < VECS * W; i++) {
                sums[i / W][i % W] += tile[warp][i][lane];
            }
        }
        __syncthreads();
    }
}

/* A run of rows; `lanes` threads hold a row. */
template <typename T, bool is_block, int VECS>
__global__ void __launch_bounds__(is_block ? BLOCK_THREADS_MAX : TEAM_THREADS,
                                  is_block || VECS > 4 ? 1 : 2)
    norm_bwd_held(struct norm_bwd<T> a, int lanes)
{
    enum {
        W = tern_wide<T>::COUNT
    };
    if constexpr (VECS * W == HELD_ELEMENTS_MAX) {
        lanes =
            TERN_WARP; /* known here, so that a row's addresses differ by constants: fewer registers */
    }
    TERN_DYNAMIC_SHARED(tern_words<16>, gamma); /* C elements */
    TERN_SHARED(float, scratch, [2][2][TERN_WARP]);
    TERN_SHARED(float, tile, [is_block ? 1 : TEAM_WARPS / 2][VECS * W][TERN_WARP]);
    int rows = (int)blockDim.x / lanes, lane = (int)threadIdx.x % lanes;
    int vecs = (int)(a.c / W), turn = 0;
    int64_t begin = (int64_t)blockIdx.x * a.run_rows;
    int64_t end = tern_min(begin + a.run_rows, a.n);
    float dgamma[VECS][W] = {}, dbeta[VECS][W] = {};
    for (int v = (int)threadIdx.x; v < vecs; v += (int)blockDim.x) {
        gamma[v] = *reinterpret_cast<const tern_words<16> *>(a.gamma + (int64_t)v * W);
    }
    __syncthreads();
    for (int64_t first = begin; first < end; first += rows, turn ^= 1) {
        int64_t row = first + (int)threadIdx.x / lanes;
        bool is_live = row < end;
        float mean = is_live && a.mean != nullptr ? a.mean[row] : 0;
        float rstd = is_live ? a.rstd[row] : 0;
        struct held held[VECS];
        float sums[2] = {0, 0};
        TERN_UNROLL
        for (int v = 0; v < VECS; v++) {
            if (is_live && lane + v * lanes < vecs) {
                hold(a, row * a.c + (int64_t)(lane + v * lanes) * W, held[v]);
            }
        }
        TERN_UNROLL
        for (int v = 0; v < VECS; v++) {
            if (is_live && lane + v * lanes < vecs) {
                take<T, W>(held[v], gamma[lane + v * lanes], a.offset, mean, rstd, sums, dgamma[v],
                           dbeta[v]);
            }
        }
        team_sum_pair<is_block>(sums[0], sums[1], lanes, scratch[turn]);
        const float means[2] = {a.mean != nullptr ? sums[0] * a.by_c : 0, sums[1] * a.by_c};
        TERN_UNROLL
        for (int v = 0; v < VECS; v++) {
            if (is_live && lane + v * lanes < vecs) {
                give<T, W>(a, row * a.c + (int64_t)(lane + v * lanes) * W, held[v],
                           gamma[lane + v * lanes], mean, rstd, means);
            }
        }
    }
    if constexpr (!is_block) {
        add_teams(dgamma, lanes, &tile[0]);
        add_teams(dbeta, lanes, &tile[0]);
    }
    float *to = a.partial + (int64_t)blockIdx.x * a.c * (a.has_beta ? 2 : 1);
    TERN_UNROLL
    for (int v = 0; v < VECS; v++) {
        if ((int)threadIdx.x < lanes && lane + v * lanes < vecs) {
            int64_t col = (int64_t)(lane + v * lanes) * W;
            tern_store(to + col, dgamma[v]);
            if (a.has_beta) {
                tern_store(to + a.c + col, dbeta[v]);
            }
        }
    }
}

/* dx alone: a block a row, W elements an access. */
template <typename T, int W>
__global__ void __launch_bounds__(BLOCK_THREADS_MAX) norm_bwd_rows(struct norm_bwd<T> a)
{
    TERN_SHARED(float, scratch, [2][2][TERN_WARP]);
    int64_t step = (int64_t)blockDim.x * W, begin = (int64_t)threadIdx.x * W;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < a.n; row += gridDim.x, turn ^= 1) {
        float mean = a.mean != nullptr ? a.mean[row] : 0, rstd = a.rstd[row];
        float sums[2] = {0, 0}, dy[W], x[W], gamma[W];
        int64_t x_at = norm_start(row, a.heads, a.c, a.x_row);
        int64_t dy_at = norm_start(row, a.heads, a.c, a.dy_row);
        for (int64_t col = begin; col < a.c; col += step) {
            tern_load(a.dy + dy_at + col, dy);
            tern_load(a.x + x_at + col, x);
            tern_load(a.gamma + col, gamma);
            for (int i = 0; i < W; i++) {
                float g = dy[i] * (gamma[i] + a.offset);
                sums[0] += g;
                sums[1] += g * ((x[i] - mean) * rstd);
            }
        }
        team_sum_pair<true>(sums[0], sums[1], 0, scratch[turn]);
        float g_mean = a.mean != nullptr ? sums[0] * a.by_c : 0;
        float g_hat_mean = sums[1] * a.by_c;
        for (int64_t col = begin; col < a.c; col += step) {
            int64_t at = dy_at + col;
            tern_load(a.dy + at, dy);
            tern_load(a.x + x_at + col, x);
            tern_load(a.gamma + col, gamma);
            for (int i = 0; i < W; i++) {
                float hat = (x[i] - mean) * rstd;
                dy[i] = rstd * (dy[i] * (gamma[i] + a.offset) - g_mean - hat * g_hat_mean);
            }
            if (a.dresidual != nullptr) {
                tern_load(a.dresidual + at, x);
                for (int i = 0; i < W; i++) {
                    dy[i] += x[i];
                }
            }
            tern_store(a.dx + at, dy);
        }
    }
}

/* Column sums alone: a thread has W columns of run blockIdx.y. Blocks of x stride over the columns. */
template <typename T, int W>
__global__ void __launch_bounds__(STREAM_THREADS) norm_bwd_columns(struct norm_bwd<T> a)
{
    int64_t begin = (int64_t)blockIdx.y * a.run_rows;
    int64_t end = tern_min(begin + a.run_rows, a.n);
    float *to = a.partial + (int64_t)blockIdx.y * a.c * (a.has_beta ? 2 : 1);
    int64_t step = (int64_t)gridDim.x * blockDim.x * W;
    int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W;
    for (int64_t col = first; col < a.c; col += step) {
        float dgamma[W] = {}, dbeta[W] = {}, dy[W], x[W];
        for (int64_t row = begin; row < end; row++) {
            float mean = a.mean != nullptr ? a.mean[row] : 0, rstd = a.rstd[row];
            tern_load(a.dy + norm_start(row, a.heads, a.c, a.dy_row) + col, dy);
            tern_load(a.x + norm_start(row, a.heads, a.c, a.x_row) + col, x);
            for (int i = 0; i < W; i++) {
                dgamma[i] += dy[i] * ((x[i] - mean) * rstd);
                dbeta[i] += dy[i];
            }
        }
        tern_store(to + col, dgamma);
        if (a.has_beta) {
            tern_store(to + a.c + col, dbeta);
        }
    }
}

template <typename T, int W>
static void launch_streamed(const struct tern_cuda_device *cuda, struct norm_bwd<T> a, int64_t runs)
{
    int threads = tern_whole_warps(a.c / W, BLOCK_THREADS_MAX);
    /* columns first: dx may overwrite dy */
    unsigned across = tern_grid(tern_div_up(a.c / W, STREAM_THREADS));
    tern_launch(norm_bwd_columns<T, W>, dim3(across, (unsigned)runs), STREAM_THREADS, 0,
                cuda->stream, a);
    tern_launch(norm_bwd_rows<T, W>, tern_grid(a.n), threads, 0, cuda->stream, a);
}

template <typename T>
static void launch(const struct tern_cuda_device *cuda,
                   struct norm_bwd<T> a,
                   int64_t runs,
                   bool is_aligned,
                   bool is_plain)
{
    enum {
        W = tern_wide<T>::COUNT,
        NARROW = HELD_ELEMENTS / W,
        WIDE = HELD_ELEMENTS_MAX / W
    };
    int64_t vecs = a.c / W;
    size_t gamma_bytes = (size_t)a.c * sizeof(T);
    if (is_aligned && is_plain && vecs <= NARROW * TERN_WARP) {
        tern_launch(norm_bwd_held<T, false, NARROW>, (unsigned)runs, TEAM_THREADS, gamma_bytes,
                    cuda->stream, a, tern_team_lanes(vecs));
    } else if (is_aligned && is_plain && vecs <= WIDE * TERN_WARP) {
        tern_launch(norm_bwd_held<T, false, WIDE>, (unsigned)runs, TEAM_THREADS, gamma_bytes,
                    cuda->stream, a, (int)TERN_WARP);
    } else if (is_aligned && is_plain && vecs <= NARROW * BLOCK_THREADS_MAX) {
        int threads = tern_whole_warps(tern_div_up(vecs, NARROW), BLOCK_THREADS_MAX);
        tern_launch(norm_bwd_held<T, true, NARROW>, (unsigned)runs, threads, gamma_bytes,
                    cuda->stream, a, threads);
    } else if (is_aligned) {
        launch_streamed<T, W>(cuda, a, runs);
    } else {
        launch_streamed<T, 1>(cuda, a, runs);
    }
}

template <typename T>
static tern_status norm_bwd_any(struct tern_device *device, const struct tern_norm_bwd_args *args)
{
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    int64_t heads = args->heads > 0 ? args->heads : 1, width = heads * args->c;
    int64_t norms = args->n * heads;
    int64_t rows = run_rows(norms, args->c), runs = tern_div_up(norms, rows);
    int64_t x_row = args->x_row > 0 ? args->x_row : width;
    int64_t dy_row = args->dy_row > 0 ? args->dy_row : width;
    bool has_beta = !tern_dptr_is_null(args->dbeta);
    int64_t columns = args->c * (has_beta ? 2 : 1);
    void *workspace;
    TERN_RETURN_IF_ERR(
        tern_cuda_need(cuda, "norm_bwd", (size_t)(runs * columns) * sizeof(float), &workspace));
    bool is_layer = args->kind == TERN_NORM_LAYER;
    norm_bwd<T> a = {
        tern_ptr<const T>(args->dy),
        tern_ptr<const T>(args->x),
        tern_ptr<const T>(args->gamma),
        is_layer ? tern_ptr<const float>(args->mean) : nullptr,
        tern_ptr<const float>(args->rstd),
        tern_ptr<const T>(args->dresidual),
        tern_ptr<T>(args->dx),
        (float *)workspace,
        norms,
        args->c,
        rows,
        1.0f / (float)args->c,
        args->gamma_offset,
        has_beta,
        heads,
        x_row,
        dy_row,
    };
    bool is_aligned = args->c % tern_wide<T>::COUNT == 0 && tern_is_aligned(args->dy, 16) &&
                      tern_is_aligned(args->x, 16) && tern_is_aligned(args->gamma, 16) &&
                      tern_is_aligned(args->dresidual, 16) && tern_is_aligned(args->dx, 16) &&
                      (x_row | dy_row) % tern_wide<T>::COUNT == 0;
    bool is_plain = x_row == args->c && dy_row == args->c && a.dx != a.dy;
    launch(cuda, a, runs, is_aligned, is_plain);
    struct tern_fold fold = {a.partial,
                             runs,
                             columns,
                             args->c,
                             tern_ptr<float>(args->dgamma),
                             tern_ptr<float>(args->dbeta),
                             args->accumulate};
    tern_fold_run(cuda, fold);
    return tern_cuda_launched("norm_bwd");
}

tern_status tern_cuda_norm_bwd(struct tern_device *device, const struct tern_norm_bwd_args *args)
{
    return args->dtype == TERN_BF16 ? norm_bwd_any<tern_bf16>(device, args)
                                    : norm_bwd_any<float>(device, args);
}
