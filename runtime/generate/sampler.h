/* sampler.h - from logits to a token: a pure function of the logits, the settings, the seed and the
 * position. */
#ifndef TERN_RUNTIME_GENERATE_SAMPLER_H
#define TERN_RUNTIME_GENERATE_SAMPLER_H

#include "runtime/base/status.h"

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

struct tern_sampler;

/* Room for a vocabulary; owned: destroy. */
TERN_MUST_CHECK tern_status tern_sampler_create(int64_t vocab, struct tern_sampler **out);
void tern_sampler_destroy(struct tern_sampler *sampler);
/* Order as in the usual libraries: temperature, top-k, top-p, min-p; the draw is Philox(seed,
 * position). */
int32_t tern_sampler_pick(struct tern_sampler *sampler,
                          const float *logits,
                          const struct tern_sampling *sampling,
                          int64_t position);

#endif
