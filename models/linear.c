/* linear.c - linear layers as gemm calls. */
#include "models/linear.h"

tern_status tern_linear_fwd(struct tern_device *device,
                            const struct tern_linear *linear,
                            enum tern_dtype dtype,
                            struct tern_dptr weights,
                            int64_t n,
                            struct tern_dptr x,
                            struct tern_dptr y,
                            const struct tern_dptr *gelu_pre)
{
    struct tern_gemm_args args = {
        .a = x,
        .b = tern_dptr_at(weights, linear->weight, dtype),
        .d = y,
        .m = n,
        .n = linear->out,
        .k = linear->in,
        .lda = linear->in,
        .ldb = linear->is_out_in ? linear->in : linear->out,
        .ldd = linear->out,
        .trans_b = linear->is_out_in,
        .a_dtype = dtype,
        .b_dtype = dtype,
        .d_dtype = dtype,
        .bias_dtype = dtype,
        .compute = dtype,
    };
    if (linear->bias >= 0) {
        args.bias = tern_dptr_at(weights, linear->bias, dtype);
        args.epilogue = gelu_pre != NULL ? TERN_EPILOGUE_BIAS_GELU : TERN_EPILOGUE_BIAS;
        args.aux = gelu_pre != NULL ? *gelu_pre : (struct tern_dptr){0};
    }
    return tern_op_gemm(device, &args);
}

tern_status tern_linear_bwd_input(struct tern_device *device,
                                  const struct tern_linear *linear,
                                  enum tern_dtype dtype,
                                  struct tern_dptr weights,
                                  int64_t n,
                                  struct tern_dptr dy,
                                  struct tern_dptr dx,
                                  const struct tern_dptr *gelu_pre)
{
    struct tern_gemm_args args = {
        .a = dy,
        .b = tern_dptr_at(weights, linear->weight, dtype),
        .d = dx,
        .m = n,
        .n = linear->in,
        .k = linear->out,
        .lda = linear->out,
        .ldb = linear->is_out_in ? linear->in : linear->out,
        .ldd = linear->in,
        .trans_b = !linear->is_out_in,
        .a_dtype = dtype,
        .b_dtype = dtype,
        .d_dtype = dtype,
        .compute = dtype,
    };
    if (gelu_pre != NULL) {
        args.epilogue = TERN_EPILOGUE_DGELU;
        args.aux = *gelu_pre;
    }
    return tern_op_gemm(device, &args);
}

tern_status tern_linear_bwd_weight(struct tern_device *device,
                                   const struct tern_linear *linear,
                                   enum tern_dtype dtype,
                                   struct tern_dptr grads,
                                   int64_t n,
                                   struct tern_dptr x,
                                   struct tern_dptr dy,
                                   bool accumulate)
{
    bool flip = linear->is_out_in; /* dW (out, in) = dy^T x, else dW (in, out) = x^T dy */
    struct tern_gemm_args args = {
        .a = flip ? dy : x,
        .b = flip ? x : dy,
        .d = tern_dptr_at(grads, linear->weight, TERN_F32),
        .m = flip ? linear->out : linear->in,
        .n = flip ? linear->in : linear->out,
        .k = n,
        .lda = flip ? linear->out : linear->in,
        .ldb = flip ? linear->in : linear->out,
        .ldd = flip ? linear->in : linear->out,
        .trans_a = true,
        .accumulate = accumulate,
        .a_dtype = dtype,
        .b_dtype = dtype,
        .d_dtype = TERN_F32,
        .compute = dtype,
    };
    TERN_RETURN_IF_ERR(tern_op_gemm(device, &args));
    if (linear->bias < 0) {
        return TERN_OK;
    }
    struct tern_bias_bwd_args bias = {
        .dy = dy,
        .dbias = tern_dptr_at(grads, linear->bias, TERN_F32),
        .rows = n,
        .n = linear->out,
        .ldy = linear->out,
        .accumulate = accumulate,
        .dtype = dtype,
    };
    return tern_op_bias_bwd(device, &bias);
}
