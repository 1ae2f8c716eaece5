/* logprobs.c - one pass for the sum, one for the likeliest, over blocks that may have them. */
#include "runtime/serve/logprobs.h"

#include <math.h>

/* Puts a logit where it belongs among the likeliest so far. */
static void insert(struct tern_logprobs *out, int tops, int32_t id, float logit)
{
    int at = out->top_count < tops ? out->top_count++ : tops - 1;
    for (; at > 0 && out->tops[at - 1].logprob < logit; at--) {
        out->tops[at] = out->tops[at - 1];
    }
    out->tops[at] = (struct tern_engine_top){id, logit};
}

/* A block whose weights are all below it has none of the likeliest: somewhat less than that of the
 * last of them, as weights are not exact. */
static float least_weight(const struct tern_softmax *softmax, const struct tern_logprobs *out)
{
    return softmax->weights[out->tops[out->top_count - 1].id] * 0.9999F;
}

void tern_logprobs_of(struct tern_sampler *sampler,
                      const float *logits,
                      int64_t vocab,
                      int32_t id,
                      int tops,
                      struct tern_logprobs *out)
{
    const struct tern_softmax *softmax = tern_sampler_weights(sampler, logits);
    int32_t best = tern_softmax_best(logits, vocab);
    double sum = softmax->sum > 0 ? logits[best] + log(softmax->sum) : NAN;
    out->top_count = 0;
    out->logprob = (float)(logits[id] - sum);
    for (int64_t block = 0; block < softmax->blocks && tops > 0; block++) {
        if (out->top_count == tops && softmax->block_best[block] < least_weight(softmax, out)) {
            continue;
        }
        int64_t from = block * TERN_SOFTMAX_BLOCK;
        int64_t to = from + TERN_SOFTMAX_BLOCK < vocab ? from + TERN_SOFTMAX_BLOCK : vocab;
        for (int64_t i = from; i < to; i++) {
            if (out->top_count < tops ? logits[i] == logits[i]
                                      : logits[i] > out->tops[tops - 1].logprob) {
                insert(out, tops, (int32_t)i, logits[i]);
            }
        }
    }
    for (int i = 0; i < out->top_count; i++) {
        out->tops[i].logprob = (float)(out->tops[i].logprob - sum);
    }
}
