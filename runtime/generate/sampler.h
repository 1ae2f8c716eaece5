/* sampler.h - from logits to a token: a pure function of the logits, the settings, the seed and the
 * position. */
#ifndef TERN_RUNTIME_GENERATE_SAMPLER_H
#define TERN_RUNTIME_GENERATE_SAMPLER_H

#include "runtime/generate/softmax.h"

#include <stdint.h>

struct tern_sampling {
    double temperature; /* 0: greedy, the lowest id among equals; NaN is never picked while there is
                           a number */
    int64_t top_k;      /* keep the k most likely; 0: all */
    double top_p;       /* keep the most likely until their sum reaches p; 1: all */
    double min_p;       /* keep those at least min_p times as likely as the best; 0: all */
    /* Of tokens that were there: a logit is divided by `repetition` where it is positive and
     * multiplied where it is negative, if the token is in the prompt or the text (0 or 1: none);
     * `frequency` a time, and `presence` once, are taken from it if it is in the text (0: none). */
    double repetition, presence, frequency;
    uint64_t seed;
    uint32_t choice; /* texts of one seed side by side: each has its own sequence of draws */
};

struct tern_logit_bias {
    int32_t id;
    float value; /* added to the logit */
};

/* What one position's logits are changed by before a token is picked. */
struct tern_logit_rules {
    const int32_t *ids; /* the prompt and the text so far, for penalties */
    int64_t prompt_count, text_count;
    const struct tern_logit_bias *bias;
    int64_t bias_count;
    const int32_t *banned; /* ids that must not be picked while there is another */
    int banned_count;
    /* A bit an id, (V + 31) / 32 words: others are never picked; NULL: all are allowed. */
    const uint32_t *allowed;
};

struct tern_sampler;

/* Room for a vocabulary; owned: destroy. */
TERN_MUST_CHECK tern_status tern_sampler_create(int64_t vocab, struct tern_sampler **out);
void tern_sampler_destroy(struct tern_sampler *sampler);
/* Logits (V) after penalties, bias, the mask and bans, in this order: `logits` itself where
 * there is nothing to change, else memory of the sampler, valid until the next call. */
const float *tern_sampler_adjust(struct tern_sampler *sampler,
                                 const float *logits,
                                 const struct tern_sampling *sampling,
                                 const struct tern_logit_rules *rules);
/* Order as in the usual libraries: temperature, top-k, top-p, min-p; the draw is Philox(seed,
 * choice, position). */
int32_t tern_sampler_pick(struct tern_sampler *sampler,
                          const float *logits,
                          const struct tern_sampling *sampling,
                          int64_t position);
/* Weights exp(logit - best), valid until the next call. */
const struct tern_softmax *tern_sampler_weights(struct tern_sampler *sampler, const float *logits);
/* Natural logarithm of the sum of exp(logits), by the same weights: what a logit is above it is its
 * log-probability, to some 1e-6. NAN where the largest is no finite number. */
double tern_sampler_log_sum(struct tern_sampler *sampler, const float *logits);

#endif
