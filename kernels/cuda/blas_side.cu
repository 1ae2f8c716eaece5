/* blas_side.cu - what cuBLASLt leaves to us around a product: conversions of factors, and epilogues that it lacks.
 *
 *   x = in + bias;  aux = x;  d = x, gelu(x) or x gelu'(slope_at), x as rounded to d's dtype
 *
 * A thread owns 8 neighbouring columns of a row, a warp 256, a block 8 rows of them; blocks go on by whole grids of
 * rows. Arithmetic in fp32. Memory-bound: it must move one read of in and one write of d (and of aux), as 128-bit
 * accesses where addresses and strides allow it. */
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/cuda/blas_lt.h"
}

static const int WIDTH = 8; /* columns of a thread */
static const int LANES = 32;
static const int ROWS = 8; /* of a block */
static const int64_t GRID_ROWS_MAX = 65535;

struct alignas(16) quad {
    float x[4];
};

struct alignas(16) octet {
    uint16_t x[8];
};

TERN_DEVICE float load_one(const float *p)
{
    return *p;
}

TERN_DEVICE float load_one(const uint16_t *p)
{
    return tern_load_bf16(*p);
}

/* As stored: rounded to the dtype. */
TERN_DEVICE float store_one(float *p, float x)
{
    *p = x;
    return x;
}

TERN_DEVICE float store_one(uint16_t *p, float x)
{
    *p = tern_store_bf16(x);
    return tern_load_bf16(*p);
}

TERN_DEVICE void load_eight(const float *p, float (&x)[WIDTH])
{
    quad low = reinterpret_cast<const quad *>(p)[0], high = reinterpret_cast<const quad *>(p)[1];
    TERN_UNROLL
    for (int i = 0; i < 4; i++) {
        x[i] = low.x[i];
        x[4 + i] = high.x[i];
    }
}

TERN_DEVICE void load_eight(const uint16_t *p, float (&x)[WIDTH])
{
    octet all = *reinterpret_cast<const octet *>(p);
    TERN_UNROLL
    for (int i = 0; i < WIDTH; i++) {
        x[i] = tern_load_bf16(all.x[i]);
    }
}

/* x becomes what was stored. */
TERN_DEVICE void store_eight(float *p, float (&x)[WIDTH])
{
    quad low, high;
    TERN_UNROLL
    for (int i = 0; i < 4; i++) {
        low.x[i] = x[i];
        high.x[i] = x[4 + i];
    }
    reinterpret_cast<quad *>(p)[0] = low;
    reinterpret_cast<quad *>(p)[1] = high;
}

TERN_DEVICE void store_eight(uint16_t *p, float (&x)[WIDTH])
{
    octet all;
    TERN_UNROLL
    for (int i = 0; i < WIDTH; i++) {
        all.x[i] = tern_store_bf16(x[i]);
        x[i] = tern_load_bf16(all.x[i]);
    }
    *reinterpret_cast<octet *>(p) = all;
}

/* Hendrycks and Gimpel 2016, tanh form: x/2 (1 + tanh u) = x / (1 + exp(-2u)), which loses nothing to cancellation. */
TERN_DEVICE float gelu(float x)
{
    float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return x / (1.0f + expf(-2.0f * u));
}

/* Its derivative: with u as above and s = 1 / (1 + exp(-2u)), s + x s (1 - s) 2u'. s and 1 - s come from exp(-|2u|), so
 * that neither is a difference. */
TERN_DEVICE float gelu_slope(float x)
{
    float root = 0.7978845608028654f, square = x * x;
    float u = root * (x + 0.044715f * x * square);
    float z = expf(-2.0f * fabsf(u));
    float high = 1.0f / (1.0f + z), low = z * high;
    float bend = high * low; /* 0 far out, where the rest may overflow */
    float slope = u >= 0.0f ? high : low;
    return bend > 0.0f ? slope + x * bend * 2.0f * root * (1.0f + 0.134145f * square) : slope;
}

