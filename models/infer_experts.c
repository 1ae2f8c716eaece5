/* infer_experts.c - the mixture of experts of the inference pass: each expert computes on the tokens
 * that chose it, side by side. */
#include "models/infer_impl.h"

/* Pairs [first, first + n) of gathered to expert_out. */
static tern_status run_expert(struct tern_infer *infer,
                              const struct tern_expert *expert,
                              int64_t first,
                              int64_t n)
{
    const struct tern_model_config *c = &infer->model->config;
    enum tern_dtype dtype = infer->model->dtype;
    int64_t f = c->expert_ff_width;
    struct tern_dptr up = tern_dptr_at(infer->expert_up, first * 2 * f, dtype);
    struct tern_dptr act = tern_dptr_at(infer->expert_act, first * f, dtype);
    TERN_RETURN_IF_ERR(tern_infer_multiply_all(
        infer, &expert->up, n, tern_dptr_at(infer->gathered, first * c->width, dtype), up, 2 * f));
    TERN_RETURN_IF_ERR(tern_op_glu_fwd(infer->device, &(struct tern_glu_args){
                                                          .gate_up = up,
                                                          .out = act,
                                                          .n = n,
                                                          .f = f,
                                                          .act = c->features.act,
                                                          .dtype = dtype,
                                                      }));
    return tern_infer_multiply(infer, &expert->down, n, act,
                               tern_dptr_at(infer->expert_out, first * c->width, dtype), c->width,
                               NULL);
}

static tern_status route(struct tern_infer *infer, const struct tern_infer_layer *layer, int64_t n)
{
    const struct tern_model_config *c = &infer->model->config;
    TERN_RETURN_IF_ERR(tern_infer_multiply(infer, &layer->router, n, infer->norm,
                                           infer->router_logits, c->experts, NULL));
    return tern_op_moe_route(infer->device, &(struct tern_moe_route_args){
                                                .logits = infer->router_logits,
                                                .experts = infer->chosen,
                                                .weights = infer->shares,
                                                .pairs = infer->pairs,
                                                .rows = infer->pair_rows,
                                                .starts = infer->starts,
                                                .n = n,
                                                .expert_count = c->experts,
                                                .top_k = c->experts_used,
                                                .normalise = c->normalizes_experts,
                                                .dtype = infer->model->dtype,
                                            });
}

tern_status tern_infer_experts(struct tern_infer *infer,
                               const struct tern_infer_layer *layer,
                               int64_t n)
{
    const struct tern_model_config *c = &infer->model->config;
    int64_t pairs = n * c->experts_used;
    TERN_RETURN_IF_ERR(route(infer, layer, n));
    TERN_RETURN_IF_ERR(infer->device->ops->device->download(
        infer->device, infer->starts_host, infer->starts,
        (size_t)(c->experts + 1) * sizeof *infer->starts_host));
    TERN_RETURN_IF_ERR(tern_op_embed_fwd(infer->device, &(struct tern_embed_fwd_args){
                                                            .ids = infer->pair_rows,
                                                            .wte = infer->norm,
                                                            .out = infer->gathered,
                                                            .n = pairs,
                                                            .t = pairs,
                                                            .c = c->width,
                                                            .v = n,
                                                            .dtype = infer->model->dtype,
                                                        }));
    for (int64_t e = 0; e < c->experts; e++) {
        int64_t first = infer->starts_host[e];
        int64_t count = infer->starts_host[e + 1] - first;
        if (count > 0) {
            TERN_RETURN_IF_ERR(run_expert(infer, &layer->experts[e], first, count));
        }
    }
    return tern_op_moe_combine(infer->device, &(struct tern_moe_combine_args){
                                                  .x = infer->expert_out,
                                                  .weights = infer->shares,
                                                  .pairs = infer->pairs,
                                                  .out = infer->branch,
                                                  .n = n,
                                                  .top_k = c->experts_used,
                                                  .c = c->width,
                                                  .dtype = infer->model->dtype,
                                              });
}
