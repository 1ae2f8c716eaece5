/* glu.cu - the gated MLP's middle: gate_up (N, 2F) = [gate | up], out (N, F) = act(gate) * up, and its gradient.
 *
 * A thread takes W elements of a row of F; forward moves 3 elements for one of out, backward 5. */
#include "kernels/cuda/act.cuh"

enum {
    THREADS = 256
};

template <typename T> struct glu {
    const T *gate_up; /* (N, 2F) */
    T *out;           /* (N, F), forward */
    const T *dout;    /* (N, F), backward */
    T *dgate_up;      /* (N, 2F), backward */
    int64_t n, f;
};

template <typename T, int W, bool is_gelu>
__global__ void __launch_bounds__(THREADS) glu_fwd_kernel(struct glu<T> a)
{
    uint64_t steps = (uint64_t)(a.f / W), total = (uint64_t)a.n * steps;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += stride) {
        int64_t row = (int64_t)(i / steps), col = (int64_t)(i % steps) * W;
        const T *pair = a.gate_up + row * 2 * a.f + col;
        float gate[W], up[W], y[W];
        tern_load(pair, gate);
        tern_load(pair + a.f, up);
        TERN_UNROLL
        for (int e = 0; e < W; e++) {
            y[e] = tern_act<T, is_gelu>(gate[e]) * up[e];
        }
        tern_store(a.out + row * a.f + col, y);
    }
}

template <typename T, int W, bool is_gelu>
__global__ void __launch_bounds__(THREADS) glu_bwd_kernel(struct glu<T> a)
{
    uint64_t steps = (uint64_t)(a.f / W), total = (uint64_t)a.n * steps;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += stride) {
        int64_t row = (int64_t)(i / steps), col = (int64_t)(i % steps) * W;
        const T *pair = a.gate_up + row * 2 * a.f + col;
        float gate[W], up[W], dout[W];
        tern_load(pair, gate);
        tern_load(pair + a.f, up);
        tern_load(a.dout + row * a.f + col, dout);
        TERN_UNROLL
        for (int e = 0; e < W; e++) {
            float value, slope = tern_act_slope<T, is_gelu>(gate[e], value);
            gate[e] = dout[e] * up[e] * slope;
            up[e] = dout[e] * value;
        }
        T *to = a.dgate_up + row * 2 * a.f + col;
        tern_store(to, gate);
        tern_store(to + a.f, up);
    }
}

template <typename T, int W, bool is_gelu>
static tern_status run(struct tern_cuda_device *cuda, struct glu<T> a)
{
    bool is_backward = a.dgate_up != nullptr;
    tern_launch(is_backward ? glu_bwd_kernel<T, W, is_gelu> : glu_fwd_kernel<T, W, is_gelu>,
                tern_blocks(cuda, a.n * (a.f / W), THREADS), THREADS, 0, cuda->stream, a);
    return tern_cuda_launched(is_backward ? "glu_bwd" : "glu_fwd");
}

template <typename T>
static tern_status glu_any(struct tern_device *device,
                           const struct tern_glu_args *args,
                           bool is_backward)
{
    enum {
        W = tern_wide<T>::COUNT
    };
    struct tern_cuda_device *cuda = tern_cuda_device_of(device);
    glu<T> a = {tern_ptr<const T>(args->gate_up),
                is_backward ? nullptr : tern_ptr<T>(args->out),
                is_backward ? tern_ptr<const T>(args->dout) : nullptr,
                is_backward ? tern_ptr<T>(args->dgate_up) : nullptr,
                args->n,
                args->f};
    bool is_wide = args->f % W == 0 && tern_is_aligned(args->gate_up, 16) &&
                   tern_is_aligned(is_backward ? args->dout : args->out, 16) &&
                   (!is_backward || tern_is_aligned(args->dgate_up, 16));
    if (args->act == TERN_ACT_GELU_TANH) {
        return is_wide ? run<T, W, true>(cuda, a) : run<T, 1, true>(cuda, a);
    }
    return is_wide ? run<T, W, false>(cuda, a) : run<T, 1, false>(cuda, a);
}

tern_status tern_cuda_glu_fwd(struct tern_device *device, const struct tern_glu_args *args)
{
    return args->dtype == TERN_BF16 ? glu_any<tern_bf16>(device, args, false)
                                    : glu_any<float>(device, args, false);
}

tern_status tern_cuda_glu_bwd(struct tern_device *device, const struct tern_glu_args *args)
{
    return args->dtype == TERN_BF16 ? glu_any<tern_bf16>(device, args, true)
                                    : glu_any<float>(device, args, true);
}
