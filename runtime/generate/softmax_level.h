/* softmax_level.h - the loops of softmax.c, compiled once for each level of instructions; the
 * bits are the same. */
#ifndef TERN_RUNTIME_GENERATE_SOFTMAX_LEVEL_H
#define TERN_RUNTIME_GENERATE_SOFTMAX_LEVEL_H

#include <stdint.h>

struct tern_softmax_level {
    /* The largest of n logits; -infinity if there is no number. */
    float (*largest)(const float *logits, int64_t n);
    /* Weights exp((logits[i] - best) * scale) of TERN_SOFTMAX_BLOCK logits, the largest of them
     * and their sum. */
    void (*block)(const float *logits,
                  float best,
                  float scale,
                  float *weights,
                  float *largest_out,
                  float *sum_out);
};

extern const struct tern_softmax_level tern_softmax_generic, tern_softmax_avx2, tern_softmax_avx512;

#endif
