/* embed_bwd.cu - rows of dout (N, C) added to the rows of their tokens and positions, in a fixed order without atomics.
 *
 * Tokens: rows are sorted by id, stably (sort.cuh), and cut into chunks of CHUNK in that order. A warp adds up the rows of
 * a chunk for 32 W columns: a run of one id that lies within the chunk goes to dwte at once; a run that reaches over an
 * edge leaves its part in the workspace, and a second kernel adds the parts of each such run in order. So an id that
 * many rows have takes no longer than many ids, and each row of dwte is read and written once. dout is read once, and
 * once more for positions, whose rows a thread adds over the batch. Columns are done in slices that keep the workspace
 * within PARTS_CELLS. */
#include "kernels/cuda/sort.cuh"

enum {
    CHUNK = 32, /* rows: a lane of a warp has one's id */
    ROWS_AT_ONCE = 8,
    WARPS_MAX = 8,
    PARTS_AT_ONCE = 8,
    SLICE_MIN = 256,       /* columns; a multiple of every 32 W */
    PARTS_CELLS = 1 << 22, /* floats of parts, where rows are not too many for SLICE_MIN */
    POSITION_THREADS = 128
};

struct embed_bwd {
    const uint32_t *keys, *rows; /* (N) sorted */
    float *parts; /* (chunks, 2, slice): of the run that comes in, of the run that goes out */
    float *dwte;  /* (V, C) */
    int64_t n, c, v;
    int64_t first_col, slice; /* columns of this launch */
    float scale;
};

static int64_t slice_of(int64_t n, int64_t c)
{
    int64_t slice = PARTS_CELLS / (2 * tern_div_up(n, CHUNK)) / SLICE_MIN * SLICE_MIN;
    return tern_min(c, tern_max(slice, SLICE_MIN));
}

static size_t parts_bytes(int64_t n, int64_t c)
{
    return (size_t)(2 * tern_div_up(n, CHUNK) * slice_of(n, c)) * sizeof(float);
}

size_t tern_cuda_embed_workspace(const struct tern_cuda_device *cuda,
                                 const struct tern_op_limits *limits)
{
    (void)cuda;
    /* fewer rows may have wider slices: never more than PARTS_CELLS or SLICE_MIN columns of all rows */
    int64_t chunks = tern_div_up(limits->rows, CHUNK);
    int64_t most = tern_max(2 * chunks * SLICE_MIN, PARTS_CELLS);
    int64_t whole = 2 * chunks * limits->width;
    return sort_space_bytes(limits->rows) + (size_t)tern_min(whole, most) * sizeof(float);
}

/* Where a run's sum goes: to its part, or to its row of dwte. */
template <int W>
TERN_DEVICE void flush(const struct embed_bwd &a,
                       uint32_t key,
                       float *part,
                       int64_t col,
                       const float (&sum)[W])
{
    if (part != nullptr) {
        tern_store(part + col, sum);
    } else if (key < a.v) {
        float *to = a.dwte + (int64_t)key * a.c + a.first_col + col;
        float row[W];
        tern_load(to, row);
        TERN_UNROLL
        for (int i = 0; i < W; i++) {
            row[i] += a.scale * sum[i];
        }
        tern_store(to, row);
    }
}

/* blockIdx.x: the chunk. A warp has columns [32 W group, + 32 W) of the slice. */
template <typename T, int W>
__global__ void __launch_bounds__(WARPS_MAX *TERN_WARP)
    embed_chunks_kernel(struct embed_bwd a, const T *dout)
{
    int lane = (int)threadIdx.x % TERN_WARP;
    int64_t group = (int64_t)blockIdx.y * (blockDim.x / TERN_WARP) + threadIdx.x / TERN_WARP;
    int64_t col = (group * TERN_WARP + lane) * W;
    bool is_in = col < a.slice;
    int64_t begin = (int64_t)blockIdx.x * CHUNK;
    int count = (int)tern_min(a.n - begin, CHUNK);
    uint32_t key = lane < count ? a.keys[begin + lane] : 0;
    uint32_t row = lane < count ? a.rows[begin + lane] : 0;
    bool comes_in = begin > 0 && a.keys[begin - 1] == a.keys[begin];
    bool goes_out = begin + count < a.n && a.keys[begin + count] == a.keys[begin + count - 1];
    float *parts = a.parts + (int64_t)blockIdx.x * 2 * a.slice;
    float *part = comes_in ? parts : nullptr; /* of the run under way */
    float sum[W] = {};
    uint32_t run = __shfl_sync(TERN_WARP_ALL, key, 0);
    for (int first = 0; first < count; first += ROWS_AT_ONCE) {
        float x[ROWS_AT_ONCE][W];
        uint32_t keys[ROWS_AT_ONCE];
        TERN_UNROLL
        for (int r = 0; r < ROWS_AT_ONCE; r++) {
            keys[r] = __shfl_sync(TERN_WARP_ALL, key, first + r);
            int64_t from = __shfl_sync(TERN_WARP_ALL, row, first + r);
            if (is_in && first + r < count) {
                tern_load(dout + from * a.c + a.first_col + col, x[r]);
            }
        }
        TERN_UNROLL
        for (int r = 0; r < ROWS_AT_ONCE; r++) {
            if (is_in && first + r < count) {
                bool is_new = keys[r] != run;
                if (is_new) {
                    flush(a, run, part, col, sum);
                    part = nullptr;
                    run = keys[r];
                }
                TERN_UNROLL
                for (int i = 0; i < W; i++) {
                    sum[i] = is_new ? x[r][i] : sum[i] + x[r][i];
                }
            }
        }
    }
    if (is_in) {
        float *out = part == nullptr && goes_out ? parts + a.slice : part;
        flush(a, run, out, col, sum);
    }
}