template <typename Out> struct sides {
    Out *aux, *d; /* of the thread's first column */
    const Out *slope_at;
    bool is_gelu;
};

template <typename Out> TERN_DEVICE void finish_one(const sides<Out> &to, int i, float x)
{
    if (to.aux != nullptr) {
        x = store_one(to.aux + i, x);
    }
    if (to.slope_at != nullptr) {
        Out rounded;
        x = store_one(&rounded, x) * gelu_slope(load_one(to.slope_at + i));
    }
    store_one(to.d + i, to.is_gelu ? gelu(x) : x);
}

template <typename Out> TERN_DEVICE void finish_eight(const sides<Out> &to, float (&x)[WIDTH])
{
    if (to.aux != nullptr) {
        store_eight(to.aux, x);
    }
    if (to.slope_at != nullptr) {
        float at[WIDTH];
        load_eight(to.slope_at, at);
        TERN_UNROLL
        for (int i = 0; i < WIDTH; i++) {
            Out rounded;
            x[i] = store_one(&rounded, x[i]) * gelu_slope(at[i]);
        }
    }
    if (to.is_gelu) {
        TERN_UNROLL
        for (int i = 0; i < WIDTH; i++) {
            x[i] = gelu(x[i]);
        }
    }
    store_eight(to.d, x);
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
    int64_t column = ((int64_t)blockIdx.x * LANES + threadIdx.x) * WIDTH;
    if (column >= columns) {
        return;
    }
    bool is_whole = is_vector && column + WIDTH <= columns;
    int64_t count = columns - column < WIDTH ? columns - column : WIDTH;
    int64_t first = (int64_t)blockIdx.y * ROWS + threadIdx.y, step = (int64_t)gridDim.y * ROWS;
    for (int64_t row = first; row < rows; row += step) {
        const In *from = in + row * ld_in + column;
        int64_t offset = row * ldd + column;
        sides<Out> to = {aux != nullptr ? aux + offset : nullptr, d + offset,
                         slope_at != nullptr ? slope_at + offset : nullptr, is_gelu};
        if (is_whole) {
            float x[WIDTH], b[WIDTH];
            load_eight(from, x);
            if (bias != nullptr) {
                load_eight(bias + column, b);
                TERN_UNROLL
                for (int i = 0; i < WIDTH; i++) {
                    x[i] += b[i];
                }
            }
            finish_eight(to, x);
        } else {
            for (int i = 0; i < (int)count; i++) {
                float b = bias != nullptr ? load_one(bias + column + i) : 0.0f;
                finish_one(to, i, load_one(from + i) + b);
            }
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
    int64_t across = (args->columns + LANES * WIDTH - 1) / (LANES * WIDTH);
    int64_t down = (args->rows + ROWS - 1) / ROWS;
    dim3 grid((unsigned)across, (unsigned)(down < GRID_ROWS_MAX ? down : GRID_ROWS_MAX));
    tern_launch(finish_kernel<In, Bias, Out>, grid, dim3(LANES, ROWS), 0, device->stream,
                (const In *)args->in, (const Bias *)args->bias, (Out *)args->aux,
                (const Out *)args->slope_at, (Out *)args->d, args->rows, args->columns, args->ld_in,
                args->ldd, args->is_gelu, is_vector);
}

template <typename In, typename Bias>
static void launch_out(struct tern_cuda_device *device, const struct tern_blas_finish_args *args)
{
    if (args->d_dtype == TERN_BF16) {
        launch<In, Bias, uint16_t>(device, args);
    } else {
        launch<In, Bias, float>(device, args);
    }
}

extern "C" tern_status tern_blas_finish(struct tern_cuda_device *device,
                                        const struct tern_blas_finish_args *args)
{
    if (args->in_dtype == TERN_BF16) { /* comes without bias */
        launch_out<uint16_t, float>(device, args);
    } else if (args->bias != NULL && args->bias_dtype == TERN_BF16) {
        launch_out<float, uint16_t>(device, args);
    } else {
        launch_out<float, float>(device, args);
    }
    return tern_cuda_launched("gemm");
}
