/* linear.c - linear layers as gemm calls. */
#include "models/linear.h"

tern_status tern_linear_fwd(const struct tern_linear_run *run,
                            const struct tern_linear *linear,
                            struct tern_dptr weights,
                            struct tern_dptr x,
                            struct tern_dptr y,
                            const struct tern_dptr *gelu_pre)
{
    enum tern_dtype dtype = run->dtype;
    struct tern_gemm_args args = {
        .a = x,
        .b = tern_dptr_at(weights, linear->weight, dtype),
        .d = y,
        .m = run->n,
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
    bool is_adapted = linear->lora != NULL;
    if (linear->bias >= 0) {
        bool is_gelu = gelu_pre != NULL && !is_adapted; /* else GELU has to wait */
        args.bias = tern_dptr_at(weights, linear->bias, dtype);
        args.epilogue = is_gelu ? TERN_EPILOGUE_BIAS_GELU : TERN_EPILOGUE_BIAS;
        args.aux = is_gelu ? *gelu_pre : (struct tern_dptr){0};
    }
    args.d = is_adapted && gelu_pre != NULL ? *gelu_pre : y;
    TERN_RETURN_IF_ERR(tern_op_gemm(run->device, &args));
    if (!is_adapted) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_linear_lora_fwd(run, linear, x, args.d));
    return gelu_pre == NULL ? TERN_OK
                            : tern_op_act_fwd(run->device, &(struct tern_act_args){
                                                               .x = *gelu_pre,
                                                               .y = y,
                                                               .n = run->n * linear->out,
                                                               .act = TERN_ACT_GELU_TANH,
                                                               .dtype = dtype,
                                                           });
}

tern_status tern_linear_bwd_input(const struct tern_linear_run *run,
                                  const struct tern_linear *linear,
                                  struct tern_dptr weights,
                                  struct tern_dptr dy,
                                  struct tern_dptr dx,
                                  const struct tern_dptr *gelu_pre)
{
    enum tern_dtype dtype = run->dtype;
    struct tern_gemm_args args = {
        .a = dy,
        .b = tern_dptr_at(weights, linear->weight, dtype),
        .d = dx,
        .m = run->n,
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
    bool is_adapted = linear->lora != NULL;
    if (gelu_pre != NULL && !is_adapted) {
        args.epilogue = TERN_EPILOGUE_DGELU;
        args.aux = *gelu_pre;
    }
    TERN_RETURN_IF_ERR(tern_op_gemm(run->device, &args));
    if (!is_adapted) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_linear_lora_bwd_input(run, linear, dy, dx));
    return gelu_pre == NULL ? TERN_OK
                            : tern_op_act_bwd(run->device, &(struct tern_act_args){
                                                               .x = *gelu_pre,
                                                               .dy = dx,
                                                               .dx = dx,
                                                               .n = run->n * linear->in,
                                                               .act = TERN_ACT_GELU_TANH,
                                                               .dtype = dtype,
                                                           });
}

tern_status tern_linear_bwd_weight(const struct tern_linear_run *run,
                                   const struct tern_linear *linear,
                                   struct tern_dptr grads,
                                   struct tern_dptr x,
                                   struct tern_dptr dy,
                                   bool accumulate)
{
    if (run->is_frozen) {
        return linear->lora != NULL
                   ? tern_linear_lora_bwd_weight(run, linear, grads, x, dy, accumulate)
                   : TERN_OK;
    }
    bool flip = linear->is_out_in; /* dW (out, in) = dy^T x, else dW (in, out) = x^T dy */
    enum tern_dtype dtype = run->dtype;
    struct tern_gemm_args args = {
        .a = flip ? dy : x,
        .b = flip ? x : dy,
        .d = tern_dptr_at(grads, linear->weight, TERN_F32),
        .m = flip ? linear->out : linear->in,
        .n = flip ? linear->in : linear->out,
        .k = run->n,
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
    if (linear->bias < 0) {
        return tern_op_gemm(run->device, &args);
    }
    struct tern_gemm_bias_bwd_args both = {
        .gemm = args,
        .dbias = tern_dptr_at(grads, linear->bias, TERN_F32),
        .is_of_a = flip,
    };
    return tern_op_gemm_bias_bwd(run->device, &both);
}
