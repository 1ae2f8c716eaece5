/* logprobs.h - log-probabilities of one position: of the token that came and of the likeliest. */
#ifndef TERN_RUNTIME_SERVE_LOGPROBS_H
#define TERN_RUNTIME_SERVE_LOGPROBS_H

#include "runtime/serve/engine.h"

struct tern_logprobs {
    float logprob; /* of the token */
    struct tern_engine_top tops[TERN_ENGINE_TOPS_MAX];
    int top_count;
};

/* logits (vocab, the sampler's) of the model itself; the likeliest first, of equals the lower id; NaN is never
 * one. */
void tern_logprobs_of(struct tern_sampler *sampler,
                      const float *logits,
                      int64_t vocab,
                      int32_t id,
                      int tops,
                      struct tern_logprobs *out);

#endif
