/* linear_lora.c - what low-rank adapters add to a linear layer's three products.
 *
 * The A's of a layer's parts lie one after another, so one product takes x to all of their low-rank
 * rows, and one takes the gradient back; B's have their own columns of y. The scale is applied to
 * the low-rank rows, the smallest thing there is. */
#include "models/linear.h"

/* Columns of the low-rank rows of a layer. */
static int64_t low_width(const struct tern_lora_linear *lora)
{
    return lora->count * lora->rank;
}

/* d (m, n) = op(a) op(b) with all dtypes the run's but for gradients; strides as given. */
static tern_status product(const struct tern_linear_run *run, struct tern_gemm_args args)
{
    args.a_dtype = run->dtype;
    args.b_dtype = run->dtype;
    args.compute = run->dtype;
    return tern_op_gemm(run->device, &args);
}

static tern_status apply_scale(const struct tern_linear_run *run,
                               const struct tern_lora_linear *lora,
                               struct tern_dptr low)
{
    if (lora->scale == 1) {
        return TERN_OK;
    }
    return tern_op_add(run->device, &(struct tern_add_args){
                                        .b = low,
                                        .y = low,
                                        .n = run->n * low_width(lora),
                                        .scale = lora->scale,
                                        .dtype = run->dtype,
                                    });
}

/* sum (n, width) += wide */
static tern_status add_wide(const struct tern_linear_run *run, struct tern_dptr sum, int64_t width)
{
    return tern_op_add(run->device, &(struct tern_add_args){
                                        .a = sum,
                                        .b = run->wide,
                                        .y = sum,
                                        .n = run->n * width,
                                        .dtype = run->dtype,
                                    });
}

/* low (n, parts * rank) = scale x A^T */
static tern_status make_low(const struct tern_linear_run *run,
                            const struct tern_linear *linear,
                            struct tern_dptr x)
{
    const struct tern_lora_linear *lora = linear->lora;
    TERN_RETURN_IF_ERR(
        product(run, (struct tern_gemm_args){
                         .a = x,
                         .b = tern_dptr_at(run->adapters, lora->parts[0].a->offset, run->dtype),
                         .d = run->low,
                         .m = run->n,
                         .n = low_width(lora),
                         .k = linear->in,
                         .lda = linear->in,
                         .ldb = linear->in,
                         .ldd = low_width(lora),
                         .trans_b = true,
                         .d_dtype = run->dtype,
                     }));
    return apply_scale(run, lora, run->low);
}

/* Columns of y that no part writes must not keep what was there before. */
static tern_status clear_wide(const struct tern_linear_run *run, const struct tern_linear *linear)
{
    int64_t covered = 0;
    for (int i = 0; i < linear->lora->count; i++) {
        covered += linear->lora->parts[i].out;
    }
    size_t bytes = (size_t)(run->n * linear->out) * tern_dtype_bytes(run->dtype);
    return covered == linear->out ? TERN_OK
                                  : run->device->ops->device->zero(run->device, run->wide, bytes);
}

tern_status tern_linear_lora_fwd(const struct tern_linear_run *run,
                                 const struct tern_linear *linear,
                                 struct tern_dptr x,
                                 struct tern_dptr y)
{
    const struct tern_lora_linear *lora = linear->lora;
    TERN_RETURN_IF_ERR(make_low(run, linear, x));
    TERN_RETURN_IF_ERR(clear_wide(run, linear));
    for (int i = 0; i < lora->count; i++) {
        const struct tern_lora_part *part = &lora->parts[i];
        TERN_RETURN_IF_ERR(
            product(run, (struct tern_gemm_args){
                             .a = tern_dptr_at(run->low, i * lora->rank, run->dtype),
                             .b = tern_dptr_at(run->adapters, part->b->offset, run->dtype),
                             .d = tern_dptr_at(run->wide, part->out_begin, run->dtype),
                             .m = run->n,
                             .n = part->out,
                             .k = lora->rank,
                             .lda = low_width(lora),
                             .ldb = lora->rank,
                             .ldd = linear->out,
                             .trans_b = true,
                             .d_dtype = run->dtype,
                         }));
    }
    return add_wide(run, y, linear->out);
}

tern_status tern_linear_lora_bwd_input(const struct tern_linear_run *run,
                                       const struct tern_linear *linear,
                                       struct tern_dptr dy,
                                       struct tern_dptr dx)
{
    const struct tern_lora_linear *lora = linear->lora;
    for (int i = 0; i < lora->count; i++) {
        const struct tern_lora_part *part = &lora->parts[i];
        TERN_RETURN_IF_ERR(
            product(run, (struct tern_gemm_args){
                             .a = tern_dptr_at(dy, part->out_begin, run->dtype),
                             .b = tern_dptr_at(run->adapters, part->b->offset, run->dtype),
                             .d = tern_dptr_at(run->dlow, i * lora->rank, run->dtype),
                             .m = run->n,
                             .n = lora->rank,
                             .k = part->out,
                             .lda = linear->out,
                             .ldb = lora->rank,
                             .ldd = low_width(lora),
                             .d_dtype = run->dtype,
                         }));
    }
    TERN_RETURN_IF_ERR(apply_scale(run, lora, run->dlow));
    TERN_RETURN_IF_ERR(
        product(run, (struct tern_gemm_args){
                         .a = run->dlow,
                         .b = tern_dptr_at(run->adapters, lora->parts[0].a->offset, run->dtype),
                         .d = run->wide,
                         .m = run->n,
                         .n = linear->in,
                         .k = low_width(lora),
                         .lda = low_width(lora),
                         .ldb = linear->in,
                         .ldd = linear->in,
                         .d_dtype = run->dtype,
                     }));
    return add_wide(run, dx, linear->in);
}

tern_status tern_linear_lora_bwd_weight(const struct tern_linear_run *run,
                                        const struct tern_linear *linear,
                                        struct tern_dptr grads,
                                        struct tern_dptr x,
                                        struct tern_dptr dy,
                                        bool accumulate)
{
    const struct tern_lora_linear *lora = linear->lora;
    TERN_RETURN_IF_ERR(make_low(run, linear, x));
    TERN_RETURN_IF_ERR(
        product(run, (struct tern_gemm_args){
                         .a = run->dlow,
                         .b = x,
                         .d = tern_dptr_at(grads, lora->parts[0].a->offset, TERN_F32),
                         .m = low_width(lora),
                         .n = linear->in,
                         .k = run->n,
                         .lda = low_width(lora),
                         .ldb = linear->in,
                         .ldd = linear->in,
                         .trans_a = true,
                         .accumulate = accumulate,
                         .d_dtype = TERN_F32,
                     }));
    for (int i = 0; i < lora->count; i++) {
        const struct tern_lora_part *part = &lora->parts[i];
        TERN_RETURN_IF_ERR(product(run, (struct tern_gemm_args){
                                            .a = tern_dptr_at(dy, part->out_begin, run->dtype),
                                            .b = tern_dptr_at(run->low, i * lora->rank, run->dtype),
                                            .d = tern_dptr_at(grads, part->b->offset, TERN_F32),
                                            .m = part->out,
                                            .n = lora->rank,
                                            .k = run->n,
                                            .lda = linear->out,
                                            .ldb = low_width(lora),
                                            .ldd = lora->rank,
                                            .trans_a = true,
                                            .accumulate = accumulate,
                                            .d_dtype = TERN_F32,
                                        }));
    }
    return TERN_OK;
}
