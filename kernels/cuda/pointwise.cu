/* pointwise.cu - addition, caps and conversion: memory is all they cost (add: three elements moved an element; the
 * others: one read and one written). */
#include "kernels/cuda/span.cuh"

template <typename T> struct add_op {
    enum {
        INPUTS = 2
    };
    const T *a, *b; /* a may be null */
    T *y;           /* may be a or b */
    float scale;
};

template <typename T, int W>
TERN_DEVICE void span_load(const add_op<T> &op, int64_t at, tern_item<W, 2> &item)
{
    if (op.a != nullptr) {
        tern_load(op.a + at, item.x[0]);
    } else {
        TERN_UNROLL
        for (int i = 0; i < W; i++) {
            item.x[0][i] = 0;
        }
    }
    tern_load(op.b + at, item.x[1]);
}

template <typename T, int W>
TERN_DEVICE void span_store(const add_op<T> &op, int64_t at, const tern_item<W, 2> &item)
{
    float y[W];
    TERN_UNROLL
    for (int i = 0; i < W; i++) {
        y[i] = fmaf(op.scale, item.x[1][i], item.x[0][i]);
    }
    tern_store(op.y + at, y);
}

template <typename T>
static tern_status add(struct tern_device *device, const struct tern_add_args *args)
{
    add_op<T> op = {tern_ptr<const T>(args->a), tern_ptr<const T>(args->b), tern_ptr<T>(args->y),
                    args->scale != 0 ? args->scale : 1.0F};
    const struct tern_span_operand operands[] = {
        {args->a, sizeof(T)}, {args->b, sizeof(T)}, {args->y, sizeof(T)}};
    return tern_span_run<tern_wide<T>::COUNT, 2>(device, "add", op, args->n, operands);
}

tern_status tern_cuda_add(struct tern_device *device, const struct tern_add_args *args)
{
    return args->dtype == TERN_BF16 ? add<tern_bf16>(device, args) : add<float>(device, args);
}

template <typename T> struct cap_op {
    enum {
        INPUTS = 1
    };
    const T *x;
    T *y; /* may be x */
    float cap;
};

template <typename T, int W>
TERN_DEVICE void span_load(const cap_op<T> &op, int64_t at, tern_item<W, 1> &item)
{
    tern_load(op.x + at, item.x[0]);
}

template <typename T, int W>
TERN_DEVICE void span_store(const cap_op<T> &op, int64_t at, const tern_item<W, 1> &item)
{
    float y[W];
    TERN_UNROLL
    for (int i = 0; i < W; i++) {
        y[i] = op.cap * tanhf(item.x[0][i] / op.cap);
    }
    tern_store(op.y + at, y);
}

template <typename T>
static tern_status softcap(struct tern_device *device, const struct tern_softcap_args *args)
{
    cap_op<T> op = {tern_ptr<const T>(args->x), tern_ptr<T>(args->y), args->cap};
    const struct tern_span_operand operands[] = {{args->x, sizeof(T)}, {args->y, sizeof(T)}};
    return tern_span_run<tern_wide<T>::COUNT, 2>(device, "softcap", op, args->n, operands);
}

tern_status tern_cuda_softcap(struct tern_device *device, const struct tern_softcap_args *args)
{
    return args->dtype == TERN_BF16 ? softcap<tern_bf16>(device, args)
                                    : softcap<float>(device, args);
}

template <typename From, typename To> struct cast_op {
    enum {
        INPUTS = 1
    };
    const From *src;
    To *dst;
};

template <typename From, typename To, int W>
TERN_DEVICE void span_load(const cast_op<From, To> &op, int64_t at, tern_item<W, 1> &item)
{
    tern_load(op.src + at, item.x[0]);
}

template <typename From, typename To, int W>
TERN_DEVICE void span_store(const cast_op<From, To> &op, int64_t at, const tern_item<W, 1> &item)
{
    tern_store(op.dst + at, item.x[0]);
}

/* Steps of 4: a warp's accesses are then whole lines on the narrow side as well as on the wide one. */
template <typename From, typename To>
static tern_status cast(struct tern_device *device, const struct tern_cast_args *args)
{
    cast_op<From, To> op = {tern_ptr<const From>(args->src), tern_ptr<To>(args->dst)};
    const struct tern_span_operand operands[] = {{args->src, sizeof(From)},
                                                 {args->dst, sizeof(To)}};
    return tern_span_run<4, 4>(device, "cast", op, args->n, operands);
}

tern_status tern_cuda_cast(struct tern_device *device, const struct tern_cast_args *args)
{
    if (args->src_dtype != args->dst_dtype) {
        return args->src_dtype == TERN_BF16 ? cast<tern_bf16, float>(device, args)
                                            : cast<float, tern_bf16>(device, args);
    }
    /* every bit, those of a NaN too */
    size_t bytes = (size_t)args->n * tern_dtype_bytes(args->src_dtype);
    return tern_cuda_status(
        cudaMemcpyAsync(tern_ptr<void>(args->dst), tern_ptr<const void>(args->src), bytes,
                        cudaMemcpyDeviceToDevice, tern_cuda_device_of(device)->stream),
        "cast");
}