/* How many chunks after `chunk` begin with the id, the last of chunk: keys are sorted, so they follow each other. Whole
 * warps call it. */
TERN_DEVICE int64_t chunks_after(const struct embed_bwd &a, int64_t chunk, uint32_t key)
{
    int lane = (int)threadIdx.x % TERN_WARP;
    int64_t total = 0;
    for (;; total += TERN_WARP) {
        int64_t at = (chunk + 1 + total + lane) * CHUNK;
        unsigned same = __ballot_sync(TERN_WARP_ALL, at < a.n && a.keys[at] == key);
        if (same != TERN_WARP_ALL) {
            return total + __popc(same);
        }
    }
}

/* blockIdx.x: the chunk where a run begins that reaches over its end. Every warp adds up the parts of a range of chunks,
 * in order; the first adds the warps'. */
template <int W>
__global__ void __launch_bounds__(WARPS_MAX *TERN_WARP) embed_parts_kernel(struct embed_bwd a)
{
    TERN_SHARED(float, tile, [WARPS_MAX][W][TERN_WARP]);
    int warp = (int)threadIdx.x / TERN_WARP, lane = (int)threadIdx.x % TERN_WARP;
    int64_t chunk = blockIdx.x, begin = chunk * CHUNK, end = begin + CHUNK;
    if (end >= a.n || a.keys[end] != a.keys[end - 1] ||
        (begin > 0 && a.keys[begin - 1] == a.keys[end - 1])) {
        return; /* no run goes out, or it began earlier: for all threads alike */
    }
    uint32_t key = a.keys[end - 1];
    int64_t after = chunks_after(a, chunk, key), share = (after + WARPS_MAX - 1) / WARPS_MAX;
    int64_t from = chunk + 1 + warp * share, to = tern_min(from + share, chunk + 1 + after);
    int64_t groups = (a.slice + TERN_WARP * W - 1) / (TERN_WARP * W);
    for (int64_t group = blockIdx.y; group < groups; group += gridDim.y) {
        int64_t col = (group * TERN_WARP + lane) * W;
        bool is_in = col < a.slice;
        float sum[W] = {};
        for (int64_t k = from; k < to && is_in; k += PARTS_AT_ONCE) {
            float x[PARTS_AT_ONCE][W];
            TERN_UNROLL
            for (int p = 0; p < PARTS_AT_ONCE; p++) {
                if (k + p < to) {
                    tern_load(a.parts + (k + p) * 2 * a.slice + col, x[p]);
                }
            }
            TERN_UNROLL
            for (int p = 0; p < PARTS_AT_ONCE; p++) {
                TERN_UNROLL
                for (int i = 0; i < W; i++) {
                    sum[i] += k + p < to ? x[p][i] : 0;
                }
            }
        }
        TERN_UNROLL
        for (int i = 0; i < W; i++) {
            tile[warp][i][lane] = sum[i];
        }
        __syncthreads();
        if (warp == 0 && is_in) {
            tern_load(a.parts + (2 * chunk + 1) * a.slice + col, sum);
            for (int w = 0; w < WARPS_MAX; w++) {
                TERN_UNROLL
                for (int i = 0; i < W; i++) {
                    sum[i] += tile[w][i][lane];
                }
            }
            flush(a, key, nullptr, col, sum);
        }
        __syncthreads();
    }
}

/* dwpe[t] += the rows t, t + T, ... of dout, in order: a thread has W columns of one t. */
template <typename T, int W>
__global__ void __launch_bounds__(POSITION_THREADS)
    embed_positions_kernel(const T *dout, float *dwpe, int64_t n, int64_t t, int64_t c)
{
    uint64_t steps = (uint64_t)(c / W), total = (uint64_t)t * steps;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += stride) {
        int64_t position = (int64_t)(i / steps), col = (int64_t)(i % steps) * W;
        float sum[W] = {}, old[W];
        for (int64_t row = position; row < n; row += ROWS_AT_ONCE * t) {
            float x[ROWS_AT_ONCE][W];
            TERN_UNROLL
            for (int r = 0; r < ROWS_AT_ONCE; r++) {
                if (row + r * t < n) {
                    tern_load(dout + (row + r * t) * c + col, x[r]);
                }
            }
            TERN_UNROLL
            for (int r = 0; r < ROWS_AT_ONCE; r++) {
                TERN_UNROLL
                for (int e = 0; e < W; e++) {
                    sum[e] += row + r * t < n ? x[r][e] : 0;
                }
            }
        }
        tern_load(dwpe + position * c + col, old);
        TERN_UNROLL
        for (int e = 0; e < W; e++) {
            sum[e] += old[e];
        }
        tern_store(dwpe + position * c + col, sum);
    }
}

