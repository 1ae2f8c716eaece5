/* adamw.cu - one AdamW step (Loshchilov and Hutter 2019): reads w, m, v, g and writes w, m, v and a copy, 30 bytes an
 * element with a bf16 copy, so memory is what it costs; roots and divisions are exact and hide behind it. */
#include "kernels/cuda/span.cuh"

/* Copy is float for a f32 copy or for none. */
template <typename Copy> struct adamw_op {
    enum {
        INPUTS = 4 /* w, m, v, g */
    };
    float *weight, *exp_avg, *exp_avg_sq;
    const float *grad;
    Copy *copy;
    const float *scale; /* (1) */
    float beta1, one_less_beta1, beta2, one_less_beta2, by_bias1, by_bias2, eps, lr, decay;
};

template <typename Copy, int W>
TERN_DEVICE void span_load(const adamw_op<Copy> &op, int64_t at, tern_item<W, 4> &item)
{
    tern_load(op.weight + at, item.x[0]);
    tern_load(op.exp_avg + at, item.x[1]);
    tern_load(op.exp_avg_sq + at, item.x[2]);
    tern_load(op.grad + at, item.x[3]);
}

template <typename Copy, int W>
TERN_DEVICE void span_store(const adamw_op<Copy> &op, int64_t at, const tern_item<W, 4> &item)
{
    float w[W], m[W], v[W], scale = *op.scale;
    if (!isfinite(scale)) {
        return;
    }
    TERN_UNROLL
    for (int i = 0; i < W; i++) {
        float g = item.x[3][i] * scale;
        m[i] = op.beta1 * item.x[1][i] + op.one_less_beta1 * g;
        v[i] = op.beta2 * item.x[2][i] + op.one_less_beta2 * g * g;
        float root = sqrtf(v[i] * op.by_bias2) + op.eps;
        w[i] = item.x[0][i];
        w[i] -= op.lr * (m[i] * op.by_bias1 / root + op.decay * w[i]);
    }
    tern_store(op.weight + at, w);
    tern_store(op.exp_avg + at, m);
    tern_store(op.exp_avg_sq + at, v);
    if (op.copy != nullptr) {
        tern_store(op.copy + at, w);
    }
}

template <typename Copy>
static tern_status adamw(struct tern_device *device, const struct tern_adamw_args *args)
{
    adamw_op<Copy> op = {
        tern_ptr<float>(args->weight),
        tern_ptr<float>(args->exp_avg),
        tern_ptr<float>(args->exp_avg_sq),
        tern_ptr<const float>(args->grad),
        tern_ptr<Copy>(args->copy),
        tern_ptr<const float>(args->grad_scale),
        args->beta1,
        1.0f - args->beta1,
        args->beta2,
        1.0f - args->beta2,
        1.0f / args->bias1,
        1.0f / args->bias2,
        args->eps,
        args->lr,
        args->weight_decay,
    };
    const struct tern_span_operand operands[] = {{args->weight, sizeof(float)},
                                                 {args->exp_avg, sizeof(float)},
                                                 {args->exp_avg_sq, sizeof(float)},
                                                 {args->grad, sizeof(float)},
                                                 {args->copy, sizeof(Copy)}};
    return tern_span_run<4, 1>(device, "adamw", op, args->n, operands);
}

tern_status tern_cuda_adamw(struct tern_device *device, const struct tern_adamw_args *args)
{
    return args->copy_dtype == TERN_BF16 ? adamw<tern_bf16>(device, args)
                                         : adamw<float>(device, args);
}
