/* softmax.c - four logits at a time. */
#include "runtime/generate/softmax.h"

#include "runtime/base/mem.h"

#include <math.h>
#include <string.h>

enum {
    LANES = 4,
    BEST_BLOCK = 4096 /* logits between two looks at the best so far */
};

/* The compiler makes of it what the machine has; unaligned, and of any type underneath. */
typedef float floats __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(16), aligned(4), may_alias));

static inline floats splat(float value)
{
    return value - (floats){0};
}

/* a where the mask has ones, else b. */
static inline floats pick(ints mask, floats a, floats b)
{
    return (floats)(((ints)a & mask) | ((ints)b & ~mask));
}

static inline float largest_of(floats v)
{
    float best = v[0];
    for (int i = 1; i < LANES; i++) {
        best = v[i] > best ? v[i] : best;
    }
    return best;
}

tern_status tern_softmax_init(struct tern_softmax *softmax, int64_t vocab)
{
    int64_t blocks = (vocab + TERN_SOFTMAX_BLOCK - 1) / TERN_SOFTMAX_BLOCK;
    size_t count = (size_t)blocks;
    *softmax = (struct tern_softmax){
        .vocab = vocab,
        .blocks = blocks,
        .weights = tern_alloc_zero("softmax", count * TERN_SOFTMAX_BLOCK, sizeof(float)),
        .block_best = tern_alloc("softmax", count * sizeof(float)),
        .block_sum = tern_alloc("softmax", count * sizeof(float)),
    };
    if (softmax->weights == NULL || softmax->block_best == NULL || softmax->block_sum == NULL) {
        tern_softmax_fini(softmax);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate weights of %lld tokens",
                         (long long)vocab);
    }
    return TERN_OK;
}

void tern_softmax_fini(struct tern_softmax *softmax)
{
    tern_free(softmax->weights);
    tern_free(softmax->block_best);
    tern_free(softmax->block_sum);
    *softmax = (struct tern_softmax){0};
}

/* The largest of n logits; -infinity if there is no number. */
static float largest(const float *logits, int64_t n)
{
    floats best = splat(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        floats some = *(const floats *)(logits + i);
        best = pick(some > best, some, best); /* never of NaN */
    }
    float one = largest_of(best);
    for (; i < n; i++) {
        one = logits[i] > one ? logits[i] : one;
    }
    return one;
}

int32_t tern_softmax_best(const float *logits, int64_t vocab)
{
    float best = -INFINITY;
    int64_t from = 0; /* the block that has it first */
    for (int64_t at = 0; at < vocab; at += BEST_BLOCK) {
        int64_t n = vocab - at < BEST_BLOCK ? vocab - at : BEST_BLOCK;
        float one = largest(logits + at, n);
        if (one > best) {
            best = one;
            from = at;
        }
    }
    for (int64_t i = from; i < vocab; i++) {
        if (logits[i] == best) {
            return (int32_t)i;
        }
    }
    return 0; /* nothing but NaN */
}

/* exp(x) of x <= 0: 2^n 2^f with n whole and f in [-1/2, 1/2], the latter by its series (the terms
 * left out are below 2^-27). 0 below -44, and of NaN. */
static inline floats exp_of(floats x)
{
    const float round = 12582912; /* 1.5 2^23: what is added to it becomes whole */
    ints is_there = x >= splat(-44);
    floats t = pick(is_there, x, splat(0)) * 1.44269504F;
    floats whole = t + round;
    floats f = (t - (whole - round)) * 0.693147181F;
    floats p = f * (1.0F / 5040) + 1.0F / 720;
    p = p * f + 1.0F / 120;
    p = p * f + 1.0F / 24;
    p = p * f + 1.0F / 6;
    p = p * f + 0.5F;
    p = p * f + 1;
    p = p * f + 1;
    words exponent = (words)whole << 23; /* its low bits are n */
    return (floats)(((words)p + exponent) & (words)is_there);
}

/* One block of weights from its logits. */
static void run_block(struct tern_softmax *softmax,
                      int64_t block,
                      const float *logits,
                      float best,
                      float scale)
{
    float *weights = softmax->weights + block * TERN_SOFTMAX_BLOCK;
    floats sum = splat(0);
    floats most = splat(0);
    for (int i = 0; i < TERN_SOFTMAX_BLOCK; i += LANES) {
        floats weight = exp_of((*(const floats *)(logits + i) - best) * scale);
        *(floats *)(weights + i) = weight;
        sum += weight;
        most = pick(weight > most, weight, most);
    }
    float all = 0;
    for (int i = 0; i < LANES; i++) {
        all += sum[i];
    }
    softmax->block_best[block] = largest_of(most);
    softmax->block_sum[block] = all;
    softmax->sum += all;
}

void tern_softmax_run(struct tern_softmax *softmax,
                      const float *logits,
                      int32_t best,
                      double temperature)
{
    float scale = (float)(1 / temperature);
    int64_t whole = softmax->vocab / TERN_SOFTMAX_BLOCK;
    softmax->sum = 0;
    for (int64_t block = 0; block < whole; block++) {
        run_block(softmax, block, logits + block * TERN_SOFTMAX_BLOCK, logits[best], scale);
    }
    if (whole < softmax->blocks) {
        float last[TERN_SOFTMAX_BLOCK];
        int64_t rest = softmax->vocab - whole * TERN_SOFTMAX_BLOCK;
        for (int64_t i = 0; i < TERN_SOFTMAX_BLOCK; i++) {
            last[i] = i < rest ? logits[whole * TERN_SOFTMAX_BLOCK + i] : -INFINITY;
        }
        run_block(softmax, whole, last, logits[best], scale);
    }
}
