/* embed_fwd.cu - rows of a table gathered by token id, rows of positions added: two reads and a write an element.
 *
 * A thread takes W elements of a row. The row of an id outside [0, V) becomes NaN: it shows in the loss, where reading
 * beyond the table would take the GPU's context down, or not show. */
#include "kernels/cuda/vec.cuh"

#include <math.h>

enum {
    THREADS = 256
};

template <typename T> struct embed_fwd {
    const int32_t *ids;       /* (N) */
    const T *wte, *wpe;       /* (V, C), (P, C) or null */
    T *out;                   /* (N, C) */
    const int32_t *starts;    /* (N) or null */
    const int32_t *positions; /* (N) or null */
    int64_t n, t, c, v, first_position;
    float scale;
};

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) embed_fwd_kernel(struct embed_fwd<T> a)
{
    uint64_t steps = (uint64_t)(a.c / W), total = (uint64_t)a.n * steps;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += stride) {
        int64_t row = (int64_t)(i / steps), col = (int64_t)(i % steps) * W;
        int64_t id = a.ids[row];
        float x[W], position[W];
        TERN_UNROLL
        for (int e = 0; e < W; e++) {
            x[e] = NAN;
        }
        if (id >= 0 && id < a.v) {
            tern_load(a.wte + id * a.c + col, x);
        }
        TERN_UNROLL
        for (int e = 0; e < W; e++) {
            x[e] *= a.scale;
        }
        if (a.wpe != nullptr) {
            int64_t start = a.starts != nullptr ? a.starts[row] : 0;
            int64_t place =
                a.positions != nullptr ? a.positions[row] : a.first_position + row % a.t - start;
            tern_load(a.wpe + place * a.c + col, position);
            TERN_UNROLL
            for (int e = 0; e < W; e++) {
                x[e] += position[e];
            }
        }
        tern_store(a.out + row * a.c + col, x);
    }
}

template <typename T>
static tern_status embed_fwd_any(struct tern_device *device, const struct tern_embed_fwd_args *args)
{
    enum {
        W = tern_wide<T>::COUNT
    };
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    embed_fwd<T> a = {tern_ptr<const int32_t>(args->ids),
                      tern_ptr<const T>(args->wte),
                      tern_ptr<const T>(args->wpe),
                      tern_ptr<T>(args->out),
                      tern_ptr<const int32_t>(args->starts),
                      tern_ptr<const int32_t>(args->positions),
                      args->n,
                      args->t,
                      args->c,
                      args->v,
                      args->first_position,
                      args->scale != 0 ? args->scale : 1.0f};
    bool is_wide = args->c % W == 0 && tern_is_aligned(args->wte, 16) &&
                   tern_is_aligned(args->wpe, 16) && tern_is_aligned(args->out, 16);
    if (is_wide) {
        tern_launch(embed_fwd_kernel<T, W>, tern_blocks(cuda, a.n * (a.c / W), THREADS), THREADS, 0,
                    cuda->stream, a);
    } else {
        tern_launch(embed_fwd_kernel<T, 1>, tern_blocks(cuda, a.n * a.c, THREADS), THREADS, 0,
                    cuda->stream, a);
    }
    return tern_cuda_launched("embed_fwd");
}

tern_status tern_cuda_embed_fwd(struct tern_device *device, const struct tern_embed_fwd_args *args)
{
    return args->dtype == TERN_BF16 ? embed_fwd_any<tern_bf16>(device, args)
                                    : embed_fwd_any<float>(device, args);
}
