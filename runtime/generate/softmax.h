/* softmax.h - a vocabulary's logits as weights exp((logit - best) / temperature), fast: what a
 * token is drawn from, and what probabilities are made of.
 *
 * Weights are f32 with a relative error of some 1e-7 times the distance to the best in nats. A
 * token 2^64 times less likely than the best has none. Bits are the same on every machine. */
#ifndef TERN_RUNTIME_GENERATE_SOFTMAX_H
#define TERN_RUNTIME_GENERATE_SOFTMAX_H

#include "runtime/base/status.h"

#include <stdint.h>

enum {
    TERN_SOFTMAX_BLOCK = 128 /* ids */
};

struct tern_softmax {
    int64_t vocab, blocks;
    float *weights;    /* (blocks, 128): 1 the best; 0: cannot be drawn, or no id */
    float *block_best; /* (blocks) largest weight */
    float *block_sum;  /* (blocks) */
    double sum;
};

/* Owned: fini, which zeros need too. */
TERN_MUST_CHECK tern_status tern_softmax_init(struct tern_softmax *softmax, int64_t vocab);
void tern_softmax_fini(struct tern_softmax *softmax);
/* The lowest id among the largest; NaN is never one while there is a number. */
int32_t tern_softmax_best(const float *logits, int64_t vocab);
/* Fills the weights. All are 0 where logits[best] is no finite number. */
void tern_softmax_run(struct tern_softmax *softmax,
                      const float *logits,
                      int32_t best,
                      double temperature);

#endif
