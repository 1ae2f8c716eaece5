/* moe.c - which experts a row goes to, and what they gave brought together. */
#include "kernels/ref/ref.h"

#include <math.h>

/* Of the experts that `chosen` does not have yet, the one of largest logit; of equal ones the first. */
static int64_t best_of(const struct tern_moe_route_args *args, int64_t n, const bool *chosen)
{
    int64_t best = -1;
    double most = 0;
    for (int64_t e = 0; e < args->expert_count; e++) {
        double x = tern_ref_get(args->logits, args->dtype, n * args->expert_count + e);
        if (!chosen[e] && (best < 0 || x > most)) {
            best = e;
            most = x;
        }
    }
    return best;
}

static void route_row(const struct tern_moe_route_args *args, int64_t n)
{
    int32_t *experts = (int32_t *)tern_ref_ptr(args->experts) + n * args->top_k;
    bool chosen[TERN_EXPERTS_MAX] = {false};
    double most = 0, all = 0, kept = 0;
    for (int64_t j = 0; j < args->top_k; j++) {
        experts[j] = (int32_t)best_of(args, n, chosen);
        chosen[experts[j]] = true;
    }
    int64_t row = n * args->expert_count;
    most = tern_ref_get(args->logits, args->dtype, row + experts[0]);
    for (int64_t e = 0; e < args->expert_count; e++) {
        double x = exp(tern_ref_get(args->logits, args->dtype, row + e) - most);
        all += x;
        kept += chosen[e] ? x : 0;
    }
    for (int64_t j = 0; j < args->top_k; j++) {
        double x = exp(tern_ref_get(args->logits, args->dtype, row + experts[j]) - most);
        tern_ref_put(args->weights, tern_ref_side(args->dtype), n * args->top_k + j,
                     x / (args->normalise ? kept : all));
    }
}

tern_status tern_ref_moe_route(struct tern_device *device, const struct tern_moe_route_args *args)
{
    (void)device;
    const int32_t *experts = tern_ref_ptr(args->experts);
    int32_t *pairs = tern_ref_ptr(args->pairs), *rows = tern_ref_ptr(args->rows);
    int32_t *starts = tern_ref_ptr(args->starts), next = 0;
    for (int64_t n = 0; n < args->n; n++) {
        route_row(args, n);
    }
    for (int64_t e = 0; e < args->expert_count; e++) {
        starts[e] = next;
        for (int64_t i = 0; i < args->n * args->top_k; i++) {
            if (experts[i] == e) {
                rows[next] = (int32_t)(i / args->top_k);
                pairs[i] = next++;
            }
        }
    }
    starts[args->expert_count] = next;
    return TERN_OK;
}

tern_status tern_ref_moe_combine(struct tern_device *device,
                                 const struct tern_moe_combine_args *args)
{
    (void)device;
    for (int64_t i = 0; i < args->n * args->c; i++) {
        int64_t n = i / args->c, c = i % args->c;
        double sum = 0;
        for (int64_t j = 0; j < args->top_k; j++) {
            int64_t at = n * args->top_k + j;
            double weight = tern_ref_get(args->weights, tern_ref_side(args->dtype), at);
            int64_t pair = tern_ref_i32(args->pairs, at);
            sum += weight * tern_ref_get(args->x, args->dtype, pair * args->c + c);
        }
        tern_ref_put(args->out, args->dtype, i, sum);
    }
    return TERN_OK;
}