/* The same with packed documents: the rows whose document began that many tokens before. */
template <typename T, int W>
__global__ void __launch_bounds__(POSITION_THREADS)
    embed_packed_positions_kernel(const T *dout,
                                  const int32_t *starts,
                                  float *dwpe,
                                  int64_t n,
                                  int64_t t,
                                  int64_t c)
{
    uint64_t steps = (uint64_t)(c / W), total = (uint64_t)t * steps;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += stride) {
        int64_t position = (int64_t)(i / steps), col = (int64_t)(i % steps) * W;
        float sum[W] = {}, x[W];
        for (int64_t row = 0, at = 0; row < n; row++, at = at + 1 < t ? at + 1 : 0) {
            if (at - starts[row] == position) {
                tern_load(dout + row * c + col, x);
                TERN_UNROLL
                for (int e = 0; e < W; e++) {
                    sum[e] += x[e];
                }
            }
        }
        tern_load(dwpe + position * c + col, x);
        TERN_UNROLL
        for (int e = 0; e < W; e++) {
            x[e] += sum[e];
        }
        tern_store(dwpe + position * c + col, x);
    }
}

template <typename T, int W>
static void add_rows(const struct tern_cuda_device *cuda,
                     const struct tern_embed_bwd_args *args,
                     struct embed_bwd a)
{
    const T *dout = tern_ptr<const T>(args->dout);
    unsigned chunks = (unsigned)tern_div_up(a.n, CHUNK);
    int64_t slice = slice_of(a.n, a.c);
    for (; a.first_col < a.c; a.first_col += slice) {
        a.slice = tern_min(a.c - a.first_col, slice);
        int64_t groups = tern_div_up(a.slice, TERN_WARP * W);
        int warps = (int)tern_min(groups, WARPS_MAX);
        dim3 grid(chunks, (unsigned)tern_div_up(groups, warps));
        tern_launch(embed_chunks_kernel<T, W>, grid, warps * TERN_WARP, 0, cuda->stream, a, dout);
        dim3 parts_grid(chunks, (unsigned)tern_min(groups, WARPS_MAX));
        tern_launch(embed_parts_kernel<W>, parts_grid, WARPS_MAX * TERN_WARP, 0, cuda->stream, a);
    }
    if (!tern_dptr_is_null(args->dwpe)) {
        int64_t items = args->t * (a.c / W);
        unsigned blocks = tern_blocks(cuda, items, POSITION_THREADS);
        float *dwpe = tern_ptr<float>(args->dwpe);
        if (tern_dptr_is_null(args->starts)) {
            tern_launch(embed_positions_kernel<T, W>, blocks, POSITION_THREADS, 0, cuda->stream,
                        dout, dwpe, a.n, args->t, a.c);
        } else {
            tern_launch(embed_packed_positions_kernel<T, W>, blocks, POSITION_THREADS, 0,
                        cuda->stream, dout, tern_ptr<const int32_t>(args->starts), dwpe, a.n,
                        args->t, a.c);
        }
    }
}

template <typename T>
static tern_status embed_bwd_any(struct tern_device *device, const struct tern_embed_bwd_args *args)
{
    enum {
        W = 4 /* columns: 16 bytes of dwte */
    };
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    size_t sort_bytes = sort_space_bytes(args->n);
    void *workspace;
    TERN_RETURN_IF_ERR(
        tern_cuda_need(cuda, "embed_bwd", sort_bytes + parts_bytes(args->n, args->c), &workspace));
    struct sort_space space = sort_space_at((char *)workspace, args->n);
    int sorted = sort_run(cuda, space, tern_ptr<const int32_t>(args->ids), args->n, args->v);
    struct embed_bwd a = {space.keys[sorted],
                          space.rows[sorted],
                          (float *)(void *)((char *)workspace + sort_bytes),
                          tern_ptr<float>(args->dwte),
                          args->n,
                          args->c,
                          args->v,
                          0,
                          0,
                          args->scale != 0 ? args->scale : 1.0f};
    bool is_wide = args->c % W == 0 && tern_is_aligned(args->dout, W * (int64_t)sizeof(T)) &&
                   tern_is_aligned(args->dwte, 16) && tern_is_aligned(args->dwpe, 16);
    if (is_wide) {
        add_rows<T, W>(cuda, args, a);
    } else {
        add_rows<T, 1>(cuda, args, a);
    }
    return tern_cuda_launched("embed_bwd");
}

tern_status tern_cuda_embed_bwd(struct tern_device *device, const struct tern_embed_bwd_args *args)
{
    if (args->n > INT32_MAX || args->v > INT32_MAX) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "cuda embed_bwd: n is %lld and v %lld, expected both below 2^31",
                         (long long)args->n, (long long)args->v);
    }
    return args->dtype == TERN_BF16 ? embed_bwd_any<tern_bf16>(device, args)
                                    : embed_bwd_any<float>(device, args);
}
