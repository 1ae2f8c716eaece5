/* blas_side.cu - what cuBLASLt leaves to us around a product: conversions of factors, and epilogues that it lacks.
 *
 *   x = in + bias;  aux = x;  d = x, gelu(x) or x gelu'(slope_at), x as rounded to d's dtype
 *
 * A thread owns 8 neighbouring columns of a row, a warp 256, a block 8 rows of them; blocks go on by whole grids of
 * rows. Arithmetic in fp32. Memory-bound: it must move one read of in (and of slope_at) and one write of d (and of
 * aux), as 128-bit accesses where addresses and strides allow it. */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/team.cuh"

extern "C" {
#include "kernels/cuda/blas_lt.h"
}

static const int WIDTH = 8; /* columns of a thread */
static const int LANES = 32;
static const int ROWS = 8; /* of a block */
static const int64_t GRID_ROWS_MAX = 65535;

template <typename In, typename Bias, typename Out> struct sides {
    const In *in;
    const Bias *bias; /* or null, as the next two */
    Out *aux;
    const Out *slope_at;
    Out *d;
    bool is_gelu;
};

/* base[offset..] = x. With W above 1 offset is a multiple of it, and indexes whole vectors: as elements, nvcc 13 was seen
 * to make four stores of them. */
template <int W, typename Out> TERN_DEVICE void put(Out *base, int64_t offset, const float (&x)[W])
{
    if constexpr (W == 1) {
        tern_put(base + offset, x[0]);
    } else {
        tern_words<W *(int)sizeof(Out)> raw;
        tern_pack<Out, W>(x, raw);
        reinterpret_cast<tern_words<W *(int)sizeof(Out)> *>(base)[offset / W] = raw;
    }
}

/* W columns of a row; offsets of in, and of aux, slope_at and d. */
template <int W, typename In, typename Bias, typename Out>
TERN_DEVICE void finish(const sides<In, Bias, Out> &s,
                        int64_t column,
                        int64_t from_offset,
                        int64_t offset)
{
    float x[W], side[W];
    tern_load(s.in + from_offset, x);
    if (s.bias != nullptr) {
        tern_load(s.bias + column, side);
        TERN_UNROLL
        for (int i = 0; i < W; i++) {
            x[i] += side[i];
        }
    }
    if (s.aux != nullptr) {
        put(s.aux, offset, x);
        tern_round<Out>(x);
    }
    if (s.slope_at != nullptr) {
        tern_load(s.slope_at + offset, side);
        tern_round<Out>(x);
        TERN_UNROLL
        for (int i = 0; i < W; i++) {
            float value;
            x[i] *= tern_act_slope<Out, true>(side[i], value);
        }
    }
    if (s.is_gelu) {
        TERN_UNROLL
        for (int i = 0; i < W; i++) {
            x[i] = tern_act<Out, true>(x[i]);
        }
    }
    put(s.d, offset, x);
}

/* in (rows, columns) may be d itself: a thread reads its elements before it writes them. */
template <typename In, typename Bias, typename Out>
__global__ void finish_kernel(const In *in,
                              const Bias *bias,
                              Out *aux,
                              const Out *slope_at,
                              Out *d,
                              int64_t rows,
                              int64_t columns,
                              int64_t ld_in,
                              int64_t ldd,
                              bool is_gelu,
                              bool is_vector)
{
    sides<In, Bias, Out> s = {in, bias, aux, slope_at, d, is_gelu};
    int64_t column = ((int64_t)blockIdx.x * LANES + threadIdx.x) * WIDTH;
    int64_t first = (int64_t)blockIdx.y * ROWS + threadIdx.y, step = (int64_t)gridDim.y * ROWS;
    if (is_vector && column + WIDTH <= columns) {
        for (int64_t row = first; row < rows; row += step) {
            finish<WIDTH>(s, column, row * ld_in + column, row * ldd + column);
        }
        return;
    }
    int64_t end = tern_min(column + WIDTH, columns);
    for (int64_t row = first; row < rows; row += step) {
        for (int64_t c = column; c < end; c++) {
            finish<1>(s, c, row * ld_in + c, row * ldd + c);
        }
    }
}

static bool is_aligned(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

template <typename In, typename Bias, typename Out>
static void launch(struct tern_cuda_device *device, const struct tern_blas_finish_args *args)
{
    bool is_vector = args->ld_in % WIDTH == 0 && args->ldd % WIDTH == 0 && is_aligned(args->in) &&
                     is_aligned(args->bias) && is_aligned(args->aux) &&
                     is_aligned(args->slope_at) && is_aligned(args->d);
    int64_t across = tern_div_up(args->columns, LANES * WIDTH);
    int64_t down = tern_min(tern_div_up(args->rows, ROWS), GRID_ROWS_MAX);
    tern_launch(finish_kernel<In, Bias, Out>, dim3((unsigned)across, (unsigned)down),
                dim3(LANES, ROWS), 0, device->stream, (const In *)args->in,
                (const Bias *)args->bias, (Out *)args->aux, (const Out *)args->slope_at,
                (Out *)args->d, args->rows, args->columns, args->ld_in, args->ldd, args->is_gelu,
                is_vector);
}

template <typename In, typename Bias>
static void launch_out(struct tern_cuda_device *device, const struct tern_blas_finish_args *args)
{
    if (args->d_dtype == TERN_BF16) {
        launch<In, Bias, tern_bf16>(device, args);
    } else {
        launch<In, Bias, float>(device, args);
    }
}

extern "C" tern_status tern_blas_finish(struct tern_cuda_device *device,
                                        const struct tern_blas_finish_args *args)
{
    if (args->in_dtype == TERN_BF16) { /* comes without bias */
        launch_out<tern_bf16, float>(device, args);
    } else if (args->bias != NULL && args->bias_dtype == TERN_BF16) {
        launch_out<float, tern_bf16>(device, args);
    } else {
        launch_out<float, float>(device, args);
    }
    return tern_cuda_launched("gemm");
}

tern_status tern_blas_add_bias(struct tern_cuda_device *device,
                               float *to,
                               const float *from,
                               int64_t n,
                               bool accumulate)
{
    struct tern_fold fold = {from, 1, n, n, to, nullptr, accumulate};
    tern_fold_run(device, fold);
    return tern_cuda_launched("gemm");
}
