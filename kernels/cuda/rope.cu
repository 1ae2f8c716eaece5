/* rope.cu - rotary positions in place, half split, in the first R elements of every head: (x[i], x[i + R/2]) turned by
 * the angle whose cosine and sine are row p of the tables (P, R/2), f32.
 *
 * A thread takes W neighbours of the lower half of those and their partners in the upper: 4 W elements moved; the tables'
 * rows are shared by all heads and come from cache. */
#include "kernels/cuda/vec.cuh"

enum {
    THREADS = 256
};

template <typename T> struct rope {
    T *x; /* (N, heads, D), row stride x_row */
    const float *cos, *sin;
    const int32_t *starts;    /* (N) or null */
    const int32_t *positions; /* (N) or null */
    int64_t n, t, x_row, first_position;
    int heads, d, half; /* half: R / 2 */
    float sign;         /* of the sine: -1 backward */
};

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) rope_kernel(struct rope<T> a)
{
    uint64_t steps = (uint64_t)(a.half / W), of_row = steps * (uint64_t)a.heads;
    uint64_t total = (uint64_t)a.n * of_row;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += stride) {
        int64_t row = (int64_t)(i / of_row);
        unsigned in_row = (unsigned)(i - (uint64_t)row * of_row);
        unsigned head = in_row / (unsigned)steps, at = in_row % (unsigned)steps * W;
        int64_t start = a.starts != nullptr ? a.starts[row] : 0;
        int64_t position =
            a.positions != nullptr ? a.positions[row] : a.first_position + row % a.t - start;
        int64_t turn = position * a.half + at;
        T *low = a.x + row * a.x_row + (int64_t)head * a.d + at;
        float c[W], s[W], x[W], y[W];
        tern_load(low, x);
        tern_load(low + a.half, y);
        tern_load(a.cos + turn, c);
        tern_load(a.sin + turn, s);
        TERN_UNROLL
        for (int e = 0; e < W; e++) {
            float sine = a.sign * s[e], x_old = x[e];
            x[e] = x_old * c[e] - y[e] * sine;
            y[e] = y[e] * c[e] + x_old * sine;
        }
        tern_store(low, x);
        tern_store(low + a.half, y);
    }
}

template <typename T>
static tern_status rope_any(struct tern_device *device, const struct tern_rope_args *args)
{
    enum {
        W = tern_wide<T>::COUNT
    };
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    rope<T> a = {tern_ptr<T>(args->x),
                 tern_ptr<const float>(args->cos),
                 tern_ptr<const float>(args->sin),
                 tern_ptr<const int32_t>(args->starts),
                 tern_ptr<const int32_t>(args->positions),
                 args->n,
                 args->t,
                 args->x_row,
                 args->first_position,
                 (int)args->heads,
                 (int)args->d,
                 (int)((args->rotary_d > 0 ? args->rotary_d : args->d) / 2),
                 args->backward ? -1.0f : 1.0f};
    bool is_wide = a.half % W == 0 && a.d % W == 0 && args->x_row % W == 0 &&
                   tern_is_aligned(args->x, 16) && tern_is_aligned(args->cos, 16) &&
                   tern_is_aligned(args->sin, 16);
    int64_t pairs = args->n * args->heads * a.half;
    if (is_wide) {
        tern_launch(rope_kernel<T, W>, tern_blocks(cuda, pairs / W, THREADS), THREADS, 0,
                    cuda->stream, a);
    } else {
        tern_launch(rope_kernel<T, 1>, tern_blocks(cuda, pairs, THREADS), THREADS, 0, cuda->stream,
                    a);
    }
    return tern_cuda_launched("rope");
}

tern_status tern_cuda_rope(struct tern_device *device, const struct tern_rope_args *args)
{
    return args->dtype == TERN_BF16 ? rope_any<tern_bf16>(device, args)
                                    : rope_any<float>(device, args);
}
