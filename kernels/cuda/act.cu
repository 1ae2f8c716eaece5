/* act.cu - activations, forward (one element read, one written) and backward (two read, one written). */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/span.cuh"

template <typename T, bool is_gelu> struct act_fwd_op {
    enum {
        INPUTS = 1
    };
    const T *x;
    T *y;
};

template <typename T, bool is_gelu, int W>
TERN_DEVICE void span_load(const act_fwd_op<T, is_gelu> &op, int64_t at, tern_item<W, 1> &item)
{
    tern_load(op.x + at, item.x[0]);
}

template <typename T, bool is_gelu, int W>
TERN_DEVICE void span_store(const act_fwd_op<T, is_gelu> &op,
                            int64_t at,
                            const tern_item<W, 1> &item)
{
    float y[W];
    TERN_UNROLL
    for (int i = 0; i < W; i++) {
        y[i] = tern_act<T, is_gelu>(item.x[0][i]);
    }
    tern_store(op.y + at, y);
}

template <typename T, bool is_gelu> struct act_bwd_op {
    enum {
        INPUTS = 2
    };
    const T *x, *dy;
    T *dx; /* may be dy */
};

template <typename T, bool is_gelu, int W>
TERN_DEVICE void span_load(const act_bwd_op<T, is_gelu> &op, int64_t at, tern_item<W, 2> &item)
{
    tern_load(op.x + at, item.x[0]);
    tern_load(op.dy + at, item.x[1]);
}

template <typename T, bool is_gelu, int W>
TERN_DEVICE void span_store(const act_bwd_op<T, is_gelu> &op,
                            int64_t at,
                            const tern_item<W, 2> &item)
{
    float dx[W];
    TERN_UNROLL
    for (int i = 0; i < W; i++) {
        float value;
        dx[i] = item.x[1][i] * tern_act_slope<T, is_gelu>(item.x[0][i], value);
    }
    tern_store(op.dx + at, dx);
}

template <typename T, bool is_gelu>
static tern_status act_fwd(struct tern_device *device, const struct tern_act_args *args)
{
    act_fwd_op<T, is_gelu> op = {tern_ptr<const T>(args->x), tern_ptr<T>(args->y)};
    const struct tern_span_operand operands[] = {{args->x, sizeof(T)}, {args->y, sizeof(T)}};
    return tern_span_run<tern_wide<T>::COUNT, 2>(device, "act_fwd", op, args->n, operands);
}

template <typename T, bool is_gelu>
static tern_status act_bwd(struct tern_device *device, const struct tern_act_args *args)
{
    act_bwd_op<T, is_gelu> op = {tern_ptr<const T>(args->x), tern_ptr<const T>(args->dy),
                                 tern_ptr<T>(args->dx)};
    const struct tern_span_operand operands[] = {
        {args->x, sizeof(T)}, {args->dy, sizeof(T)}, {args->dx, sizeof(T)}};
    return tern_span_run<tern_wide<T>::COUNT, 2>(device, "act_bwd", op, args->n, operands);
}

tern_status tern_cuda_act_fwd(struct tern_device *device, const struct tern_act_args *args)
{
    bool is_gelu = args->act == TERN_ACT_GELU_TANH;
    if (args->dtype == TERN_BF16) {
        return is_gelu ? act_fwd<tern_bf16, true>(device, args)
                       : act_fwd<tern_bf16, false>(device, args);
    }
    return is_gelu ? act_fwd<float, true>(device, args) : act_fwd<float, false>(device, args);
}

tern_status tern_cuda_act_bwd(struct tern_device *device, const struct tern_act_args *args)
{
    bool is_gelu = args->act == TERN_ACT_GELU_TANH;
    if (args->dtype == TERN_BF16) {
        return is_gelu ? act_bwd<tern_bf16, true>(device, args)
                       : act_bwd<tern_bf16, false>(device, args);
    }
    return is_gelu ? act_bwd<float, true>(device, args) : act_bwd<float, false>(device, args);
}
