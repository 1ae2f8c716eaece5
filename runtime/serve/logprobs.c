/* logprobs.c - one pass for the sum, one for the likeliest. */
#include "runtime/serve/logprobs.h"

/* Puts a logit where it belongs among the likeliest so far. */
static void insert(struct tern_logprobs *out, int tops, int32_t id, float logit)
{
    int at = out->top_count < tops ? out->top_count++ : tops - 1;
    for (; at > 0 && out->tops[at - 1].logprob < logit; at--) {
        out->tops[at] = out->tops[at - 1];
    }
    out->tops[at] = (struct tern_engine_top){id, logit};
}

void tern_logprobs_of(struct tern_sampler *sampler,
                      const float *logits,
                      int64_t vocab,
                      int32_t id,
                      int tops,
                      struct tern_logprobs *out)
{
    double sum = tern_sampler_log_sum(sampler, logits);
    out->top_count = 0;
    out->logprob = (float)(logits[id] - sum);
    for (int64_t i = 0; i < vocab && tops > 0; i++) {
        if (out->top_count < tops ? logits[i] == logits[i]
                                  : logits[i] > out->tops[tops - 1].logprob) {
            insert(out, tops, (int32_t)i, logits[i]);
        }
    }
    for (int i = 0; i < out->top_count; i++) {
        out->tops[i].logprob = (float)(out->tops[i].logprob - sum);
    }
}
